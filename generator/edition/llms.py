"""``llms.txt`` (llmstxt.org): what the site holds, with the address of each card's Markdown, for language models."""

from __future__ import annotations

from collections.abc import Iterator

from generator import words
from generator.cards.addresses import card_text
from generator.edition.edition import Edition
from generator.edition.pages import ABOUT, answer
from generator.lang import LANGS, on_one_line
from generator.render.obsidian import escaped


def llms(edition: Edition, site: str) -> str:
    """The file; ``site`` is where the site will stand, without which its addresses begin at the file."""
    return "\n\n".join(_parts(edition, site)) + "\n"


def _parts(edition: Edition, site: str) -> Iterator[str]:
    yield "# Proofdeck"
    yield f"> {escaped(on_one_line(ABOUT))}"
    yield from (escaped(words.phrase("programs.proof")[lang]) for lang in LANGS)
    for module in edition.library.modules.values():
        if cards := edition.cards_of(module):
            yield f"## {escaped(on_one_line(module.title))}"
            yield "\n".join(
                f"- [{escaped(on_one_line(card.title))}]({site}{card_text(card.id)}): "
                + " ".join(escaped(answer(card, lang)) for lang in LANGS)
                for card in cards
            )
    yield "## Optional"
    more = {
        "claims.json": words.phrase("programs.claims"),
        "graph/": words.phrase("programs.graph"),
    }
    if edition.terms:
        more["glossary/"] = words.phrase("programs.glossary")
    yield "\n".join(
        f"- [{file}]({site}{file}): {escaped(on_one_line(said))}" for file, said in more.items()
    )
