"""A build is all or nothing, and gives the same bytes for the same base."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from generator import exporters
from generator.edition.edition import bind
from generator.exporters import Built, Progress
from generator.library import library
from generator.library.library import Library
from generator.output_tree import Kept
from tests.exporters.html_tree import read

ROOT = Path(__file__).parents[1]
BASE = Path(__file__).parent / "library"
DEMOS = BASE / "runnable_demos"


@pytest.fixture(scope="module")
def small() -> Library:
    """The small base."""
    found, _ = library.load(BASE / "cards", demos=DEMOS)
    assert found is not None
    return found


def build(library: Library, out: Path, progress: Progress) -> tuple[list[Built], Kept]:
    """What ``proofdeck build`` does with a base that is sound."""
    return exporters.export_all(bind(library, DEMOS), out, progress)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_a_build_writes_every_output_and_says_where_each_begins(
    small: Library, tmp_path: Path
) -> None:
    """Progress is reported as often as promised; each entry is a file; nothing is left beside."""
    out = tmp_path / "dist"
    reported: list[str] = []
    built, kept = build(small, out, reported.append)
    assert reported == [exporter.NAME for exporter in exporters.usual()]
    assert {each.name for each in built} >= {"site", "handbook", "vault"}
    assert all(each.entry.is_file() for each in built)
    assert kept == Kept()
    assert list(tmp_path.iterdir()) == [out]


def test_two_builds_of_a_base_are_equal(
    small: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the day nor the place of a build stands in what it writes."""
    for name, epoch in (("one", "1000000000"), ("two", "2000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        build(small, tmp_path / name, lambda _: None)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_an_exporter_that_fails_leaves_the_last_build_whole(
    small: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood there stands there, to the byte, and nothing half-made stands beside it."""
    out = tmp_path / "dist"
    build(small, out, lambda _: None)
    before = tree(out)
    failing = ModuleType("failing")
    failing.NAME, failing.ENTRY = "zzz", "zzz/index.html"  # type: ignore[attr-defined]
    failing.DEFAULT = True  # type: ignore[attr-defined]

    def export(_: object, folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text("half")
        raise OSError(28, "No space left on device")

    failing.export = export  # type: ignore[attr-defined]
    real = list(exporters.discover())

    def with_failing() -> Iterator[ModuleType]:
        yield from [*real, failing]

    monkeypatch.setattr(exporters, "discover", with_failing)
    with pytest.raises(OSError, match="No space left"):
        build(small, out, lambda _: None)
    assert tree(out) == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors cannot be taken away")
def test_one_core_builds_what_several_do(tmp_path: Path) -> None:
    """Exporters side by side write what they write one after another; a cache may be there or not."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    one = sorted(os.sched_getaffinity(0))[:1]
    built = {}
    for name, cores in (("alone", one), ("together", os.sched_getaffinity(0))):
        for kept in ("", str(tmp_path / "cache")):
            subprocess.run(
                [Path(sys.executable).with_name("proofdeck"), "build", "--out", "dist"],
                cwd=tmp_path,
                env={**os.environ, "PROOFDECK_CACHE": kept},
                preexec_fn=partial(os.sched_setaffinity, 0, cores),
                capture_output=True,
                check=True,
            )
            built[name, bool(kept)] = tree(tmp_path / "dist")
    assert len(built) == 4
    assert all(each == built["alone", False] for each in built.values())


def test_what_an_exporter_left_half_made_is_cleared_before_it_tries_again(
    small: Library, tmp_path: Path
) -> None:
    """A process that dies in the middle leaves a folder, or a file, which the next try does not find."""
    for entry, half in (("twice/index.html", "twice/half.html"), ("twice.html", "twice.html")):
        exporter = ModuleType("twice")
        exporter.NAME, exporter.ENTRY = "twice", entry  # type: ignore[attr-defined]

        def export(_: object, out: Path, entry: str = entry) -> None:
            file = out / Path(entry).name if "/" in entry else out
            file.parent.mkdir(exist_ok=True)
            with file.open("x") as opened:
                opened.write("whole")

        exporter.export = export  # type: ignore[attr-defined]
        (tmp_path / half).parent.mkdir(exist_ok=True)
        (tmp_path / half).write_text("half")
        exporters._export(cast(exporters.Exporter, exporter), bind(small, DEMOS), tmp_path)
        assert tree(tmp_path).pop(entry) == b"whole"
        assert "twice/half.html" not in tree(tmp_path)


@pytest.mark.parametrize("name", ["cards", "cards/numerics", "dist", "dist/cache"])
def test_a_cache_among_cards_or_outputs_is_refused(tmp_path: Path, name: str) -> None:
    """It would be taken for a module, or for a reader's own files; nothing is written."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [Path(sys.executable).with_name("proofdeck"), "build"],
        cwd=tmp_path,
        env={**os.environ, "PROOFDECK_CACHE": name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"the cache {name} stands in" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_check_writes_no_cache_among_the_cards(tmp_path: Path) -> None:
    """Where the cache's folder stands there, the check keeps nothing, and says what it always says."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    command = [Path(sys.executable).with_name("proofdeck"), "check"]
    environment = {**os.environ, "PROOFDECK_CACHE": "cards/kept"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("program", [["proofdeck", "check"], ["mkdocs", "build", "--quiet"]])
def test_whatever_fills_the_cache_keeps_it_within_its_bound(
    tmp_path: Path, program: list[str]
) -> None:
    """A check and MkDocs alone clear what a killed build left, as a build does."""
    shutil.copytree(BASE, tmp_path / "base")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path / "base")
    (tmp_path / "base" / "generator").mkdir()  # which its settings watch
    shutil.copytree(ROOT / "site_overrides", tmp_path / "base" / "site_overrides")
    left = tmp_path / "cache" / "ab" / ".proofdeck-left"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    done = subprocess.run(
        [Path(sys.executable).with_name(program[0]), *program[1:]],
        cwd=tmp_path / "base",
        env={**os.environ, "PROOFDECK_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "cache").rglob("*"))) > 10
    assert not left.exists()


def test_zensical_builds_the_exported_pages(tmp_path: Path) -> None:
    """The pages exist as files for another builder, which shows the same articles."""
    out = tmp_path / "pages"
    proofdeck = Path(sys.executable).with_name("proofdeck")
    done = subprocess.run(
        [proofdeck, "export-pages", out, "--cards", BASE / "cards", "--demos", DEMOS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [zensical, "build", "-f", "mkdocs.yml"],
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for card in ("rounding", "float-bytes", "kahan-sum"):
        page = read((out / "site" / "cards" / card / "index.html").read_text(encoding="utf-8"))
        article = page.all("article", class_="pd-card")[0]
        text = (BASE / "cards" / "numerics" / f"{card}.md").read_text("utf-8")
        headings = text.partition("# English")[0].count("\n## ")
        assert len(article.all("section", class_="pd-section")) == headings + 2
        followups = re.findall("^### .+<!-- #", text, re.MULTILINE)
        assert len(article.all("details", class_="pd-followup")) == len(followups)
        assert article.all("math")
        assert not page.all("p", class_="pd-half")
    for address, headings in (("docs/proofs", 5), ("demos/float_sums", 8)):
        page = read((out / "site" / address / "index.html").read_text(encoding="utf-8"))
        (sheet,) = page.all("div", class_="pd-page")
        assert len(sheet.all("section", class_="pd-section")) == headings
        assert {half["lang"] for half in sheet.all("div", class_="pd-half")} == {"zh-Hans", "en"}
    code = read((out / "site/cards/kahan-sum/index.html").read_text(encoding="utf-8")).all("pre")[0]
    assert code.text().startswith("def kahan ( numbers ): total")
