"""Reading a card: follow-ups that flip, depth, keys, and the proof beside a number."""

from __future__ import annotations

import json
import re
from typing import get_args

from generator.evidence.verdicts import State
from generator.lang import STATE_MARKS
from tests.browser.conftest import ROOT, Open

CARD = "cards/activation-checkpointing/"
RECORD = ROOT / "runnable_demos/evidence/activation_checkpointing.cpu.json"
SHORT = ["answer", "spoken", "intuition"]
"""Its sections of thirty seconds."""
MEASURED = '.pd-claim:not([href^="#ev--"])'
"""A number that a run gave, and no sum of such."""
STATES = get_args(State)


def opened(page) -> list[bool]:
    """Which follow-ups show their answer."""
    return page.locator('[data-lang="zh"] .pd-followup').evaluate_all(
        "(all) => all.map((each) => each.open)"
    )


# --- follow-ups ----------------------------------------------------------------------------------


def test_follow_ups_flip_by_keyboard(visit: Open) -> None:
    """All are closed; j and k move, and bring them back where the depth hides them; space turns the one in focus."""
    page = visit(CARD)
    assert not page.locator("#followups").is_visible()
    assert not any(opened(page))
    page.keyboard.press("j")
    page.keyboard.press("Space")
    assert opened(page)[:2] == [True, False]
    page.keyboard.press("j")
    page.keyboard.press("Space")
    assert opened(page)[:2] == [True, True]
    page.keyboard.press("k")
    page.keyboard.press("Space")
    assert opened(page)[:2] == [False, True]


def test_both_languages_flip_together(visit: Open) -> None:
    """Side by side, the answer shows in both; j counts the two as one."""
    page = visit(CARD, mode="both")
    page.keyboard.press("j")
    page.keyboard.press("Space")
    item = page.locator(".pd-item:has(.pd-followup)").first
    for answer in item.locator(".pd-answer").all():
        answer.wait_for(state="visible")
    page.keyboard.press("j")
    second = page.locator(".pd-item:has(.pd-followup)").nth(1)
    assert second.locator("summary:focus").count() == 1


def test_an_address_opens_its_follow_up(visit: Open) -> None:
    """A link to a follow-up shows its answer, wherever it stands."""
    page = visit(CARD)
    item = page.locator(".pd-item:has(.pd-followup)").nth(2).get_attribute("id")
    page = visit(f"{CARD}#{item}")
    assert opened(page)[:4] == [False, False, True, False]
    assert page.locator(f"#{item}").is_visible()


def test_a_follow_up_that_an_address_opened_closes_in_both_languages(visit: Open) -> None:
    """Flipped back in one language, it is closed in the other as well."""
    item = visit(CARD).locator(".pd-item:has(.pd-followup)").nth(2).get_attribute("id")
    page = visit(f"{CARD}#{item}", mode="both")
    page.locator(f"#{item} [data-lang='zh'] summary").click()
    page.wait_for_function("(id) => !document.querySelector(`#${id} details[open]`)", arg=item)


# --- keys ----------------------------------------------------------------------------------------


def test_help_lists_the_keys(visit: Open) -> None:
    """``?`` opens a dialog with every key of the page; Esc closes it."""
    page = visit(CARD, mode="en")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    shown = {each.inner_text() for each in dialog.locator("kbd").all()}
    assert {"/", "s", "f", "j", "k", "␣", "l", "?", "n", "p"} <= shown
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_single_keys_can_be_turned_off(visit: Open) -> None:
    """Off, neither our keys nor the theme's act, and that is kept; Tab and space still do."""
    page = visit(CARD)
    page.locator('[data-pd-open="help"]').click()
    page.get_by_role("checkbox").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    address = page.url
    for name in ("l", "j", "/", "?", "n", "p"):
        page.keyboard.press(name)
    page.wait_for_timeout(150)
    assert page.url == address
    assert page.locator("html").get_attribute("data-pd-mode") == "zh"
    assert page.locator("dialog[open]").count() == 0
    page.evaluate("window.pd.set('depth', 'deep')")
    page.locator('[data-lang="zh"] summary').first.focus()
    page.keyboard.press("Space")
    assert opened(page)[0]


def test_keys_leave_writing_alone(visit: Open) -> None:
    """In a field a letter is a letter."""
    page = visit(CARD)
    page.keyboard.press("/")
    page.keyboard.type("jkl?/")
    assert page.get_by_role("combobox").first.input_value() == "jkl?/"
    assert page.locator("html").get_attribute("data-pd-mode") == "zh"


def test_the_themes_keys_turn_pages(visit: Open) -> None:
    """The keys n and p go to the next card and back, as in the theme."""
    page = visit(CARD)
    page.keyboard.press("n")
    page.wait_for_url(lambda url: CARD not in url)
    page.keyboard.press("p")
    page.wait_for_url(f"**/{CARD}")


# --- depth ---------------------------------------------------------------------------------------


def sections(page) -> list[str]:
    """The sections that are shown."""
    return page.locator(".pd-section:visible").evaluate_all(
        "(all) => all.map((each) => each.dataset.section)"
    )


def test_depth_hides_what_is_deeper(visit: Open) -> None:
    """Two minutes at first; 30 seconds show what is said and pictured, deep everything; what is chosen is kept."""
    page = visit(CARD, mode="en")
    assert sections(page) == [*SHORT, "insights", "example"]
    page.get_by_role("button", name="30 s").click()
    assert sections(page) == SHORT
    page.reload()
    assert sections(page) == SHORT
    page.locator(".pd-more").click()
    assert sections(page) == [*SHORT, "insights", "example"]
    page.locator(".pd-more").click()
    assert len(sections(page)) == 13
    assert not page.locator(".pd-more").is_visible()


def test_a_link_into_the_depth_brings_it_back(visit: Open) -> None:
    """With 30 seconds chosen, an address inside the derivation shows it, for this visit only."""
    page = visit(CARD, mode="en")
    page.evaluate("window.pd.set('depth', 'answer')")
    page.goto(page.url + "#derivation")
    page.reload()
    assert page.locator("#derivation").is_visible()
    page.goto(page.url.split("#")[0])
    assert sections(page) == SHORT


# --- claims --------------------------------------------------------------------------------------


def test_focus_shows_the_proof(visit: Open) -> None:
    """The number as printed, then what was found, how, on what and when; it is read out, and Esc closes it."""
    page = visit(CARD, mode="en")
    claim = page.locator(
        '[data-lang="en"] [href="#ev-activation_checkpointing-peak_segments"]'
    ).first
    claim.focus()
    tip = page.get_by_role("tooltip")
    assert claim.get_attribute("aria-describedby") == tip.get_attribute("id")
    printed, verdict, found, how, where = filter(None, tip.inner_text().split("\n"))
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    [metric] = [each for each in record["result"]["metrics"] if each["name"] == "peak_segments"]
    assert printed == claim.inner_text() == "9.0"
    assert "Proven" in verdict
    assert found == f"{metric['value']:.6g} {metric['label']['en']}"
    assert how == f"exact {metric['how']['en']}"
    assert where.startswith("CPU · PyTorch ")
    assert where.endswith(record["recorded"])
    assert (
        page.locator(".pd-tip code").inner_text() == "proofdeck demo run activation_checkpointing"
    )
    page.keyboard.press("Escape")
    assert page.get_by_role("tooltip").count() == 0
    assert claim.evaluate("(each) => each === document.activeElement")


def test_tab_reaches_the_command(visit: Open) -> None:
    """From the number, Tab goes to the button that copies the command which proves it."""
    page = visit(CARD)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(f"{MEASURED}:visible").first.focus()
    page.keyboard.press("Tab")
    assert page.locator(".pd-tip .pd-copy:focus").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_selector(".pd-copy[data-pd-copied]")
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("proofdeck demo run ")


def test_the_pointer_may_rest_on_the_proof(visit: Open) -> None:
    """Hover shows it, moving onto it keeps it, leaving hides it."""
    page = visit(CARD)
    claim = page.locator(".pd-claim:visible").first
    claim.hover()
    tip = page.locator(".pd-tip")
    tip.wait_for()
    tip.hover()
    page.wait_for_timeout(400)
    assert tip.is_visible()
    page.mouse.move(5, 5)
    tip.wait_for(state="detached")


def test_a_finger_sees_the_proof_first(visit: Open) -> None:
    """The first touch shows it, the second goes to the evidence."""
    page = visit(CARD, phone=True)
    claim = page.locator(".pd-claim:visible").first
    claim.tap()
    page.locator(".pd-tip").wait_for()
    assert "#" not in page.url
    claim.tap()
    page.wait_for_url("**#ev-*")


def test_states_differ_by_more_than_colour(visit: Open) -> None:
    """Each state has its own mark and its own line."""
    page = visit(CARD)
    looks = page.evaluate(
        """(states) => states.map((verdict) => {
          const claim = document.querySelector(".pd-claim");
          claim.dataset.verdict = verdict;
          const { textDecorationLine, textDecorationStyle } = getComputedStyle(claim);
          return [`${textDecorationLine} ${textDecorationStyle}`, getComputedStyle(claim, "::after").content];
        })""",
        list(STATES),
    )
    lines, marks = zip(*looks, strict=True)
    assert len(set(lines)) == len(set(marks)) == len(STATES)
    assert all(STATE_MARKS[state] in mark for state, mark in zip(STATES, marks, strict=True))


def test_marks_are_read_aloud_in_the_language_around_them(visit: Open) -> None:
    """A screen reader names what became of a number, in Chinese and in English, and tells all apart."""
    page = visit(CARD, mode="both")
    for language, script in (("zh-Hans", r"[\u4e00-\u9fff]"), ("en", "[a-z]{5}")):
        claim = page.locator(f'.pd-half[lang="{language}"] {MEASURED}:visible').first
        names = []
        for state in STATES:
            claim.evaluate("(link, state) => { link.dataset.verdict = state; }", state)
            names.append(claim.aria_snapshot().splitlines()[0])
        assert len(set(names)) == len(STATES), names
        assert all(re.search(script, name.split('"')[1]) for name in names), names


def test_the_popover_has_words_for_every_state(visit: Open) -> None:
    """Whatever became of a number, its proof says so in both languages, and not as another does."""
    page = visit(CARD, mode="both")
    said = []
    for state in STATES:
        claim = page.locator(f"{MEASURED}:visible").first
        claim.evaluate("(link, state) => { link.dataset.verdict = state; }", state)
        claim.focus()
        said.append(page.locator(".pd-tip-verdict").text_content() or "")
        page.keyboard.press("Escape")
        claim.blur()
    assert len(set(said)) == len(STATES)
    assert all(STATE_MARKS[s] in words for s, words in zip(STATES, said, strict=True)), said


# --- reading state -------------------------------------------------------------------------------


def test_reading_state_shows_where_cards_are_listed(visit: Open) -> None:
    """A card that was opened, and one that is marked as known, are marked in their module's list."""
    page = visit(CARD, mode="en")
    page.locator(".pd-mark").click()
    page.wait_for_timeout(100)
    page.goto(page.url.split("cards/")[0] + "deep-learning/")
    row = page.locator('li[data-card="activation-checkpointing"]')
    assert row.get_by_role("img", name="known").is_visible()


def test_nothing_breaks_without_storage(visit: Open) -> None:
    """Where the browser forbids storage, as some do to files, the handbook works and forgets."""
    page = visit("handbook", mode=None)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no') } })"
    )
    page.reload()
    page.keyboard.press("l")
    assert page.locator("html").get_attribute("data-pd-mode") == "en"


def test_a_card_that_changed_since_it_was_read_says_so(visit: Open) -> None:
    """At its head and where it is listed, with both days; once its new text is read it is as any other."""
    page = visit("cards/lora-memory/", mode="en")
    updated = page.locator("article.pd-card").get_attribute("data-updated") or ""
    listed = '.pd-chip[data-card="lora-memory"] .pd-state'
    for state, told in (
        ({"opened": "2020-01-02"}, "2020-01-02"),  # as it was kept before texts had days
        ({"opened": "2020-01-02", "text": "2021-03-04", "known": True}, "2021-03-04"),
        ({"opened": updated}, ""),
        ({"opened": "2020-01-02", "text": updated}, ""),
        ({"known": True}, ""),
    ):
        keep = "(state) => localStorage.setItem('proofdeck.reading', JSON.stringify({'lora-memory': state}))"
        page.evaluate(keep, state)
        page.goto(page.url.replace("/lora-memory/", "/saved-tensors/"))
        sign = page.locator(listed).first
        assert (sign.text_content() == "↻") == bool(told), state
        page.goto(page.url.replace("/saved-tensors/", "/lora-memory/"))
        said = page.locator(".pd-head .pd-changed")
        assert said.count() == bool(told), state
        if told:
            assert updated in said.inner_text()
            assert told in said.inner_text()
    page.locator('[data-section="insights"]').scroll_into_view_if_needed()
    page.wait_for_function(
        "(day) => JSON.parse(localStorage['proofdeck.reading'])['lora-memory'].text === day",
        arg=updated,
    )
    page.reload()
    assert page.locator(".pd-changed").count() == 0
