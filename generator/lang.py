"""The languages, and what cards and numbers are made of, with the words for it in each language.

The words themselves stand in the table of ``words``: a third language is a column there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from generator import words

Lang = Literal["zh", "en"]
LANGS: tuple[Lang, ...] = get_args(Lang)

Text = words.Text
"""The same words by language code."""

HTML_LANG: Mapping[Lang, str] = {"zh": "zh-Hans", "en": "en"}

SectionName = Literal[
    "answer", "spoken", "intuition", "insights", "example", "derivation", "code", "tradeoffs",
    "pitfalls", "followups", "points",
]  # fmt: skip
SECTION_NAMES: tuple[SectionName, ...] = get_args(SectionName)
"""The sections of a card, in their order."""
OLD_SECTIONS: tuple[SectionName, ...] = (
    "answer", "insights", "derivation", "tradeoffs", "pitfalls", "followups",
)  # fmt: skip
"""Those of a card that is not yet in format 2."""
OPTIONAL_SECTIONS: frozenset[SectionName] = frozenset({"code"})

Depth = Literal["answer", "brief", "deep"]
"""How far a reader reads: thirty seconds, two minutes, all."""
SECTION_DEPTHS: Mapping[SectionName, Depth] = {
    **dict.fromkeys(SECTION_NAMES, "deep"),
    "answer": "answer",
    "spoken": "answer",
    "intuition": "answer",
    "insights": "brief",
    "example": "brief",
}
"""How deep each section stands on a card in format 2."""

OLD_SECTION_DEPTHS: Mapping[SectionName, Depth] = {
    **dict.fromkeys(OLD_SECTIONS, "deep"),
    "answer": "answer",
    "insights": "brief",
    "tradeoffs": "brief",
}
"""The same on a card that is not yet in format 2."""

Frequency = Literal["often", "sometimes", "rarely"]
"""How often an interviewer asks a question."""
FREQUENCIES: tuple[Frequency, ...] = get_args(Frequency)
Level = Literal["pass", "strong", "outstanding", "red-flag"]
"""What a point that an interviewer listens for says of the candidate."""
LEVELS: tuple[Level, ...] = get_args(Level)
RED_FLAG: Level = "red-flag"
PitfallGroup = Literal["said", "shipped"]
"""Where a mistake is made: in an interview, or in code."""
PITFALL_GROUPS: tuple[PitfallGroup, ...] = get_args(PitfallGroup)

LANGUAGE_HEADINGS: Text = words.phrase("common.language_name")
SECTION_HEADINGS: Mapping[SectionName, Text] = {
    name: words.phrase(f"sections.{name}") for name in SECTION_NAMES
}
PITFALL_HEADINGS = words.group("pitfall_groups")
FREQUENCY_LABELS = words.group("frequencies")
LEVEL_LABELS = words.group("levels")
CALLOUT_LABELS = words.group("callouts")
DIFFICULTY_LABELS = words.group("difficulties")
KIND_LABELS = words.group("metric_kinds")
STATE_LABELS = words.group("states")
"""What became of a number, by ``evidence.State``, in reading order."""
PAGE_TITLES = words.group("titles")

LEVEL_MARKS: Mapping[str, str] = {"pass": "✓", "strong": "✓✓", "outstanding": "★", "red-flag": "⚑"}

STATE_MARKS: Mapping[str, str] = {
    "proven": "✓",
    "bounded": "≤",
    "sampled": "±",
    "measured": "◷",
    "computed": "ƒ",
    "refuted": "✗",
    "stale": "?",
}


def on_one_line(text: Text) -> str:
    """A text in every language, one behind the other; once where they are equal."""
    return " · ".join(dict.fromkeys(text[lang] for lang in LANGS))


def as_label(text: Text) -> str:
    """A text in every language for a label that is read aloud."""
    return " ".join(text[lang] for lang in LANGS)
