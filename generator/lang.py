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

LANGUAGE_HEADINGS: Mapping[Lang, str] = {"zh": "中文", "en": "English"}

SECTION_HEADINGS: Mapping[SectionName, Mapping[Lang, str]] = {
    "answer": {"zh": "一句话结论", "en": "In one sentence"},
    "insights": {"zh": "核心要义", "en": "Key insights"},
    "derivation": {"zh": "推导", "en": "Derivation"},
    "tradeoffs": {"zh": "工程权衡", "en": "Trade-offs"},
    "pitfalls": {"zh": "常见陷阱", "en": "Pitfalls"},
    "followups": {"zh": "追问", "en": "Follow-ups"},
}
