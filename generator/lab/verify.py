"""What a new run of the demos says of their evidence and of every card.

Nothing is run or printed here: the runs are given, and what follows from them is data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from generator.checks import load
from generator.evidence.evidence import Evidence
from generator.evidence.verdicts import judge
from generator.lab.comparing import Difference, State, differences, environment_changes, replay
from generator.lab.fences import FenceOutcome
from generator.lab.freshness import gaining
from generator.lab.laboratory import Laboratory, known
from generator.lab.runs import RunFailed
from generator.library.library import Library
from generator.problems import Problem
from runnable_demos.lab.discovery import Demo
from runnable_demos.lab.metrics import Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one demo.

    ``environment`` are reasons that the new run may have to differ; ``failed`` is why there is none.
    """

    demo: str
    state: State
    differences: tuple[Difference, ...] = ()
    environment: tuple[Difference, ...] = ()
    failed: RunFailed | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What became of all demos and fences that were run, and what is wrong with evidence, claims and code."""

    outcomes: tuple[Outcome, ...]
    problems: tuple[Problem, ...]
    fences: tuple[FenceOutcome, ...] = ()


def choose(
    demos: Mapping[str, Demo], names: Sequence[str], device: str, cards: Collection[str] = ()
) -> tuple[str, ...]:
    """The demos called ``names``, each once; without names all, on a GPU those that gain from it.

    Raises ``laboratory.Unavailable`` where a name is neither a demo's nor one of the ``cards``'.
    """
    everything = gaining(demos) if device == "cuda" else tuple(demos)
    wanted = [
        each for each in dict.fromkeys(names or everything) if each in demos or each not in cards
    ]
    return tuple(known(name, demos, cards) for name in wanted)


def conclude(
    lab: Laboratory,
    cards: Path,
    found: Mapping[str, Record | RunFailed],
    before: Evidence,
    *,
    named: bool = False,
    recorded: bool = False,
    fences: tuple[FenceOutcome, ...] = (),
) -> Verification:
    """What the runs that were ``found``, by demo, say of the evidence as it was ``before``.

    ``named`` says that these demos were asked for, so that the evidence of others is passed over,
    ``recorded`` that the laboratory keeps the runs by now; ``fences`` is what became of those.
    Raises ``OSError``.
    """
    kept, problems = lab.load()
    if named:
        problems = [p for p in problems if Path(p.place.path).name.split(".")[0] in found]
    run = {each.card for each in fences}
    _, unsound = lab.load_fences()
    problems += [p for p in unsound if not named or Path(p.place.path).stem in run]
    return Verification(
        tuple(judged(demo, run, before, recorded=recorded) for demo, run in found.items()),
        (
            *problems,
            *(each.problem for each in fences if each.problem),
            *contradictions(cards, replayed(kept, found), found),
        ),
        fences,
    )


def judged(
    demo: str, found: Record | RunFailed, before: Evidence, *, recorded: bool = False
) -> Outcome:
    """What became of one demo, by the record that it had ``before``."""
    if isinstance(found, RunFailed):
        return Outcome(demo, "failed", failed=found)
    new: State = "recorded" if recorded else "differs"
    kept = before.records.get((demo, found.device))
    if kept is None:
        return Outcome(demo, new, (Difference("evidence", "nothing", "a result"),))
    changes = differences(kept, found)
    return Outcome(
        demo,
        new if changes else "agrees",
        changes,
        environment_changes(kept.environment, found.environment),
    )


def replayed(kept: Evidence, found: Mapping[str, Record | RunFailed]) -> Evidence:
    """``kept`` with the records that were ``found`` in the place of the old ones, times aside."""
    fresh = {(r.demo, r.device): r for r in found.values() if isinstance(r, Record)}
    new = {key: replay(kept.records.get(key), record) for key, record in fresh.items()}
    return Evidence({**kept.records, **new}, kept.stale)


def contradictions(folder: Path, evidence: Evidence, chosen: Collection[str]) -> list[Problem]:
    """Claims on the cards in ``folder`` about the ``chosen`` demos that ``evidence`` does not bear.

    A card that cannot be read is itself a problem: its numbers would go unverified.
    """
    library, problems = load(folder)
    unread = [p for p in problems if p.severity == "error" and not _is_card(p.place.path, library)]
    if library is None:
        return unread
    judgements = (
        judge(claim, evidence)
        for card in library.cards.values()
        for claim in card.claims()
        if claim.demo in chosen
    )
    return sorted({*unread, *(said for said in judgements if isinstance(said, Problem))})


def _is_card(path: str, library: Library | None) -> bool:
    return library is not None and any(card.path == path for card in library.cards.values())
