"""Discovery: demos are found by reading their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnable_demos.lab import discovery
from runnable_demos.lab.table import Measure, Method, Table

DEMO = """
raise SystemExit("a demo is never executed to be found")
TITLE: Text = {"zh": "题", "en": "A " "title"}
QUESTION = {"zh": "问？", "en": "Why?"}
REQUIRES = ("triton",)
GPU = 3
MEASURES = '''
[[method]]
kind = "exact"
how = ["数", "counted"]
[method.metrics]
count = ["", "个数", "a count"]
'''
class Config:
    n: int = parameter(1, {"zh": "数", "en": "number"})
    free: int = 2
PRESETS = {"small": 1}
def run(config, progress): ...
"""
COUNTED = Method("exact", {"zh": "数", "en": "counted"})


def test_a_demo_is_described_without_being_imported(tmp_path: Path) -> None:
    """Name, title, question and required packages are read from the syntax tree."""
    (tmp_path / "one.py").write_text(DEMO, encoding="utf-8")
    (tmp_path / "helper.py").write_text("def run(): ...\n")
    (tmp_path / "notes.txt").write_text("PRESETS")
    assert discovery.discover(tmp_path) == {
        "one": discovery.Demo(
            "one",
            tmp_path / "one.py",
            {"zh": "题", "en": "A title"},
            {"zh": "问？", "en": "Why?"},
            Table({"count": Measure("", {"zh": "个数", "en": "a count"}, COUNTED)}, {}),
            {"n": {"zh": "数", "en": "number"}},
            ("triton",),
            3,
        )
    }


def test_a_missing_folder_holds_no_demo(tmp_path: Path) -> None:
    """A base without demos is a base."""
    assert discovery.discover(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(:\n", r"one\.py:1: this file is not valid Python"),
        ("PRESETS = {}\ndef run(): ...\n", r"one\.py:1: a demo says its TITLE"),
        (DEMO.replace('"A " "title"', "title"), r"one\.py:3: this value must be a literal"),
        (DEMO.replace('"en": "Why?"', '"fr": "?"'), r"one\.py:4: QUESTION must hold words for"),
        (DEMO.replace('"en": "Why?"', '"en": " "'), r"one\.py:4: QUESTION must hold words for"),
        (DEMO.replace('"en": "Why?"', '"en": 5'), r"one\.py:4: QUESTION must hold words for"),
        (DEMO.replace('"Why?"', '"Why?", "fr": "?"'), r"one\.py:4: QUESTION must hold words for"),
        (DEMO.replace('{"zh": "问？", "en": "Why?"}', "{[]: 1}"), r"one\.py:4: this value must be"),
        (DEMO + 'MEASURES += "x"\n', r"one\.py:7: MEASURES must be set once"),
        (DEMO.replace('("triton",)', '("triton")'), r"one\.py:5: REQUIRES must be a tuple"),
        (DEMO.replace("GPU = 3", "GPU = True"), r"one\.py:6: GPU must be its place"),
        (DEMO.replace("GPU = 3", "GPU = 0"), r"one\.py:6: GPU must be its place"),
        (DEMO.replace("MEASURES", "MEASURED"), r"one\.py:1: a demo says in MEASURES"),
        (DEMO.replace('"exact"', '"exakt"'), r"one\.py:7: MEASURES: kind of method 1 should be"),
        (
            DEMO.replace('{"zh": "数", ', "{"),
            r"one\.py:15: the help of a parameter must hold words",
        ),
    ],
)
def test_a_broken_demo_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Each fault is one sentence with file and line."""
    (tmp_path / "one.py").write_text(text, encoding="utf-8")
    with pytest.raises(discovery.DemoError, match=message):
        discovery.discover(tmp_path)


def test_help_that_is_no_literal_is_left_to_the_run(tmp_path: Path) -> None:
    """It cannot be read here, so it counts as code."""
    text = DEMO.replace('{"zh": "数", "en": "number"}', "HELP")
    (tmp_path / "one.py").write_text(text, encoding="utf-8")
    assert discovery.discover(tmp_path)["one"].help == {}
