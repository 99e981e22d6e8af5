"""Records that can be read, and that no page could show: each is refused in a sentence."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generator.evidence import soundness
from generator.evidence.evidence import load_evidence
from runnable_demos.lab import records
from runnable_demos.lab.mechanisms import Lanes
from tests.demos.sketched import SCHEDULE

DEMOS = Path(__file__).parent / "library" / "runnable_demos"
FILE = "float_sums.cpu.json"
KNOWN = json.loads((DEMOS / "evidence" / FILE).read_text(encoding="utf-8"))


def _double(record: dict[str, Any]) -> None:
    """A forged metric before the true one: whoever looks a name up might find either."""
    metrics = record["result"]["metrics"]
    metrics.insert(0, {**metrics[4], "value": 5.0})


def _figure(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["result"]["figures"][0]
    return found


def test_a_mechanism_is_looked_through_as_well() -> None:
    """A time beyond all measure, and a kind without words in a language."""
    known = records.load(DEMOS / "evidence" / FILE)

    def fault(figure: Lanes) -> str | None:
        return soundness.fault(
            dataclasses.replace(known, result=dataclasses.replace(known.result, figures=(figure,)))
        )

    assert fault(SCHEDULE) is None
    late = dataclasses.replace(SCHEDULE.spans[-1], end=1e101)
    last = dataclasses.replace(SCHEDULE, spans=(*SCHEDULE.spans[:-1], late))
    assert "spans[63].end is beyond" in str(fault(last))
    kind = dataclasses.replace(SCHEDULE.series[0], label={"zh": "字"})
    silent = dataclasses.replace(SCHEDULE, series=(kind, *SCHEDULE.series[1:]))
    assert "does not have words" in str(fault(silent))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_double, "2 metrics are called `additions_ratio`"),
        (lambda r: r["result"]["figures"].append(_figure(r)), "2 figures"),
        (lambda r: r["parameters"].append(r["parameters"][0]), "2 parameters"),
        (lambda r: r.update(demo="x" * 10_000 + "!"), "names nothing"),
        (lambda r: r.update(title={"zh": "字"}), "title does not have words"),
        (lambda r: r.update(question={}), "question does not have words"),
        (lambda r: r.update(title={"zh": "字", "en": "a\x1b[31m"}), "title holds a character"),
        (lambda r: r["parameters"][0].update(help={"zh": "字", "en": " "}), r"help does not"),
        (lambda r: r["result"]["metrics"][4]["label"].update(fr="mot"), r"metrics\[4\].label"),
        (lambda r: r["result"]["metrics"][2].update(value=10**4000), "beyond"),
        (lambda r: _figure(r)["series"][0].update(y=[1e308, -1e308, 0, 0]), "beyond"),
        (
            lambda r: _figure(r)["x"].update(
                categories=[{"name": "a", "label": {"zh": "字", "en": "a"}}]
            ),
            "categories",
        ),
        (lambda r: r.update(recorded="yesterday"), "no date"),
        (lambda r: r.update(recorded="20260131"), "no date"),
    ],
)
def test_what_no_page_could_show_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    """A record whose digest is right is refused for what it holds, in a sentence that is not long."""
    content = copy.deepcopy(KNOWN)
    del content["digest"]
    change(content)
    content["digest"] = records._digest(content)
    (tmp_path / FILE).write_text(json.dumps(content), encoding="utf-8")
    evidence, problems = load_evidence(tmp_path, DEMOS)
    assert not evidence.records
    assert [each.code for each in problems] == ["evidence-corrupt"]
    assert len(problems[0].message) < 200
    assert re.search(said, problems[0].message)


def test_what_a_demo_records_is_sound() -> None:
    """All records of this repository are shown."""
    folders = (DEMOS / "evidence", Path(__file__).parent.parent / "runnable_demos" / "evidence")
    paths = [path for folder in folders for path in folder.glob("*.json")]
    assert len(paths) > 2
    for path in paths:
        assert soundness.fault(records.load(path)) is None, path.name
