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

SectionName = Literal["answer", "insights", "derivation", "tradeoffs", "pitfalls", "followups"]
SECTION_NAMES: tuple[SectionName, ...] = get_args(SectionName)

LANGUAGE_HEADINGS: Text = words.phrase("common.language_name")
SECTION_HEADINGS: Mapping[SectionName, Text] = {
    name: words.phrase(f"sections.{name}") for name in SECTION_NAMES
}
CALLOUT_LABELS = words.group("callouts")
DIFFICULTY_LABELS = words.group("difficulties")
KIND_LABELS = words.group("metric_kinds")
STATE_LABELS = words.group("states")
"""What became of a number, by ``evidence.State``, in reading order."""
PAGE_TITLES = words.group("titles")

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
