"""`proofdeck migrate`: what a program can know is written, and nothing else is touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from generator import checks, commands
from generator.authoring import migrate
from generator.cards import syllabus
from generator.library import library

HERE = Path(__file__).parent
MODULES = (HERE / "library" / "cards" / "modules.yml").read_text(encoding="utf-8")
OLD = MODULES.replace("format: 2\n\n", "")


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """The cards of a base of format 1, with one card that is not yet in format 2."""
    shutil.copytree(HERE / "library", tmp_path / "base")
    folder = tmp_path / "base" / "cards"
    (folder / "modules.yml").write_text(OLD)
    shutil.copy(HERE / "cases" / "card.md", folder / "numerics" / "case.md")
    return folder


def run(cards: Path, *more: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    done = CliRunner().invoke(commands.app(), ["migrate", "--cards", str(cards), *more])
    return done.exit_code, done.stdout


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with what stands in it."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_base_of_format_1_becomes_one_of_format_2(cards: Path) -> None:
    """One line is written, in one file; what remains is said in words, card by card."""
    before = contents(cards)
    code, said = run(cards)
    after = contents(cards)
    assert code == 0
    assert after.pop("modules.yml").decode() == OLD.replace(
        "modules:\n", "format: 2\nmodules:\n", 1
    )
    before.pop("modules.yml")
    assert after == before
    assert said.splitlines() == [
        f"{cards}/modules.yml: `format: 2` written",
        f"{cards}/numerics/case.md still needs",
        "  - in its front matter: `question`, `asked`, `frequency`",
        "  - sections: 三十秒口述 · Say it in thirty seconds; 直觉 · Intuition; 算一笔账 · Worked example; "
        "评分 · What the interviewer listens for",
        "  - which of 1 pitfall stands below which heading: 会说错的 · Said in interviews; 会写错的 · Shipped in code",
        "  - how often each of 3 follow-ups is asked, in the comment with its id",
        "  - 1 more follow-up",
        "1 card to be converted by hand",
    ]
    _, problems = checks.load(cards, demos=cards.parent / "runnable_demos")
    assert [problem.code for problem in problems] == ["format-cards"]


def test_a_second_run_changes_nothing(cards: Path) -> None:
    """It only says again what remains."""
    run(cards)
    before = contents(cards)
    code, said = run(cards)
    assert (code, contents(cards)) == (0, before)
    assert "written" not in said
    assert said.endswith("1 card to be converted by hand\n")


def test_what_a_card_says_already_is_not_asked_for_again(cards: Path) -> None:
    """Front matter and comments may be written before the question is."""
    file = cards / "numerics" / "case.md"
    text = file.read_text().replace("topic: sums", "topic: sums\nfrequency: often")
    file.write_text(text.replace("#odd -->", "#odd often -->"))
    said = json.loads(run(cards, "--json")[1])
    assert said["written"] == f"{cards}/modules.yml"
    [left] = said["remaining"]
    assert left["path"] == f"{cards}/numerics/case.md"
    assert left["lacks"][0] == "in its front matter: `question`, `asked`"
    assert left["lacks"][3] == "how often each of 2 follow-ups is asked, in the comment with its id"


MODULE = "{id: a, code: M1, title: {zh: 甲, en: A}, summary: {zh: 甲, en: A}}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"modules: [{MODULE}]\n", f"format: 2\nmodules: [{MODULE}]\n"),
        (f"modules: [{MODULE}]", f"format: 2\nmodules: [{MODULE}]"),
        (f"\ufeffmodules: [{MODULE}]\r\n", f"\ufeffformat: 2\r\nmodules: [{MODULE}]\r\n"),
        (f"---\n# a note\n\nmodules: [{MODULE}]\n", f"---\n# a note\n\nformat: 2\nmodules: [{MODULE}]\n"),
        (f"  modules: [{MODULE}]\n", f"  format: 2\n  modules: [{MODULE}]\n"),
        (f"modules: [{MODULE}]\nformat:  1  # old\n", f"modules: [{MODULE}]\nformat:  2  # old\n"),
        (f"paths: []\nmodules: [{MODULE}]\n", f"format: 2\npaths: []\nmodules: [{MODULE}]\n"),
    ],
)  # fmt: skip
def test_all_other_bytes_of_the_file_stay(before: str, after: str, tmp_path: Path) -> None:
    """Byte order mark, line ends, comments, indents and the order of keys are their author's."""
    file = tmp_path / "modules.yml"
    file.write_bytes(before.encode())
    plan, _ = library.read_syllabus(tmp_path)
    assert plan is not None
    assert migrate.write(plan) == file
    assert file.read_bytes() == after.encode()
    again, _ = syllabus.read(after, "modules.yml")
    assert again is not None
    assert (again.format, again.modules) == (2, plan.modules)
    assert [each.name for each in tmp_path.iterdir()] == ["modules.yml"]


def test_a_file_without_a_line_for_it_is_left_alone(cards: Path) -> None:
    """In YAML's flow style nothing is written, and the author is told what to write."""
    text = f"{{modules: [{MODULE}]}}\n"
    (cards / "modules.yml").write_text(text)
    code, said = run(cards)
    assert code == 1
    assert "Write `format: 2` among its top keys yourself." in said
    assert (cards / "modules.yml").read_text() == text


def test_a_file_that_changes_meanwhile_is_not_overwritten(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another wrote between reading and writing stays."""
    plan, _ = library.read_syllabus(cards)
    assert plan is not None
    theirs = OLD + "# theirs\n"
    made = migrate._with_format

    def slow(text: str, found: syllabus.Syllabus) -> str:
        (cards / "modules.yml").write_text(theirs)
        return made(text, found)

    monkeypatch.setattr(migrate, "_with_format", slow)
    result = migrate.write(plan)
    assert getattr(result, "code", "") == "migrate"
    assert (cards / "modules.yml").read_text() == theirs


def test_a_card_that_cannot_be_read_is_said_so(cards: Path) -> None:
    """Its problems are shown, since nobody can say what it lacks; the syllabus is written all the same."""
    (cards / "numerics" / "broken.md").write_text("no card\n")
    code, said = run(cards)
    assert code == 1
    assert "broken.md:1:1: no-front-matter" in said
    assert "`format: 2` written" in said


def test_without_a_syllabus_nothing_is_written(tmp_path: Path) -> None:
    """Exit codes are those of the other commands."""
    code, said = run(tmp_path)
    assert code == 1
    assert "no-modules" in said
    assert list(tmp_path.iterdir()) == []
    assert run(tmp_path / "nowhere")[0] == 2
