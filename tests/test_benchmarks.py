"""What benchmarks measure: a base that is sound and the same each time, and its texts as plain pages."""

from __future__ import annotations

from pathlib import Path

from benchmarks import plain_pages, scale, synthetic
from generator import checks
from runnable_demos.lab import discovery


def test_the_made_up_base_breaks_no_rule(tmp_path: Path) -> None:
    """What is measured is what an author would build: no error, no warning, numbers that are proven."""
    synthetic.write_base(tmp_path / "cards", 12)
    found, problems = checks.load(tmp_path / "cards", demos=discovery.PACKAGED)
    assert problems == []
    assert found is not None
    assert len(found.cards) == 12
    assert len({card.module for card in found.cards.values()}) == synthetic.MODULES
    assert all(len(list(card.claims())) == 6 for card in found.cards.values())


def test_the_edits_that_are_measured_break_no_rule(tmp_path: Path) -> None:
    """A card with one more sentence and another title is another card, and as sound."""
    synthetic.write_base(tmp_path / "cards", 6)
    file = tmp_path / "cards" / "module-3" / "card-3.md"
    before = file.read_text("utf-8")
    file.write_text(scale.with_title(scale.with_sentence(before)), "utf-8")
    assert len(file.read_text("utf-8").split()) == len(before.split()) + 14
    found, problems = checks.load(tmp_path / "cards", demos=discovery.PACKAGED)
    assert problems == []
    assert found is not None
    assert found.cards["card-3"].title == {"zh": "卡片 3", "en": "Renamed Card 3"}


def test_the_made_up_base_is_the_same_each_time(tmp_path: Path) -> None:
    """Two runs measure one base."""
    texts = []
    for name in ("one", "two"):
        synthetic.write_base(tmp_path / name, 9)
        files = sorted((tmp_path / name).rglob("*.*"))
        texts.append([(file.relative_to(tmp_path / name), file.read_bytes()) for file in files])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 10


def test_the_made_up_prerequisites_are_no_single_chain(tmp_path: Path) -> None:
    """Each card but the first of a module comes after one or two of the five before it there."""
    synthetic.write_base(tmp_path / "cards", 60)
    found, _ = checks.load(tmp_path / "cards", demos=discovery.PACKAGED)
    assert found is not None
    numbers: set[int] = set()
    for card in found.cards.values():
        own = int(card.id.removeprefix("card-"))
        before = [int(name.removeprefix("card-")) for name in card.prerequisites]
        assert all(own - 5 <= each < own for each in before)
        assert all(found.cards[name].module == card.module for name in card.prerequisites)
        numbers.add(len(before))
    assert numbers == {0, 1, 2}


def test_the_pages_to_compare_hold_the_same_texts(tmp_path: Path) -> None:
    """Each card is a page, whose links lead to pages and works, with the claims' numbers and no scheme of ours."""
    synthetic.write_base(tmp_path / "cards", 9)
    plain_pages.write(tmp_path / "pages", tmp_path / "cards")
    pages = sorted((tmp_path / "pages" / "docs").rglob("card-*.md"))
    assert len(pages) == 9
    for page in pages:
        text = page.read_text("utf-8")
        assert text.startswith(f"# 卡片 {page.stem[5:]} · Card {page.stem[5:]}\n")
        assert text.count(" B") == 6
        targets = [part.split(")")[0].split(" ")[0] for part in text.split("](")[1:]]
        works = [target for target in targets if target.startswith("https://example.org/")]
        others = [target for target in targets if target not in works]
        assert (len(works), len(others)) == (4, 10)
        assert all((page.parent / other).is_file() for other in others)
