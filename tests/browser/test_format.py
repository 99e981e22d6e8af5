"""A card in format 2 as a reader has it: its depths, and the points that are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from generator import checks
from generator.edition import edition as editions
from generator.exporters import handbook

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BASE = Path(__file__).parents[1] / "library"
SPOKEN = ["answer", "spoken", "intuition"]
BRIEF = ["answer", "spoken", "intuition", "insights", "example"]
POINTS = ".pd-view details.pd-points"

Open = Callable[[str], "Page"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The handbook of the small base, whose cards are in format 2."""
    demos = BASE / "runnable_demos"
    found, _ = checks.load(BASE / "cards", demos=demos)
    assert found
    file = tmp_path_factory.mktemp("small") / "handbook.html"
    handbook.export(editions.bind(found, demos), file)
    return file


@pytest.fixture
def read(chromium: Browser, small: Path) -> Iterator[Open]:
    """Open a place of it in English as a new reader; afterwards no page may have reported an error."""
    wrong: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)

    def go(place: str) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
        page.goto(f"{small.as_uri()}?lang=en#{place}")
        return page

    yield go
    context.close()
    assert wrong == []


def shown(page: Page) -> list[str]:
    """The sections of the card that are shown, which its list names as well."""
    sections: list[str] = page.locator(".pd-view .pd-section:visible").evaluate_all(
        "(all) => all.map((each) => each.dataset.section)"
    )
    assert page.locator(".pd-sections a:visible").count() == len(sections)
    return sections


def test_each_depth_shows_its_sections(read: Open) -> None:
    """Two minutes at first; thirty seconds are answer, speech and picture, without insights and the worked example."""
    page = read("card-kahan-sum")
    assert shown(page) == BRIEF
    page.evaluate("window.pd.set('depth', 'answer')")
    assert shown(page) == SPOKEN
    further = page.locator(".pd-view .pd-more")
    assert further.inner_text() == "Two minutes more: insights and a worked example"
    further.click()
    assert shown(page) == BRIEF
    further.click()
    assert len(shown(page)) == 12


def test_points_are_folded_until_they_are_asked_for(read: Open) -> None:
    """A click opens all of them, each with its level in words; nothing else does."""
    page = read("card-kahan-sum")
    page.evaluate("window.pd.set('depth', 'deep')")
    level = page.locator(f"{POINTS} .pd-level:visible")
    assert level.count() == 0
    page.locator(f"{POINTS} > summary").click()
    assert level.all_inner_texts() == ["Pass", "Strong", "Outstanding", "Red flag"]


def test_an_address_of_a_point_opens_them(read: Open) -> None:
    """Whoever follows a link to a point sees it, on arrival and later."""
    page = read("kahan-sum--loop")
    assert page.locator("#kahan-sum--loop").is_visible()
    page.evaluate("location.hash = '#rounding--relative'")
    page.wait_for_function("document.querySelector('#rounding--relative').checkVisibility()")


def test_paper_shows_points_and_the_page_is_as_it_was(read: Open) -> None:
    """Before a page is printed all that is folded opens, with the follow-ups, and afterwards it closes again."""
    page = read("card-kahan-sum")
    closed = page.locator(".pd-view :is(details.pd-points, details.pd-demo):not([open])")
    for event, count in (("beforeprint", 0), ("afterprint", 2)):
        page.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert closed.count() == count
