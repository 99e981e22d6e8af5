"""What the tests of exporters share: the small base, rendered, and trees to compare with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generator import checks
from generator.edition.edition import Edition, bind
from runnable_demos.lab.metrics import Kind

TESTS = Path(__file__).parents[1]
BASE = TESTS / "library"


@pytest.fixture(scope="session")
def demos() -> Path:
    """The demos of the small base."""
    return BASE / "runnable_demos"


@pytest.fixture(scope="session")
def edition(demos: Path) -> Edition:
    """The small base, rendered."""
    found, problems = checks.load(BASE / "cards", demos=demos)
    assert found is not None
    assert not problems
    return bind(found, demos)


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


WORDS = {"zh": "零", "en": "zero"}


def of_kind(edition: Edition, kind: Kind) -> Edition:
    """The same edition, had its demo told every number as of ``kind``; truth values stay as they are."""
    key = ("float_sums", "cpu")
    record = edition.library.evidence.records[key]
    errors = {"bounded": {"bound": 1e9, "reason": WORDS}, "sampled": {"error": 1e-9}}
    plain: dict[str, Any] = {"bound": None, "reason": None, "error": None, "closed_form": None}
    metrics = tuple(
        m
        if isinstance(m.value, bool)
        else replace(m, kind=kind, **{**plain, **errors.get(kind, {})})
        for m in record.result.metrics
    )
    other = replace(record, result=replace(record.result, metrics=metrics))
    evidence = replace(edition.library.evidence, records={key: other})
    return bind(replace(edition.library, evidence=evidence), edition.demos)
