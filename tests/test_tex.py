"""Formulas: what ``check`` accepts is drawn alike by our pages and by the MathJax of Obsidian and Anki."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from generator.cards import prose
from generator.library import library
from generator.tex.commands import refused, table
from generator.tex.mathml import MAX_NESTING, TexError, mathml

HERE = Path(__file__).parent
Formula = tuple[str, bool]
"""TeX, and whether it is displayed."""


def _comparator() -> ModuleType:
    """``mathml_tree.py``, which stands beside this file and is no package's."""
    spec = importlib.util.spec_from_file_location("mathml_tree", HERE / "mathml_tree.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tree = _comparator().tree


def mathjax(formulas: Iterable[Formula]) -> list[dict[str, str]]:
    """What MathJax makes of each formula: its ``mathml``, or its ``error``."""
    node = shutil.which("node", path=f"{os.environ['PATH']}{os.pathsep}{Path(sys.prefix) / 'bin'}")
    assert node, "make test installs node where it is missing"
    done = subprocess.run(
        [node, HERE / "mathjax.cjs"],
        input=json.dumps([{"tex": tex, "display": display} for tex, display in formulas]),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def differing(formulas: Iterable[Formula]) -> list[tuple[Formula, object, object]]:
    """The formulas that are drawn differently, or that MathJax refuses, with both drawings."""
    formulas = list(formulas)
    found = []
    for formula, theirs in zip(formulas, mathjax(formulas), strict=True):
        ours = tree(mathml(*formula))
        other = tree(theirs["mathml"]) if "mathml" in theirs else theirs["error"]
        if ours != other:
            found.append((formula, ours, other))
    return found


EXAMPLES = [*table().examples.values(), *table().environments.values()]


def test_every_entry_of_the_table_is_drawn_alike() -> None:
    """Each command, symbol and environment, in a line and displayed, with its own example."""
    assert len(EXAMPLES) > 250
    for name, example in [*table().examples.items(), *table().environments.items()]:
        assert name in example or name in {r"\right", r"\end", r"\bigr", r"\Bigr", r"\biggr"}
    assert differing((tex, display) for tex in EXAMPLES for display in (False, True)) == []


def test_every_formula_of_our_cards_is_drawn_alike() -> None:
    """The same for each formula that the base really has."""
    found, _ = library.load(HERE.parent / "cards")
    assert found is not None
    formulas = {
        (token.content, token.type == "math_block")
        for card in found.cards.values()
        for token in prose.formulas(card)
    }
    assert len(formulas) > 300
    assert differing(sorted(formulas)) == []


def test_what_is_built_of_the_table_is_drawn_alike() -> None:
    """Two thousand formulas put together from its entries by chance, as far as ``check`` accepts them."""
    chance = random.Random(8)
    formulas: list[Formula] = []
    while len(formulas) < 2000:
        tex = _built(chance, 2) + _built(chance, 2)
        display = chance.random() < 0.5
        try:
            mathml(tex, display)
        except TexError:
            continue
        if not list(refused(tex)):
            formulas.append((tex, display))
    assert differing(formulas) == []


ATOMS = [*"abxyzABLN019+-*/=<>()[]|.,:;!?", "10", "3.5", "1{,}000", "f'", "{}", " "]
TAKING_ONE = [
    name
    for name in table().examples
    if name in {r"\hat", r"\bar", r"\tilde", r"\vec", r"\dot", r"\sqrt", r"\underbrace", r"\overbrace",
                r"\pmod", r"\phantom", *table().arguments}
]  # fmt: skip
TAKING_TWO = [r"\frac", r"\tfrac", r"\dfrac", r"\binom", r"\overset", r"\underset"]
LARGE = [r"\sum", r"\prod", r"\int", r"\max", r"\log", r"\lim", r"\bigcup", r"\arg\max"]
BRACKETS = ["(", "]", "|", r"\{", r"\|", r"\lfloor", r"\rangle", r"\lvert", r"\rceil", "/", "."]


def _built(chance: random.Random, depth: int) -> str:
    def inner() -> str:
        return _built(chance, depth - 1)

    forms = [
        lambda: chance.choice(ATOMS),
        lambda: chance.choice(list(table().examples)[:180]) + " ",
        lambda: chance.choice(EXAMPLES),
        lambda: "".join(chance.choice("abAB01 ./-汉") for _ in range(3)).join((r"\text{", "}")),
        lambda: f"{chance.choice(TAKING_ONE)}{{{inner()}}}",
        lambda: f"{chance.choice(TAKING_TWO)}{{{inner()}}}{{{inner()}}}",
        lambda: f"{chance.choice('xyAB10')}_{{{inner()}}}^{{{inner()}}}",
        lambda: f"{chance.choice(LARGE)}_{{{inner()}}} {inner()}",
        lambda: rf"\left{chance.choice(BRACKETS)} {inner()}\right{chance.choice(BRACKETS)} ",
        lambda: (
            rf"x\{chance.choice(['big', 'Big', 'bigg', 'bigl'])}{chance.choice(BRACKETS[:-1])} y"
        ),
    ]
    return forms[0]() if depth <= 0 else chance.choice(forms)()


UNLIKE = [
    r"\underline{xy}", r"\mathrm{\beta}", r"a^{\big)}", r"a\square b", r"\boldsymbol{\arcsin}", r"\text{it's}",
    r"\bm{x}", r"\R", r"\begin{smallmatrix}a&b\end{smallmatrix}",
    r"\middle|", r"\left({a\middle|b}\right)", r"\begin{cases}a&b\\\end{cases}", r"\begin{aligned}[t]a\end{aligned}",
    r"\begin{bmatrix}\end{bmatrix}", r"\sum'", r"\operatorname{fl}\limits_x",
]  # fmt: skip


def test_the_comparison_finds_what_is_drawn_differently() -> None:
    """It says no where the two are known to differ, or one of them knows no such command."""
    for tex, theirs in zip(UNLIKE, mathjax((tex, False) for tex in UNLIKE), strict=True):
        assert list(refused(tex)), tex
        try:
            ours = tree(mathml(tex))
        except TexError:
            assert "mathml" in theirs, tex
        else:
            assert "error" in theirs or tree(theirs["mathml"]) != ours, tex


APART = [
    ("x^2", "x_2"), (r"\mathrm{d}", "d"), (r"\mathbf{x}", "x"), (r"\mathcal{L}", "L"), ("a b", r"a\quad b"),
    (r"\frac{a}{b}", r"\binom{a}{b}"), (r"\hat{x}", r"\tilde{x}"), (r"\sqrt{x}", r"\sqrt[3]{x}"),
    (r"\big(x", "(x"), (r"\tfrac{a}{b}", r"\dfrac{a}{b}"), (r"\left(\frac12\right)", r"(\frac12)"),
    (r"\begin{matrix}a&b\end{matrix}", r"\begin{matrix}a\\b\end{matrix}"),
    (r"\begin{array}{l}a\end{array}", r"\begin{array}{r}a\end{array}"), (r"\varepsilon", r"\epsilon"),
]  # fmt: skip


def test_the_comparison_tells_formulas_apart() -> None:
    """What is drawn differently has different trees, in either program."""
    theirs = iter(mathjax((tex, True) for pair in APART for tex in pair))
    for one, other in APART:
        assert tree(mathml(one, True)) != tree(mathml(other, True)), one
        assert tree(next(theirs)["mathml"]) != tree(next(theirs)["mathml"]), one


CORE = {
    "math", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle",
    "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "mpadded",
}  # fmt: skip
"""MathML Core, which browsers draw; ``menclose`` is not in it, nor any ``mathvariant`` but ``normal``."""


def test_every_entry_is_drawn_by_browsers() -> None:
    """The table allows nothing whose MathML a browser passes over: no box, no stroke, no lost weight."""
    for tex in EXAMPLES:
        drawn = mathml(tex, True)
        assert set(re.findall(r"<(\w+)", drawn)) <= CORE, tex
        assert set(re.findall(r'mathvariant="([^"]*)"', drawn)) <= {"normal"}, tex
    assert "menclose" in mathml(r"\boxed{x}")


def test_the_table_allows_its_own_entries_and_nothing_that_it_advises_against() -> None:
    """No example is refused; each command with advice is, and the advice itself is not."""
    for tex in EXAMPLES:
        assert list(refused(tex)) == [], tex
    for name, hint in table().instead.items():
        tex = name if name.startswith("\\") else rf"\begin{{{name}}}"
        assert [each.hint for each in refused(tex)][:1] == [hint], name
        for advice in re.findall(r"`(\\[^`…]*)`", hint):
            assert list(refused(advice)) == [], advice


@pytest.mark.parametrize(
    ("tex", "offset"),
    [("a，b", 1), ("a×b", 1), ("α", 0), ("50%", 2), ("a~b", 1), ("x#", 1), ('"', 0), ("a&b", 1), (r"a\\b", 1),
     (r"\begin{cases}a\\[2pt]b\end{cases}", 14), (r"\begin{array}{l|r}a\end{array}", 0), (r"\text{a $x$}", 0),
     (r"\mathbb{k}", 0), (r"x+\foo", 2), (r"\cancel{x}", 0), (r"\eqref{x}", 0), (r"\operatorname{a'}", 0)],
)  # fmt: skip
def test_what_is_not_in_the_table_is_refused_at_its_place(tex: str, offset: int) -> None:
    """Characters, commands, environments and arguments alike, each with a hint."""
    first = next(refused(tex))
    assert first.offset == offset
    assert first.hint.endswith(".")


def test_a_formula_nests_only_so_deep() -> None:
    """Readers that recurse are given no formula that would overflow their stack."""
    mathml("{" * MAX_NESTING + "x" + "}" * MAX_NESTING)
    deep = MAX_NESTING + 1
    with pytest.raises(TexError, match="deep in one another") as raised:
        mathml("{" * deep + "x" + "}" * deep)
    assert raised.value.offset == MAX_NESTING
