"""The options that several commands take."""

from __future__ import annotations

import locale
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Device(StrEnum):
    """Where a demo runs; ``auto`` takes a GPU where there is one and the demo gains from it."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Size(StrEnum):
    """A demo's two presets."""

    small = "small"
    full = "full"


class Language(StrEnum):
    """The language of labels and figures."""

    zh = "zh"
    en = "en"


# Not ``readable``: what may not be read is a problem like others, not wrong usage.
CardsOption = Annotated[Path, typer.Option("--cards", help="Folder of the cards.", readable=False)]
DemosOption = Annotated[
    Path | None,
    typer.Option(
        "--demos",
        help="Folder of the demos [default: runnable_demos beside the cards, else proofdeck's own].",
        readable=False,
    ),
]
EvidenceOption = Annotated[
    Path | None,
    typer.Option(
        "--evidence", help="Folder of the evidence [default: DEMOS/evidence].", readable=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
LanguageOption = Annotated[
    Language | None, typer.Option("--lang", help="Language [default: the terminal's].")
]
LimitOption = Annotated[
    float, typer.Option("--time-limit", metavar="SECONDS", min=0.1, help="End a demo after these.")
]
CARDS = Path("cards")


def language(chosen: Language | None) -> str:
    """The language asked for, or that of the terminal."""
    if chosen:
        return chosen.value
    name = os.environ.get("LC_ALL") or os.environ.get("LANG") or locale.getlocale()[0] or ""
    return "zh" if name.startswith("zh") else "en"
