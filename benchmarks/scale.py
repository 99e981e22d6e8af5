"""What a card costs as their number grows: seconds and bytes a card, and how they grow.

    python benchmarks/scale.py 100 400

builds bases of synthetic cards (about 7 KiB of text each, 10 formulas, 2 tables, 2 pieces of code,
5 links) and prints each step's cost a card. Where a step's cost a card grows, something on a page,
or in a rule, looks at all the others. Ratios hold better than seconds.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from generator import checks, exporters
from generator.edition.edition import bind

SYLLABLES = ("ra", "mo", "ti", "ke", "lu", "no", "si", "da", "pe", "vo", "ga", "be", "fi", "co")
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES]
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 2500)]
"""As many words and characters as a language has, so that no two sentences are alike by chance."""

FORMULA = r"\frac{{a_{{{0}}}}}{{b_{{{0}}}}}+\sqrt{{L_{{{0}}}/s}}\le\sum_{{i=1}}^{{{0}}} x_i"
SECTIONS = {
    "中文": ("一句话结论", "核心要义", "推导", "工程权衡", "常见陷阱", "追问"),
    "English": (
        "In one sentence",
        "Key insights",
        "Derivation",
        "Trade-offs",
        "Pitfalls",
        "Follow-ups",
    ),
}
MODULES = 8
"""As many as our syllabus has."""


def main() -> None:
    """Build a base of each size that was asked for, and compare the largest with the smallest."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", type=int, nargs="*", default=[100, 400], help="numbers of cards")
    sizes = sorted(set(parser.parse_args().sizes))
    costs = {size: measure(size) for size in sizes}
    head = "".join(f"{size:>12,}" for size in sizes)
    print(f"{'a card':22}{head}{'ratio':>9}")
    for step in costs[sizes[0]]:
        row = [costs[size][step] for size in sizes]
        ratio = f"{row[-1] / row[0]:9.2f}" if row[0] else ""
        print(f"{step:22}" + "".join(f"{value:12,.1f}" for value in row) + ratio)


def measure(size: int) -> dict[str, float]:
    """Milliseconds and KiB a card, step by step, for a base of ``size`` cards."""
    costs: dict[str, float] = {}

    @contextmanager
    def timed(step: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        costs[f"{step}, ms"] = (time.perf_counter() - start) * 1000 / size

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_base(folder / "cards", size)
        with timed("load and check"):
            found, _ = checks.load(folder / "cards")
        assert found is not None
        with timed("render"):
            edition = bind(found)
        for exporter in exporters.usual():
            alone = "/" not in exporter.ENTRY
            out = folder / (exporter.ENTRY if alone else exporter.NAME)
            with timed(exporter.NAME):
                exporter.export(edition, out)
            files = [out] if alone else [file for file in out.rglob("*") if file.is_file()]
            total = sum(file.stat().st_size for file in files)
            costs[f"{exporter.NAME}, KiB"] = total / 1024 / size
        page = folder / "site" / "cards" / f"card-{size // 2}" / "index.html"
        costs["one page, KiB"] = page.stat().st_size / 1024
    return costs


def write_base(folder: Path, size: int) -> None:
    """A base of ``size`` cards, each after the one before it and linked to four others."""
    words = random.Random(size)
    modules = [f"module-{number}" for number in range(MODULES)]
    folder.mkdir()
    (folder / "modules.yml").write_text("modules:\n" + "".join(map(_module, modules)), "utf-8")
    for module in modules:
        (folder / module).mkdir()
    for number in range(size):
        module = modules[number * MODULES // size]
        file = folder / module / f"card-{number}.md"
        file.write_text(_card(number, size, module, words), "utf-8")


def _module(module: str) -> str:
    number = module.rpartition("-")[2]
    title = f"{{zh: 模块 {number}, en: Module {number}}}"
    return (
        f"  - id: {module}\n    code: M{number}\n    title: {title}\n    summary: {title}\n"
        f"    topics: {{all: {title}}}\n"
    )


def _card(number: int, size: int, module: str, words: random.Random) -> str:
    before = f"card-{number - 1}" if number else ""
    front = (
        f"---\nid: card-{number}\ntitle: {{zh: 卡片 {number}, en: Card {number}}}\nmodule: {module}\n"
        f"topic: all\ndifficulty: medium\nupdated: 2026-01-01\nprerequisites: [{before}]\n---\n"
    )
    return front + "".join(_half(language, number, size, words) for language in SECTIONS)


def _half(language: str, number: int, size: int, words: random.Random) -> str:
    def text(length: int) -> str:
        if language == "中文":
            return "".join(words.choice(HAN) for _ in range(length)) + "。"
        return " ".join(words.choice(WORDS) for _ in range(length)) + "."

    def link() -> str:
        return f"[{words.choice(WORDS)}](card:card-{words.randrange(size)})"

    answer, insights, derivation, tradeoffs, pitfalls, followups = SECTIONS[language]
    formulas = [FORMULA.format(number % 9 + each) for each in range(5)]
    table = "| a | b |\n|---|---|\n" + "".join(f"| {text(4)} | ${formulas[0]}$ |\n" for _ in "123")
    code = f"```python\ndef f(x: int) -> int:\n    return x + {number}  # one\n```"
    return (
        f"\n# {language}\n\n## {answer}\n\n{text(12)}\n\n## {insights}\n\n"
        + "".join(f"- {text(25)} ${formula}$\n" for formula in formulas[:3])
        + f"\n## {derivation}\n\n{text(80)}\n\n$$\n{formulas[3]}\n$$\n\n{text(60)} {link()}\n\n{code}\n"
        + f"\n## {tradeoffs}\n\n{table}\n{text(60)} {link()} {link()}\n\n## {pitfalls}\n\n"
        + f"- {text(20)} <!-- #first -->\n- {text(20)} {link()} <!-- #second -->\n\n## {followups}\n\n"
        + f"### {text(6)} <!-- #one -->\n\n{text(60)}\n\n$$\n{formulas[4]}\n$$\n\n"
        + f"### {text(6)} <!-- #two -->\n\n{text(60)} {link()}\n\n{table}\n"
    )


if __name__ == "__main__":
    main()
