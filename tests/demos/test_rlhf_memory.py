"""Who is resident when: the ledgers of PPO, GRPO and DPO by hand, and the small models by definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from runnable_demos.rlhf_memory import (
    PRESETS,
    Role,
    Stage,
    adapt,
    adapters_off,
    build,
    decode,
    log_probs,
    new_cache,
    outputs,
    run,
)

CONFIG = PRESETS["small"]
WEIGHTS, STATES, GRADIENTS = 2, 4 + 4 + 4, 2  # bf16; fp32 master and two moments; bf16
H, L, V = CONFIG.width, CONFIG.layers, CONFIG.vocabulary
KV = CONFIG.kv_heads * H // CONFIG.heads
BASE = 2 * V * H + L * (2 * H * H + 2 * H * KV + 3 * H * 2 * H + 2 * H) + H


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> Any:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_each_model_by_hand(result: Result) -> None:
    """In training it has weights, masters, moments and gradients; waiting no gradients; frozen weights."""
    assert value(result, "trained_states") == WEIGHTS + STATES + GRADIENTS
    assert value(result, "waiting_states") == WEIGHTS + STATES
    assert value(result, "frozen_states") == WEIGHTS


def test_resident_models_add_up(result: Result) -> None:
    """One model is in training, the other trained ones wait, and the frozen ones are just there."""
    waiting, training = WEIGHTS + STATES, WEIGHTS + STATES + GRADIENTS
    frozen = {"ppo": 3, "grpo": 2, "dpo": 1}  # reference, reward model, engine
    assert value(result, "ppo_resident") == training + waiting + frozen["ppo"] * WEIGHTS
    assert value(result, "ppo_rollout_resident") == 2 * waiting + frozen["ppo"] * WEIGHTS
    assert value(result, "grpo_resident") == training + frozen["grpo"] * WEIGHTS
    assert value(result, "grpo_without_reference") == training + (frozen["grpo"] - 1) * WEIGHTS
    assert value(result, "dpo_resident") == training + frozen["dpo"] * WEIGHTS
    assert value(result, "dpo_precomputed") == training


def test_put_away_one_model_is_left(result: Result) -> None:
    """The engine alone while it generates, and the one in training later."""
    assert value(result, "ppo_rollout_offloaded") == WEIGHTS
    assert value(result, "ppo_offloaded") == value(result, "grpo_offloaded") == 16


def test_what_crosses_the_link_by_hand(result: Result) -> None:
    """Weights for the hand-over and for each score; what is trained comes and goes with its states."""
    trained = WEIGHTS + STATES
    assert value(result, "ppo_moved_in") == WEIGHTS + 4 * WEIGHTS + 2 * trained
    assert value(result, "ppo_moved_out") == 2 * trained
    assert value(result, "grpo_moved_in") == WEIGHTS + 2 * WEIGHTS + trained
    assert value(result, "grpo_moved_out") == trained


def test_a_lora_actor_is_its_own_reference(result: Result) -> None:
    """The base has two bytes a parameter, the adapters sixteen; nothing is there twice."""
    adapters = L * CONFIG.rank * ((H + H) + (H + KV))
    expected = (WEIGHTS * BASE + 16 * adapters) / (BASE + adapters)
    assert value(result, "dpo_lora") == pytest.approx(expected, rel=1e-12)
    assert value(result, "lora_reference_equal")


def test_cache_and_experience_by_hand(result: Result) -> None:
    """A key and a value in bf16; ids in int64, three fp32 numbers a target, one reward a sample."""
    assert value(result, "kv_per_token") == 2 * 2 * L * KV
    assert value(result, "kv_per_token_layer_head") == 2 * 2
    tokens = CONFIG.prompt + CONFIG.response
    expected = 8 + 3 * 4 * (tokens - 1) / tokens + 4 / tokens
    assert value(result, "experience_per_token") == pytest.approx(expected, rel=1e-12)
    assert value(result, "reference_per_pair") == 2 * 4


def test_nothing_else_changes(result: Result) -> None:
    """Weights are the same whether models are put away, and whether the reference was computed before."""
    assert value(result, "offload_equal")
    assert value(result, "precomputed_equal")
    assert value(result, "ledger_closes")


def test_the_ledger_notices_what_it_does_not_know() -> None:
    """One tensor that belongs to nobody, and it does not close."""
    with LiveMemory() as live:
        stage = Stage(CONFIG, {"actor": Role(build(CONFIG), trained=True)}, live)
        stage.look()
        assert stage.closes
        stray = torch.zeros(1)
        stage.look()
    assert not stage.closes
    assert stray.numel() == 1


def test_decoding_with_a_cache_is_the_whole_forward() -> None:
    """Token by token, the logits are those of all tokens at once; in bf16 to two digits."""
    torch.manual_seed(0)
    model = build(CONFIG)
    tokens = torch.randint(V, (CONFIG.samples, CONFIG.prompt + CONFIG.response))
    cache = new_cache(CONFIG)
    with torch.no_grad():
        expected = outputs(model, tokens)
        for position in range(tokens.shape[1]):
            found = decode(model, tokens[:, position : position + 1], position, cache)
            assert torch.allclose(found[:, 0].float(), expected[:, position], atol=0.05)


def test_log_probs_by_definition() -> None:
    """Softmax over the vocabulary, and the entry of the next token."""
    torch.manual_seed(0)
    model, tokens = build(CONFIG), torch.randint(V, (2, 5))
    with torch.no_grad():
        found = log_probs(model, tokens)
        table = outputs(model, tokens[:, :-1]).softmax(-1)
    for b in range(2):
        for t in range(4):
            assert found[b, t] == pytest.approx(
                float(table[b, t, tokens[b, t + 1]].log()), rel=1e-5
            )


def test_adapters_start_as_nothing_and_can_be_turned_off() -> None:
    """With B at zero the model is the base; changed, it is the base only without its adapters."""
    torch.manual_seed(0)
    model, tokens = build(CONFIG), torch.randint(V, (2, 5))
    with torch.no_grad():
        before = outputs(model, tokens)
        adapt(model, CONFIG.rank)
        assert torch.equal(outputs(model, tokens), before)
        for name, p in model.named_parameters():
            if name.endswith(".B"):
                p.fill_(0.1)
        assert not torch.equal(outputs(model, tokens), before)
        with adapters_off(model) as base:
            assert torch.equal(outputs(base, tokens), before)


ROWS = ("rollout", "actor", "reference", "critic", "reward")
AT_WORK = {
    1: "rollout",
    2: "actor",
    3: "reference",
    4: "critic",
    5: "reward",
    6: "actor",
    7: "critic",
}


def test_lanes_by_hand(result: Result) -> None:
    """Resident, all rows are full; put away, each phase has the one model that works."""
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    spans = {(s.row, (s.start + s.end) / 2): (s.kind, s.label) for s in figure.spans}
    training = {6: "actor", 7: "critic"}
    for row, name in enumerate(ROWS):
        trained = name in ("actor", "critic")
        for phase in range(1, 8):
            if training.get(phase) == name:
                expected = "training", "16"
            elif trained:
                expected = "waiting", "14"
            else:
                expected = ("generating" if (name, phase) == ("rollout", 1) else "weights"), "2"
            assert spans.pop((row + 1, phase)) == expected
            if AT_WORK[phase] == name:
                alone = expected if training.get(phase) == name or not trained else ("weights", "2")
                assert spans.pop((row + 7, phase)) == alone
    assert not spans


def test_bars_are_the_fullest_moments(result: Result) -> None:
    """Column by column, models by hand."""
    figure = next(figure for figure in result.figures if figure.name == "peaks")
    bars = {series.name: series.y for series in figure.series}
    assert bars["critic"] == (14, 0, 0, 0, 0, 0) or bars["critic"] == (16, 0, 0, 0, 0, 0)
    assert bars["actor"][0] + bars["critic"][0] == 30
    assert bars["reference"] == (2, 2, 2, 0, 0, 0)
    assert bars["reward"] == (2, 0, 0, 0, 0, 0)
    assert bars["rollout"] == (2, 2, 0, 0, 0, 0)
    assert bars["actor"][1:4] == (16, 16, 16)
    assert bars["actor"][5] == 16
