"""What the search searches: plain words of every part, in both languages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from generator.edition.edition import bind
from generator.edition.search_data import proof, search_data
from generator.library.library import Library, load

BASE = Path(__file__).parent / "library"
ITEMS = ("pitfalls", "followups", "points")


@pytest.fixture(scope="module")
def library() -> Library:
    """The small base."""
    found, _ = load(BASE / "cards", demos=BASE / "runnable_demos")
    assert found
    return found


def test_every_part_of_every_card_is_there(library: Library) -> None:
    """Seven sections, each pitfall, follow-up and point, in two languages, under the card's own number."""
    data = search_data(bind(library))
    for index, card in enumerate(library.cards.values()):
        items = sum(len(card.sections["zh"][name].items) for name in ITEMS)
        parts = [part for part in data["parts"] if part[0] == index]
        assert len(parts) == 2 * (7 + items)
        assert data["cards"][index]["id"] == card.id


def test_a_card_is_found_by_its_question_and_by_other_wordings(library: Library) -> None:
    """They stand among the aliases of their language, behind the card's own; then what its term is called."""
    [card] = [each for each in search_data(bind(library))["cards"] if each["id"] == "rounding"]
    assert card["aliases"] == {
        "zh": [
            "舍入误差", "单位舍入", "为什么 0.1 加 0.2 不等于 0.3？误差从哪里来，又有多大？",
            "浮点数为什么不准", "0.1+0.2",
        ],
        "en": [
            "round-off", "unit roundoff",
            "Why is 0.1 plus 0.2 not 0.3? Where does the error come from, and how large is it?",
            "why are floats inexact", "0.1 + 0.2 != 0.3", "unit round-off",
        ],
    }  # fmt: skip


def test_the_text_is_what_a_reader_sees(library: Library) -> None:
    """No markup, no TeX and no comment is left; the number of a claim is."""
    data = search_data(bind(library))
    index = list(library.cards).index("float-bytes")
    answer = next(p[5] for p in data["parts"] if p[:4] == [index, "answer", "answer", "zh"])
    assert answer == (
        "一个双精度数由一位符号、十一位指数和 52 位尾数组成，共 8 B；数组里没有别的开销。"
    )
    whole = json.dumps(data["parts"], ensure_ascii=False)
    assert not any(mark in whole for mark in ("claim:", "<!--", "$", "\\\\frac", "](", "**"))


def test_the_weakest_number_decides_the_state_of_proof(library: Library) -> None:
    """A card is proven when all its numbers are; stale evidence shows; no numbers is a state too."""
    card = library.cards["float-bytes"]
    assert proof(card, bind(library)) == "proven"
    key = ("float_sums", "cpu")
    record = library.evidence.records[key]
    weaker = {"computed": {"kind": "computed"}, "measured": {"kind": "measured"}}
    weaker["sampled"] = {"kind": "sampled", "error": 1e-9}
    for kind, change in weaker.items():
        metrics = tuple(
            replace(m, **change) if m.name == "bytes_per_number" else m
            for m in record.result.metrics
        )
        result = replace(record.result, metrics=metrics)
        records = {key: replace(record, result=result)}
        other = replace(library, evidence=replace(library.evidence, records=records))
        assert proof(card, bind(other)) == ("measured" if kind == "measured" else "computed")
    stale = replace(library.evidence, stale=frozenset(library.evidence.records))
    assert proof(card, bind(replace(library, evidence=stale))) == "stale"
    halves = {
        lang: {name: replace(section, links=()) for name, section in half.items()}
        for lang, half in card.sections.items()
    }
    assert proof(replace(card, sections=halves), bind(library)) == "none"
