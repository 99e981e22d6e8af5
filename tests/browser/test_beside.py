"""What stands beside a link: where, a calculation's line, a card before it is opened."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open

CARD = "cards/activation-checkpointing/"
HANDBOOK = "handbook#card-activation-checkpointing"
OTHER = "saved-tensors"
"""A card to which its foot leads."""

BOX = "(part) => part.getBoundingClientRect().toJSON()"


def test_the_proof_stands_in_the_margin_where_there_is_one(visit: Open) -> None:
    """On a large screen it covers no text; on a smaller one, and side by side, it stands below its line."""
    page = visit(CARD, mode="en")
    number = page.locator("#insights .pd-claim:visible").first
    for width, mode, aside in ((1440, "en", True), (1440, "both", False), (700, "en", False)):
        page.set_viewport_size({"width": width, "height": 1000})
        page.evaluate("(mode) => window.pd.set('mode', mode)", mode)
        number.scroll_into_view_if_needed()
        page.keyboard.press("Tab")
        number.focus()
        tip, at, text = (
            page.locator(each).evaluate(BOX) for each in (".pd-tip", ".pd-shown", ".pd-card")
        )
        assert (tip["left"] >= text["right"]) == aside, (width, mode)
        assert tip["right"] <= width
        if not aside:
            assert tip["top"] >= at["bottom"] or tip["bottom"] <= at["top"]
        page.keyboard.press("Escape")


def test_the_pointer_reaches_the_margin(visit: Open) -> None:
    """On its way there, however slow, the proof stays; elsewhere it goes."""
    page = visit(CARD, mode="en")
    page.set_viewport_size({"width": 1440, "height": 1000})
    number = page.locator("#insights .pd-claim:visible").first
    number.hover()
    tip = page.locator(".pd-tip")
    tip.wait_for()
    box, at = tip.bounding_box(), number.bounding_box()
    assert box
    assert at
    page.mouse.move(box["x"] - 30, at["y"] - 3, steps=5)
    page.wait_for_timeout(400)
    assert tip.is_visible()
    page.mouse.move(box["x"] + 30, box["y"] + 30, steps=5)
    page.wait_for_timeout(400)
    assert tip.is_visible()
    page.mouse.move(5, 5)
    tip.wait_for(state="detached")


def test_a_calculation_shows_its_line(visit: Open) -> None:
    """The values put in, each a link that leads to its own proof, and what they come to."""
    page = visit(CARD, mode="en")
    page.locator('#spoken [data-lang="en"] .pd-claim').last.focus()
    tip = page.locator(".pd-tip")
    assert tip.locator(".pd-tip-value").inner_text() == "44 GB"
    line = tip.locator("#pd-tip-line")
    assert line.inner_text() == "32 × 1,376,845,824 B = 44,059,066,368 B"
    assert "pd-tip-line" in (page.locator(".pd-shown").get_attribute("aria-describedby") or "")
    page.keyboard.press("Tab")
    layers = page.locator(".pd-tip a:focus")
    assert layers.inner_text() == "32"
    page.keyboard.press("Enter")
    page.wait_for_url("**#ev--fact-llama-3-8b-layers")
    page.locator("#ev--fact-llama-3-8b-layers").wait_for()
    assert tip.count() == 0


@pytest.mark.parametrize("path", [CARD, HANDBOOK], ids=["site", "handbook"])
def test_a_link_to_a_card_shows_it(visit: Open, path: str) -> None:
    """Its question, one sentence and how hard it is, in the reader's language; Esc closes it; a page is read once."""
    page = visit(path, mode="en")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    link = page.locator(f'.pd-foot a[data-card="{OTHER}"]:visible')
    for _ in range(2):
        link.focus()
        tip = page.locator(".pd-tip")
        tip.wait_for()
        said = tip.inner_text()
        assert link.get_attribute("aria-describedby") == "pd-tip-text"
        page.keyboard.press("Escape")
        assert tip.count() == 0
        link.blur()
    assert len([url for url in asked if OTHER in url]) == (1 if path == CARD else 0)
    assert page.locator(".pd-tip :is(a, button)").count() == 0
    page.goto(
        page.url.split("#")[0].replace("activation-checkpointing", OTHER)
        + f"#card-{OTHER}" * (path != CARD)
    )
    card = page.locator(f'article[data-card="{OTHER}"]')
    for part in (
        ".pd-ask-first",
        ".pd-difficulty",
        '#answer [data-lang="en"] p, [id$="--answer"] [data-lang="en"] p',
    ):
        assert card.locator(part).first.inner_text() in said.replace("\n", " "), part


def test_a_card_that_cannot_be_read_is_no_error(visit: Open) -> None:
    """Where its page does not load nothing is shown, and the link works."""
    page = visit(CARD, mode="en")
    page.route(
        f"**/{OTHER}/", lambda route: route.fulfill(status=200, body="", content_type="text/html")
    )
    link = page.locator(f'.pd-foot a[data-card="{OTHER}"]:visible')
    with page.expect_response(f"**/{OTHER}/"):
        link.hover()
    page.wait_for_timeout(100)
    assert page.locator(".pd-tip").count() == 0
    page.unroute_all()
    link.click()
    page.wait_for_url(f"**/{OTHER}/")


def test_a_finger_follows_a_link_to_a_card_at_once(visit: Open) -> None:
    """Nothing is shown before."""
    page = visit(CARD, mode="en", phone=True)
    page.locator(f'.pd-foot a[data-card="{OTHER}"]:visible').tap()
    page.wait_for_url(f"**/{OTHER}/")
