"""What does each operation keep for its backward, in bytes an element, and what do neighbours share?

The question
    Activation memory is what the forward saves for the backward, tensor by tensor.
    Which operations save their input, which their output, which nothing, and in which dtype?

The model
    An operation saves what its derivative formula mentions: ``relu`` its output, since the gradient
    passes where the output is positive; ``gelu`` its input; ``mul`` the other factor;
    ``add`` and views nothing. A tensor that two operations save is held once.

The measurement
    ``saved_tensors`` records every tensor that autograd packs, each storage once, parameters left
    out. The input is itself computed, as inside a network. Bytes are divided by the elements of
    the input. Row statistics (mean, 1/σ) appear as a small fraction: 2 · 4 bytes over ``h``.

The result
    Full dtype nearly everywhere; one byte for a mask; ReLU's output is free where a matrix product
    follows, GELU's input is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.measure import saved_tensors
from runnable_demos.metrics import Axis, Figure, Metric, Progress, Result, Series, Text, parameter

TITLE: Text = {"zh": "反向传播存了什么", "en": "What backward saves"}
QUESTION: Text = {
    "zh": "每种运算为反向保存多少字节？相邻的运算共用哪些张量？",
    "en": "How many bytes does each operation save for its backward, and what do neighbours share?",
}


@dataclass(frozen=True)
class Config:
    """The shape of one activation: ``tokens`` rows of ``width`` elements."""

    tokens: int = parameter(512, {"zh": "token 数", "en": "tokens"}, 2, 65536)
    width: int = parameter(1024, {"zh": "宽度 h", "en": "width h"}, 8, 16384)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(tokens=16, width=64), "full": Config()}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Operation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """Parameters for the operations that have some: two square matrices, a gain and a bias."""

    W1: Tensor
    W2: Tensor
    gain: Tensor
    bias: Tensor

    def parameters(self) -> list[Tensor]:
        """All of them, to be left out of the count."""
        return [self.W1, self.W2, self.gain, self.bias]


def make_layer(config: Config, dtype: torch.dtype) -> Layer:
    """Parameters that ask for gradients."""
    h = config.width
    W1, W2 = (torch.randn(h, h, dtype=dtype, device=config.device) for _ in range(2))
    gain, bias = (torch.ones(h, dtype=dtype, device=config.device) for _ in range(2))
    for p in (W1, W2, gain, bias):
        p.requires_grad_()
    return Layer(W1, W2, gain, bias)


def operations(layer: Layer, config: Config) -> dict[str, Operation]:
    """The operations by name; each takes ``(tokens, h)``."""
    h = config.width
    target = torch.zeros(config.tokens, dtype=torch.long, device=config.device)
    return {
        "add": lambda x: x + x.detach(),
        "scale": lambda x: x * 0.5,
        "view": lambda x: x.view(-1, 2).mT,
        "mul": lambda x: x * x.detach(),
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "softmax": lambda x: F.softmax(x, dim=-1),
        "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
        "dropout": lambda x: F.dropout(x, 0.1),
        "native_dropout": lambda x: torch.native_dropout(x, 0.1, True)[0],
        "layer_norm": lambda x: F.layer_norm(x, (h,), layer.gain, layer.bias),
        "rms_norm": lambda x: F.rms_norm(x, (h,), layer.gain),
        "linear": lambda x: F.linear(x, layer.W1, layer.bias),
        "frozen_linear": lambda x: F.linear(x, layer.W1.detach(), layer.bias.detach()),
        "cross_entropy": lambda x: F.cross_entropy(x, target),
    }


def sequences(layer: Layer) -> dict[str, Operation]:
    """Short runs of layers, to see what neighbours share; each takes ``(tokens, h)``."""
    W1, W2 = layer.W1, layer.W2
    return {
        "relu_linear": lambda x: F.linear(F.relu(x), W1),
        "gelu_linear": lambda x: F.linear(F.gelu(x), W1),
        "gated_silu": lambda x: F.silu(x) * (x * 0.5),
        "linear_add_linear": lambda x: F.linear(F.linear(x, W1) + x, W2),
        "two_linears_of_one_input": lambda x: F.linear(x, W1) + F.linear(x, W2),
        "softmax_dropout_matmul": lambda x: (
            torch.native_dropout(F.softmax(x, -1), 0.1, True)[0] @ W1
        ),
    }


def bytes_per_element(operation: Operation, x: Tensor, parameters: Sequence[Tensor]) -> float:
    """Bytes that ``operation`` saves, parameters left out, over the elements of its input."""
    with saved_tensors(exclude=parameters) as saved:
        operation(x)
    return saved.bytes / x.numel()


def draw(config: Config, dtype: torch.dtype) -> Tensor:
    """An input that is itself computed, ``(tokens, h)``, with a gradient to pass on."""
    leaf = torch.randn(config.tokens, config.width, dtype=dtype, device=config.device)
    return leaf.requires_grad_() * 1.0


# --- the demo ------------------------------------------------------------------------------------

# 中文, English
NAMES: dict[str, tuple[str, str]] = {
    "add": ("加法", "add"),
    "scale": ("乘常数", "times a constant"),
    "view": ("视图", "view"),
    "mul": ("逐元素乘", "mul"),
    "relu": ("ReLU", "ReLU"),
    "gelu": ("GELU", "GELU"),
    "silu": ("SiLU", "SiLU"),
    "sigmoid": ("sigmoid", "sigmoid"),
    "tanh": ("tanh", "tanh"),
    "softmax": ("softmax", "softmax"),
    "masked_fill": ("masked_fill", "masked_fill"),
    "dropout": ("F.dropout", "F.dropout"),
    "native_dropout": ("native_dropout", "native_dropout"),
    "layer_norm": ("LayerNorm", "LayerNorm"),
    "rms_norm": ("RMSNorm", "RMSNorm"),
    "linear": ("Linear", "Linear"),
    "frozen_linear": ("冻结的 Linear", "frozen Linear"),
    "cross_entropy": ("交叉熵", "cross-entropy"),
    "relu_linear": ("ReLU 接 Linear", "ReLU, then Linear"),
    "gelu_linear": ("GELU 接 Linear", "GELU, then Linear"),
    "gated_silu": ("SiLU 门控：silu(a)·b", "SiLU gate: silu(a)·b"),
    "linear_add_linear": ("Linear、残差、Linear", "Linear, residual, Linear"),
    "two_linears_of_one_input": ("同一输入的两个 Linear", "two Linears of one input"),
    "softmax_dropout_matmul": ("softmax、dropout、矩阵乘", "softmax, dropout, matrix product"),
}
HOW: Text = {
    "zh": "为反向保存的字节除以输入元素数，每块存储计一次，不含参数",
    "en": "bytes saved for the backward over the elements of the input, each storage once, no parameters",
}
SLICED: Text = {
    "zh": "保存 x[:, :1] 时整块存储的字节除以可见部分的字节",
    "en": "bytes of the storage that saving x[:, :1] keeps alive over the bytes that are visible",
}


def table_figure(names: Sequence[str], values: dict[str, dict[str, float]]) -> Figure:
    """Bytes an element by operation, one mark for each dtype."""
    return Figure(
        "bytes_per_element",
        {"zh": "每个元素保存的字节", "en": "Bytes saved an element"},
        Axis(
            {"zh": "运算", "en": "operation"},
            categories=tuple(dict(zip(("zh", "en"), NAMES[n], strict=True)) for n in names),
        ),
        Axis({"zh": "字节/元素", "en": "bytes an element"}, "B"),
        tuple(
            Series(
                {"zh": dtype, "en": dtype},
                tuple(map(float, range(len(names)))),
                tuple(values[dtype][name] for name in names),
            )
            for dtype in DTYPES
        ),
    )


def run(config: Config, progress: Progress) -> Result:
    """Every operation and sequence in every dtype, and one slice."""
    values: dict[str, dict[str, float]] = {}
    single: tuple[str, ...] = ()
    for i, (name, dtype) in enumerate(DTYPES.items()):
        progress(i / len(DTYPES), name)
        layer = make_layer(config, dtype)
        table = operations(layer, config)
        single = tuple(table)
        values[name] = {
            key: bytes_per_element(operation, draw(config, dtype), layer.parameters())
            for key, operation in (table | sequences(layer)).items()
        }
    metrics = [
        Metric(
            f"{name}_{dtype}",
            value,
            "B",
            "exact",
            {
                "zh": f"{NAMES[name][0]}，{dtype}，每个元素",
                "en": f"{NAMES[name][1]}, {dtype}, an element",
            },
            HOW,
        )
        for dtype, row in values.items()
        for name, value in row.items()
    ]
    x = draw(config, torch.float32)
    column = x[:, :1]
    with saved_tensors() as saved:
        column.exp() * column
    kept = max(t.nbytes for t in saved.tensors)
    metrics.append(
        Metric(
            "slice_keeps_ratio",
            kept / column.nbytes,
            "",
            "exact",
            {
                "zh": "保存一列时留住的存储是可见部分的倍数",
                "en": "storage kept by saving one column",
            },
            SLICED,
        )
    )
    progress(1.0, "")
    return Result(tuple(metrics), (table_figure(single, values),))
