"""``proofdeck build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from generator.commands.shared.base import cache_beside, summary
from generator.commands.shared.options import CARDS, CardsOption, DemosOption, EvidenceOption
from generator.commands.shared.outputs import sound, tell_kept, writing
from generator.evidence.verdicts import DRAFTABLE
from generator.lab import laboratory
from generator.terminal import ERR, echo

NAME = "build"
PLACE = 4


def command(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder to build into.")] = Path("dist"),
    draft: Annotated[
        bool, typer.Option("--draft", help="Build in spite of wrong numbers, shown as stale.")
    ] = False,
) -> None:
    """Build the site, the handbook and every other output; on an error the old ones stay."""
    from generator import exporters  # noqa: PLC0415 - drawing is slow to import
    from generator.edition import edition as editions  # noqa: PLC0415 - as above

    found = sound(cards, demos, evidence, out, DRAFTABLE if draft else ())
    where = laboratory.of_base(cards, demos, evidence).demos
    # Without a thread that refreshes it: from a process with threads no other can be forked.
    bar = Progress(console=ERR, transient=True, auto_refresh=False, disable=not ERR.is_terminal)
    with writing(), bar as progress:
        task = progress.add_task("", total=1 + len(exporters.usual()))

        def step(name: str) -> None:
            progress.update(task, description=name, advance=1, refresh=True)

        step("render")
        cache = cache_beside(cards)
        edition = editions.bind(found, where, cache)
        built, kept = exporters.export_all(edition, out, step)
        cache.prune()
    summary(found, ())
    for each in built:
        echo(f"{each.name:10}{each.entry}")
    tell_kept(kept, out)
    echo(f"open them: {out.resolve().as_uri()}/")
