"""The table of a demo: what is read of it, what fills it in, and that its words can be renewed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from runnable_demos.lab import discovery, records, table, words
from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.metrics import (
    Axis,
    Category,
    Figure,
    Metric,
    Parameter,
    Record,
    Result,
    Series,
)
from runnable_demos.lab.table import TableError

MEASURES = """
[[method]]
kind = "exact"
how = ["{n} 次", "{n} times"]
[method.metrics]
peak = ["B", "峰值，{share:.0%}", "peak at {share:.0%}"]
equal = ["", "相等", "equal"]

[[method]]
kind = "bounded"
how = ["比较", "compared"]
bound = 1e-6
reason = ["{n} 个单位", "{n} units"]
[method.metrics]
error = ["", "误差", "error"]

[[method]]
kind = "sampled"
how = ["抽样", "drawn"]
[method.metrics]
rate = ["", "比例", "rate"]

[[method]]
kind = "measured"
only = "gpu"
how = ["计时", "timed"]
[method.metrics]
time = ["s", "时间", "time"]

[figure.bars]
title = ["柱，{n}", "Bars, {n}"]
kind = "computed"
x = {label = ["方案", "recipe"]}
y = {label = ["字节", "bytes"], unit = "B", scale = "log2"}
[figure.bars.series]
part = ["bar", "第 {i} 段", "part {i}"]
line = ["theory", "理论", "theory"]
[figure.bars.places]
fp32 = ["全精度，{n}", "full, {n}"]
bf16 = ["半精度", "half"]
"""


@dataclass(frozen=True)
class Config:
    """What a demo's configuration has."""

    n: int = 3
    device: str = "cpu"


def filled(device: str = "cpu") -> Result:
    """A run that finds everything."""
    found = Findings(MEASURES, Config(device=device), share=0.25)
    found["equal"] = True
    found["peak"] = 64
    found["error"] = 1e-7
    found.sample("rate", [1, 2, 3, 4], closed_form=2.0)
    if device != "cpu":
        found["time"] = 0.5
    found.draw(
        "bars",
        Line("part", (0, 1), (1, 2), {"i": 1}),
        Line("part", (0, 1), (3, 4), {"i": 2}),
        Line("line", (0, 2), (5, 6)),
        places=("fp32", "bf16", 8),
    )
    return found.result()


def both(zh: str, en: str) -> dict[str, str]:
    """A text."""
    return {"zh": zh, "en": en}


def test_a_run_fills_in_the_table() -> None:
    """Each value gets the unit, kind, bound and words of its row, in the order of the table."""
    times = both("3 次", "3 times")
    peak, equal, error, rate = filled().metrics
    assert peak == Metric("peak", 64, "B", "exact", both("峰值，25%", "peak at 25%"), times)
    assert equal == Metric("equal", True, "", "exact", both("相等", "equal"), times)
    reason = both("3 个单位", "3 units")
    compared = both("比较", "compared")
    label = both("误差", "error")
    assert error == Metric("error", 1e-7, "", "bounded", label, compared, 1e-6, reason)
    assert (rate.kind, rate.value, rate.closed_form) == ("sampled", 2.5, 2.0)
    assert filled().terms == {"share": 0.25}


def test_a_figure_has_the_words_of_the_table_and_the_points_of_the_run() -> None:
    """A series may be drawn twice with terms of its own; a whole number is a place by itself."""
    places = (
        Category("fp32", both("全精度，3", "full, 3")),
        Category("bf16", both("半精度", "half")),
        Category("8", both("8", "8")),
    )
    x, y = (0.0, 1.0), ((1.0, 2.0), (3.0, 4.0))
    labels = (both("第 1 段", "part 1"), both("第 2 段", "part 2"))
    first, second = (
        Series("part", labels[i], x, y[i], "bar", "computed", {"i": i + 1}) for i in (0, 1)
    )
    assert filled().figures == (
        Figure(
            "bars",
            both("柱，3", "Bars, 3"),
            Axis(both("方案", "recipe"), categories=places),
            Axis(both("字节", "bytes"), "B", "log2"),
            (
                first,
                second,
                Series("line", both("理论", "theory"), (0.0, 2.0), (5.0, 6.0), "theory"),
            ),
        ),
    )


def test_what_a_gpu_alone_has_is_asked_of_a_gpu() -> None:
    """A run on the CPU is whole without it, one on a GPU is not."""
    assert "time" not in {m.name for m in filled().metrics}
    assert filled("cuda").metrics[-1] == Metric(
        "time", 0.5, "s", "measured", both("时间", "time"), both("计时", "timed")
    )


def set_value(name: str, value: float = 1) -> Callable[[Findings], object]:
    """Fill a row."""
    return lambda found: found.__setitem__(name, value)


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (set_value("peek"), KeyError, "the table has no metric 'peek'"),
        (lambda f: f.sample("raet", [1, 2]), KeyError, "the table has no metric 'raet'"),
        (lambda f: (set_value("peak")(f), set_value("peak")(f)), ValueError, "peak is found twice"),
        (lambda f: f.result(), ValueError, "nothing was found for peak, equal, error, rate$"),
        (lambda f: f.draw("bar"), KeyError, "the table has no figure 'bar'"),
        (
            lambda f: f.draw("bars", Line("parts", (), ())),
            KeyError,
            "no series 'parts' in the figure bars",
        ),
        (lambda f: f.draw("bars", Line("line", (), ())), ValueError, "lacks the series part"),
        (
            lambda f: f.draw("bars", *BOTH_LINES, places=["fp64"]),
            KeyError,
            "no place 'fp64' in the figure bars",
        ),
        (
            lambda f: (f.draw("bars", *BOTH_LINES), f.draw("bars", *BOTH_LINES)),
            ValueError,
            "bars is drawn twice",
        ),
        (
            lambda f: f.draw("bars", Line("line", (), ()), Line("part", (), ())),
            TableError,
            "nothing is called 'i'",
        ),
        (lambda f: f.sample("rate", [3, 3]), ValueError, "without scatter"),
        (set_value("rate"), ValueError, "a standard error belongs"),
    ],
)
def test_what_the_table_does_not_have_is_refused(
    act: Callable[[Findings], object], error: type[Exception], said: str
) -> None:
    """Unknown names, names filled twice and names left out are told by name."""
    with pytest.raises(error, match=said):
        act(Findings(MEASURES, Config(), share=0.25))


BOTH_LINES = (Line("line", (), ()), Line("part", (), (), {"i": 1}))


def test_what_was_not_drawn_is_missed() -> None:
    """A figure of the table is a promise as a metric is."""
    found = Findings(MEASURES, Config(), share=0.25)
    found["peak"], found["equal"], found["error"] = 1, True, 0.0
    found.sample("rate", [1, 2])
    with pytest.raises(ValueError, match="nothing was drawn for bars"):
        found.result()


def test_a_sample_is_a_mean_and_its_standard_error() -> None:
    """1, 2, 3, 4: the mean 2.5, the deviation √(5/3), over the root of four draws."""
    rate = filled().metrics[3]
    assert rate.error == pytest.approx(math.sqrt(5 / 3) / 2, rel=1e-5)


def test_draws_that_are_alike_have_the_least_error() -> None:
    """Where nothing scatters, the least error that may be told is told."""
    found = Findings(MEASURES, Config(), share=0.25)
    found.sample("rate", [3, 3], least=0.5)
    found["peak"], found["equal"], found["error"] = 1, True, 0.0
    found.draw("bars", *BOTH_LINES)
    assert found.result().metrics[3].error == 0.5


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[[method]]", "[[method]", "it is not TOML: .*line 2"),
        (
            "[figure.bars]",
            "[figures.bars]",
            "the table has no 'figures'; it may have figure, method",
        ),
        ("[[method]]\nkind", "[[method]]\nnote = 1\nkind", "method 1 has no 'note'"),
        ('kind = "exact"\n', "", "kind of method 1 should be one of 'exact'"),
        ('"sampled"', '"drawn"', "kind of method 3 should be one of"),
        ("bound = 1e-6\n", "", "method 2: kind 'bounded', and no other, has a bound and a reason"),
        ('kind = "bounded"', 'kind = "exact"', "method 2: kind 'bounded', and no other"),
        ("bound = 1e-6", "bound = true", "bound of method 2 should be a number"),
        ("bound = 1e-6", "bound = -1", "bound of method 2 should be a number"),
        ("bound = 1e-6", "bound = nan", "bound of method 2 should be a number"),
        ('"gpu"', '"tpu"', "only should be one of"),
        (
            '["比较", "compared"]',
            '["compared"]',
            "how of method 2 should be words in each language",
        ),
        (
            '["比较", "compared"]',
            '["比较", " "]',
            "how of method 2 should be words in each language",
        ),
        ('error = [""', 'Error = [""', "'Error' names nothing"),
        ('error = [""', 'peak = [""', "two metrics are called peak"),
        ('error = [""', 'error = ["bytes"', "unit of error should be one of"),
        ('error = ["", ', "error = [", r"error should be \[a word, zh, en\]"),
        ("{n} times", "{n times", "how of method 1: .*brace"),
        ("{n} times", "{n.real} times", "'n.real' is no name of a parameter"),
        ("{n} times", "{} times", "'' is no name of a parameter"),
        ("{n} times", "{n:{n}} times", "how of method 1: n is to be printed in an unknown way"),
        ("{n} times", "{n!r} times", "how of method 1: n is to be printed in an unknown way"),
        ("{n} times", "{n:9999} times", "how of method 1: n is to be printed in an unknown way"),
        ("{n} times", "{n:c} times", "how of method 1: n is to be printed in an unknown way"),
        ("{n} times", "{n:%Y} times", "how of method 1: n is to be printed in an unknown way"),
        ("{n} times", "{n} \\u0007", "how of method 1 holds a character that nobody can read"),
        ("bound = 1e-6", "bound = 1" + "0" * 400, "bound of method 2 should be a number"),
        ("bound = 1e-6", "bound = 1" + "0" * 5000, "thousands of digits, or is nested too deeply"),
        ("bound = 1e-6", "bound = " + "[" * 5000, "it is not TOML|nested too deeply"),
        ('unit = "B", scale', 'units = "B", scale', "y of figure bars has no 'units'"),
        ('"log2"', '"log3"', "scale of y of figure bars should be one of"),
        ('["bar"', '["stack"', "mark of part should be one of"),
        ('bf16 = ["半精度", "half"]', 'bf16 = "half"', "place bf16 should be words"),
        ("[figure.bars.series]", "[figure.bars.serieses]", "figure bars has no 'serieses'"),
    ],
)
def test_a_fault_of_a_table_is_told_at_its_place(before: str, after: str, said: str) -> None:
    """One sentence that names the row or the method."""
    assert before in MEASURES
    with pytest.raises(TableError, match=said):
        table.read(MEASURES.replace(before, after, 1))


# --- renewing ------------------------------------------------------------------------------------

DEMO = f'''
TITLE = {{"zh": "题", "en": "Title"}}
QUESTION = {{"zh": "问？", "en": "Why?"}}
MEASURES = """{MEASURES}"""
@dataclass(frozen=True)
class Config:
    n: int = parameter(3, {{"zh": "个数", "en": "a count"}}, 1, 9)
PRESETS = {{}}
def run(config, progress): ...
'''


def recorded(tmp_path: Path) -> Record:
    """A record of that demo, as it is read back from its file."""
    made = Record(
        "demo",
        both("题", "Title"),
        both("问？", "Why?"),
        "cpu",
        "full",
        (Parameter("n", 3, 1.0, 9.0, both("个数", "a count")),),
        filled(),
        {},
        {},
        "2026-11-30",
    )
    records.save(made, tmp_path / "demo.cpu.json")
    return records.load(tmp_path / "demo.cpu.json")


def demo(tmp_path: Path, text: str) -> discovery.Demo:
    """The demo in a file of that text."""
    (tmp_path / "demo.py").write_text(text)
    found = discovery.named("demo", tmp_path)
    assert found is not None
    return found


def test_the_same_words_renew_nothing(tmp_path: Path) -> None:
    """A record that was just made says what its demo says, placeholders included."""
    record = recorded(tmp_path)
    assert words.renewed(record, demo(tmp_path, DEMO)) == record


@pytest.mark.parametrize(
    ("before", "after", "said", "where"),
    [
        ('"Title"', '"A title"', "A title", lambda r: r.title),
        ('"Why?"', '"What for?"', "What for?", lambda r: r.question),
        ('"a count"', '"how many"', "how many", lambda r: r.parameters[0].help),
        (
            "peak at {share",
            "highest at {share",
            "highest at 25%",
            lambda r: r.result.metrics[0].label,
        ),
        ("{n} times", "over {n} runs", "over 3 runs", lambda r: r.result.metrics[0].how),
        ("{n} units", "{n} roundings", "3 roundings", lambda r: r.result.metrics[2].reason),
        ("Bars, {n}", "{n} bars", "3 bars", lambda r: r.result.figures[0].title),
        ('"recipe"', '"way"', "way", lambda r: r.result.figures[0].x.label),
        ('"bytes"', '"size"', "size", lambda r: r.result.figures[0].y.label),
        ("part {i}", "piece {i}", "piece 2", lambda r: r.result.figures[0].series[1].label),
        (
            "full, {n}",
            "whole, {n}",
            "whole, 3",
            lambda r: r.result.figures[0].x.categories[0].label,
        ),
    ],
)
def test_each_word_is_renewed_where_it_stands(
    tmp_path: Path, before: str, after: str, said: str, where: Callable[[Record], dict[str, str]]
) -> None:
    """The new words with the values of the record, the other language as it was, and no number touched."""
    record = recorded(tmp_path)
    assert before in DEMO
    renewed = words.renewed(record, demo(tmp_path, DEMO.replace(before, after)))
    assert where(renewed) == both(where(record)["zh"], said)
    assert [m.value for m in renewed.result.metrics] == [m.value for m in record.result.metrics]
    back = words.renewed(renewed, demo(tmp_path, DEMO))
    assert back == record


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"share": math.nan}, "the term share is nan"),
        ({"share": -math.inf}, "the term share is -inf"),
        ({"share": [1]}, r"the term share is \[1\]"),
        ({"share": Fraction(1, 2)}, "the term share is Fraction"),
        ({"share": 0.25, "n": 4}, "the term n is a parameter already"),
    ],
)
def test_a_term_that_no_record_holds_is_refused(terms: dict[str, Any], said: str) -> None:
    """By name, before anything is measured."""
    with pytest.raises(ValueError, match=said):
        Findings(MEASURES, Config(), **terms)


@pytest.mark.parametrize(
    ("said", "term"),
    [
        ("{n}", "x" * 501),
        ("{n}", " "),
        ("{n}", "\ud800"),
        ("{n:.2e}", 10**400),
        ("{n:d}", "x"),
    ],
)
def test_words_that_come_out_unreadable_are_refused(said: str, term: Any) -> None:
    """Endless, blank or half characters, and values that cannot be printed so."""
    with pytest.raises(TableError):
        table.fill(both(said, said), {"n": term})


def test_a_placeholder_without_a_term_is_told(tmp_path: Path) -> None:
    """New words may need what the run did not tell; the record cannot have it."""
    changed = demo(tmp_path, DEMO.replace("{n} times", "{m} times"))
    with pytest.raises(TableError, match="nothing is called 'm'"):
        words.renewed(recorded(tmp_path), changed)


def test_what_the_demo_no_longer_names_keeps_its_words(tmp_path: Path) -> None:
    """Such a record is out of date for another reason, and nothing of it is lost."""
    record = recorded(tmp_path)
    other = DEMO.replace("peak = [", "top = [").replace("figure.bars", "figure.columns")
    renewed = words.renewed(record, demo(tmp_path, other))
    assert renewed == dataclasses.replace(record)
