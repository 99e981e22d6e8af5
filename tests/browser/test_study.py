"""Study mode: rounds by keyboard, numbers by their tolerance, schedules that last, files that merge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Built, Open


def state(page) -> dict[str, Any]:
    """What the browser keeps."""
    return page.evaluate(
        "JSON.parse(localStorage.getItem('proofdeck.study')) || {items: {}, log: []}"
    )


def ready(page) -> None:
    """Wait for the overview."""
    page.locator(".pd-start").wait_for()


@pytest.mark.parametrize("path", ["study/", "handbook#study"])
def test_a_round_of_twenty_by_keyboard_alone(visit: Open, path: str) -> None:
    """Space starts and turns, 1 to 4 rate, numbers are typed; twenty items get a schedule."""
    page = visit(path, offline=path.startswith("handbook"))
    ready(page)
    page.keyboard.press("Space")
    for number in range(20):
        page.wait_for_function(
            "(n) => document.querySelector('.pd-count')?.textContent === `${n + 1} / 20`",
            arg=number,
        )
        if page.locator(".pd-typed").count():
            page.keyboard.type("1")
            page.keyboard.press("Enter")
        else:
            page.locator(".pd-back > .pd-primary:focus").wait_for()
            page.keyboard.press("Space")
        page.locator(".pd-ratings").wait_for()
        assert page.locator(".pd-answer-face").inner_text().strip()
        page.keyboard.press("1234"[number % 4])
    page.locator(".pd-result").wait_for()
    assert "20" in page.locator(".pd-result").inner_text()
    kept = state(page)
    assert len(kept["items"]) == 20
    assert len(kept["log"]) == 20


def test_a_round_works_with_single_keys_off(visit: Open) -> None:
    """Enter on what is in focus is enough."""
    page = visit("study/")
    ready(page)
    page.evaluate("window.pd.set('keys', 'off')")
    page.locator("select[name=kind]").select_option("followup")
    page.locator(".pd-start").focus()
    for _ in range(3):
        page.keyboard.press("Enter")
        page.locator(".pd-back > .pd-primary:focus").wait_for()
        page.keyboard.press("Enter")
        page.locator(".pd-ratings .pd-primary:focus").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_function("JSON.parse(localStorage.getItem('proofdeck.study')).log.length === 3")


def first_number(page, built: Built) -> dict[str, Any]:
    """Start a round of numbers; what is asked first."""
    ready(page)
    page.locator("select[name=kind]").select_option("number")
    page.locator(".pd-start").click()
    page.locator(".pd-typed").wait_for()
    items = json.loads((built.site / "study.json").read_text(encoding="utf-8"))["items"]
    asked = page.locator("label .pd-half:visible").inner_text()
    return next(i for i in items if i["kind"] == "number" and i["ask"]["zh"] == asked)


@pytest.mark.parametrize(
    ("off", "score"),
    [(0, "right"), (0.9, "right"), (1.2, "close"), ("far", "wrong"), ("?", "unread")],
)
def test_a_typed_number_is_scored_by_its_own_tolerance(
    visit: Open, built: Built, off: float | str, score: str
) -> None:
    """Within half a unit of the last digit printed is right; near is close; else it is wrong."""
    page = visit("study/")
    item = first_number(page, built)
    if off == "?":
        typed = "不知道"
    else:
        value = item["value"] * 3 if off == "far" else item["value"] + item["tolerance"] * off
        typed = f"{value / item['factor']:.9g}" + item["text"]["zh"].lstrip("0123456789.,−- ")
    if score == "close" and item["tolerance"] * 1.2 > item["value"] * 0.05:
        score = "wrong"
    page.locator(".pd-typed").fill(typed)
    page.keyboard.press("Enter")
    assert page.locator(".pd-score").get_attribute("data-score") == score


def test_numbers_are_read_as_people_write_them(visit: Open) -> None:
    """Units in both languages, separators, powers and fractions; a bare number has the printed unit."""
    page = visit("study/")
    ready(page)
    share = {"value": 0.333, "tolerance": 0.0005, "unit": "", "factor": 0.01}
    size = {"value": 1024, "tolerance": 0.5, "unit": "B", "factor": 1}
    each = {"value": 16, "tolerance": 0.5, "unit": "B/param", "factor": 1}
    error = {"value": 1.2e-6, "tolerance": 5e-8, "unit": "", "factor": 1}
    third = {"value": 1 / 3, "tolerance": 0, "unit": "", "factor": 1}
    many = {"value": 30000, "tolerance": 0.5, "unit": "", "factor": 1}
    for typed, item, score in [
        ("33.3%", share, "right"),
        ("33.3", share, "right"),
        ("0.333", share, "right"),
        ("33%", share, "close"),
        ("1 KiB", size, "right"),
        ("1,024 字节", size, "right"),
        ("1.024 KB", size, "right"),
        ("5 furlongs", size, "unread"),
        ("16 字节/参数", each, "right"),
        ("16 B/param", each, "right"),
        ("16", each, "right"),
        ("12", each, "wrong"),
        ("1.2e-6", error, "right"),
        ("1.2×10⁻⁶", error, "right"),
        ("1.2 x 10^-6", error, "right"),
        ("1/3", third, "right"),
        ("3 万", many, "right"),
    ]:
        found = page.evaluate("([text, item]) => window.pd.score(text, item)", [typed, item])
        assert found == score, typed


def test_progress_is_exported_replaced_and_merged(visit: Open, tmp_path: Path) -> None:
    """Of each item the later review wins, and the log keeps every review of both files once."""
    page = visit("study/")
    ready(page)
    known = {"stability": 2, "difficulty": 5, "reps": 1, "lapses": 0, "state": 2}
    known |= {"scheduled_days": 1, "elapsed_days": 0, "learning_steps": 0}
    page.evaluate(
        """(known) => localStorage.setItem("proofdeck.study", JSON.stringify({ version: 1,
          items: { "a#1": { ...known, due: "2026-01-02T00:00:00Z", last_review: "2026-01-01T00:00:00Z" },
                   "b#1": { ...known, due: "2026-01-09T00:00:00Z", last_review: "2026-01-08T00:00:00Z" } },
          log: [["a#1", 3, "2026-01-01T00:00:00Z"], ["b#1", 3, "2026-01-08T00:00:00Z"]] }))""",
        known,
    )
    page.reload()
    ready(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="导出").click()
    saved = tmp_path / "saved.json"
    download.value.save_as(saved)
    mine = json.loads(saved.read_text(encoding="utf-8"))
    assert mine.keys() >= {"items", "log"}

    other = {
        "version": 1,
        "items": {
            "a#1": known | {"due": "2026-02-02T00:00:00Z", "last_review": "2026-02-01T00:00:00Z"},
            "b#1": known | {"due": "2026-01-05T00:00:00Z", "last_review": "2026-01-04T00:00:00Z"},
            "c#1": known | {"due": "2026-01-05T00:00:00Z", "last_review": "2026-01-04T00:00:00Z"},
        },
        "log": [["a#1", 3, "2026-01-01T00:00:00Z"], ["c#1", 3, "2026-01-04T00:00:00Z"]],
    }
    theirs = tmp_path / "other.json"
    theirs.write_text(json.dumps(other), encoding="utf-8")
    for name in ("合并文件", "合并文件"):  # twice: merging again changes nothing
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=name).click()
        chooser.value.set_files(theirs)
        page.get_by_text("已载入，共 3 条进度").wait_for()
    merged = state(page)
    reviewed = {name: item["last_review"][:10] for name, item in merged["items"].items()}
    assert reviewed == {"a#1": "2026-02-01", "b#1": "2026-01-08", "c#1": "2026-01-04"}
    assert len(merged["log"]) == 3

    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="用文件替换").click()
    chooser.value.set_files(saved)
    page.get_by_role("dialog").get_by_role("button", name="替换").click()
    page.get_by_text("已载入，共 2 条进度").wait_for()
    assert state(page)["items"].keys() == {"a#1", "b#1"}

    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"hello": 1}', encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="合并文件").click()
    chooser.value.set_files(wrong)
    page.get_by_text("不是学习进度").wait_for()
    assert state(page)["items"].keys() == {"a#1", "b#1"}


def test_what_is_due_comes_first_and_an_edit_keeps_the_schedule(visit: Open, built: Built) -> None:
    """An item is known by card and id: the schedule kept under it holds whatever its text says."""
    items = json.loads((built.site / "study.json").read_text(encoding="utf-8"))["items"]
    followups = [item["id"] for item in items if item["kind"] == "followup"]
    page = visit("study/")
    ready(page)
    known = {"stability": 2, "difficulty": 5, "reps": 1, "lapses": 0, "state": 2}
    known |= {"scheduled_days": 1, "elapsed_days": 0, "learning_steps": 0}
    known["last_review"] = "2020-01-01T00:00:00Z"
    kept = {
        followups[5]: known | {"due": "2020-01-02T00:00:00Z"},
        followups[0]: known | {"due": "2999-01-02T00:00:00Z"},
    }
    page.evaluate(
        "(kept) => localStorage.setItem('proofdeck.study', JSON.stringify(kept))",
        {"version": 1, "items": kept, "log": []},
    )
    page.reload()
    ready(page)
    counts = [int(each) for each in page.locator(".pd-counts dd").all_inner_texts()]
    assert counts == [1, len(items) - 2, 1]
    page.locator("summary", has_text="到期清单").click()
    assert page.locator(".pd-due li").count() == 2
    page.locator(".pd-start").click()
    question = next(item for item in items if item["id"] == followups[5])["ask"]["zh"]
    page.locator(".pd-question-face").get_by_text(question[:6]).first.wait_for()


def test_filters_choose_what_is_studied(visit: Open, built: Built) -> None:
    """By kind, path and tag."""
    found = json.loads((built.site / "study.json").read_text(encoding="utf-8"))
    path = found["paths"][0]
    page = visit("study/")
    ready(page)
    page.locator("select[name=path]").select_option(path["id"])
    page.locator("select[name=kind]").select_option("pitfall")
    expected = [i for i in found["items"] if i["kind"] == "pitfall" and i["card"] in path["cards"]]
    counts = [int(each) for each in page.locator(".pd-counts dd").all_inner_texts()]
    assert counts == [0, len(expected), 0]


@pytest.mark.parametrize("path", ["study/", "handbook#study"])
def test_the_answer_is_the_cards_own(visit: Open, path: str) -> None:
    """Formulas, numbers and links of the answer come with it, and lead where they lead on the card."""
    page = visit(path, mode="both")
    ready(page)
    page.locator("select[name=kind]").select_option("pitfall")
    page.locator(".pd-start").click()
    page.locator(".pd-back > .pd-primary").click()
    page.locator(".pd-ratings").wait_for()
    assert page.locator(".pd-answer-face .pd-half").count() == 2
    for link in page.locator(".pd-answer-face a.pd-claim").all():
        target = link.get_attribute("href") or ""
        assert ("/cards/" in target and "#ev-" in target) or "--ev-" in target
