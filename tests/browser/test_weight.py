"""What pages weigh from an empty cache, uncompressed and all told, and what they leave until it is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import DESKTOP, PHONE, Built, playwright

HOME, PAGE = 400_000, 600_000
HEAVIEST = 700_000
"""Of cards, whose aim is what every other page keeps to: the heaviest ones are not there yet."""

Loaded = dict[str, int]
Load = Callable[..., Loaded]


@pytest.fixture
def load(chromium: playwright.Browser, built: Built) -> Load:
    """Open a page with an empty cache: the size of each response by its address below the site."""

    def go(
        path: str, act: Callable[[playwright.Page], None] | None = None, **how: object
    ) -> Loaded:
        context = chromium.new_context(**{"viewport": DESKTOP, **how})
        page = context.new_page()
        answers: list[playwright.Response] = []

        def note(answer: playwright.Response) -> None:
            answers.append(answer)

        page.on("response", note)
        page.goto(built.url + path, wait_until="networkidle")
        if act:
            act(page)
            page.wait_for_load_state("networkidle")
        found = {each.url.removeprefix(built.url): len(each.body()) for each in answers}
        context.close()
        return found

    return go


def heaviest(site: Path, pattern: str) -> str:
    """The page with the most HTML of those that a pattern names."""
    file = max(site.glob(f"{pattern}/index.html"), key=lambda each: each.stat().st_size)
    return f"{file.parent.relative_to(site).as_posix()}/"


def test_home_is_light(load: Load) -> None:
    """Scripts, styles and all."""
    assert sum(load("").values()) <= HOME


@pytest.mark.parametrize("pattern", ["*", "paths/*", "demos/*"])
def test_every_kind_of_page_is_light(load: Load, built: Built, pattern: str) -> None:
    """The heaviest of its kind; study mode, which brings its questions along, is asked for as such."""
    path = heaviest(built.site, pattern)
    assert sum(load(path).values()) <= PAGE, path


def test_the_heaviest_card_is_bounded(load: Load, built: Built) -> None:
    """Even the card with the most evidence, figures in sight and the font included."""
    loaded = load(heaviest(built.site, "cards/*"))
    assert sum(loaded.values()) <= HEAVIEST, loaded


def test_a_page_without_formulas_loads_no_font(load: Load) -> None:
    """Neither beforehand nor at all."""
    assert not [each for each in load("graph/") if each.endswith(".woff2")]


def test_search_is_loaded_when_it_is_wanted(load: Load) -> None:
    """Its script, its library and its data, and on no page before."""

    def search(page: playwright.Page) -> None:
        page.keyboard.press("/")
        page.locator(".pd-search select").first.wait_for()

    wanted = {"search.js", "search.json", "vendor/minisearch.js"}
    assert not wanted & load("").keys()
    assert wanted <= load("", search).keys()


@pytest.mark.parametrize(("viewport", "narrow"), [(DESKTOP, False), (PHONE, True)])
def test_of_a_figure_that_drawing_is_loaded_which_shows(
    load: Load, built: Built, viewport: dict[str, int], narrow: bool
) -> None:
    """When it comes into sight: in the language that is read, and for the room that there is."""

    def show(page: playwright.Page) -> None:
        page.locator(".pd-half .pd-drawings:visible").first.scroll_into_view_if_needed()
        page.wait_for_function(
            "[...document.querySelectorAll('.pd-drawings img')]"
            ".some((img) => img.naturalWidth && img.checkVisibility())"
        )

    card = "cards/lora-memory/"
    page = (built.site / card / "index.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<img src="[^"]*/figures/', page)) >= 4
    loaded = load(f"{card}?lang=en&depth=deep", show, viewport=viewport)
    figures = [each for each in loaded if each.startswith("figures/")]
    assert figures
    assert {each.endswith("-en-narrow.svg") for each in figures} == {narrow}
    assert all("-en" in each for each in figures)
