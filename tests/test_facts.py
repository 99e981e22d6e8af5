"""Public facts: read with every fault in its place, judged exactly, stated with their source."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from generator import checks, words
from generator.authoring.refresh import wanted_facts
from generator.cards.model import Fact
from generator.edition.edition import bind
from generator.evidence import fact_file
from generator.evidence.facts import Facts, FactSource, PublicFact, judge
from generator.problems import Place, Problem
from generator.render.html import fact_title
from runnable_demos.lab.metrics import Unit

ROOT = Path(__file__).parents[1]
BASE = ROOT / "tests" / "library"
OURS = ROOT / "cards" / "facts.yml"
HERE = Place("x.md")

ENTRY = """\
card:
  name: {zh: 卡, en: the card}
  kind: device
  source: {title: Sheet, url: "https://example.org/a", where: Table 1, opened: 2026-11-29}
  as_of: 2026-11-28
  memory: 16 GB
  bf16: 98.5 TFLOP/s
  sources:
    bf16: {title: Page, url: "https://example.org/b", where: as quoted, opened: false}
  derived:
    memory: 2 × 8
"""


def read(text: str) -> tuple[Facts, list[Problem]]:
    """The facts in a text."""
    return fact_file.read(text, "facts.yml")


def link(text: str, key: str, entry: str = "card") -> Fact:
    """A link that states a fact."""
    return Fact(HERE, text, entry, key)


# --- the file ------------------------------------------------------------------------------------


def test_an_entry_is_read_with_the_source_of_each_key() -> None:
    """Units are those of evidence, words those of the key, and a key's own source goes first."""
    facts, problems = read(ENTRY)
    assert problems == []
    memory, bf16 = facts.entries["card"]["memory"], facts.entries["card"]["bf16"]
    assert memory == PublicFact(
        entry="card",
        key="memory",
        name={"zh": "卡", "en": "the card"},
        label=words.phrase("facts.memory"),
        value=Fraction(16 * 10**9),
        unit="B",
        shown="16 GB",
        derived="2 × 8",
        source=FactSource("Sheet", "https://example.org/a", "Table 1", date(2026, 11, 29)),
        as_of=date(2026, 11, 28),
    )
    assert (bf16.value, bf16.unit, bf16.derived) == (98_500_000_000_000, "FLOP/s", "")
    assert bf16.source == FactSource("Page", "https://example.org/b", "as quoted", None)


@pytest.mark.parametrize(
    ("written", "value", "unit", "shown"),
    [
        ("layers: 32", 32, "", "32"),
        ("parameters: 8030261248 param", 8030261248, "param", "8,030,261,248"),
        ("context: 8192 token", 8192, "token", "8,192"),
        ("memory: 81920 MiB", 81920 * 2**20, "B", "81920 MiB"),
        ("memory_bandwidth: 3.35 TB/s", 3_350_000_000_000, "B/s", "3.35 TB/s"),
        ("memory: 0.1 KB", 100, "B", "0.1 KB"),
    ],
)
def test_values_are_exact(written: str, value: int, unit: str, shown: str) -> None:
    """A value is the decimal that is written, in whole bytes, FLOPs or counts."""
    facts, problems = read(re.sub(r"  memory: .*\n  bf16: .*\n(.|\n)*", f"  {written}\n", ENTRY))
    assert problems == []
    [fact] = facts.entries["card"].values()
    assert (fact.value, fact.unit, fact.shown) == (value, unit, shown)


FAULTS = [
    # what is replaced, by what, the code, the line, what the message says, what the hint says
    ("  memory: 16", "  memroy: 16", "unknown-key", 6, "no key `memroy`", "Did you mean `memory`?"),
    ("  memory: 16", "  tdp: 16", "unknown-key", 6, "no key `tdp`", "labels: {tdp: {zh"),
    ("  source:", "  sorce:", "missing-key", 1, "`source` is missing", 'url: "https://'),
    ("  source: {", "  source: {page: 3, ", "unknown-key", 4, "no key `page`", "Known:"),
    (', where: Table 1', "", "missing-key", 4, "`source.where` is missing", "where:"),
    ('"https://example.org/a"', '""', "wrong-value", 4, "`source.url`", "https://"),
    ('"https://example.org/a"', '"http://example.org/a"', "wrong-value", 4, "`source.url`", "https://"),
    ("opened: 2026-11-29", "opened: true", "wrong-value", 4, "`source.opened`", "opened: 2026"),
    (", opened: 2026-11-29", "", "missing-key", 4, "`source.opened` is missing", "opened: 2026"),
    ("as_of: 2026-11-28", "as_of: lately", "wrong-value", 5, "`as_of`", "the day"),
    ("kind: device", "kind: gadget", "wrong-value", 3, "`kind`", "`model`, `device` or `link`"),
    (", en: the card", "", "wrong-language", 2, "`en` is missing", "a name in each language"),
    ("16 GB", "16 Gb", "wrong-value", 6, "“Gb” is no unit", "such as `80 GB`"),
    ("16 GB", "16 TB/s", "wrong-unit", 6, "`memory` is in B/s", "Write it in B."),
    ("16 GB", "16", "wrong-unit", 6, "`memory` is a plain number", "Write it in B."),
    ("16 GB", "a lot", "wrong-value", 6, "it prints no number", "such as `80 GB`"),
    ("16 GB", "true", "wrong-value", 6, "it is no number", "such as `80 GB`"),
    ("16 GB", "[16]", "wrong-value", 6, "it is no number", "such as `80 GB`"),
    ("16 GB", "16 GB param", "wrong-value", 6, "two units", "such as `80 GB`"),
    ("    bf16: {", "    fp16: {", "unknown-key", 9, "`sources` speaks of `fp16`", "`bf16`"),
    ("    memory: 2", "    memories: 2", "unknown-key", 11, "`derived` speaks of", "`memory`"),
    ("card:\n", "The Card:\n", "bad-id", 1, "kebab-case", "such as"),
    ("  bf16: 98", "  memory: 17 GB\n  bf16: 98", "duplicate-key", 7, "first in line 6", "Keep one"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "line", "says", "hint"), FAULTS)
def test_a_fault_is_told_where_it_stands(
    old: str, new: str, code: str, line: int, says: str, hint: str
) -> None:
    """Each fault is a problem with its place, what is wrong and how to mend it; its entry is not used."""
    assert ENTRY.count(old) == 1
    facts, problems = read(ENTRY.replace(old, new))
    found = [problem for problem in problems if problem.code == code]
    assert found, problems
    assert found[0].place.line == line
    assert says in found[0].message
    assert hint in found[0].hint
    if code != "duplicate-key":
        assert not facts.entries
        assert len(facts.broken) == 1


def test_a_second_entry_of_one_id_is_refused() -> None:
    """Of two entries with one id in a file the first counts, and the second is named."""
    facts, [problem] = read(ENTRY + ENTRY.replace("16 GB", "17 GB"))
    assert (problem.code, problem.place.line) == ("duplicate-key", 12)
    assert facts.entries["card"]["memory"].shown == "16 GB"


def test_an_entry_with_a_fault_leaves_the_others_alone() -> None:
    """One broken entry costs the links to it alone."""
    facts, _ = read(ENTRY.replace("16 GB", "16") + ENTRY.replace("card:\n", "other:\n"))
    assert facts.broken == {"card"}
    assert facts.entries.keys() == {"other"}
    assert (facts.is_unread("card"), facts.is_unread("other"), facts.is_unread("third")) == (
        True, False, False,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["- a\n", "a\n", "card: {\n", "\ta: b\n", "card:\n", "card: 3\n"])
def test_what_is_no_list_of_entries_is_one_problem(text: str) -> None:
    """Lists, words and broken YAML are named, and no link is blamed for them."""
    facts, problems = read(text)
    assert problems
    assert all(problem.hint for problem in problems)
    assert facts.is_unread("card")


def test_a_key_of_ones_own_has_its_own_words_and_any_unit() -> None:
    """What the program does not know is told to it by ``labels``."""
    text = ENTRY.replace("  memory: 16 GB", "  power: 250 s\n  labels: {power: {zh: 功, en: P}}")
    facts, problems = read(text.replace("    memory: 2 × 8", "    power: 2 × 8"))
    assert problems == []
    assert facts.entries["card"]["power"].label == {"zh": "功", "en": "P"}


def test_every_known_key_has_words_and_a_unit() -> None:
    """The table of words and that of units name the same keys, in units that a number can have."""
    assert fact_file.LABELS.keys() == fact_file.UNITS.keys()
    units = set(Unit.__args__) | {"param"}  # type: ignore[attr-defined]
    assert set(fact_file.UNITS.values()) <= units


def test_a_base_extends_the_facts_of_the_program(tmp_path: Path) -> None:
    """An own entry takes the place of one of the same id, as a whole; a broken one hides it."""
    packaged, _ = read(ENTRY + ENTRY.replace("card:\n", "other:\n"))
    own, _ = read(ENTRY.replace("16 GB", "24 GB").replace("  bf16: 98.5 TFLOP/s\n", "").replace(
        '    bf16: {title: Page, url: "https://example.org/b", where: as quoted, opened: false}',
        '    memory: {title: Page, url: "https://example.org/b", where: as quoted, opened: false}',
    ))  # fmt: skip
    both = packaged.extended(own)
    assert both.entries.keys() == {"card", "other"}
    assert {key: fact.shown for key, fact in both.entries["card"].items()} == {"memory": "24 GB"}
    broken, _ = read(ENTRY.replace("16 GB", "16"))
    hidden = packaged.extended(broken)
    assert hidden.entries.keys() == {"other"}
    assert hidden.is_unread("card")


def test_a_broken_entry_is_told_once(tmp_path: Path) -> None:
    """Where the file has the fault, the cards that state its facts are not blamed as well."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "cards" / "facts.yml"
    file.write_text(file.read_text("utf-8").replace("memory: 16 GB", "memory: 16"), "utf-8")
    found, problems = checks.load(tmp_path / "cards", demos=tmp_path / "runnable_demos")
    assert [(Path(p.place.path).name, p.code) for p in problems] == [("facts.yml", "wrong-unit")]
    assert found is not None
    card = found.cards["float-bytes"]
    assert [fact.entry for fact in bind(found).facts(card)] == ["toy-model"]
    assert (
        '<span class="pd-doubtful">16 GB</span>'
        in bind(found).rendered(card).sections["en"]["tradeoffs"].html
    )


# --- judging -------------------------------------------------------------------------------------


def public(value: Fraction, unit: str = "B") -> Facts:
    """A fact of this value, alone."""
    facts, _ = read(ENTRY)
    fact = facts.entries["card"]["memory"]
    made = PublicFact(
        **{**{n: getattr(fact, n) for n in fact.__slots__}, "value": value, "unit": unit}
    )
    return Facts({"card": {"memory": made}})


@given(st.integers(1, 10**16), st.integers(0, 3), st.sampled_from([0, 0, 1, -1]))
def test_a_number_is_held_against_the_fact_at_the_precision_printed(
    value: int, places: int, off: int
) -> None:
    """What decimal arithmetic prints, half up, is right, and one last digit more or less is wrong."""
    step = Decimal(1).scaleb(-places)
    printed = (Decimal(value) / 10**9).quantize(step, ROUND_HALF_UP) + off * step
    found = judge(link(f"{printed} GB", "memory"), public(Fraction(value)))
    if off == 0 and printed:
        assert isinstance(found, PublicFact)
    elif off:
        assert isinstance(found, Problem)
        assert found.code == "fact-number"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("16 GB", ""), ("16.00 GB", ""), ("14.9 GiB", ""), ("16,000 MB", ""), ("160 亿字节", ""),
        ("15.9 GB", "fact-number"), ("16 GiB", "fact-number"), ("16", "fact-unit"),
        ("16 GB/s", "fact-unit"), ("16 tokens", "fact-unit"), ("a lot", "fact-text"),
        ("16 GB, 17 GB", "fact-text"), ("", "fact-text"),
    ],
)  # fmt: skip
def test_what_is_printed_has_the_unit_of_the_fact(text: str, code: str) -> None:
    """Another prefix of the same unit will do; another unit, none, or no number will not."""
    found = judge(link(text, "memory"), read(ENTRY)[0])
    assert (found.code if isinstance(found, Problem) else "") == code


@pytest.mark.parametrize(
    ("text", "unit", "holds"),
    [
        ("8.03 billion", "param", True), ("80.3 亿", "param", True), ("8,030,261,248", "param", True),
        ("8.03 GB", "param", False), ("8.03B", "param", False), ("8030261248 tokens", "token", True),
        ("8030261248", "token", True), ("8030261248", "", True), ("8030261248 tokens", "", False),
    ],
)  # fmt: skip
def test_what_is_counted_stands_behind_the_number(text: str, unit: str, holds: bool) -> None:
    """Parameters and tokens are counts: their number needs no unit, and bytes are no parameters."""
    found = judge(link(text, "memory"), public(Fraction(8030261248), unit))
    assert isinstance(found, PublicFact) is holds


def test_refresh_prints_the_fact_in_the_form_of_the_card() -> None:
    """Another number is rewritten as precise as before; what is right, or of another kind, is left alone."""
    facts, _ = read(ENTRY)
    wrong = [link("15.00 GB", "memory"), link(r"$98\,\text{TFLOPS}$", "bf16")]
    left = [link("16 GB", "memory"), link("16", "memory"), link("16 GB", "size")]
    changes, problems = wanted_facts([*wrong, *left], facts)
    assert [(each.before, each.after) for each in changes] == [
        ("15.00 GB", "16.00 GB"),
        (r"$98\,\text{TFLOPS}$", r"$99\,\text{TFLOPS}$"),
    ]
    assert problems == []
    changes, [problem] = wanted_facts([link("2^3 B", "memory")], facts)
    assert changes == []
    assert (problem.code, problem.place) == ("refresh", HERE)


# --- our own file --------------------------------------------------------------------------------


def ours() -> Facts:
    """The facts that come with the program."""
    facts, problems = fact_file.read(OURS.read_text("utf-8"), str(OURS))
    assert problems == []
    return facts


def derivations() -> Iterator[tuple[PublicFact, dict[str, Fraction]]]:
    """Each derived fact, with the values of its entry."""
    for keys in ours().entries.values():
        values = {key: fact.value for key, fact in keys.items()}
        yield from ((fact, values) for fact in keys.values() if fact.derived)


def test_every_derived_fact_follows_from_its_entry() -> None:
    """Python evaluates each expression over the other keys, exactly, and gets the value."""
    count = 0
    for fact, values in derivations():
        assert re.fullmatch(r"[a-z_0-9 ×/^()+-]+", fact.derived)
        others = {key: value for key, value in values.items() if key != fact.key}
        expression = fact.derived.replace("×", "*").replace("^", "**")
        got = eval(expression, {"__builtins__": {}}, others)
        assert got == fact.value, (fact.entry, fact.key)
        count += 1
    assert count > 30


STATED = {
    # counts of parameters that public checkpoints and tools print, read apart from the shapes
    "gpt2-small": 124439808, "gpt2-xl": 1557611200, "llama-2-7b": 6738415616,
    "llama-2-13b": 13015864320, "llama-3-8b": 8030261248, "llama-3-70b": 70553706496,
    "llama-3-1-405b": 405853388800, "mixtral-8x7b": 46702792704, "deepseek-v3": 671026419200,
    "qwen2-5-7b": 7615616512, "qwen2-5-72b": 72706203648,
}  # fmt: skip


def test_counts_of_parameters_are_those_of_the_checkpoints() -> None:
    """What the shapes give is what others counted; rounding to what the publisher says is near."""
    entries = ours().entries
    for name, count in STATED.items():
        assert entries[name]["parameters"].value == count
    for keys in entries.values():
        for key in ("parameters", "active_parameters"):
            if f"{key}_stated" in keys:
                assert abs(keys[key].value / keys[f"{key}_stated"].value - 1) < Fraction(4, 100)


def test_every_entry_that_was_asked_for_is_there() -> None:
    """Models with their shape, devices with memory, bandwidth and peak, links with a direction."""
    kinds = {name: each["kind"] for name, each in yaml.safe_load(OURS.read_text("utf-8")).items()}
    needed = {
        "model": {"layers", "width", "heads", "kv_heads", "head_width", "feed_forward", "vocabulary",
                  "parameters", "context"},
        "device": {"memory", "memory_bandwidth", "bf16"},
        "link": {"per_direction"},
    }  # fmt: skip
    entries = ours().entries
    assert len(entries) >= 22
    for name, keys in entries.items():
        assert needed[kinds[name]] <= keys.keys(), name
    assert all("fp8" in entries[n] for n, k in kinds.items() if k == "device" and "a100" not in n)


def test_a_quotation_is_not_called_the_document() -> None:
    """What was read as quoted says so in both places, and nothing else does."""
    for keys in ours().entries.values():
        for fact in keys.values():
            assert (fact.source.opened is None) == ("as quoted" in fact.source.where)


def test_the_title_of_a_fact_says_what_and_where() -> None:
    """Name, key, work, place and day, in the reader's language."""
    fact = read(ENTRY)[0].entries["card"]["memory"]
    assert fact_title(fact) == {
        "zh": "卡：显存。Sheet，Table 1（2026-11-28）",
        "en": "the card: memory. Sheet, Table 1 (2026-11-28)",
    }
