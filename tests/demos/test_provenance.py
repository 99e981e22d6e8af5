"""Provenance: the files that a demo depends on, found without running anything, and what counts of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from runnable_demos.lab import provenance
from runnable_demos.lab.discovery import PACKAGED

FILES = {
    "demo.py": "from runnable_demos.a import x\nimport torch\n",
    "a.py": "def f():\n    import runnable_demos.b\n",
    "b.py": "from runnable_demos import c\nfrom . import a\n",
    "c.py": "x = 1\n",
    "unused.py": "x = 2\n",
}
CODE = '''"""What it is about."""
from dataclasses import dataclass
TITLE = {"zh": "题", "en": "Title"}
MEASURES = """
[[method]]
kind = "bounded"
how = ["数", "counted"]
bound = 1e-6
reason = ["小", "small"]
[method.metrics]
count = ["B", "个数", "a count"]
[figure.line]
title = ["线", "A line"]
x = {label = ["横", "across"], scale = "log2"}
y = {label = ["纵", "up"], unit = "B"}
[figure.line.series]
one = ["measured", "一", "one"]
[figure.line.places]
here = ["此", "here"]
"""
@dataclass(frozen=True)
class Config:
    n: int = parameter(4, {"zh": "数", "en": "number"}, 1, 9)
    """How many."""
def double(x: int, *, by: float = 2.0) -> float:
    """Twice as much."""
    return x * by  # not rounded
'''


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


def digest(text: str, *, demo: bool = True) -> str:
    """That of a file with this text."""
    return provenance.digest(ast.parse(text), demo=demo)


def test_imports_are_followed_through(folder: Path) -> None:
    """Direct, nested, cyclic and relative imports count; unrelated files do not."""
    assert names(folder) == {"demo.py", "a.py", "b.py", "c.py"}


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_line_ends_do_not_count(folder: Path, ends: str) -> None:
    """A checkout with other line ends has the same provenance."""
    before = provenance.sources("demo", folder)
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("\n", ends), newline="")
    assert provenance.sources("demo", folder) == before


@pytest.mark.parametrize("name", ["demo.py", "c.py"])
def test_a_change_counts_where_it_is(folder: Path, name: str) -> None:
    """A change of a file that is imported indirectly changes that file's digest alone."""
    before = provenance.sources("demo", folder)
    (folder / name).write_text(FILES[name] + "y = 3\n", newline="")
    after = provenance.sources("demo", folder)
    assert {path for path in after if after[path] != before[path]} == {f"runnable_demos/{name}"}


def test_what_the_folder_lacks_comes_from_the_package(tmp_path: Path) -> None:
    """A base of its own may use the measuring tools of this one."""
    (tmp_path / "demo.py").write_text("from runnable_demos.lab.measure import fake\n")
    found = provenance.sources("demo", tmp_path)
    shared = {"__init__.py", "lab/__init__.py", "lab/measure.py"}
    assert set(found) == {f"runnable_demos/{name}" for name in {"demo.py", *shared}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# not rounded", "# rounded never"),
        ("  # not rounded", ""),
        ("return x * by", "return (\n        x\n        * by\n    )"),
        ("\ndef double", "\n\n\ndef double"),
        ('"""Twice as much."""', '"""Two times,\n\n    and no more.\n    """'),
        ('    """Twice as much."""\n', ""),
        ('"""What it is about."""\n', ""),
        ('    """How many."""\n', ""),
        ('{"zh": "题", "en": "Title"}', '{"en": "Another " "title", "zh": "别的"}'),
        ('"number"', '"how many"'),
        ('["数", "counted"]', '["计", "counted one by one"]'),
        ('["小", "small"]', '["极小", "tiny"]'),
        ('"a count"', '"the count {n}"'),
        ('"A line"', '"Lines"'),
        ('"across"', '"along"'),
        ('"一"', '"甲"'),
        ('"此"', '"这里"'),
        ("[figure.line]", "# a remark\n\n[figure.line]"),
        ('{label = ["横", "across"], scale = "log2"}', '{scale = "log2", label = ["x", "x"]}'),
        ("2.0", "2.00"),
        ("    return x * by", "    pass\n    return x * by"),
    ],
)
def test_what_is_no_code_does_not_count(before: str, after: str) -> None:
    """Comments, docstrings, formatting and the words of titles, help, metrics and figures."""
    assert before in CODE
    assert digest(CODE.replace(before, after)) == digest(CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x * by", "x / by"),
        ("x * by", "by * x"),
        ("2.0", "2"),
        ("2.0", "2.5"),
        ("*, by", "by"),
        ("double", "twice"),
        ("x: int, ", "x: int, y: int = 0, "),
        ("frozen=True", "frozen=False"),
        ("@dataclass(frozen=True)\n", ""),
        ("parameter(4,", "parameter(5,"),
        (", 1, 9)", ", 1, 8)"),
        ('count = ["B"', 'counts = ["B"'),
        ('count = ["B"', 'count = [""'),
        ("1e-6", "1e-5"),
        ('kind = "bounded"', 'kind = "bounded"\nonly = "gpu"'),
        ("[method.metrics]", '[method.metrics]\nother = ["", "另", "another"]'),
        ("[figure.line]", '[figure.line]\nkind = "computed"'),
        ("figure.line", "figure.lines"),
        ('"log2"', '"log10"'),
        ('unit = "B"', 'unit = ""'),
        ('one = ["measured"', 'one = ["bar"'),
        ('one = ["measured"', 'two = ["measured"'),
        ("here =", "there ="),
        ('{"zh": "题", "en": "Title"}', '{"zh": "题", "de": "Titel"}'),
        ('{"zh": "题", "en": "Title"}', '{"zh": "题", "en": 1}'),
        ("return x", 'print("Twice as much.")\n    return x'),
        ("bounded", "unbounded"),  # no table any more: all of its text counts
        ('{"zh": "题", "en": "Title"}', '{"zh": "题"}'),
    ],
)
def test_what_a_number_may_depend_on_counts(before: str, after: str) -> None:
    """Code, defaults, bounds of parameters, and names, units, kinds, bounds and marks of the table."""
    assert before in CODE
    assert digest(CODE.replace(before, after)) != digest(CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('T = {"zh": "四", "en": "four"}', 'T = {"zh": "四", "en": "fo"}'),
        ('def f():\n    MEASURES = "#1"', 'def f():\n    MEASURES = "#2"'),
        ('x = f(4, {"zh": "四", "en": "four"})', 'x = f(4, {"zh": "四", "en": "fo"})'),
        ('def f(): "one"\nn = len(f.__doc__)', 'def f(): "other"\nn = len(f.__doc__)'),
        ('"one"\nn = len(__doc__)', '"other"\nn = len(__doc__)'),
        ('def f(): "one"\nn = getdoc(f)', 'def f(): "other"\nn = getdoc(f)'),
        ("MEASURES = []", "MEASURES = [1]"),
        ("x = 0.0", "x = -0.0"),
        ("x = 1", "x = True"),
        ("x = 1", "x = 1.0"),
        ("x = '1'", "x = b'1'"),
        ("x = None", "x = ..."),
    ],
)
def test_words_that_code_may_read_count(before: str, after: str) -> None:
    """What looks like words elsewhere, docstrings that are read, and numbers of equal value."""
    assert digest(before) != digest(after)


def test_a_file_that_is_no_demo_has_no_words() -> None:
    """A helper's table is data like any other."""
    assert digest('MEASURES = "#1"', demo=False) != digest('MEASURES = "#2"', demo=False)
    titles = [f'TITLE = {{"zh": "a", "en": "{en}"}}' for en in "bc"]
    assert digest(titles[0], demo=False) != digest(titles[1], demo=False)


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("from .b import N", "more/b.py"),
        ("from . import b", "more/b.py"),
        ("from ..more.b import N", "more/b.py"),
        ("from ..c import x", "c.py"),
        ("from .. import c", "c.py"),
    ],
)
def test_relative_imports_are_followed_from_where_they_stand(
    folder: Path, imports: str, name: str
) -> None:
    """Within a folder of the base's own, one dot is that folder and two are the one above."""
    (folder / "more").mkdir()
    (folder / "demo.py").write_text("from runnable_demos.more import a\n")
    (folder / "more" / "__init__.py").write_text("")
    (folder / "more" / "a.py").write_text(imports)
    (folder / "more" / "b.py").write_text("N = 1\n")
    before = provenance.sources("demo", folder)
    (folder / name).write_text("N = x = 2\n")
    assert provenance.sources("demo", folder) != before


def test_what_the_runner_has_before_all_others_is_the_package_s(folder: Path) -> None:
    """A base's own ``lab`` is not what a run imports, and so is not what its numbers depend on."""
    (folder / "demo.py").write_text("from runnable_demos.lab.measure import fake\n")
    before = provenance.sources("demo", folder)
    (folder / "lab").mkdir()
    (folder / "lab" / "measure.py").write_text("fake = 1\n")
    (folder / "__init__.py").write_text("x = 1\n")
    assert provenance.sources("demo", folder) == before


def test_what_cannot_be_taken_in_is_no_python(folder: Path) -> None:
    """Code that is nested too deeply is told in a sentence."""
    (folder / "demo.py").write_text("x = " + "1+" * 9000 + "1\n")
    with pytest.raises(ValueError, match="nested too deeply"):
        provenance.sources("demo", folder)


def test_the_repository_reformatted_is_the_same(tmp_path: Path) -> None:
    """Every file of the laboratory, with other line lengths and quotes by a real formatter, as before."""
    before = {p.relative_to(PACKAGED): p.read_text() for p in PACKAGED.rglob("*.py")}
    assert len(before) > 40
    for path, text in before.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "60"]
    subprocess.run([*command, "--config", "format.quote-style='single'", tmp_path], check=True)
    after = {path: (tmp_path / path).read_text() for path in before}
    assert sum(after[path] != text for path, text in before.items()) > 30
    for demo in (True, False):
        differ = [
            p for p, t in before.items() if digest(after[p], demo=demo) != digest(t, demo=demo)
        ]
        assert differ == []
