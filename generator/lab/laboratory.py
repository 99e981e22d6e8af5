"""Where the demos of a base and their evidence are kept."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from generator.evidence import fence_records
from generator.evidence.evidence import Evidence, load_evidence
from generator.evidence.fence_records import FenceRecords
from generator.library.library import PACKAGED_DEMOS, own_demos
from generator.names import suggest
from generator.problems import LONGEST_QUOTE, Problem
from runnable_demos.lab import discovery, records
from runnable_demos.lab.discovery import Demo
from runnable_demos.lab.metrics import Record


class Unavailable(Exception):
    """What was asked of the laboratory and cannot be had: a sentence, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Laboratory:
    """The folders of a base's demos and of their evidence."""

    demos: Path
    evidence: Path
    packaged: bool = False
    """Whether the evidence is the program's own, which a base's runs do not rewrite."""

    def discover(self) -> dict[str, Demo]:
        """The demos by name.

        Raises ``discovery.DemoError`` where a demo is broken, ``OSError`` where the folder cannot
        be read.
        """
        os.scandir(self.demos).close()  # a folder that may not be read would look empty
        return discovery.discover(self.demos)

    def load(self) -> tuple[Evidence, list[Problem]]:
        """The evidence, and what is wrong with it. Raises ``OSError`` where it cannot be read."""
        if self.evidence.is_dir():
            os.scandir(self.evidence).close()  # as above
        return load_evidence(self.evidence, self.demos)

    def load_fences(self) -> tuple[FenceRecords, list[Problem]]:
        """What the fences of the base's cards printed, and what is wrong with those files.

        The program's own evidence holds that of its own cards alone. Raises ``OSError``.
        """
        return (FenceRecords(), []) if self.packaged else fence_records.load(self.evidence)

    def path(self, record: Record) -> Path:
        """Where a record is kept."""
        return records.record_path(self.evidence, record.demo, record.device)

    def save(self, record: Record) -> Record:
        """Keep ``record`` as evidence; as it was kept, with its first day. Raises ``OSError``."""
        return records.save(record, self.path(record))

    def refuse_packaged(self) -> None:
        """Raise ``Unavailable`` where a record would rewrite the program's own evidence."""
        if self.packaged:
            message = "this base has no demos of its own, and proofdeck's evidence stays as it is"
            raise Unavailable(message, "leave --record out, or name a folder: --evidence DIR")


def of_base(cards: Path, demos: Path | None, evidence: Path | None) -> Laboratory:
    """The folders that are named, else those beside the cards, else the program's own."""
    own = demos or own_demos(cards)
    demos = own or PACKAGED_DEMOS
    return Laboratory(demos, evidence or demos / "evidence", packaged=not (own or evidence))


def known(name: str, demos: Mapping[str, Demo], cards: Collection[str] = ()) -> str:
    """``name``, where a demo is called that. Raises ``Unavailable`` otherwise.

    The hint names what is nearest among the demos and the ``cards``.
    """
    if name not in demos:
        near = suggest(name, [*demos, *cards])
        raise Unavailable(f"there is no demo {name[:LONGEST_QUOTE]!r}", near)
    return name
