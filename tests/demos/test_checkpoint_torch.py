"""What checkpoints do and do not restore, against plain calls and counts by hand."""

from __future__ import annotations

import ast
import inspect
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from runnable_demos import checkpoint_torch
from runnable_demos.checkpoint_torch import (
    ELSEWHERE,
    PRESETS,
    SAVED,
    Norm,
    batch_norm,
    call,
    count_ops,
    foreign_random,
    graph_nodes,
    mini_checkpoint,
    overwritten,
    raises,
    run,
    safe,
    same,
    surplus,
    whole,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.models.gpt import Block

CONFIG = PRESETS["small"]


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def test_every_fact_of_the_card_holds(metrics: dict[str, Metric]) -> None:
    """All truth values: each difference is provoked, and shows."""
    facts = {name: m.value for name, m in metrics.items() if isinstance(m.value, bool)}
    assert len(facts) == 18
    assert all(facts.values()), facts


def test_the_mini_checkpoint_runs_the_function_twice_and_no_more() -> None:
    """Once forward, once in the backward; the part after the last saved tensor is not reached."""
    seen: list[str] = []

    def function(x: Tensor) -> Tensor:
        seen.append("begin")
        y = F.gelu(x)
        seen.append("end")
        return y

    x = torch.randn(3, requires_grad=True)
    y = mini_checkpoint(function, x)
    assert seen == ["begin", "end"]
    y.sum().backward()
    assert seen == ["begin", "end", "begin"]
    assert x.grad is not None
    expected = torch.autograd.grad(F.gelu(x).sum(), x)[0]
    assert torch.equal(x.grad, expected)


def test_the_mini_checkpoint_keeps_nothing_of_the_inside() -> None:
    """A tensor made within is gone after the forward."""
    inside: list[weakref.ref[Tensor]] = []

    def function(x: Tensor) -> Tensor:
        y = x.exp()
        inside.append(weakref.ref(y))
        return y.sin()

    y = mini_checkpoint(function, torch.randn(3, requires_grad=True))
    assert inside[0]() is None
    y.sum().backward()


def test_the_code_on_the_card_does_what_the_demos_does() -> None:
    """Both languages print one fence; it runs, has the demo's functions, and gives its gradients."""
    root = Path(__file__).parents[2]
    card = (root / "cards/deep-learning/checkpoint-torch.md").read_text(encoding="utf-8")
    fences = [part.split("```")[0] for part in card.split("```python run\n")[1:]]
    code = next(fence for fence in fences if "mini_checkpoint" in fence)
    assert fences.count(code) == 2
    names: dict[str, Any] = {}
    exec(code, names)  # the card's own words
    printed, own = ast.parse(code), ast.parse(inspect.getsource(mini_checkpoint))
    functions = [n.name for n in ast.walk(own) if isinstance(n, ast.FunctionDef)]
    assert set(functions) <= {n.name for n in ast.walk(printed) if isinstance(n, ast.FunctionDef)}
    x = torch.randn(5, 4, requires_grad=True)
    layers = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5))
    gradients = []
    for way in (lambda f, x: f(x), names["mini_checkpoint"], mini_checkpoint):
        torch.manual_seed(1)
        gradients.append(torch.autograd.grad(way(layers, x).square().sum(), x)[0])
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


def test_what_a_segment_saves_is_what_the_lanes_are_called() -> None:
    """In order: input and weight, the input of GELU, the mask, input and weight again."""
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    x = torch.randn(5, 6, requires_grad=True)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        last(F.dropout(F.gelu(first(x)), 0.1))
    assert SAVED == ("x", "w1", "z", "mask", "a", "w2")
    assert len(saved) == len(SAVED)
    assert saved[0].data_ptr() == x.data_ptr()
    assert saved[1].data_ptr() == first.weight.data_ptr()
    assert torch.equal(saved[2], first(x))
    assert torch.equal(saved[4], F.gelu(first(x)) * saved[3])
    assert saved[5].data_ptr() == last.weight.data_ptr()


def test_lanes_show_what_is_kept_and_what_is_filled_again(result: Result) -> None:
    """Counted by hand, in operators that are no views.

    Forward: addmm, gelu, four of dropout, addmm; then the sum. Backward: two mm and a sum, the
    mask's mul, gelu_backward, two mm and a sum. The second run stops before its last addmm.
    """
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    saved = [0, 0, 1, 5, 6, 6]  # operators before each is saved
    used = [6, 6, 5, 4, 1, 1]  # operators of the backward until each is used
    expected = {(0, "forward", 0, 7), (0, "backward", 8, 16)}
    for n in range(6):
        expected.add((1 + n, "kept", saved[n], 8 + used[n]))
    expected |= {(7, "forward", 0, 7), (7, "recompute", 8, 14), (7, "backward", 14, 22)}
    expected |= {(8, "kept", 0, 22), (9, "kept", 0, 22)}  # input, random state
    for n in range(6):
        expected.add((10 + n, "empty", saved[n], 8 + saved[n]))
        expected.add((10 + n, "filled", 8 + saved[n], 14 + used[n]))
    assert {(s.row, s.kind, s.start, s.end) for s in figure.spans} == expected
    names = [row.name for row in figure.y.categories]
    assert names == ["plain", *SAVED, "checkpointed", "input", "rng", *SAVED]


def test_operators_are_counted_where_they_run() -> None:
    """Sin and cos save their input, and before they run: the last one does not run again."""
    x = torch.randn(3, requires_grad=True)
    assert count_ops(lambda x: x.sin().cos().sin(), x) == (3, 0)
    assert count_ops(lambda x: safe(lambda x: x.sin().cos().sin(), x), x) == (3, 2)
    assert count_ops(lambda x: whole(lambda x: x.sin().cos().sin(), x), x) == (3, 3)


def test_nodes_of_a_graph() -> None:
    """sin, cos and the leaf's accumulator; under a reentrant checkpoint its own node in their place."""
    x = torch.randn(3, requires_grad=True)
    assert graph_nodes(x.sin().cos()) == 3
    assert graph_nodes(safe(lambda x: x.sin().cos(), x)) == 3
    assert graph_nodes(checkpoint(lambda x: x.sin().cos(), x, use_reentrant=True)) == 2


def test_early_stop_leaves_out_the_last_product_and_what_follows(
    metrics: dict[str, Metric],
) -> None:
    """addmm, view and add at the end of a block; the reentrant one also detaches its input."""
    forward = metrics["ops_forward"].value
    assert metrics["ops_again"].value == forward - 3
    assert metrics["ops_again_whole"].value == forward
    assert metrics["ops_again_reentrant"].value == forward + 1
    assert metrics["graph_nodes_reentrant"].value == 2
    assert metrics["graph_nodes"].value == nodes_of_a_block()


def nodes_of_a_block() -> int:
    """Counted by walking down from the output of a block that is not checkpointed."""
    x = torch.randn(1, CONFIG.tokens, CONFIG.width, requires_grad=True)
    todo, seen = [Block(CONFIG.width, CONFIG.heads)(x).grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None:
            seen.add(node)
            todo += [following for following, _ in node.next_functions if following not in seen]
    return len(seen)


def test_batch_norm_averages_twice(metrics: dict[str, Metric]) -> None:
    """From 0, one update leaves m·mean and two leave (1 − (1 − m)²)·mean."""
    assert metrics["batch_norm_batches"].value == 2
    plain, doubled = batch_norm(CONFIG, call, 0.1), batch_norm(CONFIG, safe, 0.1)
    torch.testing.assert_close(doubled.mean, plain.mean * (1 - 0.9**2) / 0.1)
    assert plain.batches == 1
    error = metrics["corrected_mean_error"]
    assert error.bound is not None
    assert error.value <= error.bound


def test_counts_of_calls(metrics: dict[str, Metric]) -> None:
    """A hook before runs in both, a hook after only in the forward; each backward runs once more."""
    assert metrics["hook_calls_before"].value == 2
    assert metrics["hook_calls_after"].value == 1
    assert metrics["runs_of_two_backwards"].value == 3


def test_the_random_state_is_mersenne_twisters(metrics: dict[str, Metric]) -> None:
    """As PyTorch documents no size, the state of a generator of one's own is the oracle."""
    assert metrics["rng_state_bytes"].value == torch.Generator().get_state().numel()


def test_a_frozen_input_is_no_obstacle_to_the_non_reentrant_one() -> None:
    """Gradients of parameters are those of a plain call."""
    linear = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    safe(lambda x: F.gelu(linear(x)), x).sum().backward()
    expected = torch.autograd.grad(F.gelu(linear(x)).sum(), linear.weight)[0]
    assert linear.weight.grad is not None
    assert torch.equal(linear.weight.grad, expected)


def test_sameness_is_of_every_bit_of_every_tensor() -> None:
    """One bit in the last of three is noticed, and so is a tensor too few."""
    a = [torch.ones(2), torch.zeros(3), torch.full((4,), 0.5)]
    b = [t.clone() for t in a]
    assert same(a, b)
    b[2][3] = torch.nextafter(b[2][3], torch.tensor(1.0))
    assert not same(a, b)
    with pytest.raises(ValueError, match="shorter"):
        same(a, a[:2])


def test_a_wrong_checkpoint_is_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty lines that forget the random state, or hold all of the graph, do not pass for right."""

    def forgetful(function: checkpoint_torch.Forward, x: Tensor) -> Tensor:
        return checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)

    monkeypatch.setattr(checkpoint_torch, "mini_checkpoint", forgetful)
    assert verdict("mini_gradients_bit_equal") is False
    monkeypatch.setattr(checkpoint_torch, "mini_checkpoint", call)
    assert verdict("mini_gradients_bit_equal") is True
    assert verdict("mini_peak_equal") is False


def verdict(name: str) -> object:
    """A truth value of another run."""
    return next(m.value for m in run(CONFIG, lambda share, what: None).metrics if m.name == name)


def test_a_mask_from_the_default_generator_is_no_obstacle() -> None:
    """The comparison finds equal what is equal: PyTorch's own generator is restored, NumPy's not."""
    x = torch.randn(64, requires_grad=True)
    half = torch.full((64,), 0.5)
    own = foreign_random(lambda: torch.bernoulli(half), lambda: torch.manual_seed(3), x)
    numpy = foreign_random(
        lambda: torch.from_numpy(np.random.rand(64) > 0.5).float(), lambda: np.random.seed(3), x
    )
    assert own == (True, True)
    assert numpy == (True, False)


def test_an_input_left_alone_is_no_obstacle() -> None:
    """Overwriting is noticed only where something is overwritten; raising only where something raises."""
    linear, z = nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    assert overwritten(linear, z, lambda x: None)
    assert overwritten(linear, z, lambda x: x.data.mul_(1))
    assert not overwritten(linear, z, lambda x: x.data.mul_(2))
    assert not raises(lambda: None)


def test_an_input_is_guarded_by_position_alone() -> None:
    """Overwritten in place it raises there, and nowhere else; left alone it harms none of the ways."""
    linear, z = nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    assert raises(lambda: overwritten(linear, z, lambda x: x.mul_(2)))
    assert len(ELSEWHERE) == 3
    for wrap in ELSEWHERE:
        assert overwritten(linear, z, lambda x: None, wrap)
        assert not overwritten(linear, z, lambda x: x.mul_(2), wrap)


def test_a_surplus_is_noticed_only_without_early_stop() -> None:
    """Run as it stands it is no obstacle; with an operator more it is wrong, and raises if all runs."""
    x = torch.randn(3, requires_grad=True)
    assert surplus(x, call)
    assert not surplus(x, safe)
    assert raises(lambda: surplus(x, whole), CheckpointError)


def test_wrong_statistics_and_gradients_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean a quarter too large errs by a quarter; unequal gradients and equal means are told."""

    def other(config: object, wrap: object, momentum: float) -> Norm:
        plain = batch_norm(CONFIG, call, 0.1)
        if wrap is call:
            return plain
        mean = plain.mean if momentum == 0.1 else 1.25 * plain.mean
        return Norm(2, mean, [g + 1 for g in plain.gradients])

    monkeypatch.setattr(checkpoint_torch, "batch_norm", other)
    found = {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}
    assert found["corrected_mean_error"] == pytest.approx(0.25)
    assert found["batch_norm_gradients_equal"] is False
    assert found["batch_norm_mean_differs"] is False
