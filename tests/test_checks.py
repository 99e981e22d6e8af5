"""The rules: each with cases that break and keep it, found by discovery as the rules are."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import checks
from generator.cards import syllabus
from generator.cards.model import Card, Claim
from generator.cards.parse import parse
from generator.checks import Base, blog_source, near_duplicate
from generator.evidence.evidence import Evidence
from generator.evidence.verdicts import Verdict, judge
from generator.lang import LANGS, LANGUAGE_HEADINGS, SECTION_HEADINGS
from generator.library.library import Contents, Library
from generator.problems import Problem

HERE = Path(__file__).parent
ROOT = HERE.parent
CASES = HERE / "cases"
SEVERAL = {"cycle", "duplicate-id", "format", "path-order"}
"""Rules that a single card cannot break; ``test_library.py`` holds theirs."""
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

    ``also`` is what the parser, or another rule, has to say about the same fault.
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


def merged(changes: str, card: str = "card.md") -> str:
    """The whole card of a case: ``card`` with the case's parts in place of its own."""
    whole = parts((CASES / card).read_text(encoding="utf-8")) | parts(changes)
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
    notes = comment[1] if comment else ""
    card = re.search(r"^card: (\S+)$", notes, re.MULTILINE)
    text = merged(raw[comment.end() :] if comment else raw, card[1] if card else "card.md")
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
    found, problems = checks.load(folder / "cards", demos=folder / "runnable_demos")
    assert found is not None
    assert "case" in found.cards, problems
    # Cases are of either format; ``test_library.py`` holds those of the rule that counts them.
    return [problem for problem in problems if problem.code != "format-cards"]


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
        if rule.CODE not in SEVERAL:
            assert list((CASES / rule.CODE).glob("fail*.md")), rule.CODE
            assert list((CASES / rule.CODE).glob("pass*.md")), rule.CODE
    assert {path.parent.name for path in CASES.glob("*/*.md")} == set(codes) - SEVERAL
    others = (HERE / "test_library.py").read_text(encoding="utf-8")
    assert all(re.search(rf'problem.code == "{code}\b', others) for code in SEVERAL)


@pytest.mark.parametrize("card", ["card.md", "converted.md"])
def test_the_card_that_cases_change_is_good(card: str, tmp_path: Path) -> None:
    """Without a change the card, of either format, breaks no rule."""
    assert problems_of(merged("", card), tmp_path) == []


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
        assert problem.hint.endswith((".", "?", "`")), problem.hint


@pytest.mark.parametrize("path", cases("pass"), ids=name)
def test_a_passing_case_is_not_blamed(path: Path, tmp_path: Path) -> None:
    """What comes close to breaking a rule, and keeps it, breaks no rule at all."""
    assert problems_of(case(path).text, tmp_path) == []


# --- what holds for all rules ------------------------------------------------------------------


def test_the_documentation_is_that_of_the_rules() -> None:
    """``docs/checks.en.md`` is what ``python -m generator.checks`` prints."""
    assert (HERE.parent / "docs" / "checks.en.md").read_text(
        encoding="utf-8"
    ) == checks.documented()


def test_the_chinese_documentation_has_the_same_rules() -> None:
    """``docs/checks.zh.md``, which people write, names each rule once with its severity, in the same order."""
    severities = {"错误": "error", "警告": "warning"}
    rows = re.compile(r"^\| `([\w-]+)` \| (\w+) \|", re.MULTILINE)
    english, chinese = (
        rows.findall((HERE.parent / "docs" / f"checks.{lang}.md").read_text(encoding="utf-8"))
        for lang in ("en", "zh")
    )
    assert len(english) > 40
    assert [(code, severities[word]) for code, word in chinese] == english


SILENT = 'silenced: {%s: "the phrase is quoted, and the card is about it"}'


def silenced(changes: Path, code: str) -> str:
    """A case's card with a code silenced."""
    return case(changes).text.replace("---\n\n# 中文", SILENT % code + "\n---\n\n# 中文", 1)


def test_a_silenced_rule_is_silent_on_its_card(tmp_path: Path) -> None:
    """With a written reason, nothing of that code is reported there."""
    assert problems_of(silenced(CASES / "filler" / "fail.md", "filler"), tmp_path) == []


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("filler/pass.md", "filler", ("unused-silence", "warning", "nothing on this card")),
        ("filler/pass.md", "fillers", ("bad-silence", "error", "not the code of a rule")),
        ("claim/pass.md", "claim", ("bad-silence", "error", "cannot be silenced")),
        ("filler/pass.md", "cycle", ("bad-silence", "error", "cannot be silenced")),
        ("dead-link/pass.md", "dead-link", ("bad-silence", "error", "cannot be silenced")),
    ],
)
def test_a_silence_that_is_wrong_is_told_where_it_stands(
    path: str, code: str, said: tuple[str, str, str], tmp_path: Path
) -> None:
    """Silences do not outlive what they silence, and name a rule that may be silent."""
    text = silenced(CASES / path, code)
    [problem] = problems_of(text, tmp_path)
    assert (problem.code, problem.severity) == said[:2]
    assert said[2] in problem.message
    assert text.splitlines()[problem.place.line - 1].startswith("silenced")
    assert problem.place.column == len("silenced: {") + 1


def test_no_reason_makes_a_false_number_true(tmp_path: Path) -> None:
    """A claim that is silenced is reported all the same, and so is the silence."""
    text = silenced(CASES / "claim" / "fail-number.md", "claim")
    codes = {problem.code for problem in problems_of(text, tmp_path)}
    assert codes == {"claim-number", "claim-agrees", "bad-silence"}


def test_no_reason_mends_a_dead_link(tmp_path: Path) -> None:
    """What holds the base together is reported whatever a card says of it, and so is the silence."""
    text = silenced(CASES / "dead-link" / "fail.md", "dead-link")
    codes = {problem.code for problem in problems_of(text, tmp_path)}
    assert codes == {"dead-link", "bad-silence"}


@pytest.mark.parametrize(
    ("url", "blog"),
    [
        ("https://arxiv.org/abs/1604.06174", False),
        ("https://docs.pytorch.org/docs/stable/checkpoint.html", False),
        ("https://github.com/pytorch/pytorch/blob/main/torch/utils/checkpoint.py", False),
        ("https://pytorch.org/blog/activation-checkpointing-techniques/", True),
        ("https://blog.example.org/memory", True),
        ("https://engineering.example.org/posts/memory", True),
        ("https://someone.medium.com/memory", True),
        ("https://zhuanlan.zhihu.com/p/1", True),
        ("https://someone.github.io/", True),
        ("https://notmedium.com/memory", False),
        ("https://en.wikipedia.org/wiki/Gradient", True),
    ],
)
def test_a_blog_is_known_by_its_address(url: str, blog: bool) -> None:
    """Hosts where anyone publishes, and addresses that say so, by whole labels of the name."""
    assert blog_source.is_blog(url) is blog


def alone(card: Card) -> Base:
    """A base of this card alone, without evidence, in the modules of the small base."""
    plan, _ = syllabus.read((BASE / "cards" / "modules.yml").read_text(), "modules.yml")
    assert plan is not None
    return Base(Contents(Path(), replace(plan, paths=()), (card,), frozenset(), Evidence()))


HOSTILE = [
    "1,", "1 ", "1-", "1\u00a0", "1G,", "十", "一", "twenty ", "one hundred and ", "“", '"', "（",
    "汉,", "汉 ", "O(L)", "s=2", "a", "frac", "众", "it is ", "$x$ ", "`a` ", r"\text{", r"\$", "| a ",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_no_text_makes_a_rule_slow(unit: str) -> None:
    """Twenty thousand characters of anything cost seconds at most: no pattern backtracks far."""
    text = merged("").replace("- 向量", f"- {unit * (20_000 // len(unit))} 向量")
    card, _ = parse(text, "numerics/case.md")
    assert card is not None
    start = time.process_time()
    checks.run(alone(card))
    assert time.process_time() - start < 10


PIECES = st.sampled_from(
    ["汉", "字", "，", ",", ".", "(", ")", "“", '"', "a", "GPU", "3", "0", "16 B", "%", "×", "$x$",
     "$", "$3\\,\\text{GiB}$", "`c`", "`", "**", "*", "[", "](given:)", "[3%](claim:a/b)", "\\", "|",
     "\\frac", "–", " ", "\n", "\n\n", "\n- ", "\n> ", "\n| a | b |\n|---|---|\n| 3 GB | x |\n",
     "\n$$\nx–1\n$$\n", "<!-- #i -->", "&amp;", "\u00a0", "\U0001f600", "４", "O(L)O(L)O(L)"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map("".join), st.sampled_from(["\n", "\r\n"]))
@settings(deadline=None, max_examples=100)
def test_every_problem_points_into_the_file(body: str, end: str) -> None:
    """Whatever stands in a section, each rule names a place that exists, or says nothing."""
    text = merged(f"# 中文\n\n## 工程权衡\n\n{body}\n\n# English\n\n## Trade-offs\n\n{body}\n")
    card, _ = parse(text.replace("\n", end), "numerics/case.md")
    if card is None:
        return
    rows = text.split("\n")
    for problem in checks.run(alone(card)):
        assert 1 <= problem.place.line <= len(rows)
        assert 1 <= problem.place.column <= len(rows[problem.place.line - 1]) + 1


def test_a_formula_that_nests_too_deeply_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    """The parser of TeX recurses; what would overflow its stack is never given to it."""
    text = merged("").replace("深度记为 $d$", f"深度记为 ${'{' * 20_000}d{'}' * 20_000}$")
    [problem] = problems_of(text, tmp_path)
    assert problem.code == "tex"
    assert "40,001 characters" in problem.message


# --- near duplicates against all pairs ------------------------------------------------------------


@given(
    st.lists(st.frozensets(st.sampled_from("abcdefghijkl"), min_size=1, max_size=8), max_size=40)
)
def test_alike_is_what_comparing_all_pairs_finds(sets: list[frozenset[str]]) -> None:
    """Each set is compared with every earlier one that is not itself like another."""
    expected = []
    originals: list[int] = []
    for index, each in enumerate(sets):
        shares = {o: Fraction(len(each & sets[o]), len(each | sets[o])) for o in originals}
        near = [o for o in originals if shares[o] >= Fraction(1, 2)]
        if near:
            expected.append((index, near[0], float(shares[near[0]])))
        else:
            originals.append(index)
    assert list(near_duplicate.alike(sets)) == expected


# --- the real cards --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our own base, to be changed."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("cards", "runnable_demos"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def load(folder: Path) -> tuple[Library, list[Problem]]:
    """A base, and what is wrong with it."""
    found, problems = checks.load(folder / "cards", demos=folder / "runnable_demos")
    assert found is not None
    return found, problems


def test_one_digit_of_one_claim_in_one_language_is_found(real: Path) -> None:
    """On every card, a digit changed in either language fails ``check`` at that line."""
    found, before = load(real)
    changed = {}
    for number, card in enumerate(found.cards.values()):
        lang = LANGS[number % 2]
        for link in (link for each in card.sections[lang].values() for link in each.links):
            at = re.search(r"\d", link.text)
            if not isinstance(link, Claim) or link.refuted or not at:
                continue
            if isinstance(judge(link, found.evidence), Verdict):
                digit = "7" if at[0] != "7" else "3"
                text = link.text[: at.start()] + digit + link.text[at.end() :]
                changed[Path(card.path)] = (link, text)
                break
    assert len(changed) == len(found.cards), "every card claims a number in every language"
    whole = {path: path.read_bytes() for path in changed}
    for path, (link, text) in changed.items():
        rows = whole[path].decode().splitlines(keepends=True)
        row, column = link.place.line - 1, link.place.column
        assert rows[row].startswith(link.text, column)
        rows[row] = rows[row][:column] + text + rows[row][column + len(link.text) :]
        path.write_text("".join(rows), encoding="utf-8")
    _, after = load(real)
    for path, content in whole.items():
        path.write_bytes(content)
    new = [problem for problem in after if problem not in before]
    assert {p.place for p in new} == {link.place for link, _ in changed.values()}
    assert {(p.code, p.severity) for p in new} == {("claim-number", "error")}


def test_a_changed_demo_makes_its_evidence_stale(real: Path) -> None:
    """One line in one demo, and ``check`` names its record, and those of demos that import it."""
    found, before = load(real)
    known = found.evidence.records.items()
    demo = min(demo for (demo, device), _ in known if device == "cpu")
    name = f"runnable_demos/{demo}.py"
    path = real / name
    content = path.read_bytes()
    path.write_bytes(content + b"changed = True\n")
    _, after = load(real)
    path.write_bytes(content)
    new = [problem for problem in after if problem not in before]
    assert {Path(problem.place.path).name for problem in new} == {
        f"{demo}.{device}.json" for (demo, device), record in known if name in record.sources
    }
    assert {p.code for p in new} == {"evidence-stale"}
    assert "error" in {p.severity for p in new}
    assert all(name in p.message for p in new)
