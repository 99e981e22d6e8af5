"""Addresses that are mistyped, too long or made up: pages say so, and show the way on."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Built, Open, address
from tests.browser.test_search import search

CARD = "cards/activation-checkpointing/"


# --- parameters ----------------------------------------------------------------------------------


def test_a_title_found_leads_to_a_plain_address(visit: Open) -> None:
    """A title is of no language: its address names none, and one's own mode stays."""
    page = visit(CARD, mode="zh")
    search(page, "bf16")
    links = page.locator(".pd-hit").evaluate_all("(all) => all.map((each) => each.href)")
    assert links
    assert not [
        link for link in links if "undefined" in link or "in=&" in link or link.endswith("in=")
    ]
    page.locator(".pd-hit-card").first.click()
    page.wait_for_url("**/cards/**")
    page.wait_for_function("CSS.highlights.get('pd-search')?.size >= 0")
    assert page.locator("html").get_attribute("data-pd-mode") == "zh"


@pytest.mark.parametrize(
    "query",
    ["in=undefined&q=a", "in=xx&q=a", "in=both&q=a", "in=&q=", "in=constructor&q=%00", "lang=undefined",
     "lang=__proto__", "q=%E0%A4%A", "q=" + "x" * 3000, "card=nope", "lang=&in=&q=&card="],
)  # fmt: skip
@pytest.mark.parametrize("path", [CARD, "report/", "study/", ""])
def test_unknown_values_are_ignored(visit: Open, built: Built, path: str, query: str) -> None:
    """Whatever an address asks for, the page is the reader's own, and reports no error."""
    page = visit(path, mode=None)
    page.goto(f"{built.url}{path}?{query}")
    page.wait_for_load_state("networkidle")
    assert page.locator("html").get_attribute("data-pd-mode") == "zh"


@pytest.mark.parametrize("name", ["%E0%A4%A", "%", "'\"><b>", "a b", "constructor", "x" * 3000])
@pytest.mark.parametrize("path", [CARD, "handbook"])
def test_an_anchor_that_is_none_is_no_error(visit: Open, path: str, name: str) -> None:
    """The page opens, says that there is no such place, and its keys work."""
    page = visit(path)
    page.evaluate("(name) => (location.hash = name)", name)
    page.locator(".pd-lost").wait_for()
    page.keyboard.press("l")
    assert page.locator("html").get_attribute("data-pd-mode") == "en"


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("handbook#card-flash-atention", "#card-flash-attention"),
        ("handbook#flash-attention--gone", "#card-flash-attention"),
        ("handbook#CARD-FSDP2", "#card-fsdp"),
        (f"{CARD}#derivations", "#derivation"),
    ],
)
def test_an_unknown_anchor_names_the_nearest(visit: Open, path: str, nearest: str) -> None:
    """It leads there, and with that the notice is gone."""
    page = visit(path)
    link = page.locator(".pd-lost a")
    assert link.get_attribute("href") == nearest
    link.click()
    page.locator(".pd-lost").wait_for(state="detached")
    assert page.locator(nearest).is_visible()


def test_a_former_id_leads_to_the_card_in_the_handbook(visit: Open, built: Built) -> None:
    """Its anchor, and those of its sections, go where the card is now."""
    html = built.handbook.read_text(encoding="utf-8")
    renamed = built.handbook.with_name("renamed.html")
    mark = 'id="card-flash-attention" '
    assert mark in html
    renamed.write_text(html.replace(mark, mark + 'data-formerly="flash" ', 1), encoding="utf-8")
    page = visit("handbook")
    for anchor, place in (
        ("card-flash", "card-flash-attention"),
        ("flash--derivation", "flash-attention--derivation"),
    ):
        page.goto(f"{renamed.as_uri()}#{anchor}")
        page.wait_for_url(f"**#{place}")
        assert page.locator(f"#{place}").is_visible()
    renamed.unlink()


# --- the handbook's sections ---------------------------------------------------------------------


def test_the_handbook_lists_the_sections_of_the_card_on_screen(visit: Open) -> None:
    """Each leads to its section, in the reader's language; with another card the list changes, by depth it shrinks."""
    page = visit("handbook#card-flash-attention", mode="en")
    page.evaluate("window.pd.set('depth', 'deep')")
    links = page.locator(".pd-sections a")
    assert links.nth(5).inner_text() == "Derivation"
    links.nth(5).click()
    page.wait_for_url("**#flash-attention--derivation")
    assert links.nth(5).get_attribute("aria-current") == "true"
    page.keyboard.press("l")
    assert "推导" in links.nth(5).inner_text()
    page.keyboard.press("n")
    page.wait_for_function(
        "() => !document.querySelector('.pd-sections a').hash.startsWith('#flash-attention')"
    )
    page.evaluate("window.pd.set('depth', 'answer')")
    shallow = page.locator(".pd-sections a:visible .pd-zh").all_inner_texts()
    assert shallow == ["一句话结论", "三十秒口述", "直觉"]
    page.goto(page.url.split("#")[0] + "#contents")
    assert not page.locator(".pd-sections").is_visible()


def test_the_handbook_prints_as_a_whole(visit: Open, built: Built) -> None:
    """On paper every card with all its sections and the contents, whatever is on screen; no graph, no study."""
    page = visit("handbook", mode="en")
    page.evaluate("window.pd.set('depth', 'answer')")
    page.emulate_media(media="print")
    cards = len(list(built.site.glob("cards/*/index.html")))
    assert page.locator(".pd-handbook-main > .pd-card:visible").count() == cards
    assert page.locator('.pd-card [data-section="derivation"]:visible').count() == cards
    assert page.locator("#contents").is_visible()
    for hidden in (
        ".pd-handbook-header",
        ".pd-sections",
        "#graph",
        "#study",
        ".pd-neighbours >> nth=0",
    ):
        assert not page.locator(hidden).is_visible(), hidden


# --- what is missing, what is wrong --------------------------------------------------------------


@pytest.fixture
def missing(visit: Open, built: Built):
    """Open an address that is not there, as a host answers it: with the page 404."""
    html = (built.site / "404.html").read_text(encoding="utf-8")

    def go(path: str, *, scripts: bool = True):
        page = visit("404.html", scripts=scripts)
        page.context.route(
            f"**/{path}*",
            lambda route: route.fulfill(status=200, body=html, content_type="text/html"),
        )
        page.goto(address(built, path))
        return page

    return go


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("path", ["nowhere", "cards/flash-atention/", "a/b/c/d/e.html"])
def test_a_missing_page_shows_the_way_on(missing, built: Built, path: str, scripts: bool) -> None:
    """At any depth: every section and card by a link that leads there, with and without scripts."""
    page = missing(path, scripts=scripts)
    links = page.locator("[data-pd-missing] a:visible").evaluate_all(
        "(all) => all.map((each) => each.href)"
    )
    for name in ("", "deep-learning/", "graph/", "study/", "cards/flash-attention/"):
        assert f"{built.url}{name}" in links, name
    cards = [link for link in links if "/cards/" in link]
    assert len(set(cards)) == len(list(built.site.glob("cards/*/index.html")))
    for link in set(links):
        assert (built.site / link.removeprefix(built.url) / "index.html").is_file(), link


def test_a_missing_page_searches_and_guesses(missing, built: Built) -> None:
    """The search opens there with the address's words, and finds; a mistyped card's name is recognised."""
    page = missing("cards/flash-atention/")
    guess = page.locator(".pd-lost a")
    assert guess.get_attribute("href") == f"{built.url}cards/flash-attention/"
    page.locator('[data-pd-missing] [data-pd-open="search"]').click()
    assert page.locator(".pd-search-input").input_value() == "flash atention"
    assert search(page, "FlashAttention")[0] == "flash-attention"


def test_a_report_is_filled_in(visit: Open) -> None:
    """From a card's link its card is chosen; what is typed stands in the text that is copied."""
    page = visit(CARD, mode="en")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".pd-report a").click()
    page.wait_for_url("**/report/?card=activation-checkpointing")
    page.get_by_label("What it says").fill("33.3%")
    page.get_by_label("What is true").fill("it is 25%:\nI ran it")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector(".pd-copy[data-pd-copied]")
    copied = page.evaluate("navigator.clipboard.readText()")
    card, says, *truth = copied.split("\n")
    assert card.startswith(
        "card: activation-checkpointing (deep-learning/activation-checkpointing.md, "
    )
    assert says == "what it says: 33.3%"
    assert truth == ["what is true, and how you know: it is 25%:", "I ran it"]
    assert page.locator(".pd-report-text").inner_text().strip() == copied


def test_a_report_works_without_scripts(visit: Open) -> None:
    """The form of a report stands there as text, and no control that would do nothing."""
    page = visit("report/", scripts=False)
    assert "what it says:" in page.locator(".pd-report-text").inner_text()
    assert not page.locator(".pd-report-form").is_visible()
