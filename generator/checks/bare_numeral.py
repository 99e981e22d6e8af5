"""No number stands in prose without what proves it."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base, Reading, bare_quantities
from generator.evidence import numerals
from generator.problems import Problem, Severity

CODE = "bare-numeral"
SEVERITY: Severity = "error"
SENTENCE = (
    "On a card in format 2 each number in prose and tables, beyond twenty in words too, is a link to what proves it: "
    "`claim:`, `wrong:`, `param:`, `fact:`, `calc:`, `source:` or `given:`; so is what inline math comes to behind its "
    "last `=` or `≈`. "
    "Names are free (`H100`, `GPT-2`, “Table 5”, “stage 3”, 第 2 步, “an 8B model”), and dates, the numbers of a list, "
    "code, formulas, and the points that an interviewer listens for."
)


def check(base: Base) -> Iterator[Problem]:
    """Each bare numeral of each card in format 2, but for those that are named for their unit already."""
    naming = base.library.naming
    for found in base.of_cards(
        "bare", lambda reading: [*_on_cards(reading, naming)], *sorted(naming)
    ):
        yield from found


def _on_cards(reading: Reading, naming: frozenset[str]) -> Iterator[Problem]:
    if not all(card.converted for card in reading.cards):
        return
    told = {problem.place for problem in bare_quantities.of_passages(reading.passages)}
    for found in numerals.of_passages(reading.passages, naming):
        if found.state == "bare" and found.place not in told:
            message = f"“{found.text}” stands here without its proof"
            hint = (
                f"Link it, `[{found.text}](claim:DEMO/METRIC)`, or by `param:`, `calc:`, `fact:`, `source:` or "
                "`given:`. Up to twenty, a word may say it; a formula may hold it, but for its result; and a name "
                "is joined to its number, or is code."
            )
            yield Problem(found.place, CODE, message, hint, SEVERITY)
