"""The site as a browser and a search engine find it: whole, bilingual, local, the same each time."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError

from generator.documents import program
from generator.edition import assets
from generator.edition.edition import Edition, bind
from generator.edition.pages import SiteAddresses, article
from generator.edition.website import website
from generator.exporters import site
from generator.lang import OLD_SECTIONS
from tests.exporters.html_tree import Element, read

ROOT = Path(__file__).parents[2]
BASE = Path(__file__).parents[1] / "library"
ADDRESS = "https://cards.example/deck/"
SECTIONS = [
    "answer", "spoken", "intuition", "insights", "example", "derivation", "tradeoffs", "pitfalls",
    "followups", "points",
]  # fmt: skip


@pytest.fixture(scope="module")
def built(edition: Edition, demos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the small base, below a path on a host of its own."""
    out = tmp_path_factory.mktemp("site") / "site"
    os.environ["SITE_URL"] = ADDRESS
    try:
        site.export(edition, out)
    finally:
        del os.environ["SITE_URL"]
    return out


@pytest.fixture(scope="module")
def trees(built: Path) -> dict[str, Element]:
    """Every page by its address from the site's root."""
    return {
        file.relative_to(built).as_posix().removesuffix("index.html"): read(
            file.read_text(encoding="utf-8")
        )
        for file in sorted(built.rglob("*.html"))
    }


@pytest.fixture(scope="module")
def card(trees: dict[str, Element]) -> Element:
    """The article of a card."""
    return trees["cards/kahan-sum/"].all("article", class_="pd-card")[0]


def test_every_kind_of_page_is_there(trees: dict[str, Element]) -> None:
    """Addresses come from ids alone."""
    assert trees.keys() == {
        "",
        "404.html",
        "about/",
        "cards/float-bytes/",
        "cards/kahan-sum/",
        "cards/round-off/",
        "cards/rounding/",
        "demos/float_sums/",
        "docs/",
        *(f"docs/{name}/" for name in program.NAMES),
        "glossary/",
        "graph/",
        "numerics/",
        "paths/",
        "paths/sums-in-an-hour/",
        "report/",
        "study/",
    }


def test_ids_are_unique_on_each_page(trees: dict[str, Element]) -> None:
    """An anchor leads to one place."""
    for address, tree in trees.items():
        ids = [element["id"] for element in tree.all() if element["id"]]
        assert sorted(set(ids)) == sorted(ids), address


def test_every_link_leads_to_a_page_and_a_place_on_it(
    built: Path, trees: dict[str, Element]
) -> None:
    """Relative links, resources and anchors resolve within the site, wherever it stands."""
    ids = {address: {each["id"] for each in tree.all()} for address, tree in trees.items()}
    count = 0
    for address, tree in trees.items():
        if address == "404.html":
            continue  # shown at any depth, so its links are absolute
        for element in tree.all():
            for name in ("href", "src"):
                target = urlsplit(element[name])
                if not element[name] or target.scheme in ("https", "data"):
                    continue
                assert not target.scheme, element[name]
                path = posixpath.normpath(posixpath.join(address, unquote(target.path) or "."))
                file = built / path
                assert file.exists(), (address, element[name])
                if file.is_dir():
                    assert (file / "index.html").is_file(), (address, element[name])
                    page = "" if path == "." else f"{path}/"
                    if target.fragment and not target.path:
                        page = address
                    assert not target.fragment or target.fragment in ids[page] | {"__toc"}
                count += 1
    assert count > 300


def test_nothing_is_loaded_from_another_host(built: Path, trees: dict[str, Element]) -> None:
    """Neither a page nor a style names a resource elsewhere; links for the reader may."""
    for address, tree in trees.items():
        for element in tree.all():
            resource = element["src"] or (element["href"] if element.tag == "link" else "")
            if element["rel"] not in ("canonical", "prev", "next"):
                assert urlsplit(resource).scheme in ("", "data"), (address, resource)
    for file in [*built.rglob("*.css"), *built.rglob("*.html")]:
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"(?:url\(|@import\s+)[\"']?(?:https?:)?//", text), file
    assert not list(built.rglob("*.map.html"))


def test_both_languages_of_a_card_are_marked_and_paired(card: Element) -> None:
    """Each section holds a half a language, in the same order, with its ``lang``."""
    sections = card.all("section", class_="pd-section")
    names = [section["data-section"] for section in sections]
    assert names == [*SECTIONS, "evidence", "connections"]
    assert [section["id"] for section in sections] == names
    for section in sections[:6]:
        halves = [
            (each["lang"], each["data-lang"])
            for each in section.children
            if isinstance(each, Element) and each["class"] == "pd-half"
        ]
        assert halves == [("zh-Hans", "zh"), ("en", "en")]


def test_every_word_is_in_its_language(trees: dict[str, Element]) -> None:
    """No 汉字 stand where a screen reader speaks English; names and code aside."""
    for address, tree in trees.items():
        for element in tree.all():
            if element.language() == "en" and element.tag not in (
                "pre",
                "code",
                "script",
                "option",
            ):
                own = "".join(each for each in element.children if isinstance(each, str))
                assert not re.search(r"[\u4e00-\u9fff]", own), (address, own)


def test_pitfalls_and_follow_ups_have_one_place_for_both_languages(card: Element) -> None:
    """The anchor of an item stands around its halves, so that it works in each mode."""
    items = card.all("div", class_="pd-item")
    assert [(item["id"], item["data-item"]) for item in items] == [
        (name, f"kahan-sum#{name}")
        for name in (
            "sorting", "twice-the-memory", "printing", "lost-part", "cancellation", "pairwise",
            "optimised-away", "low-digits", "loop", "reassociation", "sorted-is-exact",
        )
    ]  # fmt: skip
    for item in items:
        assert [half["lang"] for half in item.all("div", class_="pd-half")] == ["zh-Hans", "en"]
    answers = card.all("details", class_="pd-followup")
    assert len(answers) == 8
    assert all("open" in each.attributes for each in answers)


def test_the_question_stands_first_and_says_how_often_it_is_asked(card: Element) -> None:
    """Right below the title, in both languages; the frequency of the card stands among what is said of it."""
    head = card.all("header", class_="pd-head")[0]
    shown = [
        each for each in head.all() if each["class"].startswith(("pd-title", "pd-ask", "pd-meta"))
    ]
    assert [each["class"] for each in shown[:3]] == ["pd-title", "pd-ask-first", "pd-meta"]
    assert [each.text() for each in shown[1].all("span")] == [
        "一百万个浮点数求和，结果不准，怎么不换类型就修好它？",
        "A sum of a million floats comes out wrong. How do you repair it without a wider type?",
    ]
    [rarely] = shown[2].all("span", class_="pd-frequency")
    assert [each.text() for each in rarely.all("span")] == ["少问", "asked rarely"]
    asked = [each.all("span", class_="pd-frequency") for each in card.all("summary")][:8]
    assert [each.text() for [each] in asked] == [
        "常问", "asked often", *["有时问", "asked sometimes"] * 3,
    ]  # fmt: skip


def test_each_section_of_format_2_has_its_depth(card: Element) -> None:
    """Thirty seconds, two minutes, all: as the section names are, in one table."""
    depths = {each["data-section"]: each["data-depth"] for each in card.all("section")}
    assert depths == {
        **dict.fromkeys(("answer", "spoken", "intuition"), "answer"),
        **dict.fromkeys(("insights", "example"), "brief"),
        **dict.fromkeys(("derivation", "tradeoffs", "pitfalls", "followups", "points"), "deep"),
        **dict.fromkeys(("evidence", "connections"), "deep"),
    }


def test_each_section_of_format_1_has_its_depth(edition: Edition) -> None:
    """What can be read in two minutes are answer, insights and trade-offs."""
    card = edition.library.cards["kahan-sum"]
    old = {
        lang: {name: half[name] for name in OLD_SECTIONS} for lang, half in card.sections.items()
    }
    body = article(edition, replace(card, question=None, sections=old), SiteAddresses("cards/x/"))
    depths = dict(re.findall(r'data-section="(\w+)" data-depth="(\w+)"', body))
    assert [name for name, depth in depths.items() if depth != "deep"] == [
        "answer", "insights", "tradeoffs",
    ]  # fmt: skip
    assert depths["answer"] == "answer"


def test_the_picture_is_met_before_the_words_about_it(edition: Edition) -> None:
    """The intuition begins with its figure, whatever stands first in the file; other sections keep their order."""
    card = edition.library.cards["rounding"]
    sections = {
        lang: {**half, "intuition": replace(half["derivation"], name="intuition")}
        for lang, half in card.sections.items()
    }
    fresh = bind(edition.library)
    page = read(article(fresh, replace(card, sections=sections), SiteAddresses("cards/x/")))
    for name, place in (("intuition", 1), ("derivation", -1)):
        [section] = [each for each in page.all("section") if each["data-section"] == name]
        for half in section.all("div", class_="pd-half"):
            shown = [each.tag for each in half.children if isinstance(each, Element)]
            assert len(shown) > 2
            assert shown[place] == "figure"


def test_pitfalls_stand_below_where_they_are_met(card: Element) -> None:
    """Each heading once, in both languages, before its own pitfalls."""
    [section] = [each for each in card.all("section") if each["data-section"] == "pitfalls"]
    shown = [
        "".join(each.text() for each in part.all("span")) or part["id"]
        for part in section.all()
        if part["class"] in ("pd-group", "pd-item")
    ]
    assert [each[:4] for each in shown] == ["会说错的", "sort", "twic", "会写错的", "prin"]
    assert "Said in interviews" in shown[0]


def test_what_an_interviewer_listens_for_is_folded_and_named(card: Element) -> None:
    """Closed at first; each point says its level in words, in its own language, and which question probes it."""
    [points] = card.all("details", class_="pd-points")
    assert "open" not in points.attributes
    items = points.all("div", class_="pd-item")
    said = [[each.text() for each in item.all("strong")] for item in items]
    assert said == [
        ["及格", "Pass"], ["良好", "Strong"], ["出色", "Outstanding"], ["一票否决", "Red flag"],
    ]  # fmt: skip
    asks = [[each["href"] for each in item.all("a", class_="pd-asks")] for item in items]
    assert asks == [["#lost-part", "#lost-part"], [], [], []]


def test_every_claim_leads_to_its_row_of_the_evidence(edition: Edition, card: Element) -> None:
    """A claim's link names a row with number and label; above its group stand method and kind, once."""
    groups = {row["id"]: body for body in card.all("tbody") for row in body.all("tr")}
    numbers = card.all("a", class_="pd-claim")
    claims = [each for each in numbers if each["data-verdict"] != "setting"]
    assert len(claims) == len(list(edition.library.cards["kahan-sum"].claims())) > 3
    assert {claim["data-verdict"] for claim in claims} == {"proven", "bounded"}
    for claim in claims:
        group = groups[claim["href"].removeprefix("#")]
        assert group["data-kind"] in ("exact", "bounded")
        assert {len(row.all("td")) for row in group.all("tr")[1:]} == {2}
    bounded = groups["ev-float_sums-kahan_error"]
    assert bounded.all("td")[0].text() == "5.55×10⁻¹⁷ ≤ 3×10⁻¹⁶"
    assert bounded.all("th")[0].text().startswith("有界 bounded 与有理数运算比较")
    methods = [each.text() for each in card.all("th", class_="pd-how")]
    assert len(methods) == len(set(methods)) > 3


def test_the_evidence_names_device_versions_date_and_command(
    edition: Edition, card: Element
) -> None:
    """All that it takes to repeat the run stands beside the numbers."""
    record = edition.library.evidence.records["float_sums", "cpu"]
    panel = card.all("details", class_="pd-demo")[0]
    facts = panel.all("dl", class_="pd-run")[0].text()
    assert "CPU" in facts
    assert record.environment["torch"] in facts
    assert record.environment["python"] in facts
    assert record.recorded in facts
    assert panel.all("code")[0].text() == "proofdeck demo run float_sums"


def test_evidence_shows_the_figures_that_the_text_does_not_place(edition: Edition) -> None:
    """All of a run on a card of format 1; on one of format 2, whose text places what teaches, no others."""
    card = edition.library.cards["kahan-sum"]
    drawn = edition.library.evidence.records["float_sums", "cpu"].result.figures
    assert drawn
    for shown, converted in ((drawn, False), ((), True)):
        old = card if converted else replace(card, question=None)
        [panel] = edition.panels(old)
        assert panel.figures == shown


def test_a_figure_in_the_text_stands_once(trees: dict[str, Element]) -> None:
    """One drawing a language, in its half, over its caption; the evidence has its data and leads there."""
    page = trees["cards/rounding/"]
    figures = page.all("figure", class_="pd-figure")
    assert [each["id"] for each in figures] == [
        f"fig-float_sums-error-{lang}" for lang in ("zh", "en")
    ]
    for figure, half in zip(figures, ("zh-Hans", "en"), strict=True):
        images = [posixpath.basename(each["src"]) for each in figure.all("img")]
        lang = half.partition("-")[0]
        assert images == [f"float_sums-cpu-error-{lang}{room}.svg" for room in ("", "-narrow")]
        assert figure.all("figcaption")[0].all("a")[0]["data-verdict"] == "proven"
    placed = page.all("details", class_="pd-demo")[0].all("div", class_="pd-placed")[0]
    assert [a["href"] for a in placed.all("a")] == [f"#{each['id']}" for each in figures]
    assert len(placed.all("tbody")[0].all("tr")) > 3


def test_what_is_refuted_stands_beside_what_was_measured(trees: dict[str, Element]) -> None:
    """The number that is said is struck through; the measured one leads to its row."""
    said = trees["cards/float-bytes/"].all("table", class_="pd-said")[0].all("tbody")[0].all("tr")
    assert [[cell.text() for cell in row.all("td")] for row in said] == [
        ["4 B", "8 B", "每个数的字节 bytes a number"]
    ]
    assert said[0].all("s")
    assert said[0].all("a")[0]["href"] == "#ev-float_sums-bytes_per_number"


def test_a_card_shows_what_comes_before_it_and_after(trees: dict[str, Element]) -> None:
    """Below its text prerequisites and what they unlock, then the next card of each path."""
    rounding = trees["cards/rounding/"]
    foot = rounding.all("footer", class_="pd-foot")[0]
    chips = [each["data-card"] for each in foot.all("a", class_="pd-chip")]
    assert chips == ["float-bytes", "kahan-sum"]
    ways = rounding.all("nav", class_="pd-ways")[0].all("div", class_="pd-way")
    assert [each["data-way"] for each in ways] == ["", "sums-in-an-hour"]
    for way in ways:
        assert not way.all("a", rel="prev")
        assert [each["href"] for each in way.all("a", rel="next")] == ["../../cards/float-bytes/"]


def test_the_cards_of_a_module_stand_in_one_file(built: Path, edition: Edition) -> None:
    """By topic in reading order, for scripts to list beside each card; a module without cards has none."""
    found = json.loads((built / "numerics" / "cards.json").read_text(encoding="utf-8"))
    assert found["title"] == {"zh": "数值计算", "en": "Numerics"}
    cards = {topic["title"]["en"]: [c["id"] for c in topic["cards"]] for topic in found["topics"]}
    assert cards == {
        "Floating-point numbers": ["rounding", "float-bytes"],
        "Sums": ["kahan-sum"],
    }
    assert not (built / "storage").exists()


def test_a_report_of_an_error_names_the_card(card: Element) -> None:
    """The button copies a form in which the card's id, file and date are filled in."""
    button = card.all("p", class_="pd-report")[0].all("button")[0]
    first = button["data-pd-copy"].splitlines()[0]
    assert first == "card: kahan-sum (numerics/kahan-sum.md, 2026-11-29)"


def test_a_report_can_go_to_an_address_of_its_own(edition: Edition) -> None:
    """``report_url`` of ``mkdocs.yml`` takes the card's id and file."""
    made = website(edition, ADDRESS, "https://host/new?title={card}&file={path}")
    body = made.pages["cards/kahan-sum/index.md"].body
    assert "https://host/new?title=kahan-sum&amp;file=numerics/kahan-sum.md" in body


def test_a_report_goes_to_no_script(checkout: Path) -> None:
    """An address that a browser would run is refused before a page is made."""
    settings = checkout / "mkdocs.yml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('report_url: ""', 'report_url: "javascript:x"'), "utf-8")
    config = load_config(str(settings), site_dir=str(checkout / "out"))
    with pytest.raises(PluginError, match="report_url"):
        config.plugins.on_config(config)


def test_the_site_s_own_address_is_text(
    edition: Edition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ``SITE_URL`` may hold, it ends no attribute, no element of the sitemap and no line."""
    monkeypatch.setenv("SITE_URL", "https://x.example/a&lt;&quot;(window.pwn=1)//&b/")
    site.export(edition, tmp_path)
    for file in tmp_path.rglob("*.html"):
        scripts = read(file.read_text(encoding="utf-8")).all("script")
        for script in scripts:  # data of the theme, which is JSON, and nothing that runs
            if "pwn" in script.text():
                assert script["type"] == "application/json"
                assert json.loads(script.text())
    head = read((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert "a&lt;&quot;(" in head.all("link", rel="canonical")[0]["href"]
    assert (
        ET.parse(tmp_path / "sitemap.xml")
        .getroot()[0][0]
        .text.startswith("https://x.example/a&lt;&quot;")
    )  # type: ignore[union-attr]
    robots = website(edition, "https://x.example/\nDisallow: /\n").files["robots.txt"].decode()
    assert robots.splitlines()[2:] == ["Sitemap: https://x.example/%0ADisallow:%20/%0Asitemap.xml"]


def test_the_contents_list_is_bilingual_and_leads_to_the_sections(
    trees: dict[str, Element],
) -> None:
    """MkDocs sees no headings in finished HTML, so the list is given to it."""
    contents = trees["cards/kahan-sum/"].all("nav", class_="md-nav--secondary")[0]
    links = contents.all("a")
    assert [link["href"] for link in links] == [
        f"#{name}" for name in (*SECTIONS, "evidence", "connections")
    ]
    for link in links:
        assert [each["lang"] for each in link.all("span") if each["lang"]] == ["zh-Hans", "en"]


def test_titles_and_descriptions_are_in_both_languages(
    edition: Edition, trees: dict[str, Element]
) -> None:
    """What a search engine or another site shows of a card."""
    head = trees["cards/kahan-sum/"].all("head")[0]
    assert head.all("title")[0].text() == "补偿求和 · Compensated summation · Proofdeck"
    meta = {each["name"] or each["property"]: each["content"] for each in head.all("meta")}
    assert meta["description"] == meta["og:description"]
    assert "记下每次加法丢掉的低位" in meta["description"]
    assert "Keep the low digits" in meta["description"]
    assert "$" not in meta["description"]
    assert meta["og:title"] == "补偿求和 · Compensated summation"
    assert meta["og:url"] == f"{ADDRESS}cards/kahan-sum/"
    assert meta["og:image"] == f"{ADDRESS}social.png"
    assert [each["href"] for each in head.all("link", rel="canonical")] == [
        f"{ADDRESS}cards/kahan-sum/"
    ]


def test_the_sitemap_names_every_page_and_when_its_card_changed(
    built: Path, trees: dict[str, Element]
) -> None:
    """Pages and the days of ``updated``; redirects and the error page are not among them."""
    space = {"": "http://www.sitemaps.org/schemas/sitemap/0.9"}
    urls = ET.parse(built / "sitemap.xml").getroot().findall("url", space)
    found = {
        url.findtext("loc", "", space).removeprefix(ADDRESS): url.findtext("lastmod", "", space)
        for url in urls
    }
    assert found.keys() == trees.keys() - {"404.html", "about/", "cards/round-off/"}
    assert found["cards/rounding/"] == "2026-11-28"
    assert found[""] == "2026-11-29"
    robots = (built / "robots.txt").read_text(encoding="utf-8")
    assert robots == f"User-agent: *\nAllow: /\nSitemap: {ADDRESS}sitemap.xml\n"


def test_a_former_address_leads_to_the_card(trees: dict[str, Element]) -> None:
    """A page stands where the card was, and sends readers on with scripts or without."""
    page = trees["cards/round-off/"]
    refresh = [each["content"] for each in page.all("meta") if each["http-equiv"] == "refresh"]
    assert refresh == ["1; url=../../cards/rounding/"]
    assert "location.hash" in page.all("script")[0].text()


def test_the_social_card_has_the_size_that_sites_expect(built: Path) -> None:
    """A PNG of 1200 × 630 pixels."""
    data = (built / "social.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1200, 630)


def test_the_home_page_counts_what_there_is(edition: Edition, trees: dict[str, Element]) -> None:
    """Cards, numbers by what became of them, demos, works cited; where to begin; each module, if only by name."""
    home = trees[""].all("div", class_="pd-home")[0]
    counts = home.all("ul", class_="pd-tally")[0]
    numbers = [each.text().split()[0] for each in counts.all("li")]
    cards = edition.library.cards.values()
    claims = {(k.metric, k.refuted) for c in cards for k in c.claims()}
    refuted = {metric for metric, wrong in claims if wrong}
    bounded = {"kahan_error"}
    proven = {metric for metric, wrong in claims if not wrong} - bounded
    works = {s.url for c in cards for s in c.sources.values()}
    works |= {
        "https://example.org/toy-gpu.pdf",
        "https://example.org/toy-gpu",
        "https://example.org/toy-model",
    }
    assert [each["data-state"] for each in counts.all("li")[1:-2]] == [
        "proven",
        "bounded",
        "refuted",
    ]
    states = [str(len(each)) for each in (proven, bounded, refuted)]
    assert numbers == ["3", *states, "1", str(len(works))]
    assert [each["href"] for each in home.all("a", class_="pd-tile")] == [
        "paths/sums-in-an-hour/",
        "numerics/",
    ]
    assert home.all("p", class_="pd-to-come")[0].text() == "以后还有： Still to come: 存储 Storage"
    newest = home.all("ul", class_="pd-list")[0]
    assert [each.text() for each in newest.all("time")] == [
        "2026-11-29",
        "2026-11-28",
        "2026-11-27",
    ]


def test_a_module_page_lists_questions_and_answers(trees: dict[str, Element]) -> None:
    """A card each, in reading order: its question leads there, its answer stands below, its level can be filtered."""
    rows = trees["numerics/"].all("ul", class_="pd-questions")
    cards = [row for each in rows for row in each.all("li")]
    assert [row["data-card"] for row in cards] == ["rounding", "float-bytes", "kahan-sum"]
    last = cards[2]
    assert (last["data-difficulty"], last["data-frequency"]) == ("medium", "rarely")
    [link] = last.all("a")
    assert link["href"] == "../cards/kahan-sum/"
    assert link.all("span")[1].text() == (
        "A sum of a million floats comes out wrong. How do you repair it without a wider type?"
    )
    zh, en = last.all("p")
    assert zh.text().startswith("记下每次加法丢掉的低位 c")
    assert en.text().startswith("Keep the low digits c")


def test_the_demo_s_source_can_be_read(demos: Path, trees: dict[str, Element]) -> None:
    """The page of a demo carries the file as it is, but for the names of parts that its lesson shows."""
    shown = trees["demos/float_sums/"].all("pre")[-1]

    def raw(element: Element) -> str:
        return "".join(each if isinstance(each, str) else raw(each) for each in element.children)

    source = (demos / "float_sums.py").read_text(encoding="utf-8").splitlines()
    assert raw(shown).strip().splitlines() == [line for line in source if "--8<--" not in line]


def test_the_pages_of_search_and_study_have_their_data(built: Path) -> None:
    """The data stand in the root, where the scripts look for them."""
    for name in ("search", "study"):
        assert json.loads((built / f"{name}.json").read_text(encoding="utf-8"))["modules"]
    for name in ("minisearch.js", "ts-fsrs.js", "stix-two-math.woff2"):
        assert (built / "vendor" / name).stat().st_size > 5_000


def test_the_same_base_gives_the_same_bytes_whatever_the_day(
    edition: Edition, demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two builds on different days differ in nothing."""
    trees = []
    for name, epoch in (("one", "1000000000"), ("two", "2000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        site.export(edition, tmp_path / name)
        files = sorted(file for file in (tmp_path / name).rglob("*") if file.is_file())
        trees.append({f.relative_to(tmp_path / name).as_posix(): f.read_bytes() for f in files})
    assert trees[0] == trees[1]


def test_a_page_does_not_grow_with_the_number_of_cards(edition: Edition) -> None:
    """A card's page in a base of a hundred cards has the bytes that it has in a base of three."""
    library = edition.library
    like = library.cards["float-bytes"]
    more = {f"other-{i}": replace(like, id=f"other-{i}", prerequisites=()) for i in range(97)}
    larger = bind(replace(library, cards={**library.cards, **more}))
    pages = [website(each, ADDRESS).pages["cards/rounding/index.md"] for each in (edition, larger)]
    assert pages[0] == pages[1]
    assert pages[0].body == pages[1].body
    navigation = [
        [path for path, page in website(each, ADDRESS).pages.items() if page.in_navigation]
        for each in (edition, larger)
    ]
    assert navigation[0] == navigation[1]


# --- MkDocs by itself ----------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the small base: its own cards and demos, our ``mkdocs.yml`` and overrides."""
    shutil.copytree(BASE / "cards", tmp_path / "cards")
    shutil.copytree(BASE / "runnable_demos", tmp_path / "runnable_demos")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for name in ("site_overrides", "generator", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def mkdocs(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run MkDocs as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *arguments],
        cwd=folder,
        env={**os.environ, "SITE_URL": ADDRESS, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_mkdocs_build_gives_the_same_pages(built: Path, checkout: Path) -> None:
    """``mkdocs build`` in a checkout writes what ``proofdeck build`` writes."""
    done = mkdocs(checkout, "build", "--strict", "--site-dir", "out")
    assert done.returncode == 0, done.stderr
    for file in sorted(built.rglob("*.html")):
        twin = checkout / "out" / file.relative_to(built)
        assert file.read_text(encoding="utf-8") == twin.read_text(encoding="utf-8"), file


def test_mkdocs_build_names_the_problems_of_a_card(checkout: Path) -> None:
    """A contradicted number ends the build with its place, its code and its mend."""
    card = checkout / "cards" / "numerics" / "kahan-sum.md"
    text = card.read_text(encoding="utf-8")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "[4×]" in row)
    card.write_text(text.replace("[4×]", "[5×]"), encoding="utf-8")
    done = mkdocs(checkout, "build", "--site-dir", "out")
    assert done.returncode == 1
    assert f"cards/numerics/kahan-sum.md:{line}:" in done.stderr
    assert "claim-number" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_mkdocs_says_what_set_up_has_not_fetched(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without fonts and libraries there is a sentence that names the command which fetches them."""
    monkeypatch.setattr(assets, "_VENDOR", checkout / "none")
    config = load_config(str(checkout / "mkdocs.yml"), site_dir=str(checkout / "out"))
    with pytest.raises(PluginError, match="make build"):
        config.plugins.on_config(config)


@pytest.fixture
def served(checkout: Path) -> Iterator[str]:
    """The address at which ``mkdocs serve`` answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (checkout / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"],
        cwd=checkout,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        stdout=log,
        stderr=log,
    )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(10)
        log.close()


def fetched(address: str, wanted: str, seconds: float = 60) -> str:
    """The page at ``address``, as soon as it holds ``wanted``."""
    end = time.monotonic() + seconds
    page = ""
    while time.monotonic() < end:
        try:
            page = urllib.request.urlopen(address, timeout=10).read().decode()
        except OSError:
            page = ""
        if wanted in page:
            return page
        time.sleep(0.2)
    raise AssertionError(f"{wanted!r} did not appear at {address}: {page[:300]}")


def test_mkdocs_serve_shows_an_edit_and_stale_numbers_as_stale(checkout: Path, served: str) -> None:
    """A saved card appears, with its contents list; a changed demo turns its numbers stale."""
    address = f"{served}cards/kahan-sum/"
    page = fetched(address, "Keep the low digits")
    assert '<a href="#followups" class="md-nav__link">' in page
    card = checkout / "cards" / "numerics" / "kahan-sum.md"
    card.write_text(
        card.read_text(encoding="utf-8").replace("Keep the low digits", "Hold the low digits"),
        encoding="utf-8",
    )
    page = fetched(address, "Hold the low digits")
    assert '<a href="#followups" class="md-nav__link">' in page
    assert 'data-verdict="proven"' in page
    demo = checkout / "runnable_demos" / "float_sums.py"
    demo.write_text(demo.read_text(encoding="utf-8") + "\nchanged = True\n", encoding="utf-8")
    assert 'data-verdict="proven"' not in fetched(address, 'data-verdict="stale"')
