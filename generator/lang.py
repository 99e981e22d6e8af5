"""The languages, the names of a card's sections in each, and the words of the interface.

One table a thing, a column a language: a third language is a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Lang = Literal["zh", "en"]
LANGS: tuple[Lang, ...] = get_args(Lang)

Text = Mapping[str, str]
"""The same words by language code."""

HTML_LANG: Mapping[Lang, str] = {"zh": "zh-Hans", "en": "en"}

SectionName = Literal["answer", "insights", "derivation", "tradeoffs", "pitfalls", "followups"]
SECTION_NAMES: tuple[SectionName, ...] = get_args(SectionName)

LANGUAGE_HEADINGS: Text = {"zh": "中文", "en": "English"}

SECTION_HEADINGS: Mapping[SectionName, Text] = {
    "answer": {"zh": "一句话结论", "en": "In one sentence"},
    "insights": {"zh": "核心要义", "en": "Key insights"},
    "derivation": {"zh": "推导", "en": "Derivation"},
    "tradeoffs": {"zh": "工程权衡", "en": "Trade-offs"},
    "pitfalls": {"zh": "常见陷阱", "en": "Pitfalls"},
    "followups": {"zh": "追问", "en": "Follow-ups"},
}

CALLOUT_LABELS: Mapping[str, Text] = {
    "note": {"zh": "注", "en": "Note"},
    "tip": {"zh": "提示", "en": "Tip"},
    "important": {"zh": "要点", "en": "Important"},
    "warning": {"zh": "注意", "en": "Warning"},
    "caution": {"zh": "当心", "en": "Caution"},
}

DIFFICULTY_LABELS: Mapping[str, Text] = {
    "easy": {"zh": "基础", "en": "Easy"},
    "medium": {"zh": "进阶", "en": "Medium"},
    "hard": {"zh": "深入", "en": "Hard"},
}

KIND_LABELS: Mapping[str, Text] = {
    "exact": {"zh": "精确", "en": "exact"},
    "bounded": {"zh": "有界", "en": "bounded"},
    "sampled": {"zh": "抽样", "en": "sampled"},
    "measured": {"zh": "实测", "en": "measured"},
    "computed": {"zh": "计算", "en": "computed"},
}

STATE_LABELS: Mapping[str, Text] = {
    "proven": {"zh": "有证明", "en": "proven"},
    "bounded": {"zh": "有界", "en": "within a bound"},
    "sampled": {"zh": "抽样", "en": "sampled"},
    "measured": {"zh": "实测", "en": "measured"},
    "computed": {"zh": "计算", "en": "computed"},
    "refuted": {"zh": "证伪", "en": "refuted"},
    "stale": {"zh": "过期", "en": "stale"},
}
"""What became of a number, by ``evidence.State``, in reading order."""

STATE_COUNTS: Mapping[str, Text] = {
    "proven": {"zh": "个数字有证明", "en": "numbers proven"},
    "bounded": {"zh": "个误差有界", "en": "errors within a bound"},
    "sampled": {"zh": "个抽样值", "en": "numbers sampled"},
    "measured": {"zh": "个实测值", "en": "numbers measured"},
    "computed": {"zh": "个计算值", "en": "numbers computed"},
    "refuted": {"zh": "处说法被证伪", "en": "claims refuted"},
    "stale": {"zh": "个数字过期", "en": "numbers stale"},
}
"""The same behind a count, for the home page."""

STATE_MARKS: Mapping[str, str] = {
    "proven": "✓",
    "bounded": "≤",
    "sampled": "±",
    "measured": "◷",
    "computed": "ƒ",
    "refuted": "✗",
    "stale": "?",
}

PAGE_TITLES: Mapping[str, Text] = {
    "home": {"zh": "首页", "en": "Home"},
    "graph": {"zh": "知识图谱", "en": "Knowledge graph"},
    "study": {"zh": "复习", "en": "Study"},
    "about": {"zh": "数字怎样证明", "en": "How numbers are proven"},
    "report": {"zh": "报告错误", "en": "Report an error"},
    "evidence": {"zh": "证据", "en": "Evidence"},
    "connections": {"zh": "联系", "en": "Connections"},
}


def on_one_line(text: Text) -> str:
    """A text in every language, one behind the other; once where they are equal."""
    return " · ".join(dict.fromkeys(text[lang] for lang in LANGS))
