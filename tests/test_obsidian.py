"""Tokens become Markdown that Obsidian shows as the card meant it."""

from __future__ import annotations

import pytest

from generator.cards import markdown
from generator.lines import Lines
from generator.render.obsidian import (
    Writer,
    block_id,
    callout,
    inert,
    link,
    paragraph,
    value,
    wikilink,
    with_block_id,
)


def written(source: str, lang: str = "en", printed: str | None = None) -> str:
    """``source`` through our parser and out again; its fences have printed that."""
    tokens, _, _ = markdown.parse(Lines("card.md", source))
    writer = Writer(
        "zh" if lang == "zh" else "en",
        lambda link, label, table: label,
        lambda _: "",
        str,
        lambda _: printed,
    )
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
    "no block id of its own": (r"^note", r"\^note"),
    "no field": ("proven:: 9", r"proven:\: 9"),
    "no entity": (r"\&lt;b> and \&#60;", r"&amp;lt;b> and &\#60;"),
    "no tag in a formula": (r"$a<b$ and $\text{<b x=1>}$", r"$a< b$ and $\text{< b x=1>}$"),
    "no inline query": ("`= this.x` and ` $= dv.x`", "`\u2060= this.x` and `\u2060 $= dv.x`"),
    "no script of Dataview": ("```dataviewjs\nx\n```", "```text\nx\n```"),
    "no query": ("```Query\nx\n```", "```text\nx\n```"),
    "no diagram": ("```mermaid\nx\n```", "```text\nx\n```"),
    "no language with a brace": ("```python{run=1}\nx\n```", "```text\nx\n```"),
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


def test_templater_finds_nothing_to_run() -> None:
    """Its mark is broken wherever it stands, since it is looked for in the whole file."""
    for source in (r"\<% tp.x %>", "`<% tp.x %>`", "```js\n<% tp.x %>\n```", "$a<%b$"):
        note = inert(written(source))
        assert "<%" not in note
        assert "<%" in note.replace("\u2060", "")


def test_a_property_shown_by_dataview_runs_nothing() -> None:
    """Inline code in it would be run where a table shows the property as Markdown."""
    assert value("a `$= x` and `b`") == "a `\u2060$= x` and `b`"


def test_text_at_the_beginning_of_a_line_begins_nothing() -> None:
    """Summaries and questions come as plain text, and may begin like a list, a rule or a quote."""
    begun = {"- a": r"\- a", "> [!note] a": r"\> \[!note\] a", "1. a": r"1\. a", "---": r"\---"}
    assert {text: paragraph(text) for text in begun} == begun
    assert paragraph("a\n- b") == "a - b"


def test_a_label_that_is_more_than_text_is_a_markdown_link() -> None:
    """A wikilink shows its label as it stands, escapes and all."""
    assert link("M1 x", "", "C") == "[[M1 x|C]]"
    assert link("M1 x", "", r"C\#") == r"[C\#](M1%20x.md)"
    assert link("", "#^a", "$x$") == "[$x$](#^a)"


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
