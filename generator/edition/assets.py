"""Styles, scripts, libraries and the font that pages carry: the same files for site and handbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from generator import words
from generator.lang import HTML_LANG
from generator.tex import font as math_font

_ROOT = Path(__file__).parents[2]
OVERRIDES = _ROOT / "site_overrides"
IN_CHECKOUT = (_ROOT / "pyproject.toml").is_file() and (_ROOT / "Makefile").is_file()
"""Whether this is the project's own folder, in which `make` works, or an installed package."""
_PACKAGED = OVERRIDES / "mkdocs.yml"
SITE_CONFIG = _PACKAGED if _PACKAGED.is_file() else _ROOT / "mkdocs.yml"
"""MkDocs' settings: at the top of a checkout, so that `mkdocs` finds them; in a package, with the theme."""
FAVICON = OVERRIDES / "favicon.svg"
_VENDOR = Path(__file__).parents[1] / "vendor"

LIBRARIES = ("minisearch.js", "ts-fsrs.js")
FONT = "stix-two-math.woff2"
EARLY = "early.js"
"""Runs before the first paint, so it stands in the head; all other scripts are deferred."""
EARLY_PARTS = ("store.js", "early.js")
THEME_SCRIPTS = ("material.js", "palette.js")
"""What the theme would write into each page, whose policy lets no script stand there; the first
is a part of ``EARLY``, the second runs where the body has begun."""
_FIRST = ("tokens.css", "core.js", "tip.js", "ways.js")
"""What the other styles and scripts rest on."""
SITE_ONLY = ("documents.css", "font.css", "material.css", "notes.js", *THEME_SCRIPTS)
HANDBOOK_ONLY = ("handbook.css", "handbook.js")
PAGE_SCRIPTS = {
    "graph.js": ("graph.js",),
    "study.js": ("progress.js", "study.js"),
    "card.js": ("beside.js", "depth.js", "followups.js"),
    "lost.js": ("lost.js",),
    "rows.js": ("rows.js",),
    "filter.js": ("filter.js",),
    "report.js": ("report.js",),
}
"""Not of use on every page, each file with its parts; ``main.html`` loads them where they are."""
PAGE_STYLES = ("study.css", "graph.css", "documents.css", "rows.css")
"""Likewise."""
PAGE_WORDS: Mapping[str, tuple[str, ...]] = {
    "study.js": ("study", "item_kinds", "ratings", "scores")
}
"""Groups of phrases that scripts of that page alone say."""
LATER = "search.js"
"""Loaded where a reader first searches, by ``searching.js``."""
STYLE = "proofdeck.css"
SCRIPT = "proofdeck.js"
"""What every page of the site loads, each one file: fewer requests, and better packed."""
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/)\n", re.MULTILINE | re.DOTALL)
"""A comment that has its lines to itself; one within a line of code stays."""
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_BETWEEN = re.compile(r"""("[^"]*")|/\*.*?\*/\s*|\s*([{};,])\s*|(:)\s+|(\s)\s*""", re.DOTALL)
"""Of a style a string, a comment, and the space around a mark or between words."""


class MissingAssetsError(Exception):
    """The libraries and the font are not there; ``hint`` says how to get them."""

    hint = (
        "Run `make build`, which fetches them once."
        if IN_CHECKOUT
        else "Install it again: `python -m pip install --force-reinstall --no-deps proofdeck`."
    )


def styles() -> list[Path]:
    """All styles, colours first."""
    return _ordered((OVERRIDES / "styles").glob("*.css"))


def scripts() -> list[Path]:
    """All deferred scripts, those that the others use first."""
    return [
        path
        for path in _ordered((OVERRIDES / "scripts").glob("*.js"))
        if path.name not in EARLY_PARTS
    ]


def bundles() -> dict[str, bytes]:
    """The styles and scripts of the site by address: one of each for all pages, and ``PAGE_SCRIPTS``."""
    elsewhere = {*HANDBOOK_ONLY, *THEME_SCRIPTS, LATER}
    elsewhere |= {name for parts in PAGE_SCRIPTS.values() for name in parts}
    elsewhere |= {*PAGE_STYLES}
    alone = {group for groups in PAGE_WORDS.values() for group in groups}
    material, palette = THEME_SCRIPTS
    return {
        STYLE: "\n".join(style(path) for path in styles() if path.name not in elsewhere).encode(),
        **{name: style(OVERRIDES / "styles" / name).encode() for name in PAGE_STYLES},
        SCRIPT: words_script(group for group in words.IN_SCRIPTS if group not in alone).encode()
        + _scripts(*(path.name for path in scripts() if path.name not in elsewhere)),
        EARLY: _scripts(*EARLY_PARTS, material),
        palette: _scripts(palette),
        LATER: _scripts(LATER),
        **{
            name: _more_words(PAGE_WORDS.get(name, ())).encode() + _scripts(*parts)
            for name, parts in PAGE_SCRIPTS.items()
        },
    }


def _scripts(*names: str) -> bytes:
    return "\n".join(script(OVERRIDES / "scripts" / name) for name in names).encode()


def script(path: Path) -> str:
    """One of our scripts without the lines of comments and types: those are for who reads the source."""
    return _INDENT.sub("", _COMMENT.sub("", path.read_text(encoding="utf-8")))


def style(path: Path) -> str:
    """One of our styles without comments and without the space that only its source needs."""
    text = path.read_text(encoding="utf-8")
    return _BETWEEN.sub(lambda match: next(filter(None, match.groups()), ""), text)


def early_script() -> str:
    """The scripts for the head, as one."""
    return _scripts(*EARLY_PARTS).decode()


def words_script(groups: Iterable[str] = words.IN_SCRIPTS) -> str:
    """The words that scripts say, and what markup calls each language; ahead of every deferred script."""
    given = {"htmlLang": HTML_LANG, "phrases": _phrases(groups)}
    return f"Object.assign(window.pd, {_json(given)});\n"


def _more_words(groups: Iterable[str]) -> str:
    """The words of a script that not every page loads."""
    found = _phrases(groups)
    return f"Object.assign(window.pd.phrases, {_json(found)});\n" if found else ""


def _phrases(groups: Iterable[str]) -> dict[str, words.Text]:
    return {
        f"{group}.{name}": text
        for group, rows in words.groups(tuple(groups)).items()
        for name, text in rows.items()
    }


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def figure_colours() -> str:
    """The declarations that colour a figure as the pages do, for a file that no page styles."""
    text = (OVERRIDES / "styles" / "tokens.css").read_text(encoding="utf-8")
    named = dict(_COLOUR.findall(text))
    own = {name: _NAMED.sub(lambda m: named[m[1]], text) for name, text in named.items()}
    inks = " ".join(f"{name}: {ink};" for name, ink in own.items() if name.startswith("--pd-fig-"))
    return f"color-scheme: light dark; {inks}"


_COLOUR = re.compile(r"(--pd-[\w-]+): ((?:light-dark|var)\([^;]*);")
_NAMED = re.compile(r"var\((--pd-[\w-]+)\)")


def theme_words() -> Mapping[str, Mapping[str, words.Text]]:
    """The words that the theme's templates print, as ``config.extra.pd_words``."""
    return words.groups(words.IN_THEME)


def vendor(name: str) -> Path:
    """A library or font that set-up has fetched."""
    path = _VENDOR / name
    if not path.is_file():
        raise MissingAssetsError(f"{path} is missing, which every page needs")
    return path


def font(characters: frozenset[str]) -> bytes:
    """The math font for these characters."""
    return math_font.cut(vendor(FONT), characters)


def _ordered(paths: Iterable[Path]) -> list[Path]:
    places = {name: place for place, name in enumerate(_FIRST)}
    return sorted(paths, key=lambda path: (places.get(path.name, len(_FIRST)), path.name))
