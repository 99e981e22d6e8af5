"""What follows: numbers that a card calculates from others, each input with its own proof."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from generator.cards.model import Calc, Scenario
from generator.evidence import calc, expressions, settings
from generator.evidence.calc import Value
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

_NEAR = 12
"""Characters of an expression that show where something is wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A metric that a calculation rests on, with its record."""

    metric: Metric
    record: Record
    stale: bool


Proof = Finding | Setting | PublicFact


@dataclass(frozen=True, slots=True)
class Input:
    """A name of an expression and its value; without ``proof`` it is assumed."""

    name: Name
    value: Value
    proof: Proof | None


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows: its expression as written and with the values put in, and what it rests on.

    ``state``: ``assumed`` where nothing in it is measured or cited, ``stale`` where a record is.
    """

    expression: str
    substituted: str
    value: Value
    inputs: tuple[Input, ...]
    state: Literal["follows", "assumed", "stale"]

    @property
    def id(self) -> str:
        """The same for the same expression with the same names."""
        return hashlib.sha256(self.expression.encode()).hexdigest()[:8]


def judge(link: Calc, scenario: Scenario, evidence: Evidence, facts: Facts) -> Derived | Problem:
    """What ``link`` calculates, or why it cannot stand."""
    found = derive(link, scenario, evidence, facts)
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


def derive(link: Calc, scenario: Scenario, evidence: Evidence, facts: Facts) -> Derived | Problem:
    """What the expression of ``link`` is worth, whatever number the card prints."""
    parsed = _parse(link.expression)
    if isinstance(parsed, CalcError):
        return _problem(link, "calc-form", parsed)
    inputs = []
    for name in expressions.names(parsed):
        found = _input(name, scenario, evidence, facts)
        if isinstance(found, Input):
            inputs.append(found)
        else:
            code, message, hint = found
            return Problem(link.place, code, f"`{{{name}}}`: {message}", hint)
    values = {each.name: each.value for each in inputs}
    try:
        value = calc.evaluate(parsed, values)
        substituted = calc.substituted(parsed, values)
    except CalcError as error:
        return _problem(link, "calc-value", error)
    state: Literal["follows", "assumed", "stale"] = "follows"
    if not expressions.counts(parsed):
        state = "assumed"
    elif any(isinstance(each.proof, Finding | Setting) and each.proof.stale for each in inputs):
        state = "stale"
    return Derived(parsed.text, substituted, value, tuple(inputs), state)


@lru_cache(4096)
def _parse(text: str) -> Expression | CalcError:
    try:
        return expressions.parse(text)
    except CalcError as error:
        return error


def _problem(link: Calc, code: str, error: CalcError) -> Problem:
    near = link.expression[error.column - 1 :][:_NEAR]
    where = f" (at {quote(near)} of the expression)" if near.strip() else ""
    return Problem(link.place, code, f"{error.message}{where}", error.hint)


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

Refusal = tuple[str, str, str]
"""Code, message and hint."""


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
