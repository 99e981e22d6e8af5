"""What the evidence says of each claim of a card.

A claim is judged by its record alone: no demo is run, so torch may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from generator.cards.model import Claim, FigureLink
from generator.evidence.evidence import Evidence
from generator.evidence.quantities import Quantity, QuantityError, as_fraction, read
from generator.names import suggest
from generator.problems import Problem
from runnable_demos.lab.metrics import Figure, Metric, Record

DRAFTABLE = (
    "claim",
    "param",
    "fact",
    "calc",
    "figure",
    "evidence",
    "gpu",
    "fence-stale",
    "fence-unrecorded",
)
"""How the codes of problems with numbers and figures begin; a draft shows such numbers as stale."""

State = Literal["proven", "bounded", "sampled", "measured", "computed", "refuted", "stale"]

CLEARLY = 3
"""Standard errors by which a number must miss a sampled metric to be called wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says of a claim that holds.

    ``proven``: read off a run, and recomputed on the CPU wherever ``verify`` runs. ``bounded``:
    recomputed, and below the bound that is printed. ``sampled``: recomputed with its seed, and
    printed no finer than its standard error. ``measured``: replayed from the record of one machine.
    ``computed``: worked out rather than observed, and recomputed. ``refuted``: a number that is
    said elsewhere, and that the record contradicts. ``stale``: it held for an earlier form of its
    demo.
    """

    state: State
    metric: Metric
    record: Record


def judge(claim: Claim, evidence: Evidence) -> Verdict | Problem:
    """What the evidence says of ``claim``, or why the claim cannot stand."""
    record = evidence.records.get((claim.demo, claim.device))
    if record is None:
        return _no_record(claim, "claim", evidence)
    metric = evidence.metric(claim.demo, claim.metric, claim.device)
    if metric is None:
        names = [m.name for m in record.result.metrics]
        message = f"the demo `{claim.demo}` has no metric `{claim.metric}`"
        return Problem(claim.place, "claim-metric", message, suggest(claim.metric, names))
    problem = _truth(claim, metric) if isinstance(metric.value, bool) else _number(claim, metric)
    return problem or Verdict(_state(claim, metric, evidence), metric, record)


def drawn(link: FigureLink, evidence: Evidence) -> Figure | Problem:
    """The figure that ``link`` places, or why there is none to place."""
    record = evidence.records.get((link.demo, link.device))
    if record is None:
        return _no_record(link, "figure", evidence)
    figure = evidence.figure(link.demo, link.figure, link.device)
    if figure is None:
        names = [each.name for each in record.result.figures]
        message = f"the demo `{link.demo}` has no figure `{link.figure}`"
        hint = suggest(link.figure, names) if names else "Let its run draw one."
        return Problem(link.place, "figure-name", message, hint)
    return figure


def _state(claim: Claim, metric: Metric, evidence: Evidence) -> State:
    if (claim.demo, claim.device) in evidence.stale:
        return "stale"
    if claim.refuted:
        return "refuted"
    if metric.kind == "computed":
        return "computed"
    if claim.device != "cpu" or metric.kind == "measured":
        return "measured"
    return "proven" if metric.kind == "exact" else metric.kind


def _no_record(
    link: Claim | FigureLink, kind: Literal["claim", "figure"], evidence: Evidence
) -> Problem:
    devices = sorted(device for demo, device in evidence.records if demo == link.demo)
    if devices:
        message = f"the demo `{link.demo}` has no record on {link.device}"
        there, noun = ", ".join(devices), "metric" if kind == "claim" else "figure"
        hint = f"Record it there, or name {there}: `@h200` behind a {noun} names a GPU."
        return Problem(link.place, f"{kind}-device", message, hint)
    message = f"there is no evidence of a demo `{link.demo}`"
    near = suggest(link.demo, evidence.demos)
    record = f"Record it: `proofdeck demo run {link.demo} --record`."
    hint = near if near.startswith("Did you mean") else record
    return Problem(link.place, f"{kind}-demo", message, hint)


def _truth(claim: Claim, metric: Metric) -> Problem | None:
    name = f"`{claim.demo}/{metric.name}`"
    if any(character.isdigit() for character in claim.text):
        message = f"“{claim.text}” prints a number, but {name} is a truth value"
        return Problem(claim.place, "claim-text", message, "Say in words what holds.")
    if metric.value and claim.refuted:
        message = f"“{claim.text}” is called wrong, but {name} is true"
        return Problem(
            claim.place, "claim-agrees", message, "Claim it (`claim:`), or deny something else."
        )
    if not metric.value and not claim.refuted:
        message = f"“{claim.text}” is claimed, but {name} is false"
        return Problem(
            claim.place, "claim-false", message, "Take it back, or refute it (`wrong:`)."
        )
    return None


def _number(claim: Claim, metric: Metric) -> Problem | None:
    try:
        printed = read(claim.text)
    except QuantityError as error:
        hint = "The link holds one number and its unit; other words, and what is counted, stay outside."
        message = f"“{claim.text}” is no number to compare: {error}"
        return Problem(claim.place, "claim-text", message, hint)
    if printed.unit != metric.unit:
        return _wrong_unit(claim, metric, printed)
    recorded = metric.value if metric.bound is None else metric.bound
    if metric.bound is not None and not metric.value <= metric.bound:
        return _beyond(claim, metric)
    if claim.refuted:
        return _agreement(claim, metric, printed, recorded)
    holds = printed.equals(recorded) if metric.bound is None else printed.is_exactly(recorded)
    if not holds:
        said = "the evidence says" if metric.bound is None else "the bound that a card prints is"
        message = f"“{claim.text}” is printed, but {said} {_shown(printed, recorded, metric)}"
        return Problem(
            claim.place, "claim-number", message, "Let `proofdeck refresh` rewrite the number."
        )
    return _digits(claim, metric, printed)


def _digits(claim: Claim, metric: Metric, printed: Quantity) -> Problem | None:
    """A mean over random draws is printed no finer than its standard error."""
    if metric.error is None or printed.step >= printed.finest_step(metric.error):
        return None
    finest = printed.finest_step(metric.error) / printed.factor
    place = f"{float(finest):g}"
    message = (
        f"“{claim.text}” prints more digits than its standard error {metric.error:.2g} "
        f"{metric.unit}".rstrip()
        + " allows"
    )
    hint = f"Print no digit below {place}, in another unit if need be, or draw more samples."
    return Problem(claim.place, "claim-digits", message, hint)


def _beyond(claim: Claim, metric: Metric) -> Problem:
    """A bound that the run itself exceeded, as a GPU's may, says nothing."""
    name = f"`{claim.demo}/{metric.name}`"
    message = f"on {claim.device} {name} is {metric.value!r}, beyond its bound {metric.bound!r}"
    hint = "Claim what holds there, or correct the bound in the demo."
    return Problem(claim.place, "claim-bound", message, hint)


def _agreement(
    claim: Claim, metric: Metric, printed: Quantity, recorded: int | float
) -> Problem | None:
    """A number that is called wrong must be clearly off what the run found, or above its bound."""
    name = f"`{claim.demo}/{metric.name}` is {recorded!r} {metric.unit}".rstrip()
    hint = "Claim it (`claim:`), or print the number that is really said."
    if metric.bound is not None and printed.value <= as_fraction(metric.bound):
        agrees = f"is called wrong, but {name}, or less"
    elif printed.equals(recorded):
        agrees = f"is called wrong, but {name}"
    elif printed.is_mere_rounding_of(recorded):
        agrees = f"is called wrong, but differs by rounding alone: {name}"
    elif metric.error is not None and _is_near(printed, recorded, metric.error):
        agrees = f"is called wrong, but lies within {CLEARLY} standard errors: {name}"
        agrees += f" ± {metric.error:.2g}"
    else:
        return None
    return Problem(claim.place, "claim-agrees", f"“{claim.text}” {agrees}", hint)


def _is_near(printed: Quantity, recorded: int | float, error: float) -> bool:
    return abs(printed.value - as_fraction(recorded)) <= CLEARLY * as_fraction(error)


def _shown(printed: Quantity, recorded: int | float, metric: Metric) -> str:
    """The recorded number in full, and as the card would print it."""
    exact = f"{recorded!r} {metric.unit}".rstrip()
    try:
        return f"“{printed.reprint(recorded)}” ({exact})"
    except QuantityError:
        return exact


def _wrong_unit(claim: Claim, metric: Metric, printed: Quantity) -> Problem:
    name = f"`{claim.demo}/{metric.name}`"
    if not printed.unit:
        message = f"“{claim.text}” lacks its unit: {name} is in {metric.unit}"
        return Problem(claim.place, "claim-unit", message, "Write the unit inside the link.")
    wanted = f"in {metric.unit}" if metric.unit else "a plain number"
    message = f"“{claim.text}” is in {printed.unit}, but {name} is {wanted}"
    hint = "Print that unit (`B` are bytes, `FLOPS` a rate), or claim another metric."
    return Problem(claim.place, "claim-unit", message, hint)
