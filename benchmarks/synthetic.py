"""A base of made-up cards that breaks no rule.

A card has about 12 KiB, and each of its halves 5 formulas beside those in its 2 tables, 2 pieces of code,
3 claims of the packaged evidence, 2 citations and 5 links. The same number of cards gives the same files.
"""

from __future__ import annotations

import random
from pathlib import Path

from generator.lang import PITFALL_HEADINGS, SECTION_HEADINGS, Lang, SectionName
from runnable_demos.lab import discovery, records

SYLLABLES = ("ra", "mo", "ti", "ke", "lu", "no", "si", "da", "pe", "vo", "ga", "be", "fi", "co")
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES]
HAN = [chr(code) for code in range(0x5F00, 0x5F00 + 2500)]
"""As many words and characters as a language has, so that no two sentences are alike by chance.

Numerals and units stand before or behind these 汉字: no quantity comes about by chance, either.
"""

FORMULA = r"\frac{{a_{{{0}}}}}{{b_{{{0}}}}}+\sqrt{{L_{{{0}}}/s}}\le\sum_{{i=1}}^{{{0}}} x_i"
LANGUAGES: dict[str, Lang] = {"中文": "zh", "English": "en"}
MODULES = 8
"""As many as our syllabus has."""
LINKS = 5
NEAR = 5
"""How far before a card, in its module, its prerequisites stand at most."""


def write_base(folder: Path, size: int) -> None:
    """Cards in modules, each after one or two that stand shortly before it, and linked to five others.

    Raises ``ValueError`` where there are no five others.
    """
    turn = random.Random(size)
    proofs = _proofs()
    modules = [f"module-{number}" for number in range(min(MODULES, size))]
    folder.mkdir(parents=True)
    (folder / "modules.yml").write_text(
        "format: 2\nmodules:\n" + "".join(map(_module, modules)), "utf-8"
    )
    earlier: dict[str, list[int]] = {module: [] for module in modules}
    for number in range(size):
        module = modules[number * len(modules) // size]
        text = _front(number, module, earlier[module][-NEAR:], turn)
        claims = turn.sample(proofs, 3)
        links = [(number + away) % size for away in turn.sample(range(1, size), LINKS)]
        text += "".join(_half(each, number, claims, links, turn) for each in LANGUAGES)
        earlier[module].append(number)
        file = folder / module / f"card-{number}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")


def _proofs() -> list[str]:
    """Claims that the packaged evidence proves, as cards print them."""
    found = []
    for path in sorted((discovery.PACKAGED / "evidence").glob("*.cpu.json")):
        record = records.load(path)
        for metric in record.result.metrics:
            if metric.kind == "exact" and type(metric.value) is int and metric.unit == "B":
                found.append(f"[{metric.value:,} B](claim:{record.demo}/{metric.name})")
    return found


def _module(module: str) -> str:
    number = module.rpartition("-")[2]
    title = f"{{zh: 模块 {number}, en: Module {number}}}"
    return (
        f"  - id: {module}\n    code: M{number}\n    title: {title}\n    summary: {title}\n"
        f"    topics: {{all: {title}}}\n"
    )


def _front(number: int, module: str, nearest: list[int], turn: random.Random) -> str:
    before = turn.sample(nearest, min(turn.choice((1, 2)), len(nearest)))
    works = "".join(
        f"  work-{each}: {{title: Work {number}{each}, url: https://example.org/{number}/{each}, where: §1}}\n"
        for each in "ab"
    )
    return (
        f"---\nid: card-{number}\ntitle: {{zh: 卡片 {number}, en: Card {number}}}\n"
        f"question:\n  zh: 卡片 {number} 讲什么？\n  en: What is card {number} about?\n"
        f"asked: {{zh: [第 {number} 张], en: [number {number}]}}\nfrequency: often\nmodule: {module}\n"
        f"topic: all\ndifficulty: medium\nupdated: 2026-01-01\n"
        f"prerequisites: [{', '.join(f'card-{each}' for each in before)}]\nsources:\n{works}---\n"
    )


def _half(
    language: str, number: int, claims: list[str], links: list[int], turn: random.Random
) -> str:
    chinese = language == "中文"

    def text(length: int) -> str:
        words = (turn.choice(HAN if chinese else WORDS) for _ in range(length))
        return "".join(words) + "。" if chinese else " ".join(words) + "."

    def link(at: int) -> str:
        return f"[{text(2)[:-1]}](card:card-{links[at]})"

    def citation(work: str) -> str:
        return f'[{text(2)[:-1]}](source:work-{work} "§2")'

    lang = LANGUAGES[language]
    said, shipped = (f"### {heading[lang]}" for heading in PITFALL_HEADINGS.values())
    formulas = [FORMULA.format(number % 9 + each) for each in range(5)]
    rows = "".join(f"| {text(4)} | ${formulas[0]}$ |\n" for _ in "123")
    table = f"| {text(2)[:-1]} | {text(2)[:-1]} |\n|---|---|\n{rows}"
    code = f"```python\ndef f(x: int) -> int:\n    return x + {number}  # one\n```"
    stop = "。" if chinese else "."
    insights = "".join(
        f"- {text(25)[:-1]} ${formula}$ {claim}{stop}\n"
        for formula, claim in zip(formulas, claims, strict=False)
    )
    questions = "".join(
        f"### {text(6)} <!-- #{name} often -->\n\n{text(60)} {leading}\n\n{rest}\n"
        for name, leading, rest in (
            ("one", link(3), f"$$\n{formulas[4]}\n$$\n"),
            ("two", link(4), table),
            ("three", citation("b"), f"```python\nprint({number})\n```\n"),
            ("four", text(4), text(8)),
        )
    )
    levels = ("pass", "strong asks=one", "outstanding", "red-flag")
    sections: dict[SectionName, str] = {
        "answer": text(12),
        "spoken": text(150 if chinese else 80),
        "intuition": text(40),
        "insights": insights,
        "example": f"- {text(20)}\n- {text(20)}",
        "derivation": f"{text(80)}\n\n$$\n{formulas[3]}\n$$\n\n{text(60)} {link(0)} {citation('a')}\n\n{code}",
        "tradeoffs": f"{table}\n{text(60)} {link(1)}",
        "pitfalls": f"{said}\n\n- {text(20)} <!-- #first -->\n\n"
        f"{shipped}\n\n- {text(20)} {link(2)} <!-- #second -->",
        "followups": questions,
        "points": "\n".join(
            f"- {text(10)} <!-- #point-{n} {level} -->" for n, level in enumerate(levels)
        ),
    }
    written = (f"## {SECTION_HEADINGS[name][lang]}\n\n{each}" for name, each in sections.items())
    return f"\n# {language}\n\n" + "\n\n".join(written) + "\n"
