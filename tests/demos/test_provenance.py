"""Provenance: the files that a demo depends on, found without running anything."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runnable_demos import provenance

FILES = {
    "demo.py": "from runnable_demos.a import x\nimport torch\n",
    "a.py": "def f():\n    import runnable_demos.b\n",
    "b.py": "from runnable_demos import c\nfrom . import a\n",
    "c.py": "x = 1\n",
    "unused.py": "x = 2\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of demos that import one another in each of the ways that there are."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, newline="")
    return tmp_path


def names(folder: Path) -> set[str]:
    """The files found, without the package's own ``__init__``."""
    found = provenance.sources("demo", folder)
    return {Path(path).name for path in found} - {"__init__.py"}


def test_imports_are_followed_through(folder: Path) -> None:
    """Direct, nested, cyclic and relative imports count; unrelated files do not."""
    assert names(folder) == {"demo.py", "a.py", "b.py", "c.py"}


def test_the_hash_is_of_the_bytes(folder: Path) -> None:
    """Each hash is what sha256 of the file gives."""
    found = provenance.sources("demo", folder)
    expected = hashlib.sha256(FILES["c.py"].encode()).hexdigest()
    assert found["runnable_demos/c.py"] == expected


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_line_ends_do_not_count(folder: Path, ends: str) -> None:
    """A checkout with other line ends has the same provenance."""
    before = provenance.sources("demo", folder)
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("\n", ends), newline="")
    assert provenance.sources("demo", folder) == before


@pytest.mark.parametrize("name", ["demo.py", "c.py"])
def test_a_change_counts_even_of_a_space(folder: Path, name: str) -> None:
    """A change of a file that is imported indirectly changes that file's hash alone."""
    before = provenance.sources("demo", folder)
    (folder / name).write_text(FILES[name] + " \n", newline="")
    after = provenance.sources("demo", folder)
    assert {path for path in after if after[path] != before[path]} == {f"runnable_demos/{name}"}


def test_what_the_folder_lacks_comes_from_the_package(tmp_path: Path) -> None:
    """A base of its own may use the measuring tools of this one."""
    (tmp_path / "demo.py").write_text("from runnable_demos.measure import fake\n")
    assert names(tmp_path) == {"demo.py", "measure.py", "metrics.py"}
