"""Bytes over the link, both sides' storages and Adam's traffic, against counts by hand and a plain training loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn, optim

from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.optimizer_offload import (
    PRESETS,
    Link,
    Offload,
    Traffic,
    Way,
    losses,
    network,
    offloaded,
    resident,
    run,
    schedule,
    travelling,
)

CONFIG = PRESETS["small"]
FORWARD = 2 * 8192 / 400e12  # seconds a parameter: what the card says of the lanes
COPY, ADAM = 2 / 64e9 / FORWARD, 28 / 300e9 / FORWARD


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics."""
    return {m.name: m for m in result.metrics}


def plain() -> torch.Tensor:
    """Mixed precision as one writes it without owners or links: bf16 weights, one AdamW on fp32 masters."""
    model = network(CONFIG)
    weights = list(model.parameters())
    masters = [nn.Parameter(p.detach().float()) for p in weights]
    optimizer = optim.AdamW(masters, lr=1e-3, fused=True)
    for loss in losses(CONFIG, model, CONFIG.steps):
        gradients = torch.autograd.grad(loss, weights)
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.float()
        optimizer.step()
        with torch.no_grad():
            for p, master in zip(weights, masters, strict=True):
                p.copy_(master)
    return torch.cat([p.detach().flatten() for p in weights])


def test_the_link_carries_gradients_down_and_weights_up(metrics: dict[str, Metric]) -> None:
    """Two bytes each way; as many times down as micro-batches move; twelve each way where states travel."""
    assert metrics["down"].value == metrics["up"].value == 2
    assert metrics["down_each_micro"].value == 2 * CONFIG.micro_batches
    assert metrics["states_up"].value == metrics["states_down"].value == 3 * 4


def test_both_sides_hold_what_a_count_says(metrics: dict[str, Metric]) -> None:
    """2 + 2 + 12 bytes together; 2 on the device, and 12 and a 16-bit gradient on the host."""
    assert metrics["resident_device"].value == 2 + 2 + 12
    assert metrics["offloaded_device"].value == 2
    assert metrics["offloaded_host"].value == 12 + 2
    assert metrics["one_gradient_at_a_time"].value is True


def test_weights_are_those_of_a_plain_loop(metrics: dict[str, Metric]) -> None:
    """All but a late update give what one AdamW over all masters gives."""
    expected = plain()
    assert torch.equal(resident(CONFIG)[0], expected)
    assert torch.equal(offloaded(CONFIG)[0], expected)
    assert torch.equal(travelling(CONFIG)[0], expected)
    assert metrics["offloaded_equal"].value is True
    assert metrics["travelling_equal"].value is True
    assert metrics["delayed_differs"].value is True


def test_a_late_update_uses_the_gradient_of_the_step_before() -> None:
    """After two steps only the first gradient has been used, so the weights are those of one step."""
    two, one = (type(CONFIG)(width=32, layers=2, steps=n) for n in (2, 2))
    late = offloaded(two, late=True)[0]
    model = network(one)
    sides = Offload(model, Link("cpu"))
    loss = next(losses(one, model, 1))
    loss.backward()
    sides.step()
    assert torch.equal(late, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_micro_batches_are_added_on_the_host() -> None:
    """The host's gradient after two backwards is the sum of both, and the device keeps none."""
    model = network(CONFIG)
    sides = Offload(model, Link("cpu"))
    first, second = losses(CONFIG, model, 2)
    first.backward()
    before = {
        p: owner.gradient.clone() for p, owner in sides.owners.items() if owner.gradient is not None
    }
    second.backward()
    assert all(p.grad is None for p in model.parameters())
    again = network(CONFIG)
    loss = list(losses(CONFIG, again, 2))[1]
    for (p, owner), gradient in zip(
        sides.owners.items(), torch.autograd.grad(loss, list(again.parameters())), strict=True
    ):
        assert owner.gradient is not None and torch.equal(owner.gradient, before[p] + gradient)


def test_adam_touches_what_a_count_by_hand_says(metrics: dict[str, Metric]) -> None:
    """One pass reads w, g, m, v and writes w, m, v; the loop is eight passes; casts read and write."""
    assert metrics["touched_fused"].value == 4 * 4 + 3 * 4
    decay, lerp, scale, square = 2, 3, 2, 3  # w·c; m, g → m; v·c; v, g → v
    root, divide, add, update = 2, 2, 2, 4
    loop = 4 * (decay + lerp + scale + square + root + divide + add + update)
    assert metrics["touched_loop"].value == loop == 80
    assert metrics["touched_casts"].value == (2 + 4) + (4 + 2)


def test_traffic_counts_reads_and_writes() -> None:
    """An in-place sum reads two and writes one; a square reads one and makes one; nothing else is counted."""
    x, y = torch.ones(100), torch.ones(100)
    steps: list[tuple[Callable[[], object], int]] = [(lambda: x.add_(y), 1200), (x.square, 800)]
    for step, expected in steps:
        traffic = Traffic()  # type: ignore[no-untyped-call]
        with traffic:
            step()
        assert traffic.touched == expected


def test_two_adams_differ_in_rounding(metrics: dict[str, Metric]) -> None:
    """The same gradients through torch's two implementations, at most the bound apart."""
    draw = torch.Generator().manual_seed(CONFIG.seed)
    start = torch.randn(2**14, generator=draw)
    gradients = [torch.randn(2**14, generator=draw) for _ in range(CONFIG.steps)]
    ends = []
    for settings in ({"fused": True}, {"foreach": True}):
        w = nn.Parameter(start.clone())
        optimizer = optim.AdamW([w], lr=1e-3, **settings)  # type: ignore[arg-type]
        for gradient in gradients:
            w.grad = gradient.clone()
            optimizer.step()
        ends.append(w.detach())
    far = (ends[0] - ends[1]).abs().max() / (ends[1] - start).abs().max()
    metric = metrics["fused_difference"]
    assert metric.bound is not None
    assert 0 < metric.value <= metric.bound
    assert metric.value == pytest.approx(float(far), rel=1e-3)


def test_paging_is_by_parameter(metrics: dict[str, Metric]) -> None:
    """From 100,000 values on, and two whole states are fetched: 4 + 4 bytes, or 1 + 1."""
    assert metrics["paged_from"].value == 100_000
    assert metrics["prefetched"].value == 4 + 4
    assert metrics["prefetched_8bit"].value == 1 + 1


def test_steps_take_what_their_longest_chain_takes(metrics: dict[str, Metric]) -> None:
    """All in a row; or the first gradient, all Adams, the last copy; or compute alone where all else fits beside it."""
    serial = 12 + 4 * COPY + 4 * ADAM + 4 * COPY
    assert metrics["step_serial"].value == pytest.approx(serial / 12, rel=1e-12)
    chain = 4 + 2 + COPY + 4 * ADAM + COPY
    assert metrics["step_overlapped"].value == pytest.approx(chain / 12, rel=1e-12)
    assert max(4 * ADAM, 4 * COPY) < 12
    assert metrics["step_delayed"].value == 1


@pytest.mark.parametrize("way", ["serial", "overlapped", "delayed"])
def test_a_schedule_can_be_run(way: Way) -> None:
    """A gradient exists before it goes down, is there before Adam, and Adam is done before the weight goes up."""
    lanes = schedule(way, COPY, ADAM, 5)
    ends = {
        (span.kind, span.label): span
        for own in lanes.values()
        for span in own
        if span.kind != "wait"
    }
    assert len(ends) == 5 * 5
    for i in map(str, range(1, 6)):
        assert ends["backward", i].end <= ends["down", i].start
        assert ends["adam", i].end <= ends["up", i].start
        if way != "delayed":
            assert ends["down", i].end <= ends["adam", i].start
    for own in lanes.values():
        for before, after in itertools.pairwise(own):
            assert before.end <= after.start


def test_the_lanes_are_those_of_the_metrics(result: Result, metrics: dict[str, Metric]) -> None:
    """Three headings with four rows each; a step is as long as its last span."""
    (lanes,) = (figure for figure in result.figures if isinstance(figure, Lanes))
    assert len(lanes.y.categories) == 3 * 5
    for number, way in enumerate(("serial", "overlapped")):
        spans = [span for span in lanes.spans if span.row // 5 == number]
        assert {span.row % 5 for span in spans} == {1, 2, 3, 4}
        assert max(span.end for span in spans) / 12 == pytest.approx(metrics[f"step_{way}"].value)
