"""The rules: each with cases that break and keep it, found by discovery as the rules are."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from generator import checks, library
from generator.lang import LANGUAGE_HEADINGS, SECTION_HEADINGS
from generator.problems import Problem

HERE = Path(__file__).parent
CASES = HERE / "cases"
BASE = HERE / "library"
HEADINGS = {
    *(f"# {name}" for name in LANGUAGE_HEADINGS.values()),
    *(f"## {name}" for names in SECTION_HEADINGS.values() for name in names.values()),
}
COMMENT = re.compile(r"<!--(.*?)-->\n*", re.DOTALL)
EXPECTED = re.compile(r"at: (?P<at>.+)\n\s*says: (?P<says>.+)")


@dataclass(frozen=True)
class Case:
    """A card's text, and where a rule must speak about it: line, column and words.

    ``also`` is what the parser has to say about the same fault.
    """

    text: str
    expected: tuple[tuple[int, int, str], ...]
    also: frozenset[str]


def parts(text: str) -> dict[str, str]:
    """The parts of a card by the headings that lead to them; the front matter line by key."""
    found: dict[str, str] = {}
    front, fence, body = text.partition("\n---\n") if text.startswith("---\n") else ("", "", text)
    key = ""
    for row in front.splitlines(keepends=True)[1:] + ["\n"] * bool(fence):
        if not row.startswith(" ") and row.strip():
            key = row.split(":")[0]
        found[key] = found.get(key, "") + (row if row.endswith("\n") else row + "\n")
    half = ""
    key = "before"
    for row in body.splitlines(keepends=True):
        if row.rstrip() in HEADINGS:
            half = row if row.startswith("# ") else half
            key = half if row == half else half + row
            found[key] = ""
        elif key != "before":
            found[key] += row
    return found


def merged(changes: str) -> str:
    """The whole card of a case: ``card.md`` with the case's parts in place of its own."""
    whole = parts((CASES / "card.md").read_text(encoding="utf-8")) | parts(changes)
    front = "".join(each for key, each in whole.items() if not key.startswith("# ")).strip()
    body = "".join(
        f"{key.splitlines()[-1]}\n\n{each.strip()}\n\n"
        for key, each in whole.items()
        if key.startswith("# ")
    )
    return f"---\n{front}\n---\n\n{body}"


def case(path: Path) -> Case:
    """Read a case."""
    raw = path.read_text(encoding="utf-8")
    comment = COMMENT.match(raw)
    text = merged(raw[comment.end() :] if comment else raw)
    notes = comment[1] if comment else ""
    expected = []
    for found in EXPECTED.finditer(notes):
        before, after = found["at"].split("▸")
        assert text.count(before + after) == 1, f"{found['at']!r} must stand there once"
        at = text.index(before + after) + len(before)
        row = text.rfind("\n", 0, at)
        expected.append((text.count("\n", 0, at) + 1, at - row, found["says"].strip()))
    return Case(text, tuple(sorted(expected)), frozenset(re.findall(r"also: (\S+)", notes)))


def problems_of(text: str, folder: Path) -> list[Problem]:
    """What is wrong with the small base when this card is added to it."""
    shutil.copytree(BASE, folder, dirs_exist_ok=True)
    card = folder / "cards" / "numerics" / "case.md"
    card.write_text(text, encoding="utf-8")
    found, problems = library.load(folder / "cards", demos=folder / "runnable_demos")
    assert found is not None
    assert "case" in found.cards, problems
    return problems


def cases(kind: str) -> list[Path]:
    """The cases of a kind, by path."""
    return sorted(CASES.glob(f"*/{kind}*.md"))


def name(path: Path) -> str:
    """A case's name in the test's."""
    return f"{path.parent.name}-{path.stem}"


def test_every_rule_is_documented_and_has_cases() -> None:
    """A rule that is found has a code, a severity, a sentence, and a case for each side."""
    rules = checks.rules()
    assert len(rules) >= 20
    codes = [rule.CODE for rule in rules]
    assert len(set(codes)) == len(codes)
    for rule in rules:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.CODE)
        assert rule.SEVERITY in {"error", "warning"}
        assert rule.SENTENCE.endswith((".", ".”"))
        assert list((CASES / rule.CODE).glob("fail*.md")), rule.CODE
        assert list((CASES / rule.CODE).glob("pass*.md")), rule.CODE
    assert {path.parent.name for path in CASES.glob("*/*.md")} == set(codes)


def test_the_card_that_cases_change_is_good(tmp_path: Path) -> None:
    """Without a change the card breaks no rule."""
    assert problems_of(merged(""), tmp_path) == []


@pytest.mark.parametrize("path", cases("fail"), ids=name)
def test_a_failing_case_is_found_where_it_fails(path: Path, tmp_path: Path) -> None:
    """The rule speaks at each spot that the case names, and at no other; no other rule speaks."""
    code = path.parent.name
    made = case(path)
    assert made.expected
    problems = [p for p in problems_of(made.text, tmp_path) if p.code not in made.also]
    assert [(p.place.line, p.place.column) for p in problems] == [
        (line, column) for line, column, _ in made.expected
    ]
    [rule] = [rule for rule in checks.rules() if code == rule.CODE]
    for problem, (_, _, says) in zip(problems, made.expected, strict=True):
        assert says in problem.message
        assert problem.code == code or problem.code.startswith(f"{code}-")
        assert problem.severity == rule.SEVERITY
        assert problem.place.path.endswith("case.md")
        assert problem.hint.endswith((".", "?")), problem.hint


@pytest.mark.parametrize("path", cases("pass"), ids=name)
def test_a_passing_case_is_not_blamed(path: Path, tmp_path: Path) -> None:
    """What comes close to breaking a rule, and keeps it, breaks no rule at all."""
    assert problems_of(case(path).text, tmp_path) == []
