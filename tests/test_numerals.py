"""Numerals of a text, against texts that were read and counted by hand."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.cards.model import Calc, Card, Citation, Claim, Fact, Given, Param, Section
from generator.cards.parse import parse
from generator.evidence.numerals import NAMING, Numeral, of_card
from generator.lang import SectionName
from generator.problems import Place

HERE = Path(__file__).parent
PAIRS = (HERE / "cases" / "converted.md").read_text(encoding="utf-8")


def card_with(zh: str, points: str = "") -> Card:
    """The card of the cases with this text as its trade-offs in 中文, and a point that says ``points``."""
    before, after = PAIRS.split("## 工程权衡\n", 1)
    after = after[after.index("## 常见陷阱") :]
    if points:
        after = after.replace("- 说出误差随树的高度增长。", f"- {points}", 1)
    text = f"{before}## 工程权衡\n\n{zh}\n\n{after}"
    card, problems = parse(text, "numerics/case.md")
    assert card is not None, problems
    return card


def found(text: str, naming: frozenset[str] = NAMING) -> list[Numeral]:
    """The numerals of ``text``, which stands on a card."""
    return list(of_card(alone(card_with(text)), naming))


def alone(card: Card) -> Card:
    """``card`` with nothing but its trade-offs in 中文."""
    kept: dict[SectionName, Section] = {"tradeoffs": card.sections["zh"]["tradeoffs"]}
    return replace(card, sections={"zh": kept, "en": {}})


def told(text: str, naming: frozenset[str] = NAMING) -> str:
    """Each numeral of ``text`` with the first letter of its state: bare, free or linked."""
    return " ".join(f"{each.text}:{each.state[0]}" for each in found(text, naming))


@pytest.mark.parametrize(
    ("text", "numerals"),
    [
        # names: joined to a letter or a hyphen
        ("在 H100 上用 fp32", "100:f 32:f"),
        ("GPT-2、FSDP2、1F1B、x86-64、A100-SXM4", "2:f 2:f 1:f 86:f 100:f"),
        ("an 8-bit optimizer, 32-layer models, C++17", "8:f 32:f 17:f"),
        ("it is O(1), not O(2)", "1:f 2:f"),
        ("torch 是 2.9.1 版", "2.9:f"),
        # joined to letters that spell a unit, or a prefix of one
        ("128GB、33x、16ms、128K", "128:b 33:b 16:b 128:b"),
        ("80-GB", "80:b"),
        # sizes of models
        ("一个 8B 模型，70B 参数", "8:f 70:f"),
        ("an 8B model, Llama 3 8B, Llama-3-70B", "8:f 3:f 8:f 3:f"),
        ("一共 8B", "8:b"),
        ("the 350M model", "350:f"),
        # words that name
        ("§4.1, Table 5, Figures 2 and 3, 表 3, 图 1、2", "4.1:f 5:f 2:f 3:f 3:f 1:f 2:f"),
        ("stage 3, stages 1 to 2, PyTorch 2.8", "3:f 1:f 2:f 2.8:f"),
        ("postage 3", "3:b"),
        # ordinals and numbers of a list
        ("第 2 步和第三步，0 号进程", "2:f 0:f"),
        ("the 2nd and the 3rd", "2:f 3:f"),
        ("先（1）排序，再（2）求和", "1:f 2:f"),
        ("只有（8）这一个", "8:b"),
        ("8 位优化器，53 位尾数", "8:f 53:b"),
        # dates
        ("2026-11 和 2026-11-29", "2026:f 11:f 2026:f 11:f 29:f"),
        ("2026 年 11 月 29 日，九十年代，二十一世纪", "2026:f 11:f 29:f"),
        ("in 2017, since 2020; (Chen et al., 2016) of May 2019", "2017:f 2020:f 2016:f 2019:f"),
        ("in 2048 steps", "2048:b"),
        ("2017 个", "2017:b"),
        # plain numbers
        ("100 层，1,024 个，0.5 与 1/3", "100:b 1,024:b 0.5:b 1/3:b"),
        ("30–40 次，10⁻⁶，1.2×10⁻⁶，1e-6", "30:b 40:b 10⁻⁶:b 1.2×10⁻⁶:b 1e-6:b"),
        ("8×H100", "8:b 100:f"),
        # formulas: free, but for their results
        ("$2+2+12$、$16/8$、$2^{10}$、$x_1<3$", "2:f 2:f 12:f 16/8:f 2^{10}:f 1:f 3:f"),
        ("$4h$、$\\frac{1}{3}$、$[0,1)$", "4:f \\frac{1}{3}:f 0:f 1:f"),
        ("$172$、$x=3$、$n\\approx1{,}024$", "172:b 3:b 1{,}024:b"),
        ("$2+3=5$", "2:f 3:f 5:b"),
        ("$n=2\\times3$", "2:f 3:f"),
        ("$\\sum_{i=1}^{9} i$", "1:f 9:f"),
        ("$10^{-6}$", "10^{-6}:b"),
        # code
        ("`n = 128` 与 `8`", ""),
        # words
        ("十六个、二十层、三分之二、几十万、万一、千万", ""),
        ("sixteen, twenty, several hundred, thousands, thirty-second", ""),
        ("三十层、一百二十八、两千万、二十一个", "三十:b 一百二十八:b 两千万:b 二十一:b"),
        ("thirty-two, a hundred, two thousand", "thirty-two:b a hundred:b two thousand:b"),
        ("第三十层", ""),
        # links
        ("[80 GB](given:)、[100](param:a/b)", "80:l 100:l"),
        ('[30–40%](source:python-math "Table 5")', "30:l 40:l"),
        ("[$1.2\\times10^{-6}$](claim:a/b)", "1.2\\times10^{-6}:l"),
        ("[逐位相等](claim:a/b)", ""),
        ("[H100 的 80 GB](given:)", "80:l"),
        ("[见 100](card:kahan-sum)", "100:b"),
    ],
)
def test_each_numeral_is_what_a_reader_says_it_is(text: str, numerals: str) -> None:
    """Names, dates, lists and formulas are free, what stands in a proof is linked, all else is bare."""
    assert told(text) == numerals


def test_a_base_says_which_words_name() -> None:
    """Behind a word that is listed digits are a name, and only there."""
    assert told("Foo 3、批 4") == "3:b 4:b"
    assert told("Foo 3、批 4", frozenset({"Foo", "批"})) == "3:f 4:f"
    assert told("stage 3", frozenset()) == "3:b"
    assert told("foo 3, Foos 4", frozenset({"Foo"})) == "3:f 4:f"


def test_each_kind_of_link_is_told() -> None:
    """A linked numeral names the link that it stands in."""
    kinds = {
        "claim:a/b": Claim,
        "wrong:a/b": Claim,
        "param:a/b": Param,
        "fact:a/b": Fact,
        "source:python-math": Citation,
        "given:": Given,
        'calc: "1 + 2"': Calc,
    }
    for target, kind in kinds.items():
        [numeral] = found(f"[3]({target})")
        assert isinstance(numeral.link, kind)


def test_a_numeral_stands_where_it_is_printed() -> None:
    """Places are those of the first digit, in prose, in a formula and in a table."""
    text = "一共 100 层，$d=7$。\n\n| 甲 | 乙 |\n|---|---|\n| 1,024 | 三十二 |\n"
    card = alone(card_with(text))
    rows = card_text(text)
    places = {each.text: each.place for each in of_card(card) if each.state == "bare"}
    for shown, place in places.items():
        assert rows[place.line - 1].startswith(shown, place.column - 1), shown
    assert list(places) == ["100", "7", "1,024", "三十二"]


def card_text(zh: str) -> list[str]:
    """The rows of the file of ``card_with(zh)``."""
    before, after = PAIRS.split("## 工程权衡\n", 1)
    return f"{before}## 工程权衡\n\n{zh}\n\n{after}".split("\n")


def test_points_hold_what_they_like() -> None:
    """What an interviewer listens for is free, unless it is linked."""
    card = card_with("无。", points="说出 100 层与 [8 B](claim:float_sums/bytes_per_number)。")
    points = replace(card, sections={"zh": {"points": card.sections["zh"]["points"]}, "en": {}})
    assert [(each.text, each.state) for each in of_card(points)][:2] == [
        ("100", "free"),
        ("8", "linked"),
    ]


def test_the_card_of_the_cases_was_counted_by_hand() -> None:
    """Of the whole card, both halves: what is linked, what is free, and nothing bare."""
    card, _ = parse(PAIRS, "numerics/case.md")
    assert card is not None
    counts = Counter(each.state for each in of_card(card))
    # A half links 53 when spoken, 8 B, 4 B and 53 as insights, 16 GB in its sum; 8 B in a point is free.
    assert counts == {"linked": 10, "free": counts["free"]}
    free = Counter(each.free for each in of_card(card))
    assert free["point"] == 2
    assert sum(free.values()) - free[""] == counts["free"]


@pytest.mark.parametrize(
    "unit",
    ["1", "1,", "1 ", "1-", "1.", "1-a", "1,111", "2026-11 ", "in 2017 ", "stage 1, ", "（1）", "一", "一百", "twenty ",
     "a hundred ", "1e", "1×10", "$1$ ", "$x=1$ ", "[1](given:) ", "8B ", "第 1 ", "(1", "⁻", "10⁻"],
)  # fmt: skip
def test_no_text_makes_the_reading_slow(unit: str) -> None:
    """Ten thousand characters of anything cost seconds at most: no pattern backtracks far."""
    card = alone(card_with(f"汉 {unit * (10_000 // len(unit))} 字"))
    start = time.process_time()
    for _ in of_card(card):
        pass
    assert time.process_time() - start < 5


PIECES = st.sampled_from(
    ["汉", "第", "，", ",", ".", "(", ")", "（1）", "a", "GPU", "3", "0", "16 B", "%", "×", "$x=3$", "$4$", "`1`",
     "[3%](claim:a/b)", "[5](given:)", "-", "–", " ", "10⁻⁶", "三十", "thirty", "2026-11", "stage ", "1e-6", "\n",
     "４", "in 2017", "\\frac", "^{-6}", "号", "1,024"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=25).map("".join))
@settings(deadline=None, max_examples=100)
def test_no_text_breaks_the_reading(body: str) -> None:
    """Whatever is written, each numeral has a place in the file, and places never go backwards."""
    text = body.replace("\n", " ")
    card, _ = parse("\n".join(card_text(text)), "numerics/case.md")
    if card is None:
        return
    numerals = list(of_card(alone(card)))
    rows = card_text(text)
    for each in numerals:
        assert each.text
        assert 1 <= each.place.column <= len(rows[each.place.line - 1]) + 1
    places: list[Place] = [each.place for each in numerals]
    assert places == sorted(places)
