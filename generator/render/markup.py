"""Text and markup kept apart: all HTML and SVG comes from templates that escape what they are given.

``Markup`` is a type of its own, and this file is the only one that makes it. What is no ``Markup``
is text, and a template escapes it, wherever it stands and whoever wrote it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import jinja2
from markupsafe import Markup

from generator import lang, words

Reason = Literal[
    "sanitised",  # ammonia has let through only what a card can say
    "addressed",  # markup in which addresses were put in the place of others, each escaped
    "drawn",  # matplotlib escapes the words of a figure; the tags are its own
    "ours",  # a file of this project or of a pinned package, not a text of the base
    "in script",  # such a file, or JSON, in which nothing can end the element around it
]


def vouched(html: str, reason: Reason) -> Markup:  # noqa: ARG001 - the reason is for whoever reads the call
    """``html`` as markup that no template escapes again: the ``reason`` says who has seen to it."""
    return Markup(html)


def template(name: str, values: Mapping[str, object]) -> Markup:
    """One of ``generator/render/templates``, with all that is no ``Markup`` escaped."""
    return Markup(environment().get_template(name).render(values))


def bilingual(text: lang.Text) -> Markup:
    """A text in every language, of which styles show the reader's."""
    return Markup(environment().get_template("macros.html").module.bi(text))  # type: ignore[attr-defined]


@cache
def environment() -> jinja2.Environment:
    """The templates, which escape what they are given, and refuse to print what they were not."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["g"] = lambda number: f"{number:g}"
    made.globals.update(
        langs=lang.LANGS,
        html_lang=lang.HTML_LANG,
        depths=lang.SECTION_DEPTHS,
        old_depths=lang.OLD_SECTION_DEPTHS,
        words=words.TABLE,
        fill=words.fill,
        label=lang.as_label,
        on_one_line=lang.on_one_line,
    )
    return made


def in_script(text: str) -> Markup:
    """Text that cannot end the ``<script>`` around it; equal in JavaScript strings and in JSON."""
    return vouched(text.replace("</", "<\\/").replace("<!--", "<\\u0021--"), "in script")


# --- what a page may do --------------------------------------------------------------------------


def policy(scripts: Iterable[str] = (), *, alone: bool = False, preview: bool = False) -> str:
    """A Content-Security-Policy: nothing is loaded, sent or run but what the page is made of.

    ``scripts`` are the inline scripts of the page, which run because their hashes are known;
    no other does, and no handler in an attribute. A page that stands ``alone`` loads nothing at
    all. MkDocs writes a script into each page of a ``preview``, to reload it; nobody knows its hash.

    Styles may stand in attributes, since each part of a formula and of a figure carries its own.
    """
    own = "" if alone else "'self' "
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    run = "'self' 'unsafe-inline'" if preview else f"{own}{hashes}".strip() or "'none'"
    nothing = ("object-src", "frame-src", "media-src", "worker-src", "manifest-src")
    rules = {
        # Of a site's own pages Firefox fetches the next one beforehand, for which there is no other rule.
        "default-src": "'none'" if alone else "'self'",
        **({} if alone else dict.fromkeys(nothing, "'none'")),
        "script-src": run,
        "style-src": f"{own}'unsafe-inline'",
        "img-src": f"{own}data:",
        "font-src": "data:" if alone else "'self'",
        "connect-src": "'none'" if alone else "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
