"""What there is to study: items with lasting ids, and numbers with the tolerance that they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from generator.edition.edition import bind
from generator.edition.study_data import lead, study_data
from generator.library.library import Library, load

BASE = Path(__file__).parent / "library"


@pytest.fixture(scope="module")
def library() -> Library:
    """The small base."""
    found, _ = load(BASE / "cards", demos=BASE / "runnable_demos")
    assert found
    return found


@pytest.fixture(scope="module")
def items(library: Library) -> dict[str, dict[str, Any]]:
    """All items of the small base by id."""
    found = study_data(bind(library))["items"]
    assert len({item["id"] for item in found}) == len(found)
    return {item["id"]: item for item in found}


def test_every_followup_and_pitfall_is_an_item(
    library: Library, items: dict[str, dict[str, Any]]
) -> None:
    """Its id is the card's and its own, so that an edit of the text keeps its schedule."""
    expected = {
        f"{card.id}#{item.id}": kind
        for card in library.cards.values()
        for section, kind in (("followups", "followup"), ("pitfalls", "pitfall"))
        for item in card.sections["en"][section].items  # type: ignore[index]
    }
    assert expected == {name: i["kind"] for name, i in items.items() if i["kind"] != "number"}


def test_a_number_is_scored_by_what_it_prints(items: dict[str, dict[str, Any]]) -> None:
    """``8 B`` prints no digit behind the point: half a byte either way rounds to it."""
    item = items["float-bytes#float_sums-bytes_per_number"]
    assert (item["value"], item["tolerance"], item["unit"]) == (8.0, 0.5, "B")
    assert item["text"] == {"zh": "8 B", "en": "8 B"}
    assert item["ask"]["zh"]
    assert item["ask"]["en"]


def test_former_ids_lead_to_the_cards_that_had_them(library: Library) -> None:
    """Schedules kept under an id that a card had before move to the one that it has."""
    formerly = {old: card.id for card in library.cards.values() for old in card.formerly}
    assert formerly == {"round-off": "rounding"}
    assert study_data(bind(library))["successors"] == formerly


def test_numbers_that_are_refuted_or_true_or_false_are_not_asked(
    items: dict[str, dict[str, Any]],
) -> None:
    """Nobody types a truth value, and a wrong number is no answer."""
    assert all(
        isinstance(i["value"], float) and i["text"] for i in items.values() if i["kind"] == "number"
    )
    assert items["float-bytes#float_sums-bytes_per_number"]["value"] != 4.0


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("“只存输入就是 O(1)。” 错。整网一段。", "“只存输入就是 O(1)。”"),
        ('"Keep only the input." No: one segment.', '"Keep only the input."'),
        ("用 1.5 倍去套公式：本来就不设。", "用 1.5 倍去套公式："),
        ("Fitting 1.5 to the FLOPs: it does not.", "Fitting 1.5 to the FLOPs:"),
        ("没有标点", "没有标点"),
    ],
)
def test_the_face_of_a_pitfall_is_what_it_refutes(text: str, first: str) -> None:
    """The quotation, or the first clause, without the mend."""
    assert lead(text) == first
