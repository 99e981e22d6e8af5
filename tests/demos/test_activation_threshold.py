"""Thresholds against closed forms in whole numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runnable_demos.activation_threshold import (
    PRESETS,
    STATES,
    WEIGHTS,
    Gpt,
    crossing,
    llama_crossing,
    model_activations,
    run,
)
from runnable_demos.lab.metrics import Result
from runnable_demos.models.llama import LLAMA_7B, LLAMA_70B, Size


@pytest.fixture(scope="module")
def result() -> Result:
    """The small run."""
    return run(PRESETS["small"], lambda share, text: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, float]:
    """Every metric of the small run, by name."""
    return {m.name: m.value for m in result.metrics}


def ceil_div(a: int, b: int) -> int:
    """The smallest whole number that is at least a / b."""
    return -(-a // b)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("limit", [1, 7, 100, 101, 530, 800, 12345])
def test_crossing_against_a_search_one_by_one(limit: int, power: int) -> None:
    """The first number that is large enough, for straight and for bent growth."""

    def grow(n: int) -> int:
        return 3 * n + 5 * n**power

    assert crossing(grow, limit) == next(n for n in range(1, limit + 2) if grow(n) >= limit)


@pytest.mark.parametrize("p", [WEIGHTS, STATES])
@pytest.mark.parametrize(("h", "a", "layers"), [(64, 4, 1), (64, 4, 4), (96, 2, 2)])
def test_gpt_by_hand(h: int, a: int, layers: int, p: int) -> None:
    """12h² + 13h parameters against 34h + 4a + 8 bytes a token: layers cancel."""
    expected = ceil_div(p * (12 * h * h + 13 * h), 34 * h + 4 * a + 8)
    assert Gpt(h, a, layers).crossing(p) == expected


def test_gpt_with_the_matrix_by_hand() -> None:
    """The smallest s with s (34h + 8) + 5as² bytes or more."""
    h, a, p = 64, 4, STATES
    limit = p * (12 * h * h + 13 * h)
    expected = next(s for s in range(1, 9999) if s * (34 * h + 8) + 5 * a * s * s >= limit)
    assert Gpt(h, a, fused=False).crossing(p) == expected


@pytest.mark.parametrize("size", [LLAMA_7B, LLAMA_70B])
def test_llama_by_hand(size: Size) -> None:
    """2h² + 2h·gd + 3hf + 2h parameters against 12h + 4gd + 8f + 4a + 8 bytes a token."""
    h, f, a, gd = size.h, size.f, size.a, size.g * size.h // size.a
    n = 2 * h * h + 2 * h * gd + 3 * h * f + 2 * h
    c = 12 * h + 4 * gd + 8 * f + 4 * a + 8
    assert llama_crossing(size, WEIGHTS) == ceil_div(WEIGHTS * n, c)


def test_whole_model_by_hand() -> None:
    """Layers, the last norm and head, cross-entropy in fp32, rotary tables; or one input a block."""
    size, tokens = replace(LLAMA_7B, L=5), 96
    h, f, a, V, d = size.h, size.f, size.a, size.V, 128
    ends = 2 * h + 4 + 2 * h + 4 * V
    layer = 16 * h + 8 * f + 4 * a + 8
    weight = 4  # cross-entropy's total weight, one number
    assert model_activations(size, tokens, False) == tokens * (5 * layer + ends + 4 * d) + weight
    assert model_activations(size, tokens, True) == tokens * (5 * 2 * h + ends + 4 * d) + weight


def llama_by_hand(size: Size, p: int) -> int:
    """The crossing of a layer, from the two counts of the test above."""
    h, f, a, gd = size.h, size.f, size.a, size.g * size.h // size.a
    n = 2 * h * h + 2 * h * gd + 3 * h * f + 2 * h
    return ceil_div(p * n, 12 * h + 4 * gd + 8 * f + 4 * a + 8)


def test_metrics_by_hand(metrics: dict[str, float]) -> None:
    """Every threshold of the small preset, in which the Llamas are a sixteenth as wide."""
    config = PRESETS["small"]
    metrics = {m.name: m.value for m in run(config, lambda share, text: None).metrics}
    h, a = config.width, config.heads
    parameters, linear = 12 * h * h + 13 * h, 34 * h + 8
    for name, p in (("weights", WEIGHTS), ("states", STATES)):
        assert metrics[f"gpt_{name}"] == ceil_div(p * parameters, linear + 4 * a)
        limit = p * parameters
        square = next(s for s in range(1, 9999) if s * linear + 5 * a * s * s >= limit)
        assert metrics[f"gpt_matrix_{name}"] == square
        assert metrics[f"gpt_{name}_per_width"] == metrics[f"gpt_{name}"] / h
        for model, size in (
            ("7b", Size(256, 688, 32, 2, 2, 32000)),
            ("13b", Size(320, 864, 40, 2, 2, 32000)),
            ("70b", Size(512, 1792, 80, 4, 1, 32000)),
        ):
            assert metrics[f"llama_{model}_{name}"] == llama_by_hand(size, p)


def test_a_whole_model_by_hand(metrics: dict[str, float]) -> None:
    """7B, a sixteenth as wide: layers, last norm and head, cross-entropy, rotary tables of d = 128."""
    h, f, layers, a, V, d = 256, 688, 32, 2, 32000, 128
    parameters = 2 * V * h + h + layers * (4 * h * h + 3 * h * f + 2 * h)
    ends = 2 * h + 4 + 2 * h + 4 * V + 4 * d
    for name, a_layer in (
        ("model_7b_states", 16 * h + 8 * f + 4 * a + 8),
        ("model_7b_checkpointed_states", 2 * h),
    ):
        expected = ceil_div(STATES * parameters - 4, layers * a_layer + ends)
        assert metrics[name] == expected
    ratio = metrics["model_7b_checkpointed_states"] / metrics["model_7b_states"]
    assert metrics["checkpointing_ratio"] == ratio


def test_shares_by_hand(result: Result) -> None:
    """Activations over activations and states, on one GPU and on eight: T / (T + threshold)."""
    h, f, layers, a, V, d = 256, 688, 32, 2, 32000, 128
    parameters = 2 * V * h + h + layers * (4 * h * h + 3 * h * f + 2 * h)
    ends = 2 * h + 4 + 2 * h + 4 * V + 4 * d
    plain, checkpointed = layers * (16 * h + 8 * f + 4 * a + 8) + ends, layers * 2 * h + ends
    (figure,) = (each for each in result.figures if each.name == "share")
    *shares, half = figure.series
    assert (half.x, half.y) == ((shares[0].x[0], shares[0].x[-1]), (0.5, 0.5))
    for series, a_token, devices in zip(
        shares, (plain, plain, checkpointed, checkpointed), (8, 1, 8, 1), strict=True
    ):
        for tokens, share in zip(series.x, series.y, strict=True):
            saved, states = tokens * a_token + 4, 16 * parameters / devices
            assert share == pytest.approx(saved / (saved + states), rel=1e-12)
            threshold = states / a_token
            assert share == pytest.approx(tokens / (tokens + threshold), rel=1e-4)


def test_a_threshold_that_moves_with_depth_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer and three at different thresholds do not cancel."""
    monkeypatch.setattr(Gpt, "crossing", lambda self, p: 100 + self.layers)
    found = {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}
    assert found["depth_cancels"] is False


def test_metrics(metrics: dict[str, float]) -> None:
    """Small sizes: depth cancels, and thresholds scale with the width."""
    assert metrics["depth_cancels"] is True
    assert metrics["gpt_weights_per_width"] == pytest.approx(12 / 17, rel=0.01)
    assert metrics["gpt_states_per_width"] == pytest.approx(96 / 17, rel=0.01)
    assert metrics["gpt_matrix_weights"] < metrics["gpt_weights"]
