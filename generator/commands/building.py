"""Render a base and run every usual exporter."""

from __future__ import annotations

from pathlib import Path

from generator import exporters
from generator.edition import edition as editions
from generator.exporters import Built, Progress
from generator.library.library import Library
from generator.output_tree import Kept


def build(
    library: Library, out: Path, demos: Path | None, progress: Progress
) -> tuple[list[Built], Kept]:
    """Export ``library`` into ``out``, see ``exporters.export_all``."""
    progress("render")
    return exporters.export_all(editions.bind(library, demos), out, progress)


def steps() -> int:
    """How often ``build`` reports progress."""
    return 1 + len(exporters.usual())
