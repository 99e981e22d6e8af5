"""Refreshing: what the evidence contradicts is rewritten, and not one byte more."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import checks
from generator.authoring.refresh import Change, refresh, reword, rewritten, wanted_changes
from generator.cards.model import Claim
from generator.evidence.evidence import Evidence
from generator.library.library import Library
from generator.problems import Place, Problem
from runnable_demos.lab import records
from runnable_demos.lab.metrics import Metric, Record

BASE = Path(__file__).parent / "library"
CARD = "cards/numerics/kahan-sum.md"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the small base."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def load(base: Path) -> Library:
    """The base as far as it stands."""
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found is not None
    return found


def change(base: Path, *pairs: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Put other text into a card; the bytes before and after."""
    path = base / CARD
    before = after = path.read_bytes()
    for old, new in pairs:
        assert old in after
        after = after.replace(old, new)
    path.write_bytes(after)
    return before, after


def test_what_agrees_is_left_alone(base: Path) -> None:
    """A base whose numbers are right is not written to at all."""
    stamps = {path: path.stat().st_mtime_ns for path in base.rglob("*.md")}
    found = load(base)
    assert refresh(found.cards, found.evidence, found.facts) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*.md")} == stamps


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_wrong_number_is_rewritten_and_every_other_byte_kept(
    base: Path, ends: bytes, mark: bytes
) -> None:
    """Whatever the line ends, with or without a byte order mark, refreshing undoes the slip."""
    path = base / CARD
    whole = mark + path.read_bytes().replace(b"\n", ends)
    path.write_bytes(whole)
    change(base, ("[4 倍]".encode(), "[5 倍]".encode()), (b"[$3\\times", b"[$7\\times"))
    path.chmod(0o640)
    found = load(base)
    changes, problems = refresh(found.cards, found.evidence, found.facts)
    assert path.read_bytes() == whole
    assert path.stat().st_mode & 0o777 == 0o640
    assert problems == []
    lines = path.read_bytes().decode("utf-8-sig").splitlines()
    assert {(c.before, c.after) for c in changes} == {
        ("5 倍", "4 倍"),
        (r"$7\times10^{-16}$", r"$3\times10^{-16}$"),
    }
    for each in changes:
        assert each.place.path == str(path)
        assert lines[each.place.line - 1].startswith(f"[{each.after}](", each.place.column - 1)
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_the_form_of_a_number_survives_other_evidence(base: Path) -> None:
    """Units, separators and precision stay when the metric itself has changed."""
    change(
        base,
        ("[4 倍](claim:float_sums/additions_ratio)".encode(),
         "[400.0%](claim:float_sums/additions_ratio)、[$0.008\\,\\text{KB}$](claim:float_sums/bytes_per_number)".encode()),
    )  # fmt: skip
    found = load(base)
    record = found.evidence.records["float_sums", "cpu"]
    values = {"additions_ratio": 12.34567, "bytes_per_number": 1_234_567}
    metrics = tuple(
        dataclasses.replace(m, value=values.get(m.name, m.value)) for m in record.result.metrics
    )
    other: Record = dataclasses.replace(
        record, result=dataclasses.replace(record.result, metrics=metrics)
    )
    changes, _ = refresh(found.cards, Evidence({("float_sums", "cpu"): other}), found.facts)
    text = (base / CARD).read_text(encoding="utf-8")
    assert "[1,234.6%](claim:float_sums/additions_ratio)" in text
    assert "[$1,234.567\\,\\text{KB}$](claim:float_sums/bytes_per_number)" in text
    assert len([c for c in changes if c.place.path.endswith("kahan-sum.md")]) >= 2


def test_a_gpus_record_fills_what_waits_for_it(base: Path) -> None:
    """Both halves get the number with its unit, and lead to that record; all other bytes stay."""
    evidence, path = base / "runnable_demos/evidence", base / "cards/numerics/rounding.md"
    assert load(base).evidence.awaited["float_sums"].keys() == {"gpu_seconds", "naive_seconds"}
    record = records.load(evidence / "float_sums.cpu.json")
    measure = load(base).evidence.awaited["float_sums"]["gpu_seconds"]
    how = measure.method.how
    timed = Metric("gpu_seconds", 0.00234567, "s", "measured", measure.label, how)
    result = dataclasses.replace(record.result, metrics=(*record.result.metrics, timed))
    records.save(
        dataclasses.replace(record, device="h200", result=result),
        evidence / "float_sums.h200.json",
    )
    before = path.read_text(encoding="utf-8")
    found = load(base)
    assert found.evidence.awaited == {"float_sums": {}}
    said = [each for each in found.awaited.values() if isinstance(each, Problem)]
    assert [(each.code, each.message) for each in said] == [
        ("gpu-recorded", "`float_sums/gpu_seconds` is recorded on h200")
    ] * 2
    changes, problems = refresh(found.cards, found.evidence, found.facts)
    assert ([each.after for each in changes], problems) == (["2.346 ms"] * 2, [])
    filled = "[2.346 ms](claim:float_sums/gpu_seconds@h200)"
    wanted = before.replace("[尚未在 GPU 上记录](gpu:float_sums/gpu_seconds)", filled)
    wanted = wanted.replace("[not yet recorded on a GPU](gpu:float_sums/gpu_seconds)", filled)
    assert path.read_text(encoding="utf-8") == wanted
    assert [p.code for p in checks.load(base / "cards", demos=base / "runnable_demos")[1]] == []


def test_what_no_number_mends_is_left_to_check(base: Path) -> None:
    """Claims of another unit, of no metric, and refuted ones stay as they are."""
    _, after = change(
        base,
        ("[4 倍](claim:float_sums/additions_ratio)".encode(),
         "[4 B](claim:float_sums/additions_ratio)、[4](claim:float_sums/nothing)".encode()),
        (b"[$3", "[4 倍](wrong:float_sums/additions_ratio)，[$3".encode()),
    )  # fmt: skip
    found = load(base)
    assert refresh(found.cards, found.evidence, found.facts) == ([], [])
    assert (base / CARD).read_bytes() == after


def test_a_form_that_cannot_print_the_number_is_told(base: Path) -> None:
    """A fraction, a unit that is too large and a bound with more digits are named, not bent."""
    _, after = change(
        base,
        ("求和的 [4 倍](claim:float_sums/additions_ratio)".encode(),
         "求和的 [0.1 GB](claim:float_sums/bytes_per_number)、[$2^{-1}$](claim:float_sums/significant_bits)".encode()),
    )  # fmt: skip
    found = load(base)
    changes, problems = refresh(found.cards, found.evidence, found.facts)
    assert changes == []
    assert [p.code for p in problems] == ["refresh", "refresh"]
    assert "cannot be printed" in problems[0].message
    assert "no power of 2" in problems[1].message
    assert (base / CARD).read_bytes() == after


DEMO = "runnable_demos/float_sums.py"
RECORD = "runnable_demos/evidence/float_sums.cpu.json"


def reworded(base: Path, *pairs: tuple[str, str]) -> None:
    """Put other text into the demo."""
    text = (base / DEMO).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (base / DEMO).write_text(text)


def test_other_words_of_a_demo_are_found_and_renewed(base: Path) -> None:
    """Title, help, a method with a placeholder, a label of a figure: told once, renewed, then clean."""
    before = records.load(base / RECORD)
    reworded(
        base,
        ('"Floating-point sums"', '"Sums of floats"'),
        ('"how many numbers"', '"count of numbers"'),
        ('"{draws} random numbers"', '"over {draws} draws of {count}"'),
        ('"Kahan"]', '"compensated"]'),
        ("import time", "import time  # a clock"),
    )
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert [(p.code, p.severity) for p in problems] == [("evidence-words", "error")]
    assert "proofdeck refresh" in problems[0].hint
    assert reword(load(base).evidence) == [base / RECORD]
    assert checks.load(base / "cards", demos=base / "runnable_demos")[1] == []
    after = records.load(base / RECORD)
    assert after.title["en"] == "Sums of floats"
    assert after.parameters[0].help["en"] == "count of numbers"
    methods = {m.name: m.how["en"] for m in after.result.metrics}
    assert methods["share_rounded_down"] == "over 400 draws of 10000"
    assert after.result.figures[0].series[1].label["en"] == "compensated"
    assert [m.value for m in after.result.metrics] == [m.value for m in before.result.metrics]
    assert (after.recorded, after.sources) == (before.recorded, before.sources)


def test_words_that_need_what_no_run_told_are_no_words(base: Path) -> None:
    """The placeholder is named, and the record stays as it is."""
    whole = (base / RECORD).read_bytes()
    reworded(base, ('"{draws} random numbers"', '"{drawn} random numbers"'))
    _, [problem] = checks.load(base / "cards", demos=base / "runnable_demos")
    assert (problem.code, "'drawn'" in problem.message) == ("evidence-words", True)
    assert reword(load(base).evidence) == []
    assert (base / RECORD).read_bytes() == whole


@pytest.mark.parametrize("words", ['""', '" "', "5", '"x", "fr": "y"'])
def test_unsound_words_reach_no_record(base: Path, words: str) -> None:
    """What no page could show is told at its demo, and the record stays as it is."""
    whole = (base / RECORD).read_bytes()
    reworded(base, ('"Floating-point sums"', words))
    _, [problem] = checks.load(base / "cards", demos=base / "runnable_demos")
    assert problem.code in ("evidence-words", "evidence-stale")
    assert reword(load(base).evidence) == []
    assert (base / RECORD).read_bytes() == whole


@pytest.mark.parametrize("gone", [True, False])
def test_a_record_that_another_run_has_written_meanwhile_is_left_alone(
    base: Path, gone: bool
) -> None:
    """Neither are its numbers taken back, nor does it come back from the dead."""
    reworded(base, ('"Floating-point sums"', '"Sums"'))
    evidence = load(base).evidence
    if gone:
        (base / RECORD).unlink()
    else:
        newer = dataclasses.replace(records.load(base / RECORD), recorded="2027-01-01")
        (base / RECORD).write_text(records.dumps(newer))
    assert reword(evidence) == []
    assert (base / RECORD).exists() != gone
    assert gone or records.load(base / RECORD).recorded == "2027-01-01"


def test_words_of_a_demo_that_changed_otherwise_wait_for_its_run(base: Path) -> None:
    """A record that is stale is recorded again, words and all."""
    reworded(base, ('"Floating-point sums"', '"Sums"'), ("additions + 4", "additions + 5"))
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert {p.code for p in problems} == {"evidence-stale"}
    assert reword(load(base).evidence) == []


def test_a_bound_is_printed_with_all_its_digits() -> None:
    """A number is not rounded to a bound that is smaller than what was measured."""
    found, _ = checks.load(BASE / "cards", demos=BASE / "runnable_demos")
    assert found is not None
    claim = Claim(Place("x.md"), "1e-15", "float_sums", "kahan_error", "cpu", refuted=False)
    record = found.evidence.records["float_sums", "cpu"]
    metrics = tuple(
        dataclasses.replace(m, bound=2.5e-16) if m.name == "kahan_error" else m
        for m in record.result.metrics
    )
    other = dataclasses.replace(record, result=dataclasses.replace(record.result, metrics=metrics))
    evidence = Evidence({("float_sums", "cpu"): other})
    changes, [problem] = wanted_changes([claim], evidence)
    assert changes == []
    assert "2.5e-16" in problem.message
    precise = dataclasses.replace(claim, text="1.0e-15")
    [made], problems = wanted_changes([precise], evidence)
    assert (made.after, problems) == ("2.5e-16", [])


def test_a_failed_write_leaves_the_card_whole(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full costs nothing but the change, and nothing is left beside the card."""
    _, after = change(base, ("[4 倍]".encode(), "[5 倍]".encode()))
    found = load(base)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        refresh(found.cards, found.evidence, found.facts)
    assert (base / CARD).read_bytes() == after
    assert [p.name for p in (base / CARD).parent.iterdir() if p.name.startswith(".")] == []


def test_a_link_to_a_card_stays_a_link(base: Path) -> None:
    """A card that is a symbolic link is written where it stands."""
    path = base / CARD
    elsewhere = base / "elsewhere.md"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    change(base, ("朴素求和的 [4 倍]".encode(), "朴素求和的 [5 倍]".encode()))
    found = load(base)
    changes, _ = refresh(found.cards, found.evidence, found.facts)
    assert len(changes) == 1
    assert path.is_symlink()
    assert "朴素求和的 [4 倍]" in elsewhere.read_text(encoding="utf-8")


def test_a_card_that_changed_meanwhile_is_not_guessed_at(base: Path) -> None:
    """Where the text is no longer what was read, nothing is written, and the place is named."""
    change(base, ("朴素求和的 [4 倍]".encode(), "朴素求和的 [5 倍]".encode()))
    found = load(base)
    path = base / CARD
    _, after = change(base, ("[5 倍]".encode(), "[555 倍]".encode()))
    rows = after.splitlines(keepends=True)
    row = next(at for at, each in enumerate(rows) if b"[555" in each)
    for content in (after, b"".join(rows[:row]).rstrip(), b""):
        path.write_bytes(content)
        changes, [problem] = refresh(found.cards, found.evidence, found.facts)
        assert changes == []
        assert "one piece" in problem.message
        assert path.read_bytes() == content


rows = st.lists(st.text("ab[] 汉\U0001f600", max_size=12), min_size=1, max_size=6)
ends = st.sampled_from(["\n", "\r\n", "\r"])


@given(rows, rows, ends, st.text("0123456789", max_size=9))
def test_only_the_text_between_the_brackets_changes(
    before: list[str], after: list[str], end: str, new: str
) -> None:
    """Around a link in any text, whatever its length, everything stays."""
    head, tail = end.join(before), end.join(after)
    place = Place("x.md", head.count(end) + 1, len(head) - (head.rfind(end) + len(end)) + 1
                  if end in head else len(head) + 1)  # fmt: skip
    change = Change(place, "12", new)
    text, made, missed = rewritten(f"{head}[12](claim:a/b){tail}", [change])
    assert text == f"{head}[{new}](claim:a/b){tail}"
    assert (made, missed) == ((change,), ())
