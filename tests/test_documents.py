"""Documents that are no cards: how they are read, what is wrong with them, and how they are drawn."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from generator.documents import files, lessons, program
from generator.documents.document import Document, File, Listing, read
from generator.edition.documents import extensions
from generator.lang import LANGS
from generator.problems import Problem
from generator.render.documents import Press, RenderedDocument
from runnable_demos.lab import discovery, records

ROOT = Path(__file__).parent.parent
DEMOS = ROOT / "runnable_demos"
LESSONS, FAULTS = lessons.load(DEMOS)

ZH = """\
# 标题

说说
它是什么。

## 一 `x` <!-- #one -->

先说。

```python
a = 1
## 不是标题
```

再说。

{live}

## 二 <!-- #two -->

完。
"""
EN = """\
# Title

What it
is.

## One `x` <!-- #one -->

First.

```python
a = 1
## 不是标题
```

Then.

{live}

## Two <!-- #two -->

The end.
"""


def document(zh: str = ZH, en: str = EN) -> tuple[Document | None, list[Problem]]:
    """What is read of two texts."""
    return read("d", {"zh": File("d.zh.md", zh), "en": File("d.en.md", en)})


def test_languages_are_paired_by_ids_and_code_is_shared() -> None:
    """Each row has its prose in both languages, and the code or the live part behind it once."""
    found, problems = document()
    assert found and not problems
    assert found.title == {"zh": "标题", "en": "Title"}
    assert found.lead == {"zh": "说说\n它是什么。", "en": "What it\nis."}
    one, two = found.sections
    assert (one.id, one.title) == ("one", {"zh": "一 x", "en": "One x"})
    assert [(row.prose["en"], row.listing, row.part) for row in one.rows] == [
        ("First.", Listing("python", "a = 1\n## 不是标题"), ""),
        ("Then.", None, "live"),
    ]
    assert [row.prose for row in two.rows] == [{"zh": "完。", "en": "The end."}]


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("# Title\n", "", "document-title", 1),
        (" <!-- #two -->", "", "document-heading", 19),
        ("#two", "#one", "document-heading", 19),
        ("#two", "#three", "document-languages", 1),
        ("a = 1", "a = 2", "document-languages", 6),
        ("{live}", "{other}", "document-languages", 6),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(
    old: str, new: str, code: str, line: int
) -> None:
    """A title or an id is missing or used twice, headings or what is shared differ."""
    assert old in EN
    found, problems = document(en=EN.replace(old, new))
    assert found is None
    assert [(p.code, p.place.path, p.place.line) for p in problems] == [(code, "d.en.md", line)]


def test_notes_of_code_stay_with_their_language() -> None:
    """A fence with `.annotate` may differ, and belongs to the prose around it."""
    notes = "``` { .python .annotate }\na = 1  # (1)!\n```\n\n1.  %s\n"
    found, problems = document(ZH + notes % "一", EN + notes % "one")
    assert found and not problems
    (row,) = found.sections[1].rows
    assert row.listing is None
    assert row.prose["en"].endswith("1.  one")


def drawn(zh: str, en: str = EN) -> RenderedDocument:
    """Two texts as HTML, on a page that leads to cards alone."""
    found, problems = document(zh, en)
    assert found, problems
    press = Press(extensions(), DEMOS, lambda href: href if href.startswith("card:") else None)
    return press.document(found)


def test_markdown_is_that_of_mkdocs() -> None:
    """Tabs, asides, tables, formulas and code become what the theme knows; a line's end is nothing between 汉字."""
    text = '=== "a"\n\n    甲\n\n=== "b"\n\n    乙\n\n??? note "旁注"\n    丙\n\n| x |\n|---|\n| $x^2$ |\n'
    page = drawn(ZH.replace("完。", text))
    assert page.lead["zh"] == "<p>说说它是什么。</p>"
    assert page.lead["en"] == "<p>What it\nis.</p>"
    html = page.sections[1].rows[0].prose["zh"]
    assert 'class="tabbed-set tabbed-alternate"' in html and html.count('type="radio"') == 2
    assert (
        '<details class="note">' in html and '<div class="pd-scroll" tabindex="0"><table>' in html
    )
    assert "<math><msup>" in html
    code = page.sections[0].rows[0].code
    assert 'class="language-python highlight"' in code and '<pre lang="" tabindex="0">' in code


def test_tabs_have_ids_of_their_own_all_over_a_page() -> None:
    """In both languages and in each document of a page."""
    tabs = '=== "a"\n\n    甲\n'
    texts = ZH.replace("完。", tabs), EN.replace("The end.", tabs)
    found, _ = document(*texts)
    assert found
    press = Press(extensions(), DEMOS, lambda _: None)
    html = "".join(
        half
        for each in (press.document(found), press.document(found))
        for row in each.sections[1].rows
        for half in row.prose.values()
    )
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids)) == 4


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "[a](javascript:alert(1))",
        "<javascript:alert(1)>",
        '??? note "<b onclick=alert(1)>"\n    x',
        '=== "<img src=x onerror=alert(1)>"\n\n    x',
        "```html\n<script>alert(1)</script>\n```",
        "``` { .python onclick='alert(1)' }\nx\n```",
        "`<script>`",
        "$\\text{<script>alert(1)</script>}$",
    ],
)
def test_nothing_hostile_comes_through(text: str) -> None:
    """HTML is text, and no address or attribute runs anything."""
    page = drawn(ZH.replace("完。", text), EN.replace("The end.", text))
    html = "".join(row.prose["zh"] + row.code for row in page.sections[1].rows)
    assert html
    for tag in re.findall(r"<[^>]*>", html):
        assert not re.search(r"<script|<img|<b\b|\son\w+=|javascript:", tag), tag


def test_links_lead_where_the_page_can_lead() -> None:
    """What cannot be reached from it is plain text."""
    page = drawn(ZH.replace("完。", "[甲](card:a) 和 [乙](../README.md)"))
    assert (
        page.sections[1].rows[0].prose["zh"] == '<p><a href="card:a">甲</a> 和 <span>乙</span></p>'
    )


# --- those that come with the program ---------------------------------------------------------------


def test_the_documents_of_the_program_are_whole() -> None:
    """Each is there in both languages, and each file in `docs/` that names a language is one of them."""
    assert tuple(each.name for each in program.documents()) == program.NAMES
    for lang in LANGS:
        found = {
            path.name.removesuffix(f".{lang}.md") for path in (ROOT / "docs").glob(f"*.{lang}.md")
        }
        assert found == set(program.NAMES)


def test_a_document_that_lacks_a_language_is_named(tmp_path: Path) -> None:
    """With the file to be written."""
    (tmp_path / "d.zh.md").write_text(ZH, encoding="utf-8")
    found, problems = files.load(tmp_path, "d")
    assert found is None
    assert [(p.code, Path(p.place.path).name) for p in problems] == [
        ("document-missing", "d.en.md")
    ]


# --- lessons ----------------------------------------------------------------------------------------


def test_every_lesson_is_sound() -> None:
    """Both languages, the same parts, and each piece of source that it shows."""
    assert FAULTS == []


@pytest.mark.xfail(reason="most lessons are still to be written")
def test_every_demo_has_a_lesson() -> None:
    """And there is no other lesson."""
    assert LESSONS.keys() == discovery.discover(DEMOS).keys()


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_shows_source_and_leads_to_what_was_found(name: str) -> None:
    """At least two pieces of code, and links to metrics that the demo has."""
    lesson = LESSONS[name]
    shown = [each for each in lesson.listings() if each.included]
    assert len(shown) >= 2
    record = records.load(DEMOS / "evidence" / f"{name}.cpu.json")
    known = {metric.name for metric in record.result.metrics}
    for lang in LANGS:
        text = (DEMOS / "lessons" / f"{name}.{lang}.md").read_text(encoding="utf-8")
        metrics = re.findall(r"\]\(metric:([a-z0-9_]+)\)", text)
        assert metrics and set(metrics) <= known


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    """One demo with its lesson, to be broken."""
    for name in (
        "zero_stages.py",
        "models/zero.py",
        *(f"lessons/zero_stages.{lang}.md" for lang in LANGS),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(DEMOS / name, tmp_path / name)
    assert lessons.load(tmp_path)[1] == []
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    """Change a file."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("zero_stages.py:formula", "zero_stages.py:formulas", "lesson-source"),
        ("zero_stages.py:formula", "zero.py:formula", "lesson-source"),
        ("zero_stages.py:formula", "../zero_stages.py:formula", "lesson-source"),
        ("#try", "#trial", "lesson-parts"),
    ],
)
def test_a_lesson_that_is_none_is_named(demos: Path, old: str, new: str, code: str) -> None:
    """A piece of source that is not there or not below the demos, and other parts."""
    for lang in LANGS:
        replace(demos / "lessons" / f"zero_stages.{lang}.md", old, new)
    found, problems = lessons.load(demos)
    assert not found
    assert [problem.code for problem in problems] == [code]


def test_a_lesson_without_its_demo_is_named(demos: Path) -> None:
    """It would have no page."""
    (demos / "zero_stages.py").rename(demos / "other.py")
    assert {problem.code for problem in lessons.load(demos)[1]} == {"lesson-demo", "lesson-source"}


def test_marks_are_for_lessons_alone() -> None:
    """The whole source is shown without the comments that name its parts, and with all else."""
    source = (DEMOS / "zero_stages.py").read_text(encoding="utf-8")
    shown = lessons.without_marks(source)
    assert "--8<--" in source and "--8<--" not in shown
    assert [line for line in source.splitlines() if "--8<--" not in line] == shown.splitlines()
