"""``proofdeck export-pages``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from generator.cache import Cache, default_folder
from generator.commands.shared.options import CARDS, CardsOption, DemosOption, EvidenceOption
from generator.commands.shared.outputs import sound, tell_kept, writing
from generator.lab import laboratory
from generator.output_tree import write_tree
from generator.terminal import echo

NAME = "export-pages"
PLACE = 5


def command(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into.")],
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
) -> None:
    """Write the site's pages as files, for another builder: `zensical build -f DIR/mkdocs.yml`."""
    from generator.edition import edition as editions  # noqa: PLC0415 - drawing is slow to import
    from generator.exporters import zensical  # noqa: PLC0415 - drawing is slow to import

    found = sound(cards, demos, evidence, out)
    where = laboratory.of_base(cards, demos, evidence).demos

    cache = Cache(default_folder())
    edition = editions.bind(found, where, cache)
    with writing():
        kept = write_tree(out, lambda tree: zensical.export(edition, tree))
        cache.prune()
    echo(f"wrote {out}")
    tell_kept(kept, out)
