"""The measuring tools against hand counts and against PyTorch's own ``MemTracker``."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.measure import (
    CATEGORIES,
    LiveMemory,
    allocator_peak,
    count_flops,
    fake,
    saved_tensors,
    storage_bytes,
)

B, D, H = 4, 8, 16
F32 = 4


def tensor(*shape: int) -> Tensor:
    """A random tensor that asks for a gradient."""
    return torch.randn(*shape, requires_grad=True)


# --- saved tensors ---


@pytest.mark.parametrize(
    ("op", "elements"),
    [
        (lambda x: x + 1, 0),
        (lambda x: x * 2, 0),
        (torch.relu, B * D),
        (torch.exp, B * D),
        (F.gelu, B * D),
        (lambda x: F.softmax(x, -1), B * D),
        (lambda x: x * x, B * D),  # both operands are one tensor
        (lambda x: x * x.relu(), 2 * B * D),  # the product keeps both; ReLU's output is one of them
        (lambda x: torch.relu(x).exp(), 2 * B * D),
    ],
)
def test_saved_bytes_by_hand(op: Callable[[Tensor], Tensor], elements: int) -> None:
    """Each op saves what its derivative needs, a shared tensor once."""
    x = tensor(B, D)
    with saved_tensors() as saved:
        op(x)
    assert saved.bytes == elements * F32


@pytest.mark.parametrize("context", [contextlib.nullcontext, fake])
def test_a_matmul_chain_saves_each_operand_once(context: Callable[[], object]) -> None:
    """(x @ a) @ b keeps x, a, x @ a and b, on real and on fake tensors."""
    with context():  # type: ignore[attr-defined]
        x, a, b = tensor(B, D), tensor(D, H), tensor(H, D)
        with saved_tensors() as saved:
            x @ a @ b
        assert saved.bytes == (B * D + D * H + B * H + H * D) * F32
        with saved_tensors(exclude=[a, b]) as saved:
            x @ a @ b
        assert saved.bytes == (B * D + B * H) * F32


def test_saved_tensors_are_described() -> None:
    """Each saved tensor names its shape, dtype, op, and whether another op had saved it."""
    layer = nn.Linear(D, H)
    with saved_tensors(layer.parameters()) as saved:
        F.linear(torch.relu(layer(torch.randn(B, D))), torch.randn(D, H))
    found = [(t.op.rsplit(".", 1)[-1], t.shape, t.shared) for t in saved.tensors]
    # F.linear keeps its weight transposed.
    assert found == [("linear", (B, D), False), ("relu", (B, H), False), ("linear", (H, D), False)]
    assert all(t.dtype is torch.float32 for t in saved.tensors)
    assert sum(saved.bytes_by_op().values()) == saved.bytes


def test_relu_output_is_shared_with_the_next_layer() -> None:
    """ReLU keeps its output, which the next Linear keeps as its input: one storage."""
    a, b = nn.Linear(D, H), nn.Linear(H, D)
    with saved_tensors([*a.parameters(), *b.parameters()]) as saved:
        b(torch.relu(a(torch.randn(B, D))))
    assert saved.bytes == (B * D + B * H) * F32
    assert [t.shared for t in saved.tensors] == [False, False, True]


def test_a_saved_slice_holds_its_whole_storage() -> None:
    """A saved view keeps all the bytes behind it alive."""
    x = tensor(B, D)
    with saved_tensors() as saved:
        torch.exp(x)[0].square()
    assert [t.nbytes for t in saved.tensors] == [B * D * F32] * 2
    assert saved.bytes == B * D * F32


def test_the_backward_still_works_and_leaves_no_cycle() -> None:
    """Gradients are those without the hooks, and no saved output holds its own node."""
    x = tensor(B, D)
    with saved_tensors() as saved:
        y = torch.exp(x)
        y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach(), rtol=0, atol=0)
    assert saved.bytes == B * D * F32
    gc.collect()
    gc.disable()
    try:
        with LiveMemory() as live:
            with saved_tensors():
                torch.exp(x)
            assert live.current == 0
    finally:
        gc.enable()


def test_checkpoint_saves_its_input_alone() -> None:
    """A checkpointed segment keeps what it was given and nothing of what it computed."""
    x = tensor(B, D)
    with saved_tensors() as saved:
        checkpoint(lambda y: y.exp().exp().exp(), x, use_reentrant=False)
    assert saved.bytes == B * D * F32


# --- live memory ---


def test_live_bytes_by_hand() -> None:
    """Allocations add up, frees subtract, views and in-place ops cost nothing."""
    with LiveMemory() as live:
        a = torch.zeros(100)
        b = a + 1
        assert live.current == 800
        b.mul_(2)
        c = b.view(10, 10).t()
        assert live.current == 800
        del b
        assert live.current == 800  # c still holds the storage
        del c
        assert live.current == 400
        d = torch.tensor([1.0, 2.0])
        assert live.current == 408
        del a, d
    assert live.peak == 800
    assert live.current == 0
    totals = [sum(row) for row in live.timeline]
    assert totals == [0, 400, 800, 400, 408, 8, 0]


def test_what_was_there_before_is_not_counted() -> None:
    """A bare LiveMemory measures what its body adds, views of older tensors included."""
    x = torch.zeros(100)
    with LiveMemory() as live:
        x.add_(1)
        y = x[:50]
        assert live.current == 0
        z = y + 1
        assert live.current == 200
    assert z.shape == (50,)


def test_a_tangent_that_is_none_takes_no_bytes() -> None:
    """The zeros that forward mode makes up for it have a size, and no memory behind them."""
    with LiveMemory() as live:
        zeros = torch._efficientzerotensor((B, D))
        assert zeros.untyped_storage().nbytes() == B * D * F32
        assert live.current == 0
        made = zeros + torch.ones(B, D)
    assert live.peak == 2 * B * D * F32, made.shape


def test_reset_peak_starts_from_what_is_live() -> None:
    """After reset_peak only later events count."""
    with LiveMemory() as live:
        a = torch.zeros(100)
        b = torch.zeros(100)
        del b
        live.reset_peak()
        assert live.peak == 400
        c = torch.zeros(10)
        assert live.peak == 440
    assert a.numel() + c.numel() == 110


def test_resize_of_a_storage_is_followed_and_the_patch_is_undone() -> None:
    """FSDP2 frees by resizing a storage to 0."""
    original = torch.UntypedStorage.resize_
    with LiveMemory() as live:
        a = torch.zeros(100)
        a.untyped_storage().resize_(0)
        assert live.current == 0
        a.untyped_storage().resize_(800)
        assert live.current == 800
    assert torch.UntypedStorage.resize_ is original


def mlp() -> nn.Module:
    """Three linear layers with GELU between, and a buffer."""
    return nn.Sequential(
        nn.Linear(D, H), nn.GELU(), nn.BatchNorm1d(H), nn.Linear(H, H), nn.GELU(), nn.Linear(H, D)
    )


class Attention(nn.Module):
    """Pre-norm attention with a residual, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, S, D)`` to the same."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        y: Tensor = x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
        return y


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    """One step."""
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("context", [contextlib.nullcontext, fake])
@pytest.mark.parametrize("build", [mlp, Attention])
@pytest.mark.parametrize("foreach", [False, True])
def test_peak_and_categories_agree_with_mem_tracker(
    context: Callable[[], object], build: Callable[[], nn.Module], foreach: bool
) -> None:
    """PyTorch's tracker, written by others, finds the same peak, parameters and gradients."""
    with context():  # type: ignore[attr-defined]
        model = build()
        x = torch.randn(B, D) if build is mlp else torch.randn(B, 5, D)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        train(model, optimizer, x)
        with LiveMemory(model=model, optimizer=optimizer, inputs=x) as live:
            train(model, optimizer, x)
        theirs = MemTracker()
        theirs.track_external(model, optimizer, x)
        with theirs:
            train(model, optimizer, x)
        peak = {
            getattr(kind, "name", kind): size
            for kind, size in theirs.get_tracker_snapshot("peak")[torch.device("cpu")].items()
        }
    assert live.peak == peak["Total"]
    assert sum(live.at_peak.values()) == live.peak
    assert live.at_peak["parameters"] == peak["PARAM"] + peak["BUFFER"]
    assert live.at_peak["gradients"] == peak["GRAD"]


def test_fake_and_real_timelines_are_equal() -> None:
    """A fake step allocates and frees the same bytes in the same order as a real one."""
    timelines = []
    for context in (contextlib.nullcontext, fake):
        with context():
            model = Attention()
            optimizer = torch.optim.AdamW(model.parameters())
            x = torch.randn(B, 5, D)
            train(model, optimizer, x)
            with LiveMemory(model=model, optimizer=optimizer, inputs=x) as live:
                train(model, optimizer, x)
            timelines.append(live.timeline)
    assert timelines[0] == timelines[1]


def test_categories_by_hand() -> None:
    """Weights, gradients, both moments and the step counter of one Linear under Adam."""
    layer = nn.Linear(D, H)
    numbers = D * H + H
    optimizer = torch.optim.Adam(layer.parameters())
    x = torch.randn(B, D)
    with LiveMemory(model=layer, optimizer=optimizer, inputs=x) as live:
        loss = layer(x).exp().sum()
        assert live.by_category == {
            "parameters": numbers * F32,
            "gradients": 0,
            "optimizer": 0,
            "activations": B * H * F32 + F32,  # exp keeps its output; the loss is one number
            "inputs": B * D * F32,
            "other": 0,
        }
        loss.backward()
        del loss
        assert live.by_category["gradients"] == numbers * F32
        assert live.by_category["activations"] == 0
        optimizer.step()
        assert live.by_category["optimizer"] == 2 * numbers * F32 + 2 * F32  # a counter a tensor
        optimizer.zero_grad()
        assert live.by_category["gradients"] == 0
        assert live.by_category["other"] == 0
    assert storage_bytes(optimizer.state) == 2 * numbers * F32 + 2 * F32
    assert len(live.timeline[0]) == len(CATEGORIES)


def test_recomputed_activations_are_activations() -> None:
    """What a checkpoint rebuilds in the backward counts as activations, gradients as other."""
    x = tensor(B, D)
    with LiveMemory() as live:
        y = checkpoint(lambda t: t.exp().exp(), x, use_reentrant=False, preserve_rng_state=False)
        before = live.by_category["activations"]
        live.reset_peak()
        y.sum().backward()
        assert live.at_peak["activations"] > before
        assert live.at_peak["other"] > 0


def test_a_dtensor_counts_as_its_local_shard() -> None:
    """A DTensor is a wrapper that also names its mesh; its bytes are those of this rank's tensor."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        local = torch.ones(3, 5)
        wrapped = DTensor.from_local(local, init_device_mesh("cpu", (1,)))
        with LiveMemory() as live:
            live.register("parameters", wrapped)
            assert live.by_category["parameters"] == 3 * 5 * 4
        assert storage_bytes([wrapped, local]) == 3 * 5 * 4
    finally:
        dist.destroy_process_group()


# --- FLOPs ---


def test_flops_of_a_linear_step_by_hand() -> None:
    """Forward 2BDH; the backward as much for the weight and as much for the input."""
    layer, x = nn.Linear(D, H), tensor(B, D)
    assert count_flops(lambda: layer(x)) == 2 * B * D * H
    assert count_flops(lambda: layer(x).sum().backward()) == 3 * 2 * B * D * H
    frozen = torch.randn(B, D)
    assert count_flops(lambda: layer(frozen).sum().backward()) == 2 * 2 * B * D * H


def test_flops_of_attention_by_hand() -> None:
    """Two products forward; four backward, and a fifth where flash recomputes scores."""
    heads, n, d = 2, 16, 8
    q, k, v = (tensor(1, heads, n, d) for _ in range(3))
    product = 2 * heads * n * n * d

    def step() -> None:
        F.scaled_dot_product_attention(q, k, v).sum().backward()

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert count_flops(lambda: F.scaled_dot_product_attention(q, k, v)) == 2 * product
        assert count_flops(step) == 7 * product
    with sdpa_kernel(SDPBackend.MATH):
        assert count_flops(step) == 6 * product


# --- CUDA ---


@pytest.mark.skipif(not torch.cuda.is_available(), reason="reads the CUDA allocator")
def test_the_allocators_peak_of_one_tensor() -> None:
    """64 MiB that live for a moment raise the peak by 64 MiB."""
    found = allocator_peak(lambda: torch.empty(2**26, dtype=torch.uint8, device="cuda"))
    assert found == 2**26
