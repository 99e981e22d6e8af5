"""A library, judged and rendered: what every exporter is given, and all that it may read.

Each claim is judged once, by the library; the verdicts, the panels and the texts are here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, TypeVar, get_args

from markupsafe import Markup

from generator import words
from generator.cache import NOTHING_KEPT, Cache, Later
from generator.cards import prose
from generator.cards.glossary import Glossary, Mention, Term
from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Citation,
    Claim,
    Device,
    Fact,
    Fence,
    FigureLink,
    LearningPath,
    Link,
    Module,
    Param,
)
from generator.edition import ways
from generator.edition.ways import Way
from generator.evidence import calc, values
from generator.evidence.calc import Put
from generator.evidence.derived import Derived, Finding, Input
from generator.evidence.evidence import Key
from generator.evidence.facts import PublicFact
from generator.evidence.numerals import Proof
from generator.evidence.quantities import QuantityError, read
from generator.evidence.settings import Setting
from generator.evidence.verdicts import State, Verdict
from generator.graph.drawing import Graph, place
from generator.lang import LANGS, Lang, Text
from generator.library import shares
from generator.library.library import Library
from generator.library.shares import Shares
from generator.render.html import (
    RenderedCard,
    calculation_anchor,
    evidence_anchor,
    fact_about,
    fact_anchor,
    render,
    setting_anchor,
)
from generator.render.markup import template, vouched
from generator.render.plain_text import plain_label
from generator.tex import font as math_font
from runnable_demos.lab.colours import as_file
from runnable_demos.lab.metrics import Figure, Kind, Metric, Parameter, Record
from runnable_demos.lab.table import Measure

T = TypeVar("T")

FIGURE_IDS = "pd-figure-id"
"""What stands in a drawing for the beginning of its ids."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of the evidence panel: ``anchor`` is what claims in the text link to."""

    anchor: str
    metric: Metric
    value: Text


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A parameter of the run that the card names."""

    anchor: str
    parameter: Parameter

    @property
    def value(self) -> str:
        """Its value for a reader."""
        found = self.parameter.value
        return f"{found:,}" if type(found) is int else str(found)


@dataclass(frozen=True, slots=True)
class InputRow:
    """What a calculation rests on: its name and value, what it is, and where on the card it stands, if it does."""

    name: str
    value: str
    about: Text | None
    anchor: str


@dataclass(frozen=True, slots=True)
class Method:
    """One way to measure on one card: what the numbers that came of it share, said once."""

    how: Text
    kind: Kind
    reason: Text | None
    rows: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True)
class DemoPanel:
    """What one demo proves on one card, with the figures that are shown there.

    ``placed`` are those of them that stand in the card's text: all, on a card in format 2, whose text
    places what teaches. ``awaited`` is what no GPU has told yet, beside the record on the CPU.
    """

    record: Record
    stale: bool
    rows: tuple[MetricRow, ...]
    settings: tuple[SettingRow, ...]
    figures: tuple[Figure, ...]
    placed: frozenset[str]
    awaited: Mapping[str, Measure]

    @property
    def methods(self) -> tuple[Method, ...]:
        """The rows by how they were measured, in the order of the first of each."""
        found: dict[str, list[MetricRow]] = {}
        for row in self.rows:
            metric = row.metric
            found.setdefault(repr((metric.how, metric.kind, metric.reason)), []).append(row)
        return tuple(
            Method(first.how, first.kind, first.reason, tuple(rows))
            for rows in found.values()
            for first in [rows[0].metric]
        )

    @property
    def gpu_command(self) -> str:
        """The command that records on a GPU what is ``awaited``."""
        return f"proofdeck demo run {self.record.demo} --device cuda --record"

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        device = "" if self.record.device == "cpu" else " --device cuda"
        return f"proofdeck demo run {self.record.demo}{device}"


@dataclass(frozen=True, slots=True)
class Refutation:
    """What is said elsewhere, what the run found, printed as that is, and what it is about."""

    said: Text
    found: Text
    about: Text
    anchor: str


@dataclass(frozen=True)
class Edition:
    """A library, and what is made of its cards, each thing once.

    ``demos`` is the folder with the sources of the demos, where the base has one; ``cache`` keeps
    what is slow to make from one build to the next.
    """

    library: Library
    demos: Path | None = None
    cache: Cache = NOTHING_KEPT

    def rendered(self, card: Card) -> RenderedCard:
        """All sections of ``card`` as HTML."""
        if card.id not in self._rendered:
            self._rendered[card.id] = render(card, _Resolver(self))
        return self._rendered[card.id]

    @cached_property
    def _rendered(self) -> dict[str, RenderedCard]:
        return {}

    def each(self, kind: str, make: Callable[[Card], T], *also: Hashable) -> list[T]:
        """What ``make`` says of each card, in reading order; kept, and made on all cores.

        It depends on the card's ``context`` and on what is named in ``also``, and on nothing else.
        """
        key = (kind, *also)
        if key not in self._made:
            self._made[key] = self.cache.each(kind, *self._sources(make, also))
        return self._made[key]

    def later(self, kind: str, make: Callable[[Card], T], *also: Hashable) -> list[Later[T]]:
        """As ``each``, but what is kept is read when it is asked for."""
        return self.cache.later(kind, *self._sources(make, also))

    def _sources(
        self, make: Callable[[Card], T], also: tuple[Hashable, ...]
    ) -> tuple[list[object], Callable[[int], T]]:
        cards = tuple(self.library.cards.values())
        return [(self._contexts[card.id], *also) for card in cards], lambda at: make(cards[at])

    @cached_property
    def _made(self) -> dict[tuple[object, ...], list[Any]]:
        return {}

    @cached_property
    def _contexts(self) -> Mapping[str, str]:
        return {card.id: self._context(card) for card in self.library.cards.values()}

    def _context(self, card: Card) -> str:
        """A digest of all that a card's page may show: the card, its proofs and facts, what leads there and away.

        Of other cards that is their face alone, so that a change of their text does not count here.
        """
        library, evidence = self.library, self.library.evidence
        module = library.modules.get(card.module)
        ways = (
            card.prerequisites,
            library.unlocks.get(card.id, ()),
            card.related,
            library.backlinks.get(card.id, ()),
            tuple(link.card for link in card.links() if isinstance(link, CardLink)),
        )
        found = (
            (card.path, card.digest),
            [(self.state(claim), self.verdict(claim) is None) for claim in card.claims()],
            [
                (key, self._digests[key], key in evidence.stale, evidence.awaited.get(key[0]))
                for key in self._runs(card)
            ],
            [_told(self.setting(link)) for link in card.params()],
            [self.fact(link) for link in card.facts()],
            [_told(self.derived(link)) for link in card.calcs()],
            [self.printed(card, fence) for fence in card.fences],
            self._mentioned[card.id],
            module and (module.id, module.code, module.title, module.summary, module.topics),
            [(name, self._face(name)) for names in ways for name in names],
            ways,
            [
                (
                    way.path and (way.path.id, way.path.title, way.place, way.count),
                    [each and (each.id, each.title) for each in (way.before, way.after)],
                )
                for way in self.ways[card.id]
            ],
        )
        return hashlib.sha256(repr(found).encode("utf-8", "backslashreplace")).hexdigest()

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the glossary, by their English names."""
        terms = self.library.glossary.terms.values()
        return tuple(sorted(terms, key=lambda term: (term.name["en"].casefold(), term.id)))

    @cached_property
    def _mentioned(self) -> Mapping[str, tuple[Term, ...]]:
        """The terms that stand in each card, whatever they mean: looked for again where a form has changed."""
        glossary, cards = self.library.glossary, self.library.cards
        texts = list(cards.values())
        found = self.cache.each(
            "terms",
            [(card.digest, glossary.digest) for card in texts],
            lambda at: _terms_in(texts[at], glossary),
        )
        terms = glossary.terms
        return {
            card: tuple(terms[name] for name in names)
            for card, names in zip(cards, found, strict=True)
        }

    def _face(self, name: str) -> object:
        """What other cards show of a card; ``None`` where there is none of that name."""
        card = self.library.cards.get(name)
        if card is None:
            return self._planned.get(name)
        return card.title, card.module, card.difficulty, card.tags, card.updated

    @cached_property
    def _digests(self) -> Mapping[Key, str]:
        return {
            key: hashlib.sha256(repr(record).encode()).hexdigest()
            for key, record in self.library.evidence.records.items()
        }

    @cached_property
    def formula_characters(self) -> frozenset[str]:
        """Every character of every formula: what the math font has to draw."""
        return frozenset().union(*self.each("formulas", self._characters))

    def _characters(self, card: Card) -> frozenset[str]:
        return math_font.characters(
            html
            for half in self.rendered(card).sections.values()
            for section in half.values()
            for html in (
                section.html,
                *(part for item in section.items for part in (item.title, item.body)),
            )
        )

    def panels(self, card: Card) -> tuple[DemoPanel, ...]:
        """The demos that ``card`` rests on, each with the metrics and settings that it names."""
        evidence = self.library.evidence
        metrics: dict[Key, dict[str, Metric]] = {}
        settings: dict[Key, dict[str, Parameter]] = {}
        for claim in card.claims():
            metric = evidence.metric(claim.demo, claim.metric, claim.device)
            if metric:
                metrics.setdefault((claim.demo, claim.device), {})[claim.metric] = metric
        for proof in self._proofs(card):
            key = (proof.record.demo, proof.record.device)
            if isinstance(proof, Finding):
                metrics.setdefault(key, {})[proof.metric.name] = proof.metric
            else:
                settings.setdefault(key, {})[proof.parameter.name] = proof.parameter
        awaited = [(link.demo, "cpu") for link in card.awaited() if self.awaited(link)]
        placed: dict[Key, set[str]] = {}
        for link in card.figures():
            if self.is_drawn(link):
                placed.setdefault((link.demo, link.device), set()).add(link.figure)
        return tuple(
            DemoPanel(
                evidence.records[key],
                key in evidence.stale,
                tuple(
                    MetricRow(evidence_anchor(key[0], name, key[1]), metric, values.shown(metric))
                    for name, metric in metrics.get(key, {}).items()
                ),
                tuple(
                    SettingRow(setting_anchor(key[0], name), parameter)
                    for name, parameter in settings.get(key, {}).items()
                ),
                tuple(
                    figure
                    for figure in evidence.records[key].result.figures
                    if not card.converted or figure.name in placed.get(key, ())
                ),
                frozenset(placed.get(key, ())),
                evidence.awaited.get(key[0], {}) if key[1] == "cpu" else {},
            )
            for key in dict.fromkeys([*metrics, *settings, *placed, *awaited])
        )

    @cached_property
    def shown_demos(self) -> Mapping[str, tuple[Card, ...]]:
        """The demos that have a page, by name: those that a card rests on, each with those cards."""
        using: dict[str, list[Card]] = {}
        for card in self.library.cards.values():
            for demo in self.demos_of(card):
                using.setdefault(demo, []).append(card)
        known = self.library.evidence.demos & using.keys()
        return {demo: tuple(using[demo]) for demo in sorted(known)}

    @cached_property
    def whole_panels(self) -> Mapping[str, tuple[DemoPanel, ...]]:
        """All that each demo found on each device whose record a card rests on."""
        evidence = self.library.evidence
        found: dict[str, list[DemoPanel]] = {}
        for record in self.claimed():
            key = (record.demo, record.device)
            rows = (
                MetricRow(evidence_anchor(record.demo, m.name, record.device), m, values.shown(m))
                for m in record.result.metrics
            )
            set_to = (SettingRow(setting_anchor(record.demo, p.name), p) for p in record.parameters)
            panel = DemoPanel(
                record,
                key in evidence.stale,
                tuple(rows),
                tuple(set_to) if record.device == "cpu" else (),
                record.result.figures,
                frozenset(),
                evidence.awaited.get(record.demo, {}) if record.device == "cpu" else {},
            )
            found.setdefault(record.demo, []).append(panel)
        return {demo: tuple(panels) for demo, panels in found.items()}

    def _proofs(self, card: Card) -> Iterator[Finding | Setting]:
        """The settings that ``card`` states, and what of runs its calculations rest on."""
        yield from (found for link in card.params() if (found := self.setting(link)))
        for derived in self.derivations(card):
            for each in derived.inputs:
                if isinstance(each.proof, Finding | Setting):
                    yield each.proof

    def _runs(self, card: Card) -> Iterable[Key]:
        """The records that ``card`` names, in calculations too."""
        found = [(each.record.demo, each.record.device) for each in self._proofs(card)]
        records = self.library.evidence.records
        return [key for key in dict.fromkeys([*card.runs(), *found]) if key in records]

    def demos_of(self, card: Card) -> Iterable[str]:
        """The demos that ``card`` rests on, each once."""
        named = [demo for demo, _ in card.runs()]
        return dict.fromkeys([*named, *(each.record.demo for each in self._proofs(card))])

    def refutations(self, card: Card) -> Iterator[Refutation]:
        """What ``card`` calls wrong, each once, beside what its demo found."""
        said = {lang: _refuted(card, lang) for lang in LANGS}
        for key, first in said[LANGS[0]].items():
            metric = self.library.evidence.metric(*key)
            others = [half.get(key, first) for half in said.values()]
            if metric is None:
                continue
            for claims in zip(*others, strict=False):
                pair = dict(zip(LANGS, claims, strict=True))
                yield _refutation(pair, metric, evidence_anchor(*key))

    def verdict(self, claim: Claim) -> Verdict | None:
        """What the evidence says of ``claim``; ``None`` where it cannot stand, as in a draft."""
        found = self.library.judged[claim]
        return found if isinstance(found, Verdict) else None

    def is_drawn(self, link: FigureLink) -> bool:
        """Whether there is the figure that ``link`` places; in a draft there may be none."""
        return isinstance(self.library.drawn[link], Figure)

    def fact(self, link: Fact) -> PublicFact | None:
        """The public fact that ``link`` states; ``None`` where it cannot stand, as in a draft."""
        found = self.library.stated[link]
        return found if isinstance(found, PublicFact) else None

    def awaited(self, link: Awaited) -> Measure | None:
        """What a GPU is to measure for ``link``; ``None`` where it cannot stand, as in a draft."""
        found = self.library.awaited[link]
        return found if isinstance(found, Measure) else None

    def printed(self, card: Card, fence: Fence) -> str | None:
        """What a fence of ``card`` printed; ``None`` where its code, as it stands, was not recorded."""
        found = self.library.fences.printed(card.id, fence)
        return found.output if found else None

    def facts(self, card: Card) -> tuple[PublicFact, ...]:
        """The public facts that ``card`` states, or calculates with, each once, in their order there."""
        stated = [fact for link in card.facts() if (fact := self.fact(link))]
        for derived in self.derivations(card):
            stated += [each.proof for each in derived.inputs if isinstance(each.proof, PublicFact)]
        return tuple({(fact.entry, fact.key): fact for fact in stated}.values())

    def setting(self, link: Param) -> Setting | None:
        """The setting of a run that ``link`` states; ``None`` where it cannot stand, as in a draft."""
        found = self.library.settings[link]
        return found if isinstance(found, Setting) else None

    def derived(self, link: Calc) -> Derived | None:
        """What ``link`` calculates; ``None`` where it cannot stand, as in a draft."""
        found = self.library.derived[link]
        return found if isinstance(found, Derived) else None

    def derivations(self, card: Card) -> tuple[Derived, ...]:
        """What ``card`` calculates, each expression once, in their order there and behind those that it rests on."""
        found = [each for link in card.calcs() if (each := self.derived(link))]
        return tuple({step.expression: step for each in found for step in each.steps()}.values())

    def state(self, claim: Claim) -> State:
        """How the number of ``claim`` is marked; what cannot stand, as a draft may hold, is stale."""
        found = self.verdict(claim)
        return found.state if found else "stale"

    def verdicts(self, card: Card) -> Iterator[Verdict]:
        """What the evidence says of each claim of ``card`` that holds."""
        for claim in card.claims():
            verdict = self.verdict(claim)
            if verdict:
                yield verdict

    def tally(self, *cards: Card) -> Mapping[State, int]:
        """How many different metrics ``cards`` claim or deny, by what became of them; no zeros."""
        found = {
            (verdict.state, verdict.record.demo, verdict.record.device, verdict.metric.name)
            for card in cards
            for verdict in self.verdicts(card)
        }
        counts = Counter(state for state, *_ in found)
        return {state: counts[state] for state in get_args(State) if counts[state]}

    def proven(self, card: Card) -> int:
        """How many metrics the card claims that are read off a run, and recomputed on every machine."""
        tally = self.tally(card)
        return tally.get("proven", 0) + tally.get("bounded", 0)

    def next_in(self, path: LearningPath, card: str) -> Card | None:
        """The first written card after ``card`` on ``path``."""
        if card not in path.cards:
            return None
        later = path.cards[path.cards.index(card) + 1 :]
        return next((self.library.cards[c] for c in later if c in self.library.cards), None)

    @cached_property
    def ways(self) -> Mapping[str, tuple[Way, ...]]:
        """The ways that lead through each card."""
        return ways.through(self.library)

    def cards_of(self, module: Module) -> tuple[Card, ...]:
        """The cards of a module, in reading order."""
        return tuple(card for card in self.library.cards.values() if card.module == module.id)

    def title_of(self, card: str) -> Text:
        """The title of a card, written or planned."""
        if card in self.library.cards:
            return self.library.cards[card].title
        return self._planned[card]

    @cached_property
    def _planned(self) -> Mapping[str, Text]:
        return {
            planned.id: planned.title
            for module in self.library.modules.values()
            for planned in module.planned
        }

    @cached_property
    def updated(self) -> date:
        """The day on which the newest card last changed."""
        return max(card.updated for card in self.library.cards.values())

    @cached_property
    def states(self) -> Mapping[str, int]:
        """In how many places of all cards a number is in each state, both languages counted once."""
        links = (link for card in self.library.cards.values() for link in card.links_in(LANGS[0]))
        found = Counter(map(self._mark, links))
        return {state: found[state] for state in (*get_args(State), "follows", "setting")}

    def _mark(self, link: Link) -> str | None:
        """What a number is shown as; ``None`` where ``link`` is no number of ours, or cannot stand."""
        match self.library.proof(link) if isinstance(link, Proof) else None:
            case Verdict(state=state) | Derived(state=state):
                return state
            case Setting():
                return "setting"
            case _:
                return None

    @cached_property
    def shares(self) -> Mapping[str, Shares]:
        """What stands behind the numbers of each card, in reading order."""
        return shares.of_cards(self.library, self.cache)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """What the home page counts beside the states of numbers: cards, demos and works cited."""
        cards = self.library.cards.values()
        named = {demo for card in cards for demo in self.demos_of(card)}
        return {
            "cards": len(cards),
            "demos": len(self.library.evidence.demos & named),
            "sources": len(
                {
                    card.sources[link.source].url
                    for card in cards
                    for link in card.links()
                    if isinstance(link, Citation)
                }
                | {fact.source.url for card in cards for fact in self.facts(card)}
            ),
        }

    def figure(self, record: Record, figure: Figure, lang: str, prefix: str) -> Markup:
        """The drawing of a figure, made once; ``prefix`` begins its ids in this place.

        One for a wide screen and one for a narrow screen stand together, of which styles show one.
        """
        key = (record.demo, record.device, figure.name, lang)
        drawings = [vouched(each, "drawn") for each in self._drawn(key, prefix)]
        return template("drawings.html", {"drawings": drawings})

    def figure_file(self, record: Record, figure: Figure, lang: str) -> str:
        """The figure as a file of its own, which brings its colours along."""
        return as_file(self._drawn((record.demo, record.device, figure.name, lang), "f")[0])

    def _drawn(self, key: tuple[str, str, str, str], prefix: str) -> list[str]:
        own = escape(f"{prefix}{'-'.join(key)}")
        return [drawn.replace(FIGURE_IDS, own) for drawn in self.drawings[key]]

    @cached_property
    def drawings(self) -> Mapping[tuple[str, str, str, str], tuple[str, str]]:
        """The SVGs of each figure of the records that cards rest on: demo, device, figure, language.

        One is for a wide screen, and one for a narrow screen.
        """
        figures = {
            (record.demo, record.device, figure.name, lang): (figure, lang)
            for record in self.claimed()
            for figure in record.result.figures
            for lang in LANGS
        }
        wanted = list(figures.values())
        drawn = self.cache.each("figure", wanted, lambda index: _draw(*wanted[index]))
        return dict(zip(figures, drawn, strict=True))

    @cached_property
    def graph(self) -> Graph:
        """Which card leads where, each in its place."""
        return place(self.library)

    def claimed(self) -> Iterable[Record]:
        """Each record that a card rests on, once, in the order in which cards do."""
        found = {
            (panel.record.demo, panel.record.device): panel.record
            for card in self.library.cards.values()
            for panel in self.panels(card)
        }
        return found.values()


def _terms_in(card: Card, glossary: Glossary) -> list[str]:
    """The terms in the words of ``card``, in their order there."""
    if not glossary.terms:
        return []
    found = (
        mention.term.id
        for passage in prose.passages(card)
        for piece in passage.pieces
        if piece.kind == "text"
        for mention in glossary.mentions(piece.text, passage.lang)
    )
    return list(dict.fromkeys(found))


def bind(library: Library, demos: Path | None = None, cache: Cache = NOTHING_KEPT) -> Edition:
    """The edition of ``library``, whose demos stand in ``demos``."""
    return Edition(library, demos, cache)


def _draw(figure: Figure, lang: str) -> tuple[str, str]:
    from runnable_demos.lab import figures  # noqa: PLC0415 - matplotlib is slow to import

    wide = figures.draw(figure, lang, prefix=FIGURE_IDS)
    return wide, figures.draw(figure, lang, prefix=f"{FIGURE_IDS}-narrow", narrow=True)


def printed(claim: Claim) -> str:
    """A claim's number as its card prints it, in plain characters."""
    return plain_label(claim.text)


def _told(found: Setting | Derived | None) -> object:
    """What a page shows of a number beside its record, which is known by its digest."""
    if isinstance(found, Setting):
        return found.parameter, found.stale
    return found and [
        (
            step.expression,
            step.substituted,
            step.value,
            step.state,
            [
                (each.name, each.value, each.proof if isinstance(each.proof, PublicFact) else None)
                for each in step.inputs
            ],
        )
        for step in found.steps()
    ]


def input_rows(calculations: Iterable[Derived]) -> list[InputRow]:
    """All that goes into some calculations, each once: they share most of it."""
    inputs = {str(each.name): each for found in calculations for each in found.inputs}
    return [input_row(each) for each in inputs.values()]


def input_row(each: Input) -> InputRow:
    """What a reader sees of an input of a calculation."""
    about: Text | None
    match each.proof:
        case Finding(metric, record):
            about, anchor = metric.label, evidence_anchor(record.demo, metric.name, record.device)
        case Setting(record, parameter):
            about, anchor = parameter.help, setting_anchor(record.demo, parameter.name)
        case Derived():
            about, anchor = words.phrase("card.calculated"), calculation_anchor(each.proof)
        case None:
            about, anchor = None, ""
        case fact:
            about, anchor = fact_about(fact), fact_anchor(fact)
    return InputRow(str(each.name), calc.show(each.value), about, anchor)


def line(found: Derived) -> list[tuple[str, str]]:
    """A calculation with its values put in: pieces of text, each with the anchor of its proof on the card, if any."""
    anchors = {each.name: input_row(each).anchor for each in found.inputs}
    return [
        (str(piece), anchors[piece.name] if isinstance(piece, Put) else "") for piece in found.line
    ]


def _refuted(card: Card, lang: Lang) -> dict[tuple[str, str, Device], list[Claim]]:
    """One language's refuted claims by what refutes them, each text once."""
    found: dict[tuple[str, str, Device], dict[str, Claim]] = {}
    for claim in card.claims_in(lang):
        if claim.refuted:
            texts = found.setdefault((claim.demo, claim.metric, claim.device), {})
            texts.setdefault(claim.text, claim)
    return {key: list(texts.values()) for key, texts in found.items()}


def _refutation(pair: Mapping[Lang, Claim], metric: Metric, anchor: str) -> Refutation:
    if isinstance(metric.value, bool):  # what is said is the metric's own sentence
        return Refutation(metric.label, values.shown(metric), metric.how, anchor)
    return Refutation(
        {lang: printed(claim) for lang, claim in pair.items()},
        {lang: _found(claim, metric) for lang, claim in pair.items()},
        metric.label,
        anchor,
    )


def _found(claim: Claim, metric: Metric) -> str:
    """What the run found, in the unit and to the precision of what is said."""
    with suppress(QuantityError):
        return plain_label(read(claim.text).reprint(metric.value))
    return values.shown(metric)[LANGS[0]]


@dataclass(frozen=True, slots=True)
class _Resolver:
    edition: Edition

    def verdict(self, claim: Claim) -> str:
        return self.edition.state(claim)

    def setting(self, link: Param) -> Setting | None:
        return self.edition.setting(link)

    def fact(self, link: Fact) -> PublicFact | None:
        return self.edition.fact(link)

    def derived(self, link: Calc) -> Derived | None:
        return self.edition.derived(link)

    def awaited(self, link: Awaited) -> Measure | None:
        return self.edition.awaited(link)

    def is_drawn(self, link: FigureLink) -> bool:
        return self.edition.is_drawn(link)

    def printed(self, card: Card, fence: Fence) -> str | None:
        return self.edition.printed(card, fence)

    def is_written(self, card: str) -> bool:
        return card in self.edition.library.cards

    def mentions(self, text: str, lang: Lang) -> Iterable[Mention]:
        return self.edition.library.glossary.mentions(text, lang)
