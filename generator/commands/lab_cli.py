"""``proofdeck demo list | run`` and ``proofdeck verify``: the laboratory from the command line."""

from __future__ import annotations

import json
import locale
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from generator.evidence.evidence import Evidence, Key, load_evidence
from generator.evidence.verdicts import judge
from generator.lab.comparing import Difference, differences, environment_changes, replay, show
from generator.lab.runs import SECONDS, Order, RunFailed, run, run_all, this_gpu
from generator.library.library import PACKAGED_DEMOS, Library, load, own_demos
from generator.names import suggest
from generator.problems import LONGEST_QUOTE, Problem, json_text
from generator.terminal import Console, echo
from runnable_demos.lab import discovery, files, records
from runnable_demos.lab.metrics import Record

demo = typer.Typer(help="List and run the demos.", no_args_is_help=True)

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

WRONG, USAGE, ENVIRONMENT = 1, 2, 3


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


CardsOption = Annotated[Path, typer.Option("--cards", help="Folder of the cards.")]
DemosOption = Annotated[
    Path | None,
    typer.Option(
        "--demos",
        help="Folder of the demos [default: runnable_demos beside the cards, else proofdeck's own].",
    ),
]
EvidenceOption = Annotated[
    Path | None,
    typer.Option("--evidence", help="Folder of the evidence [default: DEMOS/evidence]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
LangOption = Annotated[
    Language | None, typer.Option("--lang", help="Language [default: the terminal's].")
]
LimitOption = Annotated[
    float, typer.Option("--time-limit", metavar="SECONDS", min=0.1, help="End a demo after these.")
]
CARDS = Path("cards")


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the command in order, with a line and 128 + their number."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers are the main thread's
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    try:
        yield
    except Interrupted as by:
        name = signal.Signals(by.number).name
        hint = "the demos that ran have ended, too, and what they had not recorded is as it was"
        stop(128 + by.number, f"ended by {name}", hint)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(code: int, message: str, hint: str = "") -> NoReturn:
    """End the command with one line, a hint, and an exit code."""
    err.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    if hint:
        err.print(f"  hint: {escape(hint)}", soft_wrap=True)
    raise typer.Exit(code)


def language(chosen: Language | None) -> str:
    """The language asked for, or that of the terminal."""
    if chosen:
        return chosen.value
    name = os.environ.get("LC_ALL") or os.environ.get("LANG") or locale.getlocale()[0] or ""
    return "zh" if name.startswith("zh") else "en"


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Where the demos of a base and their evidence are kept."""

    demos: Path
    evidence: Path
    packaged: bool = False
    """Whether the evidence is the program's own, which a base's runs do not rewrite."""

    def discover(self) -> dict[str, discovery.Demo]:
        """The demos by name; ends the command where there is no folder, or a demo is broken."""
        if not self.demos.is_dir():
            stop(USAGE, f"there is no folder {self.demos}", "name it: --demos DIR")
        try:
            return discovery.discover(self.demos)
        except discovery.DemoError as error:
            stop(WRONG, str(error))

    def load(self) -> tuple[Evidence, list[Problem]]:
        """The evidence, and what is wrong with it."""
        return load_evidence(self.evidence, self.demos)

    def path(self, record: Record) -> Path:
        """Where a record is kept."""
        return records.record_path(self.evidence, record.demo, record.device)


def laboratory(cards: Path, demos: Path | None, evidence: Path | None) -> Laboratory:
    """The folders that the options name, else those beside the cards, else the program's own."""
    own = demos or own_demos(cards)
    demos = own or PACKAGED_DEMOS
    return Laboratory(demos, evidence or demos / "evidence", packaged=not (own or evidence))


def refuse_packaged(lab: Laboratory) -> None:
    """End the command where its record would rewrite the program's own evidence."""
    if lab.packaged:
        message = "this base has no demos of its own, and proofdeck's evidence stays as it is"
        stop(USAGE, message, "leave --record out, or name a folder: --evidence DIR")


def known(name: str, demos: Mapping[str, discovery.Demo]) -> str:
    """``name``, where a demo is called that; ends the command otherwise."""
    if name not in demos:
        stop(USAGE, f"there is no demo {name[:LONGEST_QUOTE]!r}", suggest(name, demos))
    return name


# --- demo list -----------------------------------------------------------------------------------


@demo.command("list")
def list_demos(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    lang: LangOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every demo and the state of its evidence."""
    lab = laboratory(cards, demos, evidence)
    kept, _ = lab.load()

    def state(name: str, device: str) -> dict[str, Any]:
        record = kept.records.get((name, device))
        if record is None:
            return {"state": "broken" if (name, device) in kept.broken else "missing"}
        word = "stale" if (name, device) in kept.stale else "recorded"
        count = len(record.result.metrics)
        return {"state": word, "recorded": record.recorded, "metrics": count}

    def devices(name: str) -> list[str]:
        there = {device for demo, device in kept.records.keys() | kept.broken if demo == name}
        return ["cpu", *sorted(there - {"cpu"})]

    rows = [
        (d, {device: state(name, device) for device in devices(name)})
        for name, d in lab.discover().items()
    ]
    if as_json:
        out.print_json(
            json.dumps(
                [
                    {
                        "name": d.name,
                        "title": d.title,
                        "question": d.question,
                        "requires": d.requires,
                        "gpu": d.gpu,
                        "evidence": states,
                    }
                    for d, states in rows
                ],
                ensure_ascii=False,
            )
        )
        return
    words = language(lang)
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("demo", "title", "metrics", "cpu", "gpu"):
        table.add_column(column, no_wrap=column != "title")
    for d, states in rows:
        dates = {name: each.get("recorded", "") for name, each in states.items()}
        dates |= {name: s["state"] for name, s in states.items() if s["state"] != "recorded"}
        count = str(states["cpu"].get("metrics", ""))
        cpu = dates.pop("cpu")
        gpus = [f"{name} {date}" for name, date in dates.items()] or ["missing"] * bool(d.gpu)
        table.add_row(d.name, escape(d.title[words]), count, cpu, ", ".join(gpus))
    out.print(table)


# --- demo run ------------------------------------------------------------------------------------


@demo.command("run")
def run_demo(
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
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    lang: LangOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one demo and print what it measured."""
    lab = laboratory(cards, demos, evidence)
    known(name, lab.discover())
    if record:
        refuse_packaged(lab)
    if record and (changes or size is not Size.full):
        stop(USAGE, "evidence is recorded at full size with nothing changed", "leave --record out")
    if figure and (figure.suffix != ".svg" or not figure.parent.is_dir()):
        stop(USAGE, f"{figure} cannot be written", "name an .svg file in a folder that exists")
    order = Order(name, size.value, device.value, tuple(changes or ()))
    with interruptible():
        try:
            with _Bars([name], quiet=as_json) as bars:
                found = run(order, lab.demos, bars.progress, bars.note, limit)
                bars.done(name)
        except RunFailed as failed:
            stop_failed(failed)
        if record:
            found = records.save(found, lab.path(found))
            err.print(f"recorded {escape(str(lab.path(found)))}", soft_wrap=True)
    for path, svg in _drawings(found, figure, language(lang)) if figure else ():
        files.write(path, svg.encode())
        err.print(f"drew {escape(str(path))}", soft_wrap=True)
    if as_json:
        echo(records.dumps(found), nl=False)
    else:
        _print_record(found, language(lang))


def stop_failed(failed: RunFailed) -> NoReturn:
    """End the command because a run failed; a crashed demo's own traceback goes first."""
    if failed.detail:
        err.print(escape(failed.detail.rstrip()), style="dim", soft_wrap=True)
    stop(failed.code, str(failed), failed.hint)


def _drawings(record: Record, file: Path, lang: str) -> Iterable[tuple[Path, str]]:
    """(file, SVG) of each figure; several figures have their name put before ``.svg``."""
    from runnable_demos.lab import figures  # noqa: PLC0415 - matplotlib is slow to import

    several = len(record.result.figures) > 1
    for figure in record.result.figures:
        path = file.with_name(f"{file.stem}-{figure.name}.svg") if several else file
        prefix = f"{record.demo}-{figure.name}-{lang}"
        yield path, figures.draw(figure, lang, prefix=prefix, standalone=True)


def _print_record(record: Record, lang: str) -> None:
    out.print(f"[bold]{escape(record.title[lang])}[/bold]  {escape(record.question[lang])}")
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("kind")
    table.add_column("what")
    for metric in record.result.metrics:
        bound = f" ≤ {metric.bound:g}" if metric.bound is not None else ""
        table.add_row(
            escape(metric.name),
            escape(show(metric)),
            metric.kind + bound,
            escape(metric.label[lang]),
        )
    out.print(table)
    chosen = ", ".join(f"{p.name}={p.value}" for p in record.parameters)
    facts = ", ".join(f"{name} {value}" for name, value in record.environment.items())
    out.print(f"[dim]{escape(record.size)}: {escape(chosen)}\n{escape(facts)}[/dim]")


class _Bars(AbstractContextManager["_Bars"]):
    """A progress bar for each demo that runs, and one for all where there are several."""

    def __init__(self, names: Iterable[str], quiet: bool) -> None:
        names = list(names)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[message]}[/dim]"),
            console=err,
            disable=quiet or not err.is_terminal,
            transient=True,
        )
        self._all: TaskID | None = None
        if len(names) > 1:
            self._all = self._bars.add_task("all", total=len(names), message="")
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def progress(self, name: str, share: float, message: str) -> None:
        """Show what a demo says."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=1.0, message="")
        self._bars.update(self._tasks[name], completed=share, message=escape(message))

    def note(self, name: str, message: str) -> None:
        """Say what the demo's user has to know."""
        self._bars.console.print(f"note: {escape(name)}: {escape(message)}", soft_wrap=True)

    def done(self, name: str) -> None:
        """A demo has ended."""
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        if self._all is not None:
            self._bars.advance(self._all)


# --- demo record-gpu -----------------------------------------------------------------------------


@demo.command("record-gpu")
def record_gpu(
    within: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Begin nothing after these.")
    ] = 480.0,
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
) -> None:
    """Record here every demo that gains from a GPU, the most valuable first; fresh ones are skipped."""
    lab = laboratory(cards, demos, evidence)
    gaining = [d for d in lab.discover().values() if d.gpu is not None]
    kept, _ = lab.load()
    failed = False
    with interruptible():
        gpu = this_gpu()
        if gpu is None:
            stop(USAGE, "there is no CUDA device", "record on a machine that has one")
        deadline = time.monotonic() + within
        for name in (d.name for d in sorted(gaining, key=lambda d: (d.gpu or 0, d.name))):
            left = deadline - time.monotonic()
            if (name, gpu) in kept.records.keys() - kept.stale:
                state = "fresh"
            elif left <= 0:
                state = "left, since time is up"
            else:
                state = _record_one(lab, name, min(left, SECONDS))
                failed |= state.startswith("failed")
            out.print(f"{name}: {escape(state)}", soft_wrap=True)
    raise typer.Exit(ENVIRONMENT if failed else 0)


def _record_one(lab: Laboratory, name: str, seconds: float) -> str:
    """Record a demo on the GPU, and say what came of it; one that has to have more GPUs is no failure."""
    try:
        with _Bars([name], quiet=False) as bars:
            found = run(Order(name, device="cuda"), lab.demos, bars.progress, bars.note, seconds)
    except RunFailed as reason:
        if reason.detail:
            err.print(escape(reason.detail.rstrip()), style="dim", soft_wrap=True)
        return f"{'left' if reason.code == USAGE else 'failed'}: {reason}"
    records.save(found, lab.path(found))
    return f"recorded {lab.path(found)}"


# --- verify --------------------------------------------------------------------------------------


State = Literal["agrees", "differs", "failed", "recorded"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one demo in a verification."""

    demo: str
    state: State
    differences: tuple[Difference, ...] = ()
    environment: tuple[Difference, ...] = ()
    failed: RunFailed | None = None


def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Demos [default: all].")] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep what is found.")] = False,
    device: Annotated[Device, typer.Option(help="Whose evidence is verified.")] = Device.cpu,
    limit: LimitOption = SECONDS,
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all demos again at full size, and compare with the evidence and with every card."""
    lab = laboratory(cards, demos, evidence)
    there = lab.discover()
    if record:
        refuse_packaged(lab)
    gaining = [name for name, d in there.items() if d.gpu is not None or device != Device.cuda]
    chosen = [known(name, there) for name in dict.fromkeys(names or gaining)]
    before, _ = lab.load()
    with interruptible():
        with _Bars(chosen, quiet=as_json) as bars:
            orders = [Order(name, device=device.value) for name in chosen]
            found = run_all(orders, lab.demos, bars.progress, bars.note, bars.done, limit)
        fresh: dict[Key, Record] = {
            (r.demo, r.device): r for r in found.values() if isinstance(r, Record)
        }
        if record:
            for result in fresh.values():
                records.save(result, lab.path(result))
    kept, problems = lab.load()
    if names:
        problems = [p for p in problems if Path(p.place.path).name.split(".")[0] in chosen]
    replayed = {key: replay(kept.records.get(key), found) for key, found in fresh.items()}
    current = Evidence({**kept.records, **replayed}, kept.stale)
    problems += contradictions(cards, current, chosen)
    verdicts = [_judge(result, name, before, record) for name, result in found.items()]
    (_print_json if as_json else _print_verdicts)(verdicts, problems)
    raise typer.Exit(_exit_code(verdicts, problems))


def contradictions(folder: Path, evidence: Evidence, chosen: Collection[str]) -> list[Problem]:
    """Claims on the cards in ``folder`` about the ``chosen`` demos that ``evidence`` does not bear.

    A card that cannot be read is itself a problem: its numbers would go unverified.
    """
    library, problems = load(folder)
    unread = [p for p in problems if p.severity == "error" and not _is_card(p.place.path, library)]
    if library is None:
        return unread
    judged = (
        judge(claim, evidence)
        for card in library.cards.values()
        for claim in card.claims()
        if claim.demo in chosen
    )
    return sorted({*unread, *(found for found in judged if isinstance(found, Problem))})


def _is_card(path: str, library: Library | None) -> bool:
    return library is not None and any(card.path == path for card in library.cards.values())


def _judge(found: Record | RunFailed, demo: str, before: Evidence, record: bool) -> Verdict:
    if isinstance(found, RunFailed):
        return Verdict(demo, "failed", failed=found)
    kept = before.records.get((demo, found.device))
    if kept is None:
        state: State = "recorded" if record else "differs"
        return Verdict(demo, state, (Difference("evidence", "nothing", "a result"),))
    changes = differences(kept, found)
    state = "agrees" if not changes else "recorded" if record else "differs"
    return Verdict(demo, state, changes, environment_changes(kept, found))


def _exit_code(verdicts: Iterable[Verdict], problems: Iterable[Problem]) -> int:
    codes = [v.failed.code if v.failed else WRONG if v.state == "differs" else 0 for v in verdicts]
    codes += [WRONG for problem in problems if problem.severity == "error"]
    return max(codes, default=0)


def _print_verdicts(verdicts: Iterable[Verdict], problems: Iterable[Problem]) -> None:
    colours = {"agrees": "green", "recorded": "cyan", "differs": "red", "failed": "red"}
    verdicts, problems = list(verdicts), list(problems)
    for verdict in verdicts:
        colour = colours[verdict.state]
        out.print(f"[{colour}]{verdict.state:>8}[/{colour}]  {verdict.demo}", soft_wrap=True)
        if verdict.failed:
            out.print(f"          {escape(str(verdict.failed))}", soft_wrap=True)
            if verdict.failed.hint:
                out.print(f"          hint: {escape(verdict.failed.hint)}", soft_wrap=True)
            if verdict.failed.detail:
                err.print(escape(verdict.failed.detail.rstrip()), style="dim", soft_wrap=True)
        for difference in verdict.differences:
            out.print(f"          {escape(str(difference))}", soft_wrap=True)
    # One line a fact, not one a demo: a whole base is verified on one machine.
    elsewhere = dict.fromkeys(str(change) for v in verdicts for change in v.environment)
    for change in elsewhere:
        out.print(f"    note  another environment: {escape(change)}", soft_wrap=True)
    for problem in problems:
        out.print(escape(str(problem)), soft_wrap=True)
    counts = Counter(verdict.state for verdict in verdicts)
    out.print(", ".join(f"{count} {state}" for state, count in counts.items()) or "no demos")


def _print_json(verdicts: Iterable[Verdict], problems: Iterable[Problem]) -> None:
    report = {
        "demos": [
            {
                "demo": verdict.demo,
                "state": verdict.state,
                "error": str(verdict.failed) if verdict.failed else None,
                "differences": [asdict(change) for change in verdict.differences],
                "environment": [asdict(change) for change in verdict.environment],
            }
            for verdict in verdicts
        ],
        "problems": [asdict(problem) for problem in problems],
    }
    echo(json_text(report))
