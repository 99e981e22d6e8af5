"""What the browser keeps is never lost to another tab, a full storage, a broken file or garbage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.browser.conftest import Built, Open, address

CARD = "cards/activation-checkpointing/"
SOUND = {
    "due": "2026-02-02T00:00:00.000Z",
    "last_review": "2026-02-01T00:00:00.000Z",
    "stability": 2,
    "difficulty": 5,
    "reps": 1,
    "lapses": 0,
    "state": 2,
    "scheduled_days": 1,
    "elapsed_days": 0,
    "learning_steps": 0,
}


def progress(items: dict[str, Any], log: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """A progress as it is kept and exported."""
    return {"version": 1, "items": items, "log": log or []} | more


def kept(page) -> dict[str, Any]:
    """The progress that the browser keeps."""
    found = page.evaluate("JSON.parse(localStorage.getItem('proofdeck.study'))")
    return found or progress({})


def keep(page, text: str, key: str = "study") -> None:
    """Put a text into the storage, and open the page anew."""
    page.evaluate("([key, text]) => localStorage.setItem(`proofdeck.${key}`, text)", [key, text])
    page.reload()


def ready(page) -> None:
    """Wait for the overview."""
    page.locator(".pd-start").wait_for()


def begin(page, path: str = "") -> None:
    """Start a round of pitfalls, of one learning path where it is named."""
    ready(page)
    page.locator("[data-pd-study] select[name=kind]").select_option("pitfall")
    page.locator("[data-pd-study] select[name=path]").select_option(path)
    page.locator(".pd-start").click()
    page.locator(".pd-back > .pd-primary").wait_for()


def rate(page, rating: int = 3) -> None:
    """Turn the card that is asked, and rate it."""
    page.locator(".pd-back > .pd-primary").click()
    page.locator(f'[data-rating="{rating}"]').click()
    page.wait_for_function("!document.querySelector('.pd-ratings')")


def choose(page, name: str, file: Path) -> None:
    """Give a file to one of the buttons below the overview."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=name).click()
    chooser.value.set_files(file)


def written(folder: Path, value: object) -> Path:
    """The value as a file."""
    file = folder / "progress.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return file


# --- tabs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["study/", "handbook#study"])
def test_two_tabs_keep_each_others_ratings(visit: Open, built: Built, path: str) -> None:
    """Both began with nothing; each rates three items in turn, and all six reviews are kept by both."""
    one = visit(path)
    other = one.context.new_page()
    other.goto(address(built, path, "zh"))
    begin(one)
    begin(other, "first-interview")
    for _ in range(3):
        rate(one)
        rate(other, 2)
    for page in (one, other):
        page.wait_for_function(
            "JSON.parse(localStorage.getItem('proofdeck.study')).log.length === 6"
        )
    log = kept(one)["log"]
    assert sorted(rating for _, rating, _ in log) == [2, 2, 2, 3, 3, 3]
    assert kept(one)["items"].keys() == {item for item, _, _ in log}


def test_a_tab_that_hears_nothing_reads_before_it_writes(visit: Open, built: Built) -> None:
    """Where no event tells of the other tab, as in a page that was frozen, its reviews are kept all the same."""
    one = visit("study/")
    one.context.add_init_script(
        "window.addEventListener('storage', (event) => event.stopImmediatePropagation(), true)"
    )
    one.reload()
    other = one.context.new_page()
    other.goto(address(built, "study/", "zh"))
    begin(one)
    begin(other, "first-interview")
    for rating in (1, 2):
        rate(one, rating)
        rate(other, rating + 2)
    one.wait_for_function("JSON.parse(localStorage.getItem('proofdeck.study')).log.length === 4")
    assert sorted(rating for _, rating, _ in kept(one)["log"]) == [1, 2, 3, 4]


def test_an_item_rated_in_two_tabs_keeps_the_later_review(visit: Open, built: Built) -> None:
    """The second tab reviews on top of the first: two reviews, of which the later one schedules."""
    one = visit("study/")
    begin(one)
    other = one.context.new_page()
    other.goto(address(built, "study/", "zh"))
    begin(other)
    rate(one, 4)
    rate(other, 1)
    found = kept(one)
    ((item, schedule),) = found["items"].items()
    assert [(name, rating) for name, rating, _ in found["log"]] == [(item, 4), (item, 1)]
    assert schedule["reps"] == 2
    assert schedule["last_review"] == found["log"][-1][2]


def test_an_overview_follows_the_other_tab(visit: Open, built: Built) -> None:
    """What is rated elsewhere leaves the new ones here, without a reload."""
    one = visit("study/")
    ready(one)
    new = int(one.locator(".pd-counts dd").nth(1).inner_text())
    other = one.context.new_page()
    other.goto(address(built, "study/", "zh"))
    begin(other)
    rate(other)
    one.wait_for_function(
        "(n) => document.querySelectorAll('.pd-counts dd')[1].textContent === String(n)",
        arg=new - 1,
    )


def test_a_replaced_progress_does_not_come_back_from_another_tab(
    visit: Open, built: Built, tmp_path: Path
) -> None:
    """A tab that still holds what was replaced adds its later reviews, and nothing older."""
    one = visit("study/")
    keep(one, json.dumps(progress({"old#1": SOUND})))
    ready(one)
    other = one.context.new_page()
    other.goto(address(built, "study/", "zh"))
    begin(other)
    choose(one, "用文件替换", written(tmp_path, progress({"new#1": SOUND})))
    one.get_by_role("dialog").get_by_role("button", name="替换").click()
    one.get_by_text("共 1 条进度").wait_for()
    rate(other)
    # What one tab writes another one sees a little later.
    one.wait_for_function(
        "Object.keys(JSON.parse(localStorage.getItem('proofdeck.study')).items).length > 1"
    )
    items = kept(one)["items"].keys()
    assert "new#1" in items
    assert "old#1" not in items
    assert len(items) == 2


# --- a write that fails --------------------------------------------------------------------------

FILL = """() => {
  for (let size = 1 << 23; size; size >>= 1) {
    for (let more = true; more; ) {
      try { localStorage.setItem("filler", (localStorage.getItem("filler") || "") + "x".repeat(size)); }
      catch { more = false; }
    }
  }
}"""


def test_a_full_storage_is_said_and_nothing_is_lost(visit: Open, tmp_path: Path) -> None:
    """The notice stays through the round and after it; its Export holds the ratings; space ends it."""
    page = visit("study/")
    begin(page)
    page.evaluate(FILL)
    rate(page)
    notice = page.get_by_role("alert")
    notice.wait_for()
    rate(page)
    assert notice.is_visible()
    page.get_by_role("button", name="结束").click()
    ready(page)
    assert notice.is_visible()
    with page.expect_download() as download:
        notice.get_by_role("button", name="导出").click()
    download.value.save_as(tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert len(saved["log"]) == len(saved["items"]) == 2
    assert len(kept(page)["log"]) == 0
    notice.get_by_role("button", name="再试一次").click()
    assert notice.is_visible()
    page.evaluate("localStorage.removeItem('filler')")
    notice.get_by_role("button", name="再试一次").click()
    notice.wait_for(state="detached")
    assert kept(page) == saved


@pytest.mark.parametrize("path", ["study/", "handbook#study"])
def test_without_storage_it_is_said_at_once(visit: Open, path: str) -> None:
    """Where the browser forbids storage, study goes on, warns from the start, and can export."""
    page = visit(path)
    page.add_init_script(
        """Object.defineProperty(window, "localStorage", {
          get() { throw new DOMException("no") }, configurable: true })"""
    )
    page.reload()
    page.get_by_role("alert").wait_for()
    begin(page)
    rate(page)
    with page.expect_download() as download:
        page.get_by_role("alert").get_by_role("button", name="导出").click()
    assert len(json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["log"]) == 1


def test_a_mark_that_is_not_kept_is_said(visit: Open) -> None:
    """The mark "I know this" holds on the page, which says that it was not stored."""
    page = visit(CARD)
    page.wait_for_load_state("networkidle")
    page.evaluate(FILL)
    page.locator(".pd-mark").click()
    assert page.locator(".pd-mark").get_attribute("aria-pressed") == "true"
    assert page.locator(".pd-mark-line").get_by_text("没有存下").is_visible()


# --- what is read --------------------------------------------------------------------------------

BROKEN: dict[str, object] = {
    "no date": SOUND | {"due": "soon"},
    "a date of the year 275760": SOUND | {"due": "+275760-09-13T00:00:00.000Z"},
    "a review of the year 275760": SOUND | {"last_review": "+275760-09-13T00:00:00.000Z"},
    "before 1970": SOUND | {"last_review": "-000001-01-01T00:00:00Z"},
    "no review": {name: each for name, each in SOUND.items() if name != "last_review"},
    "a number for a date": SOUND | {"due": 0},
    "no stability": SOUND | {"stability": None},
    "negative": SOUND | {"stability": -1},
    "not known to the scheduler": SOUND | {"state": 7},
    "no difficulty": SOUND | {"difficulty": 0},
    "a text": "2026-01-01",
    "nothing": None,
    "a list": [1, 2],
}


def test_what_cannot_be_scheduled_is_counted_and_set_aside(visit: Open, built: Built) -> None:
    """Bad items stop no round: they are refused with their number, and can be exported as they stood."""
    found = json.loads((built.site / "study.json").read_text(encoding="utf-8"))
    names = [item["id"] for item in found["items"] if item["kind"] == "pitfall"]
    items = dict(zip(names, BROKEN.values(), strict=False)) | {
        "__proto__": SOUND,
        "constructor": SOUND,
    }
    log = [["a#1", 3, "2026-01-01T00:00:00Z"], ["a#1", 9, "2026-01-01T00:00:00Z"], None, ["a#1"]]
    good = {names[len(BROKEN)]: SOUND}
    text = json.dumps(progress(items | good, log))
    page = visit("study/")
    keep(page, text)
    ready(page)
    notice = page.locator(".pd-notices [role=status]")
    assert f"有 {len(items) + 3} 条" in notice.inner_text()
    with page.expect_download() as download:
        notice.get_by_role("button", name="导出").click()
    aside = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert [each["text"] for each in aside] == [text]
    begin(page)
    for _ in range(len(BROKEN)):
        rate(page)
    after = kept(page)
    assert len(after["items"]) == len(BROKEN)
    assert len(after["log"]) == len(BROKEN) + 1
    page.reload()
    ready(page)
    assert notice.is_visible()
    notice.get_by_role("button", name="丢弃").click()
    notice.wait_for(state="detached")


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_says_what_it_refuses(visit: Open, tmp_path: Path, name: str) -> None:
    """Of two entries the sound one is taken; the other is counted."""
    page = visit("study/")
    ready(page)
    choose(page, "合并文件", written(tmp_path, progress({"a#1": SOUND, "b#1": BROKEN[name]})))
    page.get_by_text("文件中有 1 条无法排期").wait_for()
    assert kept(page)["items"] == {"a#1": SOUND}


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"version": 2, "items": {}, "log": []}', '{"version": 1, "items": []}',
     "[" * 200_000, '"' + "x" * 100_000 + '"'],
    ids=["empty", "null", "list", "half", "newer", "no-log", "deep", "long"],
)  # fmt: skip
def test_a_file_that_is_no_progress_changes_nothing(visit: Open, tmp_path: Path, text: str) -> None:
    """It is refused with a word, by either button."""
    page = visit("study/")
    keep(page, json.dumps(progress({"a#1": SOUND})))
    ready(page)
    for button in ("合并文件", "用文件替换"):
        choose(page, button, written(tmp_path, text))
        page.get_by_text("不是学习进度").wait_for()
        assert kept(page)["items"] == {"a#1": SOUND}


def test_a_newer_format_is_not_written_over_unseen(visit: Open) -> None:
    """What a later version stored is set aside whole before this one writes."""
    page = visit("study/")
    newer = '{"version":2,"decks":[1,2,3]}'
    keep(page, newer)
    begin(page)
    rate(page)
    aside = page.evaluate("JSON.parse(localStorage.getItem('proofdeck.study-aside'))")
    assert [each["text"] for each in aside] == [newer]
    assert len(kept(page)["log"]) == 1


def test_a_clock_that_was_ahead_stops_nothing(visit: Open, built: Built) -> None:
    """An item reviewed in the future is kept; rated again, the new review counts in every tab."""
    found = json.loads((built.site / "study.json").read_text(encoding="utf-8"))
    name = next(item["id"] for item in found["items"] if item["kind"] == "pitfall")
    ahead = SOUND | {"last_review": "2199-01-01T00:00:00.000Z", "due": "2026-01-01T00:00:00.000Z"}
    page = visit("study/")
    keep(page, json.dumps(progress({name: ahead})))
    begin(page)
    rate(page, 1)
    page.reload()
    ready(page)
    assert kept(page)["items"][name]["reps"] == 2
    assert page.locator(".pd-notices [role=status]").count() == 0


# --- former ids ----------------------------------------------------------------------------------


def test_a_renamed_card_keeps_its_schedules_and_its_mark(visit: Open) -> None:
    """Progress under a former id moves to the new one, and the later review of the two stays."""
    page = visit("study/")

    def renamed(route) -> None:
        data = route.fetch().json()
        data["successors"] = {"old-name": "flash-attention"}
        route.fulfill(json=data)

    page.context.route("**/study.json", renamed)
    later = SOUND | {"last_review": "2026-03-01T00:00:00.000Z", "due": "2026-03-02T00:00:00.000Z"}
    items = {"old-name#a": SOUND, "old-name#b": later, "flash-attention#b": SOUND}
    keep(page, json.dumps(progress(items, [["old-name#a", 3, SOUND["last_review"]]])))
    begin(page)
    rate(page)
    found = kept(page)
    assert found["items"]["flash-attention#a"] == SOUND
    assert found["items"]["flash-attention#b"] == later
    assert not [name for name in found["items"] if name.startswith("old-name")]
    assert found["log"][0][0] == "flash-attention#a"

    def article(route) -> None:
        html = route.fetch().text()
        mark = 'data-card="activation-checkpointing" '
        route.fulfill(
            body=html.replace(mark, mark + 'data-formerly="once then" ', 1),
            content_type="text/html",
        )

    page.context.route(f"**/{CARD}", article)
    keep(page, '{"then": {"known": true}}', "reading")
    page.goto(page.url.split("study/")[0] + CARD)
    assert page.locator(".pd-mark").get_attribute("aria-pressed") == "true"
    page.context.unroute_all()


# --- replacing -----------------------------------------------------------------------------------


def test_replacing_asks_and_can_be_undone(visit: Open, tmp_path: Path) -> None:
    """No leaves everything; yes replaces; undo, after a reload too, brings back what was, and reviews since."""
    page = visit("study/")
    keep(page, json.dumps(progress({"a#1": SOUND, "b#1": SOUND})))
    ready(page)
    file = written(tmp_path, progress({"c#1": SOUND}))
    choose(page, "用文件替换", file)
    dialog = page.get_by_role("dialog")
    assert "1 条进度替换这里的 2 条" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert kept(page)["items"].keys() == {"a#1", "b#1"}
    choose(page, "用文件替换", file)
    dialog.get_by_role("button", name="替换").click()
    page.get_by_text("共 1 条进度").wait_for()
    assert kept(page)["items"].keys() == {"c#1"}
    page.reload()
    begin(page)
    rate(page)
    (since,) = kept(page)["items"].keys() - {"c#1"}
    page.get_by_role("button", name="结束").click()
    page.get_by_role("button", name="撤销替换").click()
    page.get_by_text("已恢复").wait_for()
    assert kept(page)["items"].keys() == {"a#1", "b#1", since}
    page.reload()
    ready(page)
    assert page.get_by_role("button", name="撤销替换").count() == 0


# --- garbage in any key --------------------------------------------------------------------------

KEYS = ("settings", "reading", "study", "study-before", "study-aside")
names = st.sampled_from(
    ["mode", "depth", "keys", "scheme", "items", "log", "version", "replaced", "progress", "text",
     "refused", "activation-checkpointing", "a#1", "__proto__", "constructor", "due", "last_review"]
)  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), names,
    st.sampled_from(["+275760-09-13T00:00:00.000Z", "2026-01-01", "both", "1e999", "9" * 400]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
garbage = st.one_of(
    values.map(json.dumps),
    st.text(max_size=20),
    st.sampled_from(
        ["null", "[" * 100_000, '"' + "x" * 1_000_000 + '"', '{"__proto__":{"known":true}}']
    ),
    values.map(lambda value: json.dumps({"version": 1, "items": value, "log": value})),
    values.map(lambda value: json.dumps({"version": 1, "items": {"a#1": value}, "log": [value]})),
    st.fixed_dictionaries(dict.fromkeys(SOUND, leaves)).map(
        lambda value: json.dumps({"version": 1, "items": {"a#1": value}, "log": []})
    ),
)


@pytest.fixture
def alive(visit: Open, built: Built):
    """Whether a card, the settings and study work with the given texts in storage."""
    page = visit(CARD)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def check(texts: dict[str, str]) -> None:
        page.evaluate(
            """(texts) => {
              localStorage.clear();
              for (const [key, text] of Object.entries(texts)) localStorage.setItem(`proofdeck.${key}`, text);
              localStorage.setItem("/.__palette", texts.settings);
            }""",
            texts,
        )
        page.goto(address(built, CARD))
        assert page.locator("html").get_attribute("data-pd-mode") in ("zh", "en", "both")
        assert page.locator("html").get_attribute("data-pd-depth") in ("answer", "brief", "deep")
        page.keyboard.press("l")
        page.evaluate("window.pd.set('depth', 'deep')")
        before = page.locator(".pd-mark").get_attribute("aria-pressed")
        page.locator(".pd-mark").click()
        assert page.locator(".pd-mark").get_attribute("aria-pressed") != before
        page.goto(address(built, "study/", "zh"))
        begin(page)
        rate(page)
        assert len(kept(page)["items"]) >= 1
        assert wrong == []

    return check


def test_null_in_every_key_kills_nothing(alive) -> None:
    """The text ``null`` is no state."""
    alive(dict.fromkeys(KEYS, "null"))


@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.fixed_dictionaries(dict.fromkeys(KEYS, garbage)))
def test_garbage_in_any_key_kills_nothing(alive, texts: dict[str, str]) -> None:
    """Whatever stands in storage, reading, depth, language and study go on."""
    alive(texts)
