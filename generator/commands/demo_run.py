"""``proofdeck demo run``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from generator.commands.shared.bars import Bars
from generator.commands.shared.exits import USAGE, explained, interruptible, stop
from generator.commands.shared.options import (
    CARDS,
    BaseOption,
    DemosOption,
    Device,
    EvidenceOption,
    JsonOption,
    LanguageOption,
    LimitOption,
    Size,
    language,
)
from generator.evidence import values
from generator.lab import laboratory
from generator.lab.runs import SECONDS, Order, run
from generator.terminal import ERR, OUT, echo
from runnable_demos.lab import files, records
from runnable_demos.lab.metrics import Record

NAME = "demo run"
PLACE = 9


def command(
    name: Annotated[str, typer.Argument(help="The demo's name.")],
    device: Annotated[Device, typer.Option(help="Where it runs.")] = Device.auto,
    size: Annotated[Size, typer.Option(help="Its preset.")] = Size.full,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one parameter.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw its figures.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep the result as evidence.")] = False,
    limit: LimitOption = SECONDS,
    cards: BaseOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    lang: LanguageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one demo and print what it measured."""
    lab = laboratory.of_base(cards, demos, evidence)
    with explained():
        laboratory.known(name, lab.discover())
        if record:
            lab.refuse_packaged()
    if record and (changes or size is not Size.full):
        stop(USAGE, "evidence is recorded at full size with nothing changed", "leave --record out")
    if figure and (figure.suffix != ".svg" or not figure.parent.is_dir() or figure.is_dir()):
        stop(USAGE, f"{figure} cannot be written", "name an .svg file in a folder that exists")
    order = Order(name, size.value, device.value, tuple(changes or ()))
    with interruptible():
        with explained(), Bars([name], quiet=as_json) as bars:
            found = run(order, lab.demos, bars.progress, bars.note, limit)
            bars.done(name)
        if record:
            found = lab.save(found)
            ERR.print(f"recorded {escape(str(lab.path(found)))}", soft_wrap=True)
    for path, svg in _drawings(found, figure, language(lang)) if figure else ():
        files.write(path, svg.encode())
        ERR.print(f"drew {escape(str(path))}", soft_wrap=True)
    if as_json:
        echo(records.dumps(found), nl=False)
    else:
        _print(found, language(lang))


def _drawings(record: Record, file: Path, lang: str) -> Iterable[tuple[Path, str]]:
    """(file, SVG) of each figure; several figures have their name put before ``.svg``."""
    from runnable_demos.lab import figures  # noqa: PLC0415 - matplotlib is slow to import

    several = len(record.result.figures) > 1
    for figure in record.result.figures:
        path = file.with_name(f"{file.stem}-{figure.name}.svg") if several else file
        prefix = f"{record.demo}-{figure.name}-{lang}"
        yield path, figures.draw(figure, lang, prefix=prefix, standalone=True)


def _print(record: Record, lang: str) -> None:
    OUT.print(f"[bold]{escape(record.title[lang])}[/bold]  {escape(record.question[lang])}")
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("kind")
    table.add_column("what")
    for metric in record.result.metrics:
        table.add_row(
            escape(metric.name),
            escape(values.shown(metric)[lang]),
            metric.kind,
            escape(metric.label[lang]),
        )
    OUT.print(table)
    chosen = ", ".join(f"{p.name}={p.value}" for p in record.parameters)
    facts = ", ".join(f"{name} {value}" for name, value in record.environment.items())
    OUT.print(f"[dim]{escape(record.size)}: {escape(chosen)}\n{escape(facts)}[/dim]")
