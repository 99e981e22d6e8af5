"""What every demo that is discovered must keep to, so that the rest may rely on it.

Among it that each of its metrics is held by its own test file. That is found out by doing: the tests
that ask for the demo's result get one in which a single metric is wrong, and one of them must fail.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, get_args

import pytest
import torch

from generator.documents import lessons
from runnable_demos.__main__ import describe
from runnable_demos.lab import discovery, records
from runnable_demos.lab.metrics import Kind, Metric, Result, Text, Unit
from tests.demos import launches

FOLDER = Path(discovery.__file__).parents[1]
DEMOS = discovery.discover(FOLDER)
EVIDENCE = FOLDER / "evidence"
LESSONS, _ = lessons.load(FOLDER)
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")


@cache
def module(name: str) -> ModuleType:
    """A demo, imported."""
    return importlib.import_module(f"runnable_demos.{name}")


@cache
def small(name: str, again: bool = False, reseeded: bool = False) -> Result:
    """What the small preset finds; ``again`` asks for another run, ``reseeded`` for another seed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        config = module(name).PRESETS["small"]
        if reseeded:
            config = dataclasses.replace(config, seed=config.seed + 1)
        torch.manual_seed(config.seed)
        shares: list[float] = []
        with launches.anew() if again or reseeded else nullcontext():
            result: Result = module(name).run(config, lambda share, _: shares.append(share))
    finally:
        torch.set_num_threads(threads)
    assert all(0 <= share <= 1 for share in shares), "progress is a share"
    return result


def texts(result: Result) -> list[Text]:
    """Every text of a result."""
    found = [text for m in result.metrics for text in (m.label, m.how, m.reason) if text]
    for figure in result.figures:
        found += [figure.title, figure.x.label, figure.y.label]
        found += [category.label for category in (*figure.x.categories, *figure.y.categories)]
        found += [series.label for series in figure.series]
    return found


def found(result: Result, *kinds: Kind) -> dict[str, tuple[type, float]]:
    """The metrics of some kinds by name, with the types of their values."""
    return {m.name: (type(m.value), m.value) for m in result.metrics if m.kind in kinds}


THE_SEED_DRAWS_THE_NETWORK = {"checkpoint_planner"}
"""Demos whose seed chooses what is measured, as another parameter would."""

AS_CONFIGURED_AND_YET_MEASURED = {
    ("activation_checkpointing", "layers_recomputed"): "counted by the layers themselves",
    ("checkpoint_selective", "held_full"): "live bytes; 2h a token, which is the length here",
    ("checkpoint_selective", "price_ratio"): "FLOPs and bytes counted; the ratio is a",
    ("checkpoint_selective", "price_up"): "FLOPs and bytes counted; a byte of up is worth h",
    ("checkpoint_weighted", "gelu_best_from"): "the lowest of the live peaks over all k",
    ("grad_accumulation", "batchnorm_updates"): "read from num_batches_tracked",
    ("grad_accumulation", "unscaled_sgd"): "two updates by SGD, compared",
    ("optimizer_states", "transient_foreach_copies"): "live bytes of a step",
    ("pipeline_schedule", "in_flight_gpipe_first"): "live bytes on real ranks",
    ("pipeline_schedule", "in_flight_gpipe_last"): "live bytes on real ranks",
    ("pipeline_schedule", "in_flight_one_f_one_b_first"): "live bytes on real ranks",
    ("saved_tensors", "slice_keeps_ratio"): "bytes of the storage that autograd saved",
}
"""Exact metrics that come out as a parameter says, and how they were read off the run."""


def presets_are_small_and_full(name: str) -> None:
    """Both presets are there, frozen, seeded and within their own bounds."""
    presets = module(name).PRESETS
    assert set(presets) >= {"small", "full"}
    for config in presets.values():
        assert dataclasses.is_dataclass(config)
        assert type(config) is module(name).Config
        assert type(config).__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert config.device == "cpu"
        assert isinstance(config.seed, int)
        for parameter in describe(config):
            assert set(parameter.help) >= {"zh", "en"}, parameter.name
            if isinstance(parameter.value, (int, float)) and not isinstance(parameter.value, bool):
                assert parameter.minimum is not None, parameter.name
                assert parameter.maximum is not None, parameter.name
                assert parameter.minimum <= parameter.value <= parameter.maximum, parameter.name


def metrics_are_sound(name: str) -> None:
    """Names are snake_case and unique; kinds, units and bounds are what a card may claim."""
    metrics = small(name).metrics
    names = [metric.name for metric in metrics]
    assert metrics
    assert len(names) == len(set(names))
    for metric in metrics:
        assert SNAKE.match(metric.name), metric.name
        assert metric.kind in get_args(Kind)
        assert metric.unit in get_args(Unit)
        if isinstance(metric.value, bool):
            assert metric.unit == "", metric.name
        if metric.bound is not None:
            assert 0 <= metric.value <= metric.bound, metric.name


def texts_are_in_both_languages(name: str) -> None:
    """Labels say what they say in Chinese and in English, neither in place of the other."""
    demo = DEMOS[name]
    for text in (demo.title, demo.question, *texts(small(name))):
        assert set(text) == {"zh", "en"}, text
        assert all(words.strip() for words in text.values()), text
        assert not re.search("[\u4e00-\u9fff]", text["en"]), text
    prose = [demo.question, *(t for m in small(name).metrics for t in (m.label, m.how))]
    for text in prose:
        assert re.search("[\u4e00-\u9fff]", text["zh"]), text


def numbers_repeat(name: str) -> None:
    """A second run finds the same values of the same types: where no draw counts, with any seed.

    An exact metric that changes with the seed is a random draw, and has to be told as sampled.
    """
    drawn = name in THE_SEED_DRAWS_THE_NETWORK
    other = small(name, again=True) if drawn else small(name, reseeded=True)
    assert found(other, "exact", "computed") == found(small(name), "exact", "computed")
    if found(small(name), "sampled"):
        again = small(name, again=True)
        assert found(again, "sampled") == found(small(name), "sampled")
        assert found(other, "sampled") != found(small(name), "sampled")


def no_exact_metric_repeats_the_configuration(name: str) -> None:
    """What equals a parameter at both sizes was not read off a run, and has to be told as computed."""
    full = records.load(records.record_path(EVIDENCE, name, "cpu"))
    sizes = [
        ({p.name: p.value for p in parameters}, {m.name: m for m in metrics if m.kind == "exact"})
        for parameters, metrics in (
            (describe(module(name).PRESETS["small"]), small(name).metrics),
            (full.parameters, full.result.metrics),
        )
    ]
    (few, here), (many, there) = sizes
    echoes = {
        (name, metric, parameter)
        for metric in here.keys() & there.keys()
        for parameter in few
        if few[parameter] != many[parameter]
        and type(here[metric].value) is not bool
        and (here[metric].value, there[metric].value) == (few[parameter], many[parameter])
        and (name, metric) not in AS_CONFIGURED_AND_YET_MEASURED
    }
    assert echoes == set()


def evidence_has_the_metrics_of_the_demo(name: str) -> None:
    """What is recorded at full size is what the small size measures, under the same names."""
    path = records.record_path(EVIDENCE, name, "cpu")
    assert path.is_file(), f"record it: proofdeck demo run {name} --record"
    record = records.load(path)

    def facts(metrics: tuple[Metric, ...]) -> set[tuple[object, ...]]:
        return {(m.name, m.unit, m.kind, type(m.value) is bool) for m in metrics}

    assert facts(record.result.metrics) == facts(small(name).metrics)
    assert [f.name for f in record.result.figures] == [f.name for f in small(name).figures]
    assert record.size == "full"
    assert (record.title, record.question) == (DEMOS[name].title, DEMOS[name].question)
    assert record.parameters == describe(module(name).PRESETS["full"])


def a_demo_says_what_it_does(name: str) -> None:
    """Its docstring asks the question and leads to the lesson, which is called as the demo is."""
    said = module(name).__doc__
    assert said
    lesson = LESSONS.get(name)
    if lesson is None:  # still to be written: the docstring is its draft
        for part in ("The question", "The model", "The measurement"):
            assert part in said, part
        return
    assert said.splitlines()[2:] == [
        f"The lesson is ``lessons/{name}.en.md`` (中文: ``lessons/{name}.zh.md``)."
    ]
    assert lesson.title == DEMOS[name].title


def run_is_short(name: str) -> None:
    """``run`` can be read at one go: it has fewer than 80 lines, and calls what is longer."""
    source = DEMOS[name].path.read_text(encoding="utf-8")
    assert lines_of_run(source) < 80


def lines_of_run(source: str) -> int:
    """How many lines the function ``run`` of a module takes, its signature among them."""
    (run,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "run"
    )
    assert run.end_lineno is not None
    return run.end_lineno - run.lineno + 1


# --- the tests of a demo, held to failing ---------------------------------------------------------


class Suite:
    """The test functions of a module, to be run on results that a demo might have found."""

    def __init__(self, tests: ModuleType, demo: ModuleType) -> None:
        self.tests, self.demo = tests, demo
        self.asked = False  # whether the demo's result has been looked at
        self.asking: list[Callable[[], object]] = []

    def notices(self, result: Result) -> bool:
        """Whether a test fails that holds for what the demo has found."""
        return not all(self._passes(call, result) for call in self.asking)

    def take(self, found: Result) -> None:
        """Find the tests that look at the result and hold for ``found``; the quickest come first."""
        times: dict[Callable[[], object], float] = {}
        for call in self._calls():
            self.asked = False
            start = perf_counter()
            if self._passes(call, found) and self.asked:
                times[call] = perf_counter() - start
        self.asking = sorted(times, key=lambda call: times[call])

    def _passes(self, call: Callable[[], object], result: Result) -> bool:
        original = self.demo.run

        def run(config: Any, progress: Any) -> Result:
            self.asked = True
            small = config == self.demo.PRESETS["small"]
            return result if small else original(config, progress)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.demo, "run", run)
            if getattr(self.tests, "run", None) is original:
                patch.setattr(self.tests, "run", run)
            try:
                call()
            except (AssertionError, pytest.fail.Exception):
                return False
        return True

    def _calls(self) -> Iterator[Callable[[], object]]:
        """Each test that looks at a result, with each of its parameters and fixtures of its module."""
        for name, function in vars(self.tests).items():
            if name.startswith("test_") and inspect.isfunction(function):
                rows = [_rows(*mark.args[:2]) for mark in getattr(function, "pytestmark", [])]
                for chosen in itertools.product(*rows):
                    given = {key: value for row in chosen for key, value in row.items()}
                    needed = set(inspect.signature(function).parameters) - set(given)
                    own = all(hasattr(self.tests, fixture) for fixture in needed)
                    if own and self._asks(function, needed):
                        yield partial(self._call, function, given)

    def _asks(self, function: Callable[..., object], fixtures: Iterable[str]) -> bool:
        """Whether a test or a fixture calls ``run``, or one of its fixtures does."""
        made = [inspect.unwrap(getattr(self.tests, name)) for name in fixtures]
        return "run" in function.__code__.co_names or any(
            self._asks(fixture, inspect.signature(fixture).parameters) for fixture in made
        )

    def _call(self, function: Callable[..., object], given: dict[str, object]) -> object:
        """Call a test or a fixture with the fixtures that it asks for."""
        arguments = {
            name: given[name]
            if name in given
            else self._call(inspect.unwrap(getattr(self.tests, name)), {})
            for name in inspect.signature(function).parameters
        }
        return function(**arguments)


def _rows(names: str | tuple[str, ...], values: Any) -> list[dict[str, object]]:
    """What a mark ``parametrize`` gives to a test, one after another."""
    if isinstance(names, str):
        names = tuple(name.strip() for name in names.split(","))
    return [dict(zip(names, row if len(names) > 1 else (row,), strict=True)) for row in values]


def wrong(metric: Metric) -> Iterator[Metric]:
    """The metric with a value that is off by one, by a fiftieth, beyond its bound, or the opposite."""
    value = metric.value
    values: tuple[bool | int | float, ...]
    if isinstance(value, bool):
        values = (not value,)
    elif metric.kind == "measured":
        values = ()  # nothing can be said of it beforehand
    elif metric.bound is not None:
        values = (2 * metric.bound,)
    elif metric.kind == "sampled":
        values = (value - 10 * metric.error, value + 10 * metric.error)
    elif isinstance(value, int):
        values = (value - 1, value + 1)
    else:
        values = (value * 0.98, value * 1.02) if value else (-0.02, 0.02)
    for other in values:
        # A wrong value may break the promises of a metric, which are not what is asked here.
        changed = dataclasses.replace(metric)
        object.__setattr__(changed, "value", other)
        yield changed


def unheld(suite: Suite, found: Result) -> list[str]:
    """Names of the metrics that may be wrong without a test that fails."""
    suite.take(found)
    names = []
    for i, metric in enumerate(found.metrics):
        for changed in wrong(metric):
            metrics = (*found.metrics[:i], changed, *found.metrics[i + 1 :])
            if not suite.notices(dataclasses.replace(found, metrics=metrics)):
                names.append(f"{metric.name} = {changed.value:.9g} for {metric.value:.9g}")
    return names


def each_metric_is_held_by_a_test(name: str) -> None:
    """A demo has a test file, of which a test fails where any one metric is wrong."""
    path = Path(__file__).with_name(f"test_{name}.py")
    assert path.is_file(), f"write tests/demos/{path.name}"
    spec = importlib.util.spec_from_file_location(f"held_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    assert unheld(Suite(tests, module(name)), small(name)) == []


RULES = (
    presets_are_small_and_full,
    metrics_are_sound,
    texts_are_in_both_languages,
    numbers_repeat,
    no_exact_metric_repeats_the_configuration,
    evidence_has_the_metrics_of_the_demo,
    a_demo_says_what_it_does,
    run_is_short,
    each_metric_is_held_by_a_test,
)


@pytest.mark.parametrize("name", DEMOS)
def test_demo(name: str, subtests: pytest.Subtests) -> None:
    """A demo keeps every rule above; one test a demo, so that it runs as seldom as they allow."""
    for rule in RULES:
        with subtests.test(msg=rule.__doc__):
            rule(name)


def test_every_record_belongs_to_a_demo() -> None:
    """No evidence outlives its demo."""
    assert {path.name.split(".")[0] for path in EVIDENCE.glob("*.json")} <= set(DEMOS)


def test_a_gpus_record_has_the_allocators_peak() -> None:
    """A demo that gains from a GPU and speaks of a peak reads it off the GPU's allocator, too."""
    gaining = [demo for demo in DEMOS.values() if demo.gpu is not None]
    assert gaining
    assert len({demo.gpu for demo in gaining}) == len(gaining), "two demos have one place"
    for demo in gaining:
        metrics = records.load(records.record_path(EVIDENCE, demo.name, "cpu")).result.metrics
        if any("peak" in metric.name for metric in metrics):
            assert "allocator_peak(" in demo.path.read_text(encoding="utf-8"), demo.name


def test_the_lines_of_run_are_counted() -> None:
    """From its ``def`` to its last line; what stands around it does not count."""
    body = "    x = 1\n\n" * 39
    source = (
        f"import a\n\n\ndef run(config, progress):\n{body}    return x\n\n\ndef f():\n    run\n"
    )
    assert lines_of_run(source) == 80


# --- the rule that holds tests to failing, itself held to that -------------------------------------


def invented(**values: bool | int | float) -> Result:
    """A result with some metrics."""
    text = {"zh": "某数", "en": "a number"}
    return Result(tuple(Metric(n, v, "", "exact", text, text) for n, v in values.items()))


def suite_of(source: str) -> Suite:
    """The tests in ``source``, of a demo whose ``run`` nobody is to call."""
    demo, tests = ModuleType("demo"), ModuleType("tests")
    vars(demo).update(PRESETS={"small": "small"}, run=lambda config, progress: None)
    vars(tests).update(run=demo.run, pytest=pytest)
    exec(source, vars(tests))  # a test module of the test's own
    return Suite(tests, demo)


def test_a_metric_without_an_oracle_is_named() -> None:
    """Compared, enumerated and parametrised ones are held; named, read or half-bounded ones are not."""
    found = invented(
        compared=3, flag=True, left=7, right=9, named=4, read=5, above=0.5, by_fixture=2.0
    )
    suite = suite_of("""
def values(result):
    return {m.name: m.value for m in result.metrics}

@pytest.fixture(scope="module")
def result():
    return run("small", None)

def test_compared():
    found = values(run("small", None))
    assert found["compared"] == 3 and found["flag"] is True
    found["read"]  # "named" and "read" are not compared
    assert found["above"] > 0.1

@pytest.mark.parametrize(("name", "expected"), [("left", 7), ("right", 9)])
def test_enumerated(name, expected, result):
    assert values(result)[name] == expected

def test_fixture(result):
    assert values(result)["by_fixture"] == pytest.approx(2)

def test_of_another_size():
    assert run("large", None) is None

def test_with_more(tmp_path, result):
    assert values(result)["named"] == 4
""")
    names = {line.split()[0] for line in unheld(suite, found)}
    assert names == {"named", "read", "above"}


def test_a_demo_without_a_test_file_is_told() -> None:
    """The message says which file to write."""
    with pytest.raises(AssertionError, match=r"write tests/demos/test_no_such_demo\.py"):
        each_metric_is_held_by_a_test("no_such_demo")
