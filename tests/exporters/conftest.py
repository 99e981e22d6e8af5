"""What the tests of exporters share: the small base, rendered, and trees to compare with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from generator import library
from generator.book import Book, bind

TESTS = Path(__file__).parents[1]
BASE = TESTS / "library"


@pytest.fixture(scope="session")
def demos() -> Path:
    """The demos of the small base."""
    return BASE / "runnable_demos"


@pytest.fixture(scope="session")
def book(demos: Path) -> Book:
    """The small base, rendered."""
    found, problems = library.load(BASE / "cards", demos=demos)
    assert found is not None
    assert not problems
    return bind(found)


@pytest.fixture
def golden() -> Callable[[str, Path], None]:
    """Compare a tree with ``tests/golden/NAME``; ``UPDATE_GOLDENS=1`` writes it there instead."""

    def compare(name: str, made: Path) -> None:
        kept = TESTS / "golden" / name
        if os.environ.get("UPDATE_GOLDENS"):
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(made, kept)
        assert _texts(made) == _texts(kept), "UPDATE_GOLDENS=1 accepts the new tree"

    return compare


def _texts(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
