"""What every exporter keeps to, so that a new one is one file."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from generator import exporters
from generator.edition.edition import Edition
from generator.lang import LANGS

FOUND = [cast(ModuleType, each) for each in exporters.discover()]
NAMES = [each.NAME for each in FOUND]
READ = re.compile(
    r"generator\.(edition|graph|render|cards|evidence|lang|words|problems|site_url|exporters)\b"
    r"|runnable_demos\.lab\.metrics\b"
)
"""Rooms whose data and drawing an exporter may use; loading, checking and judging are not among them."""
LOADERS = {"parse", "load", "load_evidence", "read_syllabus", "judge", "open", "urlopen"}


def files(out: Path) -> dict[str, bytes]:
    """What stands at ``out``: a file, or all files below a folder."""
    found = [out] if out.is_file() else [each for each in out.rglob("*") if each.is_file()]
    return {each.relative_to(out).as_posix(): each.read_bytes() for each in sorted(found)}


def target(exporter: ModuleType, folder: Path) -> Path:
    """Where an exporter writes, below ``folder``."""
    folder.mkdir()
    return folder / (exporter.NAME if "/" in exporter.ENTRY else exporter.ENTRY)


@contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """The working directory, for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.mark.parametrize("exporter", FOUND, ids=NAMES)
def test_an_exporter_says_what_it_is(exporter: ModuleType) -> None:
    """Its name is its file's; its title is in every language; its entry is below its name, or one file."""
    assert exporter.__name__.rpartition(".")[2] == exporter.NAME
    assert set(exporter.TITLE) == set(LANGS)
    assert all(exporter.TITLE.values())
    assert type(exporter.DEFAULT) is bool
    assert "/" not in exporter.ENTRY or exporter.ENTRY.startswith(f"{exporter.NAME}/")
    assert list(inspect.signature(exporter.export).parameters) == ["edition", "out"]
    assert inspect.getdoc(exporter)


def test_no_two_exporters_write_one_place() -> None:
    """Names and entries are their own."""
    assert len(set(NAMES)) == len({each.ENTRY for each in FOUND}) == len(FOUND) > 3


@pytest.mark.parametrize("exporter", FOUND, ids=NAMES)
def test_an_export_is_whole_and_repeats(
    exporter: ModuleType, edition: Edition, tmp_path: Path
) -> None:
    """The entry is there, from whatever folder it is started, and a second run gives the same bytes."""
    first, second = target(exporter, tmp_path / "one"), target(exporter, tmp_path / "two")
    exporter.export(edition, first)
    (tmp_path / "elsewhere").mkdir()
    with standing_in(tmp_path / "elsewhere"):
        exporter.export(edition, second)
    assert (first.parent / exporter.ENTRY).is_file()
    assert list(first.parent.iterdir()) == [first]
    dated = {"sitemap.xml", "sitemap.xml.gz"}  # MkDocs writes the day into them
    made = [{n: c for n, c in files(out).items() if n not in dated} for out in (first, second)]
    assert made[0] == made[1]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def reads(source: str) -> set[str]:
    """What an exporter's source imports of this project or calls, that is none of its business."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"{node.module}.{each.name}" for each in node.names]
        ours = [m for m in modules if m.partition(".")[0] in ("generator", "runnable_demos")]
        found |= {module for module in ours if not READ.match(module)}
        found |= {
            m for m in modules if m.rpartition(".")[2] in LOADERS or m.startswith("urllib.req")
        }
    return found


def test_the_exporter_of_the_docs_works(edition: Edition, tmp_path: Path) -> None:
    """What ``docs/exporters.en.md`` builds from nothing has the written shape, and lists every card."""
    text = (Path(__file__).parents[2] / "docs" / "exporters.en.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"` { .python .annotate }\n(.*?)```", text, re.DOTALL)
    assert reads(source) == set()
    (tmp_path / "list.py").write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("list", tmp_path / "list.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert set(exporters.Exporter.__annotations__) <= set(vars(made))
    made.export(edition, tmp_path / made.ENTRY)
    lines = (tmp_path / made.ENTRY).read_text(encoding="utf-8").splitlines()
    assert lines[::3] == [card.title["en"] for card in edition.library.cards.values()]
    assert any("proven" in line for line in lines[2::3])


@pytest.mark.parametrize("exporter", FOUND, ids=NAMES)
def test_an_exporter_reads_the_edition_alone(exporter: ModuleType) -> None:
    """It neither loads nor judges: what it tells is in the edition, whose claims were judged once."""
    assert reads(inspect.getsource(exporter)) == set()


@pytest.mark.parametrize(
    "line",
    [
        "from generator.library import library",
        "from generator.library.library import load",
        "from generator.evidence.verdicts import judge",
        "from generator.cards.parse import parse",
        "from generator import checks",
        "from runnable_demos.lab import records",
        "import urllib.request",
    ],
)
def test_whoever_reads_elsewhere_is_seen(line: str) -> None:
    """The rule above can say no."""
    assert reads(line)
