"""The vault holds to what Obsidian accepts, rule by rule, on a base that strains them."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from generator.edition.edition import Edition, bind
from generator.exporters import vault
from generator.lang import STATE_LABELS, STATE_MARKS, on_one_line
from generator.library import library
from runnable_demos.lab.metrics import Kind
from tests.exporters.conftest import of_kind

HARD = r"""---
id: hard-text
title: {zh: "难写的 [文字] | C#", en: "Hard | text: 50% [off]"}
module: numerics
topic: floats
difficulty: hard
updated: 2026-11-30
tags: [fp16, 数值/舍入]
aliases: {zh: ["一: 二"], en: ["#one", "[[two]]"]}
prerequisites: [rounding]
related: [kahan-sum, pairwise-sum]
sources:
  spec: {title: "A \"quoted\" | title", url: "https://example.org/a_(b)?c=d&e", where: "§1 | §2"}
---

# 中文

## 一句话结论

有 [53](claim:float_sums/significant_bits) 位。

## 核心要义

- ==不是高亮==，%%不是注释%%，#不是标签，~~不是删除~~，[[不是链接]]，\$5 不是公式 ^no-id
- 见[**舍入** $u$](card:rounding#accumulate)与[补偿](card:kahan-sum)、[计划中的卡](card:pairwise-sum)。

## 推导

| 式 | 值 |
|:--|--:|
| $P(a\|b)$ | [4 倍](claim:float_sums/additions_ratio) |
| `a \| b` | [出处](source:spec) 与[舍入](card:rounding) |

## 工程权衡

> [!caution]
> 先
>
> $$
> a=b
> $$
>
> ```python
> x = "a::b"
>
> y = 1
> ```

```output
1
```

## 常见陷阱

- 第一 <!-- #first -->

  还有一段
- 第二

  ```python
  z = 1
  ```
  <!-- #second -->

## 追问

### 问 $x$？ <!-- #ask -->

- 一
  - 二

$$
c=d
$$

### 再问？ <!-- #ask-again -->

> 引文

### 三问？ <!-- #third -->

答。

# English

## In one sentence

There are [53](claim:float_sums/significant_bits) bits.

## Key insights

- ==no mark==, %%no comment%%, #no-tag, ~~no strike~~, [[no link]], \$5 no formula ^no-id
- See [**rounding** $u$](card:rounding#accumulate), [sums](card:kahan-sum), [a planned card](card:pairwise-sum).

## Derivation

| term | value |
|:--|--:|
| $P(a\|b)$ | [4×](claim:float_sums/additions_ratio) |
| `a \| b` | [source](source:spec) and [rounding](card:rounding) |

## Trade-offs

> [!caution]
> First
>
> $$
> a=b
> $$
>
> ```python
> x = "a::b"
>
> y = 1
> ```

```output
1
```

## Pitfalls

- First <!-- #first -->

  And more
- Second

  ```python
  z = 1
  ```
  <!-- #second -->

## Follow-ups

### Ask $x$? <!-- #ask -->

- one
  - two

$$
c=d
$$

### Again? <!-- #ask-again -->

> Quote

### Third? <!-- #third -->

Answer.
"""

FENCE = re.compile(r"^[ >]*(`{3,})[^\n]*\n(?:.*\n)*?[ >]*\1$", re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
WIKILINK = re.compile(r"(!?)\[\[([^\]|\\#]*)(?:#([^\]|\\]*))?(?:\\?\|([^\]]*))?\]\]")
MARKDOWN_LINK = re.compile(r"\]\(([\w-]+\.md)?(?:#\^([\w-]+))?\)")
BLOCK_ID = re.compile(r"(?:^|\s)\^([^\s]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory, edition: Edition, demos: Path) -> Path:
    """The vault of the small base with a card in it that strains each rule."""
    folder = tmp_path_factory.mktemp("hard")
    cards = folder / "cards"
    shutil.copytree(edition.library.root, cards)
    (cards / "numerics" / "hard-text.md").write_text(HARD, encoding="utf-8")
    found, _ = library.load(cards, demos=demos)
    assert found is not None
    assert "hard-text" in found.cards
    out = folder / "vault"
    vault.export(bind(found), out)
    return out


def notes(folder: Path) -> dict[str, str]:
    """Every note by its name."""
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.md"))}


def properties(note: str) -> dict[str, Any]:
    """The properties at the top of a note."""
    found = re.match(r"---\n(.*?\n)---\n", note, re.DOTALL)
    return yaml.safe_load(found[1]) if found else {}


def prose(note: str) -> str:
    """A note without its properties and without code."""
    note = re.sub(r"\A---\n.*?\n---\n", "", note, flags=re.DOTALL)
    return CODE.sub("code", FENCE.sub("code", note))


def links(note: str) -> Iterator[tuple[str, str]]:
    """Where the links of a note lead: to which note (empty for the same), and to which block."""
    text = prose(note)
    for _, target, block, _ in WIKILINK.findall(re.sub(r"\\\[", "", text)):
        yield target, block.removeprefix("^")
    for file, block in MARKDOWN_LINK.findall(text):
        yield file.removesuffix(".md"), block


def test_properties_are_flat_and_have_one_type_in_the_whole_vault(hard: Path) -> None:
    """Obsidian gives a property one type, and does not show nested ones."""
    types: dict[str, set[type]] = {}
    for note in notes(hard).values():
        for name, value in properties(note).items():
            types.setdefault(name, set()).add(type(value))
            assert type(value) in (str, int, list, date)
            if type(value) is list:
                assert {type(each) for each in value} <= {str}
    assert {name for name, found in types.items() if len(found) > 1} == set()
    assert {"tags", "aliases", "cssclasses"} <= types.keys()
    assert not {"tag", "alias", "cssclass"} & types.keys()
    assert all(types[name] == {list} for name in ("tags", "aliases", "cssclasses"))


def test_links_in_properties_are_quoted(hard: Path) -> None:
    """YAML reads bare brackets as lists; what it reads here is the text of a link."""
    found = properties(notes(hard)["hard-text"])
    assert found["prerequisites"] == ["[[rounding|浮点舍入 · Floating-point rounding]]"]
    assert found["related"] == ["[[kahan-sum|补偿求和 · Compensated summation]]"]
    assert found["module"] == "[[M1 numerics|数值计算 · Numerics]]"


def test_both_titles_and_all_aliases_find_a_card(hard: Path) -> None:
    """Aliases are what Obsidian's switcher searches."""
    found = properties(notes(hard)["hard-text"])["aliases"]
    assert found == ["难写的 [文字] | C#", "Hard | text: 50% [off]", "一: 二", "#one", "[[two]]"]


def test_tags_are_tags(hard: Path) -> None:
    """No spaces, and at least one character that is no digit."""
    for note in notes(hard).values():
        for tag in properties(note).get("tags", []):
            assert re.fullmatch(r"[\w/-]*[^\W\d][\w/-]*", tag)


def test_names_of_files_are_possible_everywhere_and_no_two_alike(hard: Path) -> None:
    """Neither Obsidian nor any operating system forbids a character; case does not tell names apart."""
    names = [file.name for file in hard.rglob("*") if file.is_file()]
    assert not [name for name in names if re.search(r'[\\/:*?"<>|#^\[\]%]', name)]
    assert len({name.lower() for name in names}) == len(names)


def test_every_link_leads_to_a_note_and_a_block_in_it(hard: Path) -> None:
    """A wikilink names a file of the vault, and its block id or heading stands in that file."""
    found = notes(hard)
    files = {file.name for file in hard.rglob("*")}
    count = 0
    for name, note in found.items():
        for target, block in links(note):
            assert not target or target in found or target in files, (name, target)
            half, heading, section = block.partition("#")
            if heading:
                text = found[target or name].split(f"\n# {half}\n")[1]
                assert f"\n## {section}\n" in text, (name, target, block)
            elif block:
                assert block in BLOCK_ID.findall(found[target or name]), (name, target, block)
            count += 1
    assert count > 30


def test_a_figure_stands_where_the_card_has_it_and_the_evidence_leads_there(hard: Path) -> None:
    """The file of its own language over its caption; below, the sections it stands in, and no second picture."""
    note = notes(hard)["rounding"]
    assert (
        "\n\n![[float-sums-error-zh.svg]]\n逐个相加，误差随个数 $n$ 增长；"
        "[[#^ev-float-sums|补偿之后更准]]\n\n" in note
    )
    assert (
        note.count("![[float-sums-error-zh.svg]]")
        == note.count("![[float-sums-error-en.svg]]")
        == 1
    )
    leads = re.findall(r"\[\[#([^|^\]#]+)#([^|\]#]+)\|", note)
    assert leads == [("中文", "推导"), ("English", "Derivation")]


def test_block_ids_are_allowed_and_unique(hard: Path) -> None:
    """Latin letters, digits and dashes; each once in its note."""
    for note in notes(hard).values():
        found = BLOCK_ID.findall(prose(note))
        assert all(re.fullmatch(r"[A-Za-z0-9-]+", each) for each in found)
        assert len(set(found)) == len(found)


def test_ids_of_tables_and_callouts_stand_alone(hard: Path) -> None:
    """An id on its own line has blank lines around it; the others end a list item."""
    for note in notes(hard).values():
        lines = note.split("\n")
        for index, line in enumerate(lines):
            if re.fullmatch(r"\^[\w-]+", line):
                assert lines[index - 1] == "" == lines[index + 1]
            elif BLOCK_ID.search(line) and r"\^" not in line:
                assert line.startswith("- ")


def test_each_item_can_be_linked_in_both_languages(hard: Path) -> None:
    """Follow-ups and pitfalls have a block id a language."""
    found = set(BLOCK_ID.findall(prose(notes(hard)["hard-text"])))
    assert {
        "ask",
        "ask-en",
        "ask-again",
        "ask-again-en",
        "first",
        "first-en",
        "second",
        "second-en",
    } <= found
    assert "no-id" not in found


def test_rows_of_a_table_have_as_many_cells_as_its_head(hard: Path) -> None:
    """Bars in code, formulas and links are escaped, so that no cell is split."""
    for note in notes(hard).values():
        tables = re.findall(r"(?:^\|.*\n)+", note, re.MULTILINE)
        for table in tables:
            bars = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
            assert len(bars) == 1, table


def test_formulas_touch_their_dollars(hard: Path) -> None:
    """Obsidian reads no formula where a space stands before the closing dollar."""
    for note in notes(hard).values():
        text = re.sub(r"\\\$", "", prose(note))
        inline = re.sub(r"^[> ]*\$\$$", "", text, flags=re.MULTILINE)
        pieces = inline.split("$")
        assert len(pieces) % 2 == 1
        for formula in pieces[1::2]:
            assert formula == formula.strip() != ""


def test_lines_of_a_callout_begin_with_its_mark(hard: Path) -> None:
    """Display formulas and code in a callout stand in it whole."""
    note = notes(hard)["hard-text"]
    callouts = re.findall(r"(?:^>.*\n)+", note, re.MULTILINE)
    formula = [each for each in callouts if "a=b" in each]
    assert len(formula) == 2
    for each in formula:
        assert "> $$\n> a=b\n> $$\n" in each
        assert '> ```python\n> x = "a::b"\n>\n> y = 1\n> ```\n' in each
    faces = re.findall(r"^> \[!question\]- (.+)$", note, re.MULTILINE)
    assert faces == ["问 $x$？", "再问？", "三问？", "Ask $x$?", "Again?", "Third?"]


def test_text_is_not_taken_for_obsidian_s_markup(hard: Path) -> None:
    """No unescaped highlight, comment, tag, strikethrough or link comes from text."""
    text = prose(notes(hard)["hard-text"])
    assert not re.search(r"(?<![\\=])==", text)
    assert not re.search(r"(?<![\\%])%%", text)
    assert not re.search(
        r"(?:^|[\s，])(?<!\\)#[^\s#\d^]", re.sub(r"^#+ ", "", text, flags=re.MULTILINE)
    )
    assert not re.search(r"(?<!\\)~~(?!\[\[|$|[。，.,])不|(?<!\\)~~no strike", text)


def test_there_is_no_html_but_line_breaks(hard: Path) -> None:
    """Obsidian does not read Markdown inside HTML."""
    for note in notes(hard).values():
        text = re.sub(r"\]\(<[^>]*>", "", re.sub(r"\\<", "", prose(note)))
        text = re.sub(r"\$[^$]*\$", "", text)
        assert set(re.findall(r"<[a-zA-Z/][^>]*>", text)) <= {"<br>"}


def test_plugins_find_nothing_of_theirs(hard: Path) -> None:
    """No fence for results of Execute Code, no deck and no question line of Spaced Repetition."""
    for note in notes(hard).values():
        assert "```output" not in note
        assert "#flashcards" not in note
        assert not re.search(r"^\?\??$", note, re.MULTILINE)


def test_a_refuted_number_is_struck_through(edition: Edition, tmp_path: Path) -> None:
    """A reader of the vault sees that it is said, and not so."""
    vault.export(edition, tmp_path)
    note = notes(tmp_path)["rounding"]
    assert "~~[[#^ev-float-sums|并不精确]]~~" in note


@pytest.mark.parametrize("kind", ["sampled", "measured", "computed"])
def test_what_is_not_proven_has_its_mark_and_its_count(
    edition: Edition, tmp_path: Path, kind: Kind
) -> None:
    """Behind the number, in the note's properties, and on the vault's first page."""
    vault.export(of_kind(edition, kind), tmp_path)
    note = notes(tmp_path)["float-bytes"]
    assert f"[[#^ev-float-sums|8 B]]{STATE_MARKS[kind]}" in note
    assert re.search(rf"^{kind}: \d+$", note, re.MULTILINE)
    assert re.search(r"^proven: 0$", note, re.MULTILINE)
    first = (tmp_path / vault.HOME).read_text(encoding="utf-8")
    assert f"{on_one_line(STATE_LABELS[kind])} {STATE_MARKS[kind]}: " in first


def test_evidence_of_a_card_says_how_each_number_was_measured(
    edition: Edition, tmp_path: Path
) -> None:
    """Number, label, method and kind stand in both languages, with the command and the date."""
    vault.export(edition, tmp_path)
    note = notes(tmp_path)["kahan-sum"]
    assert "proofdeck demo run float_sums" in note
    for panel in edition.panels(edition.library.cards["kahan-sum"]):
        assert panel.record.recorded in note
        for each in panel.rows:
            line = next(line for line in note.splitlines() if each.metric.label["zh"] in line)
            assert each.metric.label["en"] in line
            assert each.metric.how["zh"] in line
            assert each.metric.how["en"] in line


def test_the_canvas_is_json_canvas(hard: Path) -> None:
    """Integers for places, files that exist, edges between nodes that exist, groups below."""
    canvas = json.loads((hard / vault.CANVAS).read_text(encoding="utf-8"))
    ids = [node["id"] for node in canvas["nodes"]]
    assert len(set(ids)) == len(ids)
    for node in canvas["nodes"]:
        assert all(type(node[side]) is int for side in ("x", "y", "width", "height"))
        assert node["type"] in ("text", "file", "link", "group")
        if node["type"] == "file":
            assert (hard / node["file"]).is_file()
    types = [node["type"] for node in canvas["nodes"]]
    assert types.index("file") > max(i for i, each in enumerate(types) if each == "group")
    for edge in canvas["edges"]:
        assert {edge["fromNode"], edge["toNode"]} <= set(ids)
        assert {edge["fromSide"], edge["toSide"]} <= {"top", "right", "bottom", "left"}
    assert ("rounding", "hard-text") in {(e["fromNode"], e["toNode"]) for e in canvas["edges"]}


def test_the_base_filters_and_shows_properties_that_cards_have(hard: Path) -> None:
    """Views are tables with names; each column is a property of the cards' notes."""
    text = (hard / vault.BASE).read_text(encoding="utf-8")
    assert "&" not in text  # Obsidian's own files have no YAML anchors
    base = yaml.safe_load(text)
    assert base["filters"] == {"and": ['file.inFolder("Cards")']}
    known = {f"note.{name}" for name in properties(notes(hard)["hard-text"])} | {"file.name"}
    for view in base["views"]:
        assert view["type"] == "table"
        assert view["name"]
        assert set(view["order"]) <= known
    assert set(base["properties"]) <= known


def test_figures_are_pictures_with_both_colour_schemes(hard: Path) -> None:
    """Each embedded SVG is well-formed and follows the reader's scheme."""
    embedded = {
        target
        for _, note in notes(hard).items()
        for target in re.findall(r"!\[\[(.+?\.svg)\]\]", note)
    }
    files = {file.name: file for file in hard.rglob("*.svg")}
    assert embedded == set(files)
    for file in files.values():
        text = file.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")
        assert "prefers-color-scheme: dark" in text


def test_the_same_base_gives_the_same_bytes(edition: Edition, demos: Path, tmp_path: Path) -> None:
    """Two exports differ in nothing."""
    for name in ("one", "two"):
        vault.export(edition, tmp_path / name)
    one, two = (
        {
            file.relative_to(tmp_path / name): file.read_bytes()
            for file in (tmp_path / name).rglob("*")
            if file.is_file()
        }
        for name in ("one", "two")
    )
    assert one == two


def test_the_vault_of_the_small_base(
    edition: Edition, tmp_path: Path, golden: Callable[[str, Path], None]
) -> None:
    """The whole tree but for what is drawn, so that a change of any note is seen."""
    vault.export(edition, tmp_path)
    (tmp_path / vault.CANVAS).unlink()
    shutil.rmtree(tmp_path / vault.FIGURES)
    golden("vault", tmp_path)
