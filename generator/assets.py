"""Styles, scripts, libraries and the font that pages carry: the same files for site and handbook."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).parent.parent
OVERRIDES = _ROOT / "site_overrides"
_VENDOR = Path(__file__).parent / "vendor"

LIBRARIES = ("minisearch.js", "ts-fsrs.js")
FONT = "stix-two-math.woff2"
EARLY = "early.js"
"""Runs before the first paint, so it stands in the head; all other scripts are deferred."""
_FIRST = {"tokens.css": 0, "core.js": 0}
SITE_ONLY = ("material.css",)


class MissingAssetsError(Exception):
    """Set-up has not fetched the libraries and the font; the message says how to."""


def styles() -> list[Path]:
    """All styles, colours first."""
    return _ordered((OVERRIDES / "styles").glob("*.css"))


def scripts() -> list[Path]:
    """All deferred scripts, the one that the others use first."""
    return [path for path in _ordered((OVERRIDES / "scripts").glob("*.js")) if path.name != EARLY]


def early_script() -> str:
    """The script for the head."""
    return (OVERRIDES / "scripts" / EARLY).read_text(encoding="utf-8")


def vendor(name: str) -> Path:
    """A library or font that set-up has fetched."""
    path = _VENDOR / name
    if not path.is_file():
        raise MissingAssetsError(f"{name} has not been fetched: run `make build`")
    return path


def _ordered(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (_FIRST.get(path.name, 1), path.name))
