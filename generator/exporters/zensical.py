"""The pages as files, for site builders that take no pages from a program (Zensical)."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml
from markupsafe import escape

from generator import site_url
from generator.edition import assets, pages
from generator.edition.edition import Edition
from generator.edition.website import Website, website
from generator.lang import PAGE_TITLES, Text, on_one_line
from generator.render.markup import policy

_PRE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_BLANK_LINES = re.compile(r"\n\s*\n+")


NAME = "zensical"
TITLE: Text = {"zh": "供 Zensical 用的页面", "en": "pages for Zensical"}
DEFAULT = False
ENTRY = "zensical/mkdocs.yml"


def export(edition: Edition, out: Path) -> None:
    """Write ``docs/``, ``theme/`` and a ``mkdocs.yml`` into ``out``: ``zensical build`` does the rest.

    Their address is that of the environment: see ``site_url``.
    """
    address = site_url.read()
    made = website(edition, address)
    docs = out / "docs"
    for path, page in made.pages.items():
        _write(docs / path, page_file(page).encode())
    for path, content in made.files.items():
        _write(docs / path, content)
    shutil.copytree(assets.OVERRIDES / "theme", out / "theme")
    _write(out / "mkdocs.yml", _config(made, address).encode())


def page_file(page: pages.Page) -> str:
    """Front matter, and the body as one raw HTML block: Markdown leaves it alone, as no line is blank."""
    body = _PRE.sub(lambda match: match[0].replace("\n", "&#10;"), page.body)
    meta: dict[str, object] = {"title": _html(page.title), "description": _html(page.description)}
    if not page.headings:
        meta["hide"] = ["navigation", "toc"]
    # In double quotes each value is one line, whatever is in it.
    front = yaml.safe_dump(meta, allow_unicode=True, default_style='"', width=math.inf)
    return f"---\n{front}---\n\n{_BLANK_LINES.sub(chr(10), body)}\n"


def _html(text: Text) -> str:
    """A text for the theme of that builder, which prints all that it is given as it is."""
    return str(escape(on_one_line(text)))


def _config(made: Website, address: str) -> str:
    """Our ``mkdocs.yml`` without the hook, and with what the hook would have added."""
    text = assets.SITE_CONFIG.read_text(encoding="utf-8").replace("!ENV ", "")
    config = yaml.safe_load(text)
    config.pop("hooks")
    config.pop("watch")
    config["site_url"] = address or config["site_url"][-1]
    config["docs_dir"] = "docs"
    config["theme"]["custom_dir"] = "theme"
    config["theme"].pop("language")
    config["nav"] = [
        *_nav(made.navigation),
        {_html(PAGE_TITLES["documents"]): _nav(made.documents)},
    ]
    config["extra_css"] = [assets.STYLE]
    config["extra_javascript"] = [{"path": assets.SCRIPT, "defer": True}]
    config["extra"]["pd_policy"] = policy()
    config["markdown_extensions"] = []  # those that it has unasked read files into pages
    config["extra"]["pd_ways"] = made.ways()
    config["extra"]["pd_words"] = assets.theme_words()
    return yaml.safe_dump(config, allow_unicode=True, sort_keys=False)


def _nav(found: Mapping[str, pages.Page]) -> list[dict[str, str]]:
    return [{_html(page.title): path} for path, page in found.items()]


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
