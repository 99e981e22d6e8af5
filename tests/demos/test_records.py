"""Records: nothing is lost on disk, and nothing wrong is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnable_demos.lab import records
from runnable_demos.lab.metrics import (
    Axis,
    Category,
    Figure,
    Metric,
    Parameter,
    Record,
    Result,
    Series,
)

TEXT = {"zh": "字节", "en": "bytes"}


def record(value: float = 16, recorded: str = "2026-11-29") -> Record:
    """A record with one of each thing that a record may hold."""
    return Record(
        demo="example",
        title=TEXT,
        question=TEXT,
        device="cpu",
        size="full",
        parameters=(
            Parameter("layers", 12, 1, 100, TEXT),
            Parameter("device", "cpu", None, None, TEXT),
        ),
        result=Result(
            metrics=(
                Metric("bytes", value, "B", "exact", TEXT, TEXT),
                Metric("equal", True, "", "exact", TEXT, TEXT),
                Metric("error", 3e-8, "", "bounded", TEXT, TEXT, 1e-6, TEXT),
            ),
            figures=(
                Figure(
                    "curve",
                    TEXT,
                    Axis(TEXT, scale="log2"),
                    Axis(TEXT, "B", categories=(Category("one", TEXT),)),
                    (Series("s", TEXT, (1, 2.5), (0.1, 4), "theory"),),
                ),
            ),
        ),
        environment={"torch": "2.13.0"},
        sources={"runnable_demos/example.py": "0" * 64},
        recorded=recorded,
    )


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    """What is saved is what is loaded, types of numbers included."""
    path = records.record_path(tmp_path / "evidence", "example", "cpu")
    assert path.name == "example.cpu.json"
    records.save(record(), path)
    loaded = records.load(path)
    assert loaded == record()
    assert [type(m.value) for m in loaded.result.metrics] == [int, bool, float]
    assert list(path.parent.iterdir()) == [path]


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_finite_value_survives(value: float) -> None:
    """Each number comes back as the same number of the same type."""
    found = records.loads(records.dumps(record(value))).result.metrics[0].value
    assert found == value
    assert type(found) is type(value)


def test_equal_findings_keep_their_date(tmp_path: Path) -> None:
    """A second recording changes the date only where it found something else."""
    path = tmp_path / "example.cpu.json"
    records.save(record(), path)
    later = dataclasses.replace(record(recorded="2027-01-01"), sources={"a": "1" * 64})
    assert records.save(later, path).recorded == "2026-11-29"
    assert records.load(path).sources == {"a": "1" * 64}
    assert records.save(record(17, "2027-01-01"), path).recorded == "2027-01-01"


def test_a_corrupt_file_is_replaced(tmp_path: Path) -> None:
    """Recording over a broken file mends it."""
    path = tmp_path / "example.cpu.json"
    path.write_text("{")
    records.save(record(), path)
    assert records.load(path) == record()


def test_a_hand_edit_is_noticed() -> None:
    """One changed digit no longer matches the digest."""
    text = records.dumps(record())
    with pytest.raises(records.RecordError, match="edited by hand"):
        records.loads(text.replace('"value": 16', '"value": 17'))


def test_line_ends_and_layout_are_no_edit() -> None:
    """The digest is of the content, not of its layout."""
    text = records.dumps(record())
    assert records.loads(text.replace("\n", "\r\n")) == record()
    assert records.loads(json.dumps(json.loads(text))) == record()


def with_digest(content: dict[str, object]) -> str:
    """A file whose digest is right, made by the published rule: SHA-256 of sorted, compact JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.dumps({**content, "digest": hashlib.sha256(text.encode()).hexdigest()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": 3}, "device should be a text"),
        ({"demo": 3}, "demo should be a text, and is 3"),
        ({"environment": []}, "environment should be an object"),
        ({"sources": {"a": 1}}, "sources.a should be a text"),
        ({"parameters": {}}, "parameters should be a list"),
        ({"extra": 1}, "unknown field extra"),
        ({"format": 1}, "format should be 2"),
        ({"result": {"metrics": [{"name": "x"}], "figures": []}}, r"metrics\[0\] lacks how, kind"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], message: str) -> None:
    """Each fault gets a sentence that names the field."""
    content = json.loads(records.dumps(record()))
    del content["digest"]
    with pytest.raises(records.RecordError, match=message):
        records.loads(with_digest({**content, **change}))


def test_a_missing_field_is_named() -> None:
    """A record that lacks its date says so."""
    content = json.loads(records.dumps(record()))
    del content["digest"], content["recorded"]
    with pytest.raises(records.RecordError, match="it lacks recorded"):
        records.loads(with_digest(content))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ('{"format": 2,', "line 1, column"),
        ("[1]", "should be an object"),
        ('{"format": NaN}', "no number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 2, "demo": -1e999}', "no number"),
        ('{"format": 2, "demo": ' + "9" * 5_000 + "}", "thousands of digits"),
        ('{"format": 2, "demo": "\\ud800"}', "half a character"),
    ],
)
def test_what_is_no_record_is_refused(text: str, message: str) -> None:
    """Text that is no record raises one sentence, and nothing else."""
    with pytest.raises(records.RecordError, match=message):
        records.loads(text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A file in another encoding says where it stops being UTF-8."""
    path = tmp_path / "example.cpu.json"
    path.write_bytes(b'{"demo": "\xff"}')
    with pytest.raises(records.RecordError, match="not UTF-8 at byte 10"):
        records.load(path)


def test_numbers_that_are_none_are_not_written() -> None:
    """NaN and infinity have no JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.dumps(record(float("nan")))


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-mig-1g-5gb"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_gpu_has_a_short_name(gpu: str, name: str) -> None:
    """Maker and brand go; what tells apart two GPUs of different speed or memory stays."""
    assert records.short_name(gpu) == name
    made = dataclasses.replace(record(), device=name)
    assert records.loads(records.dumps(made)) == made


@pytest.mark.parametrize("device", ["", "H200", "a b", "../x", "h200.json", "-", 'x"onload'])
def test_a_device_is_a_short_name(device: str) -> None:
    """Nothing else becomes part of a file's name, an anchor or a page."""
    text = records.dumps(record()).replace('"device": "cpu"', f'"device": {json.dumps(device)}', 1)
    content = json.loads(text)
    del content["digest"]
    content["digest"] = records._digest(content)
    with pytest.raises(records.RecordError, match="no short name of a device"):
        records.loads(json.dumps(content))
