"""Format 2 of a card: its front matter, its sections, and what the comments of its items say."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.cards.model import Card, Scenario
from generator.cards.parse import parse
from generator.checks import Reading, spoken_length
from generator.lang import LANGS, OLD_SECTIONS, SECTION_NAMES
from generator.problems import Problem

CASES = Path(__file__).parent / "cases"
OLD = (CASES / "card.md").read_text(encoding="utf-8")
CONVERTED = (CASES / "converted.md").read_text(encoding="utf-8")
MARK = "⟦"
"""Stands in an edit where the problem is to be found, and is taken out before parsing."""


def read(text: str) -> tuple[Card | None, list[Problem]]:
    """What is made of a text."""
    return parse(text, "cards/numerics/case.md")


def whole(text: str) -> Card:
    """The card of a text that has no problem."""
    card, problems = read(text)
    assert problems == []
    assert card is not None
    return card


def edited(old: str, new: str, text: str = CONVERTED) -> tuple[str, tuple[int, int] | None]:
    """The text with its first ``old`` replaced, and where the mark stands in it."""
    assert old in text
    before, mark, behind = text.replace(old, new, 1).partition(MARK)
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    return before + behind, place if mark else None


def test_the_front_matter_of_format_2() -> None:
    """Question, wordings, frequency and scenario are as they are written."""
    card = whole(CONVERTED)
    assert card.converted
    assert card.question == {
        "zh": "一长串浮点数两两相加，误差为什么小得多？",
        "en": "Why does adding a long list of floats in pairs err so much less?",
    }
    assert card.asked == {"zh": ("树形求和", "二叉求和为什么准"), "en": ("tree summation",)}
    assert card.frequency == "sometimes"
    assert card.scenario == Scenario(model="toy-model", device="toy-gpu", devices=2)


def test_a_card_without_a_question_is_as_before() -> None:
    """It has the sections of format 1, and nothing of format 2, which it may all the same begin to say."""
    card = whole(OLD)
    assert not card.converted
    assert (card.question, card.frequency, card.scenario) == (None, None, Scenario())
    assert card.asked == {"zh": (), "en": ()}
    assert all(tuple(half) == OLD_SECTIONS for half in card.sections.values())
    begun = OLD.replace("<!-- #odd -->", "<!-- #odd rarely -->")
    begun = begun.replace("topic: sums", "topic: sums\nfrequency: often\nscenario: {batch: 4}")
    card = whole(begun)
    assert not card.converted
    assert (card.frequency, card.scenario) == ("often", Scenario(batch=4))
    assert card.sections["en"]["followups"].items[0].frequency == "rarely"


def test_sections_and_items_of_format_2() -> None:
    """All sections stand in their order; items know how often, where, how good and which follow-up."""
    card = whole(CONVERTED)
    for lang in LANGS:
        half = card.sections[lang]
        assert tuple(half) == SECTION_NAMES
        assert [(i.id, i.frequency) for i in half["followups"].items] == [
            ("odd", "often"), ("stream", "sometimes"), ("choose", "often"), ("differ", "rarely"),
        ]  # fmt: skip
        assert [(i.id, i.group) for i in half["pitfalls"].items] == [
            ("order", "said"), ("recursion", "shipped"),
        ]  # fmt: skip
        assert [(i.id, i.level, i.asks) for i in half["points"].items] == [
            ("height", "pass", None),
            ("cost", "strong", "choose"),
            ("blocks", "outstanding", "differ"),
            ("any-order", "red-flag", None),
        ]


def test_the_optional_section_may_be_missing_in_both_languages() -> None:
    """Code that nothing short says is left out, in both halves or in none."""
    text, _ = edited("## 手写", "## 手写")
    for heading, behind in (("## 手写", "## 工程权衡"), ("## In code", "## Trade-offs")):
        before, _, rest = text.partition(heading)
        text = before + behind + rest.partition(behind)[2]
        card, problems = read(text)
        if "## In code" in text:
            assert card is None
            assert [p.code for p in problems if p.code != "unused-source"] == ["missing-section"]
            assert "`# 中文` has no section `## 手写`" in problems[0].message
    assert "code" not in whole(text).sections["zh"]


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("frequency: sometimes\n", "", "missing-key", "`frequency` is missing"),
        ("asked: {", "asked1: {", "unknown-key", "no key `asked1`"),
        ("asked: {zh: [树形求和, 二叉求和为什么准], en: [tree summation]}\n", "", "missing-key",
         "`asked` is missing"),
        ("asked: {zh: [树形求和, 二叉求和为什么准], en: [tree summation]}", "⟦asked: {zh: []}",
         "wrong-language", "in `asked` `en` is missing"),
        ("asked: {zh: [树形求和, 二叉求和为什么准], en: [tree summation]}", "⟦asked: {}",
         "wrong-language", "in `asked` `zh` is missing"),
        ("frequency: sometimes", "⟦frequency: daily", "wrong-value", "cannot be `daily`"),
        ("  en: Why does adding a long list of floats in pairs err so much less?\n", "",
         "wrong-language", "`en` is missing"),
        ("devices: 2", "⟦devices: 0", "wrong-value", "cannot be the number `0`"),
        ("devices: 2", "⟦devices: two", "wrong-value", "cannot be `two`"),
        ("devices: 2", "⟦devises: 2", "unknown-key", "no key `devises`"),
        ("model: toy-model", "⟦model: Toy_Model", "bad-id", "kebab-case"),
        ("### 会说错的\n", "⟦### 口误\n", "unknown-heading", "`### 口误`"),
        ("### 会说错的\n", "", "stray-text", "before `### 会说错的`"),
        ("### 会写错的\n", "⟦### 会说错的\n", "duplicate-heading", "stands here again"),
        ("- 递归到单个元素才停，函数调用比加法还贵。 <!-- #recursion -->\n", "", "empty-section",
         "`### 会写错的` is empty"),
        ("### 会写错的\n", "### 会写错的\n\n⟦还有一句。\n", "stray-text", "outside of the list"),
        ("- 说出误差", "⟦先看这里。\n\n- 说出误差", "stray-text", "outside of the list"),
        ("<!-- #odd often -->", "⟦<!-- #odd -->", "missing-word", "says only its id"),
        ("<!-- #odd often -->", "<!-- #odd ⟦oftn -->", "unknown-word", "`oftn` says nothing of a follow-up"),
        ("<!-- #odd often -->", "<!-- #odd often ⟦rarely -->", "unknown-word", "`rarely` stands beside `often`"),
        ("<!-- #order -->", "<!-- #order ⟦often -->", "unknown-word", "`often` says nothing of a pitfall"),
        ("<!-- #cost strong asks=choose -->", "⟦<!-- #cost asks=choose -->", "missing-word", "only its id"),
        ("<!-- #height pass -->", "<!-- #height pass ⟦ask=odd -->", "unknown-word", "`ask=odd`"),
        ("<!-- #cost strong asks=choose -->", "<!-- #cost strong asks=choose ⟦asks=odd -->",
         "unknown-word", "`asks=odd`"),
        ("<!-- #height pass -->", "", "missing-item-id", "this point has no id"),
        ("<!-- #height pass -->", "⟦<!-- #odd pass -->", "duplicate-item-id", "`odd` is taken"),
        ("说出误差随树的高度增长。 <!--", "<!--", "empty-item", "this point says nothing"),
    ],
)  # fmt: skip
def test_what_a_card_in_format_2_must_say_is_named_in_its_place(
    old: str, new: str, code: str, says: str
) -> None:
    """Each slip has its code, its place and a hint; nothing is lost on the way."""
    text, place = edited(old, new)
    problems = [problem for problem in read(text)[1] if problem.code == code]
    assert problems, read(text)[1]
    assert any(says in problem.message for problem in problems), problems
    assert all(problem.hint for problem in problems)
    if place:
        assert place in [(problem.place.line, problem.place.column) for problem in problems]


def test_a_hint_names_the_word_that_was_meant() -> None:
    """A slip in a comment is answered with the nearest word."""
    text, _ = edited("<!-- #odd often -->", "<!-- #odd oftn -->")
    assert read(text)[1][0].hint.startswith("Did you mean `often`?")


@pytest.mark.parametrize("name", [name for name in SECTION_NAMES if name not in OLD_SECTIONS])
def test_a_section_of_format_2_needs_the_question(name: str) -> None:
    """On another card its heading is told to belong to format 2."""
    heading = "## " + {
        "spoken": "三十秒口述", "intuition": "直觉", "example": "算一笔账", "code": "手写", "points": "评分",
    }[name]  # fmt: skip
    text, place = edited("## 追问", f"⟦{heading}\n\n一句话。\n\n## 追问", OLD)
    [problem] = [p for p in read(text)[1] if p.code == "unknown-heading"]
    assert (problem.place.line, problem.place.column) == place
    assert "`question`" in problem.hint


@pytest.mark.parametrize("name", [n for n in SECTION_NAMES if n != "code"])
def test_every_other_section_is_required(name: str) -> None:
    """A card in format 2 that lacks a section is told which, and where it belongs."""
    card = whole(CONVERTED)
    place = card.sections["en"][name].place  # type: ignore[index]  # names are literals
    rows = CONVERTED.splitlines(keepends=True)
    heading = rows[place.line - 1].strip()
    end = next((at for at in range(place.line, len(rows)) if rows[at].startswith("## ")), len(rows))
    found, problems = read("".join(rows[: place.line - 1] + rows[end:]))
    assert found is None
    [missing] = [problem for problem in problems if problem.code == "missing-section"]
    assert missing.message == f"`# English` has no section `{heading}`"


def test_a_comment_that_is_no_mark_stays_a_note() -> None:
    """Behind ``#`` and a space stands a note of its author, as before."""
    text, _ = edited(
        "落单的那个数直接进入下一层。", "落单的那个数直接进入下一层。 <!-- # ask again -->"
    )
    assert whole(text).sections["zh"]["followups"].items[0].id == "odd"


def spoken(lang: str, said: str) -> list[Problem]:
    """What the rule says of a card that says this in thirty seconds."""
    old = {"zh": "逐个相加的时候", "en": "When you add one number"}[lang]
    row = next(row for row in CONVERTED.splitlines() if row.startswith(old))
    card, _ = read(CONVERTED.replace(row, said))
    assert card is not None
    return list(spoken_length.check_card(Reading((card,))))


@pytest.mark.parametrize(
    ("lang", "number", "fits"),
    [
        ("zh", 109, False), ("zh", 110, True), ("zh", 220, True), ("zh", 221, False),
        ("en", 69, False), ("en", 70, True), ("en", 95, True), ("en", 96, False),
    ],
)  # fmt: skip
def test_thirty_seconds_have_so_many_words(lang: str, number: int, fits: bool) -> None:
    """A 汉字, a Latin word and a number count as one each; marks, links and emphasis count nothing."""
    units = {
        "zh": ["快", "all-gather ", "[53](claim:float_sums/significant_bits) ", "*慢*，", "H100 ", "2.5 "],
        "en": ["fast ", "all-gather, ", "[53](claim:float_sums/significant_bits) ", "*don't* ", "H100: ", "2.5 "],
    }[lang]  # fmt: skip
    said = "".join(units[at % len(units)] for at in range(number)).strip()
    found = spoken(lang, said)
    assert [problem.code for problem in found] == ([] if fits else ["spoken-length"])
    assert all(f" {number} " in problem.message for problem in found)
