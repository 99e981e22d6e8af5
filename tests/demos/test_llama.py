"""The Llama-style model against published sizes, finite differences and a second implementation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab.measure import fake
from runnable_demos.models.llama import (
    LLAMA_7B,
    LLAMA_13B,
    LLAMA_70B,
    FusedGate,
    FusedRMSNorm,
    Llama,
    LlamaBlock,
    Size,
    Variant,
    rotary,
)

TINY = Size(h=24, f=40, L=2, a=6, g=2, V=50)
FP64 = Variant(dtype=torch.float64)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [(LLAMA_7B, 6_738_415_616), (LLAMA_13B, 13_015_864_320), (LLAMA_70B, 68_976_648_192)],
)
def test_parameters_are_those_of_llama_2(size: Size, parameters: int) -> None:
    """The three models have the parameter counts of the published checkpoints."""
    with fake():
        assert sum(p.numel() for p in Llama(size).parameters()) == parameters


def test_fused_operations_pass_gradcheck() -> None:
    """Hand-written backwards agree with finite differences in fp64."""
    torch.manual_seed(0)
    x, y = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(FusedGate.apply, (x, y))
    # The norm computes 1/rms in fp32, too coarse for finite differences: autograd is the oracle.
    w = torch.randn(5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(3, 5, dtype=torch.float64)
    ours = torch.autograd.grad(FusedRMSNorm.apply(x, w, 1e-5), (x, w), upstream)
    theirs = torch.autograd.grad(F.rms_norm(x, (5,), w, 1e-5), (x, w), upstream)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def reference_block(block: LlamaBlock, x: Tensor) -> Tensor:
    """The same layer written head by head, with complex rotations."""
    size = block.attention.size
    d = size.h // size.a
    s = x.shape[1]

    def norm(v: Tensor, w: Tensor) -> Tensor:
        return v / (v.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w

    def turn(v: Tensor) -> Tensor:
        pairs = torch.complex(v[..., : d // 2], v[..., d // 2 :])
        rate = 10000.0 ** (-2 * torch.arange(d // 2, dtype=v.dtype) / d)
        angle = torch.arange(s, dtype=v.dtype)[:, None] * rate
        turned = pairs * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag], dim=-1)

    n = norm(x, block.norm1.weight)
    heads = []
    for i in range(size.a):
        j = i * size.g // size.a
        q = turn(n @ block.attention.q.weight[i * d : (i + 1) * d].T)
        k = turn(n @ block.attention.k.weight[j * d : (j + 1) * d].T)
        v = n @ block.attention.v.weight[j * d : (j + 1) * d].T
        scores = q @ k.mT / math.sqrt(d) + torch.full((s, s), -math.inf).triu(1)
        heads.append(torch.softmax(scores, -1) @ v)
    x = x + torch.cat(heads, dim=-1) @ block.attention.o.weight.T
    n = norm(x, block.norm2.weight)
    gate = n @ block.mlp.gate.weight.T
    return x + (gate * torch.sigmoid(gate) * (n @ block.mlp.up.weight.T)) @ block.mlp.down.weight.T


@pytest.mark.parametrize("attention", ["flash", "math"])
@pytest.mark.parametrize("gate", ["composed", "fused"])
@pytest.mark.parametrize("norm", ["eager", "functional", "fused"])
def test_block_equals_the_reference(attention: str, gate: str, norm: str) -> None:
    """All variants compute the same layer and the same gradient of its input."""
    torch.manual_seed(1)
    block = LlamaBlock(TINY, Variant(attention, gate, norm, torch.float64))
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    tables = rotary(7, 4, torch.float64)
    ours, theirs = block(x, *tables), reference_block(block, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    upstream = torch.randn_like(x)
    (a,), (b,) = (torch.autograd.grad(y, x, upstream) for y in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_checkpointing_changes_no_gradient() -> None:
    """With and without checkpoints, the loss and every gradient are equal bit by bit."""
    results = []
    for checkpointed in (False, True):
        torch.manual_seed(2)
        model = Llama(TINY, FP64, checkpointed)
        tokens = torch.randint(TINY.V, (2, 9))
        loss = model(tokens, tokens.roll(-1, 1))
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
