"""The import arrows of docs/architecture.md, and what the generator may know."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from generator import checks, exporters
from generator.library import library
from runnable_demos.lab import discovery

ROOT = Path(__file__).parent.parent
PURE = {"lang", "problems"}
TEXT = PURE | {"model", "lines", "characters", "names", "web"}
REACH = {
    "problems": set(),
    "lang": set(),
    "model": PURE,
    "lines": {"problems", "characters"},
    "markdown": TEXT,
    "front_matter": TEXT | {"yaml_document"},
    "parse": TEXT | {"yaml_document", "markdown", "front_matter"},
    "markup": {"lang"},
    "render": TEXT | {"line_ends", "mathml", "markup"},
    "quantities": PURE,
    "soundness": PURE,
    "evidence": TEXT | {"quantities", "soundness"},
}
"""For modules whose arrows are few: all that they import, directly or not."""

NEVER = {
    "library": {"render", "book", "pages", "exporters", "build", "refresh", "new_card", "cli"},
    "checks": {"library", "parse", "filesystem", "render", "book", "exporters", "cli"},
    "exporters": {"parse", "markdown", "syllabus", "front_matter", "cli", "build"},
    "book": {"exporters", "pages", "build", "cli"},
    "laboratory": {"parse", "library", "model", "cli"},
}
"""What a module does not import itself; ``exporters`` and ``checks`` stand for all files in them."""

OPEN_TO_THE_GENERATOR = {"metrics", "records", "provenance", "discovery", "figures", "files"}
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


def part(module: str) -> str:
    """``generator.checks.tex`` is a part of ``checks``."""
    return module.split(".")[1] if "." in module else ""


def arrows() -> dict[str, set[str]]:
    """Who imports whom among the parts of the generator."""
    found: dict[str, set[str]] = {}
    for module in graph().modules:
        if module.startswith("generator."):
            for other in graph().find_modules_directly_imported_by(module):
                if other.startswith("generator.") and part(other) != part(module):
                    found.setdefault(part(module), set()).add(part(other))
    return found


def reached(start: str) -> set[str]:
    """All parts that a part imports, directly or not."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in arrows().get(todo.pop(), set()) - seen:
            seen.add(other)
            todo.append(other)
    return seen


def test_there_are_no_cycles() -> None:
    """No part of the generator imports itself by a detour."""
    assert [name for name in arrows() if name in reached(name)] == []


@pytest.mark.parametrize("name", REACH)
def test_the_first_steps_know_little(name: str) -> None:
    """Parsing, rendering and evidence reach only what the page on architecture allows."""
    assert reached(name) <= REACH[name]


@pytest.mark.parametrize("name", NEVER)
def test_arrows_point_one_way(name: str) -> None:
    """What comes earlier in the flow does not import what comes later."""
    assert arrows().get(name, set()) & NEVER[name] == set()


def test_only_the_command_line_imports_the_command_line() -> None:
    """Everything else can be used as a library."""
    importers = {name for name, others in arrows().items() if others & {"cli", "lab_cli"}}
    assert importers <= {"cli"}


def test_the_generator_reads_the_laboratory_where_it_is_open() -> None:
    """No module of the generator imports a demo or a measuring tool, or anything that needs torch."""
    for module in graph().modules:
        others = graph().find_modules_directly_imported_by(module)
        if module.startswith("generator"):
            laboratory = {part(each) for each in others if each.startswith("runnable_demos")}
            # ``laboratory`` starts demos in processes of their own.
            extra = (
                {"__main__"}
                if module in {"generator.lab.runs", "generator.commands.lab_cli"}
                else set()
            )
            assert laboratory - {""} <= OPEN_TO_THE_GENERATOR | extra, module
        if module.startswith("generator") or part(module) in OPEN_TO_THE_GENERATOR:
            assert "torch" not in others, module


def test_demos_know_nothing_of_cards() -> None:
    """Nothing in the laboratory imports the generator."""
    for module in graph().modules:
        if module.startswith("runnable_demos"):
            others = graph().find_modules_directly_imported_by(module)
            assert not [other for other in others if other.startswith("generator")], module


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
        tree = ast.parse((ROOT / "runnable_demos" / f"{name}.py").read_text())
        for node in ast.walk(tree):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for module in modules:
                first = module.partition(".")[0]
                assert first in sys.stdlib_module_names | {"runnable_demos"}, (name, module)
