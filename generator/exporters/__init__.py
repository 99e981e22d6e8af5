"""Exporters, one a file, found by discovery: what an edition becomes. ``docs/exporters.en.md`` builds one."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from generator.edition.edition import Edition
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.lang import Text
from generator.output_tree import Kept, write_tree
from generator.workers import side_by_side

Progress = Callable[[str], None]


class Exporter(Protocol):
    """A module of this folder."""

    NAME: str
    """How commands and folders call it: small letters."""
    TITLE: Text
    """What it makes, for people."""
    DEFAULT: bool
    """Whether ``proofdeck build`` makes it unasked."""
    ENTRY: str
    """What to open first, below the folder of outputs: ``NAME/…``, or one file with no folder."""

    def export(self, edition: Edition, out: Path) -> None:
        """Write into the folder ``out``, or the file ``out`` where ``ENTRY`` is one.

        It reads ``edition`` and the assets, nothing else: no card's file, no evidence, no network.
        The same edition gives the same bytes. ``out`` does not exist yet; a failure may leave it in
        any state, since nobody sees it before all exporters are done.
        """


@dataclass(frozen=True, slots=True)
class Built:
    """One output: what it is called and what to open."""

    name: str
    entry: Path


def discover() -> Iterator[Exporter]:
    """Every exporter, by name."""
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        yield cast(Exporter, importlib.import_module(f"{__name__}.{info.name}"))


def usual() -> tuple[Exporter, ...]:
    """Those that ``proofdeck build`` runs unasked, by name."""
    return tuple(exporter for exporter in discover() if exporter.DEFAULT)


def export_all(edition: Edition, out: Path, progress: Progress) -> tuple[list[Built], Kept]:
    """Run the usual exporters into ``out``, and say what else was kept there; on a failure ``out`` stays.

    Raises ``output_tree.OutputError``, ``assets.MissingAssetsError`` or ``OSError``.
    """
    chosen = usual()

    def fill(new: Path) -> None:
        _share(edition)
        jobs = {exporter.NAME: partial(_export, exporter, edition, new) for exporter in chosen}
        side_by_side(jobs, progress)

    kept = write_tree(out, fill, lambda: progress("wait for another build"))
    return [Built(exporter.NAME, out / exporter.ENTRY) for exporter in chosen], kept


def _share(edition: Edition) -> None:
    """Make what several exporters read, before each has a process of its own and makes it for itself."""
    _ = edition.drawings, edition.graph, edition.formula_characters
    search_data(edition)
    study_data(edition)


def _export(exporter: Exporter, edition: Edition, new: Path) -> None:
    """Run one exporter in the folder of all outputs; what an earlier try has left there is cleared."""
    out = new / (exporter.NAME if "/" in exporter.ENTRY else exporter.ENTRY)
    if out.is_dir():
        shutil.rmtree(out)
    out.unlink(missing_ok=True)
    exporter.export(edition, out)
