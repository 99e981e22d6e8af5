"""Search in both languages, and arrival at what was found."""

from __future__ import annotations

from tests.browser.conftest import Open

CARD = "cards/memory-budget/"


def search(page, query: str) -> list[str]:
    """Type the query and give the ids of the cards found, best first."""
    if not page.locator(".pd-search[open]").count():
        page.keyboard.press("/")
    field = page.get_by_role("combobox").first
    field.fill(query)
    page.wait_for_function(
        "(query) => document.querySelector('.pd-search').dataset.query === query", arg=query
    )
    hits = page.locator(".pd-hit-card").evaluate_all("(all) => all.map((each) => each.href)")
    return [part.split("/cards/")[1].split("/")[0] if "/cards/" in part else part for part in hits]


def test_words_parts_of_words_and_aliases_find_their_card(visit: Open) -> None:
    """Whole titles, inner 汉字 (from one up), beginnings of words, aliases and abbreviations."""
    page = visit(CARD)
    for query, card in {
        "平方根法则": "checkpoint-sqrt-rule",
        "方根": "checkpoint-sqrt-rule",
        "检查点": "activation-checkpointing",
        "重计算": "activation-checkpointing",
        "checkpointing": "activation-checkpointing",
        "Checkpo": "activation-checkpointing",
        "chekpointing": "activation-checkpointing",
        "sqrt rule": "checkpoint-sqrt-rule",
        "FA2": "flash-attention",
        "注意力 显存": "flash-attention",
        "注意力显存": "flash-attention",
        "账": "memory-budget",
    }.items():
        assert card in search(page, query)[:3], query


def test_titles_come_before_texts(visit: Open) -> None:
    """A card called by the words comes first, though others speak of them more often."""
    page = visit(CARD, mode="en")
    assert search(page, "activation checkpointing")[0] == "activation-checkpointing"
    assert search(page, "FlashAttention")[0] == "flash-attention"


def test_nonsense_finds_nothing(visit: Open) -> None:
    """No card has all the words, and the dialog says so."""
    page = visit(CARD)
    assert search(page, "qqxxzz 饕餮") == []
    assert "没有找到" in page.locator(".pd-search-status").inner_text()


def test_filters_narrow_the_search(visit: Open) -> None:
    """By difficulty, tag and state of proof; a filter alone lists its cards."""
    page = visit(CARD)
    assert search(page, "显存")
    about = page.locator(".pd-hit-about").all_inner_texts()
    assert not all("深入" in each for each in about)
    page.locator("select[name=difficulty]").select_option("hard")
    hard = page.locator(".pd-hit-about").all_inner_texts()
    assert hard
    assert all("深入" in each for each in hard)
    page.get_by_role("combobox").first.fill("")
    page.wait_for_function("document.querySelector('.pd-search').dataset.query === ''")
    listed = page.locator(".pd-hit-about").all_inner_texts()
    assert listed
    assert all("深入" in each for each in listed)


def test_search_opens_in_four_ways(visit: Open) -> None:
    """Three keys and the button in the header."""
    page = visit(CARD)
    for opener in ("/", "s", "f", "button"):
        if opener == "button":
            page.locator('[data-pd-open="search"]').click()
        else:
            page.keyboard.press(opener)
        field = page.get_by_role("combobox").first
        assert field.evaluate("(e) => e === document.activeElement"), opener
        page.keyboard.press("Escape")
        assert page.locator(".pd-search[open]").count() == 0


def test_a_hit_opens_its_section_with_the_words_lit(visit: Open) -> None:
    """Arrow and Enter go to the matching follow-up: open, in view, its words highlighted."""
    page = visit(CARD)
    search(page, "逐位")
    hit = page.locator('.pd-hit-part[href*="activation-checkpointing"]').first
    section = (hit.get_attribute("href") or "").split("#")[1]
    hit.click()
    page.wait_for_url(f"**/cards/activation-checkpointing/**#{section}")
    page.wait_for_function("CSS.highlights.get('pd-search')?.size > 0")
    lit = page.evaluate("[...CSS.highlights.get('pd-search')].map((range) => String(range))")
    assert set(lit) == {"逐位"}
    box = page.evaluate(
        """() => {
          const seen = [...CSS.highlights.get("pd-search")].filter((range) => range.getClientRects().length);
          return seen[0].getBoundingClientRect().top / innerHeight;
        }"""
    )
    assert 0 < box < 1
    assert "q=" not in page.url


def test_a_match_in_the_other_language_is_shown(visit: Open) -> None:
    """English words found by a reader of Chinese open side by side, for this visit only."""
    page = visit(CARD, mode="zh")
    search(page, "bit-equal")
    with page.expect_navigation(url="**/cards/**"):
        page.keyboard.press("Enter")
    part = page.locator("html").get_attribute("data-pd-mode")
    assert part in ("zh", "both")
    page.goto(page.url.split("#")[0].split("?")[0])
    assert page.locator("html").get_attribute("data-pd-mode") == "zh"


def test_the_keyboard_alone_finds_and_opens(visit: Open) -> None:
    """Type, arrow down, Enter."""
    page = visit(CARD)
    search(page, "平方根")
    page.keyboard.press("ArrowDown")
    chosen = page.locator('[role="option"][aria-selected="true"]')
    assert chosen.count() == 1
    assert page.get_by_role("combobox").first.get_attribute(
        "aria-activedescendant"
    ) == chosen.get_attribute("id")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cards/checkpoint-sqrt-rule/**")


def test_the_handbook_searches_offline(visit: Open) -> None:
    """From a disk, without a network: found, opened and lit."""
    page = visit("handbook", offline=True)
    assert search(page, "平方根法则")[0].endswith("#card-checkpoint-sqrt-rule")
    page.locator(".pd-hit-part").first.click()
    page.wait_for_function("CSS.highlights.get('pd-search')?.size > 0")
    assert page.locator("#card-checkpoint-sqrt-rule").is_visible()
    assert not page.locator("#card-memory-budget").is_visible()
