"""中文, English, or side by side: chosen, kept, and followed by everything on the page."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Built, Open, address, playwright

CARD = "cards/checkpoint-sqrt-rule/"
ZH, EN = '[data-section="answer"] [data-lang="zh"]', '[data-section="answer"] [data-lang="en"]'


@pytest.mark.parametrize(
    ("locale", "mode"), [("zh-CN", "zh"), ("zh-TW", "zh"), ("en-GB", "en"), ("de-DE", "en")]
)
def test_the_browser_decides_at_first(visit: Open, locale: str, mode: str) -> None:
    """Chinese for those whose browser speaks it, English for everyone else."""
    page = visit(CARD, mode=None, locale=locale)
    assert page.locator("html").get_attribute("data-pd-mode") == mode


def test_the_mode_is_there_before_the_first_paint(visit: Open) -> None:
    """The script in the head is enough: with every other script held back the mode is set."""
    page = visit("report/", mode=None)

    def hold(route: playwright.Route) -> None:
        if route.request.url.endswith("/early.js"):
            route.continue_()
        else:
            route.fulfill(body="")

    page.context.route("**/*.js", hold)
    page.goto(page.url.replace("report/", CARD) + "?lang=en", wait_until="domcontentloaded")
    assert page.locator("html").get_attribute("data-pd-mode") == "en"
    assert page.locator("html").get_attribute("lang") == "en"
    assert not page.locator(ZH).is_visible()
    page.context.unroute("**/*.js")


@pytest.mark.parametrize(
    ("mode", "lang", "zh", "en"),
    [("zh", "zh-Hans", True, False), ("en", "en", False, True), ("both", "zh-Hans", True, True)],
)
def test_a_mode_shows_its_languages(visit: Open, mode: str, lang: str, zh: bool, en: bool) -> None:
    """Text, titles and contents list follow the mode; the document says its language."""
    page = visit(CARD, mode=mode)
    assert page.locator("html").get_attribute("lang") == lang
    assert page.locator(ZH).is_visible() == zh
    assert page.locator(EN).is_visible() == en
    title = page.title()
    assert ("平方根法则" in title) == zh
    assert ("square-root" in title) == en
    page.set_viewport_size({"width": 1700, "height": 900})
    entry = page.locator(".md-sidebar--secondary a[href='#insights']")
    assert ("核心要义" in entry.inner_text()) == zh
    assert ("Key insights" in entry.inner_text()) == en


def test_the_choice_is_kept_across_pages_and_visits(visit: Open, built: Built) -> None:
    """Pressed once, the language stays on the next page, after a reload and in a new tab."""
    page = visit(CARD, mode=None, locale="zh-CN")
    page.get_by_role("button", name="EN", exact=True).click()
    assert page.locator(EN).is_visible()
    page.locator(".pd-crumbs a").nth(1).click()
    assert page.locator("html").get_attribute("data-pd-mode") == "en"
    page.reload()
    assert page.locator("html").get_attribute("data-pd-mode") == "en"
    tab = page.context.new_page()
    tab.goto(address(built, "study/"))
    assert tab.locator("html").get_attribute("data-pd-mode") == "en"


def test_the_address_may_ask_for_a_language(visit: Open, built: Built) -> None:
    """``?lang=`` wins over what was kept, and is itself kept."""
    page = visit(CARD, mode="both")
    page.goto(address(built, CARD))
    assert page.locator("html").get_attribute("data-pd-mode") == "both"
    page.goto(address(built, CARD, "nonsense"))
    assert page.locator("html").get_attribute("data-pd-mode") == "both"


def test_a_key_changes_the_language_and_keeps_the_place(visit: Open) -> None:
    """``l`` goes through the three modes; the section that was being read stays in view."""
    page = visit(CARD, mode="zh")
    page.evaluate("window.pd.set('depth', 'deep')")
    page.evaluate("document.getElementById('tradeoffs').scrollIntoView()")
    before = page.locator("#tradeoffs").bounding_box()
    for mode in ("en", "both", "zh"):
        page.keyboard.press("l")
        assert page.locator("html").get_attribute("data-pd-mode") == mode
        now = page.locator("#tradeoffs").bounding_box()
        assert before
        assert now
        assert abs(now["y"] - before["y"]) < 2


def test_side_by_side_is_aligned_section_by_section(visit: Open) -> None:
    """On a wide screen the halves of every section begin at one height; on a phone one follows the other."""
    page = visit(CARD, mode="both")
    for section in page.locator(".pd-section:has(> .pd-half)").all():
        zh, en = (
            section.locator(f'> [data-lang="{lang}"]').bounding_box() for lang in ("zh", "en")
        )
        assert zh
        assert en
        assert abs(zh["y"] - en["y"]) < 1
        assert en["x"] > zh["x"] + zh["width"]
    page.set_viewport_size({"width": 390, "height": 844})
    zh, en = page.locator(ZH).bounding_box(), page.locator(EN).bounding_box()
    assert zh
    assert en
    assert en["y"] > zh["y"] + zh["height"] - 1


def test_every_text_says_its_language(visit: Open) -> None:
    """汉字 stand in elements marked Chinese; what is marked English has none but in names and code."""
    page = visit(CARD, mode="both")
    strays = page.evaluate(
        """() => {
          const found = [];
          const walker = document.createTreeWalker(document.querySelector(".pd-card"), NodeFilter.SHOW_TEXT);
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const lang = node.parentElement.closest("[lang]").getAttribute("lang");
            if (/\\p{Script=Han}/u.test(node.data) && lang !== "zh-Hans") found.push(node.data);
          }
          return found;
        }"""
    )
    assert strays == []


def test_the_handbook_keeps_the_language_as_well(visit: Open) -> None:
    """Opened from a disk, it remembers the mode."""
    page = visit("handbook#card-checkpoint-sqrt-rule", mode="en")
    assert page.locator(f"#card-checkpoint-sqrt-rule {EN}").is_visible()
    page.keyboard.press("l")
    page.goto(page.url.replace("lang=en", "x=1"))
    assert page.locator("html").get_attribute("data-pd-mode") == "both"
