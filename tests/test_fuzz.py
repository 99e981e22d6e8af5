"""Hostile input of every kind: no traceback, no hang, and each problem has a place, a hint and a bound.

A short run is part of the tests; ``make fuzz`` runs the same for some minutes. Time is counted in this
process's own seconds of CPU, so that a loaded machine fails nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generator import checks, exporters
from generator.cards import glossary_file, syllabus
from generator.cards.glossary import Glossary, Mention
from generator.cards.model import Card, Fence
from generator.cards.parse import parse
from generator.checks import Base
from generator.edition.edition import bind
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.evidence import fact_file, fence_records
from generator.evidence.evidence import load_evidence
from generator.exporters import handbook, vault
from generator.lang import LANGS, Lang
from generator.library import library
from generator.library.library import Contents, Library
from generator.line_ends import line_end
from generator.problems import Problem
from generator.render.html import RenderedCard, render
from generator.render.plain_text import plain_math, plain_text
from generator.tex.commands import refused, table
from generator.tex.mathml import TexError, mathml

BASE = Path(__file__).parent / "library"
PATH = (BASE / "cards/numerics/kahan-sum.md").as_posix()
CARD = Path(PATH).read_text(encoding="utf-8")
MODULES = (BASE / "cards" / "modules.yml").read_text(encoding="utf-8")
TERMS = (BASE / "cards" / "glossary.yml").read_text(encoding="utf-8")
FACTS = (BASE / "cards" / "facts.yml").read_text(encoding="utf-8")
RECORD = (BASE / "runnable_demos/evidence/float_sums.cpu.json").read_text(encoding="utf-8")
PRINTED = (BASE / "runnable_demos/evidence/cards/kahan-sum.json").read_text(encoding="utf-8")

EXAMPLES = int(os.environ.get("PROOFDECK_FUZZ", "25"))
LONGEST_MESSAGE = 400
SECONDS = 20.0
"""Of CPU for one input of at most some thousand characters: what is linear takes a hundredth of that."""

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

LOADED, _ = library.load(BASE / "cards", demos=BASE / "runnable_demos")
PLAN, _ = syllabus.read(MODULES, "modules.yml")
GLOSSARY, _ = glossary_file.read(TERMS, "glossary.yml")


@contextmanager
def bounded() -> Iterator[None]:
    """What is done within must not take for ever."""
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


def sound(problems: Iterable[Problem], text: str, path: str) -> None:
    """Each problem points into the file that it names, and says in bounded words what to do."""
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for problem in problems:
        assert problem.message, problem
        assert problem.hint, problem
        assert len(problem.message) <= LONGEST_MESSAGE, problem.code
        assert len(problem.hint) <= 2 * LONGEST_MESSAGE, problem.code
        if problem.place.path == path:
            assert 1 <= problem.place.line <= len(rows), problem
            assert 1 <= problem.place.column <= len(rows[problem.place.line - 1]) + 2, problem


class _Everything:
    """Every card is written, every claim holds, no fact is known, and each fence prints its own code."""

    def verdict(self, claim: object) -> str:  # noqa: ARG002
        return "proven"

    def setting(self, link: object) -> None:
        """No setting is known."""

    def derived(self, link: object) -> None:
        """Nothing follows."""

    def fact(self, link: object) -> None:
        """There is none."""

    def is_drawn(self, link: object) -> bool:  # noqa: ARG002
        return True

    def printed(self, card: object, fence: Fence) -> str:  # noqa: ARG002
        return fence.code

    def is_written(self, card: str) -> bool:  # noqa: ARG002
        return True

    def mentions(self, text: str, lang: Lang) -> Iterator[Mention]:
        return GLOSSARY.mentions(text, lang)


def used(text: str) -> None:
    """A card's text through all that ever reads it."""
    assert LOADED
    assert PLAN
    with bounded():
        card, problems = parse(text, PATH)
        sound(problems, text, PATH)
        if card is None:
            return
        others = [each for name, each in LOADED.cards.items() if name != card.id]
        cards = (*others, card)
        known = (LOADED.evidence, LOADED.facts, LOADED.fences, LOADED.glossary)
        base = Base(Contents(LOADED.root, PLAN, cards, frozenset(), *known))
        found = checks.run(base)
        sound(found, text, PATH)
        _drawn(card)
        if not any(problem.severity == "error" for problem in (*problems, *found)):
            _exported(base.library)


def _drawn(card: Card) -> RenderedCard | None:
    for half in card.sections.values():
        for section in half.values():
            assert "\n" not in plain_text(section.tokens)
            for token in section.tokens:
                for at, child in enumerate(token.children or ()):
                    if child.type == "softbreak":
                        assert line_end(token.children or (), at) in {"", " "}
    try:
        return render(card, _Everything())
    except (TexError, KeyError):  # formulas and sources that ``check`` has named
        return None


def _exported(base: Library) -> None:
    assert [each.NAME for each in exporters.discover()]
    edition = bind(base)
    json.dumps([search_data(edition), study_data(edition)], allow_nan=False)
    with tempfile.TemporaryDirectory() as folder:
        vault.export(edition, Path(folder) / "vault")
    assert handbook.make(edition).startswith("<!")


# --- what goes in --------------------------------------------------------------------------------

MARKS = st.sampled_from(
    ["汉", "字", "，", "“", "”", "……", "——", "a", "GPU", "3", "16 B", "%", "$x$", "$", "$$", "`c`", "`", "```",
     "~~~", "**", "*", "_", "~~", "==", "[", "]", "(", ")", "![", "[[", "]]", "](given:)", "[3%](claim:a/b)",
     "[16 GB](fact:toy-gpu/memory)", "求和", "部分和", "partial sum", "ULP", "康汉求和", "Kahan addition",
     "[10,000](param:float_sums/count)",
     '[16 GB](calc: "{fact:toy-gpu/memory} × 1")',
     "<!-- #i often asks=i -->", "<!-- #j strong red-flag x=",
     "\n\n![x](figure:float_sums/error)\n\n", "![x](figure:float_sums/error@h200)",
     "![", "](figure:float_sums/error)", "![[4×](claim:float_sums/additions_ratio)](figure:a/b 'c')",
     "\n```python run\n",
     "[8 B](claim:float_sums/bytes_per_number)", "[x](card:rounding)", "[x](card:rounding#", "<https://x.org>",
     "<a@b.org>", "[<https://x.org>](card:rounding)", "[a](https://x.org 'b')", "[a](https%3A//x.org)", "[r]: x",
     "[r]: https://x.org 'y'", "[r]", "[^1]", "<b>", "</b>", "<!-- #i -->", "<!--", "-->", "&amp;", "&#0;",
     "&#x200b;", "&#xD800;", "&bogus;", "\\", "\\(", "\\)", "\\[", "\\*", "|", "\n", "\n\n", "  \n", "\n- ",
     "\n1. ", "\n> ", "\n> [!note]\n> ", "\n# ", "\n## ", "\n### ", "\n    ", "\t", "\n---\n", "\n===\n",
     "\n| a | b |\n|---|--:|\n| 3 GB | x |\n", "\n$$\nx\n$$\n", "\r", "\r\n", "\u200b", "\u202e", "\u00a0",
     "\u0301", "\ufeff", "\x00", "\x1b[31m", "\ud7ff", "\ufffe", "\U0001f600", "😀", "#tag", ":::", "{.a}", "{{", "%%",
     "- [ ] x", "\n-", " ", " ", "a" * 300, "(" * 40, "[" * 40, "> " * 25, "*a " * 30, "`" * 31, "<" * 30]
)  # fmt: skip
TEXTS = st.one_of(MARKS, MARKS, st.text(max_size=8))
BODIES = st.lists(TEXTS, max_size=25).map("".join)
TEX = st.lists(
    st.one_of(
        st.sampled_from([*table().examples.values(), *table().environments.values()]),
        st.sampled_from([*table().examples, *table().instead]).map(lambda name: name + " "),
        st.sampled_from(
            ["{", "}", "^", "_", "&", r"\\", "\\", "$", "%", "#", "~", "'", "''", "，", "汉", "[", "]", "\n", " ",
             r"\left", r"\right", r"\left.", r"\begin{", r"\end{cases}", r"\begin{aligned}", r"\text{", r"\def\a{\a}\a",
             r"\newcommand{\x}{\x\x}\x", r"\input{/etc/passwd}", r"\href{javascript:x}{y}", "<script>", "{" * 60,
             "^{" * 50, r"\sqrt" * 50, r"\frac" * 50, r"\left(" * 50, "x" * 500, "\u0301", "\x00", "^^41"]
        ),
        st.text(max_size=4),
    ),
    max_size=12,
).map("".join)  # fmt: skip
PLACES = [
    "## 核心要义",
    "## 推导",
    "## 工程权衡",
    "## 常见陷阱",
    "## 追问",
    "## 三十秒口述",
    "### 会写错的",
    "## 评分",
    "## What the interviewer listens for",
    "## Trade-offs",
    "## In one sentence",
]


@given(st.sampled_from(PLACES), BODIES)
@fuzzed
def test_any_markdown_in_any_section(heading: str, body: str) -> None:
    """Whatever stands in a section."""
    assert heading in CARD
    used(CARD.replace(f"{heading}\n", f"{heading}\n\n{body}\n", 1))


@given(BODIES, BODIES)
@fuzzed
def test_any_words_in_both_languages(zh: str, en: str) -> None:
    """Whatever stands in paragraphs of both halves, so that much of it gets as far as the exporters."""
    text = CARD.replace("## 工程权衡\n", f"## 工程权衡\n\n{zh}\n", 1)
    used(text.replace("## Trade-offs\n", f"## Trade-offs\n\n{en}\n", 1))


PAIRS = st.sampled_from(
    [("汉字", "words"), ("，", ","), ("“汉字”", "“words”"), ("——", "—"), ("**汉字**", "**bold**"), ("\n", "\n"),
     ("[数组](card:rounding)", "[an array](card:rounding)"), (" `x` ", " `x` "), (" $x_i$ ", " $x_i$ "),
     ("*强调*", "*so*"), (r"\*", r"\*"), (r"\[\[x\]\]", r"\[\[x\]\]"), (" a<b ", " a<b "), ("&lt;i&gt;", "&lt;i&gt;"),
     (" <https://x.org/?a&b> ", " <https://x.org/?a&b> "), ("\n\n- ", "\n\n- "), ("\n> ", "\n> "), ("😀", "😀"),
     ("\n\n> [!tip]\n> ", "\n\n> [!tip]\n> "), ("\n\n$$\nx^2\n$$\n\n", "\n\n$$\nx^2\n$$\n\n"), ("\\\n", "\\\n"),
     ("\n\n```python\n</script>\n```\n\n", "\n\n```python\n</script>\n```\n\n"), ("\n\n| 甲 |\n|---|\n| 乙 |\n\n",
      "\n\n| a |\n|---|\n| b |\n\n")]
)  # fmt: skip


@given(st.lists(PAIRS, max_size=25))
@fuzzed
def test_any_sound_words(pairs: list[tuple[str, str]]) -> None:
    """Whatever is put together of what cards do hold; most of it is exported."""
    zh, en = ("".join(each) for each in zip(*pairs, strict=True)) if pairs else ("", "")
    text = CARD.replace("## 工程权衡\n", f"## 工程权衡\n\n{zh}\n", 1)
    used(text.replace("## Trade-offs\n", f"## Trade-offs\n\n{en}\n", 1))


@given(TEX, st.booleans())
@fuzzed
def test_any_tex(tex: str, display: bool) -> None:
    """A formula is drawn, or refused at a place in it; its plain form is one line without commands."""
    with bounded():
        for each in refused(tex):
            assert 0 <= each.offset <= len(tex)
            assert len(each.what) <= 100
            assert len(each.hint) <= LONGEST_MESSAGE
        try:
            assert mathml(tex, display).startswith("<math")
        except TexError as error:
            assert 0 <= error.offset <= len(tex)
        assert "\n" not in plain_math(tex)
    math = f"$$\n{tex}\n$$" if display else f"${tex}$"
    used(CARD.replace("## 推导\n", f"## 推导\n\n{math}\n", 1))


@given(st.integers(0, len(CARD)), st.integers(0, 60), TEXTS)
@fuzzed
def test_any_cut_of_a_whole_card(at: int, length: int, text: str) -> None:
    """Anything cut out of a card or put in its place, front matter and headings included."""
    used(CARD[:at] + text + CARD[at + length :])


YAML = st.lists(
    st.one_of(
        st.sampled_from(
            ["id: ", "title: ", "zh: ", "en: ", "{", "}", "[", "]", ", ", ": ", "\n", "\n  ", "- ", '"', "'", "|", ">",
             "&a", "*a", "!!python/object:os.system", "!x", "# c", "%", "@", "null", "true", "2026-13-99", "1e999",
             ".nan", "0x", "~", "? ", "<<: ", "\t", "---", "...", '"\\u200b"', '"\\x00"', '"\\ud800"', "\u2028",
             "sources: {a: {title: x, url: 'https://x.org', where: y}}", "silenced: {claim: x}", "tags: [a, a]",
             "[" * 12, "a" * 300, "../..", "con", "-"]
        ),
        st.text(max_size=6),
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(YAML, st.integers(1, 12))
@fuzzed
def test_any_front_matter(yaml: str, row: int) -> None:
    """Whatever stands between the fences, in place of a row or alone."""
    rows = CARD.split("\n")
    used("\n".join([*rows[:row], yaml, *rows[row + 1 :]]))
    used(f"---\n{yaml}\n---\n" + CARD.partition("\n---\n")[2])


@given(YAML, st.integers(0, MODULES.count("\n")), st.integers(0, 3))
@fuzzed
def test_any_syllabus(yaml: str, row: int, gone: int) -> None:
    """Whatever stands in ``modules.yml``."""
    rows = MODULES.split("\n")
    for text in (yaml, "\n".join([*rows[:row], yaml, *rows[row + gone :]])):
        with bounded():
            _, problems = syllabus.read(text, "modules.yml")
            sound(problems, text, "modules.yml")


@given(YAML, st.integers(0, FACTS.count("\n")), st.integers(0, 3))
@fuzzed
def test_any_facts(yaml: str, row: int, gone: int) -> None:
    """Whatever stands in ``facts.yml``; what is left of it names its sources."""
    rows = FACTS.split("\n")
    for text in (yaml, "\n".join([*rows[:row], yaml, *rows[row + gone :]])):
        with bounded():
            facts, problems = fact_file.read(text, "facts.yml")
            sound(problems, text, "facts.yml")
            for keys in facts.entries.values():
                assert all(fact.source.url.startswith("https://") for fact in keys.values())


@given(YAML, st.integers(0, TERMS.count("\n")), st.integers(0, 3), BODIES)
@fuzzed
def test_any_glossary(yaml: str, row: int, gone: int, body: str) -> None:
    """Whatever stands in ``glossary.yml``; what is left of it finds its terms in any text, in their order."""
    rows = TERMS.split("\n")
    for text in (yaml, "\n".join([*rows[:row], yaml, *rows[row + gone :]])):
        with bounded():
            glossary, problems = glossary_file.read(text, "glossary.yml")
            sound(problems, text, "glossary.yml")
            _searched(glossary, body + text)


def _searched(glossary: Glossary, text: str) -> None:
    for lang in LANGS:
        at = 0
        for mention in glossary.mentions(text, lang):
            assert at <= mention.start < mention.end <= len(text)
            assert glossary.terms[mention.term.id] is mention.term
            at = mention.end


@given(st.integers(0, len(RECORD)), st.integers(0, 40), TEXTS)
@fuzzed
def test_any_record(at: int, length: int, text: str) -> None:
    """A record that was cut, edited or overwritten is named, and no number is held against it."""
    changed = RECORD[:at] + text + RECORD[at + length :]
    with tempfile.TemporaryDirectory() as folder, bounded():
        file = Path(folder) / "float_sums.cpu.json"
        file.write_text(changed, encoding="utf-8", errors="surrogatepass")
        evidence, problems = load_evidence(Path(folder), BASE / "runnable_demos")
        assert problems or json.loads(changed) == json.loads(RECORD)
        assert not evidence.records or changed.split() == RECORD.split() or problems == []
        sound(problems, changed, str(file))


@given(st.integers(0, len(PRINTED)), st.integers(0, 40), TEXTS)
@fuzzed
def test_any_record_of_fences(at: int, length: int, text: str) -> None:
    """One that was cut, edited or overwritten is named, and nothing is shown as printed."""
    changed = PRINTED[:at] + text + PRINTED[at + length :]
    with tempfile.TemporaryDirectory() as folder, bounded():
        file = Path(folder) / "cards" / "kahan-sum.json"
        file.parent.mkdir()
        file.write_text(changed, encoding="utf-8", errors="surrogatepass")
        found, problems = fence_records.load(Path(folder))
        assert bool(problems) != bool(found.records)
        assert problems or json.loads(changed) == json.loads(PRINTED)
        sound(problems, changed, str(file))
