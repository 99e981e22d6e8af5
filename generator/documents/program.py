"""The documents about the program, which come with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from generator.documents import files
from generator.documents.document import Document

NAMES = ("proofs", "set-up", "contributing", "checks", "exporters")
"""In the order in which the site lists them."""

_HERE = Path(__file__).parent
_FOLDER = next(path for path in (_HERE / "texts", _HERE.parents[1] / "docs") if path.is_dir())
"""Beside this file in a package, in ``docs/`` in a checkout."""


@cache
def documents() -> tuple[Document, ...]:
    """All of them."""
    found = []
    for name in NAMES:
        document, problems = files.load(_FOLDER, name)
        assert document, "\n".join(map(str, problems))  # a test has read them all
        found.append(document)
    return tuple(found)
