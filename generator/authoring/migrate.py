"""Bring a base into format 2, as far as a program can: its `modules.yml` says so, and each card what it still needs.

What a card lacks, a person writes: no program knows how an interviewer asks, or how often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from generator.cards import syllabus
from generator.cards.model import Card
from generator.cards.syllabus import Syllabus
from generator.checks.followup_count import FEWEST
from generator.lang import (
    LANGS,
    OPTIONAL_SECTIONS,
    PITFALL_HEADINGS,
    SECTION_HEADINGS,
    SECTION_NAMES,
    on_one_line,
)
from generator.lines import BYTE_ORDER_MARK
from generator.problems import Place, Problem
from runnable_demos.lab import files

FORMAT = "format: 2"
_ROW = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a card still needs to be in format 2, in words, in the order of the file."""

    path: str
    lacks: tuple[str, ...]


def write(plan: Syllabus) -> Path | Problem | None:
    """Let `modules.yml` say format 2; nothing where it does already, a problem where no program can.

    All other bytes of the file stay. Raises ``OSError`` where it cannot be read or written.
    """
    if plan.format == 2:
        return None
    path = Path(plan.path)
    raw = path.read_bytes()
    text = _with_format(raw.decode("utf-8"), plan)
    again, _ = syllabus.read(text, plan.path)
    same = again is not None and (again.modules, again.paths) == (plan.modules, plan.paths)
    if again is None or not same or again.format == 1:
        message, hint = (
            "the file is written in a way that leaves no line for its format",
            f"Write `{FORMAT}` among its top keys yourself.",
        )
        return Problem(plan.places.get("modules", Place(plan.path)), "migrate", message, hint)
    if not files.write(path, text.encode("utf-8"), over=raw):
        message, hint = "the file has changed meanwhile", "Run `proofdeck migrate` again."
        return Problem(Place(plan.path), "migrate", message, hint)
    return path


def _with_format(text: str, plan: Syllabus) -> str:
    """The file's text with its format in the row of the old one, else in a row before the first key."""
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    rows = _ROW.findall(text.removeprefix(mark))
    keys = {name: place for name, place in plan.places.items() if "." not in name}
    if "format" in keys:
        at = keys["format"].line - 1
        before, key, behind = rows[at].partition("format:")
        rows[at] = before + key + behind.replace("1", "2", 1)
    else:
        first = min(keys.values())
        row = rows[first.line - 1]
        end = row[len(row.rstrip("\r\n")) :] or "\n"
        rows.insert(first.line - 1, f"{row[: first.column - 1]}{FORMAT}{end}")
    return mark + "".join(rows)


def remaining(cards: Mapping[str, Card]) -> list[Remaining]:
    """What each card that is not yet in format 2 still needs, by path."""
    ordered = sorted(cards.values(), key=lambda card: card.path)
    return [Remaining(card.path, tuple(_lacks(card))) for card in ordered if not card.converted]


def _lacks(card: Card) -> Iterator[str]:
    keys = [key for key in ("asked", "frequency") if key not in card.places]
    yield f"in its front matter: {', '.join(f'`{key}`' for key in ['question', *keys])}"
    half = card.sections[LANGS[0]]
    sections = [
        on_one_line(SECTION_HEADINGS[name])
        for name in SECTION_NAMES
        if name not in half and name not in OPTIONAL_SECTIONS
    ]
    yield f"sections: {'; '.join(sections)}"
    headings = "; ".join(on_one_line(heading) for heading in PITFALL_HEADINGS.values())
    pitfalls = _counted(len(half["pitfalls"].items), "pitfall")
    yield f"which of {pitfalls} stands below which heading: {headings}"
    followups = half["followups"].items
    if untold := sum(1 for item in followups if item.frequency is None):
        yield f"how often each of {_counted(untold, 'follow-up')} is asked, in the comment with its id"
    if (more := FEWEST - len(followups)) > 0:
        yield f"{_counted(more, 'more follow-up')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
