"""Exporters, one a file, found by discovery: what an edition becomes. ``docs/exporters.md`` builds one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from generator.edition.edition import Edition
from generator.lang import Text
from generator.output_tree import Kept, write_tree

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
    built = []

    def fill(new: Path) -> None:
        for exporter in usual():
            progress(exporter.NAME)
            alone = "/" not in exporter.ENTRY
            exporter.export(edition, new / (exporter.ENTRY if alone else exporter.NAME))
            built.append(Built(exporter.NAME, out / exporter.ENTRY))

    kept = write_tree(out, fill, lambda: progress("wait for another build"))
    return built, kept
