"""What whole commands cost as the number of cards grows, cold and after one edit.

    python benchmarks/scale.py 100 1000
    python benchmarks/scale.py --ours

Each step is a process of its own with an empty or a filled cache, on our cards or on made-up ones that
break no rule (``synthetic.py``). Beside the seconds stand the processor's seconds, which hold better
on a busy machine, and the ratio to the step's cold build; the last line compares a cold build of all
outputs with MkDocs and Material on the same texts. Ratios within one run hold better than seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import synthetic

OURS = Path(__file__).parents[1]
PROOFDECK = [sys.executable, "-c", "from generator.commands import main; main()"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds on the clock, and of all processors."""

    wall: float
    cpu: float


def main() -> None:
    """Measure each base that was asked for, and print what each step costs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", type=int, nargs="*", help="numbers of made-up cards")
    parser.add_argument("--ours", action="store_true", help="measure our own cards as well")
    arguments = parser.parse_args()
    sizes: list[int | None] = [*([None] if arguments.ours else []), *sorted(set(arguments.sizes))]
    for size in sizes or [100, 400]:
        with tempfile.TemporaryDirectory() as name:
            costs = measure(Path(name), size)
        print(
            f"{f'{size:,} made-up cards' if size else 'our cards':34}{'s':>8}{'cpu s':>8}{'ratio':>8}"
        )
        for step, cost in costs.items():
            against = costs["check, cold" if step.startswith("check") else "build, cold"]
            ratio = cost.wall / against.wall
            print(f"{step:34}{cost.wall:8.2f}{cost.cpu:8.2f}{ratio:8.2f}")
        ratio = costs["build, cold"].wall / costs["mkdocs build of the same texts"].wall
        print(f"{'a cold build of all outputs, to that of mkdocs':50}{ratio:8.2f}\n")


def measure(folder: Path, size: int | None) -> Mapping[str, Cost]:
    """What each step costs on a base of ``size`` made-up cards, or on ours."""
    cards = folder / "base" / "cards"
    if size:
        synthetic.write_base(cards, size)
    else:
        shutil.copytree(OURS / "cards", cards)
    synthetic.write_pages(folder / "pages", cards)
    files = sorted(cards.rglob("*.md"))
    card = files[len(files) // 2]
    check = [*PROOFDECK, "check", "--cards", str(cards)]
    build = [*PROOFDECK, "build", "--cards", str(cards), "--out", str(folder / "dist")]
    costs: dict[str, Cost] = {}

    def step(name: str, command: list[str], before: Callable[[], object] = lambda: None) -> None:
        before()
        print(f"{name} …", file=sys.stderr)
        costs[name] = run(command, folder)

    step("build, cold", build)
    step("build, nothing changed", build)
    step("build, a card's text edited", build, lambda: edit(card, r"(?m)^- ", "- Anew: "))
    step("build, a card's title edited", build, lambda: edit(card, "en: ", "en: New "))
    step("check, cold", check, lambda: shutil.rmtree(folder / "cache"))
    step("check, nothing changed", check)
    step("check, a card's text edited", check, lambda: edit(card, r"(?m)^- ", "- Again: "))
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--quiet"]
    mkdocs += ["--config-file", str(folder / "pages" / "mkdocs.yml")]
    step("mkdocs build of the same texts", mkdocs)
    return costs


def edit(card: Path, pattern: str, replacement: str) -> None:
    """Change the first spot of the card's English half, or of its front matter, that ``pattern`` finds."""
    text = card.read_text("utf-8")
    half = text.index("# English") if pattern.startswith("(?m)") else 0
    card.write_text(text[:half] + re.sub(pattern, replacement, text[half:], count=1), "utf-8")


def run(command: list[str], folder: Path) -> Cost:
    """What a process costs that has to succeed, and all that it starts."""
    environment = {
        **os.environ,
        "PROOFDECK_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(OURS),
        "NO_MKDOCS_2_WARNING": "true",
    }
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return Cost(wall, cpu)


if __name__ == "__main__":
    main()
