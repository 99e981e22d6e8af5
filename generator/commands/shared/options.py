"""The options that several commands take."""

from __future__ import annotations

import locale
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from generator.commands.shared.exits import USAGE, stop


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


def _folder(name: str | Path) -> Path:
    """The folder that is named; an empty name would be the one where the user stands."""
    if not str(name):
        raise typer.BadParameter("the name of the folder is empty")
    return Path(name)


def _there(context: typer.Context, option: typer.CallbackParam, folder: Path | None) -> Path | None:
    """``folder``, which has to be one where it is named; what stands by default may be missing."""
    source = context.get_parameter_source(option.name or "")
    if folder and source and source.name == "COMMANDLINE" and not folder.is_dir():
        what = f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}"
        name = option.opts[0]
        stop(USAGE, f"{what} ({name})", f"Name a folder that exists, or leave {name} out.")
    return folder


CardsOption = Annotated[
    Path, typer.Option("--cards", help="Folder of the cards.", metavar="DIR", parser=_folder)
]
"""For commands that read the cards first: a folder that is none is a problem like others."""
BaseOption = Annotated[
    Path,
    typer.Option(
        "--cards", help="Folder of the cards.", metavar="DIR", parser=_folder, callback=_there
    ),
]
"""For commands that ask the cards' folder for its demos first."""
# A default in square brackets in the help itself would be lost as markup.
DemosOption = Annotated[
    Path | None,
    typer.Option(
        "--demos",
        help="Folder of the demos.",
        show_default="runnable_demos beside the cards, else proofdeck's own",
        metavar="DIR",
        parser=_folder,
        callback=_there,
    ),
]
EvidenceOption = Annotated[
    Path | None,
    typer.Option(
        "--evidence",
        help="Folder of the evidence.",
        show_default="DEMOS/evidence",
        metavar="DIR",
        parser=_folder,
        callback=_there,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
LanguageOption = Annotated[
    Language | None, typer.Option("--lang", help="Language.", show_default="the terminal's")
]
LimitOption = Annotated[
    float,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        min=0.1,
        max=7 * 24 * 3600,  # a clock that is to wait for ever does not wait at all
        help="End a demo after these.",
    ),
]
FenceLimitOption = Annotated[
    float,
    typer.Option(
        "--fence-limit",
        metavar="SECONDS",
        min=0.1,
        max=7 * 24 * 3600,
        help="End a card's fence after these.",
    ),
]
CARDS = Path("cards")


def language(chosen: Language | None) -> str:
    """The language asked for, or that of the terminal."""
    if chosen:
        return chosen.value
    name = os.environ.get("LC_ALL") or os.environ.get("LANG") or locale.getlocale()[0] or ""
    return "zh" if name.startswith("zh") else "en"
