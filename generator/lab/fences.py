"""The fences of cards: how they are run, what that says of their records, and how it is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from generator.cards.model import Card, Fence
from generator.evidence import fence_records
from generator.evidence.fence_records import (
    MOST_PRINTED,
    FenceRecord,
    FenceRecords,
    Printout,
    again,
)
from generator.lab.comparing import Difference, State, environment_changes
from generator.lab.runs import Limits, Run, RunFailed, together
from generator.problems import Place, Problem, printable, quote
from runnable_demos.lab import files, records

SECONDS = 60.0
"""How long a fence may take, unless told otherwise."""
MOST_BYTES = 2**20
"""How much it may write around ``sys.stdout``; what it prints, as JSON, is less."""

_MOST_SAID = 200
"""Characters of an error that a problem repeats."""


@dataclass(frozen=True, slots=True)
class FenceOutcome:
    """What became of one fence of a card: ``problem`` is what is wrong with it, or with its record."""

    card: str
    fence: Fence
    state: State
    problem: Problem | None = None
    environment: tuple[Difference, ...] = ()

    @property
    def name(self) -> str:
        """What the fence is called while it runs: its card, and its first line."""
        return _name(self.card, self.fence)


Found = Mapping[Fence, Printout | Problem]
"""What the fences that were run printed, or why one was stopped."""


def chosen(cards: Iterable[Card], names: Collection[str], device: str) -> tuple[Card, ...]:
    """The cards with fences whose ids are among ``names``; without names all, but for a GPU's evidence."""
    everything = not names and device != "cuda"
    return tuple(card for card in cards if card.fences and (everything or card.id in names))


def names(cards: Iterable[Card]) -> list[str]:
    """What the fences of ``cards`` are called while they run."""
    return [_name(card.id, fence) for card in cards for fence in card.fences]


def _name(card: str, fence: Fence) -> str:
    return f"{card}:{fence.place.line}"


# --- running -------------------------------------------------------------------------------------


class FenceRun(Run):
    """One run of a fence."""

    def __init__(self, fence: Fence, seconds: float) -> None:
        arguments = ["generator.lab.fence_process", json.dumps(fence.code), str(MOST_PRINTED)]
        limits = Limits(
            seconds,
            MOST_BYTES,
            longer="Let it do less, or allow it more: `--fence-limit SECONDS`.",
            quieter="Print what a reader reads.",
            smaller="Let it compute on something smaller.",
        )
        super().__init__("this fence", arguments, limits)
        self._fence = fence

    def printout(self) -> Printout | Problem:
        """Run it now: what it printed, or why it was stopped."""
        try:
            last = self.result(lambda *_: None, lambda *_: None)
        except (RunFailed, OSError) as error:
            hint = getattr(error, "hint", "") or "Run its code by itself to see why."
            ending = str(getattr(error, "detail", "")).strip().rpartition("\n")[2]
            message = f"{error}; it last said {quote(ending)}" if ending else str(error)
            return Problem(self._fence.place, "fence-failed", message, hint)
        if "fault" in last:
            return _stopped(self._fence, last)
        output = last.get("printed", "")
        if said := fence_records.unfit(output):
            message = f"this fence prints {said}"
            return Problem(self._fence.place, "fence-failed", message, "Print plain text.")
        environment = {str(key)[:40]: str(value)[:80] for key, value in last["environment"].items()}
        today = datetime.now(UTC).date().isoformat()
        return Printout(self._fence.digest, output, environment, today)


def _stopped(fence: Fence, said: Mapping[str, Any]) -> Problem:
    """What a fence did that it may not, or which error it raised, at the line of its card."""
    rows = fence.code.splitlines()
    lines = [each for each in said["lines"] if isinstance(each, int) and 0 < each <= len(rows)]
    message = f"this fence {printable(said['fault'])[:_MOST_SAID]}"
    if not lines:
        return Problem(fence.place, "fence-failed", message, said["hint"])
    *outer, line = (fence.place.line + each - 1 for each in lines)
    message += f", in {quote(rows[lines[-1] - 1].strip())}"
    ways = [each for each in dict.fromkeys(outer) if each != line]
    if ways:
        message += ", called from line " + ", ".join(map(str, ways[:3]))
    place = Place(fence.place.path, line, fence.place.column)
    return Problem(place, "fence-failed", message, said["hint"])


def run_all(
    cards: Sequence[Card], done: Callable[[str], None], seconds: float = SECONDS
) -> dict[Fence, Printout | Problem]:
    """Every fence of ``cards`` run, a process a core at a time."""
    fences = {_name(card.id, fence): fence for card in cards for fence in card.fences}
    runs = {key: FenceRun(fence, seconds) for key, fence in fences.items()}
    lock = threading.Lock()

    def one(key: str) -> Printout | Problem:
        try:
            return runs[key].printout()
        finally:
            with lock:
                done(key)

    return {fences[key]: found for key, found in together(runs, one).items()}


# --- comparing and recording ---------------------------------------------------------------------


def judged(
    cards: Iterable[Card], found: Found, before: FenceRecords, *, recorded: bool = False
) -> tuple[FenceOutcome, ...]:
    """What became of each fence that was run, by the records as they were ``before``.

    ``recorded`` says that what was found is kept by now.
    """
    return tuple(
        _judged(card, fence, found[fence], before, recorded)
        for card in cards
        for fence in card.fences
        if fence in found
    )


def _judged(
    card: Card, fence: Fence, found: Printout | Problem, before: FenceRecords, recorded: bool
) -> FenceOutcome:
    if isinstance(found, Problem):
        return FenceOutcome(card.id, fence, "failed", found)
    kept = before.printed(card.id, fence)
    if kept and kept.output == found.output:
        changes = environment_changes(kept.environment, found.environment)
        return FenceOutcome(card.id, fence, "agrees", None, changes)
    if recorded:
        return FenceOutcome(card.id, fence, "recorded")
    if kept is None:
        said = (each for each in fence_records.judge(card, before) if each.place == fence.place)
        return FenceOutcome(card.id, fence, "differs", next(said, None))
    hint = f"Let it print the same at each run, or record it again: {again(card.id)}."
    message = _difference(kept.output, found.output)
    problem = Problem(fence.place, "fence-differs", message, hint)
    changes = environment_changes(kept.environment, found.environment)
    return FenceOutcome(card.id, fence, "differs", problem, changes)


def _difference(before: str, after: str) -> str:
    """The first line in which two outputs differ."""
    lines = enumerate(zip_longest(before.split("\n"), after.split("\n")), 1)
    number, (old, new) = next((at, pair) for at, pair in lines if pair[0] != pair[1])
    return f"in line {number} this fence prints {_shown(new)}, and {_shown(old)} is recorded"


def _shown(line: str | None) -> str:
    return "nothing" if line is None else quote(line) if line else "an empty line"


def record(cards: Iterable[Card], found: Found, before: FenceRecords) -> None:
    """Keep what was found, each card's by one rename. Raises ``OSError``.

    What a fence that failed has printed before, with the code that it still has, stays;
    where the same environment printed the same before, so does its day.
    """
    for card in cards:
        kept = [_newest(before.printed(card.id, each), found.get(each)) for each in card.fences]
        fences = tuple(each for each in kept if each)
        if fences:
            path = before.path(card.id)
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, records.dumps(FenceRecord(card.id, fences)).encode())


def _newest(kept: Printout | None, found: Printout | Problem | None) -> Printout | None:
    if not isinstance(found, Printout):
        return kept
    same = kept and (kept.output, kept.environment) == (found.output, found.environment)
    return kept if same else found
