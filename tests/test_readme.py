"""The README against the program: its commands, its outputs, its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from generator import commands, exporters

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def leaves(command: Any, name: str) -> set[str]:
    """The full names of a command's leaves."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name}
    return {leaf for each in inner for leaf in leaves(inner[each], f"{name} {each}")}


def test_the_table_of_commands_is_the_programs() -> None:
    """Each command is documented, and nothing is documented that is no command."""
    documented = set(re.findall(r"^\| `(proofdeck [a-z -]+?)` \|", README, re.MULTILINE))
    assert documented == leaves(typer.main.get_command(commands.app()), "proofdeck")


def test_each_option_that_the_table_of_commands_names_is_one() -> None:
    """What a row says of options, its command takes."""
    rows = re.findall(r"^\| `proofdeck ([a-z -]+?)` \| (.*) \|$", README, re.MULTILINE)
    named = {name: set(re.findall(r"`(--[a-z-]+)", said)) for name, said in rows}
    assert {"--json", "--explain"} <= named["check"]
    program: Any = typer.main.get_command(commands.app())
    for name, options in named.items():
        command = program
        for word in name.split():
            command = command.commands[word]
        assert options <= {each for option in command.params for each in option.opts}, name


def test_the_table_of_outputs_is_what_exporters_build() -> None:
    """Each exporter's output is named, and nothing else."""
    section = README.split("| in `dist/` |")[1].split("\n\n")[0]
    documented = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    expected = {f"{each.NAME}/" if "/" in each.ENTRY else each.ENTRY for each in exporters.usual()}
    assert documented == expected


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    """`make build` and `make test` exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"^\$ make ([a-z]+)", README, re.MULTILINE))
    assert named == {"build", "test"}
    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_everything_the_readme_links_to_is_there() -> None:
    """Files, pictures and the demo that it shows exist."""
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [t for t in targets if not (ROOT / t).is_file()] == []
    demo = re.search(r"proofdeck demo run ([a-z_]+)$", README, re.MULTILINE)
    assert demo is not None
    assert (ROOT / "runnable_demos" / f"{demo[1]}.py").is_file()
