"""A new card: what it has, and what check then says of it."""

from __future__ import annotations

import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from generator import checks
from generator.authoring import new_card
from generator.authoring.new_card import NewCardError
from generator.cards.parse import parse
from generator.lang import SECTION_NAMES

BASE = Path(__file__).parent / "library"
DAY = date(2026, 11, 29)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """The cards of a copy of the small base."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base" / "cards"


def write(cards: Path, name: str, module: str = "numerics", topic: str = "sums") -> Path:
    """Write a card that can be written."""
    file = new_card.write(cards, name, module, topic, DAY)
    assert isinstance(file, Path)
    return file


def test_check_names_exactly_what_waits_for_the_author(cards: Path) -> None:
    """Each empty place is a problem at its line, and there is no other problem."""
    file = write(cards, "dot-product")
    _, problems = checks.load(cards, demos=cards.parent / "runnable_demos")
    assert {problem.place.path for problem in problems} == {file.as_posix()}
    rows = file.read_text().split("\n")
    waiting = {
        number
        for number, row in enumerate(rows, 1)
        if row.startswith(("### <!--", "- ")) or '""' in row
    }
    sections = {n for n, row in enumerate(rows, 1) if row.startswith("## ")}
    with_items = {n for n in sections if rows[n - 1] in {
        "## 常见陷阱", "## 追问", "## 评分", "## Pitfalls", "## Follow-ups",
        "## What the interviewer listens for",
    }}  # fmt: skip
    assert {problem.place.line for problem in problems} == waiting | (sections - with_items)
    assert all(problem.hint for problem in problems)


def test_filled_in_it_is_a_card(cards: Path) -> None:
    """With words in each place that waited, the parser is content."""
    text = write(cards, "dot-product").read_text()
    text = text.replace('zh: ""', "zh: 点积").replace('en: ""', "en: Dot product")
    text = text.replace('frequency: ""', "frequency: often")
    text = re.sub(r"(<!-- #followup-\d) -->", r"\1 rarely -->", text)
    text = text.replace("### <!--", "### Why? <!--").replace("- <!--", "- Wrong. <!--")
    text = re.sub(r"^(### Why.*)$", r"\1\n\nWords.", text, flags=re.MULTILINE)
    text = re.sub(r"^(<!-- .* -->)\n\n(?=##? )", r"\1\n\nWords.\n\n", text, flags=re.MULTILINE)
    card, problems = parse(text, "cards/numerics/dot-product.md")
    assert problems == []
    assert card is not None
    assert (card.module, card.topic, card.updated) == ("numerics", "sums", DAY)
    assert card.converted
    assert tuple(card.sections["en"]) == SECTION_NAMES


def test_a_planned_card_has_its_title(cards: Path) -> None:
    """What modules.yml knows is written."""
    text = write(cards, "pairwise-sum").read_text()
    assert 'title: {zh: "两两求和", en: "Pairwise summation"}' in text


def test_a_folder_is_made_for_a_module_without_cards(cards: Path) -> None:
    """The first card of a module brings its folder."""
    modules = cards / "modules.yml"
    modules.write_text(
        modules.read_text().replace("\npaths:", "    topics: {bits: {zh: 位, en: Bits}}\n\npaths:")
    )
    assert write(cards, "endianness", "storage", "bits") == cards / "storage" / "endianness.md"


@pytest.mark.parametrize(
    ("name", "module", "topic", "said", "hint"),
    [
        ("../up", "numerics", "sums", "is a path", "bubble-sort"),
        ("Dot_Product", "numerics", "sums", "kebab-case", "bubble-sort"),
        ("a" * 81, "numerics", "sums", "longer than", "bubble-sort"),
        ("dot", "numeric", "sums", "no module `numeric`", "`numerics`"),
        ("dot", "numerics", "sum", "no topic `sum`", "`sums`"),
        ("dot", "storage", "sums", "no topic `sums`", "None"),
        ("rounding", "numerics", "sums", "taken by", "another"),
        ("round-off", "numerics", "sums", "called before", "another"),
    ],
)
def test_what_cannot_be_is_refused(
    cards: Path, name: str, module: str, topic: str, said: str, hint: str
) -> None:
    """Nothing is written, and a sentence says why and what to do."""
    before = sorted(cards.rglob("*"))
    with pytest.raises(NewCardError) as refused:
        new_card.write(cards, name, module, topic, DAY)
    assert said in str(refused.value)
    assert hint in refused.value.hint
    assert sorted(cards.rglob("*")) == before


def test_a_broken_syllabus_is_explained(cards: Path) -> None:
    """Without modules there is no place for a card; the problems of modules.yml are the answer."""
    (cards / "modules.yml").write_text("modules: [")
    problems = new_card.write(cards, "dot", "numerics", "sums", DAY)
    assert isinstance(problems, list)
    assert [problem.code for problem in problems] == ["yaml-syntax"]
