"""Records as evidence: what is loaded, what is stale, and what is said of each kind of claim."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from generator.cards.model import Claim, Device
from generator.evidence.evidence import Evidence, load_evidence
from generator.evidence.verdicts import Verdict, judge
from generator.problems import Place, Problem
from runnable_demos.lab import provenance, records
from runnable_demos.lab.metrics import Kind, Metric, Record, Result, Unit

TEXT = {"zh": "量", "en": "a quantity"}
DEMO = '''"""A demo that counts."""
from runnable_demos import tools
TITLE = {"zh": "计数", "en": "Counting"}
'''


def metric(name: str, value: float, unit: Unit = "", kind: Kind = "exact", **rest: Any) -> Metric:
    """A metric whose words do not matter."""
    return Metric(name, value, unit, kind, TEXT, TEXT, **rest)


METRICS = (
    metric("overhead", 1 / 3),
    metric("saved", 3 * 2**30, "B"),
    metric("states", 12.0, "B/param"),
    metric("equal", True),
    metric("transparent", False),
    metric("error", 3e-8, kind="bounded", bound=1e-6, reason=TEXT),
    metric("time", 0.0123, "s", "measured"),
    metric("rate", 0.4876, kind="sampled", error=0.011, closed_form=0.5),
    metric("delay", 0.4876, "s", "sampled", error=0.011),
    metric("cases", 1024, kind="computed"),
    metric("loose", 2e-6, kind="bounded", bound=1e-6, reason=TEXT),
    metric("page", 16384, "B"),
)


BEYOND = metric("error", 2e-6, kind="bounded", bound=1e-6, reason=TEXT)
"""What a GPU may find, and a CPU may not."""


def record(demo: str = "counting", device: Device = "cpu", **changes: Any) -> Record:
    """A full-size record of that demo."""
    whole = Record(
        demo, TEXT, TEXT, device, "full", (), Result(METRICS), {"device": device}, {}, "2026-11-29"
    )
    return dataclasses.replace(whole, **changes)


def claim(text: str, metric: str, demo: str = "counting", device: Device = "cpu") -> Claim:
    """A claim at a place that a problem must name."""
    return Claim(Place("cards/x.md", 7, 3), text, demo, metric, device, refuted=False)


def wrong(text: str, metric: str) -> Claim:
    """The same, said to be refuted."""
    return dataclasses.replace(claim(text, metric), refuted=True)


EVIDENCE = Evidence(
    {
        ("counting", "cpu"): record(),
        ("kernels", "h200"): record("kernels", "h200"),
        ("old", "cpu"): record("old"),
        ("beyond", "h200"): record("beyond", "h200", result=Result((BEYOND,))),
    },
    frozenset({("old", "cpu")}),
)


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (claim("33.3%", "overhead"), "proven"),
        (claim("0.333 倍", "overhead"), "proven"),
        (claim("1/3", "overhead"), "proven"),
        (claim(r"$33.3\%$", "overhead"), "proven"),
        (claim("3 GiB", "saved"), "proven"),
        (claim("3.22 GB", "saved"), "proven"),
        (claim("3,221,225,472 B", "saved"), "proven"),
        (claim("12 字节/参数", "states"), "proven"),
        (claim("逐位相等", "equal"), "proven"),
        (claim("$10^{-6}$", "error"), "bounded"),
        (claim("1e-6", "error"), "bounded"),
        (claim("12.3 ms", "time"), "measured"),
        (claim("12.3 毫秒", "time"), "measured"),
        (claim("33.3%", "overhead", "kernels", "h200"), "measured"),
        (claim("0.49", "rate"), "sampled"),
        (claim("49%", "rate"), "sampled"),
        (claim("0.5", "rate"), "sampled"),
        (claim("0.49 s", "delay"), "sampled"),
        (claim("1024", "cases"), "computed"),
        (claim("1024", "cases", "kernels", "h200"), "computed"),
        (claim("1024", "cases", "old"), "stale"),
        (claim("33.3%", "overhead", "old"), "stale"),
        (wrong("16 B/param", "states"), "refuted"),
        (wrong("透明", "transparent"), "refuted"),
        (wrong("1%", "error"), "refuted"),
        (wrong("35%", "overhead"), "refuted"),
        (wrong("2", "overhead"), "refuted"),
        (wrong("18 KB", "page"), "refuted"),
        (wrong("16,385 B", "page"), "refuted"),
        (wrong("0.53", "rate"), "refuted"),
        (wrong("1023", "cases"), "refuted"),
    ],
)
def test_a_claim_that_holds_gets_its_verdict(made: Claim, state: str) -> None:
    """Each kind of metric, unit and link gets the state that a reader is shown."""
    verdict = judge(made, EVIDENCE)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.state == state
    assert verdict.metric.name == made.metric
    assert (verdict.record.demo, verdict.record.device) == (made.demo, made.device)


@pytest.mark.parametrize(
    ("made", "code", "said", "hint"),
    [
        (claim("33.4%", "overhead"), "claim-number", "“33.3%”", "proofdeck refresh"),
        (claim("3.3 GiB", "saved"), "claim-number", "3221225472 B", "proofdeck refresh"),
        (claim("3 GB", "states"), "claim-unit", "in B/param", "unit"),
        (claim("12", "states"), "claim-unit", "lacks its unit", "inside the link"),
        (claim("12 B", "states"), "claim-unit", "B/param", "unit"),
        (claim("33.3 B", "overhead"), "claim-unit", "a plain number", "unit"),
        (claim("12–16 B/param", "states"), "claim-text", "2 numbers", "one number"),
        (claim("很多", "states"), "claim-text", "no number", "one number"),
        (claim("12 份", "overhead"), "claim-text", "份", "stay outside"),
        (claim("0", "error"), "claim-number", "bound", "proofdeck refresh"),
        (claim("3e-8", "error"), "claim-number", "bound", "proofdeck refresh"),
        (claim("0.000002", "error"), "claim-number", "bound", "proofdeck refresh"),
        (claim("1 次", "equal"), "claim-text", "truth value", "in words"),
        (claim("透明", "transparent"), "claim-false", "is false", "refute"),
        (wrong("逐位相等", "equal"), "claim-agrees", "is true", "Claim it"),
        (wrong("12 B/param", "states"), "claim-agrees", "12.0 B/param", "really said"),
        (wrong("16 B", "states"), "claim-unit", "B/param", "unit"),
        (wrong("0.5e-6", "error"), "claim-agrees", "or less", "really said"),
        (wrong("17 KB", "page"), "claim-agrees", "rounding", "really said"),
        (wrong("33%", "overhead"), "claim-agrees", "0.333", "really said"),
        (wrong("33.4%", "overhead"), "claim-agrees", "rounding", "really said"),
        (wrong("34%", "overhead"), "claim-agrees", "rounding", "really said"),
        (wrong("0.34", "overhead"), "claim-agrees", "rounding", "really said"),
        (wrong("16,000 B", "page"), "claim-agrees", "rounding", "really said"),
        (wrong("16 KB", "page"), "claim-agrees", "16384", "really said"),
        (wrong("12.0000001 B/param", "states"), "claim-agrees", "rounding", "really said"),
        (wrong("11.99999999999999999 B/param", "states"), "claim-agrees", "rounding", "said"),
        (wrong("1000", "cases"), "claim-agrees", "rounding", "really said"),
        (wrong("10^3", "cases"), "claim-agrees", "rounding", "really said"),
        (wrong("1/3", "overhead"), "claim-agrees", "0.333", "really said"),
        (wrong("0.51", "rate"), "claim-agrees", "standard errors", "really said"),
        (claim("0.488", "rate"), "claim-digits", "0.011", "below 0.01"),
        (claim("48.8%", "rate"), "claim-digits", "0.011", "below 1"),
        (claim("488 ms", "delay"), "claim-digits", "0.011 s", "below 10"),
        (claim("1e-6", "loose"), "claim-bound", "beyond its bound", "correct the bound"),
        (claim("1", "overheard"), "claim-metric", "no metric `overheard`", "`overhead`"),
        (claim("1", "overhead", "countin"), "claim-demo", "`countin`", "`counting`"),
        (claim("33.3%", "overhead", "counting", "h200"), "claim-device", "on h200", "cpu"),
        (claim("33.3%", "overhead", "kernels"), "claim-device", "on cpu", "h200"),
        (
            claim("1e-6", "error", "beyond", "h200"),
            "claim-bound",
            "2e-06, beyond",
            "correct the bound",
        ),
        (
            dataclasses.replace(claim("1e-3", "error", "beyond", "h200"), refuted=True),
            "claim-bound",
            "beyond its bound",
            "correct the bound",
        ),
    ],
)
def test_a_claim_that_cannot_stand_is_told_why(
    made: Claim, code: str, said: str, hint: str
) -> None:
    """Each way to be wrong has a code, a message that names both sides, a hint and the place."""
    problem = judge(made, EVIDENCE)
    assert isinstance(problem, Problem), problem
    assert (problem.code, problem.severity) == (code, "error")
    assert said in problem.message
    assert hint in problem.hint
    assert problem.place == Place("cards/x.md", 7, 3)


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    """A folder of demos with one demo and one file that it imports."""
    folder = tmp_path / "demos"
    folder.mkdir()
    (folder / "counting.py").write_text(DEMO)
    (folder / "tools.py").write_text("FACTOR = 2\n")
    return folder


def save(folder: Path, demos: Path, **changes: Any) -> Path:
    """Put a sound record of the demo, as it is now, into the evidence."""
    made = record(sources=provenance.sources("counting", demos), **changes)
    path = records.record_path(folder, made.demo, made.device)
    records.save(made, path)
    return path


def test_sound_evidence_is_loaded_without_a_word(tmp_path: Path, demos: Path) -> None:
    """A record of the demo as it stands is found by demo, device and metric."""
    save(tmp_path, demos)
    evidence, problems = load_evidence(tmp_path, demos)
    assert problems == []
    assert evidence.stale == frozenset()
    assert evidence.demos == {"counting"}
    assert evidence.metric("counting", "saved", "cpu") == METRICS[1]
    assert evidence.metric("counting", "saved", "h200") is None
    assert evidence.metric("counting", "nothing", "cpu") is None


def test_a_folder_that_is_missing_holds_no_evidence(tmp_path: Path, demos: Path) -> None:
    """A base without demos needs no evidence."""
    assert load_evidence(tmp_path / "none", demos) == (Evidence(), [])


@pytest.mark.parametrize("changed", ["counting.py", "tools.py"])
@pytest.mark.parametrize(("device", "severity"), [("cpu", "error"), ("h200", "warning")])
def test_a_changed_source_makes_evidence_stale(
    tmp_path: Path, demos: Path, changed: str, device: Device, severity: str
) -> None:
    """A demo, or a file that it imports, outdates its record: an error where anyone can renew it."""
    path = save(tmp_path, demos, device=device)
    with (demos / changed).open("a") as file:
        file.write("changed = True\n")
    evidence, [problem] = load_evidence(tmp_path, demos)
    assert evidence.stale == {("counting", device)}
    assert (problem.code, problem.severity) == ("evidence-stale", severity)
    assert problem.place == Place(str(path))
    assert changed in problem.message
    assert (
        f"proofdeck demo run counting{' --device cuda' * (device != 'cpu')} --record"
        in problem.hint
    )


def test_a_comment_does_not_make_evidence_stale(tmp_path: Path, demos: Path) -> None:
    """What is no code is nothing that a number depends on."""
    save(tmp_path, demos)
    with (demos / "tools.py").open("a") as file:
        file.write("# changed\n")
    assert load_evidence(tmp_path, demos)[1] == []


def test_line_ends_do_not_make_evidence_stale(tmp_path: Path, demos: Path) -> None:
    """A checkout with other line ends is the same source."""
    save(tmp_path, demos)
    (demos / "counting.py").write_bytes(DEMO.replace("\n", "\r\n").encode())
    assert load_evidence(tmp_path, demos)[1] == []


def test_evidence_of_no_demo_cannot_be_repeated(tmp_path: Path, demos: Path) -> None:
    """A record whose demo is gone is stale."""
    save(tmp_path, demos)
    (demos / "counting.py").unlink()
    evidence, [problem] = load_evidence(tmp_path, demos)
    assert evidence.stale == {("counting", "cpu")}
    assert problem.code == "evidence-stale"
    assert "no demo `counting`" in problem.message


def test_a_demo_that_is_no_python_is_named(tmp_path: Path, demos: Path) -> None:
    """A slip in a demo is told as such, not as a traceback."""
    save(tmp_path, demos)
    (demos / "counting.py").write_text("def run(:\n")
    _, [problem] = load_evidence(tmp_path, demos)
    assert "not valid Python" in problem.message


def edit(path: Path, change: dict[str, Any]) -> None:
    """What a hand would do to a record."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def test_each_kind_of_broken_evidence_has_its_sentence(tmp_path: Path, demos: Path) -> None:
    """Corrupt, edited, extended, foreign and small records are all told in one run, none believed."""
    whole = save(tmp_path, demos)
    text = whole.read_text()
    (tmp_path / "cut.cpu.json").write_text(text[:200])
    (tmp_path / "digit.cpu.json").write_text(
        text.replace("0.3333333333333333", "0.4333333333333333")
    )
    shutil.copy(whole, tmp_path / "field.cpu.json")
    edit(tmp_path / "field.cpu.json", {"note": "mine"})
    (tmp_path / "latin.cpu.json").write_bytes(b'{"demo": "\xe9"}')
    (tmp_path / "list.cpu.json").write_text("[]")
    shutil.copy(whole, tmp_path / "name.cpu.json")
    records.save(record("tiny", size="small"), tmp_path / "tiny.cpu.json")
    whole.unlink()
    evidence, problems = load_evidence(tmp_path, demos)
    assert evidence.records == {}
    assert [(Path(p.place.path).name, p.code) for p in problems] == [
        ("cut.cpu.json", "evidence-corrupt"),
        ("digit.cpu.json", "evidence-corrupt"),
        ("field.cpu.json", "evidence-corrupt"),
        ("latin.cpu.json", "evidence-corrupt"),
        ("list.cpu.json", "evidence-corrupt"),
        ("name.cpu.json", "evidence-name"),
        ("tiny.cpu.json", "evidence-size"),
    ]
    cut, digit, field, latin, listed, name, tiny = problems
    assert cut.place.line > 1  # where the file breaks off
    assert "not JSON" in cut.message
    assert "edited by hand" in digit.message
    assert "edited by hand" in field.message
    assert "UTF-8" in latin.message
    assert "object" in listed.message
    assert "`counting.cpu.json`" in name.hint
    assert "“small”" in tiny.message
    for problem in (cut, digit, field, latin, listed, tiny):
        demo = Path(problem.place.path).name.removesuffix(".cpu.json")
        assert f"`proofdeck demo run {demo} --record`" in problem.hint
