"""A card belongs to a topic of its module."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.names import suggest
from generator.problems import Problem, Severity

CODE = "unknown-topic"
SEVERITY: Severity = "error"
SENTENCE = "The topic of a card is one of its module's in `modules.yml`."
NEVER_SILENT = "the card would stand nowhere on its module's page"


def check(base: Base) -> Iterator[Problem]:
    """Each topic that the card's module does not have."""
    for card in base.cards:
        module = base.library.modules.get(card.module)
        if module and card.topic not in module.topics:
            message = f"the module `{card.module}` has no topic `{card.topic}`"
            hint = suggest(card.topic, module.topics)
            yield Problem(card.places["topic"], CODE, message, hint, SEVERITY)
