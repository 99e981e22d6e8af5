"""What programs read: each card as Markdown, every claim as JSON, the list for language models, the feed."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from generator.edition.edition import Edition, bind
from generator.edition.website import Website, website
from generator.exporters import claims

BASE = Path(__file__).parents[1] / "library"
SITE = "https://cards.example/deck/"
ATOM = {"atom": "http://www.w3.org/2005/Atom"}


@pytest.fixture(scope="module")
def made(edition: Edition) -> Website:
    """The site that knows its address."""
    return website(edition, SITE)


def text(made: Website, address: str) -> str:
    """A file of the site for programs."""
    return {**made.files, **made.texts}[address].decode()


def links(markdown: str) -> list[tuple[str, str]]:
    """Address and title of each link and image, as another reader of Markdown finds them."""
    tokens = MarkdownIt().enable("table").parse(markdown)
    return [
        (
            str(each.attrs.get("href") or each.attrs.get("src")),
            str(each.attrs.get("title") or each.content),
        )
        for token in tokens
        for each in token.children or ()
        if each.type in ("link_open", "image")
    ]


# --- claims --------------------------------------------------------------------------------------


def test_each_claim_is_there_with_what_its_record_says(edition: Edition, tmp_path: Path) -> None:
    """Counted in the cards' files, and held against the records' files, both read by other means."""
    claims.export(edition, tmp_path / "claims.json")
    data = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert (data["format"], data["version"], data["site"]) == ("proofdeck-claims", 1, "")
    written = "".join(file.read_text("utf-8") for file in (BASE / "cards").rglob("*.md"))
    uses = re.findall(r"\]\((?:claim|wrong):(\w+)/(\w+)", written)
    assert sorted((each["demo"], each["metric"]) for each in data["claims"]) == sorted(uses)
    for each in data["claims"]:
        file = BASE / "runnable_demos" / "evidence" / f"{each['demo']}.{each['device']}.json"
        record = json.loads(file.read_text(encoding="utf-8"))
        (metric,) = [m for m in record["result"]["metrics"] if m["name"] == each["metric"]]
        for field in ("value", "unit", "kind"):
            assert each[field] == metric[field], each
        assert each["recorded"] == record["recorded"]
        assert each["label"]["en"] == metric["label"]["en"]


def test_each_claim_leads_to_a_row_of_its_card(made: Website) -> None:
    """The address of the evidence is a page of the site, and a place on it."""
    data = json.loads(made.files["claims.json"])
    bodies = {page.address: page.body for page in made.pages.values()}
    assert len(data["claims"]) > 10
    for each in data["claims"]:
        address, _, anchor = each["evidence"].removeprefix(SITE).partition("#")
        assert address == f"cards/{each['card']}/"
        assert f'id="{anchor}"' in bodies[address]


# --- cards as Markdown ---------------------------------------------------------------------------


def test_every_card_is_markdown_at_its_address(edition: Edition, made: Website) -> None:
    """With its title, both languages, and where it stands as a page."""
    for card in edition.library.cards.values():
        shown = text(made, f"cards/{card.id}.md")
        assert shown.startswith("# ")
        assert f"<{SITE}cards/{card.id}/>" in shown
        headings = [token.content for token in MarkdownIt().parse(shown) if token.type == "inline"]
        assert {"中文", "English"} <= set(headings)


def test_every_link_of_a_cards_markdown_leads_somewhere(made: Website) -> None:
    """Addresses are whole, and those of the site are there, images among them."""
    pages = {page.address: page.body for page in made.pages.values()}
    images = 0
    for name, content in made.texts.items():
        for address, _ in links(content.decode()) if name != "llms.txt" else ():
            assert urlsplit(address).scheme in ("http", "https"), (name, address)
            place, _, anchor = address.removeprefix(SITE).partition("#")
            images += place in made.files
            if address.startswith(SITE) and place not in made.files:
                assert not anchor or f'id="{anchor}"' in pages[place], (name, address)
    assert images > 1


def test_a_number_in_markdown_says_how_it_is_proven(edition: Edition, made: Website) -> None:
    """The title of its link has state, value, device and date; what is called wrong is struck through."""
    titles = dict(links(text(made, "cards/rounding.md")))
    assert "proven: " in titles[f"{SITE}cards/rounding/#ev-float_sums-significant_bits"]
    record = edition.library.evidence.records["float_sums", "cpu"]
    assert (
        f"(cpu, {record.recorded})"
        in titles[f"{SITE}cards/rounding/#ev-float_sums-significant_bits"]
    )
    assert re.search(r"~~\[4 B\]\(<[^>]+float-bytes/#ev-", text(made, "cards/float-bytes.md"))


def test_a_figure_in_markdown_is_an_image_with_words(made: Website) -> None:
    """Its alternative is what the drawing says of itself."""
    shown = text(made, "cards/rounding.md")
    found = re.search(r"!\[([^\]]+)\]\((\S+float_sums-cpu-error-en\.svg)\)", shown)
    assert found
    assert len(found[1]) > 10


def test_without_an_address_links_are_relative(edition: Edition) -> None:
    """A site that was not told where it stands leads from its cards' folder to its pages."""
    made = website(edition, "")
    addresses = [address for address, _ in links(text(made, "cards/rounding.md"))]
    assert "../cards/rounding/#ev-float_sums-significant_bits" in addresses
    assert "feed.xml" not in made.files


# --- the list for language models ----------------------------------------------------------------


def test_the_list_for_language_models_has_every_card_once(edition: Edition, made: Website) -> None:
    """In the form of llmstxt.org: a title, a summary, sections of links with a sentence each."""
    shown = text(made, "llms.txt")
    assert re.match(r"# \S+\n\n> \S", shown)
    *_, optional = re.split(r"^## ", shown, flags=re.MULTILINE)
    assert optional.startswith("Optional\n")
    rows = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", shown, re.MULTILINE)
    listed = [address.removeprefix(SITE) for _, address, _ in rows]
    assert [each for each in listed if each.endswith(".md")] == [
        f"cards/{card}.md" for card in edition.library.cards
    ]
    there = {*made.files, *made.texts, *(page.address for page in made.pages.values())}
    assert set(listed) <= there


# --- the feed ------------------------------------------------------------------------------------


def test_the_feed_has_the_cards_that_changed_last_first(edition: Edition) -> None:
    """Each with its address as its identity, the day of its change, and both languages marked."""
    cards = dict(edition.library.cards)
    cards["rounding"] = replace(cards["rounding"], updated=date(2031, 5, 6))
    later = bind(replace(edition.library, cards=cards), edition.demos)
    feed = ET.fromstring(website(later, SITE).files["feed.xml"])
    entries = feed.findall("atom:entry", ATOM)
    ids = [each.findtext("atom:id", namespaces=ATOM) for each in entries]
    assert ids[0] == f"{SITE}cards/rounding/"
    assert len(set(ids)) == len(cards)
    days = [each.findtext("atom:updated", "", ATOM) for each in entries]
    assert days == sorted(days, reverse=True)
    assert days[0] == feed.findtext("atom:updated", namespaces=ATOM) == "2031-05-06T00:00:00Z"
    for each in entries:
        said = each.findall(".//{http://www.w3.org/1999/xhtml}p")
        langs = [p.get("{http://www.w3.org/XML/1998/namespace}lang") for p in said]
        assert {"zh-Hans", "en"} == set(langs)
        assert each.findtext("atom:title", namespaces=ATOM)
