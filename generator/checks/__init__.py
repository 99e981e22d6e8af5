"""The rules of a base, one a file, found by discovery.

A rule is a module with its ``CODE``, its ``SEVERITY``, its ``SENTENCE`` (what holds on a good card,
in Markdown, for the docs) and ``check(base)``, which yields a problem for each place where it
does not hold. A card may silence a code in its front matter, with the reason; never ``claim``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol, cast

from markdown_it.token import Token

from generator.cards import prose
from generator.cards.model import Card
from generator.cards.prose import Passage
from generator.evidence.evidence import Evidence
from generator.names import suggest
from generator.problems import Problem, Severity

NEVER_SILENT = frozenset({"claim"})
"""What the base promises on every page: no reason makes a false number true."""


class Library(Protocol):
    """What the rules need of a library."""

    @property
    def cards(self) -> Mapping[str, Card]:
        """The cards by id, in reading order."""

    @property
    def evidence(self) -> Evidence:
        """The recorded runs."""


@dataclass(frozen=True)
class Base:
    """What a rule reads: the cards, in reading order, with their passages, and the evidence."""

    cards: tuple[Card, ...]
    evidence: Evidence

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """Every passage of every card, taken apart once for all rules."""
        return tuple(passage for card in self.cards for passage in prose.passages(card))

    @cached_property
    def formulas(self) -> tuple[Token, ...]:
        """Every formula of every card: its math tokens."""
        return tuple(token for card in self.cards for token in prose.formulas(card))


class Rule(Protocol):
    """One rule; the codes of its problems are ``CODE``, or begin with it and a hyphen."""

    CODE: str
    SEVERITY: Severity
    SENTENCE: str

    def check(self, base: Base) -> Iterable[Problem]:
        """A problem for each place where the rule does not hold."""


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    names = (each.name for each in iter_modules(__path__) if each.name != "__main__")
    found = (import_module(f"{__name__}.{name}") for name in names)
    return tuple(sorted((cast(Rule, module) for module in found), key=lambda rule: rule.CODE))


def run(library: Library) -> list[Problem]:
    """What all rules have to say, but for codes that a card silences; and silences that are wrong."""
    base = Base(tuple(library.cards.values()), library.evidence)
    cards = {card.path: card for card in base.cards}
    used: set[tuple[str, str]] = set()
    problems: list[Problem] = []
    for rule in rules():
        for problem in rule.check(base):
            card = cards.get(problem.place.path)
            if card and rule.CODE in card.silenced and rule.CODE not in NEVER_SILENT:
                used.add((card.path, rule.CODE))
            else:
                problems.append(problem)
    for card in cards.values():
        problems += _silences(card, used)
    return problems


def _silences(card: Card, used: set[tuple[str, str]]) -> Iterator[Problem]:
    """Silences that silence nothing, name no rule, or would hide what must be said."""
    codes = {rule.CODE for rule in rules()} - NEVER_SILENT
    for code in card.silenced:
        place = card.places[f"silenced.{code}"]
        if code in NEVER_SILENT:
            message = f"`{code}` cannot be silenced: a number that its run contradicts is not shown"
            yield Problem(place, "bad-silence", message, "Mend the claim, and remove this line.")
        elif code not in codes:
            message = f"`{code}` is not the code of a rule"
            yield Problem(place, "bad-silence", message, suggest(code, codes))
        elif (card.path, code) not in used:
            message = f"nothing on this card breaks the rule `{code}` any more"
            yield Problem(place, "unused-silence", message, "Remove this line.", "warning")


def documented() -> str:
    """``docs/checks.md``: every rule with its sentence, and how to silence one."""
    rows = "\n".join(
        f"| `{rule.CODE}` | {rule.SEVERITY} | {_cell(rule.SENTENCE)} |" for rule in rules()
    )
    return _BEFORE + rows + _AFTER


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


_BEFORE = """\
# What `proofdeck check` holds

<!-- Written by `python -m generator.checks > docs/checks.md`; a test keeps it so. -->

Each rule is one file in `generator/checks/`, and has cases that break and keep it in `tests/cases/`.
Codes of `claim` go on behind a hyphen: `claim-number`, `claim-unit`, `claim-false`, …

| code | severity | what holds |
|---|---|---|
"""
_AFTER = """

A rule that is wrong for one card is silenced in its front matter, with the reason:

```yaml
silenced: {filler: the phrase is quoted, and the card is about it}
```

- `unused-silence` (warning): nothing on the card breaks the rule any more.
- `bad-silence` (error): there is no such rule, or it is `claim`, which no reason can silence.

Beside the rules, `check` says of the evidence:

- `evidence-corrupt`: a record cannot be read, or was edited by hand; no claim is held against it.
- `evidence-name`: a file's name is not that of its demo and device.
- `evidence-size`: a record is not of the full size, which is what cards claim.
- `evidence-stale`: the code of a demo, or of a file that it imports, has changed since its run, comments,
  docstrings, formatting and words aside: an error for a CPU's record, which anyone can renew, a warning for a GPU's.
- `evidence-words`: a demo says in other words today what its record says; `proofdeck refresh` renews them.

Faults that keep a file from being a card, and links that lead nowhere, have codes of their own;
each message says where, what and how to fix it.
"""
