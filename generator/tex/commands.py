r"""The TeX that is allowed in formulas: a table of commands that every reader's program draws alike.

The table is ``tex_commands.toml``; a test draws each of its entries with the site's renderer and with
MathJax, which Obsidian and Anki carry.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")

_TOKEN = re.compile(
    r"\\(?P<edge>begin|end)\s*\{(?P<environment>[^{}]*)\}(?P<columns>\{[^{}]*\})?"
    r"|(?P<row>\\\\(?P<gap>\s*[\[*])?)"
    r"|(?P<alone>[{^_]\s*\\[bB]igg?[lrm]?(?![A-Za-z])\s*(?:\\[A-Za-z]+|\\.|[^\\])\s*\}|[\^_]\s*\\[bB]igg?)"
    r"|(?P<command>\\(?:[A-Za-z]+|.))\*?(?:\s*\{(?P<argument>[^{}]*)\}|\s*(?P<letter>[A-Za-z0-9]))?"
    r"|(?P<other>.)",
    re.DOTALL,
)
_CHARACTERS = set(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-*/=<>()[]|.,:;!?'^_{} \n"
)
_STRUCTURE = re.compile(
    r"(?P<last>\\\\\s*(?=\\end(?![A-Za-z])))"
    r"|(?P<begin>\\begin\s*\{[^{}]*\}(?:\{[^{}]*\})?\s*(?=\[|\\end(?![A-Za-z])))"
    r"|(?P<word>\\(?:sum|prod|max|min|sup|inf|lim|limsup|liminf|det|gcd|Pr)(?![A-Za-z])\s*'"
    r"|\\operatorname\*?\s*\{[^{}]*\}\s*(?:\\(?:no)?limits(?![A-Za-z])|'))"
    r"|\\(?P<bracket>left|middle|right)(?![A-Za-z])\s*(?:\\.)?"
    r"|(?P<open>\{|\\begin(?![A-Za-z]))|(?P<close>\}|\\end(?![A-Za-z]))|\\.",
    re.DOTALL,
)
_STRUCTURE_HINTS = {
    "last": ("a row's end behind the last row", r"Write `\\` between rows alone."),
    "begin": ("an environment that is empty or begins with `[`", "Write rows, and no option."),
    "word": (
        "a prime or limits on an operator",
        r"Give the operator a name without a prime; `\operatorname*` has its limits below.",
    ),
}
_COLUMNS = re.compile(r"\{[lcr]+\}")


@dataclass(frozen=True, slots=True)
class Table:
    """``examples`` by command, ``environments`` by name, and what to write ``instead`` of others.

    ``arguments`` are patterns of what a command may have in its braces.
    """

    examples: Mapping[str, str]
    arguments: Mapping[str, str]
    environments: Mapping[str, str]
    instead: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a formula may not hold, where in it, and what to write."""

    offset: int
    what: str
    hint: str


@cache
def table() -> Table:
    """The table, read once."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    symbols = {symbol: rf"a{symbol} b" for symbol in data["symbols"]}
    return Table(
        symbols | data["commands"], data["arguments"], data["environments"], data["instead"]
    )


def refused(tex: str) -> Iterator[Refusal]:
    """Each part of a formula that is not drawn alike everywhere."""
    yield from _structure(tex)
    inside = at = 0
    while found := _TOKEN.match(tex, at):
        at = found.end()
        if found["edge"]:
            inside += 1 if found["edge"] == "begin" else -1
            yield from _environment(found)
        elif found["row"] and found["gap"]:
            yield Refusal(found.start(), "a row's end with a gap", r"Write `\\` alone.")
        elif (found["row"] or found["other"] == "&") and inside <= 0:
            hint = r"Rows and columns stand between `\begin{aligned}` and `\end{aligned}`."
            yield Refusal(found.start(), f"`{found[0]}` outside of an environment", hint)
        elif found["alone"]:
            yield Refusal(
                found.start(), "a sized bracket alone in its group", "Write the bracket as it is."
            )
            at = found.start() + 1
        elif command := found["command"]:
            if command not in table().examples:
                yield _unknown(found.start(), command)
            elif pattern := table().arguments.get(command):
                yield from _argument(found, pattern)
                continue
            at = found.end("command")
        elif not found["row"] and found["other"] not in _CHARACTERS | {"&"}:
            yield _character(found)


def _structure(tex: str) -> Iterator[Refusal]:
    r"""What each program builds in its own way, though each knows the commands; a ``\middle`` of no brackets."""
    depth, brackets = 0, list[int]()
    for found in _STRUCTURE.finditer(tex):
        kind = found.lastgroup
        depth += (kind in {"open", "begin"}) - (kind == "close")
        if kind in _STRUCTURE_HINTS:
            yield Refusal(found.start(), *_STRUCTURE_HINTS[kind])
        elif found["bracket"] == "left":
            brackets.append(depth)
        elif found["bracket"] == "right":
            del brackets[-1:]
        elif found["bracket"] == "middle" and brackets[-1:] != [depth]:
            hint = r"It stands between `\left` and `\right`, in no group of its own."
            yield Refusal(found.start(), r"a `\middle` of no brackets", hint)


def _environment(found: re.Match[str]) -> Iterator[Refusal]:
    name = found["environment"]
    if found["edge"] == "end":
        return
    if name not in table().environments:
        yield _unknown(found.start(), name, "environment")
    elif (name == "array") != bool(found["columns"] and _COLUMNS.fullmatch(found["columns"])):
        hint = r"Write `\begin{array}{lcr}` with one letter a column, and no lines."
        if name == "array":
            yield Refusal(found.start(), "a table without its columns, or with lines", hint)


def _argument(found: re.Match[str], pattern: str) -> Iterator[Refusal]:
    """What stands in a word or a letter of another alphabet, each of which has its own characters."""
    given = found["argument"] if found["letter"] is None else found["letter"]
    if given is None or not re.fullmatch(pattern, given):
        command = found["command"]
        hint = (
            "Plain words stand there: no formula, no straight quotation mark, no second hyphen in a row."
            if command == r"\text"
            else f"`{command}{{…}}` is drawn alike for `{pattern}`; close it before anything else begins."
        )
        yield Refusal(found.start(), f"this argument of `{command}`", hint)


def _unknown(offset: int, name: str, noun: str = "command") -> Refusal:
    hint = table().instead.get(
        name,
        "Say it with what `generator/tex/commands.toml` lists, or add it there with an example.",
    )
    return Refusal(offset, f"the {noun} `{name[:40]}`", hint)


def _character(found: re.Match[str]) -> Refusal:
    hint = "Write its command, such as `\\times` for ×; words stand in `\\text{…}`, punctuation is `,` `;` `.`."
    if unicodedata.category(found["other"]) == "Pd":
        hint = "Type a hyphen, `-`."
    if found["other"] == "%":
        hint = r"Write `\%`: alone it begins a comment."
    return Refusal(found.start(), f"the character `{found['other']}`", hint)
