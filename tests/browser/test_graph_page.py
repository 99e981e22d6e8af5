"""The knowledge graph can be zoomed, panned, filtered and followed, by pointer and by keys."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open


def scale(page) -> float:
    """How far the view is zoomed in."""
    return page.evaluate(
        "document.querySelector('.pd-graph-view').transform.baseVal.consolidate()?.matrix.a ?? 1"
    )


def shift(page) -> tuple[float, float]:
    """How far the view is moved."""
    x, y = page.evaluate(
        """() => {
          const { e, f } = document.querySelector('.pd-graph-view').transform.baseVal.consolidate().matrix;
          return [e, f];
        }"""
    )
    return x, y


@pytest.mark.parametrize("path", ["graph/", "handbook#graph"])
def test_zoom_and_pan_by_keys_wheel_and_buttons(visit: Open, path: str) -> None:
    """Plus and minus, arrows, zero; the wheel; the three buttons."""
    page = visit(path)
    canvas = page.locator(".pd-graph-canvas")
    canvas.focus()
    page.keyboard.press("+")
    assert scale(page) > 1.2
    before = shift(page)
    page.keyboard.press("ArrowRight")
    assert shift(page)[0] < before[0]
    page.keyboard.press("0")
    assert scale(page) == 1
    canvas.hover()
    page.mouse.wheel(0, -300)
    page.wait_for_function(
        "document.querySelector('.pd-graph-view').transform.baseVal.consolidate().matrix.a > 1.2"
    )
    page.locator('[data-zoom="fit"]').click()
    assert scale(page) == 1
    page.locator('[data-zoom="in"]').click()
    assert scale(page) > 1.2


def test_a_drag_pans_and_opens_nothing(visit: Open) -> None:
    """Pressing on a card and moving pulls the view along."""
    page = visit("graph/")
    node = page.locator('a.pd-node[data-card="fp16-bf16"]')  # near the top, where the view begins
    box = node.bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y + 30, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    moved = node.bounding_box()
    assert moved
    assert abs(moved["x"] - box["x"] - 80) < 3
    assert page.url.split("?")[0].endswith("/graph/")


def test_a_click_opens_the_card(visit: Open) -> None:
    """A card in the graph is a link."""
    page = visit("graph/")
    page.locator('a.pd-node[data-card="fp16-bf16"]').click()
    page.wait_for_url("**/cards/fp16-bf16/**")


def test_filters_mute_what_is_left_out(visit: Open) -> None:
    """By difficulty and tag; planned cards have neither and are muted."""
    page = visit("graph/")
    page.locator("select[name=difficulty]").select_option("hard")
    kept = page.locator(".pd-node:not(.pd-out)").evaluate_all(
        "(all) => all.map((each) => each.dataset.difficulty)"
    )
    assert kept
    assert set(kept) == {"hard"}
    page.locator("select[name=difficulty]").select_option("")
    assert page.locator(".pd-node.pd-out").count() == 0


def test_a_path_is_drawn_with_its_steps(visit: Open) -> None:
    """Choosing a path draws its line and numbers its cards in order."""
    page = visit("graph/")
    page.locator("select[name=path]").select_option("first-interview")
    drawn = page.locator(".pd-path.pd-drawn")
    assert drawn.count() == 1
    numbers = page.locator(".pd-stops.pd-drawn text").all_text_contents()
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert drawn.locator("polyline").is_visible()


def test_hover_lights_what_a_card_needs_and_unlocks(visit: Open) -> None:
    """Its arrows and the cards at their ends stand out."""
    page = visit("graph/")
    page.locator('a.pd-node[data-card="fp16-bf16"]').hover()
    lit = page.locator(".pd-edge.pd-lit").evaluate_all(
        "(all) => all.map(({ dataset }) => [dataset.from, dataset.to])"
    )
    assert lit
    assert all("fp16-bf16" in ends for ends in lit)
    names = page.locator(".pd-node.pd-lit").evaluate_all("(all) => all.map((e) => e.dataset.card)")
    assert set(names) == {name for ends in lit for name in ends}


def test_labels_follow_the_language(visit: Open) -> None:
    """Titles, filters and modules are shown in the reader's language."""
    page = visit("graph/", mode="en")
    node = page.locator('a.pd-node[data-card="checkpoint-sqrt-rule"]')
    assert node.locator("text.pd-en").is_visible()
    assert not node.locator("text.pd-zh").is_visible()
    assert page.locator("select[name=module] option").first.inner_text() == "All modules"


def test_a_phone_begins_where_text_can_be_read(visit: Open) -> None:
    """Letters of the first card are at least 8 pixels high there."""
    page = visit("graph/", phone=True)
    page.wait_for_function("document.querySelector('[data-pd-graph]').dataset.zoom")
    size = page.locator(".pd-node text.pd-zh").first.evaluate(
        "(text) => 13 * text.getScreenCTM().a"
    )
    assert size >= 8


def test_a_card_shows_its_neighbourhood(visit: Open) -> None:
    """Between what to read first and what it unlocks, each a link."""
    page = visit("cards/activation-checkpointing/#connections")
    near = page.locator(".pd-neighbourhood")
    assert near.locator(".pd-here").get_attribute("data-card") == "activation-checkpointing"
    near.locator('a[data-card="saved-tensors"]').click()
    page.wait_for_url("**/cards/saved-tensors/**")
