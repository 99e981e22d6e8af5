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
    """Its docstring is the lesson: question, model and measurement."""
    lesson = module(name).__doc__
    assert lesson
    for part in ("The question", "The model", "The measurement"):
        assert part in lesson, part


RULES = (
    presets_are_small_and_full,
    metrics_are_sound,
    texts_are_in_both_languages,
    numbers_repeat,
    no_exact_metric_repeats_the_configuration,
    evidence_has_the_metrics_of_the_demo,
    a_demo_says_what_it_does,
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
