"""Chinese sentences carry Chinese punctuation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.checks import Reading
from generator.checks.zh_spacing import HAN, shown
from generator.problems import Problem, Severity

CODE = "zh-punctuation"
SEVERITY: Severity = "error"
SENTENCE = "In Chinese, punctuation beside 汉字 is full-width and quotation marks are curly."

_FULL = {",": "，", ";": "；", ":": "：", "!": "！", "?": "？", ".": "。", "(": "（", ")": "）"}
_HALF = re.compile(
    rf"""(?<=[{HAN}])\s*[,;:!?(]                  # behind 汉字
      | [,;:!?(](?=\s*[{HAN}])                    # before 汉字
      | (?<=[{HAN}])[.)]                          # no space between
      | (?<=[$`])\.(?=\s|$)                       # a sentence that ends in a formula or in code
      | (?P<quote> " | (?<=[{HAN}])' | '(?=[{HAN}]))""",
    re.VERBOSE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each mark of the wrong width, titles included."""
    for card in reading.cards:
        for found in _HALF.finditer(card.title["zh"]):
            yield Problem(card.places["title.zh"], CODE, *_said(found), SEVERITY)
    for passage in reading.passages:
        if passage.lang == "zh":
            flat = passage.flat(shown)
            for found in _HALF.finditer(flat.text):
                place = flat.place(found.end() - 1)
                yield Problem(place, CODE, *_said(found), SEVERITY)


def _said(found: re.Match[str]) -> tuple[str, str]:
    mark = found[0].strip()
    if found["quote"]:
        return f"the quotation mark `{mark}` is straight", "Write “…”, or ‘…’ within them."
    return (
        f"`{mark}` is half-width beside 汉字",
        f"Write “{_FULL[mark]}”, without spaces around it.",
    )
