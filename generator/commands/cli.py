"""Commands, thin: each reads its arguments, calls one function and prints what came of it.

Exit codes: 0 fine, 1 errors in the cards or the evidence, 2 wrong usage,
3 the environment (disk, permission).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.progress import Progress
from rich.text import Text

from generator import site_url
from generator.authoring import new_card
from generator.authoring import refresh as refreshing
from generator.commands import lab_cli
from generator.edition.assets import MissingAssetsError
from generator.evidence.evidence import DRAFTABLE
from generator.filesystem import ENVIRONMENT_CODES, USAGE_CODES
from generator.library import library
from generator.library.library import PACKAGED_DEMOS, Library, own_demos
from generator.output_tree import Kept, OutputError, write_tree
from generator.problems import Problem, json_text, printable
from generator.terminal import Console, echo

WRONG, USAGE, ENVIRONMENT = 1, 2, 3
MOST_NAMES = 8
"""Files that are named one by one; of the others a number."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_cli.demo, name="demo")
app.command()(lab_cli.verify)


def _version(asked: bool) -> None:
    if asked:
        echo(f"proofdeck {metadata.version('proofdeck')}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
    ] = False,
) -> None:
    """Compile bilingual study cards whose every number is proven by a run."""


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
CARDS = Path("cards")


@app.command()
def check(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find every problem of the cards and the evidence, each with its place and how to fix it."""
    found, problems = load(cards, demos, evidence)
    if as_json:
        echo(json_text(problems))
    else:
        show(problems)
        summary(found, problems)
    raise typer.Exit(exit_code(problems))


@app.command()
def refresh(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrite the cards' numbers from the evidence, and the evidence's words from the demos."""
    found, problems = load(cards, demos, evidence)
    changes: list[refreshing.Change] = []
    reworded: list[Path] = []
    if found:
        reworded = refreshing.reword(found.evidence)
        changes, problems = refreshing.refresh(found.cards, found.evidence)
    if as_json:
        echo(
            json_text(
                {
                    "changes": changes,
                    "reworded": [str(path) for path in reworded],
                    "problems": problems,
                }
            )
        )
    else:
        for change in changes:
            echo(f"{change.place}: {change.before} → {change.after}")
        for path in reworded:
            echo(f"{path}: words renewed")
        show(problems)
        echo(f"{_count(len(changes), 'number')} rewritten")
    raise typer.Exit(exit_code(problems))


@app.command()
def build(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder to build into.")] = Path("dist"),
    draft: Annotated[
        bool, typer.Option("--draft", help="Build in spite of wrong numbers, shown as stale.")
    ] = False,
) -> None:
    """Build the site, the handbook and every other output; on an error the old ones stay."""
    from generator.commands import building  # noqa: PLC0415 - drawing is slow to import

    found = _sound(cards, demos, evidence, out, DRAFTABLE if draft else ())
    err = Console(stderr=True)
    bar = Progress(console=err, transient=True, disable=not err.is_terminal)
    with _writing(), bar as progress:
        task = progress.add_task("", total=building.steps())

        def step(name: str) -> None:
            progress.update(task, description=name, advance=1)

        built, kept = building.build(found, out, _demos(cards, demos), step)
    summary(found, ())
    for each in built:
        echo(f"{each.name:10}{each.entry}")
    _tell_kept(kept, out)
    echo(f"open them: {out.resolve().as_uri()}/")


@app.command("export-pages")
def export_pages(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into.")],
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
) -> None:
    """Write the site's pages as files, for another builder: `zensical build -f DIR/mkdocs.yml`."""
    from generator.edition import edition as book  # noqa: PLC0415 - drawing is slow to import
    from generator.exporters import zensical as export_pages  # noqa: PLC0415 - drawing is slow to import

    found = _sound(cards, demos, evidence, out)

    def fill(tree: Path) -> None:
        export_pages.export(book.bind(found), tree, _demos(cards, demos), site_url.read())

    with _writing():
        kept = write_tree(out, fill)
    echo(f"wrote {out}")
    _tell_kept(kept, out)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its id, for ever: kebab-case.")],
    module: Annotated[str, typer.Option(help="A module of modules.yml.")],
    topic: Annotated[str, typer.Option(help="A topic of that module.")],
    cards: CardsOption = CARDS,
) -> None:
    """Write a new card with everything in it that a program can know."""
    try:
        written = new_card.write(cards, name, module, topic, datetime.now(UTC).date())
    except new_card.NewCardError as error:
        stop(USAGE, str(error), error.hint)
    if isinstance(written, list):
        show(written)
        raise typer.Exit(exit_code(written))
    echo(f"wrote {written}\nproofdeck check names the places that wait for you")


def _sound(
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
    found, problems = load(cards, demos, evidence)
    show(problems)
    code = exit_code(each for each in problems if not each.code.startswith(tolerated))
    if found is None or code:
        summary(found, problems)
        stop(code, f"nothing was built, and {out} is as it was", "Mend the errors above.")
    return found


@contextmanager
def _writing() -> Iterator[None]:
    """Say in a sentence what keeps outputs from being written."""
    try:
        yield
    except OutputError as error:
        stop(USAGE, str(error), "Nothing has changed there.")
    except MissingAssetsError as error:
        stop(ENVIRONMENT, str(error), error.hint)


def _tell_kept(kept: Kept, out: Path) -> None:
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


def load(
    cards: Path, demos: Path | None, evidence: Path | None
) -> tuple[Library | None, list[Problem]]:
    """The base in ``cards``; its demos stand beside it unless named, else the program's own count."""
    return library.load(cards, demos=_demos(cards, demos), evidence=evidence)


def _demos(cards: Path, demos: Path | None) -> Path:
    return demos or own_demos(cards) or PACKAGED_DEMOS


def exit_code(problems: Iterable[Problem]) -> int:
    """What the problems amount to; warnings amount to nothing."""
    codes = {problem.code for problem in problems if problem.severity == "error"}
    if codes & ENVIRONMENT_CODES:
        return ENVIRONMENT
    if codes & USAGE_CODES:
        return USAGE
    return WRONG if codes else 0


def show(problems: Iterable[Problem]) -> None:
    """Print problems, in colour on a terminal."""
    out = Console(highlight=False)
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        head, hint = str(problem).split("\n", 1)
        line = Text(head)
        start = head.index(problem.code, len(str(problem.place)))
        line.stylize("bold", 0, start)
        line.stylize(colour, start, start + len(problem.code))
        out.print(line, Text(hint, style="dim"), sep="\n", soft_wrap=True)


def summary(found: Library | None, problems: Iterable[Problem]) -> None:
    """Print how many cards were read, and how many problems they have."""
    severities = [problem.severity for problem in problems]
    errors, warnings = severities.count("error"), severities.count("warning")
    cards = _count(len(found.cards) if found else 0, "card")
    claims = _count(
        sum(1 for c in found.cards.values() for _ in c.claims()) if found else 0, "claim"
    )
    text = f"{cards}, {claims}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"
    Console(highlight=False).print(text, style="red" if errors else "green", soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def stop(code: int, message: str, hint: str) -> NoReturn:
    """End with a sentence and what to do, on the error stream."""
    err = Console(stderr=True, highlight=False)
    err.print(Text(f"error: {message}\n  hint: {hint}"), soft_wrap=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; a fault of disk or permission ends in one line, not in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 still gets its text
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        _let_go_of_output()
        sys.exit(0)
    except OSError as error:
        _let_go_of_output()
        # A copy that fails names what it read first; a full disk is where it wrote.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        name = (error.filename2 if full else None) or error.filename
        name = name or (
            "standard output" if full else None
        )  # every file that is written has a name
        what = ": ".join(str(part) for part in (name, error.strerror) if part)
        echo(f"error: {printable(what or str(error))}", err=True)
        sys.exit(ENVIRONMENT)


def _let_go_of_output() -> None:
    """Nothing more can be printed: keep the interpreter from trying to at its end."""
    with suppress(OSError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
