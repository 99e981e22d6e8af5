"""Tests may run in any order: what only one test in a process can have is shared by all."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def test_playwright_is_started_in_one_place() -> None:
    """A second synchronous Playwright fails where one is alive, so the shared fixture alone starts it."""
    starting = [
        file.relative_to(TESTS).as_posix()
        for file in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sync_playwright")
    ]
    assert starting == ["conftest.py"]
