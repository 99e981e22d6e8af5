"""A new card: all that a program can know is written, all else is empty and said in a comment.

``check`` then names exactly the places that wait for their author.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from generator import filesystem
from generator.cards.syllabus import Syllabus
from generator.lang import (
    LANGS,
    LANGUAGE_HEADINGS,
    SECTION_HEADINGS,
    SECTION_NAMES,
    Lang,
    SectionName,
)
from generator.lang import Text as Words
from generator.library import library
from generator.names import is_id, suggest, why_no_id
from generator.problems import Problem, quote
from runnable_demos.lab import files

_GUIDE: Mapping[SectionName, Words] = {
    "answer": {
        "zh": "一句话，不超过 60 个汉字（公式不计）；符号在这里就要说明。",
        "en": "One sentence of at most 45 words, formulas aside; name its symbols here already.",
    },
    "insights": {
        "zh": "至多四条，每条都是答题时真正会用到的。",
        "en": "At most four, each of use when the question is asked.",
    },
    "derivation": {
        "zh": "先写假设与目标，再逐步推导，说到取整与失效的地方。",
        "en": "Assumptions and objective first, then each step, the integer case, and where it breaks.",
    },
    "tradeoffs": {
        "zh": "代价是什么，何时采用，从哪里起建议就错了。",
        "en": "What it costs, when to use it, and from where on the advice is wrong.",
    },
    "pitfalls": {
        "zh": "候选人真的会给出的错误答案，以及驳倒它的数字。",
        "en": "Wrong answers that candidates really give, and the number that refutes each.",
    },
    "followups": {
        "zh": "三到五个追问，都要作答；注释里的 id 定了就不再改。",
        "en": "Three to five, all answered; the ids in comments stay for ever once published.",
    },
}
_PITFALL_IDS = ("pitfall-1",)
_FOLLOWUP_IDS = ("followup-1", "followup-2", "followup-3")


class NewCardError(Exception):
    """Why there can be no such card: a sentence, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def write(cards: Path, name: str, module: str, topic: str, today: date) -> Path | list[Problem]:
    """Write the card ``name`` into the base in ``cards`` and return its file.

    Returns the problems instead where the base itself cannot be read.
    Raises ``NewCardError`` where the name, module or topic will not do, ``OSError`` from the disk.
    """
    plan, problems = library.read_syllabus(cards)
    if plan is None:
        return problems
    if not is_id(name):
        raise NewCardError(f"{quote(name)} {why_no_id(name)}", "An id is like `bubble-sort`.")
    if module not in plan.modules:
        raise NewCardError(f"there is no module {quote(module)}", suggest(module, plan.modules))
    if topic not in plan.modules[module].topics:
        hint = suggest(topic, plan.modules[module].topics)
        raise NewCardError(f"the module `{module}` has no topic {quote(topic)}", hint)
    _refuse_taken(cards, name)
    file = cards / module / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    content = text(name, module, topic, _title(plan, name), today)
    try:
        files.write(file, content.encode(), new=True)
    except FileExistsError:
        raise NewCardError(f"{file} exists already", "Choose another id.") from None
    return file


def text(name: str, module: str, topic: str, title: Words, today: date) -> str:
    """The text of a new card."""
    titles = ", ".join(f"{lang}: {json.dumps(title[lang], ensure_ascii=False)}" for lang in LANGS)
    aliases = ", ".join(f"{lang}: []" for lang in LANGS)
    head = f"""---
id: {name}
title: {{{titles}}}
module: {module}
topic: {topic}
difficulty: medium
updated: {today.isoformat()}
tags: []
aliases: {{{aliases}}}
prerequisites: []
related: []
sources: {{}}
---
"""
    return head + "".join(_half(lang) for lang in LANGS)


def _half(lang: Lang) -> str:
    parts = [f"\n# {LANGUAGE_HEADINGS[lang]}\n"]
    for section in SECTION_NAMES:
        parts.append(
            f"\n## {SECTION_HEADINGS[section][lang]}\n\n<!-- {_GUIDE[section][lang]} -->\n"
        )
        if section == "pitfalls":
            parts += [f"\n- <!-- #{each} -->\n" for each in _PITFALL_IDS]
        if section == "followups":
            parts += [f"\n### <!-- #{each} -->\n" for each in _FOLLOWUP_IDS]
    return "".join(parts)


def _title(plan: Syllabus, name: str) -> Words:
    planned = (card for module in plan.modules.values() for card in module.planned)
    return next((card.title for card in planned if card.id == name), dict.fromkeys(LANGS, ""))


def _refuse_taken(cards: Path, name: str) -> None:
    files, _ = filesystem.find_cards(cards, cards.as_posix())
    for file, shown in files:
        if file.stem == name:
            raise NewCardError(f"the id `{name}` is taken by {shown}", "Choose another.")
    found, _ = library.load(cards)
    for card in found.cards.values() if found else ():
        if name in card.formerly:
            hint = "Choose another: links to the old id lead to that card."
            raise NewCardError(f"`{name}` is what {card.path} was called before", hint)
