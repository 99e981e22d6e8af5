"""YAML as plain data with places."""

from __future__ import annotations

from datetime import date

import pytest

from generator.cards import yaml_document
from generator.lines import Lines
from generator.problems import Place


def read(text: str) -> yaml_document.Document:
    """The document in a text."""
    return yaml_document.read(Lines("a.yml", text))


def test_values_are_plain_data() -> None:
    """Scalars become what they look like; what only looks like a date or a number stays text."""
    document = read(
        "a: text\nb: 1\nc: 1.5\nd: true\ne: 2026-11-29\nf: 2026-02-30\ng:\nh: [1, {i: 'no'}]\nj: 0o9"
    )
    assert document.problems == ()
    assert document.value == {
        "a": "text", "b": 1, "c": 1.5, "d": True, "e": date(2026, 11, 29), "f": "2026-02-30",
        "g": None, "h": [1, {"i": "no"}], "j": "0o9",
    }  # fmt: skip


def test_keys_and_entries_have_places() -> None:
    """The place of a key is where it begins, that of an entry where its value does."""
    document = read("a:\n  b: [x, {c: y}]\n  d:\n    - z\n")
    expected = {
        "a": (1, 1), "a.b": (2, 3), "a.b.0": (2, 7), "a.b.1": (2, 10), "a.b.1.c": (2, 11),
        "a.d": (3, 3), "a.d.0": (4, 7),
    }  # fmt: skip
    assert document.places == {key: Place("a.yml", *spot) for key, spot in expected.items()}


def test_places_count_lines_as_editors_do() -> None:
    """YAML ends lines at U+2028 and U+0085, too; a place does not."""
    document = read("a: 'x\u2028y'\nb: 'x\u0085y'\nc: 汉字\nd: [汉字, z]\n")
    assert document.places["b"] == Place("a.yml", 2, 1)
    assert document.places["d.1"] == Place("a.yml", 4, 9)


def test_part_of_a_file_has_the_places_of_the_file() -> None:
    """Reading from the middle of a file counts from its top."""
    lines = Lines("a.yml", "one\ntwo: 2\nthree\n")
    document = yaml_document.read(lines, lines.start(1), lines.start(2))
    assert (document.value, document.places["two"]) == ({"two": 2}, Place("a.yml", 2, 1))


def test_nothing_is_no_value() -> None:
    """An empty document has no value and no problem."""
    for text in ("", "# only a comment\n"):
        document = read(text)
        assert (document.value, document.problems) == (None, ())


@pytest.mark.parametrize(
    ("text", "code", "spot"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", (3, 1)),
        ("a:\n\t- x\n", "yaml-tab", (2, 1)),
        ("a:\n  \t- x\n", "yaml-tab", (2, 3)),
        ("a: b\n\t\n", "yaml-tab", (2, 1)),
        ("a: &b c\n", "yaml-alias", (1, 4)),
        ("a: *b\n", "yaml-alias", (1, 4)),
        ("<<: *b\n", "yaml-alias", (1, 5)),
        ("a: !!int 3\n", "yaml-tag", (1, 4)),
        ("[" * 9 + "]" * 9, "yaml-depth", (1, 9)),
        ("? [a]\n: b\n", "yaml-key", (1, 3)),
        ("a: [b\n", "yaml-syntax", (2, 1)),
        ("a: b\n--- \nc: d\n", "yaml-syntax", (2, 1)),
        ("a: b: c\n", "yaml-syntax", (1, 5)),
        ("a: @b\n", "yaml-syntax", (1, 4)),
    ],
)
def test_a_fault_has_a_code_and_a_place(text: str, code: str, spot: tuple[int, int]) -> None:
    """What cannot be read, or may not be, is named where it stands."""
    (problem,) = read(text).problems
    assert (problem.code, problem.place) == (code, Place("a.yml", *spot))


def test_a_tab_that_indents_nothing_is_left_alone() -> None:
    """Tabs within a line harm nobody."""
    assert read("a:\tb\tc\n").value == {"a": "b\tc"}
