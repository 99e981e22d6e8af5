"""The bases that benchmarks measure: sound, and the same each time."""

from __future__ import annotations

import sys
from pathlib import Path

from generator import checks
from runnable_demos.lab import discovery

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import synthetic


def test_the_made_up_base_breaks_no_rule(tmp_path: Path) -> None:
    """What is measured is what an author would build: no error, no warning, numbers that are proven."""
    synthetic.write_base(tmp_path / "cards", 24)
    found, problems = checks.load(tmp_path / "cards", demos=discovery.PACKAGED)
    assert problems == []
    assert found is not None
    assert len(found.cards) == 24
    assert len({card.module for card in found.cards.values()}) == synthetic.MODULES
    assert all(len(list(card.claims())) == 6 for card in found.cards.values())


def test_the_made_up_base_is_the_same_each_time(tmp_path: Path) -> None:
    """Two runs measure one base."""
    texts = []
    for name in ("one", "two"):
        synthetic.write_base(tmp_path / name, 9)
        files = sorted((tmp_path / name).rglob("*.*"))
        texts.append([(file.relative_to(tmp_path / name), file.read_bytes()) for file in files])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 10


def test_the_pages_to_compare_hold_the_same_texts(tmp_path: Path) -> None:
    """Each card is a page, whose links lead to pages, with the claims' numbers and no address of ours."""
    synthetic.write_base(tmp_path / "cards", 9)
    synthetic.write_pages(tmp_path / "pages", tmp_path / "cards")
    pages = sorted((tmp_path / "pages" / "docs").rglob("card-*.md"))
    assert len(pages) == 9
    for page in pages:
        text = page.read_text("utf-8")
        assert " B" in text
        assert "claim:" not in text
        assert "(card:" not in text
        links = [part.split(")")[0] for part in text.split("](")[1:]]
        assert len(links) == 12
        assert all((page.parent / link).is_file() for link in links)
