"""What whole commands cost as the number of cards grows: cold, with nothing changed, after an edit.

    python benchmarks/scale.py 100 1000
    python benchmarks/scale.py --ours --repeats 3

Each step is a process of its own, on our cards or on made-up ones that break no rule, and is compared with
the same command on an empty cache and with `mkdocs build` and Material on the same texts. Where a step's
cost a card grows with the base, something on a page, or in a rule, looks at all the others.
Ratios within a run hold better than seconds, and the processors' seconds better than those on the clock.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import plain_pages, synthetic

OURS = Path(__file__).parents[1] / "cards"
PROOFDECK = (sys.executable, "-c", "from generator.commands import main; main()")
MKDOCS = "mkdocs build"
SENTENCE = "Here the measured edit has added one more sentence than was written before."


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds on the clock, and those of all processors."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Base:
    """What was measured of a base: its number of cards, its steps in their order, the bytes built."""

    cards: int
    costs: Mapping[str, Cost]
    built: int


def main() -> None:
    """Measure each base that was asked for, print what each step costs, and how that grows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", type=int, nargs="*", help="numbers of made-up cards")
    parser.add_argument("--ours", action="store_true", help="measure our own cards as well")
    parser.add_argument("--repeats", type=int, default=1, help="of which the quickest counts")
    asked = parser.parse_args()
    if asked.ours:
        with tempfile.TemporaryDirectory() as name:
            # What the code of cards printed stands with the evidence.
            for folder in ("cards", "runnable_demos"):
                shutil.copytree(OURS.parent / folder, Path(name) / "base" / folder)
            show("our cards", measure(Path(name), asked.repeats))
    made_up = []
    for size in sorted(set(asked.sizes)) or ([] if asked.ours else [100, 400]):
        with tempfile.TemporaryDirectory() as name:
            synthetic.write_base(Path(name) / "base" / "cards", size)
            made_up.append(measure(Path(name), asked.repeats))
        show("made-up cards", made_up[-1])
    if len(made_up) > 1:
        show_growth(made_up)


def measure(folder: Path, repeats: int) -> Base:
    """What each step costs on the base in ``folder``, at its quickest."""
    cards, out, cache = folder / "base" / "cards", folder / "dist", folder / "cache"
    files = sorted(cards.glob("*/*.md"))
    card = files[len(files) // 2]
    original = card.read_text("utf-8")
    edited = with_sentence(original)
    build = (*PROOFDECK, "build", "--cards", str(cards), "--out", str(out))
    check = (*PROOFDECK, "check", "--cards", str(cards))
    config = plain_pages.write(folder / "pages", cards)
    mkdocs = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(config))
    costs: dict[str, Cost] = {}

    def step(name: str, command: Sequence[str], text: str = original) -> None:
        print(f"{len(files):,} cards: {name} …", file=sys.stderr)
        card.write_text(text, "utf-8")
        cost = run(command, cache)
        costs[name] = min(cost, costs.get(name, cost), key=lambda each: each.wall)

    for _ in range(repeats):
        for made in (out, cache, folder / "pages" / "site"):
            shutil.rmtree(made, ignore_errors=True)
        step(MKDOCS, mkdocs)
        step("build, cold", build)
        step("build, nothing changed", build)
        step("build, a card edited", build, edited)
        step("build, its title edited", build, with_title(edited))
        shutil.rmtree(cache)
        step("check, cold", check)
        step("check, nothing changed", check)
        step("check, a card edited", check, edited)
    built = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Base(len(files), costs, built)


def with_sentence(text: str) -> str:
    """The card with one more sentence at the end of its English derivation."""
    before, heading, after = text.partition("\n## Trade-offs\n")
    return f"{before}\n{SENTENCE}\n{heading}{after}"


def with_title(text: str) -> str:
    """The card with one more word in its English title."""
    return re.sub(r'^(title: .*\ben: "?)', r"\1Renamed ", text, count=1, flags=re.MULTILINE)


def run(command: Sequence[str], cache: Path) -> Cost:
    """What a command costs with all processes that it starts; its words end the program if it fails."""
    settings = {"PROOFDECK_CACHE": str(cache), "NO_MKDOCS_2_WARNING": "true"}
    before, start = _cpu(), time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    cost = Cost(time.perf_counter() - start, _cpu() - before)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return cost


def _cpu() -> float:
    """The processors' seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show(title: str, base: Base) -> None:
    """A line a step: its seconds, and the clock's in ratio to the cold command's and to MkDocs'."""
    print(f"\n{f'{base.cards:,} {title}':26}{'s':>9}{'CPU s':>9}{'to cold':>9}{'to MkDocs':>11}")
    for name, cost in base.costs.items():
        line = f"{name:26}{cost.wall:9.2f}{cost.cpu:9.2f}"
        if name != MKDOCS:
            cold = base.costs[f"{name.partition(',')[0]}, cold"]
            line += f"{cost.wall / cold.wall:9.2f}{cost.wall / base.costs[MKDOCS].wall:11.2f}"
        print(line)


def show_growth(bases: Sequence[Base]) -> None:
    """A line a step: what it costs a card at each size, and the largest base's in ratio to the smallest's."""
    sizes = "".join(f"{base.cards:>9,}" for base in bases)
    print(f"\n{'a card':26}{sizes}{'ratio':>9}")
    for name in bases[0].costs:
        _show_row(f"{name}, ms", [base.costs[name].wall * 1000 / base.cards for base in bases])
    _show_row("built, KiB", [base.built / 1024 / base.cards for base in bases])


def _show_row(name: str, row: Sequence[float]) -> None:
    print(f"{name:26}" + "".join(f"{each:9,.1f}" for each in row) + f"{row[-1] / row[0]:9.2f}")


if __name__ == "__main__":
    main()
