"""FlashAttention against loops, finite differences, PyTorch's own kernel, and counts by hand."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed._tools.mem_tracker import MemTracker

from runnable_demos import flash_attention as demo
from runnable_demos.flash_attention import (
    HBM,
    PRESETS,
    SCORES,
    SIDE,
    checkpointed_attention,
    draw,
    eager_traffic,
    flash_attention,
    flash_traffic,
    gradients,
    measure_errors,
    measure_flops,
    naive_attention,
    peak_bytes,
    run,
    saved_bytes,
    walk_tiles,
)
from runnable_demos.lab.mechanisms import Tiles
from runnable_demos.lab.metrics import Result

CONFIG = PRESETS["small"]


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, text: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, float]:
    """Every metric of it, by name."""
    return {m.name: m.value for m in result.metrics}


def by_loops(Q: Tensor, K: Tensor, V: Tensor, causal: bool) -> Tensor:
    """Attention of one head in Python floats, row by row, from the definition."""
    rows = []
    for i, q in enumerate(Q.tolist()):
        seen = range(i + 1) if causal else range(len(K))
        weights = [
            math.exp(
                math.fsum(a * b for a, b in zip(q, K[j].tolist(), strict=True)) / math.sqrt(len(q))
            )
            for j in seen
        ]
        rows.append(
            [
                math.fsum(w * V[j, c].item() for w, j in zip(weights, seen, strict=True))
                / math.fsum(weights)
                for c in range(V.shape[1])
            ]
        )
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N", "size"), [(1, 4), (7, 3), (8, 4), (9, 16), (13, 1)])
def test_forward_equals_the_definition(N: int, size: int, causal: bool) -> None:
    """Block sizes that divide N, do not, exceed it, or are 1 give softmax(QKᵀ/√d)V."""
    torch.manual_seed(1)
    Q, K, V = (torch.randn(N, 5, dtype=torch.float64) for _ in range(3))
    got = flash_attention(Q, K, V, causal, size)
    torch.testing.assert_close(got, by_loops(Q, K, V, causal), rtol=0, atol=1e-14)


@pytest.mark.parametrize("causal", [False, True])
def test_backward_equals_finite_differences(causal: bool) -> None:
    """The hand-written backward passes gradcheck in fp64 on a ragged length."""
    torch.manual_seed(2)
    Q, K, V = (torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(partial(flash_attention, causal=causal, size=4), (Q, K, V))


def test_gradients_equal_those_of_sdpa() -> None:
    """PyTorch's own attention gives the same O, dQ, dK and dV in fp64."""
    X = draw(CONFIG, 50, torch.float64)
    ours = gradients(partial(flash_attention, causal=True, size=16), X)
    theirs = gradients(partial(F.scaled_dot_product_attention, is_causal=True), X)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_rising_scores_do_not_overflow() -> None:
    """Scores of up to 1e4 that rise from block to block stay finite: the running maximum is subtracted."""
    K = torch.arange(64.0)[:, None] * 160.0
    Q, V = torch.ones(64, 1), torch.arange(64.0)[:, None]
    got = flash_attention(Q, K, V, size=8)
    assert torch.equal(got, torch.full((64, 1), 63.0))  # all weight is on the last key


def test_errors_keep_to_their_bounds() -> None:
    """Each bounded metric is at most its bound, and above zero: the comparison is no tautology."""
    bounded = [m for m in run(CONFIG, lambda share, text: None).metrics if m.kind == "bounded"]
    assert [m.name for m in bounded] == ["fp32_error", "fp64_error", "error_ratio"]
    for m in bounded:
        assert m.bound is not None
        assert 0 < m.value <= m.bound


@pytest.mark.parametrize(("B", "H", "N", "d"), [(1, 1, 64, 8), (2, 3, 48, 16), (1, 2, 100, 32)])
def test_saved_bytes_by_hand(B: int, H: int, N: int, d: int) -> None:
    """Naive keeps Q/√d, K, V and P; flash keeps Q, K, V, O and one number a row, 4 bytes an element."""
    X = [torch.randn(B, H, N, d, requires_grad=i < 3) for i in range(4)]
    assert saved_bytes(naive_attention, X) == 4 * B * H * (3 * N * d + N * N)
    assert saved_bytes(partial(flash_attention, size=16), X) == 4 * B * H * (4 * N * d + N)


def test_naive_peak_is_three_matrices() -> None:
    """P, dP and dS are alive together in softmax's backward, beside O, dV and Q/√d."""
    N, d = 128, CONFIG.head_dim
    X = draw(CONFIG, N)
    assert peak_bytes(naive_attention, X) == 4 * (3 * N * N + 3 * N * d)


def test_checkpointing_keeps_the_peak() -> None:
    """Recomputed as a whole, S and P come back, and softmax's backward still needs P, dP and dS."""
    N, d = 128, CONFIG.head_dim
    X = draw(CONFIG, N)
    assert saved_bytes(checkpointed_attention, X) == 4 * 3 * N * d
    assert 3 * N * N <= peak_bytes(checkpointed_attention, X) / 4 <= 3 * N * N + 4 * N * d


def test_flops_by_hand() -> None:
    """A product of N×d by d×N is 2N²d: two in each forward, five in flash's backward, four in naive's."""
    N, d = 96, CONFIG.head_dim
    X = draw(CONFIG, N)
    product = 2 * N * N * d
    naive = measure_flops(naive_attention, X)
    flash = measure_flops(partial(flash_attention, size=32), X)
    assert (naive.forward, naive.backward) == (2 * product, 4 * product)
    assert (flash.forward, flash.backward) == (2 * product, 5 * product)


def test_causal_skips_the_blocks_above_the_diagonal() -> None:
    """With T block rows, T(T+1)/2 of T² blocks are computed."""
    N, T = 96, 3
    X = draw(CONFIG, N)
    whole = measure_flops(partial(flash_attention, size=N // T), X)
    causal = measure_flops(partial(flash_attention, size=N // T, causal=True), X)
    assert causal.forward * T * T == whole.forward * T * (T + 1) // 2
    assert causal.backward * T * T == whole.backward * T * (T + 1) // 2


@pytest.mark.parametrize(("N", "size"), [(64, 16), (96, 32), (64, 64)])
def test_flash_traffic_by_hand(N: int, size: int) -> None:
    """Forward: Q and O once, K and V once a row block. Backward: Q, dO, L, D and dQ twice a column block."""
    d, T = CONFIG.head_dim, N // size
    forward = 2 * N * d + N + T * 2 * N * d
    delta = 3 * N * d + N  # reads dO and O, writes D and the zeros of dQ
    backward = 4 * N * d + T * (4 * N * d + 2 * N)
    X = draw(CONFIG, N)
    assert flash_traffic(X, size) == 4 * (forward + delta + backward)


def test_naive_traffic_by_hand() -> None:
    """Forward touches an N×N matrix four times, the backward seven times."""
    N, d = 96, CONFIG.head_dim
    forward = 2 * N * d + (2 * N * d + N * N) + 2 * N * N + (N * N + 2 * N * d)
    products = 4 * (2 * N * d + N * N)  # dV, dP, dQ, dK
    backward = products + 3 * N * N + 2 * N * d  # and softmax's own, and the scale of dQ
    assert eager_traffic(naive_attention, draw(CONFIG, N)) == 4 * (forward + backward)


def test_a_ragged_last_block_is_read_once() -> None:
    """Bytes through HBM follow the rows that exist, not the padded block."""
    X = draw(CONFIG, 40)
    hbm = HBM()
    flash_attention(*X[:3], size=32, hbm=hbm)
    d = CONFIG.head_dim
    assert hbm.bytes == 4 * (2 * 40 * d + 40 + 2 * 2 * 40 * d)


def test_metrics_are_what_the_formulas_say(metrics: dict[str, float]) -> None:
    """The recorded ratios equal the closed forms for the small sizes."""
    N, d = CONFIG.length, CONFIG.head_dim
    assert metrics["naive_saved_bytes"] == 4 * (3 * N * d + N * N)
    assert metrics["flash_saved_bytes"] == 4 * (4 * N * d + N)
    assert metrics["saved_ratio"] == (3 * d + N) / (4 * d + 1)
    assert metrics["flash_saved_linear"] is True
    assert metrics["logsumexp_bytes_per_token"] == 4
    assert metrics["forward_flops_ratio"] == 1
    assert metrics["backward_flops_ratio"] == 5 / 4
    assert metrics["step_flops_ratio"] == 7 / 6
    assert metrics["backward_over_forward"] == 5 / 2
    T = N // 4 // CONFIG.block
    assert metrics["causal_flops_ratio"] == (T + 1) / (2 * T)


def test_sdpa_keeps_the_same(metrics: dict[str, float]) -> None:
    """SDPA saves Q, K, V, O and an fp32 logsumexp; with dropout three N×N matrices and no logsumexp."""
    N, d = CONFIG.length, CONFIG.head_dim
    assert metrics["sdpa_saved_equal"] is True
    assert metrics["sdpa_bf16_saved_bytes_per_token"] == 4 * 2 * d + 4
    # Scaled Q and K, V, then P, the mask and their product, all fp32.
    assert metrics["sdpa_dropout_ratio"] == (3 * N * d + 3 * N * N) / (4 * N * d + N)


@cache
def tracked_peaks() -> list[int]:
    """At the longest N: naive, in blocks, and naive under a checkpoint, by PyTorch's own tracker."""
    peaks = []
    flash = partial(flash_attention, size=CONFIG.block)
    for attention in (naive_attention, flash, checkpointed_attention):
        X = draw(CONFIG, CONFIG.length)
        tracker = MemTracker()
        tracker.track_external(*X)
        with tracker:
            gradients(attention, X)
        total = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        peaks.append(total - sum(x.nbytes for x in X))
    return peaks


def test_peaks_are_those_of_pytorchs_own_tracker(metrics: dict[str, float]) -> None:
    """Each peak, and in numbers of N×N matrices."""
    N = CONFIG.length
    naive, tiled, checkpointed = tracked_peaks()
    assert naive == 4 * (3 * N * N + 3 * N * CONFIG.head_dim)
    assert metrics["naive_peak_bytes"] == naive
    assert metrics["flash_peak_bytes"] == tiled
    assert metrics["peak_ratio"] == naive / tiled
    assert metrics["naive_peak_matrices"] == naive / (4 * N * N)
    assert metrics["checkpoint_peak_matrices"] == checkpointed / (4 * N * N)


def test_traffic_by_the_formulas(metrics: dict[str, float]) -> None:
    """At N/4: 11N² + 16Nd numbers, against what passes the doors with T blocks of rows."""
    N, d = CONFIG.length // 4, CONFIG.head_dim

    def tiled(block: int) -> int:
        T = N // block
        return 4 * (
            (2 * N * d + N + T * 2 * N * d) + (3 * N * d + N) + 4 * N * d + T * (4 * N * d + 2 * N)
        )

    naive = 4 * (11 * N * N + 16 * N * d)
    assert metrics["naive_bytes_moved"] == naive
    assert metrics["flash_bytes_moved"] == tiled(CONFIG.block)
    assert metrics["traffic_ratio"] == naive / tiled(CONFIG.block)
    assert metrics["traffic_ratio_small_block"] == naive / tiled(CONFIG.block // 4)


def test_errors_are_as_large_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention a quarter too large, where the length is ragged and causal alone, errs by a quarter."""

    def wrong(
        Q: Tensor, K: Tensor, V: Tensor, causal: bool = False, size: int = 128, hbm: object = None
    ) -> Tensor:
        O = naive_attention(Q, K, V, causal)  # noqa: E741 - the paper's letter
        return 1.25 * O if causal and Q.shape[-2] % 2 else O

    monkeypatch.setattr(demo, "flash_attention", wrong)
    errors = measure_errors(CONFIG)
    assert errors.fp32 == pytest.approx(0.25, rel=1e-4)
    assert errors.fp64 == pytest.approx(0.25, rel=1e-12)
    assert errors.ratio > 0.25 / 1e-6  # naive attention itself errs by fp32's rounding


def test_unequal_bytes_are_called_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each reading differs, nothing is in proportion and nothing the same."""
    readings = count(1000)
    monkeypatch.setattr(demo, "saved_bytes", lambda attention, X: next(readings))
    found = {m.name: m.value for m in run(CONFIG, lambda share, text: None).metrics}
    assert found["flash_saved_linear"] is False
    assert found["sdpa_saved_equal"] is False


def test_tiles_tell_what_a_row_carries(result: Result) -> None:
    """By the definition: after block j the maximum and the sum of all so far, and how the maximum moved them."""
    figure = next(figure for figure in result.figures if isinstance(figure, Tiles))
    n, row, m = len(SCORES) // SIDE, 2, -math.inf
    expected: dict[tuple[int, int], tuple[str, ...]] = {}
    for j in range(row + 1):
        seen = SCORES[: (j + 1) * SIDE]  # the row's last query sees all of its last block
        before, m = m, max(seen)
        total = math.fsum(math.exp(s - m) for s in seen)
        expected[row, j] = (
            f"m = {m}", f"ℓ, Õ × {math.exp(before - m):.2g}", f"ℓ = {total:.3g}",
        )  # fmt: skip
    assert {(t.row, t.column): t.notes for t in figure.tiles if t.notes} == expected
    assert [notes[0] for notes in expected.values()] == ["m = 1", "m = 3", "m = 3"]
    for tile in figure.tiles:
        place = (tile.row, tile.column)
        visited = "done" if place < (row, row) else "now" if place == (row, row) else "later"
        assert tile.kind == ("skipped" if tile.column > tile.row else visited)
    assert len(figure.tiles) == n * n


def test_tiles_are_those_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that goes through hidden blocks skips none in the figure either."""
    assert [tile.kind for tile in walk_tiles()].count("skipped") == 3 + 2 + 1
    monkeypatch.setattr(demo, "hidden", lambda rows, columns: False)
    assert "skipped" not in [tile.kind for tile in walk_tiles()]
