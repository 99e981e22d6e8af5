"""A folder of cards becomes a library; what does not hold together is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.cards import parse, syllabus
from generator.checks import Base, cycle, load
from generator.evidence.evidence import Evidence
from generator.library import library
from generator.library.library import Contents, Library
from generator.problems import Problem

BASE = Path(__file__).parent / "library"

Spot = tuple[str, int, int] | tuple[()]
"""File name, line and column; nothing where nothing was marked."""

Edit = Callable[[str, str, str], Spot]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the small base, to be broken."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def edit(base: Path) -> Edit:
    """Change a file of the copy, and tell where the mark ⟦ in the new text stands."""

    def change(name: str, old: str, new: str) -> Spot:
        file = base / "cards" / name
        text = file.read_text()
        assert old in text
        before, mark, behind = text.replace(old, new, 1).partition("⟦")
        file.write_text(before + behind)
        return (file.name, before.count("\n") + 1, len(before.split("\n")[-1]) + 1) if mark else ()

    return change


def check(base: Path) -> list[Problem]:
    """All problems of a base."""
    return load(base / "cards", demos=base / "runnable_demos")[1]


def only(base: Path, code: str) -> Problem:
    """The single problem of a base, which has this code."""
    problems = check(base)
    assert [problem.code for problem in problems] == [code], problems
    return problems[0]


def spot(problem: Problem) -> Spot:
    """File name, line and column of a problem."""
    place = problem.place
    return place.path.rsplit("/", 1)[1], place.line, place.column


# --- a sound base --------------------------------------------------------------------------------


def whole() -> Library:
    """The library of the small base, which has no problem."""
    found, problems = load(BASE / "cards", demos=BASE / "runnable_demos")
    assert problems == []
    assert found is not None
    return found


def test_the_graph_of_the_small_base() -> None:
    """Reading order, what each card unlocks, and who links where, counted by hand."""
    found = whole()
    assert list(found.cards) == ["rounding", "float-bytes", "kahan-sum"]
    assert found.unlocks == {
        "rounding": ("float-bytes", "kahan-sum"),
        "float-bytes": ("kahan-sum",),
    }
    assert found.backlinks == {
        "float-bytes": ("rounding",),
        "kahan-sum": ("rounding",),
        "pairwise-sum": ("kahan-sum",),
    }
    assert list(found.modules) == ["numerics", "storage"]
    assert [path.id for path in found.paths] == ["sums-in-an-hour"]
    assert [card.id for card in found.modules["numerics"].planned] == ["pairwise-sum"]
    assert ("float_sums", "cpu") in found.evidence.records


def test_a_planned_card_that_exists_is_planned_no_more(base: Path, edit: Edit) -> None:
    """The plan need not be edited on the day a card is written."""
    written = "      - {id: rounding, title: {zh: 舍入, en: Rounding}}\n"
    edit("modules.yml", "    planned:\n", f"    planned:\n{written}")
    found, problems = load(base / "cards", demos=base / "runnable_demos")
    assert problems == []
    assert found is not None
    assert [card.id for card in found.modules["numerics"].planned] == ["pairwise-sum"]


def test_a_base_without_demos_proves_nothing() -> None:
    """Without evidence the cards still load, and their claims are problems."""
    found, problems = load(BASE / "cards")
    assert found is not None
    assert found.evidence.records == {}
    assert problems


@given(st.lists(st.sets(st.integers(0, 11)), min_size=12, max_size=12), st.permutations(range(12)))
def test_no_card_stands_before_its_prerequisites(edges: list[set[int]], names: list[int]) -> None:
    """Whatever acyclic graph the cards form, the next card is the first by its id that is ready."""
    template = (BASE / "cards" / "numerics" / "float-bytes.md").read_text()
    cards = []
    for number in range(12):
        needed = ", ".join(f"c{names[other]}" for other in sorted(edges[number]) if other < number)
        text = template.replace("id: float-bytes", f"id: c{names[number]}")
        text = text.replace("prerequisites: [rounding]", f"prerequisites: [{needed}]")
        card, problems = parse.parse(text, f"cards/numerics/c{names[number]}.md")
        assert card is not None, problems
        cards.append(card)
    plan, _ = syllabus.read((BASE / "cards" / "modules.yml").read_text(), "modules.yml")
    assert plan is not None
    contents = Contents(Path("cards"), plan, tuple(cards), frozenset(), Evidence())
    assert not list(cycle.check(Base(contents)))
    order = list(library.assemble(contents).cards)
    assert sorted(order) == sorted(card.id for card in cards)
    needs = {card.id: set(card.prerequisites) for card in cards}
    for at, name in enumerate(order):
        ready = {each for each in order[at:] if needs[each] <= set(order[:at])}
        assert name == min(ready)


# --- what does not hold together -----------------------------------------------------------------


def test_a_cycle_is_spelled_out(base: Path, edit: Edit) -> None:
    """The prerequisite that closes the circle is the place, and the whole circle is named."""
    edit("numerics/rounding.md", "prerequisites: []", "prerequisites: [kahan-sum]")
    problems = [problem for problem in check(base) if problem.code == "cycle"]
    circles = {problem.message.rpartition(": ")[2] for problem in problems}
    assert circles == {
        "float-bytes → rounding → kahan-sum → float-bytes",
        "rounding → kahan-sum → rounding",
    }
    found, _ = load(base / "cards", demos=base / "runnable_demos")
    assert found is not None
    assert len(found.cards) == 3


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("rounding", "related: [float-bytes]", "related: [⟦float-byte]", "dead-related"),
        ("kahan-sum", "[rounding, float-bytes]", "[rounding, ⟦float-bites]", "dead-prerequisite"),
        ("kahan-sum", "[两两求和](card:pairwise-sum)", "⟦[两两求和](card:pair-sum)", "dead-link"),
        ("rounding", "[补偿求和](card:kahan-sum#lost-part", "⟦[补偿求和](card:kahan-sum#lost",
         "dead-link"),
        ("rounding", "topic: floats", "⟦topic: float", "unknown-topic"),
        ("rounding", "module: numerics", "⟦module: numeric", "unknown-module"),
        ("rounding", "module: numerics", "⟦module: storage", "wrong-folder"),
        ("rounding", "formerly: [round-off]", "formerly: [⟦kahan-sum]", "former-id"),
        ("rounding", "formerly: [round-off]", "formerly: [⟦pairwise-sum]", "former-id"),
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_named(
    base: Path, edit: Edit, name: str, old: str, new: str, code: str
) -> None:
    """Dead links and unknown names have the place of the name, and a hint."""
    where = edit(f"numerics/{name}.md", old, new)
    found = [problem for problem in check(base) if problem.code == code]
    assert where in [spot(problem) for problem in found]
    assert all(problem.hint for problem in found)


def test_a_base_of_format_1_is_told_once(base: Path, edit: Edit) -> None:
    """One warning at the file that says the format, whatever its cards are in, names the command."""
    for said in ("", "format: 1\n"):
        shutil.copy(BASE / "cards" / "modules.yml", base / "cards" / "modules.yml")
        edit("modules.yml", "format: 2\n", said)
        problem = only(base, "format-base")
        assert problem.severity == "warning"
        assert spot(problem) == ("modules.yml", 1, 1)
        assert "proofdeck migrate" in problem.hint


def test_cards_that_are_not_yet_in_format_2_are_counted_in_one_warning(base: Path) -> None:
    """It stands where the base says its format, and names a few of them."""
    old = (BASE.parent / "cases" / "card.md").read_text()
    for number in range(7):
        text = old.replace("id: case", f"id: case-{number}")
        (base / "cards" / "numerics" / f"case-{number}.md").write_text(text)
    [problem] = [problem for problem in check(base) if problem.code == "format-cards"]
    assert problem.severity == "warning"
    assert spot(problem) == ("modules.yml", 3, 1)
    assert problem.message == (
        "7 of 10 cards are not yet in format 2: case-0, case-1, case-2, case-3, case-4, …"
    )


def test_a_format_that_is_none_is_refused(base: Path, edit: Edit) -> None:
    """There are two formats."""
    where = edit("modules.yml", "format: 2", "⟦format: 3")
    problem = next(problem for problem in check(base) if problem.code == "wrong-value")
    assert spot(problem) == where
    assert problem.hint == "Write `2`, the format of the cards."


def test_hints_know_what_was_meant(base: Path, edit: Edit) -> None:
    """A slip is answered with the nearest id, a former id with the present one."""
    edit("numerics/kahan-sum.md", "related: [pairwise-sum]", "related: [round-off]")
    assert only(base, "dead-related").hint == "It is now `rounding`."
    edit("numerics/kahan-sum.md", "related: [round-off]", "related: [roundign]")
    assert only(base, "dead-related").hint == "Did you mean `rounding`?"


def test_a_double_id_names_both_places(base: Path) -> None:
    """Two files with one id: the second is the place, the first stands in the sentence."""
    (base / "cards" / "storage").mkdir()
    shutil.copy(base / "cards/numerics/rounding.md", base / "cards/storage/rounding.md")
    found = [problem for problem in check(base) if problem.code == "duplicate-id"]
    assert [spot(problem) for problem in found] == [("rounding.md", 2, 1)]
    assert found[0].place.path.endswith("storage/rounding.md")
    assert "numerics/rounding.md:2:1" in found[0].message


def test_a_former_id_leads_to_one_card(base: Path, edit: Edit) -> None:
    """Two cards that were called the same cannot both be what an old link means."""
    where = edit("numerics/rounding.md", "[round-off]", "[⟦round-off]")
    _, line, column = edit("numerics/kahan-sum.md", "related:", "formerly: [⟦round-off]\nrelated:")
    problem = only(base, "former-id")
    assert spot(problem) == where
    assert f"kahan-sum.md:{line}:{column}" in problem.message


@pytest.mark.parametrize("folder", [".", "numerics/deeper", "other/numerics"])
def test_a_card_stands_in_the_folder_of_its_module(base: Path, folder: str) -> None:
    """Neither at the top nor deeper: an address is guessed by nobody."""
    target = base / "cards" / folder
    target.mkdir(parents=True, exist_ok=True)
    (base / "cards/numerics/rounding.md").rename(target / "rounding.md")
    assert f"`{folder}/`" in only(base, "wrong-folder").message


def test_a_broken_card_does_not_break_links_to_it(base: Path, edit: Edit) -> None:
    """Links to a card that could not be parsed are no faults of those who link."""
    edit("numerics/rounding.md", "difficulty: easy", "difficulty: none")
    only(base, "wrong-value")


def test_a_path_names_only_cards(base: Path, edit: Edit) -> None:
    """A learning path with an unknown card is a problem of modules.yml."""
    where = edit("modules.yml", "cards: [rounding,", "cards: [⟦roundin,")
    assert spot(only(base, "dead-link")) == where


def test_a_path_reads_what_a_card_stands_on_first(base: Path, edit: Edit) -> None:
    """A step before its prerequisite is named where it stands; what is not on the path does not count."""
    right = "cards: [rounding, float-bytes, kahan-sum, pairwise-sum]"
    where = edit("modules.yml", right, "cards: [pairwise-sum, ⟦kahan-sum, rounding]")
    (problem,) = [problem for problem in check(base) if problem.code == "path-order"]
    assert spot(problem) == where
    assert "`sums-in-an-hour` reads `kahan-sum` before `rounding`" in problem.message
    edit("modules.yml", "[pairwise-sum, kahan-sum, rounding]", "[rounding, kahan-sum]")
    assert not check(base)


def test_every_fault_of_the_base_comes_in_one_run(base: Path, edit: Edit) -> None:
    """Encoding, syntax, graph and claims are all reported at once, sorted."""
    edit("numerics/rounding.md", "related: [float-bytes]", "related: [nothing]")
    edit("numerics/float-bytes.md", "[8 B](claim:", "[9 B](claim:")
    edit("modules.yml", "kahan-sum, pairwise-sum]", "kahan-sum, pairs]")
    (base / "cards/numerics/latin.md").write_bytes("é".encode("latin-1"))
    (base / "cards/numerics/large.md").write_bytes(b"a" * 10_000_000)
    (base / "cards/numerics/empty.md").touch()
    problems = check(base)
    assert {problem.code for problem in problems} == {
        "dead-related", "claim-number", "dead-link", "not-utf-8", "too-large", "no-front-matter",
    }  # fmt: skip
    assert problems == sorted(problems)


# --- bases that are none -------------------------------------------------------------------------


def test_an_empty_folder_is_no_base(tmp_path: Path) -> None:
    """It lacks a syllabus and cards, and is told both."""
    found, problems = load(tmp_path)
    assert found is None
    assert [problem.code for problem in problems] == ["no-cards", "no-modules"]


def test_a_missing_folder_and_a_file_are_no_folders(tmp_path: Path) -> None:
    """Each is said to be what it is, without a second complaint."""
    (tmp_path / "file").touch()
    for name, code in (
        ("nowhere", "no-folder"),
        ("file", "not-a-folder"),
        ("file/x", "not-a-folder"),
    ):
        found, problems = load(tmp_path / name)
        assert (found, [problem.code for problem in problems]) == (None, [code])


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("modules: [", ["yaml-syntax"]),
        ("- a\n- b\n", ["wrong-value"]),
        ("", ["missing-key"]),
        ("modules: []\nmodule: []\n", ["unknown-key"]),
        ("modules:\n- {id: a, code: one, title: {zh: a, en: b}, summary: {zh: a, en: b}}\n",
         ["wrong-value"]),
        ("modules:\n- {id: a, code: M1, title: {zh: a}, summary: {zh: a, en: b}}\n",
         ["wrong-language"]),
        ("modules:\n\t- a\n", ["yaml-tab"]),
    ],
)  # fmt: skip
def test_a_corrupt_syllabus_is_explained_beside_the_cards(
    base: Path, text: str, codes: list[str]
) -> None:
    """A broken modules.yml has its place; the cards are still parsed, and no graph is guessed."""
    (base / "cards" / "modules.yml").write_text(text)
    (base / "cards" / "numerics" / "empty.md").touch()
    found, problems = load(base / "cards", demos=base / "runnable_demos")
    assert found is None
    assert [p.code for p in problems if p.place.path.endswith("modules.yml")] == codes
    assert [p.code for p in problems if p.place.path.endswith("empty.md")] == ["no-front-matter"]


def test_doubles_in_the_syllabus_are_named(base: Path, edit: Edit) -> None:
    """Two modules with one id or code are a problem of the second."""
    where = [
        edit("modules.yml", "id: storage", "⟦id: numerics"),
        edit("modules.yml", "code: M2", "⟦code: M1"),
    ]
    found = [problem for problem in check(base) if problem.code == "duplicate-id"]
    assert [spot(problem) for problem in found] == where
