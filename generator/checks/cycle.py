"""Prerequisites never run in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "cycle"
SEVERITY: Severity = "error"
SENTENCE = "No card is its own prerequisite by a detour."
NEVER_SILENT = "no order of reading keeps such prerequisites"


def check(base: Base) -> Iterator[Problem]:
    """Each prerequisite that closes a circle, found by depth-first search without recursion."""
    cards = base.library.cards
    done: set[str] = set()
    for start in sorted(cards):
        trail: list[str] = []
        stack: list[Iterator[tuple[int, str]]] = []
        entered, name = start not in done, start
        while entered or stack:
            if entered:
                trail.append(name)
                stack.append(iter(enumerate(cards[name].prerequisites)))
                entered = False
            index, name = next(stack[-1], (0, ""))
            if not name:
                stack.pop()
                done.add(trail.pop())
            elif name in trail and name != trail[-1]:
                circle = [*trail[trail.index(name) :], name]
                yield Problem(
                    cards[trail[-1]].places[f"prerequisites.{index}"],
                    CODE,
                    "prerequisites run in a circle: " + " → ".join(circle),
                    "Decide which card comes first, and remove the other prerequisite.",
                    SEVERITY,
                )
            elif name in cards and name not in done and name not in trail:
                entered = True
