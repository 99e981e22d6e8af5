"""What the fences of cards printed when they were run, and whether that is still what stands there.

``<evidence>/cards/<card>.json`` holds a ``FenceRecord``, written and sealed as the records of demos are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from generator.cards.model import Card, Fence
from generator.names import is_id
from generator.problems import Place, Problem, quote, visible
from runnable_demos.lab import records

FOLDER = "cards"
"""Where in the evidence they are kept."""
MOST_PRINTED = 64 * 2**10
"""Bytes, in UTF-8, that a fence may print."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Printout:
    """What one fence printed: of which code (its digest), under which versions, on which day."""

    digest: str
    output: str
    environment: Mapping[str, str]
    recorded: str


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """What the fences of one card printed, in their order."""

    card: str
    fences: tuple[Printout, ...]


@dataclass(frozen=True, slots=True)
class FenceRecords:
    """The sound records of a base by card, those that are broken, and the folder that they stand in."""

    folder: Path = Path()
    records: Mapping[str, FenceRecord] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def printed(self, card: str, fence: Fence) -> Printout | None:
        """What a fence of a card printed; ``None`` where its code, as it stands, was not recorded."""
        record = self.records.get(card)
        found = record.fences if record else ()
        return next((each for each in found if each.digest == fence.digest), None)

    def path(self, card: str) -> Path:
        """Where the record of a card is kept."""
        return self.folder / f"{card}.json"


def again(card: str) -> str:
    """The command that runs the fences of a card, and records what they print."""
    return f"`proofdeck verify {card} --record`"


# --- reading -------------------------------------------------------------------------------------


def load(evidence: Path) -> tuple[FenceRecords, list[Problem]]:
    """The records in a folder of evidence, and what is wrong with their files.

    Raises ``OSError`` where one cannot be read.
    """
    folder = evidence / FOLDER
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found: dict[str, FenceRecord] = {}
    problems: list[Problem] = []
    for path in (each for each in paths if each.suffix == ".json"):
        record = _load(path)
        if isinstance(record, FenceRecord):
            found[record.card] = record
        else:
            problems.append(record)
    broken = frozenset(Path(each.place.path).stem for each in problems)
    return FenceRecords(folder, found, broken), problems


def _load(path: Path) -> FenceRecord | Problem:
    try:
        record = records.read_as(FenceRecord, path.read_bytes())
    except records.RecordError as error:
        message = f"this file is no record of a card's fences: {error}"
    else:
        message = fault(record) or ""
        if not message and record.card != path.stem:
            message = f"this is the record of `{record.card}`, by another name"
    if not message:
        return record
    hint = f"Run the card's fences again: {again(path.stem)}; or delete the file."
    return Problem(Place(str(path)), "evidence-corrupt", message, hint)


def fault(record: FenceRecord) -> str | None:
    """The first thing that keeps a record from being shown, though it can be read."""
    digests = [each.digest for each in record.fences]
    if not is_id(record.card):
        return f"{quote(record.card)} is no card's id"
    if not all(map(_DIGEST.fullmatch, digests)) or len(set(digests)) < len(digests):
        return "its fences are not told apart by the digests of their code"
    for each in record.fences:
        if said := unfit(each.output):
            return f"a fence is said to print {said}"
        try:
            date.fromisoformat(each.recorded)
        except ValueError:
            return f"{quote(each.recorded)} is no date; a record has one like 2026-01-31"
    return None


def unfit(output: str) -> str | None:
    """What in an output no page can show."""
    if len(output.encode("utf-8", "surrogatepass")) > MOST_PRINTED:
        return f"more than {MOST_PRINTED >> 10} KiB"
    for line in output.splitlines(keepends=True):
        if line != (shown := visible(line)):
            return f"what would steer a terminal, or turn text around: {quote(shown.strip())}"
    return None


# --- judging -------------------------------------------------------------------------------------


def judge(card: Card, found: FenceRecords) -> Iterator[Problem]:
    """Each fence of ``card`` that has no record, or whose record is of other code, and records of none.

    A broken record is one problem, and is named where it lies: not again by each fence.
    """
    if card.id in found.broken:
        return
    record = found.records.get(card.id)
    digests = {fence.digest for fence in card.fences}
    left = sum(each.digest not in digests for each in record.fences) if record else 0
    for fence in card.fences:
        if found.printed(card.id, fence):
            continue
        if left:
            left -= 1
            message = "this code has changed since it was run, and what it printed is not shown"
            hint = f"Run it again: {again(card.id)}."
            yield Problem(fence.place, "fence-stale", message, hint)
        else:
            message = "what this code prints is not recorded"
            hint = f"Run it: {again(card.id)}."
            yield Problem(fence.place, "fence-unrecorded", message, hint)
    if left:
        hint = f"Let {again(card.id)} leave it out." if card.fences else "Delete the file."
        yield _gone(found.path(card.id), f"of a fence that `{card.id}` has no longer", hint)


def orphans(cards: frozenset[str], found: FenceRecords) -> Iterator[Problem]:
    """The records of cards that there are none of."""
    for name in sorted(found.records.keys() - cards):
        yield _gone(found.path(name), f"of a card `{name}`, which is gone", "Delete the file.")


def _gone(path: Path, what: str, hint: str) -> Problem:
    message = f"this file holds the record {what}"
    return Problem(Place(str(path)), "fence-gone", message, hint, "warning")
