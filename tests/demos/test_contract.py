"""What every demo that is discovered must keep to, so that the rest may rely on it."""

from __future__ import annotations

import dataclasses
import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
import torch

from runnable_demos import discovery, records
from runnable_demos.__main__ import describe
from runnable_demos.metrics import Kind, Metric, Result, Text, Unit

FOLDER = Path(discovery.__file__).parent
DEMOS = discovery.discover(FOLDER)
EVIDENCE = FOLDER / "evidence"
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")


@cache
def module(name: str) -> ModuleType:
    """A demo, imported."""
    return importlib.import_module(f"runnable_demos.{name}")


@cache
def small(name: str, again: bool = False) -> Result:
    """What the small preset finds; ``again`` asks for a second run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        config = module(name).PRESETS["small"]
        torch.manual_seed(config.seed)
        shares: list[float] = []
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
        found += [*figure.x.categories, *figure.y.categories]
        found += [series.label for series in figure.series]
    return found


def exact(result: Result) -> dict[str, tuple[type, float]]:
    """The exact metrics by name, with the types of their values."""
    return {m.name: (type(m.value), m.value) for m in result.metrics if m.kind == "exact"}


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
            assert (metric.kind, metric.unit) == ("exact", ""), metric.name
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


def exact_metrics_repeat(name: str) -> None:
    """A second run finds the same exact values, of the same types."""
    first = exact(small(name))
    assert exact(small(name, again=True)) == first


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
    """Its docstring is the lesson: question, model and measurement."""
    lesson = module(name).__doc__
    assert lesson
    for part in ("The question", "The model", "The measurement"):
        assert part in lesson, part


RULES = (
    presets_are_small_and_full,
    metrics_are_sound,
    texts_are_in_both_languages,
    exact_metrics_repeat,
    evidence_has_the_metrics_of_the_demo,
    a_demo_says_what_it_does,
)


@pytest.mark.parametrize("name", DEMOS)
def test_demo(name: str, subtests: pytest.Subtests) -> None:
    """A demo keeps every rule above; one test a demo, so that it runs twice and no more."""
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
