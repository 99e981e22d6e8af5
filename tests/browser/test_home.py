"""The first page shows what this is, and takes who returns to where they were; paths are kept to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.conftest import ROOT, Built, Open

PATH = "first-interview"
FIRST, SECOND, THIRD = "will-it-fit", "peak-memory-tools", "autograd-vjp"


def keep(page: Any, **values: object) -> None:
    """Put values into the page's storage, as earlier visits would have."""
    for name, value in values.items():
        page.evaluate(
            "([name, value]) => localStorage.setItem(`proofdeck.${name}`, value)",
            [name, json.dumps(value)],
        )


# --- the first page ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "handbook"])
def test_a_number_on_the_first_page_opens_its_proof(visit: Open, path: str) -> None:
    """Within the first answer, by hover, with the command that repeats the run."""
    page = visit(path, mode="en")
    number = page.locator('.pd-opening .pd-half[lang="en"] a.pd-claim').first
    printed = number.inner_text()
    number.hover()
    tip = page.locator(".pd-tip")
    tip.wait_for()
    assert printed.split()[0] in tip.inner_text()
    assert "proofdeck demo run" in tip.inner_text()


def test_a_number_of_the_first_page_works_without_scripts(visit: Open) -> None:
    """It leads to its row on the same page, and nothing that needs scripts is shown."""
    page = visit("", scripts=False)
    target = page.locator(".pd-opening a.pd-claim").first.get_attribute("href")
    assert target
    assert page.locator(f"tr{target}").count() == 1
    assert not page.locator(".pd-ask").is_visible()
    assert not page.locator(".pd-resume").is_visible()


@pytest.mark.parametrize("path", ["", "handbook"])
def test_five_questions_begin_at_once(visit: Open, path: str) -> None:
    """One click leads to the first of five, each of another card, and a reload does not begin again."""
    page = visit(path)
    page.locator("a.pd-quick").click()
    page.locator(".pd-sheet").wait_for()
    cards = set()
    for number in range(1, 6):
        assert page.locator(".pd-sheet .pd-count").inner_text() == f"{number} / 5"
        cards.add(page.locator(".pd-sheet-about a").first.get_attribute("href"))
        page.locator(".pd-back .pd-primary").click()
        page.locator('[data-rating="3"]').click()
    page.locator(".pd-result").wait_for()
    assert len(cards) == 5
    assert "round" not in page.url


def test_the_box_opens_the_search(visit: Open) -> None:
    """By the keyboard as well."""
    page = visit("")
    page.locator(".pd-ask-box").focus()
    page.keyboard.press("Enter")
    page.locator(".pd-search-input").wait_for()


def test_who_returns_sees_what_is_due_and_where_they_were(visit: Open, built: Built) -> None:
    """Of stored items those that exist and are due; the last card; the path with its next card."""
    page = visit("", mode="en")
    assert not page.locator(".pd-resume").is_visible(), "a new reader has no past"
    study = json.loads((built.site / "study.json").read_text(encoding="utf-8"))
    one, two, three = (item["id"] for item in study["items"][:3])
    items = {one: "2026-01-01", two: "2026-01-02", three: "2890-01-01", "gone#item": "2026-01-01"}
    keep(
        page,
        study={"version": 1, "items": {k: {"due": f"{v}T00:00:00Z"} for k, v in items.items()}},
        way={"path": PATH, "card": SECOND, "title": {"zh": "读显存", "en": "Reading memory"}},
        reading={FIRST: {"opened": "2026-11-30"}, SECOND: {"known": True}},
    )
    page.reload()
    lines = page.locator(".pd-resume li")
    lines.first.wait_for()
    said = [text.strip() for text in lines.all_inner_texts()]
    assert said[0] == "Review the 2 that are due"
    assert said[1] == "Continue “A first interview”: 2 of 13 read"
    assert said[2].startswith("Read on: Reading memory")
    hrefs = lines.locator("a").evaluate_all("(all) => all.map((each) => each.pathname)")
    assert hrefs == ["/study/", f"/cards/{THIRD}/", f"/cards/{SECOND}/"]


@pytest.mark.parametrize("stored", ["null", "[]", '{"path": 5, "title": 1}', '{"items": [1]}', "x"])
def test_what_cannot_be_read_is_no_past(visit: Open, stored: str) -> None:
    """Whatever stands in the storage, the page opens without an error and says nothing of it."""
    page = visit("")
    for name in ("way", "study", "reading"):
        page.evaluate(
            "([name, text]) => localStorage.setItem(`proofdeck.${name}`, text)", [name, stored]
        )
    page.reload()
    page.wait_for_load_state("networkidle")
    assert not page.locator(".pd-resume").is_visible()


# --- paths ---------------------------------------------------------------------------------------


def test_paths_are_in_the_menu_and_tell_how_far_one_is(visit: Open) -> None:
    """Beside each path the cards that were read; on its page the button leads to the next, and each card's state."""
    page = visit("", mode="en")
    page.locator(".md-tabs a", has_text="Learning paths").click()
    page.wait_for_url("**/paths/**")
    assert page.locator("progress").count() == 0
    keep(page, reading={FIRST: {"opened": "2026-11-30"}})
    page.reload()
    tile = page.locator(f'[data-pd-path="{PATH}"]')
    assert "1 of 13 read" in tile.inner_text()
    tile.click()
    page.wait_for_url(f"**/paths/{PATH}/**")
    assert page.locator(f'li[data-card="{FIRST}"] .pd-state').is_visible()
    go = page.locator("[data-pd-go]")
    assert "Continue with" in go.inner_text()
    go.click()
    page.wait_for_url(f"**/cards/{SECOND}/**")


def test_next_and_previous_follow_the_path_until_one_leaves_it(visit: Open) -> None:
    """One pair is shown; from the path's page it is the path's, by link and by key; then reading order's again."""
    page = visit(f"paths/{PATH}/", mode="en")
    page.locator(f'li[data-card="{SECOND}"] a').click()
    page.wait_for_url(f"**/cards/{SECOND}/**")
    pair = page.locator(".pd-way:visible")
    assert pair.count() == 1
    assert "2 of 13" in pair.inner_text()
    page.keyboard.press("n")
    page.wait_for_url(f"**/cards/{THIRD}/**")
    page.keyboard.press("p")
    page.wait_for_url(f"**/cards/{SECOND}/**")
    page.get_by_role("button", name="Leave this path").click()
    assert page.locator(".pd-way:visible").get_attribute("data-way") == ""
    page.reload()
    assert page.locator(".pd-way:visible").get_attribute("data-way") == ""
    assert page.locator(".md-footer__link").count() == 0, "one pair, not two"


def test_a_detour_does_not_lose_the_path(visit: Open) -> None:
    """A card that is not on it shows reading order; the next one on it is on it again."""
    page = visit("cards/adam-8bit/")
    keep(page, way={"path": PATH, "card": FIRST, "title": {}})
    page.reload()
    assert page.locator(".pd-way:visible").get_attribute("data-way") == ""
    page.goto(page.url.replace("adam-8bit", FIRST))
    assert page.locator(".pd-way:visible").get_attribute("data-way") == PATH


def test_the_handbook_follows_the_path_as_well(visit: Open) -> None:
    """From its contents: the keys lead along the path."""
    page = visit("handbook")
    page.locator(f'[data-pd-path="{PATH}"] a[data-card="{FIRST}"]').click()
    page.wait_for_url(f"**#card-{FIRST}")
    page.keyboard.press("n")
    page.wait_for_url(f"**#card-{SECOND}")
    assert page.locator(".pd-way:visible").get_attribute("data-way") == PATH


def test_without_scripts_every_way_is_shown(visit: Open) -> None:
    """Reading order and each path of the card, with their names."""
    page = visit(f"cards/{FIRST}/", scripts=False)
    ways = page.locator(".pd-way:visible").evaluate_all(
        "(all) => all.map((each) => each.dataset.way)"
    )
    assert ways[:2] == ["", PATH]
    assert len(ways) > 2


# --- modules -------------------------------------------------------------------------------------


def test_a_module_is_filtered_by_difficulty_and_frequency(visit: Open, built: Built) -> None:
    """What fits both is shown and counted; the address keeps the choice, and a link to it makes it."""
    page = visit("deep-learning/", mode="en")
    sources = [f.read_text("utf-8") for f in (ROOT / "cards" / "deep-learning").glob("*.md")]
    wanted = [s for s in sources if "\ndifficulty: hard\n" in s and "\nfrequency: often\n" in s]
    shown = page.locator(".pd-questions > li:visible")
    assert shown.count() == len(sources)
    page.get_by_label("Any difficulty").select_option("hard")
    page.get_by_label("However often asked").select_option("often")
    assert shown.count() == len(wanted) > 0
    status = page.get_by_role("status").filter(has_text="shown")
    assert status.inner_text() == f"{len(wanted)} of {len(sources)} cards shown"
    assert "difficulty=hard" in page.url
    assert "frequency=often" in page.url
    page.reload()
    assert shown.count() == len(wanted)
    for block in page.locator("section.pd-block:visible:has(.pd-questions)").all():
        assert block.locator("li:visible").count() > 0


def test_the_cards_of_the_module_stand_beside_the_card(visit: Open) -> None:
    """On a wide window all of them, this one marked; on a narrow one they are not even fetched."""
    page = visit(f"cards/{FIRST}/", mode="en")
    page.wait_for_load_state("networkidle")
    assert page.locator(".pd-beside").count() == 0
    page.set_viewport_size({"width": 1500, "height": 900})
    beside = page.locator(".pd-beside")
    beside.wait_for()
    assert beside.locator("li").count() == len(
        list((ROOT / "cards" / "deep-learning").glob("*.md"))
    )
    current = beside.locator('[aria-current="page"]')
    assert current.inner_text() == "Will it fit?"
    box, frame = current.bounding_box(), beside.bounding_box()
    assert box
    assert frame
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]
    text = page.locator(".pd-card").bounding_box()
    assert text
    assert text["x"] >= frame["x"] + frame["width"]
