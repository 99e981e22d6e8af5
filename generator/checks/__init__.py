"""The rules of a base, one a file, found by discovery.

A rule is a module with its ``CODE``, its ``SEVERITY``, its ``SENTENCE`` (what holds in a good base,
in Markdown, for the docs) and either ``check_card(reading)``, where it looks at one card and nothing
else, so that what it says is kept until that card changes, or ``check(base)``. Both yield a problem
for each place where the rule does not hold. A card may silence a code in its front matter, with the
reason; where no reason counts, the rule says why in ``NEVER_SILENT``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal, Protocol, TypeVar, cast

from markdown_it.token import Token

from generator.cache import NOTHING_KEPT, Cache
from generator.cards import prose
from generator.cards.model import Card
from generator.cards.prose import Passage
from generator.evidence.evidence import Evidence
from generator.library import library
from generator.library.library import Contents, Library
from generator.names import suggest
from generator.problems import Problem, Severity

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """Cards as rules read them, each passage taken apart once for all rules."""

    cards: tuple[Card, ...]

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """Every passage of every card."""
        return tuple(passage for card in self.cards for passage in prose.passages(card))

    @cached_property
    def formulas(self) -> tuple[Token, ...]:
        """Every formula of every card: its math tokens."""
        return tuple(token for card in self.cards for token in prose.formulas(card))


@dataclass(frozen=True)
class Base:
    """What a rule of the whole reads: what was read of a base, and what it makes together."""

    contents: Contents
    cache: Cache = NOTHING_KEPT

    @cached_property
    def library(self) -> Library:
        """The cards put together, in reading order."""
        return library.assemble(self.contents)

    @property
    def evidence(self) -> Evidence:
        """The recorded runs."""
        return self.contents.evidence

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """The cards in reading order, each id once."""
        return tuple(self.library.cards.values())

    def of_cards(self, kind: str, make: Callable[[Reading], T], *also: Hashable) -> list[T]:
        """What ``make`` says of each card by itself, kept until it or ``also`` changes; in reading order."""
        sources = [(card.path, card.digest, *also) for card in self.cards]
        return self.cache.each(kind, sources, lambda index: make(Reading((self.cards[index],))))

    @cached_property
    def known(self) -> frozenset[str]:
        """The ids of all cards: written, planned, and those that could not be parsed."""
        planned = (card for module in self.library.modules.values() for card in module.planned)
        return self.contents.broken.union(self.library.cards, (card.id for card in planned))

    def unknown_names(
        self, field: Literal["prerequisites", "related"], code: str, severity: Severity
    ) -> Iterator[Problem]:
        """Each name in that list of a card which is no card's."""
        for card in self.cards:
            for index, name in enumerate(getattr(card, field)):
                if name not in self.known:
                    place = card.places[f"{field}.{index}"]
                    message = f"`{field}` names `{name}`, which is no card"
                    yield Problem(place, code, message, self.meant(name), severity)

    def meant(self, name: str) -> str:
        """The hint for a name that is no card's: what it is called now, or the nearest that is one."""
        now = self._formerly.get(name)
        return f"It is now `{now}`." if now else suggest(name, self.known)

    @cached_property
    def _formerly(self) -> dict[str, str]:
        return {former: card.id for card in self.cards for former in card.formerly}


class Named(Protocol):
    """What every rule says of itself; the codes of its problems are ``CODE``, or begin with it and a hyphen."""

    CODE: str
    SEVERITY: Severity
    SENTENCE: str


class CardRule(Named, Protocol):
    """A rule that looks at one card and nothing else."""

    def check_card(self, reading: Reading) -> Iterable[Problem]:
        """A problem for each place where the rule does not hold."""


class BaseRule(Named, Protocol):
    """A rule that looks at the whole base."""

    def check(self, base: Base) -> Iterable[Problem]:
        """A problem for each place where the rule does not hold."""


Rule = CardRule | BaseRule


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    names = (each.name for each in iter_modules(__path__) if each.name != "__main__")
    found = (import_module(f"{__name__}.{name}") for name in names)
    return tuple(sorted((cast(Rule, module) for module in found), key=lambda rule: rule.CODE))


def card_rules() -> tuple[CardRule, ...]:
    """The rules that look at one card alone."""
    return tuple(cast(CardRule, rule) for rule in rules() if hasattr(rule, "check_card"))


def base_rules() -> tuple[BaseRule, ...]:
    """The rules that look at the whole base."""
    return tuple(cast(BaseRule, rule) for rule in rules() if hasattr(rule, "check"))


def load(
    cards: Path,
    *,
    demos: Path | None = None,
    evidence: Path | None = None,
    cache: Cache = NOTHING_KEPT,
) -> tuple[Library | None, list[Problem]]:
    """Read the base in ``cards``: as much of it as stands, and every problem, sorted.

    Parsing, the graph, the evidence and all checks have their say in one run.
    ``evidence`` is ``demos / "evidence"`` unless given; without both no number is proven.
    What the ``cache`` has is neither parsed nor checked again.
    The library is ``None`` where there is no syllabus or not a single card to speak of.
    """
    contents, problems = library.read(cards, demos=demos, evidence=evidence, cache=cache)
    if contents is None:
        return None, problems
    base = Base(contents, cache)
    return base.library, sorted({*problems, *run(base)})


def run(base: Base) -> list[Problem]:
    """What all rules have to say, but for codes that a card silences; and silences that are wrong."""
    cards = {card.path: card for card in base.cards}
    never = {rule.CODE for rule in rules() if never_silent(rule)}
    used: set[tuple[str, str]] = set()
    problems: list[Problem] = []
    for code, problem in _said(base):
        card = cards.get(problem.place.path)
        if card and code in card.silenced and code not in never:
            used.add((card.path, code))
        else:
            problems.append(problem)
    for card in cards.values():
        problems += _silences(card, used)
    return problems


def _said(base: Base) -> Iterator[tuple[str, Problem]]:
    """Every problem, with the code of the rule that names it."""
    for of_one in base.of_cards("checked", _of_card):
        yield from of_one
    for rule in base_rules():
        for problem in rule.check(base):
            yield rule.CODE, problem


def _of_card(reading: Reading) -> list[tuple[str, Problem]]:
    return [(rule.CODE, problem) for rule in card_rules() for problem in rule.check_card(reading)]


def never_silent(rule: Rule) -> str:
    """Why no reason can silence the rule; nothing where one can."""
    return getattr(rule, "NEVER_SILENT", "")


def _silences(card: Card, used: set[tuple[str, str]]) -> Iterator[Problem]:
    """Silences that silence nothing, name no rule, or would hide what must be said."""
    never = {rule.CODE: why for rule in rules() if (why := never_silent(rule))}
    codes = {rule.CODE for rule in rules()} - never.keys()
    for code in card.silenced:
        place = card.places[f"silenced.{code}"]
        if code in never:
            message = f"`{code}` cannot be silenced: {never[code]}"
            hint = "Fix what it names, and remove this line."
            yield Problem(place, "bad-silence", message, hint)
        elif code not in codes:
            message = f"`{code}` is not the code of a rule"
            yield Problem(place, "bad-silence", message, suggest(code, codes))
        elif (card.path, code) not in used:
            message = f"nothing on this card breaks the rule `{code}` any more"
            yield Problem(place, "unused-silence", message, "Remove this line.", "warning")


def documented() -> str:
    """``docs/checks.en.md``: every rule with its sentence, and how to silence one."""
    rows = "\n".join(
        f"| `{rule.CODE}` | {rule.SEVERITY} | {_cell(rule.SENTENCE)} |" for rule in rules()
    )
    never = ", ".join(f"`{rule.CODE}`" for rule in rules() if never_silent(rule))
    return _BEFORE + rows + _AFTER.format(never=never)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


_BEFORE = """\
# What `proofdeck check` holds

<!-- Written by `python -m generator.checks > docs/checks.en.md`; a test keeps it so. -->

`proofdeck check` names every problem of the cards, the evidence and the lessons in one run, each with its place
and how to fix it. These are the rules that it holds them to.

## The rules <!-- #rules -->

Each rule is one file in `generator/checks/`, and has cases that break and keep it in `tests/cases/`;
those that take several files are in `tests/test_library.py`.
Codes of `claim`, `fact`, `format` and `term` go on behind a hyphen: `claim-number`, `claim-unit`, `claim-false`, …

| code | severity | what holds |
|---|---|---|
"""
_AFTER = """

## Where a rule is wrong <!-- #silence -->

A rule that is wrong for one card is silenced in its front matter, with the reason:

```yaml
silenced: {{filler: the phrase is quoted, and the card is about it}}
```

- `unused-silence` (warning): nothing on the card breaks the rule any more.
- `bad-silence` (error): there is no such rule, or no reason can silence it.

No reason can silence {never}.

## Beside the rules <!-- #beside -->

Of the evidence `check` says:

- `evidence-corrupt`: a record cannot be read, or was edited by hand; no claim is held against it.
- `evidence-name`: a file's name is not that of its demo and device.
- `evidence-size`: a record is not of the full size, which is what cards claim.
- `evidence-stale`: the code of a demo, or of a file that it imports, has changed since its run, comments,
  docstrings, formatting and words aside: an error for a CPU's record, which anyone can renew, a warning for a GPU's.
- `evidence-words`: a demo says in other words today what its record says; `proofdeck refresh` renews them.

Of documents that are no cards, such as the lessons of demos:

- `document-missing`, `document-title`, `document-heading`, `document-languages`: a language is missing, or both
  do not have the same headings, code and live parts.
- `lesson-parts`, `lesson-source`, `lesson-demo`: a lesson lacks a part, shows a piece of source that is not there,
  or has no demo.

Faults that keep a file from being a card, or `modules.yml` from being a syllabus, have codes of their own;
each message says where, what and how to fix it.
"""
