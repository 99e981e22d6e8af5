"""The AMP ledger against a count by hand of what each tensor of a block costs."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from runnable_demos import amp_ledger
from runnable_demos.amp_ledger import PRESETS, Mode, keep, make_block, weight_copies
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.models.gpt import GPTSize, make_tokens
from runnable_demos.models.recipes import RECIPES, Trainer

SMALL = PRESETS["small"]
H, A = SMALL.width, SMALL.heads


@pytest.fixture(scope="module")
def values() -> dict[str, float]:
    """One run of the small preset."""
    torch.manual_seed(SMALL.seed)
    result = amp_ledger.run(SMALL, lambda *_: None)
    return {metric.name: metric.value for metric in result.metrics}


# Elements a token, by hand: what the two LayerNorms read; and what they give, q, k, v, the output
# of attention, what GELU reads and gives.
NORM_INPUTS = 2 * H
REST = 2 * H + 3 * H + H + 4 * H + 4 * H
LOGSUMEXP = A
STATISTICS = 2 * 2  # mean and 1/σ of two norms


def test_bytes_a_token_by_hand(values: dict[str, float]) -> None:
    """Fp32 keeps all in four bytes; autocast all but the residual stream in two; bf16 all in two."""
    small = 4 * LOGSUMEXP + 4 * STATISTICS
    assert values["fp32_saved_bytes_per_token"] == 4 * (NORM_INPUTS + REST) + small
    assert values["amp_saved_bytes_per_token"] == 4 * NORM_INPUTS + 2 * REST + small
    bf16_small = 4 * LOGSUMEXP + 2 * STATISTICS
    assert values["bf16_saved_bytes_per_token"] == 2 * (NORM_INPUTS + REST) + bf16_small


def test_the_copies_of_weights_by_hand(values: dict[str, float]) -> None:
    """The graph keeps one bf16 copy of each of the four weights."""
    assert values["weight_copy_bytes_per_param"] == 2
    saved = keep(SMALL, "amp", SMALL.tokens)
    assert weight_copies(SMALL, saved, SMALL.tokens) == 2 * (3 + 1 + 4 + 4) * H * H


def test_break_even_by_hand(values: dict[str, float]) -> None:
    """The copies cost 24h² bytes once, the activations save 28h bytes a token."""
    copies = 2 * 12 * H * H
    saving = (4 - 2) * REST
    assert values["break_even_tokens"] == math.floor(copies / saving) + 1
    assert values["break_even_over_width"] == values["break_even_tokens"] / H


def test_few_tokens_cost_more_under_autocast(values: dict[str, float]) -> None:
    """With h/8 tokens the copies outweigh the saving several times over."""
    n, small = H // 8, 4 * LOGSUMEXP + 4 * STATISTICS
    amp = n * (4 * NORM_INPUTS + 2 * REST + small) + 24 * H * H
    assert math.isclose(
        values["few_tokens_ratio"], amp / (n * (4 * (NORM_INPUTS + REST) + small)), rel_tol=1e-12
    )


def test_states_do_not_change(values: dict[str, float]) -> None:
    """Weights, gradients and both moments stay fp32: 16 bytes a parameter, and a counter a tensor."""
    assert values["states_ratio"] == 1
    assert values["gradients_are_fp32"] is True
    tensors = 1 + 12 * SMALL.layers + 2 + 1
    vocabulary = 4 * H
    parameters = 2 * vocabulary * H + 2 * H + SMALL.layers * (12 * H * H + 13 * H)
    expected = 16 + 4 * tensors / parameters
    assert math.isclose(values["states_bytes_per_param"], expected, rel_tol=1e-12)


def test_the_cache_outlives_a_backward_within_its_context(values: dict[str, float]) -> None:
    """All bf16 copies, biases too, stay until the context ends; after it nothing is left."""
    biases = 3 * H + H + 4 * H + H
    expected = 2 * (12 * H * H + biases) / (12 * H * H)
    assert math.isclose(values["inside_left_bytes_per_param"], expected, rel_tol=1e-12)
    assert values["outside_left_bytes_per_param"] == 0


def test_the_cache_shares_one_copy(values: dict[str, float]) -> None:
    """A weight used four times is cast once with the cache, four times without."""
    assert values["shared_weight_copies_cached"] == 1
    assert values["shared_weight_copies_uncached"] == 4


def test_a_softmax_in_fp32_is_kept_twice(values: dict[str, float]) -> None:
    """Fp32 shares one output with the product; under autocast its bf16 copy is kept beside it."""
    assert values["softmax_fp32_bytes_per_score"] == 4
    assert values["softmax_amp_bytes_per_score"] == 4 + 2


def test_ratios_are_between_a_half_and_one(values: dict[str, float]) -> None:
    """Autocast saves less than half of the activations, bf16 throughout almost exactly half."""
    assert 0.5 < values["bf16_activation_ratio"] < values["amp_activation_ratio"] < 0.6
    assert 0.5 < values["bf16_peak_ratio"] < values["peak_ratio"] < 1


def test_activation_ratios_by_hand(values: dict[str, float]) -> None:
    """The bytes a token of the three modes, over one another."""
    fp32 = 4 * (NORM_INPUTS + REST) + 4 * LOGSUMEXP + 4 * STATISTICS
    amp = 4 * NORM_INPUTS + 2 * REST + 4 * LOGSUMEXP + 4 * STATISTICS
    bf16 = 2 * (NORM_INPUTS + REST) + 4 * LOGSUMEXP + 2 * STATISTICS
    assert values["amp_activation_ratio"] == pytest.approx(amp / fp32, rel=1e-12)
    assert values["bf16_activation_ratio"] == pytest.approx(bf16 / fp32, rel=1e-12)


def test_peaks_are_those_of_pytorchs_own_tracker(values: dict[str, float]) -> None:
    """The second step of a small GPT in each of the three recipes."""
    size = GPTSize(SMALL.layers, width=H, heads=A, vocabulary=4 * H)
    peaks = {}
    for recipe in RECIPES[:3]:
        trainer = Trainer(size, recipe, "cpu")
        tokens = make_tokens(4 * H, SMALL.tokens // 64, 64, "cpu")
        trainer.backward(tokens)
        trainer.update()
        tracker = MemTracker()
        tracker.track_external(trainer.model, trainer.optimizers[0], tokens)
        with tracker:
            trainer.backward(tokens)
            trainer.update()
        peaks[recipe.name] = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert values["peak_ratio"] == peaks["amp"] / peaks["fp32"]
    assert values["bf16_peak_ratio"] == peaks["bf16"] / peaks["fp32"]


def test_with_few_tokens_the_peak_is_the_update(values: dict[str, float]) -> None:
    """One sequence of 64 tokens, by PyTorch's own tracker: autocast has no byte more or less."""
    size = GPTSize(SMALL.layers, width=H, heads=A, vocabulary=4 * H)
    peaks = []
    for recipe in RECIPES[:2]:
        trainer = Trainer(size, recipe, "cpu")
        tokens = make_tokens(4 * H, 1, 64, "cpu")
        trainer.backward(tokens)
        trainer.update()
        tracker = MemTracker()
        tracker.track_external(trainer.model, trainer.optimizers[0], tokens)
        with tracker:
            trainer.backward(tokens)
            trainer.update()
        peaks.append(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])
    assert peaks[0] == peaks[1]
    assert values["few_tokens_peak_ratio"] == 1


def test_an_evaluation_keeps_every_copy(values: dict[str, float]) -> None:
    """Without gradients the cache alone holds the copies, biases too, until autocast is left."""
    blocks = [make_block(SMALL, "amp") for _ in range(SMALL.layers)]
    weights = sum(p.nbytes for block in blocks for p in block.parameters())
    x = torch.randn(1, 32, H)
    with LiveMemory() as memory:
        with torch.no_grad(), amp_ledger.autocast(SMALL, "amp"):
            for block in blocks:
                x = block(x)
            within = memory.current
        behind = memory.current
    copies = SMALL.layers * 2 * (12 * H * H + 3 * H + H + 4 * H + H)
    assert within - behind == copies

    def peak(
        mode: Mode,
    ) -> int:  # beside the weights; the copies pile up until the last block is through
        blocks, x = [make_block(SMALL, mode) for _ in range(SMALL.layers)], torch.randn(1, 32, H)
        with LiveMemory() as memory, torch.no_grad(), amp_ledger.autocast(SMALL, mode):
            for block in blocks:
                x = block(x)
            return memory.peak

    assert peak("amp") > copies
    found = (weights + peak("amp")) / (weights + peak("fp32"))
    assert math.isclose(values["evaluation_ratio"], found, rel_tol=1e-3)


def test_autocast_computes_what_it_says() -> None:
    """The ledger is of a block that works: autocast's output is fp32 and near the fp32 one."""
    torch.manual_seed(0)
    block = make_block(SMALL, "amp")
    x = torch.randn(1, 32, H)
    with sdpa_kernel(SDPBackend.MATH):
        exact = block(x)
        with amp_ledger.autocast(SMALL, "amp"):
            rounded = block(x)
    assert rounded.dtype is torch.float32
    # bf16 rounds each product to 2⁻⁸; a few of them add up.
    assert (rounded - exact).abs().max() / exact.abs().max() < 0.02


def test_the_break_even_holds_for_real_memory() -> None:
    """Below the break-even a real forward under autocast holds more live bytes than fp32."""

    def live(mode: amp_ledger.Mode, n: int) -> int:
        block = make_block(SMALL, mode)
        x = torch.randn(1, n, H, requires_grad=True)
        with LiveMemory() as memory:
            with amp_ledger.autocast(SMALL, mode):
                y = block(x * 1.0)
            held = memory.current
        del y
        return held

    assert live("amp", H // 2) > live("fp32", H // 2)
    assert live("amp", 2 * H) < live("fp32", 2 * H)


def test_the_figure_shows_when_copies_die() -> None:
    """Outside: layer by layer in the backward. Inside: at the end. Checkpoints: twice, never all in the backward."""
    found = amp_ledger.run(SMALL, lambda *_: None)
    figure = next(figure for figure in found.figures if figure.name == "copies")
    assert isinstance(figure, Lanes)
    rows = [category.name for category in figure.y.categories]
    copies: dict[str, list[tuple[float, float]]] = {}
    way = ""
    for number, name in enumerate(rows):
        way = name if name in amp_ledger.WAYS else way
        if name.startswith("copy"):
            lives = [(s.start, s.end) for s in figure.spans if s.row == number]
            copies[f"{way} {name[-1]}"] = lives
    # Three forwards are actions 0, 1, 2; outside, autocast is left in 3 and the backward is 4, 5, 6.
    assert copies["outside 1"] == [(0, 7)]
    assert copies["outside 2"] == [(1, 6)]
    assert copies["outside 3"] == [(2, 5)]
    assert [copies[f"inside {n}"] for n in (1, 2, 3)] == [[(0, 7)], [(1, 7)], [(2, 7)]]
    assert copies["checkpoints 1"] == [(0, 4), (6, 7)]
    assert copies["checkpoints 2"] == [(1, 4), (5, 6)]
    assert copies["checkpoints 3"] == [(2, 4), (4, 5)]


@pytest.mark.parametrize("cache", [True, False])
def test_bytes_left_with_checkpoints_are_no_copies(cache: bool) -> None:
    """Live bytes by another tool: the cache alone keeps copies, until the context is left."""
    blocks = [make_block(SMALL, "amp") for _ in range(3)]
    x = torch.randn(1, 32, H)
    with LiveMemory() as memory:
        with amp_ledger.autocast(SMALL, "amp", cache):
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            within = memory.current
        behind = memory.current
    biases = 3 * H + H + 4 * H + H
    assert within - behind == (3 * 2 * (12 * H * H + biases) if cache else 0)
    assert behind == 3 * 32 * H * 4  # what the three blocks gave; the first input was there before
