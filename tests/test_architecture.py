"""The rooms of the generator, the import arrows between them, and what it may know of demos."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from generator import checks, exporters
from generator.library import library
from runnable_demos.lab import discovery

ROOT = Path(__file__).parent.parent
MODULES = "modules"
"""The modules that stand beside the rooms: all rooms use them, and they use no room."""

ROOMS = (
    MODULES,
    "cards",
    "evidence",
    "documents",
    "library",
    "tex",
    "checks",
    "lab",
    "authoring",
    "render",
    "graph",
    "edition",
    "exporters",
    "commands",
)
"""In the order of the flow: a room imports from those before it alone."""

NEVER = {
    "checks": {"generator.cards.parse", "generator.filesystem"},
    "exporters": {
        f"generator.cards.{name}" for name in ("parse", "markdown", "front_matter", "syllabus")
    },
}
"""What lies before a room and is closed to it all the same: rules and exporters read no file of a card."""

OPEN_TO_THE_GENERATOR = {
    "metrics", "records", "provenance", "discovery", "figures", "colours", "files", "table", "words",
    "scales", "lifetime", "mechanisms",
}  # fmt: skip
"""What the generator reads of the laboratory; none of it needs torch."""


@cache
def graph() -> grimp.ImportGraph:
    """Who imports whom in both packages; imports for type checkers alone do not count."""
    return grimp.build_graph(
        "generator",
        "runnable_demos",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


Arrow = tuple[str, str]
"""A module, and one that it imports."""


def arrows() -> list[Arrow]:
    """Who imports whom within the generator."""
    return [
        (module, other)
        for module in sorted(graph().modules)
        for other in sorted(graph().find_modules_directly_imported_by(module))
        if module.startswith("generator.") and other.startswith("generator.")
    ]


def room(module: str) -> str:
    """``generator.checks.tex`` stands in ``checks``, ``generator.lang`` beside the rooms."""
    name = module.split(".")[1]
    return name if (ROOT / "generator" / name).is_dir() else MODULES


def upward(arrows: Iterable[Arrow]) -> list[Arrow]:
    """The arrows that lead from a room to a later one."""
    return [
        (module, other)
        for module, other in arrows
        if ROOMS.index(room(module)) < ROOMS.index(room(other))
    ]


def test_every_folder_is_a_room() -> None:
    """No folder of the generator stands outside the order."""
    folders = {path.parent.name for path in (ROOT / "generator").glob("*/__init__.py")}
    assert folders == set(ROOMS) - {MODULES}


def test_arrows_go_down() -> None:
    """What comes earlier in the flow imports nothing that comes later."""
    assert len(arrows()) > 200
    assert upward(arrows()) == []


def test_an_arrow_that_goes_up_is_seen() -> None:
    """Of invented imports, those from a room to a later one are refused, and no others."""
    up = [
        ("generator.library.library", "generator.checks"),
        ("generator.lab.runs", "generator.edition.edition"),
        ("generator.lang", "generator.cards.model"),
    ]
    down = [
        ("generator.checks", "generator.library.library"),
        ("generator.checks.tex", "generator.checks"),
        ("generator.lines", "generator.problems"),
    ]
    assert upward([*up, *down]) == up


def test_there_are_no_cycles() -> None:
    """No module of the generator imports itself by a detour."""
    imports: dict[str, set[str]] = {}
    for module, other in arrows():
        imports.setdefault(module, set()).add(other)
    TopologicalSorter(imports).prepare()  # raises where there is one


@pytest.mark.parametrize("name", NEVER)
def test_what_is_closed_is_not_imported(name: str) -> None:
    """A rule is given the base, and an exporter the edition: neither reads the cards again."""
    found = {other for module, other in arrows() if room(module) == name}
    assert found
    assert found & NEVER[name] == set()


def test_the_generator_reads_the_laboratory_where_it_is_open() -> None:
    """No module of the generator imports a demo or a measuring tool, or anything that needs torch."""
    is_open = {f"runnable_demos.lab.{name}" for name in OPEN_TO_THE_GENERATOR}
    read = set()
    for module in graph().modules:
        others = graph().find_modules_directly_imported_by(module)
        if module.startswith("generator"):
            read |= {each for each in others if each.startswith("runnable_demos.")}
        if module.startswith("generator") or module in is_open:
            assert "torch" not in others, module
    assert read == is_open


def test_demos_know_nothing_of_cards() -> None:
    """Nothing in the laboratory imports the generator."""
    for module in graph().modules:
        if module.startswith("runnable_demos"):
            others = graph().find_modules_directly_imported_by(module)
            assert not [other for other in others if other.startswith("generator")], module


def borrowed(imports: grimp.ImportGraph, demos: Iterable[str]) -> list[str]:
    """Which demo imports which other one, itself."""
    modules = {f"runnable_demos.{name}" for name in demos}
    return [
        f"{module} imports {other}"
        for module in sorted(modules)
        for other in sorted(imports.find_modules_directly_imported_by(module) & modules)
    ]


def test_a_demo_imports_no_other_demo() -> None:
    """A demo can be read, changed and taken away by itself; what several need is in lab or models."""
    demos = discovery.discover(ROOT / "runnable_demos")
    assert len(demos) > 30
    assert borrowed(graph(), demos) == []


def test_a_demo_that_borrows_from_another_is_named() -> None:
    """The rule above sees an import of a demo, and takes none of lab or models for one."""
    imports = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "models.gpt"), ("a", "lab.measure")):
        imports.add_import(
            importer=f"runnable_demos.{importer}", imported=f"runnable_demos.{imported}"
        )
    assert borrowed(imports, ["a", "b"]) == ["runnable_demos.a imports runnable_demos.b"]


def sources() -> Iterator[Path]:
    """Every text file of the generator that is ours."""
    for file in sorted((ROOT / "generator").rglob("*")):
        if file.suffix in {".py", ".html", ".jinja", ".j2", ".md"} and "vendor" not in file.parts:
            yield file


def test_the_generator_names_no_card_and_no_demo() -> None:
    """It works on any base: no id of ours stands in its code, its comments or its templates."""
    found, _ = library.load(ROOT / "cards")
    assert found is not None
    planned = {card.id for module in found.modules.values() for card in module.planned}
    names = planned | set(found.cards) | set(discovery.discover(ROOT / "runnable_demos"))
    assert len(names) > 31
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names)))})(?![\w-])")
    named = [
        f"{file.relative_to(ROOT)}:{number} names {hit.group()}"
        for file in sources()
        for number, line in enumerate(file.read_text().split("\n"), 1)
        for hit in pattern.finditer(line)
    ]
    assert named == []


def test_rules_and_exporters_are_found_not_listed() -> None:
    """A new file is enough: no module of the generator imports a rule or an exporter by name."""
    for package, found in (("checks", checks.rules()), ("exporters", tuple(exporters.discover()))):
        files = {path.stem for path in (ROOT / "generator" / package).glob("[!_]*.py")}
        assert {each.__name__.rsplit(".", 1)[1] for each in found} == files  # type: ignore[attr-defined]


def test_importing_the_generator_needs_no_torch() -> None:
    """Every module of the generator imports where torch is blocked."""
    names = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in sources()
        if file.suffix == ".py" and file.name != "__main__.py"
    ]
    code = (
        "import sys, importlib\n"
        "sys.modules['torch'] = None\n"  # any import of it raises
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(len(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_the_standard_library_reads_records() -> None:
    """What ``check`` needs of the laboratory is standard library alone, figures aside."""
    for name in OPEN_TO_THE_GENERATOR - {"figures"}:
        needed = graph().find_upstream_modules(f"runnable_demos.lab.{name}")
        firsts = {module.partition(".")[0] for module in needed}
        assert firsts <= sys.stdlib_module_names | {"runnable_demos"}, name
