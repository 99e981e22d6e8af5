"""The words that a reader sees: of formulas, over the ends of lines and of blocks, in all outputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generator.cards import prose
from generator.cards.markdown import parse
from generator.edition import pages
from generator.edition.edition import bind
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.lang import LANGS
from generator.library import library
from generator.library.library import Library
from generator.lines import Lines
from generator.render.plain_text import plain_label, plain_math, plain_text
from generator.tex.commands import table

ROOT = Path(__file__).parents[1]
OPERATORS = {"log", "exp", "max", "min", "arg", "mod", "ln", "tanh"}
"""Names that TeX sets as words, and that are words to a reader, too."""
MORE_OPERATORS = {
    "lg", "sup", "inf", "lim", "limsup", "liminf", "sin", "cos", "tan", "sinh", "cosh", "arcsin",
    "arccos", "arctan", "det", "dim", "ker", "gcd", "deg", "Pr",
}  # fmt: skip
"""Those that no card says yet."""


@pytest.fixture(scope="module")
def real() -> Library:
    """Our own base."""
    found, _ = library.load(ROOT / "cards")
    assert found
    return found


@pytest.mark.parametrize(
    ("tex", "plain"),
    [
        (r"\sqrt{L}", "√L"),
        (r"\sqrt{L/s}", "√(L/s)"),
        (r"\sqrt{2s}", "√(2s)"),
        (r"\sqrt[3]{x}", "³√x"),
        (r"\frac{L}{k} + sk", "L/k + sk"),
        (r"\tfrac{1+x}{2s}y", "(1+x)/(2s) y"),
        (r"\frac{\frac{a}{b}}{c}", "(a/b)/c"),
        (r"10^{-6}", "10⁻⁶"),
        (r"2^{n+1}", "2^(n+1)"),
        (r"1.2\times 10^{-7}", "1.2 × 10⁻⁷"),
        (r"L = m + \log \ell", "L = m + log ℓ"),
        (r"2\log_2 n", "2 log_2 n"),
        (r"\lambda \pm \Delta", "λ ± Δ"),
        (r"O(\log L)", "O(log L)"),
        (r"a\qquad\varepsilon\;\le\;b", "a ε ≤ b"),
        (r"\underbrace{a+b}_{\text{two}}", "a+b [two]"),
        (r"\begin{aligned}a&=b\\&=c\end{aligned}", "a =b; =c"),
        (r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}", "1, x>0; 0, otherwise"),
        (r"\left\lfloor x \right\rfloor", "⌊x⌋"),
        (r"\left.x\right|", "x|"),
        (r"\Big(\frac12\Big)^2", "(1/2)²"),
        (r"A^\top x^\star", "Aᵀ x*"),
        (r"\sum_{i=1}^{n}o_i+2\,o_l", "∑_(i=1)^n o_i+2 o_l"),
        (r"\mathbb{E}[\mathbf{x}]", "E[x]"),
        (r"\operatorname{fl}(x)\,\mathrm{GiB}", "fl(x) GiB"),
        (r"\binom{n}{k}", "C(n, k)"),
        (r"33.3\%", "33.3%"),
        (r"f'(x)", "f′(x)"),
    ],
)
def test_formulas_become_plain_characters(tex: str, plain: str) -> None:
    """What a search result shows of a formula can be read."""
    assert plain_math(tex) == plain


SPACES = {r"\,", r"\:", r"\;", r"\!", r"\ ", r"\quad", r"\qquad", r"\enspace", r"\thinspace"}


def test_no_symbol_that_formulas_may_hold_is_lost() -> None:
    """Each symbol of the table leaves a character, and no command leaves its name."""
    for name, example in table().examples.items():
        plain = plain_math(example)
        assert "\\" not in plain, name
        if example == rf"a{name} b" and name not in SPACES:
            assert not re.fullmatch(r"a ?b", plain), name
        own = re.sub(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|[{}]", "", example)
        for word in re.findall(r"[A-Za-z]{2,}", plain):
            assert word in own or word in OPERATORS | MORE_OPERATORS, name


@pytest.mark.parametrize(
    "tex", [r"\frac", "^", "a_", "{" * 400, r"\begin{aligned}", r"\left(", "&", "\\"]
)
def test_broken_tex_has_a_plain_form_too(tex: str) -> None:
    """Whatever stands between dollars, nothing is raised and no command is left."""
    assert "\\" not in plain_math(tex).removesuffix("\\")


def test_a_label_is_markdown_and_its_per_cent_begins_no_comment() -> None:
    """A number's label is words around formulas: ``%`` and ``_`` mean themselves outside of these."""
    assert plain_label("75%") == "75%"
    assert plain_label(r"**75%** of $1.2\times 10^{-7}$, \*") == "75% of 1.2 × 10⁻⁷, *"
    assert plain_label("`no_grad` 1 B") == "no_grad 1 B"


def words(markdown: str) -> str:
    """The plain text of a piece of Markdown."""
    tokens, *_ = parse(Lines("x.md", markdown))
    return plain_text(tokens)


LINE_ENDS = [
    ("汉字\n汉字", "汉字汉字"),
    ("**汉字**\n汉字", "汉字汉字"),
    ("汉字\n**汉字**", "汉字汉字"),
    ("[汉字](card:x)\n汉字", "汉字汉字"),
    ("汉字\n[*汉字*](card:x)", "汉字汉字"),
    ("`数组`\n汉字", "数组汉字"),
    ("“汉字”\n汉字", "“汉字”汉字"),
    ("汉字\n“汉字”", "汉字“汉字”"),
    ("汉字——\n汉字", "汉字——汉字"),
    ("汉字……\n汉字", "汉字……汉字"),
    ("汉字”\n——汉字", "汉字”——汉字"),
    ("“**汉字**”\n“汉字”", "“汉字”“汉字”"),
    ("汉字，\n汉字", "汉字，汉字"),
    ("见 GPU，\nGPU", "见 GPU，GPU"),
    ("（见\n）", "（见）"),
    ("汉字\nGPU", "汉字 GPU"),
    ("GPU\n汉字", "GPU 汉字"),
    ("汉字\n`x`", "汉字 x"),
    ("`x`\n汉字", "x 汉字"),
    ("$x$\n汉字", "x 汉字"),
    ("汉字\n$x$", "汉字 x"),
    ("one\ntwo", "one two"),
    ("“one”\n—two", "“one” —two"),
    ("one …\n“two”", "one … “two”"),
    ("한국\n한국", "한국 한국"),
    ("カナ\n汉字", "カナ汉字"),
    ("汉字\\\n汉字", "汉字 汉字"),
]


@pytest.mark.parametrize(("source", "plain"), LINE_ENDS)
def test_a_line_s_end_is_nothing_between_chinese_characters(source: str, plain: str) -> None:
    """Also across bold text, links and code, and beside marks that both scripts use."""
    assert words(source) == plain


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("$$\nx\n$$\nword", "x word"),
        ("word\n\n$$\nx\n$$", "word x"),
        ("# 一\n二", "一 二"),
        ("- 一\n- 二\n\n三", "一 二 三"),
        ("> 一\n\n二", "一 二"),
        ("> [!note]\n> 一\n\n二", "一 二"),
        ("| 一 | 二 |\n|---|---|\n| 三 | 四 |", "一 二 三 四"),
        ("```\n一\n```\n二", "一 二"),
        ("一\n\n---\n\n二", "一 二"),
    ],
)
def test_where_a_block_ends_a_word_ends(source: str, plain: str) -> None:
    """No word is glued to a formula, a cell or an item, or it could not be found."""
    assert words(source) == plain


def strings(data: object) -> list[str]:
    """Every text in data, however deep."""
    if isinstance(data, str):
        return [data]
    entries = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for each in entries for text in strings(each)]


def test_no_tex_is_left_of_any_formula(real: Library) -> None:
    """Each word of a formula's plain form stands in its TeX as a word, not as a command."""
    formulas = {token.content for card in real.cards.values() for token in prose.formulas(card)}
    assert len(formulas) > 300
    for tex in formulas:
        plain = plain_math(tex)
        own = re.sub(r"\\[A-Za-z]+", " ", re.sub(r"\\(?:begin|end)\{\w+\*?\}", " ", tex))
        assert set(re.findall(r"[A-Za-z]{3,}", plain)) <= OPERATORS | set(
            re.findall(r"[A-Za-z]{3,}", own)
        ), (tex, plain)
        assert not re.search(
            r"[\\{}$&]", plain.replace("{", "", tex.count(r"\{")).replace("}", "", tex.count(r"\}"))
        ), (tex, plain)


def test_no_tex_is_left_in_what_is_searched_studied_or_described(real: Library) -> None:
    """No command of any formula is a word of the built data, unless a card or a demo says the word."""
    formulas = [token.content for card in real.cards.values() for token in prose.formulas(card)]
    commands = {found for tex in formulas for found in re.findall(r"\\([A-Za-z]{3,})", tex)}
    said = [
        own.content
        for card in real.cards.values()
        for half in card.sections.values()
        for section in half.values()
        for token in prose.blocks(section)
        for own in (token, *(token.children or ()))
        if own.type in {"text", "code_inline", "fence", "code_block"}
    ]
    said += [text for tex in formulas for text in re.findall(r"\\text\{([^{}]*)\}", tex)]
    edition = bind(real)
    measured = study_data(edition)["items"]
    said += strings([[item.get("of"), item.get("how")] for item in measured])
    tex = commands - OPERATORS - set(re.findall(r"[A-Za-z]+", " ".join(said)))
    assert {"frac", "qquad", "varepsilon", "underbrace"} <= tex

    texts = strings([part[4:] for part in search_data(edition)["parts"]])
    texts += strings([[item["ask"], item.get("text")] for item in measured])
    texts += [pages.answer(card, lang) for card in real.cards.values() for lang in LANGS]
    assert len(texts) > 1000
    assert set(re.findall(r"[A-Za-z]+", " ".join(texts))) & tex == set()
    assert not [text for text in texts if re.search(r"aligned|\\\\", text)]
