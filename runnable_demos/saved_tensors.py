"""What does each operation keep for its backward, in bytes an element, and what do neighbours share?

The lesson is ``lessons/saved_tensors.en.md`` (中文: ``lessons/saved_tensors.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import Life, Lives
from runnable_demos.lab.measure import saved_tensors
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "反向传播存了什么", "en": "What backward saves"}
QUESTION: Text = {
    "zh": "每种运算为反向保存多少字节？相邻的运算共用哪些张量？",
    "en": "How many bytes does each operation save for its backward, and what do neighbours share?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "为反向保存的字节除以输入元素数，每块存储计一次，不含参数",
  "bytes saved for the backward over the elements of the input, each storage once, no parameters",
]
[method.metrics]
add_fp32 = ["B", "加法，fp32，每个元素", "add, fp32, an element"]
scale_fp32 = ["B", "乘常数，fp32，每个元素", "times a constant, fp32, an element"]
view_fp32 = ["B", "视图，fp32，每个元素", "view, fp32, an element"]
mul_fp32 = ["B", "逐元素乘，fp32，每个元素", "mul, fp32, an element"]
relu_fp32 = ["B", "ReLU，fp32，每个元素", "ReLU, fp32, an element"]
gelu_fp32 = ["B", "GELU，fp32，每个元素", "GELU, fp32, an element"]
silu_fp32 = ["B", "SiLU，fp32，每个元素", "SiLU, fp32, an element"]
sigmoid_fp32 = ["B", "sigmoid，fp32，每个元素", "sigmoid, fp32, an element"]
tanh_fp32 = ["B", "tanh，fp32，每个元素", "tanh, fp32, an element"]
softmax_fp32 = ["B", "softmax，fp32，每个元素", "softmax, fp32, an element"]
masked_fill_fp32 = ["B", "masked_fill，fp32，每个元素", "masked_fill, fp32, an element"]
dropout_fp32 = ["B", "F.dropout，fp32，每个元素", "F.dropout, fp32, an element"]
native_dropout_fp32 = ["B", "native_dropout，fp32，每个元素", "native_dropout, fp32, an element"]
layer_norm_fp32 = ["B", "LayerNorm，fp32，每个元素", "LayerNorm, fp32, an element"]
rms_norm_fp32 = ["B", "RMSNorm，fp32，每个元素", "RMSNorm, fp32, an element"]
linear_fp32 = ["B", "Linear，fp32，每个元素", "Linear, fp32, an element"]
frozen_linear_fp32 = ["B", "冻结的 Linear，fp32，每个元素", "frozen Linear, fp32, an element"]
cross_entropy_fp32 = ["B", "交叉熵，fp32，每个元素", "cross-entropy, fp32, an element"]
relu_linear_fp32 = ["B", "ReLU 接 Linear，fp32，每个元素", "ReLU, then Linear, fp32, an element"]
gelu_linear_fp32 = ["B", "GELU 接 Linear，fp32，每个元素", "GELU, then Linear, fp32, an element"]
gated_silu_fp32 = ["B", "SiLU 门控：silu(a)·b，fp32，每个元素", "SiLU gate: silu(a)·b, fp32, an element"]
linear_add_linear_fp32 = ["B", "Linear、残差、Linear，fp32，每个元素", "Linear, residual, Linear, fp32, an element"]
two_linears_of_one_input_fp32 = [
  "B",
  "同一输入的两个 Linear，fp32，每个元素",
  "two Linears of one input, fp32, an element",
]
softmax_dropout_matmul_fp32 = [
  "B",
  "softmax、dropout、矩阵乘，fp32，每个元素",
  "softmax, dropout, matrix product, fp32, an element",
]
add_bf16 = ["B", "加法，bf16，每个元素", "add, bf16, an element"]
scale_bf16 = ["B", "乘常数，bf16，每个元素", "times a constant, bf16, an element"]
view_bf16 = ["B", "视图，bf16，每个元素", "view, bf16, an element"]
mul_bf16 = ["B", "逐元素乘，bf16，每个元素", "mul, bf16, an element"]
relu_bf16 = ["B", "ReLU，bf16，每个元素", "ReLU, bf16, an element"]
gelu_bf16 = ["B", "GELU，bf16，每个元素", "GELU, bf16, an element"]
silu_bf16 = ["B", "SiLU，bf16，每个元素", "SiLU, bf16, an element"]
sigmoid_bf16 = ["B", "sigmoid，bf16，每个元素", "sigmoid, bf16, an element"]
tanh_bf16 = ["B", "tanh，bf16，每个元素", "tanh, bf16, an element"]
softmax_bf16 = ["B", "softmax，bf16，每个元素", "softmax, bf16, an element"]
masked_fill_bf16 = ["B", "masked_fill，bf16，每个元素", "masked_fill, bf16, an element"]
dropout_bf16 = ["B", "F.dropout，bf16，每个元素", "F.dropout, bf16, an element"]
native_dropout_bf16 = ["B", "native_dropout，bf16，每个元素", "native_dropout, bf16, an element"]
layer_norm_bf16 = ["B", "LayerNorm，bf16，每个元素", "LayerNorm, bf16, an element"]
rms_norm_bf16 = ["B", "RMSNorm，bf16，每个元素", "RMSNorm, bf16, an element"]
linear_bf16 = ["B", "Linear，bf16，每个元素", "Linear, bf16, an element"]
frozen_linear_bf16 = ["B", "冻结的 Linear，bf16，每个元素", "frozen Linear, bf16, an element"]
cross_entropy_bf16 = ["B", "交叉熵，bf16，每个元素", "cross-entropy, bf16, an element"]
relu_linear_bf16 = ["B", "ReLU 接 Linear，bf16，每个元素", "ReLU, then Linear, bf16, an element"]
gelu_linear_bf16 = ["B", "GELU 接 Linear，bf16，每个元素", "GELU, then Linear, bf16, an element"]
gated_silu_bf16 = ["B", "SiLU 门控：silu(a)·b，bf16，每个元素", "SiLU gate: silu(a)·b, bf16, an element"]
linear_add_linear_bf16 = ["B", "Linear、残差、Linear，bf16，每个元素", "Linear, residual, Linear, bf16, an element"]
two_linears_of_one_input_bf16 = [
  "B",
  "同一输入的两个 Linear，bf16，每个元素",
  "two Linears of one input, bf16, an element",
]
softmax_dropout_matmul_bf16 = [
  "B",
  "softmax、dropout、矩阵乘，bf16，每个元素",
  "softmax, dropout, matrix product, bf16, an element",
]

[[method]]
kind = "exact"
how = [
  "保存 x[:, :1] 时整块存储的字节除以可见部分的字节",
  "bytes of the storage that saving x[:, :1] keeps alive over the bytes that are visible",
]
[method.metrics]
slice_keeps_ratio = ["", "保存一列时留住的存储是可见部分的倍数", "storage kept by saving one column"]

[figure.bytes_per_element]
title = ["每个元素保存的字节", "Bytes saved an element"]
x = {label = ["运算", "operation"]}
y = {label = ["字节/元素", "bytes an element"], unit = "B"}
[figure.bytes_per_element.series]
fp32 = ["measured", "fp32", "fp32"]
bf16 = ["measured", "bf16", "bf16"]
[figure.bytes_per_element.places]
add = ["加法", "add"]
scale = ["乘常数", "times a constant"]
view = ["视图", "view"]
mul = ["逐元素乘", "mul"]
relu = ["ReLU", "ReLU"]
gelu = ["GELU", "GELU"]
silu = ["SiLU", "SiLU"]
sigmoid = ["sigmoid", "sigmoid"]
tanh = ["tanh", "tanh"]
softmax = ["softmax", "softmax"]
masked_fill = ["masked_fill", "masked_fill"]
dropout = ["F.dropout", "F.dropout"]
native_dropout = ["native_dropout", "native_dropout"]
layer_norm = ["LayerNorm", "LayerNorm"]
rms_norm = ["RMSNorm", "RMSNorm"]
linear = ["Linear", "Linear"]
frozen_linear = ["冻结的 Linear", "frozen Linear"]
cross_entropy = ["交叉熵", "cross-entropy"]

[figure.lifetimes]
title = [
  "Linear、激活函数、Linear：哪块存储活到何时（标的是 x 的每个元素合多少字节）",
  "Linear, activation, Linear: how long each storage lives (labels are bytes an element of x)",
]
x = {label = ["第几个动作", "action"]}
y = {label = ["存储", "storage"]}
[figure.lifetimes.series]
saved = ["bar", "存着，等反向来用", "saved for the backward"]
passing = ["bar", "后面一层算完就释放", "freed once the next layer has run"]
gradient = ["bar", "激活的梯度", "gradient of an activation"]
forward = ["bar", "前向（各层）", "forward (layers)"]
backward = ["bar", "反向（各层）", "backward (layers)"]
[figure.lifetimes.places]
relu = ["ReLU", "ReLU"]
gelu = ["GELU", "GELU"]
x = ["输入 x", "input x"]
z = ["z = x W₁", "z = x W₁"]
a = ["a = f(z)", "a = f(z)"]
g_a = ["a 的梯度", "gradient of a"]
g_z = ["z 的梯度", "gradient of z"]
"""


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
    # --8<-- [start:operations]
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
    # --8<-- [end:operations]


def sequences(layer: Layer) -> dict[str, Operation]:
    """Short runs of layers, to see what neighbours share; each takes ``(tokens, h)``."""
    W1, W2 = layer.W1, layer.W2
    # --8<-- [start:neighbours]
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
    # --8<-- [end:neighbours]


# --8<-- [start:count]
def bytes_per_element(operation: Operation, x: Tensor, parameters: Sequence[Tensor]) -> float:
    """Bytes that ``operation`` saves, parameters left out, over the elements of its input."""
    with saved_tensors(exclude=parameters) as saved:
        operation(x)
    return saved.bytes / x.numel()


# --8<-- [end:count]


def draw(config: Config, dtype: torch.dtype) -> Tensor:
    """An input that is itself computed, ``(tokens, h)``, with a gradient to pass on."""
    leaf = torch.randn(config.tokens, config.width, dtype=dtype, device=config.device)
    return leaf.requires_grad_() * 1.0


# --- when each storage is alive --------------------------------------------------------------------

LAYERS = ("L1", "f", "L2")
STORAGES = ("x", "z", "a", "g_a", "g_z")


def lifetimes(activation: Operation, config: Config) -> list[Life]:
    """One step of Linear (h → 4h), ``activation``, Linear (4h → h), action by action."""
    h, lives = config.width, Lives()
    W1, W2 = (torch.randn(*shape, device=config.device) for shape in ((4 * h, h), (h, 4 * h)))
    W1, W2 = W1.requires_grad_(), W2.requires_grad_()

    def arrive(name: str, gradient: Tensor) -> None:  # made by one action, it begins the next
        lives.follow(name, gradient)
        lives.begin()

    x = draw(config, torch.float32)
    lives.follow("x", x)
    lives.begin()
    z = F.linear(x, W1)
    lives.follow("z", z)
    z.register_hook(partial(arrive, "g_z"))
    del x
    lives.begin()
    a = activation(z)
    lives.follow("a", a)
    a.register_hook(partial(arrive, "g_a"))
    del z
    lives.begin()
    y = F.linear(a, W2)
    y.register_hook(lambda _: lives.begin())
    del a
    y.backward(torch.ones_like(y))
    return sorted(lives.ended, key=lambda life: (STORAGES.index(str(life.what)), life.born))


def draw_lifetimes(config: Config, found: Mechanisms) -> None:
    """Both activations, one above the other: a row of actions, and below it a row for each storage."""
    n, parts, rows = len(LAYERS), [], list[str]()
    x_elements = config.tokens * config.width
    for name, activation in (("relu", F.relu), ("gelu", F.gelu)):
        first = len(rows)
        rows += [name, *STORAGES]
        parts.append(Span(first, "forward", 0, n, "L1, f, L2"))
        parts.append(Span(first, "backward", n, 2 * n, "L2, f, L1"))
        for life in lifetimes(activation, config):
            kind = "gradient" if life.born > n else "saved" if life.gone > n else "passing"
            row = first + 1 + STORAGES.index(str(life.what))
            label = f"{life.nbytes / x_elements:g} B"
            parts.append(Span(row, kind, max(life.born - 1, 0), life.gone, label))
    found.lanes("lifetimes", parts, rows=rows)


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Every operation and sequence in every dtype, and one slice."""
    found = Mechanisms(MEASURES, config)
    lines = []
    for i, (name, dtype) in enumerate(DTYPES.items()):
        progress(i / len(DTYPES), name)
        layer = make_layer(config, dtype)
        single = operations(layer, config)
        values = {
            key: bytes_per_element(operation, draw(config, dtype), layer.parameters())
            for key, operation in (single | sequences(layer)).items()
        }
        for key, value in values.items():
            found[f"{key}_{name}"] = value
        lines.append(Line(name, range(len(single)), [values[key] for key in single]))
    found.draw("bytes_per_element", *lines, places=single)

    x = draw(config, torch.float32)
    column = x[:, :1]
    with saved_tensors() as saved:
        column.exp() * column
    kept = max(t.nbytes for t in saved.tensors)
    found["slice_keeps_ratio"] = kept / column.nbytes
    draw_lifetimes(config, found)
    progress(1.0, "")
    return found.result()
