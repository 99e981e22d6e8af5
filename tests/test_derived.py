"""What follows from other numbers: held against exact arithmetic, and refused where it does not follow."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import pytest

from generator import checks
from generator.authoring.refresh import refresh
from generator.cards.model import Calc, Param, Scenario
from generator.edition.edition import bind, input_row
from generator.evidence import derived, fact_file, settings
from generator.evidence.derived import Derived, Finding, Ground
from generator.evidence.evidence import Evidence, load_evidence
from generator.evidence.facts import Facts, PublicFact
from generator.evidence.settings import Setting
from generator.library import library
from generator.problems import Place, Problem

BASE = Path(__file__).parent / "library"
DEMOS = BASE / "runnable_demos"
EVIDENCE, _ = load_evidence(DEMOS / "evidence", DEMOS)
FACTS, _ = fact_file.read((BASE / "cards" / "facts.yml").read_text("utf-8"), "facts.yml")
SCENARIO = Scenario("toy-model", "toy-gpu", devices=8, batch=4, sequence=1024)
CARD = Path("cards/numerics/float-bytes.md")

KNOWN = {
    "{device/memory}": Fraction(16 * 10**9),
    "{fact:toy-gpu/memory}": Fraction(16 * 10**9),
    "{claim:float_sums/bytes_per_number}": Fraction(8),
    "{model/layers}": Fraction(4),
    "{param:float_sums/count}": Fraction(10_000),
    "{devices}": Fraction(8),
    "{batch}": Fraction(4),
    "{sequence}": Fraction(1024),
}
"""What the files of the small base say, in base units."""


def link(text: str, expression: str) -> Calc:
    """A number that a card calculates."""
    return Calc(Place("card.md", 1, 1), text, expression)


def judged(
    text: str,
    expression: str,
    evidence: Evidence = EVIDENCE,
    facts: Facts = FACTS,
    definitions: Mapping[str, str] = MappingProxyType({}),
) -> Derived | Problem:
    """What is said of it."""
    ground = Ground(SCENARIO, definitions, evidence, facts)
    return derived.judge(link(text, expression), ground)


@pytest.mark.parametrize("seed", range(60))
def test_a_product_of_known_numbers_is_that_of_exact_arithmetic(seed: int) -> None:
    """Each input has the value of the file that it names; the product printed in full stands, one more does not."""
    turn = random.Random(seed)
    chosen = turn.sample(sorted(KNOWN), turn.randrange(1, 4))
    worth = Fraction(1)
    for name in chosen:
        worth *= KNOWN[name]
    in_bytes = sum("memory" in name or "bytes" in name for name in chosen)
    expression = " × ".join(chosen) + " / (1 B)" * in_bytes
    found = judged(f"{int(worth)}", expression)
    assert isinstance(found, Derived), found
    assert {str(each.name): Fraction(each.value.number) for each in found.inputs} == {
        name[1:-1]: KNOWN[name] for name in chosen
    }
    off = judged(f"{int(worth) + 1}", expression)
    assert isinstance(off, Problem)
    assert off.code == "calc-number"


def test_each_input_has_its_proof() -> None:
    """A metric, a setting and a fact lead to what proves them; what is assumed to nothing."""
    expression = (
        "{claim:float_sums/bytes_per_number} × {param:float_sums/count} / {device/memory} "
        "× {devices}"
    )
    found = judged("4e-5", expression)
    assert isinstance(found, Derived)
    kinds = [type(each.proof) for each in found.inputs]
    assert kinds == [Finding, Setting, PublicFact, type(None)]
    assert [input_row(each).anchor for each in found.inputs] == [
        "ev-float_sums-bytes_per_number",
        "ev--set-float_sums-count",
        "ev--fact-toy-gpu-memory",
        "",
    ]
    assert found.substituted == "8 B × 10,000 / 16 GB × 8"
    assert found.state == "follows"


def test_what_rests_on_assumptions_alone_is_called_so() -> None:
    """Numbers and the scenario's counts prove nothing; one fact makes it follow."""
    for expression, state in (
        ("2 × 16 GB", "assumed"),
        ("{devices} × 4 GB", "assumed"),
        ("{devices} × {batch} × {sequence} / 1024 × 1 GB", "assumed"),
        ("2 × {device/memory}", "follows"),
        ("max(1 B, 2 × {device/memory})", "follows"),
        ("{model/layers} × {devices} × 1 GB", "follows"),
        ("{param:float_sums/count} × 3.2 MB", "follows"),
        ("{claim:float_sums/bytes_per_number} × 4e9", "follows"),
    ):
        found = judged("32 GB", expression)
        assert isinstance(found, Derived)
        assert found.state == state


def test_what_rests_on_a_stale_record_is_stale() -> None:
    """A metric or a setting of it is enough; a fact is none of its."""
    old = replace(EVIDENCE, stale=frozenset({("float_sums", "cpu")}))
    for expression, state in (
        ("2 × {claim:float_sums/bytes_per_number}", "stale"),
        ("{param:float_sums/count} × 1.6 mB", "stale"),
        ("{device/memory} / 1e9", "follows"),
    ):
        found = judged("16 B", expression.replace("1.6 mB", "0.0016 B"), old)
        assert isinstance(found, Derived), found
        assert found.state == state


DEFINED = {
    "half": "{device/memory} / 2",
    "both": "{calc:half} + {calc:half}",
    "wrong": "{calc:half} + 1",
    "assumed": "{devices} × 2 GB",
    "rests": "{calc:assumed} × 2",
    "ring": "{calc:chain} + {calc:half}",
    "chain": "2 × {calc:ring}",
    "self": "{calc:self}",
    **{f"deep-{n}": f"{{calc:deep-{n + 1}}}" for n in range(20)},
    "deep-20": "{device/memory}",
    **{f"many-{n}": " + ".join([f"{{calc:many-{n + 1}}}"] * 50) for n in range(7)},
    "many-7": "1 B",
}


@pytest.mark.parametrize(
    ("expression", "worth"),
    [
        ("{calc:half}", Fraction(8 * 10**9)),
        ("{calc:both} / {calc:half}", Fraction(2)),
        ("{calc:both} / 1 B − 3 × {calc:half} / 1 B", Fraction(-8 * 10**9)),
        ("{calc:deep-13}", Fraction(16 * 10**9)),
        ("{calc:many-0} / (1 B)", Fraction(50**7)),
    ],
)
def test_a_definition_is_worth_what_it_would_be_in_its_place(
    expression: str, worth: Fraction
) -> None:
    """Named, and named within one another, whatever number the card prints of them."""
    unit = " B" if "/" not in expression else ""
    found = judged(f"{worth.numerator}{unit}", expression, definitions=DEFINED)
    assert isinstance(found, Derived), found
    assert Fraction(found.value.number) == worth
    off = judged(f"{worth.numerator + 1}{unit}", expression, definitions=DEFINED)
    assert isinstance(off, Problem)
    assert off.code == "calc-number"


@pytest.mark.parametrize(
    ("expression", "code", "said"),
    [
        ("{calc:haf}", "calc-name", "`{calc:haf}`: the card defines no such"),
        ("{calc:Half}", "calc-form", "not written as a name"),
        ("{calc:wrong}", "calc-value", "`{calc:wrong}`: `+` joins bytes with a plain number"),
        ("{calc:self}", "calc-name", "`self` → `self`"),
        ("1 + {calc:chain}", "calc-name", "`chain` → `ring` → `chain`"),
        ("{calc:deep-0}", "calc-name", "more than 8 definitions"),
    ],
)
def test_a_definition_without_a_value_is_named(expression: str, code: str, said: str) -> None:
    """Unknown, wrong in itself, going round, or too deep: at the link that needs it."""
    found = judged("1", expression, definitions=DEFINED)
    assert isinstance(found, Problem)
    assert found.code == code
    assert said.replace("bytes", "B") in found.message.replace("bytes", "B")
    assert found.hint


def test_what_rests_on_a_definition_is_as_well_founded_as_that_is() -> None:
    """Assumed where it is, stale where it is; its steps stand before it, each once."""
    old = replace(EVIDENCE, stale=frozenset({("float_sums", "cpu")}))
    definitions = {**DEFINED, "measured": "{claim:float_sums/bytes_per_number}"}
    for expression, evidence, state in (
        ("{calc:rests}", EVIDENCE, "assumed"),
        ("{calc:rests} + {calc:half}", EVIDENCE, "follows"),
        ("{calc:measured}", EVIDENCE, "follows"),
        ("2 × {calc:measured}", old, "stale"),
    ):
        found = derived.derive(
            link("1", expression), Ground(SCENARIO, definitions, evidence, FACTS)
        )
        assert isinstance(found, Derived), found
        assert found.state == state
    found = judged("32 GB", "{calc:both} + {calc:half} + {calc:half}", definitions=DEFINED)
    assert isinstance(found, Derived)
    assert found.substituted == "16 GB + 8 GB + 8 GB"
    steps = [each.expression for each in found.steps()]
    assert steps == [DEFINED["half"], DEFINED["both"], found.expression]


def test_what_cannot_be_read_is_told_once_elsewhere() -> None:
    """A broken record or entry has a code that no rule repeats."""
    broken = Evidence(broken=frozenset({("float_sums", "cpu")}))
    unread = Facts(broken=frozenset({"toy-gpu"}))
    for expression, evidence, facts in (
        ("{claim:float_sums/bytes_per_number}", broken, FACTS),
        ("{param:float_sums/count}", broken, FACTS),
        ("{device/memory}", EVIDENCE, unread),
    ):
        found = judged("1", expression, evidence, facts)
        assert isinstance(found, Problem)
        assert found.code == derived.UNREAD


@pytest.mark.parametrize(
    "expression",
    [
        "9^9^9^9",
        "((" * 400,
        "{" * 900,
        "1" * 999,
        "10^" * 300 + "1",
        "exp(exp(exp(9)))",
        "1 / (1 - 1)",
        "a" * 5000,
        "{model/layers} + {device/memory}",
        "{claim:float_sums/naive_is_exact}",
        "{param:float_sums/device}",
        "{fact:nothing/at_all}",
        "",
        "   ",
        "{batch",
        "2 ×",
    ],
)
def test_what_has_no_value_is_one_problem_at_once(expression: str) -> None:
    """Slips and runaways are a problem with a place and a hint, within a fraction of a second."""
    start = time.process_time()
    found = judged("1", expression)
    assert time.process_time() - start < 1
    assert isinstance(found, Problem)
    assert found.code in {"calc-form", "calc-name", "calc-value"}
    assert found.hint
    assert "\n" not in found.message
    assert len(found.message) < 250


def test_a_setting_is_that_of_the_record() -> None:
    """The number stands as the record keeps it, whatever its form; any other does not."""
    recorded = json.loads((DEMOS / "evidence" / "float_sums.cpu.json").read_text("utf-8"))
    [count] = [each["value"] for each in recorded["parameters"] if each["name"] == "count"]
    for text, holds in ((f"{count:,}", True), ("1 万", True), (str(count + 1), False)):
        found = settings.judge(Param(Place("c", 1, 1), text, "float_sums", "count"), EVIDENCE)
        assert isinstance(found, Setting) == holds


# --- on cards ------------------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The small base, to change."""
    return Path(shutil.copytree(BASE, tmp_path / "base"))


def test_refresh_rewrites_what_follows_from_new_facts(base: Path) -> None:
    """Twice the memory gives twice the numbers, in the form of each language, references included; all else stays."""
    file = base / "cards" / "facts.yml"
    file.write_text(file.read_text("utf-8").replace("memory: 16 GB", "memory: 32 GB"), "utf-8")
    before = (base / CARD).read_text("utf-8")
    found, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    assert {problem.code for problem in problems} == {"fact-number", "calc-number"}
    refresh(found.cards, found.evidence, found.facts)
    pairs = {
        "[16 GB](fact": "[32 GB](fact",
        "[20 亿][": "[40 亿][",
        "[40 亿](calc": "[80 亿](calc",
        "[20 万](calc": "[40 万](calc",
        "[2 billion][": "[4 billion][",
        "[4 billion](calc": "[8 billion](calc",
        "[200,000](calc": "[400,000](calc",
    }
    expected = before
    for old, new in reversed(pairs.items()):
        assert old in expected
        expected = expected.replace(old, new)
    assert (base / CARD).read_text("utf-8") == expected
    assert not checks.load(base / "cards", demos=base / "runnable_demos")[1]


def test_refresh_rewrites_settings(base: Path) -> None:
    """A wrong setting is put right; the text of a link that is its own name is left to its author."""
    card = base / CARD
    text = card.read_text("utf-8")
    wrong = text.replace("[10,000](param", "[20,000](param")
    named = wrong.replace("[2 billion][how-many]", "[3 billion][]")
    card.write_text(f'{named}\n[3 billion]: calc: "{{device/memory}} / (8 B)"\n', "utf-8")
    found, _ = library.load(base / "cards", demos=base / "runnable_demos")
    assert found
    changes, problems = refresh(found.cards, found.evidence, found.facts)
    assert [change.after for change in changes] == ["10,000", "10,000"]
    assert [problem.code for problem in problems] == ["refresh"]
    assert "[3 billion][]" in card.read_text("utf-8")


def test_a_card_shows_what_its_numbers_rest_on() -> None:
    """Its panel has the metrics and settings of its calculations, its table the facts, its demos those runs."""
    found, _ = library.load(BASE / "cards", demos=DEMOS)
    assert found
    edition = bind(found, DEMOS)
    card = found.cards["float-bytes"]
    assert [each.expression for each in edition.derivations(card)] == [
        "{device/memory} / {claim:float_sums/bytes_per_number}",
        "{devices} × {calc:how-many}",
        "{device/memory} / ({param:float_sums/count} × {claim:float_sums/bytes_per_number})",
    ]
    [panel] = edition.panels(card)
    assert [row.parameter.name for row in panel.settings] == ["count"]
    assert {(fact.entry, fact.key) for fact in edition.facts(card)} >= {("toy-gpu", "memory")}
    assert list(edition.demos_of(card)) == ["float_sums"]
    assert edition.states["follows"] == 3
    assert edition.states["setting"] == 2
