"""A scenario is of a model and a device that are known."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.names import suggest
from generator.problems import Problem, Severity

CODE = "scenario"
SEVERITY: Severity = "error"
SENTENCE = "The `model` and the `device` of a `scenario` are entries of that kind in `facts.yml`."


def check(base: Base) -> Iterator[Problem]:
    """Each name that no entry has, or one of another kind.

    An entry that cannot be read is one problem, and is named where it stands.
    """
    facts = base.library.facts
    for card in base.cards:
        for kind, name in (("model", card.scenario.model), ("device", card.scenario.device)):
            if name is None or facts.kinds.get(name) == kind or facts.is_unread(name):
                continue
            known = [entry for entry, own in facts.kinds.items() if own == kind]
            other = facts.kinds.get(name)
            what = f"which is a {other} there" if other else "which is no entry there"
            message = f"the scenario's `{kind}` is `{name}` of `facts.yml`, {what}"
            place = card.places[f"scenario.{kind}"]
            yield Problem(place, CODE, message, suggest(name, known), SEVERITY)
