"""An incremental build equals a clean one byte for byte, whatever has changed in between."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from generator import checks
from generator.cache import NOTHING_KEPT, Cache
from generator.cards.model import Card
from generator.edition.edition import Edition, bind
from generator.edition.website import website
from generator.evidence.facts import PublicFact
from generator.exporters import handbook, vault
from generator.problems import Problem
from runnable_demos.lab import records

ROOT = Path(__file__).parents[1]
BASE = ROOT / "tests" / "library"
LOST = "dead-|unknown-|cycle|duplicate-id|no-|term-card"
"""Codes of what no page can be made of."""


def outputs(folder: Path, cache: Cache) -> tuple[dict[str, bytes], list[Problem]]:
    """All that the base in ``folder`` becomes but for the theme around its pages, and its problems."""
    demos = folder / "runnable_demos"
    found, problems = checks.load(folder / "cards", demos=demos, cache=cache)
    if found is None or any(re.match(LOST, each.code) for each in problems):
        return {}, problems
    edition = bind(found, demos, cache)
    made = website(edition, "https://cards.example/", "")
    files = {path: f"{page}\n{page.body}".encode() for path, page in made.pages.items()}
    files |= made.files
    files["handbook"] = handbook.make(edition).encode()
    files |= {name: text.encode() for name, text in vault._notes(edition)}
    return files, problems


# --- edits, each at a random place ---------------------------------------------------------------


def cards(folder: Path) -> list[Path]:
    """The cards of the base."""
    return sorted((folder / "cards").rglob("*.md"))


def edit(path: Path, pattern: str, replacement: str, turn: random.Random) -> None:
    """Put something in the place of one of the spots that ``pattern`` finds; nothing where there is none."""
    text = path.read_text("utf-8")
    spots = list(re.finditer(pattern, text, re.MULTILINE))
    if spots:
        at = turn.choice(spots)
        path.write_text(text[: at.start()] + replacement + text[at.end() :], "utf-8")


def another_word(folder: Path, turn: random.Random) -> None:
    """A word of a text."""
    edit(turn.choice(cards(folder)), r"\b(the|of|and|is)\b", f"word{turn.randrange(9)}", turn)


def another_title(folder: Path, turn: random.Random) -> None:
    """A title, which other cards show."""
    title = f"title: {{zh: 题 {turn.randrange(99)}, en: Title {turn.randrange(99)}}}"
    edit(turn.choice(cards(folder)), r"^title: .*$", title, turn)


def another_question(folder: Path, turn: random.Random) -> None:
    """How a card is asked for, how often, and what its comments say of its items."""
    change = turn.choice(
        [
            (r"^frequency: .*$", f"frequency: {turn.choice(['often', 'rarely'])}"),
            (r"^  (zh|en): .*\?$", f"  en: What is {turn.randrange(99)}?"),
            (r"^asked: .*$", f"asked: {{zh: [问 {turn.randrange(9)}], en: []}}"),
            (r" (often|sometimes|rarely) -->", f" {turn.choice(['often', 'rarely', 'daily'])} -->"),
            (r" strong", f" {turn.choice(['pass', 'outstanding', 'red-flag'])}"),
            (r" asks=[a-z-]+", ""),
        ]
    )
    edit(turn.choice(cards(folder)), *change, turn)


def another_level(folder: Path, turn: random.Random) -> None:
    """How hard a card is, which its neighbours' drawings carry."""
    level = turn.choice(["easy", "medium", "hard"])
    edit(turn.choice(cards(folder)), r"^difficulty: .*$", f"difficulty: {level}", turn)


def other_prerequisites(folder: Path, turn: random.Random) -> None:
    """What leads to a card; at times in a circle, or from nowhere."""
    names = [path.stem for path in cards(folder)] + ["nowhere", "pairwise-sum"]
    chosen = ", ".join(turn.sample(names, turn.randrange(3)))
    edit(turn.choice(cards(folder)), r"^prerequisites: .*$", f"prerequisites: [{chosen}]", turn)


def a_link(folder: Path, turn: random.Random) -> None:
    """A link between two cards, which both show."""
    name = turn.choice([path.stem for path in cards(folder)] + ["pairwise-sum"])
    edit(turn.choice(cards(folder)), r"^- ", f"- [see](card:{name}) ", turn)


def another_number(folder: Path, turn: random.Random) -> None:
    """A number that a card claims, now wrong."""
    edit(turn.choice(cards(folder)), r"\[53\]", f"[{turn.randrange(99)}]", turn)


def a_formula(folder: Path, turn: random.Random) -> None:
    """A formula with characters that the font had not."""
    edit(turn.choice(cards(folder)), r"^- ", f"- $\\{turn.choice(['xi', 'Omega', 'zeta'])}$ ", turn)


def a_copy(folder: Path, turn: random.Random) -> None:
    """A new card, with the sentences of another."""
    path = turn.choice(cards(folder))
    name = f"copy-{turn.randrange(99)}"
    text = path.read_text("utf-8").replace(f"id: {path.stem}\n", f"id: {name}\n", 1)
    path.with_name(f"{name}.md").write_text(text, "utf-8")


def a_rename(folder: Path, turn: random.Random) -> None:
    """A card by another name, at times without saying so to its links."""
    path = turn.choice(cards(folder))
    name = f"now-{turn.randrange(99)}"
    if turn.random() < 0.5:
        for other in cards(folder):
            text = other.read_text("utf-8")
            other.write_text(re.sub(rf"(?<![\w-]){path.stem}(?![\w-])", name, text), "utf-8")
    path.rename(path.with_name(f"{name}.md"))


def a_deletion(folder: Path, turn: random.Random) -> None:
    """One card fewer, while there are three."""
    if len(cards(folder)) > 3:
        turn.choice(cards(folder)).unlink()


def another_syllabus(folder: Path, turn: random.Random) -> None:
    """A module's title, a path's order."""
    path = folder / "cards" / "modules.yml"
    text = path.read_text("utf-8")
    text = re.sub(r"en: (Numerics|Sums)\w*", rf"en: \g<1>{turn.choice('abc')}", text)
    names = [each.stem for each in cards(folder)]
    turn.shuffle(names)
    path.write_text(re.sub(r"cards: \[.*\]", f"cards: [{', '.join(names)}]", text), "utf-8")


def another_run(folder: Path, turn: random.Random) -> None:
    """A record with another day in it, written as the laboratory writes it."""
    path = folder / "runnable_demos" / "evidence" / "float_sums.cpu.json"
    ours = BASE / "runnable_demos" / "evidence" / "float_sums.cpu.json"  # the base's may be broken
    content = json.loads(ours.read_text("utf-8"))
    content["recorded"] = f"2026-11-{turn.randrange(10, 30)}"
    content["result"]["metrics"][0]["value"] += turn.choice([0, 1])
    content.pop("digest")
    path.write_text(json.dumps({**content, "digest": records._digest(content)}), "utf-8")


def another_demo(folder: Path, turn: random.Random) -> None:
    """A demo whose code or words are no longer those of its record, or are again."""
    path = folder / "runnable_demos" / "float_sums.py"
    ours = (BASE / "runnable_demos" / "float_sums.py").read_text("utf-8")
    more = turn.choice(["", f"\nMORE = {turn.randrange(9)}\n", f"\n# {turn.randrange(9)}\n"])
    path.write_text(ours + more, "utf-8")


def a_broken_record(folder: Path, turn: random.Random) -> None:
    """Evidence that somebody's hand has been in, or none, or the old one again."""
    path = folder / "runnable_demos" / "evidence" / "float_sums.cpu.json"
    ours = (BASE / "runnable_demos" / "evidence" / "float_sums.cpu.json").read_text("utf-8")
    path.write_text(turn.choice([ours, ours, ours.replace("53", "54", 1), "{"]), "utf-8")


def another_fact(folder: Path, turn: random.Random) -> None:
    """A public fact, which a card states, with another value, name or source; or nothing that can be read."""
    path = folder / "cards" / "facts.yml"
    other = turn.choice(
        [
            (r"memory: 16 GB", f"memory: {turn.choice(['16.0', '17'])} GB"),
            (r"zh: 玩具 GPU", f"zh: 玩具 {turn.randrange(9)}"),
            (r"Table 1", f"Table {turn.randrange(9)}"),
            (r"opened: false", "opened: 2026-11-29"),
            (r"as_of: 2026-11-2\d", f"as_of: 2026-11-2{turn.randrange(9)}"),
            (r"^toy-gpu:", "toy-gpu: {"),
        ]
    )
    edit(path, *other, turn)


def another_calculation(folder: Path, turn: random.Random) -> None:
    """Another expression, another scenario, another setting."""
    expression = turn.choice(["{device/memory} / (8 B)", "2 × 3", "{batch}", "2 ×"])
    at, into = turn.choice(
        [
            (r'(?<=calc: ")[^"]*', expression),
            (r"(?<=devices: )\d+", str(turn.randrange(1, 9))),
            (r"(?<=\[)10,000(?=\]\(param)", turn.choice(["10,000", "9"])),
        ]
    )
    edit(turn.choice(cards(folder)), at, into, turn)


def another_figure(folder: Path, turn: random.Random) -> None:
    """A figure in a card's text with another caption, with a name that no run drew, or with its own again."""
    name = turn.choice(["error", "error", "eror"])
    for pattern, other in ((r"^!\[", "![More: "), (r"figure:\w+/\w+", f"figure:float_sums/{name}")):
        edit(turn.choice(cards(folder)), pattern, other, turn)


def another_printout(folder: Path, turn: random.Random) -> None:
    """What a fence printed, or a fence that has not been run, or its record in pieces, or as it was."""
    name = "runnable_demos/evidence/cards/kahan-sum.json"
    record = json.loads((BASE / name).read_text("utf-8"))
    del record["digest"]
    record["fences"][0]["output"] = f"{turn.randrange(9)}\n"
    other = json.dumps({**record, "digest": records._digest(record)})
    ours = (BASE / name).read_text("utf-8")
    (folder / name).write_text(
        turn.choice([other, other, ours, ours.replace("1000", "1")]), "utf-8"
    )
    edit(turn.choice(cards(folder)), r"^naive = 0\.0$", "naive = 0", turn)


def another_term(folder: Path, turn: random.Random) -> None:
    """A term of the glossary that means, is called or leads to something else; or nothing that can be read."""
    path = folder / "cards" / "glossary.yml"
    other = turn.choice(
        [
            (r"到目前为止|一个一个", f"第 {turn.randrange(9)} 次"),
            (r"zh: (部分和|单位舍入|求和)", f"zh: {turn.choice(['误差', '舍入', '求和'])}"),
            (r"variants: \{", f"variants: {{zh: [{turn.choice(['加', '误差', '低位'])}], "),
            (r"ksum", turn.choice(["rounding", "error", "digits"])),
            (r"never: \{zh: \[", f"never: {{zh: [{turn.choice(['溢出', '相加', '数'])}, "),
            (r"card: .*$", f"card: {turn.choice(['rounding', 'float-bytes', 'nowhere'])}"),
            (r"^  ulp:", "  ulp: {"),
        ]
    )
    edit(path, *other, turn)


EDITS: list[Callable[[Path, random.Random], None]] = [
    another_word, another_title, another_question, another_level, other_prerequisites, a_link, another_number,
    a_formula, a_copy, a_rename, a_deletion, another_syllabus, another_run, another_demo,
    a_broken_record, another_fact, another_calculation, another_figure, another_printout, another_term,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_an_incremental_build_equals_a_clean_one(seed: int, tmp_path: Path) -> None:
    """After each of many random edits what comes with a cache is what comes without, problems included."""
    turn = random.Random(seed)
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    built = 0
    for change in [*turn.sample(EDITS, len(EDITS)), *turn.choices(EDITS, k=4)]:
        shutil.copytree(folder, tmp_path / "before", dirs_exist_ok=True)
        change(folder, turn)
        kept, clean = outputs(folder, cache), outputs(folder, NOTHING_KEPT)
        assert kept[1] == clean[1], change.__name__
        assert kept[0].keys() == clean[0].keys(), change.__name__
        differing = [name for name, content in clean[0].items() if kept[0][name] != content]
        assert differing == [], change.__name__
        built += bool(clean[0])
        if not clean[0]:
            shutil.rmtree(folder)
            (tmp_path / "before").rename(folder)
        shutil.rmtree(tmp_path / "before", ignore_errors=True)
    assert built >= 10


def test_a_build_that_forgets_a_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were other cards' titles no part of what a page depends on, a new title would not be seen on them."""
    monkeypatch.setattr(Edition, "_face", lambda *_: "the same face")
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    outputs(folder, cache)
    edit(
        folder / "cards/numerics/rounding.md",
        r"^title: .*$",
        "title: {zh: 新, en: New}",
        random.Random(),
    )
    assert outputs(folder, cache) != outputs(folder, NOTHING_KEPT)


def test_a_build_that_forgets_a_fact_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were facts no part of what a page depends on, another place of one would not be seen on its card."""
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    facts = folder / "cards/facts.yml"

    def moved(place: str) -> tuple[object, object]:
        edit(facts, r"Table \d", place, random.Random())
        return outputs(folder, cache), outputs(folder, NOTHING_KEPT)

    for place in ("Table 4", "Table 5"):
        kept, clean = moved(place)
        assert kept == clean
    monkeypatch.setattr(PublicFact, "__repr__", lambda _: "the same fact")
    moved("Table 6")
    kept, clean = moved("Table 7")
    assert kept != clean


def test_a_meaning_renews_the_cards_that_show_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another meaning is seen on each card with the term, and no other card is made again for it."""
    from generator.edition import pages  # noqa: PLC0415 - what is watched

    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    outputs(folder, cache)
    made: list[str] = []
    article = pages.article
    monkeypatch.setattr(pages, "article", lambda *a, **k: made.append(a[1].id) or article(*a, **k))
    path = folder / "cards/glossary.yml"
    path.write_text(path.read_text("utf-8").replace("到目前为止", "直到现在"), "utf-8")
    kept, _ = outputs(folder, cache)
    assert sorted(set(made)) == ["kahan-sum", "rounding"], "those that speak of partial sums"
    assert "直到现在" in kept["cards/kahan-sum/index.md"].decode()
    assert kept == outputs(folder, NOTHING_KEPT)[0]


def test_a_build_that_forgets_a_term_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were terms no part of what a page depends on, another meaning would not be seen on it."""
    monkeypatch.setattr(Edition, "_mentioned", defaultdict(tuple))
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    outputs(folder, cache)
    path = folder / "cards/glossary.yml"
    path.write_text(path.read_text("utf-8").replace("到目前为止", "直到现在"), "utf-8")
    assert outputs(folder, cache) != outputs(folder, NOTHING_KEPT)


def test_a_run_that_only_a_figure_names_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a figure alone rests on a GPU's record, another point in that record is another page."""
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    evidence = folder / "runnable_demos" / "evidence"
    kept = dataclasses.replace(records.load(evidence / "float_sums.cpu.json"), device="h200")
    card = folder / "cards/numerics/rounding.md"
    card.write_text(card.read_text("utf-8").replace("float_sums/error)", "float_sums/error@h200)"))

    def with_point(height: float) -> tuple[object, object]:
        [figure] = kept.result.figures
        naive, *others = figure.series
        naive = dataclasses.replace(naive, y=(height, *naive.y[1:]))
        figure = dataclasses.replace(figure, series=(naive, *others))
        result = dataclasses.replace(kept.result, figures=(figure,))
        records.save(dataclasses.replace(kept, result=result), evidence / "float_sums.h200.json")
        return outputs(folder, cache), outputs(folder, NOTHING_KEPT)

    for height in (1.0, 2.0):
        made, clean = with_point(height)
        assert made == clean
    monkeypatch.setattr(
        Card, "runs", lambda card: tuple({(each.demo, each.device) for each in card.claims()})
    )
    with_point(3.0)
    made, clean = with_point(4.0)
    assert made != clean


def test_a_build_that_forgets_what_was_printed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the outputs of fences no part of what a page depends on, another one would not be seen on it."""
    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    context = Edition._context
    monkeypatch.setattr(
        Edition, "_context", lambda self, card: context(self, replace(card, fences=()))
    )
    outputs(folder, cache)
    monkeypatch.setattr(random.Random, "choice", lambda _, among: among[0])  # another output
    another_printout(folder, random.Random())
    assert outputs(folder, cache) != outputs(folder, NOTHING_KEPT)


def test_one_edit_makes_one_article(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one card's text was edited, no other is parsed, checked or rendered again."""
    from generator.edition import pages  # noqa: PLC0415 - what is watched

    folder = tmp_path / "base"
    shutil.copytree(BASE, folder)
    cache = Cache(tmp_path / "cache")
    outputs(folder, cache)
    card = folder / "cards/numerics/kahan-sum.md"
    edit(card, r"\bthe\b", "that", random.Random(1))
    made: list[str] = []
    article, parse = pages.article, checks.library.parse.parse
    monkeypatch.setattr(pages, "article", lambda *a, **k: made.append(a[1].id) or article(*a, **k))
    monkeypatch.setattr(checks.library.parse, "parse", lambda *a: made.append(a[1]) or parse(*a))
    outputs(folder, cache)
    assert made == [card.as_posix(), "kahan-sum", "kahan-sum"]


def test_another_program_builds_everything_anew(tmp_path: Path) -> None:
    """After a change of a template, a document, a word or the theme the command writes what a clean one does."""
    program = tmp_path / "program"
    for name in ("generator", "runnable_demos", "site_overrides", "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, program / name, ignore=ignored)
    for name in ("mkdocs.yml", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, program)
    shutil.copytree(BASE, tmp_path / "base")

    def built(out: str, cache: Path | str) -> dict[str, bytes]:
        run = subprocess.run(
            [
                *(sys.executable, "-c", "from generator.commands import main; main()", "build"),
                *("--cards", str(tmp_path / "base" / "cards"), "--out", str(tmp_path / out)),
            ],
            cwd=program,
            env={**os.environ, "PROOFDECK_CACHE": str(cache), "PYTHONPATH": str(program)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        files = (path for path in (tmp_path / out).rglob("*") if path.is_file())
        found = {path.relative_to(tmp_path / out).as_posix(): path for path in files}
        dated = {".proofdeck", "site/sitemap.xml", "site/sitemap.xml.gz"}
        return {name: path.read_bytes() for name, path in found.items() if name not in dated}

    kept = tmp_path / "cache"
    before = built("before", kept)
    assert built("before", kept) == before
    for name, old, new in (
        ("generator/render/templates/card.html", 'class="pd-title"', 'class="pd-title pd-new"'),
        ("site_overrides/theme/main.html", "{% block", "<!-- new -->{% block"),
        ("generator/words.json", "Report an error", "Report a fault"),
        ("docs/proofs.en.md", "FLOPs are not seconds", "FLOPs are no seconds"),
    ):
        file = program / name
        text = file.read_text("utf-8")
        assert old in text, name
        file.write_text(text.replace(old, new, 1), "utf-8")
    after = built("after", kept)
    assert after == built("clean", "")
    assert after["site/cards/rounding/index.html"] != before["site/cards/rounding/index.html"]
    assert b"FLOPs are no seconds" in after["site/docs/proofs/index.html"]
