"""What is said of a fence's output, above it or in its place."""

from __future__ import annotations

from generator import words
from generator.lang import Text


def caption(output: str | None) -> Text:
    """That the fence prints something, prints nothing, or, where there is no output, was not run as it stands."""
    if output is None:
        return words.phrase("card.prints_stale")
    return words.phrase("card.prints") if output else words.phrase("card.prints_nothing")
