"""What commands that write outputs share: which base may be written, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from generator import site_url
from generator.cache import default_folder
from generator.commands.shared.base import load, show, summary
from generator.commands.shared.exits import ENVIRONMENT, USAGE, exit_code, stop
from generator.library.library import Library
from generator.output_tree import Kept, OutputError
from generator.problems import printable

MOST_NAMES = 8
"""Files that are named one by one; of the others a number."""


def sound(
    cards: Path,
    demos: Path | None,
    evidence: Path | None,
    out: Path,
    tolerated: tuple[str, ...] = (),
) -> Library:
    """The base, where it has no error but those whose code begins with one that is tolerated."""
    try:
        site_url.read()
    except site_url.SiteUrlError as error:
        stop(USAGE, str(error), site_url.HINT)
    inner, outer = cards.resolve(), out.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        stop(USAGE, f"{out} and the cards in {cards} stand in one another", "Name another folder.")
    above = next(each for each in outer.parents if each.exists())
    if not above.is_dir():
        stop(USAGE, f"{above} is a file, and {out} would stand in it", "Name another folder.")
    cache = default_folder()
    if cache and any(cache.resolve().is_relative_to(each) for each in (inner, outer)):
        stop(USAGE, f"the cache {cache} stands in the cards or in {out}", "Name another folder.")
    found, problems = load(cards, demos, evidence)
    show(problems)
    code = exit_code(each for each in problems if not each.code.startswith(tolerated))
    if found is None or code:
        summary(found, problems)
        stop(code, f"nothing was built, and {out} is as it was", "Fix the errors above.")
    return found


@contextmanager
def writing() -> Iterator[None]:
    """Say in a sentence what keeps outputs from being written."""
    from generator.edition.assets import MissingAssetsError  # noqa: PLC0415 - fonts are slow to import

    try:
        yield
    except OutputError as error:
        stop(USAGE, str(error), "Nothing has changed there.")
    except MissingAssetsError as error:
        stop(ENVIRONMENT, str(error), error.hint)


def tell_kept(kept: Kept, out: Path) -> None:
    """Name what stands in the outputs, or beside them, though no build has written it."""
    if kept.in_place:
        typer.echo(f"kept, as no build wrote it: {_listed(kept.in_place)}")
    for before, now in kept.beside[:MOST_NAMES]:
        typer.echo(
            f"{printable(before)} was not as the last build left it: it is now {printable(now)}"
        )
    if len(kept.beside) > MOST_NAMES:
        typer.echo(
            f"… and {len(kept.beside) - MOST_NAMES:,} more, each beside the new one as `.kept`"
        )
    for tree in kept.aside:
        typer.echo(
            f"{out} did not say what a build had written there: all of it is now in {tree}; "
            "take your own files out of it, and delete the rest"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    shown = ", ".join(map(printable, names[:MOST_NAMES]))
    return f"{shown} and {more:,} more" if more > 0 else shown
