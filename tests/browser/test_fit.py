"""Every card fits a phone, large letters and paper: nothing makes the page wider, nothing is cut off."""

from __future__ import annotations

import re
from unicodedata import normalize

import pytest
from pypdf import PdfReader

from tests.browser.conftest import PHONE, Built, Open, address
from tests.browser.test_quality import AXE

MODES = ("zh", "en", "both")
PAPER = {"width": 688, "height": 1032}
"""A4 between the margins of the print style, in CSS pixels."""

OPENED = """() => {
  window.pd.set("depth", "deep", { keep: false });
  for (const each of document.querySelectorAll("details")) each.open = true;
}"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
OVER = "() => document.documentElement.scrollWidth - innerWidth"
CUT = """() => {
  const found = [];
  const page = document.documentElement.clientWidth;
  for (const each of document.querySelectorAll(".pd-card :not(math *, svg *)")) {
    if (!each.checkVisibility() || !each.getBoundingClientRect().width) continue;
    const formula = each.localName === "math"; // its box may be narrower than what is drawn
    const drawn = [each, ...(formula ? each.children : [])];
    const right = Math.max(...drawn.map((one) => one.getBoundingClientRect().right));
    const inner = !formula && each.clientWidth > 1 && each.scrollWidth - each.clientWidth > 4; // hidden or not
    const half = each.parentElement.closest(".pd-half")?.getBoundingClientRect().right ?? page;
    if (!inner && right <= page + 5 && right <= half + 5) continue;
    found.push(`${each.tagName} ${each.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""
BROKEN_WORDS = """() => {
  const range = new Range();
  const found = [];
  for (const cell of document.querySelectorAll(".pd-half :is(td, th)")) {
    if (!cell.checkVisibility()) continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest("math")) continue;
      for (const { 0: word, index } of node.data.matchAll(/[A-Za-z]{2,}/g)) {
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        const tops = [...range.getClientRects()].filter(({ width }) => width).map(({ top }) => top);
        if (Math.max(...tops) - Math.min(...tops) > 8) found.push(word);
      }
    }
  }
  return found;
}"""


def cards(built: Built) -> list[str]:
    """The addresses of all cards."""
    return sorted(f"cards/{page.parent.name}/" for page in built.site.glob("cards/*/index.html"))


@pytest.mark.timeout(900)
def test_every_card_fits_a_phone(visit: Open, built: Built) -> None:
    """At 320 and 390 pixels, in three modes, all answers open: no page is wider, no word in a table breaks."""
    page = visit(phone=True)
    wrong = []
    for path in cards(built):
        page.goto(address(built, path))
        page.evaluate(OPENED)
        for width in (320, 390):
            page.set_viewport_size({"width": width, "height": 844})
            for mode in MODES:
                page.evaluate("(mode) => window.pd.set('mode', mode)", mode)
                page.evaluate(SETTLED)
                if (over := page.evaluate(OVER)) > 0:
                    wrong.append(f"{path} {width} {mode}: {over}")
                if words := page.evaluate(BROKEN_WORDS):
                    wrong.append(f"{path} {width} {mode}: {words[:3]}")
    assert wrong == []


@pytest.mark.timeout(900)
def test_every_card_prints_whole(visit: Open, built: Built) -> None:
    """On paper, in three modes, no table, formula or code reaches out of its place or is cut off by it."""
    page = visit()
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    wrong = []
    for path in cards(built):
        page.goto(address(built, path))
        page.evaluate(OPENED)
        for mode in MODES:
            page.evaluate("(mode) => window.pd.set('mode', mode)", mode)
            page.evaluate(SETTLED)
            wrong += [f"{path} {mode}: {each}" for each in page.evaluate(CUT)]
    assert wrong == []


def test_what_is_too_wide_for_paper_is_found(visit: Open) -> None:
    """The measure says no to a table that cannot break, to hidden overflow, and to a word broken in a cell."""
    page = visit("cards/memory-budget/", mode="en")
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    page.evaluate(OPENED)
    for style in ("white-space: nowrap", "overflow: hidden; white-space: nowrap; display: block"):
        page.evaluate(
            """(style) => {
              const p = document.createElement("p");
              p.style.cssText = style;
              p.textContent = "a long line ".repeat(40);
              document.querySelector(".pd-half:lang(en)").append(p);
            }""",
            style,
        )
        assert page.evaluate(CUT) != [], style
        page.evaluate("document.querySelector('.pd-half:lang(en) > p:last-child').remove()")
    page.evaluate(
        """() => {
          const cell = document.querySelector(".pd-half:lang(en) td");
          cell.textContent = "checkpoint";
          cell.style.cssText = "display: block; width: 1px; overflow-wrap: anywhere";
        }"""
    )
    assert "checkpoint" in page.evaluate(BROKEN_WORDS)


def test_a_wide_formula_in_a_line_scrolls_in_its_own_box(visit: Open) -> None:
    """No browser breaks it: at 320 pixels a sum in brackets stays within the page, and keys can scroll it."""
    page = visit("cards/adafactor/", phone=True)
    page.set_viewport_size({"width": 320, "height": 700})
    page.evaluate(
        """() => {
          const sum = "<mi>x</mi><mo>+</mo>".repeat(30);
          const holder = document.querySelector(".pd-half p");
          holder.insertAdjacentHTML("beforeend", `<math><mrow><mo>(</mo>${sum}<mo>)</mo></mrow></math>`);
          window.dispatchEvent(new Event("resize"));
        }"""
    )
    page.locator(".pd-wide[tabindex='0']").wait_for()
    assert page.evaluate(OVER) <= 0


def test_a_table_that_does_not_fit_becomes_rows(visit: Open) -> None:
    """On a phone each cell shows its column's head, roles keep the table; with room and on paper it is set as one."""
    page = visit("cards/memory-budget/", phone=True, mode="en")
    page.set_viewport_size({"width": 320, "height": 844})
    table = page.locator(".pd-half:lang(en) table.pd-rows").first
    heads = table.locator("thead th").all_text_contents()
    cells = table.locator("tbody tr").first.locator("td")
    assert cells.locator(".pd-column").all_inner_texts() == [
        each.strip() for each in heads if each.strip()
    ]
    assert len({cells.nth(i).bounding_box()["x"] for i in range(cells.count())}) == 1
    assert table.get_attribute("role") == "table"
    assert table.locator("[role=columnheader]").count() == len(heads)
    page.emulate_media(media="print")
    assert not table.locator(".pd-column").first.is_visible()
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1200, "height": 844})
    page.locator("table.pd-rows:visible").first.wait_for(state="detached")


@pytest.mark.parametrize(
    "path", ["", "cards/adafactor/", "study/", "404.html", "handbook#card-adafactor"]
)
@pytest.mark.parametrize("size", [150, 200])
def test_large_letters_fit_a_phone(visit: Open, path: str, size: int) -> None:
    """With text at 150% and 200% no control leaves the page, in any mode."""
    page = visit(path, phone=True)
    page.add_style_tag(
        content=f"html {{ font-size: {size * (1 if 'handbook' in path else 1.25)}% !important }}"
    )
    for mode in MODES:
        page.evaluate("(mode) => window.pd.set('mode', mode)", mode)
        page.evaluate(SETTLED)
        assert page.evaluate(OVER) <= 0, mode
        for control in page.locator("header button:visible").all():
            box = control.bounding_box()
            assert box
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"] + 1


@pytest.mark.timeout(900)
def test_links_in_text_differ_by_more_than_colour(visit: Open, built: Built) -> None:
    """On every page and card, light and dark, axe finds no link that only a colour tells from its text."""
    page = visit()
    others = [
        *(
            f"{each}/"
            for each in (
                "deep-learning",
                "glossary",
                "about",
                "report",
                "study",
                "graph",
                "paths/first-interview",
            )
        )
    ]
    wrong = []
    for path in ["", *others, *cards(built)]:
        page.goto(address(built, path, "both"))
        page.evaluate(AXE)
        page.evaluate(OPENED)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate(
                """async () => {
                  const only = { type: "rule", values: ["link-in-text-block"] };
                  const { violations } = await axe.run(document, { runOnly: only, resultTypes: ["violations"] });
                  return violations.flatMap(({ nodes }) => nodes.map(({ html }) => html));
                }"""
            )
            wrong += [f"{path} {scheme}: {each}" for each in found]
    assert wrong == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", ["cards/checkpoint-torch/", "handbook"])
def test_every_answer_is_on_paper(visit: Open, tmp_path, path: str) -> None:
    """The words of each follow-up's answer stand in the printed file, of a card and of all cards in one book."""
    page = visit(path, mode="en")
    answers = page.locator('article[data-card] [data-lang="en"] .pd-answer').evaluate_all(
        "(all) => all.map((each) => each.textContent.trim().split(/\\s+/).slice(0, 5).join(' '))"
    )
    assert len(answers) >= 3 * page.locator("article[data-card]").count()
    opened = "document.querySelectorAll('details.pd-followup[open]').length"
    before = page.evaluate(opened)
    page.pdf(path=tmp_path / "printed.pdf", prefer_css_page_size=True)
    assert page.evaluate(opened) == before
    sheets = PdfReader(tmp_path / "printed.pdf").pages
    words = " ".join(sheet.extract_text() for sheet in sheets).split()

    def plain(words: str) -> str:
        """Letters and digits alone: setting changes ligatures, spaces and hyphens, and puts marks behind numbers."""
        return re.sub(r"[\W_]", "", normalize("NFKC", words))

    text = plain(" ".join(words))
    assert [each for each in answers if plain(each) not in text] == []


ON_PAPER = """() => {
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());
  return {
    cards: shown("article[data-card]").map((each) => each.dataset.card),
    lists: shown(".pd-part").map((each) => each.id),
    cover: shown(".pd-cover").length > 0,
  };
}"""


def test_the_handbook_prints_what_its_address_names(visit: Open) -> None:
    """A card alone, a path with its list and in its order, a module, and else the book behind its title page."""
    page = visit("handbook")
    page.emulate_media(media="print")
    book = page.evaluate(ON_PAPER)
    assert book["cover"]
    assert len(book["cards"]) == page.locator("article[data-card]").count()
    assert "path-first-interview" in book["lists"]
    path = page.locator("#path-first-interview a").evaluate_all(
        "(all) => all.map((each) => each.dataset.card)"
    )
    assert path != [each for each in book["cards"] if each in path]  # its order is its own
    cases = (
        ("card-adafactor", ["adafactor"], []),
        ("adafactor--derivation", ["adafactor"], []),
        ("path-first-interview", path, ["path-first-interview"]),
    )
    for name, cards_of_it, lists in cases:
        page.evaluate("(name) => { location.hash = name; }", name)
        page.wait_for_function("document.documentElement.dataset.pdPrint === 'part'")
        page.evaluate(SETTLED)
        assert page.evaluate(ON_PAPER) == {"cards": cards_of_it, "lists": lists, "cover": False}
    page.evaluate("() => { location.hash = 'top'; }")
    page.wait_for_function("document.documentElement.dataset.pdPrint === 'book'")
    assert page.evaluate(ON_PAPER) == book


def test_a_button_prints_a_path(visit: Open) -> None:
    """It makes the path what the address names, and opens the browser's own dialog."""
    page = visit("handbook")
    page.evaluate("() => { window.print = () => { document.title = location.hash; }; }")
    page.locator("#path-first-interview").get_by_role("button").press("Enter")
    assert page.title() == "#path-first-interview"
    page.emulate_media(media="print")
    assert page.evaluate(ON_PAPER)["lists"] == ["path-first-interview"]
