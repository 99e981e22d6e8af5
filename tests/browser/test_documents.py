"""Documents and the lessons of demos in a real browser: words beside code, languages, tabs, notes."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open

DEMO = "demos/zero_stages/"
BOXES = """() => {
  const row = document.querySelector(".pd-lesson .pd-row:has(> .highlight)");
  return [...row.children].map((each) => { const { x, y, right, bottom } = each.getBoundingClientRect();
    return { x, y, right, bottom }; });
}"""


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_what_is_said_stands_beside_the_code(visit: Open, phone: bool) -> None:
    """On a wide screen side by side, on a narrow one the code follows."""
    page = visit(DEMO, mode="zh", phone=phone)
    if not phone:
        page.set_viewport_size({"width": 1440, "height": 900})
    said, code = page.evaluate(BOXES)
    if phone:
        assert code["y"] >= said["bottom"]
    else:
        assert code["x"] >= said["right"]
        assert code["y"] == pytest.approx(said["y"], abs=40)


def test_two_languages_stand_side_by_side_above_the_code(visit: Open) -> None:
    """One language shows alone; both share a row, and the code, which both speak of, stands once below."""
    page = visit(DEMO, mode="en")
    page.set_viewport_size({"width": 1440, "height": 900})
    halves = page.locator("#measurement .pd-row").first.locator(".pd-half")
    assert [half.is_visible() for half in halves.all()] == [False, True]
    page.evaluate("window.pd.set('mode', 'both')")
    zh, en = (half.bounding_box() for half in halves.all())
    assert zh and en
    assert en["x"] >= zh["x"] + zh["width"] and en["y"] == pytest.approx(zh["y"], abs=2)
    _, code = page.evaluate(BOXES)
    assert code["right"] - code["x"] > 2 * zh["width"]


def test_a_tab_is_chosen_by_keys(visit: Open) -> None:
    """An arrow key shows the next way to set it up, and hides the one before."""
    page = visit("docs/set-up/", mode="en")
    blocks = page.locator('[data-lang="en"] .tabbed-block')
    assert [block.is_visible() for block in blocks.all()] == [True, False, False]
    page.locator('[data-lang="en"] input[type="radio"]').first.focus()
    page.keyboard.press("ArrowRight")
    assert [block.is_visible() for block in blocks.all()] == [False, True, False]


def test_a_note_on_code_opens(visit: Open) -> None:
    """Each mark in the code leads to its note, in the reader's language; the list of notes is taken in."""
    page = visit("docs/exporters/", mode="en")
    marks = page.locator('[data-lang="en"] .md-annotation__index')
    assert marks.count() == 3
    marks.nth(1).click()
    assert page.get_by_text("One file, so out is that file.").is_visible()


def test_a_result_in_the_lesson_leads_to_what_was_found(visit: Open) -> None:
    """The row of the metric is on the same page, and in sight."""
    page = visit(DEMO, mode="en")
    page.locator('#result [data-lang="en"] a[href^="#ev-"]').first.click()
    assert page.locator("tr:target").is_visible()


def test_a_former_address_leads_to_the_document(visit: Open) -> None:
    """With the place on it."""
    page = visit("about/#limits", mode="en")
    page.wait_for_url("**/docs/proofs/**#limits")
    assert page.locator("#limits").is_visible()
