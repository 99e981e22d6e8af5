"""The texts of a base as pages of plain Markdown, for MkDocs with Material alone.

Like our site it has a page a card, both languages on it, and a navigation of modules with a page each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CONFIG: Mapping[str, Any] = {
    "site_name": "Comparable pages",
    "theme": {"name": "material", "font": False},
    "plugins": ["search"],
    "markdown_extensions": [
        "tables",
        "pymdownx.highlight",
        "pymdownx.superfences",
        {"pymdownx.arithmatex": {"generic": True}},
    ],
}
_CARD = re.compile(r"---\n(?P<front>.*?)\n---\n(?P<body>.*)", re.DOTALL)
_OUR_LINK = re.compile(
    r"\[(?P<text>[^\]]*)\]\((?P<scheme>claim|wrong|given|source|card):(?P<target>[^)\s#]*)"
    r'(?:#[\w-]+)?(?: "(?P<title>[^"]*)")?\)'
)


def write(folder: Path, cards: Path) -> Path:
    """The MkDocs project of the base in ``cards``; its configuration file."""
    docs, files = folder / "docs", sorted(cards.glob("*/*.md"))
    modules: dict[str, list[str]] = {file.parent.name: [] for file in files}
    written = {file.stem: f"../{file.parent.name}/{file.name}" for file in files}
    for file in files:
        found = _CARD.fullmatch(file.read_text("utf-8"))
        assert found is not None, f"{file} is a card"
        front = yaml.safe_load(found["front"])
        title = " · ".join(front["title"].values())
        works = {name: work["url"] for name, work in front.get("sources", {}).items()}
        body = _OUR_LINK.sub(lambda link, to=written | works: _plain(link, to), found["body"])
        _write(docs / file.parent.name / file.name, f"# {title}\n{body}")
        modules[file.parent.name].append(f"- [{title}]({file.name})\n")
    for module, entries in modules.items():
        _write(docs / module / "index.md", f"# {module}\n\n{''.join(entries)}")
    _write(docs / "index.md", "# Cards\n")
    nav = ["index.md", *({module: f"{module}/index.md"} for module in modules)]
    config = folder / "mkdocs.yml"
    config.write_text(yaml.safe_dump({**CONFIG, "nav": nav, "not_in_nav": "*"}), "utf-8")
    return config


def _plain(link: re.Match[str], to: Mapping[str, str]) -> str:
    """A link to a page or to a work; else its text, which is all that a plain page has of a claim."""
    address = to.get(link["target"]) if link["scheme"] in ("card", "source") else None
    title = f' "{link["title"]}"' if link["title"] else ""
    return f"[{link['text']}]({address}{title})" if address else link["text"]


def _write(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")
