"""The Triton kernel, interpreted on the CPU and compiled for a GPU that need not be there.

Triton reads TRITON_INTERPRET once, at its import: each test runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos import flash_attention_triton
from runnable_demos.flash_attention_triton import PRESETS, run, worst_errors

pytest.importorskip("triton", reason="the extra 'heavy' is not installed")


def run_python(code: str, interpret: bool) -> str:
    """Standard output of ``code`` in a fresh interpreter."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_INTERPRET"] = "1" if interpret else "0"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interpreted_kernel_equals_sdpa() -> None:
    """Against PyTorch's own attention: ragged N, blocks larger than N, causal or not, several heads."""
    run_python(
        """
import itertools, torch
import torch.nn.functional as F
from runnable_demos.flash_attention_triton import flash_forward
torch.manual_seed(3)
for N, block, causal in itertools.product((1, 17, 40, 64), (16, 32), (False, True)):
    Q, K, V = (torch.randn(2, 3, N, 16) for _ in range(3))
    O, L = flash_forward(Q, K, V, causal, block)
    double = [x.double() for x in (Q, K, V)]
    truth = F.scaled_dot_product_attention(*double, is_causal=causal)
    torch.testing.assert_close(O.double(), truth, rtol=1e-5, atol=1e-6)
    S = double[0] @ double[1].mT / 4
    if causal:
        S = S + torch.full((N, N), -torch.inf).triu(1)
    torch.testing.assert_close(L.double(), S.exp().sum(-1).log(), rtol=1e-5, atol=1e-6)
""",
        interpret=True,
    )


def test_interpreted_metrics() -> None:
    """The small run keeps to its bounds, and allocates d + 1 numbers of 4 bytes a row."""
    out = run_python(
        """
from runnable_demos.flash_attention_triton import PRESETS, run
small = PRESETS["small"]
for m in run(small, lambda share, text: None).metrics:
    assert m.bound is None or 0 < m.value <= m.bound, m
    print(m.name, m.value / (4 * (small.head_dim + 1)))
""",
        interpret=True,
    )
    assert "allocated_bytes_per_token 1.0\n" in out


def test_kernel_compiles_for_a_gpu() -> None:
    """The same source compiles to PTX for sm_90 with tensor-core instructions; no GPU is needed."""
    out = run_python(
        """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from runnable_demos.flash_attention_triton import kernel
signature = dict.fromkeys("QKVO", "*bf16") | {"L": "*fp32", "N": "i32", "scale": "fp32"}
constants = {"d": 64, "B_r": 64, "B_c": 64, "INTERPRETED": False}
for causal in (False, True):
    fixed = constants | {"CAUSAL": causal}
    types = signature | dict.fromkeys(fixed, "constexpr")
    source = ASTSource(kernel(), types, constexprs=fixed)
    ptx = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    print("mma" in ptx, "sm_90" in ptx)
""",
        interpret=False,
    )
    assert out == "True True\n" * 2


def test_without_the_interpreter_the_cpu_is_refused() -> None:
    """On CPU tensors a compiled kernel is refused by one sentence that names the remedy."""
    out = run_python(
        """
import torch
from runnable_demos.flash_attention_triton import flash_forward
try:
    flash_forward(*(torch.zeros(1, 1, 16, 16) for _ in range(3)))
except RuntimeError as error:
    print(error)
""",
        interpret=False,
    )
    assert out == "set TRITON_INTERPRET=1 to run Triton kernels on the CPU\n"


def test_metrics() -> None:
    """Four numbers: three errors below their bounds, and d + 1 numbers of 4 bytes a row."""
    small = PRESETS["small"]
    found = {
        m.name: m for m in run(small, lambda share, text: None).metrics if m.kind != "measured"
    }
    for name in ("fp32_error", "logsumexp_error", "bf16_error"):
        bound = found.pop(name)
        assert bound.bound is not None
        assert 0 < bound.value <= bound.bound
    allocated = found.pop("allocated_bytes_per_token")
    assert allocated.value == 4 * (small.head_dim + 1)
    assert not found


def test_the_worst_of_all_cases_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is right but for ragged causal cases, by a quarter and a half, shows as that."""

    def wrong(
        Q: Tensor, K: Tensor, V: Tensor, causal: bool = False, block: int = 0
    ) -> tuple[Tensor, Tensor]:
        Q, K, V = Q.double(), K.double(), V.double()
        N = Q.shape[-2]
        S = Q @ K.mT / Q.shape[-1] ** 0.5
        if causal:
            S = S + torch.full((N, N), -torch.inf, dtype=S.dtype).triu(1)
        out = F.scaled_dot_product_attention(Q, K, V, is_causal=causal)
        logsumexp = S.exp().sum(-1).log()
        return (out * 1.25, logsumexp * 1.5) if causal and N % 2 else (out, logsumexp)

    monkeypatch.setattr(flash_attention_triton, "flash_forward", wrong)
    assert worst_errors(PRESETS["small"], torch.float32) == pytest.approx((0.25, 0.5))
