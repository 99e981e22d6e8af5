"""The grammar of ``calc:`` expressions, against Python's own precedence and hand-made cases."""

from __future__ import annotations

import pickle
import time
from dataclasses import FrozenInstanceError, fields, is_dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from generator.evidence import expressions
from generator.evidence.calc import Value, evaluate
from generator.evidence.expressions import CalcError, Name, names, parse, references

SECONDS = 0.5
"""Of CPU for any text: what is bounded takes a thousandth of that."""


def value_of(text: str) -> float:
    """The value of a text without names, which must be a plain number."""
    value = evaluate(parse(text), {})
    assert value.unit == ""
    return value.number


# --- precedence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 × 4", 14), ("(2 + 3) × 4", 20), ("2+3*4-5", 9), ("10 − 4 − 3", 3), ("10 − (4 − 3)", 9),
        ("24 / 4 / 2", 3), ("24 / (4 / 2)", 12), ("24 / 4 × 2", 12), ("2 × 3^2", 18), ("2^3^2", 512),
        ("(2^3)^2", 64), ("−2^2", -4), ("(−2)^2", 4), ("2^−1", 0.5), ("2^-1", 0.5), ("2 × −3", -6),
        ("−−3", 3), ("5 − −3", 8), ("−2^−2", -0.25), ("2^(1 + 2)", 8), ("1.5e3", 1500), ("1E−3", 0.001),
        ("1e-3", 0.001), ("2e+3", 2000), ("007", 7), ("min(3, 1, 2)", 1), ("max(3, 1 + 4, 2)", 5),
        ("max(1, 234)", 234), ("sqrt(16) + 1", 5), ("log2(8)^2", 9), ("ceil(7 / 2)", 4),
        ("floor(7 / 2)", 3), ("ceil(−7 / 2)", -3), ("floor(−7 / 2)", -4), ("exp(0)", 1), ("ln(1)", 0),
        ("min(max(1, 2), sqrt(9))", 2), ("((((5))))", 5), ("\t2\n×\u00a03 ", 6), ("50 %", 0.5),
        ("(1 + 1) %", 0.02), ("3 token", 3), ("2^3 %", 1.021012125707193),
    ],
)  # fmt: skip
def test_a_text_is_read_as_people_mean_it(text: str, value: float) -> None:
    """Products bind before sums, powers before signs; powers from the right, all else from the left."""
    assert value_of(text) == pytest.approx(value, rel=1e-15, abs=0)


leaves = st.integers(0, 9).map(lambda n: (str(n), f"Fraction({n})"))


def _joined(children: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    """Longer texts in both notations, with whatever spaces, and parentheses where they are drawn."""
    pairs = [("+", "+"), ("−", "-"), ("-", "-"), ("×", "*"), ("*", "*")]
    space = st.sampled_from(["", " "])
    sums = st.tuples(children, st.sampled_from(pairs), children, space).map(
        lambda each: (
            f"{each[0][0]}{each[3]}{each[1][0]}{each[3]}{each[2][0]}",
            f"{each[0][1]} {each[1][1]} {each[2][1]}",
        )
    )
    signs = children.map(lambda each: (f"−{each[0]}", f"-{each[1]}"))
    groups = children.map(lambda each: (f"({each[0]})", f"({each[1]})"))
    halves = children.map(lambda each: (f"{each[0]}/4", f"{each[1]} / Fraction(4)"))
    squares = st.tuples(children, st.integers(0, 2)).map(
        lambda each: (f"{each[0][0]}^{each[1]}", f"{each[0][1]} ** {each[1]}")
    )
    return st.one_of(sums, signs, groups, halves, squares)


@given(st.recursive(leaves, _joined, max_leaves=8))
def test_texts_are_read_as_python_reads_them(pair: tuple[str, str]) -> None:
    """With ``*`` and ``**`` for ``×`` and ``^``, Python's own parser and exact fractions say the same.

    The texts are joined without regard to precedence, so that a wrong order shows.
    """
    text, python = pair
    exact = eval(python, {"Fraction": Fraction})
    try:
        found = value_of(text)
    except CalcError as error:
        assert "more than" in error.message or "beyond" in error.message
        return
    assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


# --- names ---------------------------------------------------------------------------------------

NAMES = {
    "claim:flash/speed_up": Name("claim", "flash", "speed_up", "cpu"),
    "claim:flash/speed_up@h200": Name("claim", "flash", "speed_up", "h200"),
    "claim:flash/speed_up@rtx-4090": Name("claim", "flash", "speed_up", "rtx-4090"),
    "param:flash/layers": Name("param", "flash", "layers"),
    "fact:gpt-9-7b/kv_heads": Name("fact", "gpt-9-7b", "kv_heads"),
    "model/parameters": Name("model", key="parameters"),
    "device/bf16": Name("device", key="bf16"),
    "devices": Name("devices"),
    "batch": Name("batch"),
    "sequence": Name("sequence"),
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_read_and_written(text: str) -> None:
    """Each form of a name gives its parts, and is written as it was read."""
    (name,) = names(parse(f"2 × {{{text}}}"))
    assert name == NAMES[text]
    assert str(name) == text


def test_the_record_on_the_cpu_is_what_a_claim_means() -> None:
    """``@cpu`` says what is meant without it, and is the same name."""
    assert names(parse("{claim:a/b@cpu} + {claim:a/b}")) == (Name("claim", "a", "b", "cpu"),)


def test_names_come_once_in_their_order() -> None:
    """A name that stands twice is one name with two places."""
    text = "{batch} × max({devices}, −{batch}) + ({sequence} / {devices}) %"
    expression = parse(text)
    assert [str(each) for each in names(expression)] == ["batch", "devices", "sequence"]
    found = list(references(expression))
    assert [str(each.name) for each in found] == [
        "batch",
        "devices",
        "batch",
        "sequence",
        "devices",
    ]
    assert [text[each.column - 1 : each.end - 1] for each in found] == [
        "{batch}", "{devices}", "{batch}", "{sequence}", "{devices}",
    ]  # fmt: skip


# --- the tree ------------------------------------------------------------------------------------


def nodes(node: Any) -> list[Any]:
    """A node and all below it."""
    if isinstance(node, tuple):
        return [each for part in node for each in nodes(part)]
    if not is_dataclass(node) or isinstance(node, Name):
        return []
    return [node, *(n for each in fields(node) for n in nodes(getattr(node, each.name)))]


def test_every_node_knows_its_column() -> None:
    """At a node's column stands its operator, its sign, its function, its number or its unit."""
    text = "−{batch} + min(2 GB, 3)/ 7.5 × (4 - 1) KiB ^ exp( 0 ) * 1"
    starts = {
        "Number": "0123456789", "Reference": "{", "Negation": "−", "Operation": "+/×-^*",
        "Call": "me", "WithUnit": "K",
    }  # fmt: skip
    found = nodes(parse(text).root)
    assert len(found) == 18
    assert {type(each).__name__ for each in found} == starts.keys()
    for each in found:
        assert text[each.column - 1] in starts[type(each).__name__], each
    assert len({each.column for each in found}) == len(found)


def test_a_tree_is_frozen_and_kept() -> None:
    """Trees and errors are equal to what they are read again as from a cache, and cannot be changed."""
    expression = parse("{claim:a/b} × (2 + 3) KB")
    assert pickle.loads(pickle.dumps(expression)) == expression
    assert parse(expression.text) == expression
    assert hash(parse(expression.text)) == hash(expression)
    with pytest.raises(FrozenInstanceError):
        expression.root.column = 3  # type: ignore[misc]
    error = pickle.loads(pickle.dumps(CalcError(3, "this is wrong", "Mend it.")))
    assert (error.column, str(error), error.hint) == (3, "this is wrong", "Mend it.")


# --- what is refused -----------------------------------------------------------------------------

REFUSED = [
    # text, column, words of the message, words of the hint
    ("", 1, "no expression", "{devices} ×"),
    ("   ", 1, "no expression", "{devices} ×"),
    ("2 +", 4, "ends too early", "number"),
    ("2 + ", 5, "ends too early", "number"),
    ("× 2", 1, "`×` stands where", "number"),
    ("+2", 1, "`+` stands where", "number"),
    ("2 × / 3", 5, "`/` stands where", "number"),
    ("()", 2, "`)` stands where", "number"),
    ("min()", 5, "`)` stands where", "number"),
    ("min(1,)", 7, "`)` stands where", "number"),
    ("(2 + 3", 1, "not closed", "`)`"),
    ("4 × (2 × (3 + 1)", 5, "not closed", "`)`"),
    ("2 + 3)", 6, "closes nothing", "open it"),
    ("2 3", 3, "operator is missing", "`×`"),
    ("2 {batch}", 3, "operator is missing before `{batch}`", "`×`"),
    ("2(3)", 2, "operator is missing", "`×`"),
    ("(2)(3)", 4, "operator is missing", "`×`"),
    ("{batch}{batch}", 8, "operator is missing", "`×`"),
    ("2 sqrt(3)", 3, "operator is missing before `sqrt`", "`×`"),
    ("5 min(3, 4)", 3, "operator is missing before `min`", "`×`"),
    ("2 x 3", 3, "`x` is no operator", "`×`"),
    ("2 times 3", 3, "`times` is no operator", "`×`"),
    ("2**3", 2, "`**` is no operator", "`^`"),
    ("2 × ** 3", 5, "`**` is no operator", "`^`"),
    ("2 ÷ 3", 3, "`÷` cannot stand", "`/`"),
    ("2 · 3", 3, "`·` cannot stand", "`×`"),
    ("2 – 3", 3, "`–` cannot stand", "`−`"),
    ("（2）", 1, "`（` cannot stand", "`(`"),
    ("10⁹", 3, "`⁹` cannot stand", "10^9"),
    ("4_096", 2, "`_` cannot stand", "4096"),
    ("4,096", 2, "comma", "4096"),
    ("4 096", 3, "operator is missing", "`×`"),
    ("(4,096)", 3, "comma", "4096"),
    ("max(4,096, 3)", 5, "`4,096` may be one number or two", "4096"),
    ("max(1,234)", 5, "`1,234` may be one number or two", "space behind"),
    (".5", 1, "`.` cannot stand", "0.5"),
    ("5.", 2, "`.` cannot stand", "0.5"),
    ("1.5.2", 4, "`.` cannot stand", "0.5"),
    ("√2", 1, "`√` cannot stand", "sqrt"),
    ("$2$", 1, "`$` cannot stand", "TeX"),
    ("2\\times3", 2, r"`\` cannot stand", "TeX"),
    ("2 = 2", 3, "`=` cannot stand", "the link prints"),
    ("2\u202e3", 2, r"`\u202e` cannot stand", "An expression holds"),
    ("1e400", 1, "`1e400` is too large", "1e300"),
    ("1e-400", 1, "`1e-400` is too small", "1e-300"),
    ("1e999999999", 1, "too large", "1e300"),
    ("1e300 EB", 1, "too large", "1e300"),
    ("2 +" + "9" * 400, 4, "too large", "1e300"),
    ("log(2)", 1, "no function `log`", "`ln(…)`"),
    ("sqr(2)", 1, "no function `sqr`", "`sqrt`"),
    ("eval(2)", 1, "no function `eval`", "A name stands"),
    ("devices × 2", 1, "no function `devices`", "{devices}"),
    ("sqrt", 1, "`sqrt` has no arguments", "sqrt(…)"),
    ("sqrt 4", 1, "`sqrt` has no arguments", "sqrt(…)"),
    ("sqrt(1, 2)", 1, "one argument, not 2", "sqrt(a)"),
    ("min(1)", 1, "two or more arguments, not 1", "min(a, b)"),
    ("1 / s", 5, "unit `s` follows no number", "`1 s`"),
    ("GB", 1, "unit `GB` follows no number", "`1 GB`"),
    ("3 gb", 3, "`gb` is no unit", "Units are"),
    ("3 GiBs", 3, "`GiBs` is no unit", "`GiB`"),
    ("3 字节", 3, "`字节` is no unit", "Write `B`"),
    ("3 毫秒", 3, "`毫秒` is no unit", "Write `ms`"),
    ("3 层", 3, "`层` is no unit", "Units are"),
    ("{batch} B", 9, "unit `B` follows a name", "`1 B`"),
    ("{batch} foo", 9, "`foo` is no unit", "Units are"),
    ("2 B B", 5, "operator is missing before `B`", "`×`"),
    ("{", 1, "`{` is not closed", "Close it"),
    ("{devices", 1, "`{` is not closed", "Close it"),
    ("devices}", 8, "`}` cannot stand", "Open it"),
    ("{}", 1, "names nothing", "`{devices}`"),
    ("{device}", 1, "not written as a name", "`{device/key}`"),
    ("{dvices}", 1, "names nothing", "Did you mean `devices`"),
    ("{devices/x}", 1, "not written as a name", "`{devices}`"),
    ("{ devices }", 1, "not written as a name", "`{devices}`"),
    ("{claims:a/b}", 1, "names nothing", "Did you mean `claim`"),
    ("{claim:a}", 1, "not written as a name", "{claim:demo_name/metric_name}"),
    ("{claim:a/b@H200}", 1, "not written as a name", "@h200"),
    ("{claim:a-b/c}", 1, "not written as a name", "{claim:demo_name/metric_name}"),
    ("{param:a/b@h200}", 1, "not written as a name", "{param:demo_name/parameter_name}"),
    ("{fact:A/b}", 1, "not written as a name", "{fact:fact-id/key}"),
    ("{model/kv-heads}", 1, "not written as a name", "{model/key}"),
    ("{wrong:a/b}", 1, "names nothing", "{claim:demo_name/metric_name}"),
    ("{claim:a/b\n}", 1, "not written as a name", "{claim:demo_name/metric_name}"),
    ("(" * 40 + "1" + ")" * 40, 33, "more than 32 parentheses", "Take away"),
    ("−" * 40 + "1", 33, "more than 32", "Take away"),
    ("2" + "^2" * 40, 66, "more than 32", "Take away"),
    ("1" + "+1" * 120, 201, "more than 100 numbers", "lines of their own"),
    ("1 " * 501, 1001, "1002 characters", "at most 1000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message", "hint"), REFUSED)
def test_what_is_refused_is_told(text: str, column: int, message: str, hint: str) -> None:
    """What does not parse has its column, says what it is, and what to write."""
    with pytest.raises(CalcError) as caught:
        parse(text)
    assert caught.value.column == column
    assert message in caught.value.message
    assert hint in caught.value.hint


# --- any text ------------------------------------------------------------------------------------

WORDS = [
    *expressions.FUNCTIONS, *"+−-×*/^(),.{}%", "**", "0", "2", "9", "1.5", "1e3", "1e308", "1e-308", "e", "E",
    "B", "GB", "GiB/s", "ms", "param", "token", "min", "x", "{batch}", "{claim:a/b}", "{fact:a/b}",
    "{model/width}", "{claim:", " ", "\n", "字节", "\ud800", "\x00", "²", "９",
]  # fmt: skip
VALUES = {
    Name("batch"): Value(8.0),
    Name("claim", "a", "b", "cpu"): Value(16.0, "B/param"),
    Name("fact", "a", "b"): Value(-1e300, "B"),
}
texts = st.one_of(st.lists(st.sampled_from(WORDS), max_size=60).map("".join), st.text(max_size=200))


@given(texts)
@example("9^9^9^9")
@example("9^9^9^9^9^9^9^9^9")
@example("((((9^999999)^999999)^999999)^999999)")
@example("1.0000001^1000000^1")
@example("(" * 1000)
@example("−" * 1000)
@example("{" * 1000)
@example("1+" * 499 + "1")
@example("min(" * 200 + "1" + ",1)" * 200)
@example("sqrt(" * 33 + "2" + ")" * 33)
@example("1" * 1000)
@example("0." + "0" * 990 + "1")
@example("1e" + "9" * 900)
@example("(" * 31 + "1" + " B)^9" * 31)
@example("x" * 1000)
@example("9" * 10**6)
def test_any_text_has_a_value_or_an_error(text: str) -> None:
    """Whatever is written gives a finite number or says where, what and how to mend it, at once."""
    start = time.process_time()
    try:
        expression = parse(text)
        value = evaluate(expression, VALUES)
    except CalcError as error:
        assert 1 <= error.column <= len(text) + 1
        assert error.message
        assert error.hint
        assert len(error.message) + len(error.hint) < 400
    else:
        assert abs(value.number) < float("inf")
        assert all(1 <= each.column <= len(text) for each in nodes(expression.root))
    assert time.process_time() - start < SECONDS
