"""Parsing one card: what it becomes, what is wrong with it, and where."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it.token import Token

from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Citation,
    Claim,
    Fact,
    Given,
    Link,
    Param,
    WebLink,
    locate,
    place_of,
)
from generator.cards.parse import parse
from generator.lang import LANGS, SECTION_NAMES
from generator.problems import Place, Problem

BASE = Path(__file__).parent / "library" / "cards" / "numerics"
MARK = "⟦"
"""Stands in an edit where the problem is to be found, and is taken out before parsing."""

CARD = """\
---
id: card
title: {zh: 卡片, en: Card}
module: numerics
topic: floats
difficulty: easy
updated: 2026-11-29
sources:
  work: {title: Work, url: "https://example.org/work", where: "§1"}
---

# 中文

## 一句话结论

答案是 [8 B](claim:demo/size)。

## 核心要义

- 要点，见[出处](source:work)。

## 推导

$$
a = b
$$

## 工程权衡

权衡。

## 常见陷阱

- 错误。 <!-- #wrong -->

## 追问

### 为什么？ <!-- #why -->

因为。

# English

## In one sentence

The answer is [8 B](claim:demo/size).

## Key insights

- A point, see [the work](source:work).

## Derivation

$$
a = b
$$

## Trade-offs

A price.

## Pitfalls

- A mistake. <!-- #wrong -->

## Follow-ups

### Why? <!-- #why -->

Because.
"""


def faults(text: str, path: str = "cards/numerics/card.md") -> list[Problem]:
    """The problems of a text."""
    return parse(text, path)[1]


def whole(text: str, path: str = "cards/numerics/card.md") -> Card:
    """The card of a text that has no problem."""
    card, problems = parse(text, path)
    assert problems == []
    assert card is not None
    return card


def marked(text: str) -> tuple[str, Place]:
    """The text without its mark, and the place of the mark, counted by hand."""
    before = text[: text.index(MARK)]
    place = Place("cards/numerics/card.md", before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    return text.replace(MARK, ""), place


def tokens(card: Card) -> Iterator[Token]:
    """Every token of a card, blocks and their children."""
    for half in card.sections.values():
        for section in half.values():
            for outer in (
                *section.tokens,
                *(t for i in section.items for t in (*i.title, *i.body)),
            ):
                yield outer
                yield from outer.children or ()


# --- what is wrong, and where --------------------------------------------------------------------

EDITS = [
    ("unknown-key", "topic: floats", "topic: floats\n⟦diffculty: easy"),
    ("unknown-key", "where: ", "⟦page: 3, where: "),
    ("missing-key", "---\nid", "⟦---\nid", "title: {zh: 卡片, en: Card}\n", ""),
    ("missing-key", "  work: {title: Work, ", "  ⟦work: {"),
    ("missing-key", "updated: 2026-11-29", "⟦updated:"),
    ("wrong-value", "updated: 2026-11-29", "⟦updated: yesterday"),
    ("wrong-value", "updated: 2026-11-29", "⟦updated: 2026-13-45"),
    ("wrong-value", "topic: floats", "topic: floats\n⟦tags: memory"),
    ("wrong-value", "topic: floats", "topic: floats\ntags: [memory, ⟦8]"),
    ("wrong-value", "difficulty: easy", "⟦difficulty: trivial"),
    ("wrong-value", "en: Card", "⟦en: [Card]"),
    ("wrong-value", "https://example.org/work", "ftp://example.org", "url:", "⟦url:"),
    ("wrong-language", "title: {zh: 卡片, en: Card}", "⟦title: {zh: 卡片}"),
    ("wrong-language", "title: {zh: 卡片, en: Card}", "⟦title: {zh: 卡片, en: Card, fr: Carte}"),
    ("bad-id", "id: card", "⟦id: ../card"),
    ("bad-id", "id: card", "⟦id: Big_Card"),
    ("bad-id", "topic: floats", "topic: floats\nprerequisites: [⟦a/b]"),
    ("id-not-file-name", "id: card", "⟦id: other"),
    ("self-reference", "topic: floats", "topic: floats\nrelated: [⟦card]"),
    ("duplicate-entry", "topic: floats", "topic: floats\n⟦related: [a, a]"),
    ("duplicate-key", "topic: floats", "topic: floats\n⟦topic: sums"),
    ("yaml-tab", "topic: floats", "tags:\n⟦\t- memory\ntopic: floats"),
    ("yaml-alias", "topic: floats", "tags: ⟦&a [memory]\ntopic: floats"),
    ("yaml-tag", "topic: floats", "tags: ⟦!!python/name:os.system [a]\ntopic: floats"),
    ("yaml-syntax", "topic: floats", "topic: a⟦: b"),
    ("yaml-syntax", "{zh: 卡片, en: Card}", '"卡片⟦\\q"'),
    ("yaml-depth", "topic: floats", "tags: [[[[[[[⟦[a]]]]]]]]\ntopic: floats"),
    ("yaml-key", "topic: floats", "topic: floats\n⟦[a]: b"),
    ("open-front-matter", '"§1"}\n---\n', '"§1"}\n', "---\nid", "⟦---\nid"),
    ("no-front-matter", "---\nid", "⟦\n---\nid"),
    ("carriage-return", "权衡。", "权⟦\r衡。"),
    ("control-character", "权衡。", "权⟦\x00衡。"),
    ("control-character", "en: Card", "en: C⟦\x1bard"),
    ("unknown-heading", "## Trade-offs", "## ⟦Tradeoffs", "## ⟦", "⟦## "),
    ("unknown-heading", "# English\n", "⟦# Englisch\n"),
    ("duplicate-heading", "## Trade-offs", "## Derivation\n\nx\n\n## Trade-offs", "## Derivation\n\nx",
     "⟦## Derivation\n\nx"),
    ("missing-section", "# English\n", "⟦# English\n", "## Trade-offs\n\nA price.\n\n", ""),
    ("heading-order", "## Derivation\n\n$$\na = b\n$$\n\n## Trade-offs\n\nA price.",
     "## Trade-offs\n\nA price.\n\n⟦## Derivation\n\n$$\na = b\n$$"),
    ("stray-text", "# 中文\n", "⟦Before all.\n\n# 中文\n"),
    ("stray-text", "# English\n", "# English\n\n⟦Before the first.\n"),
    ("stray-text", "## Follow-ups\n", "## Follow-ups\n\n> ⟦Before.\n", "> ⟦", "⟦> "),
    ("empty-section", "\n\nA price.", "\n\n<!-- nothing yet -->", "## Trade-offs", "⟦## Trade-offs"),
    ("empty-item", "### Why? <!--", "⟦### <!--"),
    ("empty-item", "\n\nBecause.\n", "\n", "### Why?", "⟦### Why?"),
    ("empty-item", "- A mistake. <!--", "⟦- <!--"),
    ("missing-item-id", "### Why? <!-- #why -->", "⟦### Why?"),
    ("missing-item-id", "- A mistake. <!-- #wrong -->", "⟦- A mistake."),
    ("duplicate-item-id", "### Why? <!-- #why -->", "### Why? ⟦<!-- #wrong -->"),
    ("bad-id", "### Why? <!-- #why -->", "### Why? ⟦<!-- #Why -->"),
    ("stray-id", "A price.", "A price. ⟦<!-- #price -->"),
    ("stray-id", "Why? <!-- #why -->", "Why? <!-- #why --> ⟦<!-- #why-not -->"),
    ("raw-html", "A price.", "A ⟦<b>price</b>.", "</b>", ""),
    ("raw-html", "A price.", "⟦<div>\nA price.\n</div>"),
    ("raw-html", "A price.", "⟦<!-- a comment --> A price."),
    ("raw-html", "Because.", "Because.\n\n⟦<!-- without an end"),
    ("image", "A price.", "A ⟦![price](price.png)."),
    ("image", "A price.", "⟦![price](price.png)"),
    ("image", "A price.", "A ⟦![price](figure:demo/curve)."),
    ("image", "A price.", "[⟦![price](figure:demo/curve)](https://example.org)"),
    ("image", "A price.", "![a ⟦![price](figure:demo/curve)](figure:demo/curve)"),
    ("raw-html", "A price.", "![a ⟦<b>price](figure:demo/curve)"),
    ("bad-link", "A price.", "![a ⟦[price](claim:demo)](figure:demo/curve)"),
    ("bad-figure", "A price.", "⟦![price](figure:curve)"),
    ("bad-figure", "A price.", "⟦![price](figure:demo/curve@H200)"),
    ("bad-figure", "A price.", '⟦![price](figure:demo/curve "title")'),
    ("empty-caption", "A price.", "⟦![ ](figure:demo/curve)"),
    ("bad-link", "A price.", "A [price](⟦claim:demo).", "[price](⟦", "⟦[price]("),
    ("bad-link", "A price.", "A ⟦[price](wrong:demo/a@TPU)."),
    ("bad-link", "A price.", "A ⟦[price](given:80)."),
    ("bad-link", "A price.", "A ⟦[price](gpu:demo)."),
    ("bad-link", "A price.", "A ⟦[price](gpu:demo/seconds@h200)."),
    ("bad-link", "A price.", "A ⟦[price](fact:toy-gpu)."),
    ("bad-link", "A price.", "A ⟦[price](fact:toy_gpu/memory)."),
    ("bad-link", "A price.", "A ⟦[price](fact:toy-gpu/memory/size)."),
    ("bad-link", "A price.", "A ⟦[price](../prices.md)."),
    ("bad-link", "A price.", "A ⟦[price](javascript:alert(1))."),
    ("bad-link", "A price.", "A ⟦[price](https%3A//x.org)."),
    ("bad-link", "A price.", "A ⟦[price](//x.org)."),
    ("bad-link", "A price.", "A ⟦[price](https://)."),
    ("bad-link", "A price.", "A ⟦[price](https://x)."),
    ("bad-link", "A price.", "A ⟦[price](https:x.org)."),
    ("bad-link", "A price.", "A ⟦[price](claim%3Ademo/metric)."),
    ("bad-link", "A price.", "A ⟦[price](mailto:nobody)."),
    ("bad-link", "A price.", "A ⟦<ftp://x.org>."),
    ("nested-link", "A price.", "A [⟦<https://x.org>](card:other)."),
    ("nested-link", "A price.", "A [price ⟦<a@b.org> each](https://x.org)."),
    ("unused-reference", "A price.", "⟦[price]: ten"),
    ("wrong-value", "https://example.org/work", "https://user@example.org", "url:", "⟦url:"),
    ("wrong-value", "https://example.org/work", "https://example", "url:", "⟦url:"),
    ("empty-link", "A price.", "A price: ⟦[](given:)."),
    ("unknown-source", "[the work](source:work)", "⟦[the work](source:wrok)"),
    ("unknown-callout", "A price.", "⟦> [!caveat]\n> A price.", "⟦> ", "> ⟦"),
    ("unknown-callout", "A price.", "> ⟦[!note] Title\n> A price."),
    ("too-deep", "A price.", "⟦" + "> " * 20 + "A price."),
    ("unused-source", "[the work](source:work)", "the work", "[出处](source:work)", "出处", "work: {",
     "⟦work: {"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "edits"),
    [(code, edits) for code, *edits in EDITS],
    ids=[f"{number}-{edit[0]}" for number, edit in enumerate(EDITS)],
)
def test_a_fault_is_named_at_its_place(code: str, edits: list[str]) -> None:
    """Each fault has a code and a hint, and its place is where the edit put it."""
    text = CARD
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in text
        text = new.join(text.rsplit(old, 1))
    text, place = marked(text)
    found = [problem for problem in faults(text) if problem.code == code]
    assert place in [problem.place for problem in found]
    assert all(problem.hint and problem.message for problem in found)


def test_the_card_that_is_edited_is_sound() -> None:
    """The faults above are those of the edits."""
    whole(CARD)


def test_faults_come_alone() -> None:
    """One wrong key brings one problem: nothing cascades."""
    for old, new, code in (
        ("topic: floats", "topic: floats\ntoppic: x", "unknown-key"),
        ("A price.", "A <b>price", "raw-html"),
        ("## Trade-offs\n\nA price.\n\n", "", "missing-section"),
        ("<!-- #why -->\n\nBecause", "\n\nBecause", "missing-item-id"),
    ):
        assert [problem.code for problem in faults(CARD.replace(old, new))] == [code]


def test_all_faults_come_in_one_run_sorted() -> None:
    """Front matter, structure and links are all reported at once, in the order of the file."""
    text = CARD.replace("topic: floats", "toppic: floats").replace("A price.", "[x](nowhere)")
    text = text.replace("## 推导", "## 推导推导")
    found = faults(text)
    assert {problem.code for problem in found} == {
        "unknown-key", "missing-key", "unknown-heading", "missing-section", "bad-link",
    }  # fmt: skip
    assert found == sorted(found)


def test_a_hint_names_the_nearest_known_name() -> None:
    """A slip of the pen is answered with the name that was meant."""
    (key,) = faults(CARD.replace("topic: floats", "topic: floats\nrealted: []"))
    assert "`related`" in key.hint
    (inner,) = faults(CARD.replace('where: "§1"', 'where: "§1", wehre: "§2"'))
    assert inner.hint == "Did you mean `where`?"
    (source, _unused) = (
        p for p in faults(CARD.replace("source:work", "source:wrok")) if p.severity == "error"
    )
    assert "`work`" in source.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<div>x</div>", "raw HTML is not read: `<div>x</div>`"),
        ("<!-- one --> two", "what stands on the line of a comment is not read as Markdown"),
        ("<!-- one", "the comment that begins here never ends"),
    ],
)
def test_each_kind_of_html_has_its_sentence(text: str, said: str) -> None:
    """Tags, text beside a comment and an open comment are three different slips."""
    assert said in [p.message for p in faults(CARD.replace("Because.", text))]


def test_a_heading_of_the_other_language_is_known_as_such() -> None:
    """An English heading in the Chinese half is not just unknown."""
    found = faults(CARD.replace("## 推导", "## Derivation"))
    assert "This is a heading of `# English`." in next(
        p.hint for p in found if p.code == "unknown-heading"
    )


def test_faults_of_a_whole_file_are_counted() -> None:
    """One problem stands for all, at the first place, with how many there are."""
    (problem,) = faults(CARD.replace("A price.", "A\x07 price\x07."))
    assert problem.message.startswith("2 times ")
    (problem,) = faults(CARD.replace("A price.", "A\x07 price."))
    assert problem.message.startswith("once ")


def test_a_missing_language_is_named() -> None:
    """A card with one half says which is missing."""
    (problem,) = faults(CARD[: CARD.index("# English")])
    assert (problem.code, "# English" in problem.message) == ("missing-language", True)


def test_both_places_of_a_double_are_named() -> None:
    """Of two equal headings or ids the second is the place, and the first is in the sentence."""
    (problem,) = faults(CARD.replace("### Why? <!-- #why -->", "### Why? <!-- #wrong -->"))
    line = CARD.split("\n").index("- A mistake. <!-- #wrong -->") + 1
    assert f"line {line}" in problem.message


def test_a_structural_fault_leaves_no_card_and_a_detail_does() -> None:
    """Later checks still see a card whose frame stands."""
    assert parse(CARD.replace("id: card", "id: 8"), "card.md")[0] is None
    card, problems = parse(CARD.replace("A price.", "A <b>price"), "cards/numerics/card.md")
    assert card is not None
    assert problems


# --- what a card becomes -------------------------------------------------------------------------


def test_a_card_has_what_its_file_says() -> None:
    """Front matter, sections and items are all there, in both languages."""
    card = whole((BASE / "rounding.md").read_text(), "cards/numerics/rounding.md")
    assert (card.id, card.module, card.topic, card.difficulty) == (
        "rounding", "numerics", "floats", "easy",
    )  # fmt: skip
    assert card.updated.isoformat() == "2026-11-28"
    assert card.title == {"zh": "浮点舍入", "en": "Floating-point rounding"}
    assert card.aliases["zh"] == ("舍入误差", "单位舍入")
    assert (card.related, card.formerly) == (("float-bytes",), ("round-off",))
    assert card.sources["python-tutorial"].where == "Representation Error"
    assert list(card.sections) == list(LANGS)
    for half in card.sections.values():
        assert list(half) == [name for name in SECTION_NAMES if name != "code"]
        assert [i.id for i in half["followups"].items] == [
            "unit-roundoff", "accumulate", "representable", "compare",
        ]  # fmt: skip
        assert [i.id for i in half["pitfalls"].items] == ["exact-tenth", "associative"]
        assert not half["followups"].tokens
        assert all(item.title and item.body for item in half["followups"].items)
    titles = [item.title[0].content for item in card.sections["en"]["followups"].items]
    assert titles[1].startswith("Why does the error grow?")


def test_the_body_begins_right_behind_the_front_matter() -> None:
    """No blank line is needed between the fence and the first heading."""
    assert "---\n\n# 中文" in CARD
    whole(CARD.replace("---\n\n# 中文", "---\n# 中文"))


def test_every_kind_of_link_is_resolved() -> None:
    """Claims, refutations, citations, givens, cards and addresses become data of their own."""
    links = [
        "[2.1×](claim:demo/speed@rtx-4090)",
        "[16 B](wrong:demo/size)",
        '[30%](source:work "Table 5")',
        "[§1](source:work)",
        "[80 GB](given:)",
        "[not yet recorded](gpu:demo/seconds)",
        "[16 GB](fact:toy-gpu/memory_bandwidth)",
        "[64](param:demo/layers)",
        '[2 GB](calc: "{devices} × 1 GB")',
        "[4 GB][twice]",
        "[there](card:other#why)",
        "[`code` and $x$](https://example.org/a?b=c)",
        "<https://example.org/汉>",
    ]
    text = CARD.replace("A price.", " ".join(links)) + '\n[twice]: calc: "2 × 2 GB"\n'
    card = whole(text)
    found = card.sections["en"]["tradeoffs"].links
    at = [link.place for link in found]
    assert found == (
        Claim(at[0], "2.1×", "demo", "speed", "rtx-4090", False),
        Claim(at[1], "16 B", "demo", "size", "cpu", True),
        Citation(at[2], "30%", "work", "Table 5"),
        Citation(at[3], "§1", "work", "§1"),
        Given(at[4], "80 GB"),
        Awaited(at[5], "not yet recorded", "demo", "seconds"),
        Fact(at[6], "16 GB", "toy-gpu", "memory_bandwidth"),
        Param(at[7], "64", "demo", "layers"),
        Calc(at[8], "2 GB", "{devices} × 1 GB"),
        Calc(at[9], "4 GB", "2 × 2 GB"),
        CardLink(at[10], "there", "other", "why"),
        WebLink(at[11], "`code` and $x$", "https://example.org/a?b=c"),
        WebLink(at[12], "https://example.org/汉", "https://example.org/%E6%B1%89"),
    )
    assert [p.column for p in at] == [
        1 + len(" ".join(links[:number])) + (number > 0) for number in range(len(links))
    ]


def shown_at(text: str, link: Link) -> str:
    """What the file has at a link's place, to the end of the file."""
    rows = text.split("\n")
    return "\n".join([rows[link.place.line - 1][link.place.column - 1 :], *rows[link.place.line :]])


@pytest.mark.parametrize("file", sorted(BASE.glob("*.md")), ids=lambda file: file.stem)
def test_every_place_of_a_real_card_is_right(file: Path) -> None:
    """What a token says stands in the file at the token's place."""
    text = file.read_text()
    card = whole(text, f"cards/numerics/{file.name}")
    assert len([*card.links(), *card.figures()]) == len(re.findall(r"\]\(|\]\[", text))
    rows = text.split("\n")
    for figure in card.figures():
        assert rows[figure.place.line - 1][figure.place.column - 1 :].startswith("![")
    for link in card.links():
        assert re.match(rf"\[{re.escape(link.text)}\][(\[]", shown_at(text, link))
    rows = text.split("\n")
    kinds = set()
    for token in tokens(card):
        if token.type in {"text", "code_inline", "math_inline"} and token.content:
            place = place_of(token)
            assert rows[place.line - 1][place.column - 1 :].startswith(token.content)
            last = place_of(token, len(token.content) - 1)
            assert rows[last.line - 1][last.column - 1] == token.content[-1]
        if token.type in {"fence", "math_block"}:
            for found in re.finditer(r"\S", token.content):
                place = place_of(token, found.start())
                assert rows[place.line - 1][place.column - 1] == found.group()
        kinds.add(token.type)
    assert {"text", "math_inline", "math_block"} <= kinds


@pytest.mark.parametrize(
    "text",
    [
        "A [x](given:) and [x](given:).",
        "**[x](given:)** *a* [x](given:)",
        "- a\n- b [x](given:)\n\n  c\n  d [x](given:)",
        "1. 1 [x](given:)\n   1 [x](given:)",
        "-\ta [x](given:)\n\n\tb [x](given:)",
        "> a\n> [x](given:)\nlazy [x](given:)",
        "> - a\n>   > b [x](given:)",
        "> [!note]\n> a [x](given:)",
        "| a [x](given:) | b |\n|---|---|\n| $\\|$ [x](given:) | \\| [x](given:) |\n|  | [x](given:) |",
        "a | b\n--|--\n[x](given:) | [x](given:)\n[x](given:)",
        "- a | b\n  --|--\n  [x](given:) | \\|[x](given:)",
        "> | | b [x](given:) |\n> |-|-|\n> | | [x](given:) |",
        "\\* &amp; \\[ [x](given:) \\] [x](given:)",
        "#### a [x](given:) ####",
        "a\\\n  [x](given:)  \nb [x](given:)",
        "`a [b` [x](given:) $a [b$ [x](given:)",
        "a [x](\n  given:\n) [x](given:)",
        "[x][ref] [x](given:)\n\n[ref]: given:",
    ],
)
def test_links_are_placed_in_every_kind_of_block(text: str) -> None:
    """The places of links are those of the brackets, whatever block they stand in."""
    card = whole(CARD.replace("A price.", text))
    start = CARD[: CARD.index("A price.")].count("\n")
    expected = [
        (start + row + 1, found.start() + 1)
        for row, line in enumerate(text.split("\n"))
        for found in re.finditer(r"\[x\][(\[]", line)
    ]
    links = card.sections["en"]["tradeoffs"].links
    assert [(link.place.line, link.place.column) for link in links] == expected


def test_texts_are_joined_and_escapes_keep_their_places() -> None:
    """A text is one token with entities and escapes resolved; each character knows its place."""
    source = "5 \\* 3 &lt; 2_a * 8\\%"
    card = whole(CARD.replace("A price.", source))
    inline = card.sections["en"]["tradeoffs"].tokens[1]
    assert inline.children is not None
    (text,) = inline.children
    assert text.content == "5 * 3 < 2_a * 8%"
    for word, written in (("*", "\\*"), ("3", "3"), ("<", "&lt;"), ("2_a", "2_a"), ("%", "\\%")):
        assert place_of(text, text.content.index(word)).column == source.index(written) + 1


def test_inline_tokens_know_how_deep_they_stand() -> None:
    """Levels count the marks around a token, as a renderer expects of nested emphasis."""
    card = whole(CARD.replace("A price.", "a *b **c** [d](given:)* $e$"))
    inline = card.sections["en"]["tradeoffs"].tokens[1]
    levels = [(t.content, t.level) for t in inline.children or () if t.content]
    assert levels == [("a ", 0), ("b ", 1), ("c", 2), (" ", 1), ("d", 2), (" ", 0), ("e", 0)]


def test_items_and_their_section_have_the_same_links() -> None:
    """The links of follow-ups and pitfalls are theirs and their section's."""
    text = CARD.replace("### Why?", "### [Why](given:)?").replace(
        "Because.", "[x](given:)\n\n[y](given:)"
    )
    card = whole(text.replace("- A mistake.", "- A [mistake](given:)."))
    for name, expected in (("followups", ["Why", "x", "y"]), ("pitfalls", ["mistake"])):
        section = card.sections["en"][name]
        (item,) = section.items
        assert [link.text for link in item.links] == expected
        assert section.links == item.links


def test_a_place_outside_the_content_stays_at_its_ends() -> None:
    """Places are monotonous: before the first one there is the first."""
    places = ((2, Place("a", 3, 5)), (4, Place("a", 4, 1)))
    assert locate(places, 0) == Place("a", 3, 5)
    assert locate(places, 3) == Place("a", 3, 6)
    assert locate(places, 6) == Place("a", 4, 3)


def test_comments_never_show() -> None:
    """Comments and the ids in them leave no trace in the tokens."""
    card = whole(
        CARD.replace("A price.", "<!-- one -->\n\nA <!-- two --> price.\n\n<!-- three\n\nfour -->")
    )
    content = "".join(token.content for token in tokens(card) if token.type != "inline")
    assert "<!--" not in content
    assert not any(token.type in {"html_block", "html_inline"} for token in tokens(card))
    (title,) = card.sections["en"]["followups"].items[0].title
    assert [child.content for child in title.children or ()] == ["Why?"]


def test_what_stands_before_an_id_stays() -> None:
    """Only the comment and the space before it go, whatever they follow."""
    card = whole(CARD.replace("### Why?", "### `why`").replace("- A mistake.", "- $x$"))
    (title,) = card.sections["en"]["followups"].items[0].title
    assert [child.content for child in title.children or ()] == ["why"]
    (pitfall,) = card.sections["en"]["pitfalls"].items
    assert [token.type for token in pitfall.body] == ["paragraph_open", "inline", "paragraph_close"]
    assert [child.content for child in pitfall.body[1].children or ()] == ["x"]


def test_a_pitfall_may_be_code_alone() -> None:
    """Code says something, too."""
    whole(CARD.replace("- A mistake. <!-- #wrong -->", "- ```\n  x\n  ```\n  <!-- #wrong -->"))


def test_a_file_may_end_without_a_line_end() -> None:
    """The last block is placed, even one that is never closed."""
    card, _ = parse(CARD + "\n```\na", "cards/numerics/card.md")
    assert card is not None
    fence = card.sections["en"]["followups"].items[0].body[-1]
    assert (fence.content, place_of(fence).line) == ("a", CARD.count("\n") + 3)
    assert place_of(fence, 1).line == CARD.count("\n") + 3


def test_a_pitfall_may_carry_its_id_below_its_text() -> None:
    """The id stands anywhere in the item's rows, and the item's token carries it."""
    card = whole(
        CARD.replace("A mistake. <!-- #wrong -->", "A mistake.\n\n  More.\n  <!-- #wrong -->")
    )
    section = card.sections["en"]["pitfalls"]
    assert [item.id for item in section.items] == ["wrong"]
    opened = [token for token in section.tokens if token.type == "list_item_open"]
    assert [token.meta["item"] for token in opened] == ["wrong"]


@pytest.mark.parametrize("kind", ["note", "tip", "important", "warning", "caution"])
def test_the_five_callouts_are_known(kind: str) -> None:
    """A callout carries its kind, and no heading in a language of its own."""
    for written in (kind, kind.upper()):
        card = whole(CARD.replace("A price.", f"> [!{written}]\n> A price."))
        opened, *_, closed = card.sections["en"]["tradeoffs"].tokens
        assert (opened.type, opened.meta["kind"], closed.type) == (
            "alert_open",
            kind,
            "alert_close",
        )
        words = [t.content for t in card.sections["en"]["tradeoffs"].tokens if t.type == "inline"]
        assert words == ["A price."]


def test_tables_are_tables() -> None:
    """GFM tables have cells, short rows are filled up, and an escaped pipe is a character."""
    card = whole(CARD.replace("A price.", "| a | b |\n|:-|-:|\n| c \\| d |"))
    section = card.sections["en"]["tradeoffs"].tokens
    assert [t.content for t in section if t.type == "inline"] == ["a", "b", "c | d", ""]
    assert [t.type for t in section if t.type in {"th_open", "td_open"}] == [
        "th_open", "th_open", "td_open", "td_open",
    ]  # fmt: skip


def test_a_formula_may_run_over_two_lines() -> None:
    """Each character of inline math knows its row, the last one of the second row, too."""
    card = whole(CARD.replace("A price.", "- a $x +\n  y$ b"))
    inline = card.sections["en"]["tradeoffs"].tokens[3]
    (math,) = (t for t in inline.children or () if t.type == "math_inline")
    assert math.content == "x +\ny"
    first = place_of(math)
    assert place_of(math, 4) == Place(first.path, first.line + 1, 3)


def test_math_is_what_stands_between_dollars() -> None:
    """Inline and display math keep their TeX; money and escapes do not become math."""
    card = whole(
        CARD.replace("A price.", "$a_b*c*$ costs \\$5 and \\$6, 汉字$x$汉字。\n\n$$x\n= y$$")
    )
    found = [t for t in card.sections["en"]["tradeoffs"].tokens if t.type == "math_block"]
    assert [t.content for t in found] == ["x\n= y"]
    inline = card.sections["en"]["tradeoffs"].tokens[1].children or ()
    assert [t.content for t in inline if t.type == "math_inline"] == ["a_b*c*", "x"]


# --- texts of every kind -------------------------------------------------------------------------


def fingerprint(card: Card) -> tuple[list[Link], list[tuple[str, str]]]:
    """What a card says and where its links are."""
    return list(card.links()), [(token.type, token.content) for token in tokens(card)]


@pytest.mark.parametrize("change", ["\r\n", "bom", "bom\r\n"])
def test_line_ends_and_byte_order_mark_change_nothing(change: str) -> None:
    """CRLF and a byte order mark are accepted, and places stay the same."""
    text = CARD.replace("\n", "\r\n") if "\r\n" in change else CARD
    text = "\ufeff" + text if "bom" in change else text
    assert fingerprint(whole(text)) == fingerprint(whole(CARD))


def test_lone_carriage_returns_are_one_problem() -> None:
    """A file of an old Mac is still read, and said to be one."""
    card, problems = parse(CARD.replace("\n", "\r"), "cards/numerics/card.md")
    assert [problem.code for problem in problems] == ["carriage-return"]
    assert card is not None
    assert fingerprint(card) == fingerprint(whole(CARD))


PATHOLOGICAL = {
    "quotes": ">" * 10_000,
    "quote lines": "\n".join(">" * depth for depth in range(1, 400)),
    "brackets": "[" * 10_000,
    "closed brackets": "[" * 5_000 + "]" * 5_000,
    "links": "[a](" * 10_000,
    "images": "![" * 10_000,
    "lists": "- " * 10_000,
    "nested list": "\n".join("  " * depth + "- a" for depth in range(200)),
    "emphasis": "*a_ " * 10_000,
    "strong": "**a " * 10_000,
    "backticks": " ".join("`" * (1 + number % 60) for number in range(2_000)),
    "dollars": "$a " * 10_000,
    "escaped dollars": "$" + "\\$" * 10_000,
    "html": "<a " * 10_000,
    "comments": "<!-- " * 10_000,
    "ids": "<!-- #a -->" * 3_000,
    "table": "|" * 5_000 + "\n" + "|-" * 5_000 + "|\n" + "|a" * 5_000,
    "references": "[a]: b\n" * 5_000,
    "rows": "a\n" * 20_000,
    "many links": "[a](given:) " * 5_000,
    "yaml": "---\ntags: " + "[" * 20_000 + "\n---\n",
    "yaml maps": "---\n" + "".join(" " * depth + "a:\n" for depth in range(300)) + "---\n",
    "bomb": "---\na: &a [x]\n"
    + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghi"))
    + "---\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_no_text_hangs_or_crashes_the_parser(name: str) -> None:
    """Deep nesting, bombs and endless openers end within seconds, and in problems."""
    text = PATHOLOGICAL[name]
    text = text if text.startswith("---") else CARD.replace("A price.", text)
    start = time.process_time()
    parse(text, "cards/numerics/card.md")
    assert time.process_time() - start < 5


def test_the_time_grows_with_the_length() -> None:
    """Sixteen times the text takes about sixteen times as long: nothing scans again and again."""
    once = "A [1](given:) and $x$ with **bold**, `code` and 汉字。\n\n- a\n- b\n\n| a | b |\n|---|---|\n| c | d |\n\n"

    def seconds(copies: int) -> float:
        text = CARD.replace("A price.", once * copies)
        times = []
        for _ in range(3):
            start = time.process_time()
            parse(text, "cards/numerics/card.md")
            times.append(time.process_time() - start)
        return min(times)

    seconds(10)
    assert seconds(320) < 16 * 3 * seconds(20)


def within(place: Place, text: str) -> bool:
    """Whether a place lies in a text; the position behind a line's last character does."""
    rows = re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff"))
    return 1 <= place.line <= len(rows) and 1 <= place.column <= len(rows[place.line - 1]) + 1


PIECES = st.sampled_from(
    ["# 中文\n", "## 推导\n", "### q <!-- #a -->\n", "- a\n", "> ", "[x](card:a)", "[x](claim:a/b)",
     "<!-- #a -->", "<b>", "$x$", "$$", "$$\na\n$$\n", "| a | b |\n|---|---|\n", "\n\n", "\t", "    ",
     "**", "`", "```\n", "[!note]", "![", "](", "\\", "&amp;", "---\n", "id: a\n", "\r", "\r\n", "\x00",
     "\u2028", "\x85", "\ufeff", "汉", "a | b\n--|--\n\\| | c\n", "# English\n", "===\n", "1. "]
)  # fmt: skip
SPOTS = st.integers(0, len(CARD))


@settings(max_examples=150, deadline=None)
@given(st.text() | st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join))
@example("---\n---\n# 中文\n## 推导\n- \t- | a\n")
@example("---\na\u2028b: [\n---\n")
@example("\ufeff---\n\ufeff")
@example("0|0\n-|-\n0[0](card:a)\x85")
@example("0|0\n-|-\n0[0](card:a)\u2028")
def test_any_text_is_parsed_or_explained(text: str) -> None:
    """Nothing raises, and every place that is reported lies within the file."""
    for source in (text, f"---\n{text}\n---\n", CARD.replace("A price.", text)):
        card, problems = parse(source, "cards/numerics/card.md")
        assert card or problems
        assert all(within(problem.place, source) for problem in problems)
        for link in card.links() if card else ():
            assert within(link.place, source)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(SPOTS, SPOTS, PIECES | st.text(max_size=8)), min_size=1, max_size=4))
def test_any_edit_of_a_card_is_parsed_or_explained(edits: list[tuple[int, int, str]]) -> None:
    """Cutting and pasting anywhere in a card never raises, and places stay within the file."""
    text = CARD
    for start, length, piece in edits:
        text = text[:start] + piece + text[start + length % 40 :]
    card, problems = parse(text, "cards/numerics/card.md")
    assert card or problems
    assert all(within(problem.place, text) for problem in problems)
    for token in tokens(card) if card else ():
        if "places" in token.meta:
            assert within(place_of(token), text)
            assert within(place_of(token, len(token.content)), text)
