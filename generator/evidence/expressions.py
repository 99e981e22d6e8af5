"""The grammar of ``calc:`` expressions: text → tree.

::

    sum     = product (("+" | "−") product)*
    product = signed (("×" | "/") signed)*
    signed  = "−" signed | power
    power   = primary ("^" signed)?
    primary = number unit? | "{" name "}" | function "(" sum ("," sum)* ")" unit? | "(" sum ")" unit?
    unit    = spelling ("/" spelling)*

So ``−2^2`` is −4, ``2^3^2`` is 512, and ``a / b × c`` is ``(a / b) × c``. ``-`` and ``*`` are read as
``−`` and ``×``. A number has no thousands separators, since commas divide arguments.

===================================  ==============================================================
``{claim:demo/metric}``              what a demo recorded on the CPU; ``@h200`` behind it: on that GPU
``{param:demo/name}``                a parameter of that run
``{fact:id/key}``                    a public fact
``{model/key}``                      a fact of the model that the scenario names; so ``{device/key}``
``{devices}``                        how many devices it has; so ``{batch}`` and ``{sequence}``
``{calc:label}``                     what the card's definition ``[label]: calc: "…"`` is worth
===================================  ==============================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isinf
from typing import Literal, NamedTuple, NoReturn, cast, get_args

from generator.cards.links import LABEL, TARGETS
from generator.evidence import units
from generator.evidence.quantities import SYMBOLS
from generator.names import suggest
from generator.problems import quote

MAX_LENGTH = 1000
"""Characters of an expression."""
MAX_DEPTH = 32
"""Parentheses, signs and powers within one another."""
MAX_PARTS = 100
"""Numbers and names of an expression. With ``MAX_DEPTH`` it bounds the height of the tree."""


class CalcError(ValueError):
    """An expression that has no value: where (``column`` counts from 1), why, and what to do."""

    def __init__(self, column: int, message: str, hint: str) -> None:
        super().__init__(column, message, hint)
        self.column, self.message, self.hint = column, message, hint

    def __str__(self) -> str:
        return self.message


# --- the tree ------------------------------------------------------------------------------------

Scheme = Literal[
    "claim", "param", "fact", "model", "device", "devices", "batch", "sequence", "calc"
]  # fmt: skip
Operator = Literal["+", "−", "×", "/", "^"]
Function = Literal["sqrt", "ln", "log2", "exp", "ceil", "floor", "min", "max"]


@dataclass(frozen=True, slots=True)
class Name:
    """What stands in braces.

    ``subject`` is a demo, the id of a fact or the label of a definition; ``device`` is that of a claim's record.
    What a name lacks is empty.
    """

    scheme: Scheme
    subject: str = ""
    key: str = ""
    device: str = ""

    def __str__(self) -> str:
        if self.subject:
            at = f"@{self.device}" if self.device not in ("", "cpu") else ""
            return f"{self.scheme}:{self.subject}" + f"/{self.key}{at}" * bool(self.key)
        return f"{self.scheme}/{self.key}" if self.key else self.scheme


@dataclass(frozen=True, slots=True)
class Number:
    """``80 GB``: a number in its base unit, the double nearest to what is written."""

    column: int
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Reference:
    """``{claim:demo/metric}``; ``end`` is the column behind it."""

    column: int
    end: int
    name: Name


@dataclass(frozen=True, slots=True)
class Negation:
    """``−a``."""

    column: int
    operand: Node


@dataclass(frozen=True, slots=True)
class Operation:
    """``a + b``; ``column`` is the operator's."""

    column: int
    operator: Operator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Call:
    """``max(a, b)``."""

    column: int
    function: Function
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class WithUnit:
    """``(a) KB``: a plain number becomes one of ``unit``, ``worth`` of it each; ``column`` is the unit's."""

    column: int
    operand: Node
    unit: str
    worth: Fraction


Node = Number | Reference | Negation | Operation | Call | WithUnit


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as it is written, and its tree."""

    text: str
    root: Node


def references(expression: Expression) -> Iterator[Reference]:
    """Every name in braces with its column, from left to right."""
    return _references(expression.root)


def _references(node: Node) -> Iterator[Reference]:
    match node:
        case Reference():
            yield node
        case Negation() | WithUnit():
            yield from _references(node.operand)
        case Operation():
            yield from _references(node.left)
            yield from _references(node.right)
        case Call():
            for each in node.arguments:
                yield from _references(each)


def names(expression: Expression) -> tuple[Name, ...]:
    """The names in braces, each once, from left to right."""
    return tuple(dict.fromkeys(each.name for each in references(expression)))


# --- tokens --------------------------------------------------------------------------------------

FUNCTIONS: tuple[Function, ...] = get_args(Function)

_TOKEN = re.compile(
    r"""(?P<number> [0-9]+ (?:\.[0-9]+)? (?:[eE][-−+]?[0-9]+)? )
      | (?P<name> \{[^{}]*\} )
      | (?P<word> [A-Za-zµμ][A-Za-zµμ0-9]* | [一-鿿]+ | % )
      | (?P<operator> \*\* | [-−+×*/^(),] )
      | (?P<space> \s+ )""",
    re.VERBOSE,
)
_TYPED: Mapping[str, str] = {"-": "−", "*": "×"}
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"

_SLIPS: Mapping[str, str] = {
    **dict.fromkeys("·⋅∙•∗✕✖", "Write `×` (or `*`) between two factors."),
    **dict.fromkeys("÷∕⁄：", "Write `/`."),
    **dict.fromkeys("–—‐‑﹣－", "Write `−` (or `-`)."),
    **dict.fromkeys("（[【", "Write `(`."),
    **dict.fromkeys("）]】", "Write `)`."),
    **dict.fromkeys("，、；;", "Write `,` between two arguments."),
    **dict.fromkeys("_'’", "Write a number without separators: `4096`."),
    **dict.fromkeys(_SUPERSCRIPTS, "Write a power with `^`, such as `10^9`."),
    **dict.fromkeys("=≈", "Write what is calculated alone; the link prints the result."),
    **dict.fromkeys("$\\", "Write plain characters, no TeX: `×`, `/`, `^`, `sqrt(…)`."),
    "＋": "Write `+`.",
    "％": "Write `%`.",
    "√": "Write `sqrt(…)`.",
    ".": "A decimal point stands between two digits: `0.5`.",
    "{": "Close it: a name stands in braces, such as `{devices}`.",
    "}": "Open it: a name stands in braces, such as `{devices}`.",
}
"""What is typed for another character, and what to write."""


class _Token(NamedTuple):
    kind: str
    text: str
    column: int
    end: int


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of ``text``, and one of kind ``end`` behind them."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            known = "An expression holds numbers, `+ − × / ^ ( )`, functions, and names in braces."
            what = "is not closed" if text[at] == "{" else "cannot stand in an expression"
            raise CalcError(at + 1, f"{quote(text[at])} {what}", _SLIPS.get(text[at], known))
        at, kind = match.end(), match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, _TYPED.get(match[0], match[0]), match.start() + 1, at + 1)
    yield _Token("end", "", len(text) + 1, len(text) + 1)


# --- parsing -------------------------------------------------------------------------------------


def parse(text: str) -> Expression:
    """The expression that ``text`` is. Raises ``CalcError``."""
    if len(text) > MAX_LENGTH:
        message = f"this expression has {len(text)} characters"
        hint = f"Write at most {MAX_LENGTH}: give its parts lines of their own."
        raise CalcError(MAX_LENGTH + 1, message, hint)
    if not text.strip():
        raise CalcError(1, "there is no expression", "Write one, such as `{devices} × 16 GB`.")
    return Expression(text, _Parser(text).whole())


class _Parser:
    """Reads tokens from left to right; a method a rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0
        self.parts = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def sees(self, *operators: str) -> bool:
        return self.next.kind == "operator" and self.next.text in operators

    def whole(self) -> Node:
        node = self.sum()
        if self.next.kind != "end":
            self.refuse_what_follows()
        return node

    def sum(self) -> Node:
        node = self.product()
        while self.sees("+", "−"):
            sign = self.take()
            node = Operation(sign.column, cast(Operator, sign.text), node, self.product())
        return node

    def product(self) -> Node:
        node = self.signed()
        while self.sees("×", "/"):
            sign = self.take()
            node = Operation(sign.column, cast(Operator, sign.text), node, self.signed())
        return node

    def signed(self) -> Node:
        if not self.sees("−"):
            return self.power()
        sign = self.take()
        self.deeper(sign)
        node = Negation(sign.column, self.signed())
        self.depth -= 1
        return node

    def power(self) -> Node:
        base = self.primary()
        if not self.sees("^"):
            return base
        sign = self.take()
        self.deeper(sign)
        node = Operation(sign.column, "^", base, self.signed())
        self.depth -= 1
        return node

    def primary(self) -> Node:
        token = self.take()
        if token.kind in ("number", "name"):
            self.parts += 1
            if self.parts > MAX_PARTS:
                message = f"this expression has more than {MAX_PARTS} numbers and names"
                raise CalcError(token.column, message, "Give its parts lines of their own.")
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name":
            self.refuse_unit_of_name()
            return Reference(token.column, token.end, _name(token))
        if token.kind == "word":
            return self.call(token)
        if token.text == "(":
            return self.with_unit(self.within(token)[0])
        return self.refuse_operand(token)

    def number(self, token: _Token) -> Node:
        worth, unit = Fraction(1), ""
        if self.sees_unit():
            _, unit, worth = self.unit()
        return Number(token.column, _double(token, worth), unit)

    def call(self, token: _Token) -> Node:
        if token.text not in FUNCTIONS:
            self.refuse_word(token)
        if not self.sees("("):
            hint = f"Write `{token.text}(…)`."
            raise CalcError(token.column, f"`{token.text}` has no arguments", hint)
        arguments = self.within(self.take(), commas=True)
        wanted = 2 if token.text in ("min", "max") else 1
        if len(arguments) < wanted or (wanted == 1 and len(arguments) > 1):
            said = "one argument" if wanted == 1 else "two or more arguments"
            message = f"`{token.text}` takes {said}, not {len(arguments)}"
            raise CalcError(token.column, message, f"Write {_form(token.text)}.")
        return self.with_unit(Call(token.column, token.text, tuple(arguments)))

    def within(self, opening: _Token, commas: bool = False) -> list[Node]:
        """What stands between parentheses, divided by ``commas`` where a function takes it."""
        self.deeper(opening)
        found = [self.sum()]
        while commas and self.sees(","):
            self.refuse_thousands()
            self.take()
            found.append(self.sum())
        if not self.sees(")"):
            if self.next.kind == "end":
                raise CalcError(opening.column, "this `(` is not closed", "Close it with `)`.")
            self.refuse_what_follows()
        self.take()
        self.depth -= 1
        return found

    def with_unit(self, node: Node) -> Node:
        if not self.sees_unit():
            return node
        column, unit, worth = self.unit()
        return WithUnit(column, node, unit, worth)

    def sees_unit(self) -> bool:
        """Whether a word follows that is no function: ``5 min`` is a time, ``5 min(…)`` a slip."""
        if self.next.kind != "word":
            return False
        is_call = self.tokens[self.at + 1].text == "("
        return not is_call or self.next.text in units.SPELLINGS.keys() - FUNCTIONS

    def unit(self) -> tuple[int, str, Fraction]:
        """The column of a unit, the unit, and how many of it one is worth."""
        first = self.take()
        unit, worth = _spelled(first)
        while self.sees("/"):
            self.at += 1
            if not (self.sees_unit() and self.next.text in units.SPELLINGS):
                self.at -= 1
                break
            below, below_worth = _spelled(self.take())
            unit, worth = units.quotient(unit, below), worth / below_worth
        return first.column, unit, worth

    # what is wrong

    def deeper(self, token: _Token) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = (
                f"more than {MAX_DEPTH} parentheses, signs and powers stand within one another"
            )
            raise CalcError(token.column, message, "Take away those that say nothing.")

    def refuse_operand(self, token: _Token) -> NoReturn:
        wanted = "Write a number, a name in braces, a function or `(` there."
        if token.kind == "end":
            raise CalcError(token.column, "the expression ends too early", wanted)
        if token.text == "**":
            raise CalcError(token.column, "`**` is no operator", "Write `^` for a power.")
        message = f"`{token.text}` stands where a number is expected"
        raise CalcError(token.column, message, wanted)

    def refuse_word(self, token: _Token) -> NoReturn:
        if token.text in units.SPELLINGS:
            message = f"the unit `{token.text}` follows no number"
            raise CalcError(token.column, message, f"Write the number before it: `1 {token.text}`.")
        hint = _FORMER.get(token.text) or f"{suggest(token.text, FUNCTIONS)} {_BRACES}"
        raise CalcError(token.column, f"there is no function {quote(token.text)}", hint)

    def refuse_unit_of_name(self) -> None:
        if self.sees_unit():
            token = self.next
            _spelled(token)
            message = f"the unit `{token.text}` follows a name, which has its own"
            hint = (
                f"Multiply by `1 {token.text}` where the name is a plain number; else take it away."
            )
            raise CalcError(token.column, message, hint)

    def refuse_thousands(self) -> None:
        """``min(1,234)`` may be meant as one number or as two."""
        before, comma, after = self.tokens[self.at - 1 : self.at + 2]
        near = before.end == comma.column and comma.end == after.column
        if near and re.fullmatch("[0-9]{1,3}", before.text) and re.match("[0-9]{3}", after.text):
            message = f"`{before.text},{after.text}` may be one number or two"
            hint = f"Write `{before.text}{after.text}`, or a space behind the comma."
            raise CalcError(before.column, message, hint)

    def refuse_what_follows(self) -> NoReturn:
        token = self.next
        if token.text == ")":
            raise CalcError(token.column, "this `)` closes nothing", "Take it away, or open it.")
        if token.text == ",":
            hint = "Write a number without separators: `4096`. Commas divide the arguments of `min` and `max`."
            raise CalcError(token.column, "a comma divides arguments alone", hint)
        if token.text == "**":
            raise CalcError(token.column, "`**` is no operator", "Write `^` for a power.")
        message = f"an operator is missing before {quote(token.text)}"
        raise CalcError(token.column, message, "Write `×`, `/`, `+` or `−` between them.")


_UNITS = (
    "Units are `B`, `FLOP`, `s` and `param`, larger and smaller ones such as `GiB`, and `B/param`."
)
_BRACES = "A name stands in braces, such as `{devices}`."
_FORMER = dict.fromkeys(("log", "log10", "lg"), "Write `ln(…)`, `log2(…)`, or `ln(…) / ln(10)`.")


def _form(function: str) -> str:
    return f"`{function}(a, b)`" if function in ("min", "max") else f"`{function}(a)`"


def _spelled(token: _Token) -> tuple[str, Fraction]:
    """The unit that a word spells, and how many of it one is worth."""
    if token.text not in units.SPELLINGS:
        if token.text in ("x", "X", "times"):
            raise CalcError(token.column, f"`{token.text}` is no operator", "Write `×` or `*`.")
        same = [name for name, unit in units.SPELLINGS.items() if unit == SYMBOLS.get(token.text)]
        near = suggest(token.text, units.SPELLINGS)
        if same:
            hint = f"Write `{same[0]}`: an expression serves both languages."
        else:
            hint = near if near.startswith("Did you mean") else _UNITS
        raise CalcError(token.column, f"{quote(token.text)} is no unit here", hint)
    unit, worth = units.SPELLINGS[token.text]
    return ("" if unit == "token" else unit), worth


def _double(token: _Token, worth: Fraction) -> float:
    """The double nearest to the number written, in its base unit."""
    text = token.text.replace("−", "-")
    number = float(text)
    vanished = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    # The number alone is looked at first: the fraction of `1e999999999` would have a billion digits.
    if not (isinf(number) or vanished):
        try:
            number = float(Fraction(text) * worth)
        except OverflowError:
            number = float("inf")
    if isinf(number) or vanished:
        size = "small" if vanished else "large"
        message = f"{quote(token.text)} is too {size} for a double"
        raise CalcError(token.column, message, "Write a number between 1e-300 and 1e300.")
    return number


# --- names ---------------------------------------------------------------------------------------

_NAMES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "claim": (
        re.compile(f"claim:{TARGETS['claim']}"),
        "`{claim:demo_name/metric_name}`, with `@h200` behind it for that GPU's record",
    ),
    "param": (
        re.compile(f"param:{TARGETS['param']}"),
        "`{param:demo_name/parameter_name}`",
    ),
    "fact": (re.compile(f"fact:{TARGETS['fact']}"), "`{fact:fact-id/key}`"),
    **{
        of: (re.compile(rf"{of}/(?P<key>[a-z][a-z0-9_]*)"), f"`{{{of}/key}}`")
        for of in ("model", "device")
    },
    **{of: (re.compile(of), f"`{{{of}}}`") for of in ("devices", "batch", "sequence")},
    "calc": (
        re.compile(f"calc:(?P<subject>{LABEL})"),
        '`{calc:label}`, of a line `[label]: calc: "…"` of this card',
    ),
}
"""How a name of each scheme is written, and the form that a hint shows."""


def _name(token: _Token) -> Name:
    text = token.text[1:-1]
    scheme = re.split("[:/]", text)[0].strip()
    if scheme not in _NAMES:
        known = ", ".join(form.partition(",")[0] for _, form in _NAMES.values())
        near = suggest(scheme, _NAMES)
        hint = near if near.startswith("Did you mean") else f"Write one of {known}."
        raise CalcError(token.column, f"{quote(token.text)} names nothing that is known here", hint)
    pattern, form = _NAMES[scheme]
    found = pattern.fullmatch(text)
    if found is None:
        message = f"{quote(token.text)} is not written as a name is"
        raise CalcError(token.column, message, f"Write {form}.")
    return Name(cast(Scheme, scheme), **found.groupdict(default="cpu"))
