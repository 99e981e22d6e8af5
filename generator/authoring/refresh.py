"""Rewrite the numbers of cards from evidence and facts, and the words of records from their demos.

A number that equals its metric, or its fact, stays as it is printed; another one is printed anew, as precise as
before, in the same form. All other bytes of a card stay: line ends, byte order mark and spaces too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from generator.cards.model import Awaited, Calc, Card, Claim, Fact, Link, Param
from generator.evidence import derived, settings
from generator.evidence import facts as public
from generator.evidence.derived import Derived, Ground
from generator.evidence.evidence import Evidence
from generator.evidence.facts import Facts
from generator.evidence.quantities import QuantityError, Recorded, read
from generator.evidence.verdicts import judge
from generator.lines import BYTE_ORDER_MARK
from generator.problems import Place, Problem
from runnable_demos.lab import files, records
from runnable_demos.lab.metrics import Metric, Record
from runnable_demos.lab.scales import scale_for

_ROW = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A number that was rewritten: where its link begins, what was printed, what is now.

    ``moved`` are its target before and now, where that is another one.
    """

    place: Place
    before: str
    after: str
    moved: tuple[str, str] | None = None


def refresh(
    cards: Mapping[str, Card], evidence: Evidence, facts: Facts
) -> tuple[list[Change], list[Problem]]:
    """Rewrite the cards' files, each by one rename; what changed, and what could not be rewritten.

    What no number can put right (no such metric or fact, another unit) is left to ``check``.
    Raises ``OSError`` where a file cannot be read or written; the others are whole all the same.
    """
    changes: list[Change] = []
    problems: list[Problem] = []
    for card in sorted(cards.values(), key=lambda card: card.path):
        wanted, found = wanted_changes(card.claims(), evidence)
        for more, unfit in (
            wanted_settings(card.params(), evidence),
            wanted_facts(card.facts(), facts),
            wanted_records(card.awaited(), evidence),
            wanted_calculations(card.calcs(), Ground.of(card, evidence, facts)),
        ):
            wanted += more
            found += unfit
        path = Path(card.path)
        if wanted:
            raw = path.read_bytes()
            text, made, missed = rewritten(raw.decode("utf-8"), wanted)
            if made:
                files.write(path, text.encode("utf-8"))
            changes += made
            problems += [_moved(change) for change in missed]
        problems += found
    return sorted(changes), sorted(problems)


def reword(evidence: Evidence) -> list[Path]:
    """Give the records the words that their demos have today; the files that were written.

    A record that another run has replaced or removed meanwhile is left alone.
    Raises ``OSError`` where one cannot be written; the others are whole all the same.
    """
    return [path for path, record in evidence.reworded.items() if _reword(path, record, evidence)]


def _reword(path: Path, record: Record, evidence: Evidence) -> bool:
    try:
        found = path.read_bytes()
        if records.loads(found.decode()) != evidence.records[record.demo, record.device]:
            return False
    except (FileNotFoundError, ValueError):  # gone, or no record any more
        return False
    return files.write(path, records.dumps(record).encode(), over=found)


def wanted_changes(
    claims: Iterable[Claim], evidence: Evidence
) -> tuple[list[Change], list[Problem]]:
    """The claims whose number is not what was recorded, and those whose form cannot print it."""
    changes: list[Change] = []
    problems: list[Problem] = []
    for claim in claims:
        verdict = judge(claim, evidence)
        metric = evidence.metric(claim.demo, claim.metric, claim.device)
        if not isinstance(verdict, Problem) or verdict.code != "claim-number" or metric is None:
            continue
        try:
            after = _reprinted(claim, metric)
        except QuantityError as error:
            problems.append(_unfit(claim.place, error))
        else:
            changes.append(Change(claim.place, claim.text, after))
    return changes, problems


def wanted_settings(
    links: Iterable[Param], evidence: Evidence
) -> tuple[list[Change], list[Problem]]:
    """The same of settings of runs."""
    found = ((link, settings.find(link.demo, link.name, evidence)) for link in links)
    return _reprints(
        (link, setting.value)
        for link, setting in found
        if setting
        and setting.value is not None
        and _is(settings.judge(link, evidence), "param-number")
    )


def wanted_facts(links: Iterable[Fact], facts: Facts) -> tuple[list[Change], list[Problem]]:
    """The same of public facts."""
    found = ((link, facts.find(link)) for link in links)
    return _reprints(
        (link, fact.value)
        for link, fact in found
        if fact and _is(public.judge(link, facts), "fact-number")
    )


def wanted_records(
    links: Iterable[Awaited], evidence: Evidence
) -> tuple[list[Change], list[Problem]]:
    """The numbers that waited for a GPU's record and are in one now, the first by the GPU's name."""
    changes: list[Change] = []
    problems: list[Problem] = []
    for link in links:
        gpus = evidence.recorded_on_gpus(link.demo, link.metric)
        metric = evidence.metric(link.demo, link.metric, gpus[0]) if gpus else None
        if metric is None:
            continue
        target = f"{link.demo}/{link.metric}"
        if isinstance(metric.value, bool):
            hint = f"Say it in words: `claim:{target}@{gpus[0]}`."
            message = f"not rewritten: `{target}` is no number"
            problems.append(Problem(link.place, "refresh", message, hint))
        else:
            scale = scale_for([metric.value], metric.unit)
            after = f"{scale.number(metric.value)} {scale.unit}".strip()
            moved = f"gpu:{target}", f"claim:{target}@{gpus[0]}"
            changes.append(Change(link.place, link.text, after, moved))
    return changes, problems


def wanted_calculations(
    links: Iterable[Calc], ground: Ground
) -> tuple[list[Change], list[Problem]]:
    """The same of what is calculated."""
    found = ((link, derived.derive(link, ground)) for link in links)
    return _reprints(
        (link, worth.value.number)
        for link, worth in found
        if isinstance(worth, Derived) and _is(derived.compared(link, worth), "calc-number")
    )


def _reprints(pairs: Iterable[tuple[Link, Recorded]]) -> tuple[list[Change], list[Problem]]:
    """Each link with the value that it should print, and those whose form cannot print it."""
    changes: list[Change] = []
    problems: list[Problem] = []
    for link, value in pairs:
        try:
            changes.append(Change(link.place, link.text, read(link.text).reprint(value)))
        except QuantityError as error:
            problems.append(_unfit(link.place, error))
    return changes, problems


def _is(found: object, code: str) -> bool:
    return isinstance(found, Problem) and found.code == code


def _unfit(place: Place, error: QuantityError) -> Problem:
    hint = "Print the number in another form or unit, by hand."
    return Problem(place, "refresh", f"not rewritten: {error}", hint)


def _reprinted(claim: Claim, metric: Metric) -> str:
    """The claim's text as its record wants it; of a bound, all digits are printed."""
    if metric.bound is None:
        return read(claim.text).reprint(metric.value)
    text = read(claim.text).reprint(metric.bound)
    if not read(text).is_exactly(metric.bound):
        raise QuantityError(f"the bound {metric.bound!r} has more digits than “{claim.text}”")
    return text


def rewritten(
    text: str, changes: Sequence[Change]
) -> tuple[str, tuple[Change, ...], tuple[Change, ...]]:
    """``text`` with the changes made, those that were made, and those whose text was not there."""
    starts = [found.start() for found in _ROW.finditer(text)]
    made: list[Change] = []
    missed: list[Change] = []
    for change in sorted(changes, reverse=True):  # from the end, so that earlier places stay true
        row = change.place.line - 1
        start = starts[row] + change.place.column if row < len(starts) else len(text)
        start += row == 0 and text.startswith(BYTE_ORDER_MARK)
        # Of `[text][]` the text is the name of what it leads to, and stays.
        behind = r"(\(|\[(?!\]))" if change.moved is None else re.escape(f"({change.moved[0]})")
        if re.match(rf"\[{re.escape(change.before)}\]{behind}", text[start - 1 :]):
            end = start + len(change.before)
            rest = text[end:] if change.moved is None else text[end:].replace(*change.moved, 1)
            text = text[:start] + change.after + rest
            made.append(change)
        else:
            missed.append(change)
    return text, tuple(reversed(made)), tuple(reversed(missed))


def _moved(change: Change) -> Problem:
    message = f"not rewritten: “{change.before}” does not stand here in one piece"
    hint = f"Write “{change.after}” by hand, with the link's text on one line."
    return Problem(change.place, "refresh", message, hint)
