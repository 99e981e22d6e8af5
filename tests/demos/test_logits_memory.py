"""Logits: bytes by hand, and gradients against fp64 and finite differences."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from runnable_demos import logits_memory
from runnable_demos.logits_memory import (
    PRESETS,
    FusedLoss,
    flops,
    lifetimes,
    memory,
    naive,
    results,
    run,
    ways,
    worst_error,
)

T, H, V, K = 24, 10, 70, 4


def drawn(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """A small case."""
    torch.manual_seed(4)
    x, W = torch.randn(T, H, dtype=dtype), torch.randn(V, H, dtype=dtype)
    return x.requires_grad_(), W.requires_grad_(), torch.randint(V, (T,))


@pytest.mark.parametrize("name", ways(K))
def test_loss_and_gradients_by_hand(name: str) -> None:
    """Every way gives −mean log p[y], (p − onehot) W / T and (p − onehot)ᵀ x / T."""
    x, W, y = drawn(torch.float64)
    logits = (x @ W.T).detach()
    p = logits.exp() / logits.exp().sum(1, keepdim=True)
    loss = -p[torch.arange(T), y].log().mean()
    g = (p - torch.eye(V, dtype=torch.float64)[y]) / T
    for ours, truth in zip(
        results(ways(K)[name], x, W, y), (loss, g @ W.detach(), g.T @ x.detach()), strict=True
    ):
        torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-13)


def test_upstream_gradient_scales() -> None:
    """The fused loss takes part in a larger graph: its gradients follow the factor in front."""
    x, W, y = drawn(torch.float64)
    (dx,) = torch.autograd.grad(FusedLoss.apply(x, W, y, K), x)
    (scaled,) = torch.autograd.grad(-3 * FusedLoss.apply(x, W, y, K), x)
    torch.testing.assert_close(scaled, -3 * dx)


@pytest.mark.parametrize("k", [1, 5, 24])
def test_ragged_chunks(k: int) -> None:
    """A number of chunks that does not divide the tokens changes nothing."""
    X = drawn(torch.float64)
    whole = results(ways(1)["naive"], *X)
    for name in ("chunked", "recomputed", "fused"):
        for ours, truth in zip(results(ways(k)[name], *X), whole, strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-13)


def test_saved_bytes_by_hand() -> None:
    """One fp32 log-softmax, or a bf16 one; nothing beside x; or dx and dW. And 4 bytes of weights."""
    saved = {name: memory(loss, T, H, V).saved for name, loss in ways(K).items()}
    assert saved["naive"] == 4 * T * V + 4
    assert saved["low"] == 2 * T * V + 2
    assert saved["chunked"] == 4 * T * V + 4 * K
    assert saved["recomputed"] == 0
    assert saved["fused"] == 2 * T * H + 2 * V * H


def test_peak_by_hand() -> None:
    """The log-softmax, its gradient and the logits' gradient: 12 bytes a logit, 6 in bf16."""
    T, H, V = 4096, 2, 500  # the gradients of x and W are small beside the logits
    scalars = 16
    assert 0 <= memory(ways(1)["naive"], T, H, V).peak - 12 * T * V <= scalars
    assert 0 <= memory(ways(1)["low"], T, H, V).peak - 6 * T * V <= scalars


def test_flops_by_hand() -> None:
    """Three products at once and fused, four where chunks are recomputed; 2TVh each."""
    config = PRESETS["small"]
    product = 2 * 48 * 16 * 300
    counted = {name: flops(loss, config) for name, loss in ways(4).items()}
    assert counted == {
        "naive": 3 * product,
        "low": 3 * product,
        "chunked": 3 * product,
        "recomputed": 4 * product,
        "fused": 3 * product,
    }


def test_metrics() -> None:
    """The recorded ratios are those of the sums by hand."""
    found = run(PRESETS["small"], lambda share, text: None).metrics
    metrics = {m.name: m.value for m in found}
    assert metrics["saved_per_logit"] == 4
    assert metrics["low_saved_per_logit"] == 2
    assert metrics["peak_per_logit"] == 12
    assert metrics["peak_over_saved"] == 3
    assert metrics["recomputed_flops_ratio"] == 4 / 3
    assert metrics["fused_flops_ratio"] == 1
    assert metrics["peak_over_bf16"] == 6
    assert all(m.bound is None or 0 < m.value <= m.bound for m in found)


def test_bytes_of_every_way_by_hand() -> None:
    """A logit of fp32 is 4 bytes; each chunk keeps a scalar; what stands beside the logits is named.

    Chunked: all log-softmaxes, and two gradients of the chunk that is on its way back. Recomputed: one
    chunk at a time, beside dW and the dx of the chunks before. Fused: beside dx and dW the chunk's
    logits and log-softmax in fp32, and the softmax and gradient of the chunk before, still named.
    """
    config = PRESETS["small"]
    metrics = {m.name: m.value for m in run(config, lambda share, text: None).metrics}
    T, H, V, k = config.tokens, config.width, config.vocabulary, config.chunks
    logits, dx, dW = T * V, 2 * T * H, 2 * V * H
    expected = {
        "naive_saved": 4 * logits + 4,
        "naive_peak": 12 * logits + 8,
        "low_peak": 6 * logits + 4,
        "chunked_saved": 4 * logits + 4 * k,
        "chunked_peak": 4 * logits + 8 * logits // k + 4 * (k + 2),
        "recomputed_saved": 0,
        "recomputed_peak": 12 * logits // k + dW + dx * (k - 1) // k + 8,
        "fused_saved": dx + dW,
        "fused_peak": (4 + 4 + 4 + 2) * logits // k + dx + dW + 4,
    }
    assert {name: metrics[name] for name in expected} == expected
    ratio = expected["chunked_saved"] / expected["naive_saved"]
    assert metrics["chunked_saved_ratio"] == pytest.approx(ratio, rel=1e-12)
    ratio = expected["naive_peak"] / expected["fused_peak"]
    assert metrics["fused_peak_ratio"] == pytest.approx(ratio, rel=1e-12)


def test_the_worst_error_is_as_large_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way whose loss, and so its gradients, are a quarter too large errs by a quarter."""
    monkeypatch.setattr(
        logits_memory, "ways", lambda k: {"right": naive, "wrong": lambda *X: 1.25 * naive(*X)}
    )
    assert worst_error(PRESETS["small"]) == pytest.approx(0.25, rel=1e-5)


def test_three_tensors_of_all_logits_are_alive_at_once() -> None:
    """All at once: bytes by hand, and log-softmax, the gradient into it and the one out of it overlap."""
    T, h, V = 64, 16, 500
    forward, lives = lifetimes(naive, T, h, V, 4)
    assert forward == 3
    sizes = [2 * T * V, 4 * T * V, 4 * T * V, 4 * T * V, 4 * T * V, 2 * T * V, 2 * V * h, 2 * T * h]
    assert [life.nbytes for life in lives] == sizes
    alive = [[life.born for life in lives if life.born <= at <= life.gone] for at in range(1, 9)]
    assert alive == [[1], [1, 2], [2, 3], [3, 4], [3, 4, 5], [5, 6], [6, 7], [6, 7, 8]]


def test_what_a_chunk_keeps_is_what_its_way_promises() -> None:
    """A log-softmax waits for its backward, the first longest; recomputed it is made twice; fused it never waits."""
    T, h, V, k = 64, 16, 500, 4
    found = {}
    for name in ("chunked", "recomputed", "fused"):
        forward, lives = lifetimes(ways(k)[name], T, h, V, k)
        ours = [life for life in lives if life.op == "_log_softmax"]
        assert {life.nbytes for life in ours} == {4 * T * V // k}
        found[name] = forward, ours
    forward, kept = found["chunked"]
    assert [life.chunk for life in kept] == [0, 1, 2, 3]
    assert all(a.born < b.born and a.gone > b.gone for a, b in itertools.pairwise(kept))
    assert all(life.born <= forward < life.gone for life in kept)
    forward, twice = found["recomputed"]
    assert [life.chunk for life in twice] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [life.gone <= forward for life in twice] == [True] * k + [False] * k
    forward, fused = found["fused"]
    assert all(life.gone <= forward for life in fused)
