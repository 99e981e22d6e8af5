"""Names that people choose, and the known name nearest to one that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)
"""What Windows takes for a device, whatever ending follows."""
KEBAB_CASE = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
MAX_LENGTH = 80

_KEBAB_CASE = re.compile(KEBAB_CASE.removesuffix("$") + r"\Z")


def is_id(name: str) -> bool:
    """Whether ``name`` can be an id: it goes into addresses, file names and block ids alike."""
    return len(name) <= MAX_LENGTH and name not in DEVICES and _KEBAB_CASE.match(name) is not None


def why_no_id(name: str) -> str:
    """What keeps ``name`` from being an id, as the end of a sentence that begins with it."""
    if "/" in name or "\\" in name or name in {".", ".."}:
        return "is a path, and an id is a name"
    if len(name) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    if name in DEVICES:
        return "is a device on Windows, where no file can be called so"
    return "is not in kebab-case (lower-case Latin letters and digits, joined by single hyphens)"


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known names, or a few of them where none is near."""
    names = sorted(known)
    if near := get_close_matches(name[:MAX_LENGTH], names, n=1, cutoff=0.6):
        return f"Did you mean `{near[0]}`?"
    if not names:
        return "None is declared."
    listed = ", ".join(f"`{each}`" for each in names[:12])
    return f"Known: {listed}{', …' if len(names) > 12 else ''}."
