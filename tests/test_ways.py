"""The ways through each card, and the answer with which a base opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generator import checks
from generator.edition import ways
from generator.edition.edition import Edition, bind
from generator.edition.opening import opening
from generator.library.library import Library

BASE = Path(__file__).parent / "library"


@pytest.fixture(scope="module")
def library() -> Library:
    """The small base."""
    found, _ = checks.load(BASE / "cards", demos=BASE / "runnable_demos")
    assert found
    return found


def named(library: Library, card: str) -> list[tuple[str | None, str | None, str | None, int, int]]:
    """The ways through a card by the names of what is on them."""
    return [
        (
            way.path and way.path.id,
            way.before and way.before.id,
            way.after and way.after.id,
            way.place,
            way.count,
        )
        for way in ways.through(library)[card]
    ]


def test_each_card_is_on_reading_order_and_on_its_paths(library: Library) -> None:
    """Planned cards are no steps; where a way begins and ends there is nothing before and behind."""
    path = replace(library.paths[0], cards=("kahan-sum", "pairwise-sum", "rounding"))
    other = replace(library, paths=(path,))
    order = list(library.cards)
    assert order == ["rounding", "float-bytes", "kahan-sum"]
    assert named(other, "rounding") == [
        (None, None, "float-bytes", 1, 3),
        (path.id, "kahan-sum", None, 2, 2),
    ]
    assert named(other, "float-bytes") == [(None, "rounding", "kahan-sum", 2, 3)]
    assert named(other, "kahan-sum") == [
        (None, "float-bytes", None, 3, 3),
        (path.id, None, "rounding", 1, 2),
    ]


def test_a_page_depends_on_what_its_ways_lead_to(library: Library) -> None:
    """A card that is taken off a path changes the pages beside it, which a cache would keep."""
    shorter = replace(library.paths[0], cards=("rounding", "kahan-sum"))
    before, after = (bind(each) for each in (library, replace(library, paths=(shorter,))))
    contexts = [vars(type(each))["_contexts"].func(each) for each in (before, after)]
    assert all(contexts[0][card] != contexts[1][card] for card in library.cards)


def test_a_base_opens_with_the_first_sentence_that_a_run_proves(library: Library) -> None:
    """The first card on the path proves nothing in one sentence; the next one's number is the only row shown."""
    found = opening(bind(library))
    assert found
    assert (found.card.id, found.section) == ("float-bytes", "answer")
    assert [[row.metric.name for row in panel.rows] for panel in found.panels] == [
        ["bytes_per_number"]
    ]


def test_a_path_goes_before_reading_order(library: Library) -> None:
    """Of two cards that would do the path's is taken; without a path the first in reading order."""
    like = library.cards["float-bytes"]
    first = replace(library.cards["rounding"], sections=like.sections)
    both = replace(library, cards={**library.cards, "rounding": first})
    path = replace(library.paths[0], cards=("kahan-sum", "float-bytes"))
    for paths, name in (((path,), "float-bytes"), ((), "rounding")):
        found = opening(bind(replace(both, paths=paths)))
        assert found
        assert found.card.id == name


def test_nothing_stale_opens_a_base(library: Library) -> None:
    """Numbers that are older than their code prove nothing; a base of such has no opening."""
    stale = replace(library.evidence, stale=frozenset(library.evidence.records))
    assert opening(Edition(replace(library, evidence=stale))) is None
