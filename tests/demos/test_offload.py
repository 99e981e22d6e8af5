"""Bytes that offloading moves, against counts by hand and PyTorch's own ``save_on_cpu``."""

from __future__ import annotations

import itertools
import math
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu

from runnable_demos import offload
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from runnable_demos.models.gpt import Block
from runnable_demos.offload import PRESETS, Offload, Timed, run, schedule
from tests.demos.tracker import Tracked

CONFIG = PRESETS["small"]
H, S, HEADS = CONFIG.width, CONFIG.length, CONFIG.heads
BAR, DRAWN = 1000, 4  # FLOPs in the time of a byte, and blocks: what the card says of the lanes


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def saved_per_token() -> int:
    """Two bytes for each element: 32 h, the norms' statistics, and attention's log-sum-exp in fp32."""
    norms = 2 * (2 * H + 2 * H)  # input, and the output that the next matrix takes
    attention = 2 * (3 * H + H)  # q, k, v in one storage; the output
    mlp = 2 * (4 * H + 4 * H)  # GELU's input and output
    return norms + attention + mlp + 2 * 2 * 2 + 4 * HEADS


def flops_per_token() -> dict[str, int]:
    """A block's forward and backward, and what recomputation repeats: all but the last product."""
    matrices, attention = 24 * H * H, 4 * S * H
    last = 8 * H * H  # early stop: its output is not needed again
    return {
        "forward": matrices + attention,
        "backward": 2 * matrices + 5 * attention // 2,
        "again": matrices + attention - last,
    }


def test_what_is_moved_is_what_the_block_saves(result: Result) -> None:
    """All saved bytes leave, or the block's input alone."""
    assert value(result, "moved_per_token") == saved_per_token()
    assert value(result, "moved_inputs_per_token") == 2 * H
    assert value(result, "returns_what_left") is True


def test_nothing_is_computed_twice_and_nothing_changes(result: Result) -> None:
    """Offloading repeats no FLOPs, checkpointing does; the gradients are those of keeping all."""
    flops = flops_per_token()
    again = flops["again"] / (flops["forward"] + flops["backward"])
    assert value(result, "flops_offload") == 1
    assert value(result, "flops_checkpoint") == pytest.approx(1 + again, rel=1e-12)
    assert value(result, "gradients_bit_equal") is True


def test_compute_to_hide_behind_grows_with_the_width(result: Result) -> None:
    """12h + 2s FLOPs a byte for block inputs at 4h and 2h; the same FLOPs over all saved bytes."""
    assert value(result, "intensity_inputs") == 12 * (4 * H) + 2 * S
    assert value(result, "intensity_inputs_half_width") == 12 * (2 * H) + 2 * S
    wide = 4 * H
    flops = 24 * wide * wide + 4 * S * wide
    nbytes = 32 * wide + 2 * 2 * 2 + 4 * HEADS
    assert value(result, "intensity_all") == pytest.approx(flops / nbytes, rel=1e-12)


def test_peaks_fall_in_the_order_of_what_stays(result: Result) -> None:
    """Everything kept, then checkpoints, then checkpoints offloaded; offloading all is the least."""
    names = ("checkpoint", "both", "keep_last", "offload")
    peaks = [value(result, f"peak_{name}") for name in names]
    assert 1 > peaks[0] > peaks[1]
    assert peaks[1] > peaks[3]
    assert peaks[2] >= peaks[3]


@cache
def tracked() -> list[float]:
    """Peaks over that of keeping all, by a meter that like the demo's does not see what lies on the host."""
    blocks = CONFIG.blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload, "LiveMemory", Tracked)
        none, *others = (
            offload.cost(CONFIG, checkpointed=checkpointed, offloaded=offloaded).peak
            for checkpointed, offloaded in (
                (False, 0),
                (False, blocks),
                (False, blocks - 1),
                (True, 0),
                (True, blocks),
            )
        )
    return [peak / none for peak in others]


def test_peaks_are_those_of_pytorchs_own_tracker(result: Result) -> None:
    """Each way under another meter."""
    for name, peak in zip(("offload", "keep_last", "checkpoint", "both"), tracked(), strict=True):
        assert value(result, f"peak_{name}") == peak


def test_save_on_cpu_packs_parameters_too(result: Result) -> None:
    """PyTorch's own hooks are given as many bytes as the demo counts for a hook that does not look."""
    torch.manual_seed(0)
    model = Block(H, HEADS).to(torch.bfloat16)
    x = torch.randn(1, S, H).to(torch.bfloat16).requires_grad_()
    hooks = save_on_cpu()
    pack, seen = hooks.pack_hook, []

    def counting(tensor: Tensor) -> Any:
        seen.append(tensor)
        return pack(tensor)

    hooks.pack_hook = counting
    with hooks:
        model(x)
    nbytes = sum(t.element_size() * math.prod(t.shape) for t in seen)
    storages = {p.untyped_storage()._cdata for p in model.parameters()}
    mine = [t for t in seen if t.untyped_storage()._cdata in storages]
    of_parameters = sum(t.element_size() * math.prod(t.shape) for t in mine)
    assert value(result, "careless_over_careful") == nbytes / (S * saved_per_token())
    assert value(result, "parameters_among_them") == of_parameters / nbytes


def test_a_storage_moves_once_and_comes_back_once() -> None:
    """Two operators save x; it is copied once, and what was freed on the device is freed."""
    x = torch.randn(1000, requires_grad=True)
    moved = Offload()
    with LiveMemory() as live:
        with moved.hooks():
            y = x.exp()  # saves its output
            z = y.sin() + y.cos()  # both save y
            del y
        assert moved.out == 4000
        assert live.current == z.nbytes
        z.sum().backward()
    assert moved.back == 4000
    reference = x.detach().clone().requires_grad_()
    e = reference.exp()
    (e.sin() + e.cos()).sum().backward()
    assert torch.equal(x.grad, reference.grad)


def test_views_are_rebuilt_on_their_storage() -> None:
    """A transposed slice comes back with its strides and offset."""
    x = torch.randn(6, 4)
    view = x[2:, 1:3].t()
    moved = Offload()
    back = moved.unpack(moved.pack(view))
    assert back.stride() == view.stride() and back.storage_offset() == view.storage_offset()
    assert torch.equal(back, view)
    assert moved.out == moved.back == x.nbytes


def test_parameters_stay() -> None:
    """What is listed as kept passes through the hooks untouched."""
    layer = nn.Linear(4, 4)
    moved = Offload([layer.weight])
    assert moved.pack(layer.weight) is layer.weight
    assert moved.out == 0


def test_other_gradients_and_lost_bytes_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways that differ in one number are not equal; what comes back a byte short is not what left."""
    more = count(1)

    def cost(*_: object, **__: object) -> offload.Cost:
        return offload.Cost(10, 9, 100, 100, torch.tensor([1.0, float(next(more))]))

    monkeypatch.setattr(offload, "cost", cost)
    found = run(CONFIG, lambda share, what: None)
    assert value(found, "gradients_bit_equal") is False
    assert value(found, "returns_what_left") is False


def times() -> dict[str, tuple[float, float]]:
    """Backward and copy of a block of width 4h in units of its forward, by the formulas."""
    wide = 4 * H
    matrices, attention = 24 * wide * wide, 4 * S * wide
    forward = matrices + attention
    backward = 2 * matrices + 5 * attention / 2
    again = forward - 8 * wide * wide
    everything = 32 * wide + 2 * 2 * 2 + 4 * HEADS
    return {
        "inputs": ((backward + again) / forward, 2 * wide * BAR / forward),
        "everything": (backward / forward, everything * BAR / forward),
    }


def test_steps_take_what_the_slower_of_compute_and_link_takes(result: Result) -> None:
    """By hand: on one stream all adds up; on three, forwards and backwards follow the slower link.

    Of everything, the last block but one is not out in time and stays, with the last.
    """
    by_hand = times()
    b, r = by_hand["inputs"]
    assert value(result, "step_one_stream") == pytest.approx(
        1 + 2 * (DRAWN - 1) * r / (DRAWN * (1 + b)), rel=1e-12
    )
    assert 1 < r < 2  # at small size copies lag a little in the forward, and hide in the backward
    took = 2 + (DRAWN - 2) * r + DRAWN * b
    assert value(result, "step_inputs") == pytest.approx(took / (DRAWN * (1 + b)), rel=1e-12)
    b, r = by_hand["everything"]
    assert r > 1 + b  # its copy out would begin with the last forward, and end after that backward
    took = 2 + 2 * (DRAWN - 2) * r + 2 * b
    assert value(result, "step_everything") == pytest.approx(took / (DRAWN * (1 + b)), rel=1e-12)


@pytest.mark.parametrize("copy", [0.1, 0.5, 1.0])
def test_copies_no_longer_than_a_forward_hide(copy: float) -> None:
    """Compute never waits, which is the condition that the card derives."""
    compute = schedule(Timed(2.0, copy), 6, overlap=True)["compute"]
    assert [span.kind for span in compute] == ["forward"] * 6 + ["backward"] * 6
    assert compute[-1].end == pytest.approx(6 * 3)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("copy", [0.3, 1.5, 4.0])
def test_a_schedule_can_be_run(copy: float, overlap: bool) -> None:
    """What is copied is there, comes back before its use, and two blocks are on the device at most."""
    lanes = schedule(Timed(2.0, copy), 5, overlap=overlap)
    ran = {span.label: span for span in lanes["compute"] if span.kind != "wait"}
    out = {int(span.label): span for span in lanes["out"]}
    back = {int(span.label): span for span in lanes["back"]}
    stays = {4} if overlap and copy > 1 + 2.0 else set()  # not out when the last backward ends
    assert out.keys() == back.keys() == {1, 2, 3, 4} - stays  # not the last block
    for i, left in out.items():
        assert ran[f"F{i}"].end <= left.start and left.end <= back[i].start
        assert back[i].end <= ran[f"B{i}"].start
        if i > 2:
            assert out[i - 2].end <= ran[f"F{i}"].start
        assert ran[f"B{i + 1}"].start <= back[i].start  # block i + 2 has been freed
    for lane in lanes.values():
        for before, after in itertools.pairwise(lane):
            assert before.end <= after.start
    if overlap is False:
        busy = sum(s.end - s.start for lane in lanes.values() for s in lane if s.kind != "wait")
        assert busy == pytest.approx(lanes["compute"][-1].end)


def test_the_lanes_are_those_of_the_metrics(result: Result) -> None:
    """Each of three ways has a heading and three rows; its waits are what its step takes too long."""
    (lanes,) = (figure for figure in result.figures if isinstance(figure, Lanes))
    assert len(lanes.y.categories) == 12
    assert {span.row % 4 for span in lanes.spans} == {1, 2, 3}
    for way, row in (("one_stream", 1), ("inputs", 5), ("everything", 9)):
        spans = [span for span in lanes.spans if span.row == row]
        waits = sum(span.end - span.start for span in spans if span.kind == "wait")
        works = sum(span.end - span.start for span in spans if span.kind != "wait")
        assert value(result, f"step_{way}") == pytest.approx(1 + waits / works, rel=1e-12)
