"""What runs say of the evidence and of the cards; the commands' own tests run real demos."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from generator.evidence.evidence import Evidence
from generator.lab import laboratory
from generator.lab.comparing import Difference
from generator.lab.laboratory import Laboratory, Unavailable
from generator.lab.runs import RunFailed
from generator.lab.verify import choose, conclude, judged
from runnable_demos.lab import records
from runnable_demos.lab.metrics import Metric, Record

BASE = Path(__file__).parent / "library"


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    """The demo of the small base, its evidence, and its cards beside them."""
    shutil.copytree(BASE, tmp_path / "base")
    return laboratory.of_base(tmp_path / "base" / "cards", None, None)


@pytest.fixture
def kept(lab: Laboratory) -> Record:
    """The one record of the small base."""
    return records.load(lab.evidence / "float_sums.cpu.json")


def changed(record: Record, name: str, value: float) -> Record:
    """``record`` with another value in one metric."""

    def new(metric: Metric) -> Metric:
        return dataclasses.replace(metric, value=value) if metric.name == name else metric

    result = dataclasses.replace(record.result, metrics=tuple(map(new, record.result.metrics)))
    return dataclasses.replace(record, result=result)


def evidence(*kept: Record) -> Evidence:
    """These records, all fresh."""
    return Evidence({(each.demo, each.device): each for each in kept})


# --- which demos ---


def test_demos_are_chosen_by_name_once_or_all(lab: Laboratory) -> None:
    """Without names all of them, on a GPU those that gain from it."""
    demos = lab.discover()
    assert choose(demos, (), "cpu") == ("float_sums",)
    assert choose(demos, ("float_sums", "float_sums"), "cpu") == ("float_sums",)
    assert choose(demos, (), "cuda") == ("float_sums",)
    gainless = {name: dataclasses.replace(demo, gpu=None) for name, demo in demos.items()}
    assert choose(gainless, (), "cuda") == ()
    assert choose(gainless, ("float_sums",), "cuda") == ("float_sums",)
    with pytest.raises(Unavailable, match="there is no demo 'float_sum'") as refused:
        choose(demos, ("float_sum",), "cpu")
    assert refused.value.hint == "Did you mean `float_sums`?"


# --- one demo ---


@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_found_again_agrees(kept: Record, recorded: bool) -> None:
    """Another environment is told beside it, and is no difference; recording it changes nothing."""
    moved = dataclasses.replace(kept, environment={**kept.environment, "host": "elsewhere"})
    outcome = judged("float_sums", moved, evidence(kept), recorded=recorded)
    assert (outcome.state, outcome.differences) == ("agrees", ())
    assert outcome.environment == (Difference("host", "nothing", "elsewhere"),)


def test_what_differs_is_named_unless_it_is_recorded(kept: Record) -> None:
    """One number that is another one; and a demo that had no record on its device."""
    number = next(m for m in kept.result.metrics if m.kind == "exact" and type(m.value) is int)
    other = changed(kept, number.name, number.value + 1)
    for recorded, state in ((False, "differs"), (True, "recorded")):
        outcome = judged("float_sums", other, evidence(kept), recorded=recorded)
        assert (outcome.state, [each.what for each in outcome.differences]) == (
            state,
            [number.name],
        )
        there = dataclasses.replace(kept, device="h200")
        outcome = judged("float_sums", there, evidence(kept), recorded=recorded)
        assert outcome.state == state
        assert outcome.differences == (Difference("evidence", "nothing", "a result"),)


def test_a_run_that_failed_is_its_own_reason(kept: Record) -> None:
    """Whatever was recorded."""
    why = RunFailed("it crashed")
    outcome = judged("float_sums", why, evidence(kept), recorded=True)
    assert (outcome.state, outcome.failed, outcome.differences) == ("failed", why, ())


# --- the whole ---


def test_a_sound_base_has_nothing_to_say(lab: Laboratory, kept: Record) -> None:
    """The runs are those that are recorded: every demo agrees, no claim is contradicted."""
    cards = lab.demos.parent / "cards"
    verdict = conclude(lab, cards, {"float_sums": kept}, evidence(kept))
    assert ([each.state for each in verdict.outcomes], verdict.problems) == (["agrees"], ())


def test_claims_are_held_against_the_new_run(lab: Laboratory, kept: Record) -> None:
    """A number that a card prints and that the run no longer finds is a problem of the card."""
    cards = lab.demos.parent / "cards"
    wrong = {"float_sums": changed(kept, "bytes_per_number", 9.0)}
    verdict = conclude(lab, cards, wrong, evidence(kept))
    claims = {
        path.stem
        for path in cards.glob("*/*.md")
        if "](claim:float_sums/bytes_per_number)" in path.read_text("utf-8")
    }
    assert {p.code for p in verdict.problems} == {"claim-number"}
    assert {Path(p.place.path).stem for p in verdict.problems} == claims
    assert conclude(lab, cards, {"float_sums": RunFailed("x")}, evidence(kept)).problems == ()


def test_only_the_evidence_that_was_asked_for_is_judged(lab: Laboratory, kept: Record) -> None:
    """A broken record of another demo counts where all are verified."""
    (lab.evidence / "other.cpu.json").write_text("{")
    cards = lab.demos.parent / "cards"
    for named, codes in ((True, []), (False, ["evidence-corrupt"])):
        verdict = conclude(lab, cards, {"float_sums": kept}, evidence(kept), named=named)
        assert [problem.code for problem in verdict.problems] == codes
