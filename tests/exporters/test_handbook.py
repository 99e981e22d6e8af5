"""The handbook is one file that holds all it needs."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fontTools.ttLib import TTFont

from generator.edition import assets
from generator.edition.edition import Edition, bind
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.exporters import handbook
from tests.exporters.html_tree import Element, read


@pytest.fixture(scope="module")
def text(edition: Edition, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The handbook of the small base."""
    out = tmp_path_factory.mktemp("handbook") / "handbook.html"
    handbook.export(edition, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tree(text: str) -> Element:
    """The same as a tree."""
    return read(text)


def test_every_card_is_in_it_with_all_its_sections(edition: Edition, tree: Element) -> None:
    """An article a card, in reading order, its sections named after it."""
    articles = tree.all("article", class_="pd-card")
    assert [each["data-card"] for each in articles] == list(edition.library.cards)
    for article in articles:
        own = article["data-card"]
        assert article["id"] == f"card-{own}"
        ids = [each["id"] for each in article.all("section", class_="pd-section")]
        assert ids[:2] == [f"{own}--answer", f"{own}--spoken"]
        assert len(ids) == 12


def test_ids_are_unique_and_every_link_leads_to_one(tree: Element) -> None:
    """Cards share the document, so their anchors carry their names."""
    ids = [each["id"] for each in tree.all() if each["id"]]
    assert sorted(set(ids)) == sorted(ids)
    inner = [each["href"] for each in tree.all("a") if each["href"].startswith("#")]
    assert {each.removeprefix("#") for each in inner} <= set(ids)
    assert len(inner) > 60
    assert "#kahan-sum--lost-part" in inner
    assert "#kahan-sum--ev-float_sums-kahan_error" in inner


def test_nothing_is_loaded_from_anywhere(text: str, tree: Element) -> None:
    """No element names a resource but by its content; other links are the reader's to follow."""
    for element in tree.all():
        assert urlsplit(element["src"]).scheme in ("", "data")
        assert not element["src"] or element["src"].startswith("data:")
        if element.tag == "link":
            assert element["href"].startswith("data:")
        if element.tag == "a":
            assert element["href"].startswith(("#", "https://"))
    assert not re.findall(r"url\((?!data:|#)[^)]*\)", "".join(_styles(tree)))
    assert "@import" not in text


def _styles(tree: Element) -> list[str]:
    return [each.text() for each in tree.all("style")]


def test_the_math_font_is_in_it(edition: Edition, tree: Element) -> None:
    """The font is that of the base's formulas, as data."""
    found = re.search(r"url\(data:font/woff2;base64,([^)]+)\)", " ".join(_styles(tree)))
    assert found
    font = TTFont(BytesIO(base64.b64decode(found[1])))
    drawn = {chr(code) for code in font.getBestCmap()}
    formulas = {sign for each in tree.all("math") for sign in each.text()} - {" ", "\n"}
    assert formulas <= drawn | {"\u2061", "\ufe00"}
    assert "MATH" in font
    assert edition.formula_characters >= formulas


@pytest.mark.parametrize("name", ["search", "study"])
def test_the_data_of_search_and_study_survive_in_html(
    edition: Edition, text: str, name: str
) -> None:
    """Text that would end the script around it comes out as it went in."""
    cards = {
        name: replace(card, title={"zh": "</script><!-- 零", "en": "</SCRIPT><script>zero"})
        for name, card in edition.library.cards.items()
    }
    hostile = bind(replace(edition.library, cards=cards))
    data = {"search": search_data, "study": study_data}[name]
    for each, html in ((edition, text), (hostile, handbook.make(hostile))):
        found = read(html).all("script", id=f"pd-{name}-data")
        assert json.loads("".join(map(str, found[0].children))) == data(each)


def test_scripts_and_styles_are_those_of_the_site(tree: Element) -> None:
    """The same files, whole; what the site's theme needs alone stays out."""
    scripts = "".join(each.text() for each in tree.all("script"))
    for path in assets.scripts():
        found = " ".join(assets.script(path).split()) in scripts
        assert found == (path.name not in assets.SITE_ONLY), path.name
    styles = " ".join(_styles(tree))
    for path in assets.styles():
        found = assets.style(path) in styles
        assert found == (path.name not in assets.SITE_ONLY), path.name


def test_both_languages_are_marked(tree: Element) -> None:
    """Every half and every label carries its language."""
    for element in tree.all():
        if "pd-half" in element["class"].split():
            assert element["lang"] == {"zh": "zh-Hans", "en": "en"}[element["data-lang"]]
        if "pd-en" in element["class"].split():
            assert element["lang"] == "en"
        if "pd-zh" in element["class"].split():
            assert element["lang"] == "zh-Hans"


def test_the_contents_name_every_card_and_path(edition: Edition, tree: Element) -> None:
    """The list on top leads to each card by module and by path."""
    contents = tree.all("section", id="contents")[0]
    named = [each["href"] for each in contents.all("a")]
    cards = [f"#card-{name}" for name in edition.library.cards]
    assert named[: len(cards)] == cards
    path = [name for name in edition.library.paths[0].cards if name in edition.library.cards]
    assert named[len(cards) :] == [f"#card-{name}" for name in path]


def test_the_same_base_gives_the_same_bytes(edition: Edition, text: str, tmp_path: Path) -> None:
    """Two exports differ in nothing."""
    handbook.export(edition, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text
