"""Bytes kept and FLOPs repeated within a block, against counts by hand for every choice."""

from __future__ import annotations

from functools import partial
from itertools import chain, combinations, count

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from runnable_demos import checkpoint_selective
from runnable_demos.checkpoint_selective import (
    PRESETS,
    PRODUCTS,
    ScoresBlock,
    keeping,
    measure,
    run,
)
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric

CONFIG = PRESETS["small"]
S, H, A = CONFIG.tokens, CONFIG.width, CONFIG.heads

# By hand: numbers in each product's output, and its FLOPs (a multiply-add is two).
NUMBERS = {
    "qkv": 3 * S * H,
    "scores": A * S * S,
    "context": S * H,
    "proj": S * H,
    "up": 4 * S * H,
    "down": S * H,
}
FLOPS = {
    "qkv": 2 * S * H * 3 * H,
    "scores": 2 * A * S * S * (H // A),
    "context": 2 * A * S * S * (H // A),
    "proj": 2 * S * H * H,
    "up": 2 * S * H * 4 * H,
    "down": 2 * S * 4 * H * H,
}
STEP = 3 * sum(FLOPS.values())  # each product has two in the backward


@pytest.fixture(scope="module")
def block() -> ScoresBlock:
    """A block in bf16."""
    torch.manual_seed(0)
    return ScoresBlock(H, A).to(torch.bfloat16)


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    """One run at small size."""
    return {m.name: m for m in run(CONFIG, lambda share, what: None).metrics}


def test_every_choice_holds_and_repeats_what_a_count_by_hand_says(block: ScoresBlock) -> None:
    """Held are the input and what is kept; repeated is what is not kept, but for the last product."""
    for kept in chain.from_iterable(combinations(PRODUCTS, n) for n in range(len(PRODUCTS) + 1)):
        held, flops = measure(keeping(block, frozenset(kept)), CONFIG)
        assert held == 2 * (S * H + sum(NUMBERS[name] for name in kept))
        repeated = sum(FLOPS[name] for name in PRODUCTS if name not in (*kept, "down"))
        assert flops - STEP == repeated


def test_without_a_checkpoint_each_operator_keeps_its_own(metrics: dict[str, Metric]) -> None:
    """Two norms (input, two statistics), qkv, scaled q, probabilities, and the inputs of four linear layers."""
    norms = 2 * (H + 2)
    linears = H + H + H + 4 * H  # inputs of qkv, proj, up, down
    attention = 3 * H + H + A * S  # q, k and v in one storage; q scaled; softmax's output
    gelu = 4 * H
    assert metrics["held_all"].value == 2 * (norms + linears + attention + gelu)


def test_recomputing_the_core_drops_probabilities_and_scaled_queries(
    metrics: dict[str, Metric],
) -> None:
    """The attention core's own tensors go; its input, the qkv output, stays."""
    assert metrics["held_all"].value - metrics["held_core"].value == 2 * (A * S + H)
    share = 2 * (A * S + H) / metrics["held_all"].value
    assert metrics["core_share_of_bytes"].value == pytest.approx(share, rel=1e-12)
    assert metrics["repeated_core"].value == FLOPS["scores"] / STEP


def test_the_named_choices_by_hand(metrics: dict[str, Metric]) -> None:
    """Everything recomputed, all products kept but ``down``, and the scores given up besides."""
    kept = sum(NUMBERS[name] for name in PRODUCTS if name != "down")
    assert metrics["held_full"].value == 2 * H
    assert metrics["held_products"].value == 2 * (H + kept / S)
    assert metrics["held_no_scores"].value == 2 * (H + kept / S - A * S)
    all_but_last = sum(FLOPS[name] for name in PRODUCTS if name != "down")
    assert metrics["repeated_full"].value == all_but_last / STEP
    assert metrics["repeated_products"].value == 0
    assert metrics["repeated_no_scores"].value == FLOPS["scores"] / STEP
    assert metrics["plans_measured"].value == 2 ** len(FLOPS)


def test_prices_are_those_of_the_formula(metrics: dict[str, Metric]) -> None:
    """In bf16 a byte of scores brings back h/a FLOPs and a byte of up's output h."""
    assert metrics["price_scores"].value == H / A
    assert metrics["price_up"].value == H
    assert metrics["price_ratio"].value == A
    assert metrics["last_product_saves_nothing"].value is True


def test_no_measured_choice_beats_the_frontier(metrics: dict[str, Metric]) -> None:
    """The count of points on the frontier is that of a pairwise comparison by the test."""
    points = {}
    for kept in chain.from_iterable(combinations(PRODUCTS, n) for n in range(len(PRODUCTS) + 1)):
        held = S * H + sum(NUMBERS[name] for name in kept)
        points[kept] = (held, sum(FLOPS[n] for n in PRODUCTS if n not in (*kept, "down")))
    undominated = {
        p
        for p in points.values()
        if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points.values())
    }
    assert metrics["plans_on_frontier"].value == len(undominated)


def test_gradients_do_not_depend_on_what_is_kept(block: ScoresBlock) -> None:
    """A policy decides where a tensor comes from, not what it is."""
    x = torch.randn(S, H, dtype=torch.bfloat16)
    parameters = list(block.parameters())

    def gradients(output: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(output.float().square().sum(), parameters)

    expected = gradients(block(x))
    for kept in (frozenset(), frozenset({"qkv", "up"}), frozenset(PRODUCTS)):
        got = gradients(keeping(block, kept)(x))
        assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_a_last_product_that_saves_something_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every choice repeats another number of FLOPs, the output of ``down`` is not for nothing."""
    more = count(1)
    monkeypatch.setattr(
        checkpoint_selective, "measure", lambda *_: (1000 + 7 * next(more), 5000 - next(more))
    )
    found = {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}
    assert found["last_product_saves_nothing"] is False


def test_strips_are_as_wide_as_a_count_by_hand() -> None:
    """Four choices by bytes, the input first, and again by FLOPs; ``down`` is in neither strip."""
    figure = {f.name: f for f in run(CONFIG, lambda share, what: None).figures}["choices"]
    assert isinstance(figure, Lanes)
    held = {"X": 2 * S * H, "Q": 6 * S * H, "S": 2 * A * S * S, "C": 2 * S * H}
    held |= {"P": 2 * S * H, "U": 8 * S * H}
    flops = {letter: FLOPS[name] for letter, name in zip("QSCPU", list(FLOPS)[:5], strict=True)}
    kept = ("QSCPU", "QCPU", "C", "")
    for first, widths in ((1, held), (6, flops)):
        for row, letters in enumerate(kept, first):
            spans = [s for s in figure.spans if s.row == row]
            assert [s.label for s in spans] == list(widths)
            shares = [s.end - s.start for s in spans]
            total = sum(widths.values())
            assert shares == pytest.approx([w / total for w in widths.values()], abs=1e-12)
            assert [s.kind == "kept" for s in spans] == [s.label in "X" + letters for s in spans]


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize(
    "products", [frozenset[int](), frozenset({1, 3, 5}), frozenset(range(1, 7))]
)
def test_a_llama_block_holds_its_input_and_the_outputs_that_are_kept(
    attention: bool, products: frozenset[int]
) -> None:
    """The card's worked example: q, k, v, o, gate and up, fused attention with 4 B per row and head."""
    heads, kv, d, f = 4, 1, 16, 160
    h = heads * d
    outputs = {1: h, 2: kv * d, 3: kv * d, 4: h, 5: f, 6: f}
    sizes = [(h, outputs[n]) for n in (1, 2, 3, 4, 5, 6)] + [(f, h)]
    wq, wk, wv, wo, w1, w3, w2 = (
        nn.Linear(a, b, bias=False, dtype=torch.bfloat16) for a, b in sizes
    )
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def block(x: Tensor) -> Tensor:
        y = functional.rms_norm(x, (h,))
        q, k, v = (w(y).view(1, S, -1, d).transpose(1, 2) for w in (wq, wk, wv))
        k, v = (t.expand(1, heads, S, d) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + wo(y.transpose(1, 2).reshape(S, h))
        y = functional.rms_norm(x, (h,))
        out: Tensor = x + w2(functional.silu(w1(y)) * w3(y))
        return out

    calls = count(1)

    def policy(context: object, op: object, *_: object, **__: object) -> CheckpointPolicy:
        stays = op is torch.ops.aten.mm.default and next(calls) in products
        stays = stays or (attention and op is fused)
        return CheckpointPolicy.MUST_SAVE if stays else CheckpointPolicy.PREFER_RECOMPUTE

    leaf = torch.ones(S, h, dtype=torch.bfloat16, requires_grad=True)
    with LiveMemory() as live:
        x = leaf * 1.0
        y = checkpoint(
            block,
            x,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=partial(create_selective_checkpoint_contexts, policy),
        )
        del x
        held = live.current - y.untyped_storage().nbytes()
    kept = 2 * S * (h + sum(outputs[n] for n in products))
    assert held == kept + attention * (2 * S * h + 4 * S * heads)
