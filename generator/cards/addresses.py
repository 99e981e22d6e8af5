"""The addresses that the site takes for itself; a module's page stands beside them.

Whatever makes a page, a file or an anchor takes its name from here, so that what ids may not be
is known before anything is made.
"""

from __future__ import annotations

from generator.lang import LANGS, SECTION_NAMES, Lang

PAGES = ("graph", "study", "glossary", "report")
"""The pages at the top, beside home and the modules."""
CARDS, PATHS, DEMOS, DOCUMENTS = "cards", "paths", "demos", "docs"
FIGURES, VENDOR = "figures", "vendor"
"""The folders of addresses."""
FORMER_DOCUMENTS = {"proofs": "about/"}
"""Where documents stood before, by their names."""
FILES = (
    "claims.json",
    "feed.xml",
    "llms.txt",
    "search.json",
    "study.json",
    "favicon.svg",
    "social.png",
    "robots.txt",
    "proofdeck.css",
    "proofdeck.js",
    "early.js",
    "palette.js",
    "card.js",
    "documents.css",
    "filter.js",
    "graph.css",
    "graph.js",
    "lost.js",
    "report.js",
    "rows.css",
    "rows.js",
    "search.js",
    "study.css",
    "study.js",
)
THEME = ("index.html", "assets", "404.html", "sitemap.xml", "sitemap.xml.gz")
"""What Material for MkDocs adds."""

TAKEN = frozenset(address.rstrip("/") for address in FORMER_DOCUMENTS.values()) | frozenset(
    name.partition(".")[0]
    for name in (*PAGES, CARDS, PATHS, DEMOS, DOCUMENTS, FIGURES, VENDOR, *FILES, *THEME)
)
"""What no module may be called: a page of the site, or a file of it without its ending."""

EXTRA_ANCHORS = ("evidence", "connections")
CARD_ANCHORS = frozenset({*SECTION_NAMES, *EXTRA_ANCHORS})
"""What no follow-up or pitfall may be called: the parts of a card's page."""
PREFIXES = ("ev-", "fig-", "pd-")
"""How no follow-up or pitfall may begin: rows of evidence, figures, and what scripts look for."""

HOME_NOTE = "Proofdeck"
"""The vault's first note; Obsidian finds notes by name, whatever the case."""

PLANNED = "planned"
"""What no topic may be called: the last part of a module's page."""


def card_text(card: str) -> str:
    """The address of a card's Markdown, from its id alone."""
    return f"{CARDS}/{card}.md"


def term(name: str) -> str:
    """The anchor of a term on the page of the glossary, and in the handbook."""
    return f"term-{name}"


def block(item: str, language: Lang) -> str:
    """An item's block id in a note, which holds all languages: its own in the first, with the code in others."""
    return item if language == LANGS[0] else f"{item}-{language}"
