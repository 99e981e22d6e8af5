"""Names that something else has already: refused by check, before a page or a note is overwritten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from generator import checks
from generator.cards import addresses
from generator.names import is_id, why_no_id
from generator.problems import Problem

BASE = Path(__file__).parent / "library"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the small base, to be broken."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def replace(base: Path, name: str, old: str, new: str) -> None:
    """Change every place in a file of the copy."""
    file = base / "cards" / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def reserved(base: Path) -> list[Problem]:
    """The problems with names that are taken."""
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    return [problem for problem in problems if problem.code == "reserved-id"]


def test_the_small_base_takes_nothing() -> None:
    """Nor does ours."""
    assert reserved(BASE) == []
    assert reserved(Path(__file__).parent.parent) == []


@pytest.mark.parametrize(
    "name",
    [
        "graph",
        "study",
        "glossary",
        "about",
        "cards",
        "paths",
        "demos",
        "report",
        "search",
        "assets",
    ],
)
def test_no_module_is_called_like_a_part_of_the_site(base: Path, name: str) -> None:
    """Its page would take the other's place; the problem stands at its id."""
    replace(base, "modules.yml", "id: storage", f"id: {name}")
    (found,) = reserved(base)
    assert f"`{name}`" in found.message
    row = (base / "cards/modules.yml").read_text().split("\n")[found.place.line - 1]
    assert row[found.place.column - 1 :].startswith((name, f"id: {name}"))


def test_no_topic_is_called_like_a_part_of_its_modules_page(base: Path) -> None:
    """Two parts of one page would have one address."""
    replace(base, "modules.yml", "sums:", "planned:")
    assert [problem.place.path.endswith("modules.yml") for problem in reserved(base)] == [True]


@pytest.mark.parametrize(
    "name",
    ["evidence", "connections", "answer", "followups", "ev-float-sums", "fig-a", "pd-search"],
)
def test_no_item_is_called_like_a_part_of_the_page(base: Path, name: str) -> None:
    """A follow-up's id is its anchor; the problem is named in both languages."""
    first = (base / "cards/numerics/rounding.md").read_text().split("<!-- #")[1].split(" -->")[0]
    replace(base, "numerics/rounding.md", f"<!-- #{first} -->", f"<!-- #{name} -->")
    assert [f"`{name}`" in problem.message for problem in reserved(base)] == [True, True]


def test_no_item_is_called_like_another_in_its_other_language(base: Path) -> None:
    """In a note, `x` is `x-en` in English."""
    text = (base / "cards/numerics/rounding.md").read_text()
    first, second = (part.split(" -->")[0] for part in text.split("<!-- #")[1:3])
    replace(base, "numerics/rounding.md", f"<!-- #{second} -->", f"<!-- #{first}-en -->")
    found = reserved(base)
    assert len(found) == 2
    assert all(f"`{first}-en` is what `{first}`" in problem.message for problem in found)


def test_no_card_is_called_like_the_first_note(base: Path) -> None:
    """Obsidian does not tell `proofdeck` from `Proofdeck`."""
    (base / "cards/numerics/rounding.md").rename(base / "cards/numerics/proofdeck.md")
    replace(base, "numerics/proofdeck.md", "id: rounding", "id: proofdeck")
    assert [problem.place.line for problem in reserved(base)] == [2]


@pytest.mark.parametrize("name", ["con", "prn", "aux", "nul", "com1", "lpt9", "com0"])
def test_no_id_is_a_device_of_windows(name: str) -> None:
    """Such a file cannot be made there, whatever its ending; longer names can."""
    assert not is_id(name)
    assert "Windows" in why_no_id(name)
    assert is_id(f"{name}-x")


@pytest.mark.parametrize(
    "name", ["", "x.", "x ", "X", "x--y", "-x", "x-", "a" * 81, "x\n", "汉", "ﬁ"]
)
def test_no_id_is_changed_by_a_file_system(name: str) -> None:
    """Trailing dots and spaces, case, foreign letters, and names too long for a path."""
    assert not is_id(name)
    assert is_id("a" * 80)


def test_names_that_differ_by_case_alone_are_refused(base: Path) -> None:
    """On a file system that ignores case, one would overwrite the other."""
    cards = base / "cards" / "numerics"
    shutil.copy(cards / "rounding.md", cards / "Rounding.md")
    shutil.copy(cards / "rounding.md", cards / "rounding.MD")
    (base / "cards" / "Numerics").mkdir()
    shutil.copy(cards / "kahan-sum.md", base / "cards" / "Numerics" / "kahan-sum.md")
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    codes = [problem.code for problem in problems]
    assert codes.count("duplicate-id") == 3
    assert codes.count("id-not-file-name") == 1
    assert codes.count("wrong-folder") == 1


def test_the_table_of_addresses_is_what_a_site_has(site: Path) -> None:
    """Every page, folder and file at the top of a built site is in it, and nothing else."""
    modules = {"numerics"}
    found = {path.name.partition(".")[0] for path in site.iterdir()} - modules
    assert found == addresses.TAKEN


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the small base, which knows its address: one that does not has no feed."""
    from generator.edition import edition as editions  # noqa: PLC0415 - drawing is slow to import
    from generator.exporters import site as exporter  # noqa: PLC0415

    out = tmp_path_factory.mktemp("site") / "site"
    demos = BASE / "runnable_demos"
    found, _ = checks.load(BASE / "cards", demos=demos)
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SITE_URL", "https://cards.example/")
        exporter.export(editions.bind(found, demos), out)
    return out
