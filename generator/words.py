"""The words of the interface, in one table: a row a phrase, a column a language, grouped by where they stand.

The table is ``words.json``. Python asks for its rows here; templates read it as ``words.search.nothing``,
scripts as ``say("search.nothing")``. What stands in {braces} is filled in where the phrase is printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Text = Mapping[str, str]
"""The same words by language code."""

TABLE: Mapping[str, Mapping[str, Text]] = json.loads(
    Path(__file__).with_name("words.json").read_text(encoding="utf-8")
)

IN_SCRIPTS = (
    "common", "sections", "depth", "difficulties", "verdicts", "proofs", "filters", "search", "study",
    "item_kinds", "ratings", "scores", "reading", "lost", "single_keys", "handbook", "ways", "resume",
)  # fmt: skip
"""The groups that pages carry for their scripts."""
IN_THEME = ("common", "footer", "missing")
"""The groups that the theme's templates print, whichever program fills them in."""


class UnknownPhraseError(LookupError):
    """The table has no row, or no group of rows, of this name."""


def group(name: str) -> Mapping[str, Text]:
    """The phrases of a group by their names; an ``UnknownPhraseError`` where there is no such group."""
    try:
        return TABLE[name]
    except KeyError:
        raise UnknownPhraseError(name) from None


def groups(names: tuple[str, ...]) -> Mapping[str, Mapping[str, Text]]:
    """Several groups by their names."""
    return {name: group(name) for name in names}


def phrase(key: str) -> Text:
    """The phrase ``"group.name"`` in every language; an ``UnknownPhraseError`` where there is none."""
    of, _, name = key.partition(".")
    try:
        return group(of)[name]
    except LookupError:
        raise UnknownPhraseError(key) from None


def fill(text: Text, **values: Text | str | int) -> Text:
    """A phrase with its places filled, by words of each language or by the same in all."""

    def of(value: Text | str | int, lang: str) -> str | int:
        return value[lang] if isinstance(value, Mapping) else value

    return {
        lang: words.format(**{name: of(value, lang) for name, value in values.items()})
        for lang, words in text.items()
    }
