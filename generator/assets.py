"""Styles, scripts, libraries and the font that pages carry: the same files for site and handbook."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from generator import math_font

_ROOT = Path(__file__).parent.parent
OVERRIDES = _ROOT / "site_overrides"
_VENDOR = Path(__file__).parent / "vendor"

LIBRARIES = ("minisearch.js", "ts-fsrs.js")
FONT = "stix-two-math.woff2"
EARLY = ("store.js", "early.js")
"""Run before the first paint, so they stand in the head; all other scripts are deferred."""
_FIRST = {"tokens.css": 0, "core.js": 0}
SITE_ONLY = ("font.css", "material.css")
HANDBOOK_ONLY = ("handbook.css", "handbook.js")
PAGE_SCRIPTS = {"graph.js": ("graph.js",), "study.js": ("progress.js", "study.js")}
"""Of use on the page of that name alone, each file with its parts; ``main.html`` loads them there."""
STYLE = "proofdeck.css"
SCRIPT = "proofdeck.js"
"""What every page of the site loads, each one file: fewer requests, and better packed."""


class MissingAssetsError(Exception):
    """Set-up has not fetched the libraries and the font; the message says how to."""


def styles() -> list[Path]:
    """All styles, colours first."""
    return _ordered((OVERRIDES / "styles").glob("*.css"))


def scripts() -> list[Path]:
    """All deferred scripts, the one that the others use first."""
    return [
        path for path in _ordered((OVERRIDES / "scripts").glob("*.js")) if path.name not in EARLY
    ]


def bundles() -> dict[str, bytes]:
    """The styles and scripts of the site by address: one of each for all pages, and ``PAGE_SCRIPTS``."""
    elsewhere = {*HANDBOOK_ONLY, *(name for parts in PAGE_SCRIPTS.values() for name in parts)}
    everywhere = [path for path in scripts() if path.name not in elsewhere]
    return {
        STYLE: _joined(path for path in styles() if path.name not in HANDBOOK_ONLY),
        SCRIPT: _joined(everywhere),
        **{
            name: _joined(OVERRIDES / "scripts" / part for part in parts)
            for name, parts in PAGE_SCRIPTS.items()
        },
    }


def _joined(paths: Iterable[Path]) -> bytes:
    return b"\n".join(path.read_bytes() for path in paths)


def early_script() -> str:
    """The scripts for the head, as one."""
    return _joined(OVERRIDES / "scripts" / name for name in EARLY).decode()


def vendor(name: str) -> Path:
    """A library or font that set-up has fetched."""
    path = _VENDOR / name
    if not path.is_file():
        raise MissingAssetsError(f"{name} has not been fetched: run `make build`")
    return path


def font(characters: frozenset[str]) -> bytes:
    """The math font for these characters."""
    return math_font.cut(vendor(FONT), characters)


def _ordered(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (_FIRST.get(path.name, 1), path.name))
