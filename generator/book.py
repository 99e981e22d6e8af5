"""A library, rendered: what every exporter is given, and what pages say about a card beside its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from generator.evidence import Verdict, judge
from generator.lang import LANGS, Text
from generator.library import Library
from generator.model import Card, Citation, Claim, LearningPath, Module
from generator.render import RenderedCard, evidence_anchor, render
from runnable_demos import figures
from runnable_demos.metrics import Figure, Metric, Record

_FIGURE_IDS = "pd-figure-id"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of the evidence panel: ``anchor`` is what claims in the text link to."""

    anchor: str
    metric: Metric
    value: Text


@dataclass(frozen=True, slots=True)
class DemoPanel:
    """What one demo proves on one card."""

    record: Record
    stale: bool
    rows: tuple[MetricRow, ...]

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        device = "" if self.record.device == "cpu" else f" --device {self.record.device}"
        return f"proofdeck demo run {self.record.demo}{device}"


@dataclass(frozen=True)
class Book:
    """A library and its cards as HTML, each rendered once."""

    library: Library
    cards: Mapping[str, RenderedCard]

    def panels(self, card: Card) -> tuple[DemoPanel, ...]:
        """The demos that the claims of ``card`` name, each with the metrics that it claims."""
        claimed: dict[tuple[str, str], dict[str, Metric]] = {}
        evidence = self.library.evidence
        for claim in card.claims():
            metric = evidence.metric(claim.demo, claim.metric, claim.device)
            if metric:
                claimed.setdefault((claim.demo, claim.device), {})[claim.metric] = metric
        return tuple(
            DemoPanel(
                evidence.records[key],
                key in evidence.stale,
                tuple(
                    MetricRow(evidence_anchor(*key[:1], name, key[1]), metric, shown_value(metric))
                    for name, metric in metrics.items()
                ),
            )
            for key, metrics in claimed.items()
        )

    def verdicts(self, card: Card) -> Iterator[Verdict]:
        """What the evidence says of each claim of ``card`` that holds."""
        for claim in card.claims():
            verdict = judge(claim, self.library.evidence)
            if isinstance(verdict, Verdict):
                yield verdict

    def proven(self, card: Card) -> int:
        """How many metrics the card claims that are recomputed on every machine."""
        return len(
            {
                (verdict.record.demo, verdict.metric.name)
                for verdict in self.verdicts(card)
                if verdict.state in ("proven", "bounded", "refuted")
            }
        )

    def next_in(self, path: LearningPath, card: str) -> Card | None:
        """The first written card after ``card`` on ``path``."""
        if card not in path.cards:
            return None
        later = path.cards[path.cards.index(card) + 1 :]
        return next((self.library.cards[c] for c in later if c in self.library.cards), None)

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
    def counts(self) -> Mapping[str, int]:
        """What the home page counts: cards, proven numbers, demos and cited places."""
        cards = self.library.cards.values()
        return {
            "cards": len(cards),
            "proven": sum(self.proven(card) for card in cards),
            "demos": len(self.library.evidence.demos),
            "sources": len(
                {
                    card.sources[link.source].url
                    for card in cards
                    for link in card.links()
                    if isinstance(link, Citation)
                }
            ),
        }

    def figure(self, record: Record, figure: Figure, lang: str, prefix: str) -> str:
        """The SVG of a figure, drawn once; ``prefix`` begins its ids in this place."""
        key = (record.demo, record.device, figure.name, lang)
        if key not in self._drawn:
            self._drawn[key] = figures.draw(figure, lang, prefix=_FIGURE_IDS)
        return self._drawn[key].replace(_FIGURE_IDS, f"{prefix}{'-'.join(key)}")

    @cached_property
    def _drawn(self) -> dict[tuple[str, ...], str]:
        return {}


def bind(library: Library) -> Book:
    """Render every card of ``library``."""
    resolver = _Resolver(library)
    return Book(library, {name: render(card, resolver) for name, card in library.cards.items()})


@dataclass(frozen=True, slots=True)
class _Resolver:
    library: Library

    def verdict(self, claim: Claim) -> str:
        found = judge(claim, self.library.evidence)
        return found.state if isinstance(found, Verdict) else "stale"

    def is_written(self, card: str) -> bool:
        return card in self.library.cards


def shown_value(metric: Metric) -> Text:
    """A metric's value as the evidence panel shows it, with its unit."""
    if isinstance(metric.value, bool):
        return {"zh": "成立", "en": "holds"} if metric.value else {"zh": "不成立", "en": "fails"}
    number = _number(metric.value)
    unit = f" {metric.unit}" if metric.unit else ""
    text = f"{number}{unit}"
    if metric.bound is not None:
        text = f"{number} ≤ {_number(metric.bound)}{unit}"
    return dict.fromkeys(LANGS, text)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.6g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"
