"""What the evidence says of a number that a card leaves to a GPU's record."""

from __future__ import annotations

import re
from collections.abc import Mapping

from generator.cards.model import Awaited
from generator.evidence.evidence import Evidence
from generator.names import suggest
from generator.problems import Problem
from runnable_demos.lab.table import Measure


def judge(link: Awaited, evidence: Evidence) -> Measure | Problem:
    """What a GPU is to measure for ``link``, or why the link cannot stand."""
    measures = evidence.awaited.get(link.demo)
    if measures is None:
        return _unread(link, evidence)
    measure = measures.get(link.metric)
    if measure is None:
        return _unawaited(link, evidence, measures)
    if re.search(r"\d", link.text):
        message = f"“{link.text}” holds a number, and none is recorded"
        return Problem(link.place, "gpu-text", message, "Say in words that it is not yet recorded.")
    return measure


def _unread(link: Awaited, evidence: Evidence) -> Problem:
    if (link.demo, "cpu") in evidence.records:
        message, hint = (
            f"the demo `{link.demo}` cannot be read",
            "Fix it, as is told where it stands.",
        )
        return Problem(link.place, "gpu-demo", message, hint)
    message = f"there is no evidence of a demo `{link.demo}` on the CPU"
    return Problem(link.place, "gpu-name", message, suggest(link.demo, evidence.demos))


def _unawaited(link: Awaited, evidence: Evidence, measures: Mapping[str, Measure]) -> Problem:
    target, code = f"{link.demo}/{link.metric}", "gpu-name"
    if gpus := evidence.recorded_on_gpus(link.demo, link.metric):
        code, message = "gpu-recorded", f"`{target}` is recorded on {', '.join(gpus)}"
        hint = "Let `proofdeck refresh` put the number there."
    elif evidence.metric(link.demo, link.metric, "cpu"):
        message, hint = f"`{target}` is recorded on the CPU", f"Claim it: `claim:{target}`."
    else:
        message = f"`{target}` is nothing that a GPU's run of the demo would tell"
        hint = suggest(link.metric, measures)
    return Problem(link.place, code, message, hint)
