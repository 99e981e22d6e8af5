"""A base of made-up cards that breaks no rule, and the same texts as pages of plain Markdown.

About 7 KiB of text a card, 10 formulas, 2 tables, 2 pieces of code, 6 claims of the packaged evidence,
6 links. The same number of cards gives the same files.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from runnable_demos.lab import discovery, records

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


def write_base(folder: Path, size: int) -> None:
    """Cards in modules, each after one or two that stand shortly before it, and linked to six."""
    turn = random.Random(size)
    proofs = _proofs()
    modules = [f"module-{number}" for number in range(min(MODULES, size))]
    folder.mkdir(parents=True)
    (folder / "modules.yml").write_text("modules:\n" + "".join(map(_module, modules)), "utf-8")
    for module in modules:
        (folder / module).mkdir()
    for number in range(size):
        module = modules[number * len(modules) // size]
        text = _front(number, module, turn)
        claims = turn.sample(proofs, 3)
        links = [turn.randrange(size) for _ in range(6)]
        text += "".join(_half(each, number, claims, links, turn) for each in SECTIONS)
        (folder / module / f"card-{number}.md").write_text(text, "utf-8")


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


def _front(number: int, module: str, turn: random.Random) -> str:
    nearest = range(max(number - 5, 0), number)
    before = ", ".join(f"card-{each}" for each in turn.sample(nearest, min(2, len(nearest))))
    return (
        f"---\nid: card-{number}\ntitle: {{zh: 卡片 {number}, en: Card {number}}}\nmodule: {module}\n"
        f"topic: all\ndifficulty: medium\nupdated: 2026-01-01\nprerequisites: [{before}]\n---\n"
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

    answer, insights, derivation, tradeoffs, pitfalls, followups = SECTIONS[language]
    formulas = [FORMULA.format(number % 9 + each) for each in range(5)]
    rows = "".join(f"| {text(4)} | ${formulas[0]}$ |\n" for _ in "123")
    table = f"| {text(2)[:-1]} | {text(2)[:-1]} |\n|---|---|\n{rows}"
    code = f"```python\ndef f(x: int) -> int:\n    return x + {number}  # one\n```"
    stop = "。" if chinese else "."
    points = "".join(
        f"- {text(25)[:-1]} ${formula}$ {claim}{stop}\n"
        for formula, claim in zip(formulas, claims, strict=False)
    )
    questions = "".join(
        f"### {text(6)} <!-- #{name} -->\n\n{text(60)} {link(at)}\n\n{rest}\n"
        for name, at, rest in (
            ("one", 3, f"$$\n{formulas[4]}\n$$\n"),
            ("two", 4, table),
            ("three", 5, f"```python\nprint({number})\n```\n"),
        )
    )
    return (
        f"\n# {language}\n\n## {answer}\n\n{text(12)}\n\n## {insights}\n\n{points}"
        f"\n## {derivation}\n\n{text(80)}\n\n$$\n{formulas[3]}\n$$\n\n{text(60)} {link(0)}\n\n{code}\n"
        f"\n## {tradeoffs}\n\n{table}\n{text(60)} {link(1)}\n\n## {pitfalls}\n\n"
        f"- {text(20)} <!-- #first -->\n- {text(20)} {link(2)} <!-- #second -->\n\n"
        f"## {followups}\n\n{questions}"
    )


# --- for comparison ------------------------------------------------------------------------------

MKDOCS = """\
site_name: Comparable pages
theme: {name: material, font: false}
plugins: [search]
validation: {links: {not_found: ignore}}
markdown_extensions:
  - tables
  - pymdownx.highlight
  - pymdownx.superfences
  - pymdownx.arithmatex: {generic: true}
"""


def write_pages(folder: Path, cards: Path) -> None:
    """A project of MkDocs with Material: a page a card, both languages on it, no proof of any number."""
    folder.mkdir()
    (folder / "mkdocs.yml").write_text(MKDOCS, "utf-8")
    home = {file.stem: file.parent.name for file in cards.rglob("*.md")}
    for file in sorted(cards.rglob("*.md")):
        text = re.sub(r"\A---\n.*?\n---\n", "", file.read_text("utf-8"), flags=re.DOTALL)
        text = re.sub(r"\[([^\]]*)\]\((?:claim|wrong|source|given):[^)]*\)", r"\1", text)
        text = re.sub(
            r"\(card:([\w-]+)(?:#[\w-]+)?\)",
            lambda link: f"(../{home.get(link[1], 'none')}/{link[1]}.md)",
            text,
        )
        page = folder / "docs" / file.parent.name / file.name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"# {file.stem}\n{text}", "utf-8")
    (folder / "docs" / "index.md").write_text("# Cards\n", "utf-8")
