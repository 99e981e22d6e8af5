"""Build every output into a new folder, then let it take the place of the old one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from generator import exporters
from generator.edition import edition as book
from generator.library.library import Library
from generator.output_tree import Kept, write_tree

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    """One output: what it is called and what to open."""

    name: str
    entry: Path


def build(
    library: Library, out: Path, demos: Path | None, progress: Progress
) -> tuple[list[Built], Kept]:
    """Export ``library`` into ``out``, and say what else was kept there; on a failure ``out`` stays.

    Raises ``output_tree.OutputError``, ``assets.MissingAssetsError`` or ``OSError``.
    """
    progress("render")
    content = book.bind(library)
    built = []

    def fill(new: Path) -> None:
        for exporter in exporters.discover():
            progress(exporter.NAME)
            # A file of its own, or a folder with the exporter's name.
            alone = "/" not in exporter.ENTRY
            target = new / (exporter.ENTRY if alone else exporter.NAME)
            exporter.export(content, target, demos)
            built.append(Built(exporter.NAME, out / exporter.ENTRY))

    kept = write_tree(out, fill, lambda: progress("wait for another build"))
    return built, kept


def steps() -> int:
    """How often ``build`` reports progress."""
    return 1 + sum(1 for _ in exporters.discover())
