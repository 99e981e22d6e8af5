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
    LEVELS,
    PITFALL_HEADINGS,
    SECTION_HEADINGS,
    SECTION_NAMES,
    Lang,
    PitfallGroup,
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
    "spoken": {
        "zh": "念得出口的 110 到 220 个汉字：结论、机制、一个真实规模的数、代价、何时不用；没有公式与代码。",
        "en": "70 to 95 words to be said aloud: the claim, the mechanism, one real number, the cost, when not.",
    },
    "intuition": {
        "zh": "一个日常的画面，两到四句，再说清楚它在哪里不成立。",
        "en": "One everyday picture in two to four sentences, and the sentence where it breaks.",
    },
    "insights": {
        "zh": "至多四条，每条都是答题时真正会用到的；一共至多六个带链接的数。",
        "en": "At most four, each of use when the question is asked; at most six linked numbers in all.",
    },
    "example": {
        "zh": "同一个问题，换成真实的模型和硬件，一行一行算出来。",
        "en": "The same question for a real model on real hardware, line by line.",
    },
    "derivation": {
        "zh": "先写假设与目标，再逐步推导，说到取整与失效的地方。",
        "en": "Assumptions and objective first, then each step, the integer case, and where it breaks.",
    },
    "code": {
        "zh": "在白板上会写的那几行，并与参照对照；没有什么短的可写，就删掉这一节。",
        "en": "The lines for a whiteboard, held against a reference; drop the section where nothing short says it.",
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
        "zh": "四到七个追问，第一句就作答；id 定了就不再改，后面写 often、sometimes 或 rarely。",
        "en": "Four to seven; the first sentence answers. Behind the id, which stays: often, sometimes or rarely.",
    },
    "points": {
        "zh": "三到五条能打勾的，再写一句会被否决的话；asks= 写考查它的追问。",
        "en": "Three to five that can be ticked, and a sentence that fails; asks= names the follow-up that probes one.",
    },
}
_PITFALL_IDS: Mapping[PitfallGroup, str] = {"said": "pitfall-1", "shipped": "pitfall-2"}
_FOLLOWUP_IDS = ("followup-1", "followup-2", "followup-3", "followup-4")


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
    questions = "\n".join(f'  {lang}: ""' for lang in LANGS)
    empty = ", ".join(f"{lang}: []" for lang in LANGS)
    head = f"""---
id: {name}
title: {{{titles}}}
question:
{questions}
asked: {{{empty}}}
frequency: ""
module: {module}
topic: {topic}
difficulty: medium
updated: {today.isoformat()}
tags: []
aliases: {{{empty}}}
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
            for group, each in _PITFALL_IDS.items():
                parts.append(f"\n### {PITFALL_HEADINGS[group][lang]}\n\n- <!-- #{each} -->\n")
        if section == "followups":
            parts += [f"\n### <!-- #{each} -->\n" for each in _FOLLOWUP_IDS]
        if section == "points":
            parts.append("\n")
            parts += [f"- <!-- #point-{n} {level} -->\n" for n, level in enumerate(LEVELS, 1)]
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
