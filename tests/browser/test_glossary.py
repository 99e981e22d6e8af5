"""Terms: a meaning beside the word by pointer, key and finger; a page of all; search by any of their names."""

from __future__ import annotations

from pathlib import Path

from generator.cards import glossary_file
from tests.browser.conftest import ROOT, Open
from tests.browser.test_search import search

CARD = "cards/activation-checkpointing/"
TEXT = Path(ROOT, "cards", "glossary.yml").read_text("utf-8")
TERMS = glossary_file.read(TEXT, "glossary.yml")[0].terms


def first_term(page, lang: str):
    """The first term of a half, and what the glossary says of it."""
    link = page.locator(f'[data-lang="{lang}"] a.pd-term:visible').first
    return link, TERMS[(link.get_attribute("href") or "").partition("#term-")[2]]


def test_focus_shows_the_meaning(visit: Open) -> None:
    """It is read out with the term, in its language; Esc closes it, and the link is as before."""
    for lang in ("zh", "en"):
        page = visit(CARD, mode=lang)
        link, term = first_term(page, lang)
        link.focus()
        tip = page.get_by_role("tooltip")
        assert link.get_attribute("aria-describedby") == tip.get_attribute("id")
        assert tip.locator("p").inner_text() == term.means[lang]
        assert all(name in tip.inner_text() for name in term.name.values())
        assert link.get_attribute("title") is None, "or the browser would show it twice"
        page.keyboard.press("Escape")
        assert page.get_by_role("tooltip").count() == 0
        assert link.evaluate("(each) => each === document.activeElement")
        assert link.get_attribute("title") == term.means[lang]


def test_the_pointer_may_rest_on_the_meaning(visit: Open) -> None:
    """Hover shows it, moving onto it keeps it, leaving hides it."""
    page = visit(CARD)
    link, _ = first_term(page, "zh")
    link.hover()
    tip = page.locator(".pd-tip")
    tip.wait_for()
    tip.hover()
    page.wait_for_timeout(400)
    assert tip.is_visible()
    page.mouse.move(5, 5)
    tip.wait_for(state="detached")


def test_a_finger_sees_the_meaning_first(visit: Open) -> None:
    """The first touch shows it within the screen, the second goes to the glossary."""
    page = visit(CARD, mode="en", phone=True)
    link, term = first_term(page, "en")
    link.tap()
    tip = page.locator(".pd-tip")
    tip.wait_for()
    box = tip.bounding_box()
    assert box
    assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
    link.tap()
    page.wait_for_url(f"**/glossary/#term-{term.id}")
    assert page.locator(f"#term-{term.id}").is_visible()


def test_without_scripts_a_term_names_its_meaning_and_leads_there(visit: Open) -> None:
    """The browser shows the title; the link works."""
    page = visit(CARD, mode=None, scripts=False)
    link, term = first_term(page, "en")
    assert link.get_attribute("title") == term.means["en"]
    link.click()
    page.wait_for_url(f"**/glossary/#term-{term.id}")


def test_a_term_is_marked_once_a_section_and_nowhere_within_a_link_or_a_title(visit: Open) -> None:
    """In each half of each section every term leads to the glossary at most once."""
    page = visit("cards/tp-sp-pp/", mode="both")
    twice = page.evaluate(
        """() => [...document.querySelectorAll(".pd-section")].flatMap((section) =>
          ["zh", "en"].flatMap((lang) => {
            const links = [...section.querySelectorAll(`[data-lang="${lang}"] a.pd-term`)];
            const names = links.map((each) => each.hash);
            return names.filter((name, i) => names.indexOf(name) !== i);
          }))"""
    )
    assert twice == []
    assert (
        page.locator(":is(a a, h1, h2, h3, h4, summary, code, th, figcaption) a.pd-term").count()
        == 0
    )
    assert page.locator("a.pd-term").count() > 20


def test_the_glossary_lists_every_term(visit: Open) -> None:
    """On the site and in the handbook: names, meaning and card, each at its anchor, in the language that is read."""
    for path in ("glossary/", "handbook#glossary"):
        page = visit(path, mode="en")
        for term in TERMS.values():
            entry = page.locator(f"#term-{term.id}")
            said = entry.inner_text()
            assert term.means["en"] in said
            assert term.means["zh"] not in said
            assert all(form in said for form in (*term.name.values(), *term.variants.get("zh", ())))
            assert entry.locator("a").count() == (term.card is not None)


def test_a_term_of_the_handbook_leads_to_its_glossary(visit: Open) -> None:
    """The same file shows the entry, and its menu says where one is."""
    page = visit("handbook#card-activation-checkpointing", mode="zh")
    link, term = first_term(page, "zh")
    link.focus()
    page.keyboard.press("Enter")
    page.locator(f"#term-{term.id}").wait_for()
    assert page.locator('.pd-nav a[aria-current="page"]').get_attribute("href") == "#glossary"
    assert page.locator("#contents").is_hidden()


def test_a_term_is_found_by_whatever_it_is_called(visit: Open) -> None:
    """By slang, by its other language, by what cards never say, and beside other words."""
    page = visit(CARD)
    for query, card in {
        "gckpt": "activation-checkpointing",
        "重计算": "activation-checkpointing",
        "爆显存": "oom-diagnosis",
        "out of memory": "oom-diagnosis",
        "全分片数据并行": "fsdp",
        "gckpt 显存": "activation-checkpointing",
    }.items():
        assert search(page, query)[:1] == [card], query
    assert len(search(page, "词元")) == len(search(page, "token")) > 5
    assert "token" in page.locator(".pd-hit mark").first.inner_text().lower()
