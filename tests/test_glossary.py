"""The glossary: read with every fault in its place, found in text by the longest form, held by ``check``."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import checks
from generator.cache import Cache
from generator.cards import glossary_file, prose
from generator.cards.glossary import Glossary, Term
from generator.checks import terms
from generator.edition.edition import bind
from generator.edition.search_data import search_data
from generator.lang import LANGS, Lang
from generator.problems import Problem

ROOT = Path(__file__).parents[1]
BASE = ROOT / "tests" / "library"
OURS = ROOT / "cards" / "glossary.yml"

FILE = """\
terms:
  token:
    term: {zh: token, en: token}
    means: {zh: 模型读写的最小单位。, en: What a model reads and writes.}
    variants: {en: [tok]}
    never: {zh: [词元]}
    card: tokens
naming: [Table, 表]
"""


def read(text: str) -> tuple[Glossary, list[Problem]]:
    """The glossary in a text."""
    return glossary_file.read(text, "glossary.yml")


# --- the file ------------------------------------------------------------------------------------


def test_a_term_is_read_whole() -> None:
    """What stands in an entry is what the term says, and naming words keep their order."""
    glossary, problems = read(FILE)
    assert problems == []
    assert glossary.terms == {
        "token": Term(
            id="token",
            name={"zh": "token", "en": "token"},
            means={"zh": "模型读写的最小单位。", "en": "What a model reads and writes."},
            variants={"en": ("tok",)},
            never={"zh": ("词元",)},
            card="tokens",
        )
    }
    assert glossary.naming == ("Table", "表")
    assert glossary.terms["token"].forms == ("token", "词元", "tok")


FAULTS = [
    # what is replaced, by what, the code, the line, what the message says, what the hint says
    ("    term:", "    trem:", "missing-key", 2, "`term` is missing", "such as `{zh: 激活检查点"),
    ("    term:", "    trem:", "unknown-key", 3, "no key `trem`", "Did you mean `term`?"),
    (", en: token}", "}", "wrong-language", 3, "`en` is missing", "what the term is called"),
    ("means: {zh: 模型读写的最小单位。, en: What a model reads and writes.}", "means: short",
     "wrong-value", 4, "`means`", "one plain sentence"),
    ("{en: [tok]}", "{fr: [tok]}", "wrong-language", 5, "`fr` is no language", "by language"),
    ("{en: [tok]}", "{en: tok}", "wrong-value", 5, "`variants.en`", "lists of other words"),
    ("{zh: [词元]}", "{zh: ['']}", "wrong-value", 6, "`never.zh.0` cannot be empty", "by language"),
    ("{zh: [词元]}", "{zh: [词元, 词元]}", "duplicate-entry", 6, "`词元` stands for `token`", "one meaning"),
    ("{zh: [词元]}", "{en: [Tok]}", "duplicate-entry", 6, "in line 5", "said or never said"),
    ("card: tokens", "card: The Tokens", "bad-id", 7, "kebab-case", "the card that explains"),
    ("  token:\n", "  A Token:\n", "bad-id", 2, "kebab-case", "such as"),
    ("naming: [Table, 表]", "naming: [表, 表]", "duplicate-entry", 8, "`表` stands twice", "Keep one"),
    ("naming: [Table, 表]", "naming: 表", "wrong-value", 8, "`naming`", "such as `[Table, 表, Llama]`"),
    ("naming:", "name:", "unknown-key", 8, "no key `name`", "Did you mean `naming`?"),
    ("terms:\n", "terms: [\n", "yaml-syntax", 3, "no YAML", "Quote"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "line", "says", "hint"), FAULTS)
def test_a_fault_is_told_where_it_stands(
    old: str, new: str, code: str, line: int, says: str, hint: str
) -> None:
    """Each fault is a problem with its place, what is wrong and how to mend it."""
    assert FILE.count(old) == 1
    _, problems = read(FILE.replace(old, new))
    found = [problem for problem in problems if problem.code == code]
    assert found, problems
    assert (found[0].place.line, says in found[0].message) == (line, True), found
    assert hint in found[0].hint


def test_all_faults_are_told_at_once() -> None:
    """A broken entry hides neither its neighbours nor a fault at the end of the file, and is left out alone."""
    other = FILE.split("terms:\n")[1].split("naming", maxsplit=1)[0]
    other = other.replace("tok", "oth").replace("词元", "其他")
    text = FILE.replace("    means:", "    meens:").replace(
        "naming: [Table, 表]", "naming: [表, 表]"
    )
    glossary, problems = read(text.replace("naming", f"{other}rest: 1\nnaming"))
    assert set(glossary.terms) == {"othen"}
    assert sorted((each.place.line, each.code) for each in problems) == [
        (2, "missing-key"),
        (4, "unknown-key"),
        (14, "unknown-key"),
        (15, "duplicate-entry"),
    ]


def test_one_form_of_two_terms_is_refused() -> None:
    """Whether it is said of both, or said of one and never of the other; another language is another word."""
    entry = "  %s:\n    term: {zh: %s, en: %s}\n    means: {zh: 甲, en: a}\n    never: {zh: [%s]}\n"
    text = "terms:\n" + entry % ("one", "甲", "A", "乙") + entry % ("two", "乙", "a", "丙")
    _, problems = read(text + entry % ("three", "丁", "乙", "戊"))
    assert [(each.place.line, each.code) for each in problems] == [(7, "duplicate-entry")] * 2
    assert "`乙` stands for `one` already, in line 5" in problems[0].message
    assert "`a` stands for `one` already, in line 3" in problems[1].message


def test_a_base_without_the_file_has_no_terms(tmp_path: Path) -> None:
    """It is read and checked as before."""
    shutil.copytree(BASE, tmp_path / "base")
    (tmp_path / "base/cards/glossary.yml").unlink()
    found, problems = checks.load(tmp_path / "base/cards", demos=tmp_path / "base/runnable_demos")
    assert found
    assert problems == []
    assert found.glossary == Glossary()


# --- finding terms in text -----------------------------------------------------------------------


def glossary_of(*forms: str, never: tuple[str, ...] = ()) -> Glossary:
    """A glossary in which each form is a term of its own, called so in every language."""
    terms = {
        f"t{number}": Term(
            f"t{number}",
            dict.fromkeys(LANGS, form),
            dict.fromkeys(LANGS, "…"),
            {},
            dict.fromkeys(LANGS, never if number == 0 else ()),
            None,
        )
        for number, form in enumerate(forms)
    }
    return Glossary(terms)


def found(glossary: Glossary, text: str, lang: Lang = "en") -> list[str]:
    """What is found in a text, as it stands there."""
    return [text[each.start : each.end] for each in glossary.mentions(text, lang)]


@pytest.mark.parametrize(
    ("forms", "text", "expected"),
    [
        (["kernel"], "A kernel, Kernels, KERNEL; subkernel kernelled kernel_x kernel2",
         ["kernel", "Kernels", "KERNEL"]),
        (["TP"], "TP, TPs, tp, http, TP8", ["TP", "TPs"]),
        (["ZeRO-3", "ZeRO"], "zero, zeros, ZeRO-3 ZeRO", ["ZeRO-3", "ZeRO"]),
        (["all-gather", "all"], "all-gather, all-gathering, all", ["all-gather", "all", "all"]),
        (["loss"], "losses loss's lossy", ["losses", "loss"]),
        (["out of memory"], "out  of memory, out of\nmemory, out-of-memory", ["out of\nmemory"]),
        (["检查点", "激活检查点"], "每个激活检查点与检查点", ["激活检查点", "检查点"]),
        (["token"], "用token训练，3个tokens、tokenizer", ["token", "tokens"]),
        (["token 化", "token"], "token 化与token化", ["token 化", "token"]),
        (["C++"], "C++ and C++x", ["C++", "C++"]),
        (["A", "A-Aa"], "A-AA A-Aa", ["A", "A-Aa"]),
        (["straße"], "STRASSE Straße", ["Straße"]),
        (["ki"], "\u212ai \u0130 KI ki", ["\u212ai", "KI", "ki"]),
        ([], "nothing", []),
    ],
)  # fmt: skip
def test_the_longest_form_is_found_at_its_boundaries(
    forms: list[str], text: str, expected: list[str]
) -> None:
    """汉字 need no boundary, Latin words do and may have a plural; case counts where a capital stands within."""
    assert found(glossary_of(*forms), text) == expected


def test_what_is_never_said_is_found_as_such() -> None:
    """A longer form that is said shields one within it that is not."""
    glossary = glossary_of("归约", "规约书", never=("规约",))
    text = "规约、归约、规约书"
    assert [(text[m.start : m.end], m.said) for m in glossary.mentions(text, "zh")] == [
        ("规约", False),
        ("归约", True),
        ("规约书", True),
    ]


LETTERS = "aA汉字- s"


def slow(forms: list[str], text: str) -> list[tuple[int, int, str]]:
    """Every place by trying each form at each place, longest first."""

    def letter(at: int) -> bool:
        return 0 <= at < len(text) and re.fullmatch(r"[A-Za-z0-9_]", text[at]) is not None

    places, at = [], 0
    while at < len(text):
        ends = []
        for form in sorted(forms, key=len, reverse=True):
            end = at + len(form)
            capitals = re.search(".[A-Z]", form)
            same = text[at:end] == form if capitals else text[at:end].lower() == form.lower()
            if not same or (re.match("[A-Za-z]", form) and letter(at - 1)):
                continue
            if re.search("[A-Za-z]$", form):
                tails = [end + len(s) for s in ("es", "s", "") if text[end:].lower().startswith(s)]
                tails = [tail for tail in tails if not letter(tail)]
                ends += [(tails[0], form)] if tails else []
            else:
                ends.append((end, form))
        if ends:
            places.append((at, *ends[0]))
            at = ends[0][0]
        else:
            at += 1
    return places


FORM = st.text("aA汉字-s", min_size=1, max_size=4).filter(
    lambda form: form.strip("-") == form != ""
)


@given(st.lists(FORM, min_size=1, max_size=5, unique_by=str.lower), st.text(LETTERS, max_size=30))
def test_what_is_found_is_what_trying_every_form_finds(forms: list[str], text: str) -> None:
    """One pattern for a language, and a search by hand at every place, agree."""
    glossary = glossary_of(*forms)
    fast = [(m.start, m.end, m.term.name["en"]) for m in glossary.mentions(text, "en")]
    assert fast == slow(forms, text)


@pytest.mark.parametrize(
    "unit", ["a", "激", "激活", "activation ", "activation checkpoint", "s", " ", "\n", "es"]
)
def test_no_text_makes_the_search_slow(unit: str) -> None:
    """A hundred thousand characters of anything are searched once."""
    glossary, problems = read(OURS.read_text("utf-8"))
    assert problems == []
    start = time.process_time()
    for lang in LANGS:
        assert len(list(glossary.mentions(unit * (100_000 // len(unit)), lang))) >= 0
    assert time.process_time() - start < 5


# --- what holds of a base ------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the small base, to be changed."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def problems_with(base: Path, file: str, old: str, new: str) -> list[tuple[str, int, str, str]]:
    """Code, line, message and hint of what is wrong after a change of one of its files."""
    path = base / "cards" / file
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert all(problem.place.path.endswith(file) for problem in problems)
    return [(each.code, each.place.line, each.message, each.hint) for each in problems]


def test_a_card_that_is_none_is_named(base: Path) -> None:
    """With the nearest that there is; one that is planned will do."""
    [(code, line, message, hint)] = problems_with(
        base, "glossary.yml", "card: kahan-sum", "card: kahan-sums"
    )
    assert (code, line) == ("term-card", 9)
    assert "`compensated-summation` names `kahan-sums`, which is no card" in message
    assert hint == "Did you mean `kahan-sum`?"
    assert problems_with(base, "glossary.yml", "card: kahan-sums", "card: pairwise-sum") == []


@pytest.mark.parametrize(
    ("old", "unit", "most", "named"),
    [("加到目前为止的和。", "和", 60, "汉字"), ("The sum so far.", "so ", 30, "words")],
)
def test_a_meaning_is_short(base: Path, old: str, unit: str, most: int, named: str) -> None:
    """Of as many units as it may have it is good, and of one more it is not."""
    assert problems_with(base, "glossary.yml", old, unit * most) == []
    [(code, line, message, _)] = problems_with(base, "glossary.yml", unit * most, unit * (most + 1))
    assert (code, line) == ("term-length", 17)
    assert f"has {most + 1} {named}" in message


def test_a_meaning_says_nothing_that_is_never_said(base: Path) -> None:
    """The glossary is held to itself."""
    [(code, line, message, hint)] = problems_with(
        base, "glossary.yml", "一次舍入的相对误差最大能有多大", "机器误差最大能有多大"
    )
    assert (code, line) == ("term", 24)
    assert "“机器误差” is never said for `unit-roundoff`" in message
    assert "Write “单位舍入”" in hint


def test_a_question_says_nothing_that_is_never_said(base: Path) -> None:
    """Nor does a title; other wordings and aliases may, for so people ask."""
    [(code, line, message, _)] = problems_with(
        base,
        "numerics/kahan-sum.md",
        "en: A sum of a million floats",
        "en: A grand total of floats",
    )
    assert (code, line) == ("term", 6)
    assert "“grand total” is never said for `sum`" in message
    path = base / "cards/numerics/kahan-sum.md"
    text = path.read_text("utf-8").replace("grand total", "sum")
    path.write_text(text.replace("asked: {zh: [", "asked: {zh: [总计怎么算, "), "utf-8")
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert problems == []


def test_a_glossary_that_changes_is_held_against_cards_that_do_not(base: Path) -> None:
    """What was said of a card before its glossary knew of a form is not what is said afterwards."""
    cache = Cache(base / "cache")
    demos = base / "runnable_demos"
    assert checks.load(base / "cards", demos=demos, cache=cache)[1] == []
    path = base / "cards/glossary.yml"
    path.write_text(path.read_text("utf-8").replace("[傻加]", "[傻加, 逐个相加]"), "utf-8")
    found = checks.load(base / "cards", demos=demos, cache=cache)[1]
    assert found == checks.load(base / "cards", demos=demos)[1]
    assert {problem.code for problem in found} == {"term"}


def test_search_knows_every_name_of_a_term(base: Path) -> None:
    """A card that explains a term is found by what cards call it, a query by all that people write."""
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    data = search_data(bind(found))
    [kahan] = [card for card in data["cards"] if card["id"] == "kahan-sum"]
    assert {"补零头", "补偿求和"} <= set(kahan["aliases"]["zh"])
    assert {"ksum", "Kahan summation"} <= set(kahan["aliases"]["en"])
    assert len(set(kahan["aliases"]["zh"])) == len(kahan["aliases"]["zh"])
    assert not {"康汉求和"} & set(kahan["aliases"]["zh"])
    assert ["部分和", "partial sum"] in data["terms"]
    assert any({"ksum", "康汉求和", "Kahan addition"} <= set(forms) for forms in data["terms"])


# --- our own -------------------------------------------------------------------------------------


def test_our_terms_stand_on_our_cards() -> None:
    """Each is used in a language at least; no meaning has a number, which would go stale; all are one sentence."""
    ours, problems = checks.load(ROOT / "cards", demos=ROOT / "runnable_demos")
    assert ours
    assert [each for each in problems if each.code.startswith(terms.CODE)] == []
    glossary = ours.glossary
    assert 40 <= len(glossary.terms) <= 80
    used = {
        mention.term.id
        for card in ours.cards.values()
        for passage in prose.passages(card)
        for piece in passage.pieces
        for mention in glossary.mentions(piece.text, passage.lang)
    }
    assert used == set(glossary.terms)
    for term in glossary.terms.values():
        assert not re.search(r"(?<![A-Za-z0-9])\d", "".join(term.means.values())), term.id
        assert re.fullmatch(r"[^。]+。", term.means["zh"]), term.id
        assert re.fullmatch(r"[A-Z][^.]+\.", term.means["en"]), term.id
    assert {"§", "Table", "表", "第", "Llama", "stage"} <= set(glossary.naming)
