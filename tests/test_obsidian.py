"""Tokens become Markdown that Obsidian shows as the card meant it."""

from __future__ import annotations

import pytest

from generator import markdown
from generator.lines import Lines
from generator.obsidian import Writer, block_id, callout, wikilink, with_block_id


def written(source: str, lang: str = "en") -> str:
    """``source`` through our parser and out again."""
    tokens, _ = markdown.parse(Lines("card.md", source))
    writer = Writer("zh" if lang == "zh" else "en", lambda link, label, table: label, str)
    return writer.blocks(tokens)


UNCHANGED = {
    "emphasis": "one *two* **three** `four`",
    "snake case needs no escape": "call saved_tensors_hooks now",
    "formula": r"the peak is $\sqrt{L/s}$, no more",
    "display formula": "$$\na=b\n$$",
    "nested list": "- one\n  - two\n    - three\n- four",
    "ordered list": "3. three\n4. four",
    "loose list": "- one\n\n  still one\n\n- two",
    "quote": "> one\n>\n> two",
    "code": "```python\nx = 1\n\ny = 2\n```",
    "code with backticks": "````text\n```\n````",
    "rule": "one\n\n---\n\ntwo",
    "code in a list": "- one\n\n  ```python\n  x = 1\n  ```",
}


@pytest.mark.parametrize("source", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_what_both_read_alike_stays_as_it_is(source: str) -> None:
    """Markdown that Obsidian and cards share is written as an author would write it."""
    assert written(source) == source


CHANGED = {
    "no tag": ("see issue #memory", r"see issue \#memory"),
    "no highlight": ("a ==b== c", r"a \==b\== c"),
    "no comment": ("a %%b%% c", r"a \%%b\%% c"),
    "no strikethrough": ("a ~~b~~ c", r"a \~~b\~~ c"),
    "no wikilink": ("an array [[1, 2]]", r"an array \[\[1, 2\]\]"),
    "no HTML": (r"shape \<div>", r"shape \<div>"),
    "no formula": (r"it costs \$5 or \$6", r"it costs \$5 or \$6"),
    "no emphasis": (r"2\*3\*4 and \_x\_", r"2\*3\*4 and \_x\_"),
    "no block id": ("read x ^note", r"read x \^note"),
    "no list": (r"\- one", r"\- one"),
    "no ordered list": (r"1\. one", r"1\. one"),
    "no quote": (r"\> one", r"\> one"),
    "no heading": (r"\# one", r"\# one"),
    "backslash": (r"C:\\x", r"C:\\x"),
    "a line's end is no break": ("one\ntwo", "one two"),
    "a hard break is one": ("one\\\ntwo", "one\ntwo"),
    "results are not the plugin's": ("```output\n1\n```", "```text\n1\n```"),
    "indented code": ("    x = 1", "```\nx = 1\n```"),
}


@pytest.mark.parametrize(("source", "expected"), CHANGED.values(), ids=CHANGED.keys())
def test_what_obsidian_reads_otherwise_is_escaped(source: str, expected: str) -> None:
    """Text that Obsidian would take for markup stays text."""
    assert written(source) == expected


def test_a_line_s_end_between_chinese_characters_is_no_space() -> None:
    """汉字 on two lines join without a space, a Latin word keeps one."""
    assert written("梯度\n检查点", "zh") == "梯度检查点"
    assert written("用 PyTorch\n计算", "zh") == "用 PyTorch 计算"


def test_callouts_get_a_title_and_keep_every_line_inside() -> None:
    """Formulas, code and blank lines in a callout all stand behind its mark."""
    source = "> [!warning]\n> one\n>\n> $$\n> a=b\n> $$\n>\n> ```python\n> x = 1\n>\n> y = 2\n> ```"
    expected = (
        "> [!warning] 注意\n> one\n>\n> $$\n> a=b\n> $$\n>\n> ```python\n> x = 1\n>\n> y = 2\n> ```"
    )
    assert written(source, "zh") == expected


def test_a_folded_callout_with_its_block_id() -> None:
    """The id of a callout stands on a line of its own, with a blank line before it."""
    block = with_block_id(callout("question", "Why?", "Because.", folded=True), "why")
    assert block == "> [!question]- Why?\n> Because.\n\n^why"


def test_tables_keep_their_cells_whole() -> None:
    """A bar in text, code or a formula does not split a cell; alignment is kept."""
    source = "| a | b |\n|:--|--:|\n| x \\| y | `p \\| q` |\n| $\\lVert x\\rVert$ | $P(a\\|b)$ |"
    assert written(source) == (
        "| a | b |\n| :-- | --: |\n| x \\| y | `p \\| q` |\n| $\\lVert x\\rVert$ | $P(a\\vert b)$ |"
    )


def test_wikilinks_hold_plain_text_only() -> None:
    """Brackets and bars would end a wikilink early."""
    assert wikilink("note", "a [b] | c") == "[[note|a b c]]"
    assert wikilink("note", "a", table=True) == r"[[note\|a]]"


def test_block_ids_are_letters_digits_and_dashes() -> None:
    """Other characters become dashes; empty parts leave none."""
    assert block_id("ev", "saved_tensors", "") == "ev-saved-tensors"
    assert block_id("ev", "flash_attention", "h200") == "ev-flash-attention-h200"
