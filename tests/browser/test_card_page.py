"""A card's page: what meets the eye first, the depth in reach, evidence that is folded."""

from __future__ import annotations

import pytest

from tests.browser.conftest import PHONE, Open

CARD = "cards/activation-checkpointing/"
HANDBOOK = "handbook#card-activation-checkpointing"
ROW = "ev-activation_checkpointing-peak_none"

FOOT = "(part) => part.getBoundingClientRect().bottom"
TOP = "(part) => part.getBoundingClientRect().top"


def test_a_phone_shows_the_question_and_its_answer_at_once(visit: Open) -> None:
    """Question, then one sentence, whole on the first screen in each language, and the spoken answer begins there."""
    for mode in ("zh", "en"):
        page = visit(CARD, mode=mode, phone=True)
        question, answer, spoken = (
            page.locator(each)
            for each in (
                ".pd-ask-first",
                f'#answer [data-lang="{mode}"] p',
                f'#spoken [data-lang="{mode}"] p',
            )
        )
        assert question.evaluate(FOOT) < answer.evaluate(TOP)
        assert answer.evaluate(FOOT) < spoken.evaluate(TOP) < PHONE["height"] - 50
        sizes = [
            page.locator(each).evaluate("(part) => parseFloat(getComputedStyle(part).fontSize)")
            for each in (".pd-ask-first", "h1", f'#answer [data-lang="{mode}"] p')
        ]
        assert sizes[0] == max(sizes)


def test_a_large_screen_shows_the_picture_as_well(visit: Open) -> None:
    """One sentence, spoken answer and the top of the figure, at the depth that a newcomer has."""
    for mode in ("zh", "en"):
        page = visit(CARD, mode=mode)
        page.set_viewport_size({"width": 1440, "height": 1000})
        figure = page.locator(f'#intuition [data-lang="{mode}"] img:visible')
        assert page.locator(f'#spoken [data-lang="{mode}"] p').evaluate(FOOT) < 1000
        assert figure.evaluate(TOP) < 950
        page.evaluate("window.pd.set('depth', 'answer')")
        assert figure.is_visible()


@pytest.mark.parametrize("path", [CARD, HANDBOOK], ids=["site", "handbook"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_the_depth_stays_in_reach_and_covers_nothing_that_has_the_focus(
    visit: Open, path: str, phone: bool
) -> None:
    """Far down it still stands on top; whoever goes back by keyboard sees what has the focus below it."""
    page = visit(path, mode="en", phone=phone)
    switch = page.locator(".pd-depth:visible")
    page.locator(".pd-foot a:visible").first.focus()
    page.wait_for_function("scrollY > 1000")
    switch.get_by_role("button", name="Deep").click(trial=True)
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        hidden = page.evaluate(
            """() => {
              const bar = [...document.querySelectorAll(".pd-bar")].find((each) => each.checkVisibility());
              const here = document.activeElement;
              if (here.closest(".pd-bar, header")) return 0;
              return bar.getBoundingClientRect().bottom - here.getBoundingClientRect().top;
            }"""
        )
        assert hidden <= 1


def test_the_contents_list_names_what_the_depth_shows(visit: Open) -> None:
    """Beside a card on a large screen, entry for section, at each depth."""
    page = visit(CARD, mode="en")
    page.set_viewport_size({"width": 1440, "height": 1000})
    for depth in ("answer", "brief", "deep"):
        page.evaluate("(depth) => window.pd.set('depth', depth)", depth)
        shown = page.locator(".md-sidebar--secondary a:visible").evaluate_all(
            "(links) => links.map((link) => link.hash.slice(1))"
        )
        assert shown == page.locator(".pd-section:visible").evaluate_all(
            "(sections) => sections.map((section) => section.id)"
        )


def test_evidence_is_folded_and_a_number_opens_what_proves_it(visit: Open) -> None:
    """Each demo is a line with its title and how many numbers it gave; the number's own opens, on arrival and later."""
    page = visit(CARD, mode="en")
    page.evaluate("window.pd.set('depth', 'deep')")
    folds = page.locator(".pd-demo")
    assert folds.first.inner_text().split("\n")[-1].startswith("CPU · ")
    assert page.locator(".pd-demo[open], .pd-metrics:visible").count() == 0
    page.goto(f"{page.url}#{ROW}")
    page.locator(f"#{ROW}").wait_for()
    assert page.locator(".pd-demo[open]").count() == 1
    page.reload()
    page.locator(f"#{ROW}").wait_for()
    assert page.locator(f"#{ROW}").evaluate(
        "(row) => row.getBoundingClientRect().top < innerHeight"
    )


def test_a_number_leads_a_newcomer_to_its_row(visit: Open) -> None:
    """At two minutes, where no evidence shows, a click on a number shows its row."""
    page = visit(CARD, mode="en")
    page.locator(f'[href="#{ROW}"]:visible').first.click()
    page.locator(f"#{ROW}").wait_for()


def test_paper_has_what_is_folded_without_scripts(visit: Open) -> None:
    """A print style opens it where no script can."""
    page = visit(CARD, mode=None, scripts=False)
    row = page.locator(f"#{ROW}")
    assert not row.is_visible()
    page.emulate_media(media="print")
    assert row.is_visible()
