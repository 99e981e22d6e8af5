r"""Tokens → the words that a reader sees, on one line: for search, study, descriptions and titles.

Formulas are read by pylatexenc, which knows the characters of TeX's symbols; what is added here is how
fractions, roots, scripts and environments are written on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from unicodedata import category, normalize

from markdown_it.token import Token
from pylatexenc.latex2text import LatexNodes2Text, get_default_latex_context_db
from pylatexenc.latexwalker import (
    LatexCharsNode,
    LatexEnvironmentNode,
    LatexGroupNode,
    LatexMacroNode,
    LatexMathNode,
    LatexNode,
    LatexSpecialsNode,
    LatexWalker,
)
from pylatexenc.latexwalker import get_default_latex_context_db as get_default_walker_context_db
from pylatexenc.macrospec import LatexContextDb, MacroSpec

from generator.line_ends import line_end
from generator.tex.mathml import MAX_LENGTH, too_deep

RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")

_IN_MATH = re.compile(r"(?<!\\)\$([^$]+)(?<!\\)\$")
_MARKS = re.compile(r"\\([!-/:-@\[-`{-~])|[*`]+")
_FITTED = re.compile(
    r"\\(?:left|right|middle)(?![A-Za-z])\s*\.?"
    r"|\\(?:[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])\s*"
)
"""How large a bracket is, and where limits stand, which one line does not show; ``.`` is no bracket."""
_ARGUMENTS = {
    "{": "text textrm textit mathrm mathbf mathit mathsf mathtt mathcal mathbb mathfrak mathscr "
    "boldsymbol operatorname* underbrace overbrace overline underline widehat widetilde hat bar tilde "
    "vec dot ddot check breve acute grave phantom mathop mathbin mathrel mathord pmod substack",
    "{{": "frac tfrac dfrac binom tbinom dbinom overset underset stackrel",
    "[{": "sqrt xrightarrow xleftarrow",
}
_TAKING = {name.removesuffix("*") for names in _ARGUMENTS.values() for name in names.split()}
_OPERATORS = (
    "log ln lg exp max min sup inf lim sin cos tan det arg dim ker gcd Pr deg hom limsup liminf "
    "sinh cosh tanh sec csc cot arcsin arccos arctan mod"
)
_NAMES = {**{name: name for name in _OPERATORS.split()}, "bmod": "mod"}
_BARE = {  # what the library writes otherwise, or does not know
    "cdot": "·", "cdots": "…", "ldots": "…", "dots": "…", "dotsc": "…", "dotsb": "…", "vdots": "⋮", "ddots": "⋱",
    "top": "ᵀ", "star": "★", "ast": "*", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|",
    "Vert": "‖", "lVert": "‖", "rVert": "‖", "|": "‖", "iff": "⟺", "implies": "⟹", "impliedby": "⟸",
    "to": "→", "gets": "←", "colon": ":", "varnothing": "∅", "emptyset": "∅", "setminus": "∖",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "land": "∧", "lor": "∨",
    "lnot": "¬", "neg": "¬", "imath": "ı", "jmath": "ȷ", "Re": "ℜ", "Im": "ℑ", "bot": "⊥",
    "triangle": "△", "checkmark": "✓",
    "ddagger": "‡", "lll": "⋘", "ggg": "⋙", "models": "⊨", "lt": "<", "gt": ">", "lbrack": "[", "rbrack": "]",
    "prime": "′", "backslash": "\\", "lbrace": "{", "rbrace": "}",
    "{": "{", "}": "}", "#": "#", "%": "%", "_": "_", "&": "&", "$": "$",
    ",": " ", ";": " ", ":": " ", " ": " ", ">": " ", "quad": " ", "qquad": " ", "enspace": " ", "!": "",
    "\\": "; ", "hline": "", "nonumber": "", "notag": "",
}  # fmt: skip
_SEPARATORS = {"aligned": " ", "gathered": " ", "split": " ", "align*": " ", "gather*": " "}
"""What stands for ``&`` in an environment; a comma and a space in all others."""
_ACCENTS = {
    "hat",
    "widehat",
    "bar",
    "overline",
    "tilde",
    "widetilde",
    "vec",
    "dot",
    "ddot",
    "check",
}
_RELATIONS = set("×÷±∓")
_NOT_SPACED = set("∀∃¬∂∇∞√∑∏∫∮∅′⋮⋱∴∵⊤⊥·∖")
_SHORT = re.compile(r"[\d.,]+|.|\w′|√\w|", re.DOTALL)
_WORD = re.compile(r"\w+[*′]?", re.DOTALL)


def plain_text(tokens: Iterable[Token]) -> str:
    """The text of block or inline tokens; formulas as :func:`plain_math` writes them."""
    return " ".join("".join(_pieces(tuple(tokens))).split())


def plain_label(markdown: str) -> str:
    """The text of a link's label as it is written: words with their marks, formulas between ``$``."""
    parts = _IN_MATH.split(markdown)
    for at, part in enumerate(parts):
        parts[at] = plain_math(part) if at % 2 else _MARKS.sub(lambda m: m[1] or "", part)
    return " ".join("".join(parts).split())


def _pieces(tokens: Sequence[Token]) -> Iterator[str]:
    for index, token in enumerate(tokens):
        match token.type:
            case "inline":
                yield from _pieces(token.children or ())
            case "math_inline" | "math_block":
                yield plain_math(token.content)
            case "text" | "code_inline" | "fence" | "code_block":
                yield token.content
            case "softbreak":
                yield line_end(tokens, index)
            case "hardbreak":
                yield " "
        if token.block:  # where a block begins or ends, words end
            yield " "


@cache
def plain_math(tex: str) -> str:
    r"""TeX on one line of plain characters: ``\sqrt{L/s}`` as ``√(L/s)``, ``10^{-6}`` as ``10⁻⁶``."""
    if len(tex) > MAX_LENGTH or too_deep(tex) is not None:
        return ""  # it is not drawn, either
    tex = _FITTED.sub("{}", tex)
    nodes, _, _ = LatexWalker(tex, _grammar(), tolerant_parsing=True).get_latex_nodes()
    text = normalize("NFC", _joined(_items(nodes)))
    text = re.sub(r"\s+([,;:)\]}⌋⌉⟩])", r"\1", text)
    return " ".join(re.sub(r"([(\[⌊⌈⟨])\s+", r"\1", text).split()).strip("; ")


@cache
def _grammar() -> LatexContextDb:
    """How many arguments each command takes."""
    db = get_default_walker_context_db()
    ours = [MacroSpec(name, form) for form, names in _ARGUMENTS.items() for name in names.split()]
    ours[:] = [_starred(each) for each in ours]
    db.add_context_category(
        "one-line",
        macros=[*ours, *(MacroSpec(name, "") for name in [*_NAMES, *_BARE])],
        prepend=True,
    )
    return db


def _starred(spec: MacroSpec) -> MacroSpec:
    name = spec.macroname
    return MacroSpec(name.removesuffix("*"), "*{") if name.endswith("*") else spec


@cache
def _library() -> LatexNodes2Text:
    return LatexNodes2Text(get_default_latex_context_db(), math_mode="text")


class _Item(str):
    """A stretch of the line, and what has to be known of it to set the next one."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "") -> _Item:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def _items(nodes: Iterable[LatexNode | None], separator: str = ", ") -> list[_Item]:
    """The parts of a list of nodes: each character alone, each group and command as one."""
    found: list[_Item] = []
    for node in nodes:
        if isinstance(node, LatexCharsNode):
            found += [_Item("′" if each == "'" else each) for each in node.chars]
        elif isinstance(node, LatexGroupNode | LatexMathNode):
            found.append(_Item(_joined(_items(node.nodelist, separator)), "group"))
        elif isinstance(node, LatexMacroNode):
            found.append(_macro(node))
            if node.macro_post_space:
                found.append(_Item(" "))
        elif isinstance(node, LatexEnvironmentNode):
            found.append(_environment(node))
        elif isinstance(node, LatexSpecialsNode):
            found.append(
                _Item({"&": separator, "~": " "}.get(node.specials_chars, node.specials_chars))
            )
    return found


def _environment(node: LatexEnvironmentNode) -> _Item:
    separator = _SEPARATORS.get(node.environmentname, ", ")
    return _Item(_joined(_items(node.nodelist, separator)), "group")


def _macro(node: LatexMacroNode) -> _Item:
    name = node.macroname
    given = node.nodeargd.argnlist if node.nodeargd else None
    args = [_joined(_items([each])) for each in given or () if each is not None]
    if shape := _SHAPES.get((name, len(args))):
        return shape(*args)
    if name in _NAMES:
        return _Item(_NAMES[name], "name")
    if name in _BARE:
        return _spaced(_BARE[name])
    if args or name in _TAKING:
        accent = name in _ACCENTS and len("".join(args)) == 1
        return _Item(_library().node_to_text(node) if accent else "".join(args), "group")
    return _spaced(_symbol(name))


def _symbol(name: str) -> str:
    """The character of a command without arguments; nothing for one that is unknown."""
    spec = _library().latex_context.get_macro_spec(name)
    shown = spec.simplify_repl if spec else ""
    return shown if isinstance(shown, str) and "%" not in shown else ""


def _fraction(above: str, below: str) -> _Item:
    return _Item(f"{_grouped(above, _WORD)}/{_grouped(below)}", "script")


def _binomial(above: str, below: str) -> _Item:
    return _Item(f"C({above}, {below})", "group")


_SHAPES: Mapping[tuple[str, int], Callable[..., _Item]] = {
    **{(f"{size}frac", 2): _fraction for size in ("", "t", "d")},
    **{(f"{size}binom", 2): _binomial for size in ("", "t", "d")},
    ("sqrt", 1): lambda inner: _Item(f"√{_grouped(inner)}"),
    ("sqrt", 2): lambda degree, inner: _Item(f"{degree.translate(RAISED)}√{_grouped(inner)}"),
    ("overset", 2): lambda over, base: _Item(f"{base}^{_grouped(over)}", "script"),
    ("stackrel", 2): lambda over, base: _Item(f"{base}^{_grouped(over)}", "script"),
    ("underset", 2): lambda under, base: _Item(f"{base}_{_grouped(under)}", "script"),
    ("pmod", 1): lambda inner: _Item(f" (mod {inner})"),
    ("underbrace", 1): lambda inner: _Item(inner, "brace"),
    ("overbrace", 1): lambda inner: _Item(inner, "brace"),
    ("operatorname", 1): lambda inner: _Item(inner, "name"),
    ("operatorname", 2): lambda _star, inner: _Item(inner, "name"),
}
"""How a command with so many arguments is written on one line."""


def _spaced(text: str) -> _Item:
    """A symbol, with a space on both sides where it stands between two terms."""
    between = (
        len(text) == 1
        and text not in _NOT_SPACED
        and (category(text) == "Sm" or text in _RELATIONS)
    )
    return _Item(f" {text} " if between else text, "symbol")


def _joined(items: Sequence[_Item]) -> str:
    """The parts on one line, each script written behind what carries it."""
    line = ""
    carrier = _Item("")
    todo = iter(items)
    for item in todo:
        if item in {"^", "_"} and not item.kind:
            script = next((each.strip() for each in todo if each != " "), "")
            line = line.rstrip() + _script(item, script, carrier)
            carrier = _Item("", carrier.kind if carrier.kind in {"name", "brace"} else "script")
            continue
        apart = item[:1].isalnum() and (
            carrier.kind in {"name", "script"} or (item.kind == "name" and line[-1:].isalnum())
        )
        line += " " * apart + item
        carrier = item if item != " " else carrier
    return line


def _script(mark: str, script: str, carrier: _Item) -> str:
    if not script:
        return ""
    if carrier.kind == "brace":
        return f" [{script}]"
    if mark == "_":
        return f"_{_grouped(script, _WORD)}"
    if re.fullmatch(r"[-−+]?\d+", script):
        return script.translate(RAISED)
    return {"ᵀ": "ᵀ", "★": "*", "*": "*", "∘": "°", "′": "′"}.get(script) or f"^{_grouped(script)}"


def _grouped(inner: str, alone: re.Pattern[str] = _SHORT) -> str:
    """What needs no parentheses as it is; all else within them."""
    inner = inner.strip()
    return inner if alone.fullmatch(inner) else f"({inner})"
