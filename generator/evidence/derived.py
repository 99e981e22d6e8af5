"""What follows: numbers that a card calculates from others, each input with its own proof."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from generator.cards.model import Calc, Card, Scenario
from generator.evidence import calc, expressions, settings
from generator.evidence.calc import Line, Value
from generator.evidence.evidence import Evidence
from generator.evidence.expressions import CalcError, Expression, Name
from generator.evidence.facts import Facts, PublicFact
from generator.evidence.quantities import Quantity, QuantityError, read
from generator.evidence.settings import Setting
from generator.names import suggest
from generator.problems import Problem, quote
from runnable_demos.lab.metrics import Metric, Record

UNREAD = "calc-unread"
"""Code of what rests on a record or an entry that cannot be read: that is one problem, told already."""

MAX_WITHIN = 8
"""Definitions that name one another in a chain."""

_NEAR = 12
"""Characters of an expression that show where something is wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A metric that a calculation rests on, with its record."""

    metric: Metric
    record: Record
    stale: bool


@dataclass(frozen=True, slots=True)
class Input:
    """A name of an expression and its value; without ``proof`` it is assumed."""

    name: Name
    value: Value
    proof: Finding | Setting | PublicFact | Derived | None

    @property
    def is_assumed(self) -> bool:
        """Whether nothing that is measured or cited stands behind it."""
        return self.proof is None or (
            isinstance(self.proof, Derived) and self.proof.state == "assumed"
        )

    @property
    def is_stale(self) -> bool:
        """Whether a record behind it is older than its demo."""
        match self.proof:
            case Finding() | Setting():
                return self.proof.stale
            case Derived():
                return self.proof.state == "stale"
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows: its expression as written and as a line of values, and what it rests on.

    ``state``: ``assumed`` where nothing in it is measured or cited, ``stale`` where a record is.
    """

    expression: str
    line: Line
    value: Value
    inputs: tuple[Input, ...]
    state: Literal["follows", "assumed", "stale"]

    @property
    def id(self) -> str:
        """The same for the same expression with the same names."""
        return hashlib.sha256(self.expression.encode()).hexdigest()[:8]

    @property
    def substituted(self) -> str:
        """Its line in plain characters."""
        return "".join(map(str, self.line))

    def steps(self) -> tuple[Derived, ...]:
        """The calculations that it rests on, each once and behind those that it names itself; last stands this one."""
        found: dict[str, Derived] = {}
        _collect(self, found)
        return tuple(found.values())


def _collect(derived: Derived, found: dict[str, Derived]) -> None:
    for each in derived.inputs:
        if isinstance(each.proof, Derived) and each.proof.expression not in found:
            _collect(each.proof, found)
    found[derived.expression] = derived


@dataclass(frozen=True, slots=True)
class Ground:
    """What the expressions of a card may name; ``definitions`` are expressions by label."""

    scenario: Scenario
    definitions: Mapping[str, str]
    evidence: Evidence
    facts: Facts

    @staticmethod
    def of(card: Card, evidence: Evidence, facts: Facts) -> Ground:
        """That of ``card``."""
        return Ground(card.scenario, card.definitions, evidence, facts)


def judge(link: Calc, ground: Ground) -> Derived | Problem:
    """What ``link`` calculates, or why it cannot stand."""
    found = derive(link, ground)
    return found if isinstance(found, Problem) else compared(link, found)


def compared(link: Calc, found: Derived) -> Derived | Problem:
    """``found`` again, unless ``link`` prints another number than it is worth."""
    try:
        printed = read(link.text)
    except QuantityError as error:
        message = f"“{link.text}” is no number to compare: {error}"
        hint = "The link holds one number and its unit; other words, and what is counted, stay outside."
        return Problem(link.place, "calc-text", message, hint)
    return _printed(link, found, printed) or found


def derive(link: Calc, ground: Ground) -> Derived | Problem:
    """What the expression of ``link`` is worth, whatever number the card prints."""
    found = _derive(link.expression, ground, (), {})
    if isinstance(found, Derived):
        return found
    code, message, hint = found
    return Problem(link.place, code, message, hint)


Refusal = tuple[str, str, str]
"""Code, message and hint."""


def _derive(
    expression: str, ground: Ground, within: tuple[str, ...], known: dict[str, Derived | Refusal]
) -> Derived | Refusal:
    """What ``expression`` is worth; it stands in the definitions ``within``, and others are ``known`` by now."""
    parsed = _parse(expression)
    if isinstance(parsed, CalcError):
        return _refusal(expression, "calc-form", parsed)
    inputs = []
    for name in expressions.names(parsed):
        found = (
            _defined(name, ground, within, known)
            if name.scheme == "calc"
            else _input(name, ground.scenario, ground.evidence, ground.facts)
        )
        if isinstance(found, Input):
            inputs.append(found)
        else:
            code, message, hint = found
            return code, f"`{{{name}}}`: {message}", hint
    values = {each.name: each.value for each in inputs}
    try:
        value = calc.evaluate(parsed, values)
        line = calc.substituted(parsed, values)
    except CalcError as error:
        return _refusal(expression, "calc-value", error)
    state: Literal["follows", "assumed", "stale"] = "follows"
    if all(each.is_assumed for each in inputs):
        state = "assumed"
    elif any(each.is_stale for each in inputs):
        state = "stale"
    return Derived(parsed.text, line, value, tuple(inputs), state)


def _defined(
    name: Name, ground: Ground, within: tuple[str, ...], known: dict[str, Derived | Refusal]
) -> Input | Refusal:
    label = name.subject
    if label not in ground.definitions:
        hint = f'{suggest(label, ground.definitions)} Define it at the end of the file: `[{label}]: calc: "…"`.'
        return "calc-name", "the card defines no such calculation", hint.lstrip()
    if label in within:
        way = " → ".join(f"`{each}`" for each in (*within[within.index(label) :], label))
        return (
            "calc-name",
            f"it is calculated from itself: {way}",
            "Let one of them not name the other.",
        )
    if len(within) == MAX_WITHIN:
        message = f"more than {MAX_WITHIN} definitions stand within one another"
        return "calc-name", message, "Write some of them out."
    if label not in known:
        known[label] = _derive(ground.definitions[label], ground, (*within, label), known)
    found = known[label]
    return Input(name, found.value, found) if isinstance(found, Derived) else found


@lru_cache(4096)
def _parse(text: str) -> Expression | CalcError:
    try:
        return expressions.parse(text)
    except CalcError as error:
        return error


def _refusal(expression: str, code: str, error: CalcError) -> Refusal:
    near = expression[error.column - 1 :][:_NEAR]
    where = f" (at {quote(near)} of the expression)" if near.strip() else ""
    return code, f"{error.message}{where}", error.hint


def _printed(link: Calc, found: Derived, printed: Quantity) -> Problem | None:
    if calc.prints(printed, found.value):
        return None
    shown = calc.show(found.value)
    if calc.agrees(printed, found.value):
        message = f"“{link.text}” is printed, but the expression is worth {shown}"
        hint = "Let `proofdeck refresh` rewrite the number."
        return Problem(link.place, "calc-number", message, hint)
    message = (
        f"“{link.text}” is in {printed.unit or 'no unit'}, but the expression is worth {shown}"
    )
    hint = "Print its unit inside the link, or correct the expression."
    return Problem(link.place, "calc-unit", message, hint)


# --- names ---------------------------------------------------------------------------------------


def _input(name: Name, scenario: Scenario, evidence: Evidence, facts: Facts) -> Input | Refusal:
    match name.scheme:
        case "claim":
            return _metric(name, evidence)
        case "param":
            return _setting(name, evidence)
        case "fact":
            return _fact(name, name.subject, facts)
    assumed = getattr(scenario, name.scheme)
    if assumed is None:
        hint = f"Write it in the front matter: `scenario: {{{name.scheme}: …}}`."
        return "calc-name", f"the card's scenario has no `{name.scheme}`", hint
    return _fact(name, assumed, facts) if name.key else Input(name, Value(assumed), None)


def _metric(name: Name, evidence: Evidence) -> Input | Refusal:
    key = (name.subject, name.device)
    record = evidence.records.get(key)
    metric = evidence.metric(name.subject, name.key, name.device)
    if key in evidence.broken:
        return UNREAD, "its record cannot be read", "Record it again."
    if record is None:
        hint = suggest(name.subject, evidence.demos)
        return "calc-name", f"there is no evidence of `{name.subject}` on {name.device}", hint
    if metric is None:
        names = [each.name for each in record.result.metrics]
        return "calc-name", f"there is no metric `{name.key}`", suggest(name.key, names)
    if isinstance(metric.value, bool):
        return "calc-name", "it is a truth value", "Name a number."
    if metric.bound is not None:
        return (
            "calc-name",
            "it is an error below a bound, not a number that repeats",
            "Name another.",
        )
    proof = Finding(metric, record, key in evidence.stale)
    return Input(name, Value.of(metric.value, metric.unit), proof)


def _setting(name: Name, evidence: Evidence) -> Input | Refusal:
    if (name.subject, "cpu") in evidence.broken:
        return UNREAD, "its record cannot be read", "Record it again."
    setting = settings.find(name.subject, name.key, evidence)
    if setting is None:
        return "calc-name", *settings.unknown(name.subject, name.key, evidence)
    if setting.value is None:
        return (
            "calc-name",
            f"it is {setting.parameter.value!r}, which is no number",
            "Name another.",
        )
    return Input(name, Value.of(setting.value, ""), setting)


def _fact(name: Name, entry: str, facts: Facts) -> Input | Refusal:
    if facts.is_unread(entry):
        return UNREAD, "its entry cannot be read", "Correct `facts.yml`."
    keys = facts.entries.get(entry)
    if keys is None:
        hint = suggest(entry, facts.entries)
        return "calc-name", f"no `facts.yml` has an entry `{entry}`", hint
    fact = keys.get(name.key)
    if fact is None:
        return "calc-name", f"the entry `{entry}` has no key `{name.key}`", suggest(name.key, keys)
    return Input(name, Value.of(fact.value, fact.unit), fact)
