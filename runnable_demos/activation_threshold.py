"""From how many tokens on do activations take more memory than parameters?

The question
    Activations grow with the tokens of a micro-batch, parameters do not. Where do they meet, and
    does that depend on the depth of the model?

The model
    ``L`` equal layers with ``n`` parameters each, at ``p`` bytes a parameter (2 for bf16 weights,
    16 with gradients and AdamW's fp32 state), against ``L`` layers that save ``c`` bytes a token:

        L c T = p L n,   so   T = p n / c.

    ``L`` cancels. For GPT n ≈ 12h² and c = 34h, so T ≈ 6ph/17: proportional to the width.

The measurement
    Saved bytes and parameters are read off the blocks of the other demos, on fake tensors, and the
    smallest T at which the first are at least the second is found by bisection.

The result
    A few thousand tokens for the weights, some twenty thousand for all states; the same at any depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from runnable_demos import activation_formula as gpt
from runnable_demos import llama
from runnable_demos.activation_llama import layer_bytes
from runnable_demos.measure import fake, saved_tensors
from runnable_demos.metrics import (
    Axis,
    Figure,
    Kind,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    Unit,
    parameter,
)

TITLE: Text = {"zh": "激活何时超过参数", "en": "When activations pass parameters"}
QUESTION: Text = {
    "zh": "一个微批多少 token 时，激活超过参数？与层数有关吗？",
    "en": "At how many tokens of a micro-batch do activations pass parameters, and does depth matter?",
}


@dataclass(frozen=True)
class Config:
    """Width and heads of the GPT layer; the Llama models have sizes of their own."""

    width: int = parameter(4096, {"zh": "GPT 的宽度 h", "en": "width h of GPT"}, 64, 16384)
    heads: int = parameter(32, {"zh": "GPT 的头数 a", "en": "heads a of GPT"}, 1, 128)
    shrink: int = parameter(
        1, {"zh": "Llama 各维度缩小的倍数", "en": "factor by which the Llamas are shrunk"}, 1, 16
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(width=256, heads=4, shrink=16), "full": Config()}

WEIGHTS, STATES = 2, 16
"""Bytes a parameter: bf16 weights alone; weights and gradients in bf16, master, m and v in fp32."""


# --- the measurements ----------------------------------------------------------------------------


def crossing(activations: Callable[[int], int], limit: int) -> int:
    """The smallest number of tokens whose activations take at least ``limit`` bytes.

    Interpolates between a number that is too small and one that is not, and halves in between.
    """
    low, high = 0, 1
    at_low, at_high = 0, activations(1)
    while at_high < limit:
        low, at_low = high, at_high
        high = max(2 * high, high * limit // at_high + 1)
        at_high = activations(high)
    halve = False
    while high - low > 1:
        share = (limit - at_low) / (at_high - at_low)
        guess = (low + high) // 2 if halve else low + int(share * (high - low))
        guess = min(max(guess, low + 1), high - 1)
        found = activations(guess)
        if found < limit:
            low, at_low = guess, found
        else:
            high, at_high = guess, found
        halve = not halve and high - low > 4
    return high


def count(make: Callable[[], nn.Module]) -> int:
    """Parameters of a module, which is built on fake tensors."""
    with fake():
        return sum(p.numel() for p in make().parameters())


@dataclass(frozen=True, slots=True)
class Gpt:
    """GPT layers of one width, with or without the attention matrix."""

    h: int
    a: int
    layers: int = 1
    fused: bool = True

    def parameters(self) -> int:
        """Of all layers."""
        shape = gpt.Shape(1, 1, self.h, self.a)
        return self.layers * count(lambda: gpt.Block(shape, gpt.PAPER))

    def activations(self, tokens: int) -> int:
        """Bytes saved by all layers for one sequence of ``tokens``."""
        shape = gpt.Shape(tokens, 1, self.h, self.a)
        return gpt.layer_bytes(shape, gpt.Variant(fused=self.fused), gpt.stack(self.layers))

    def crossing(self, bytes_a_parameter: int) -> int:
        """Tokens from which on activations outweigh ``bytes_a_parameter`` for each parameter."""
        return crossing(self.activations, bytes_a_parameter * self.parameters())


def llama_layer(size: llama.Size) -> int:
    """Parameters of one Llama layer."""
    return count(lambda: llama.Block(size, llama.DEFAULT))


def llama_crossing(size: llama.Size, bytes_a_parameter: int) -> int:
    """The same for a Llama layer with fused attention."""
    limit = bytes_a_parameter * llama_layer(size)
    return crossing(lambda tokens: layer_bytes(size, 1, tokens), limit)


def model_activations(size: llama.Size, tokens: int, checkpointed: bool) -> int:
    """Bytes that a whole Llama saves from tokens to loss, its head and cross-entropy among them.

    Run with one and with two layers: each further one adds the same.
    """

    def saved(layers: int) -> int:
        with fake():
            model = llama.Llama(replace(size, L=layers), checkpointed=checkpointed)
            batch = torch.zeros(1, tokens, dtype=torch.long)
            with saved_tensors(exclude=[*model.parameters(), batch]) as found:
                model(batch, batch)
            return found.bytes

    one, two = saved(1), saved(2)
    return one + (size.L - 1) * (two - one)


def shrunk(size: llama.Size, factor: int) -> llama.Size:
    """A Llama of the same proportions."""
    heads = max(size.a // factor, 1)
    return replace(
        size, h=size.h // factor, f=size.f // factor, a=heads, g=max(heads * size.g // size.a, 1)
    )


# --- the demo ------------------------------------------------------------------------------------

FOUND: Text = {
    "zh": "在 fake 张量上量激活与参数的字节，二分求最小的 token 数；bf16，一条序列",
    "en": "bytes of activations and parameters on fake tensors, fewest tokens by bisection; bf16, "
    "one sequence",
}
SEVEN: Text = {
    "zh": "整个 Llama 2 7B，含嵌入、输出层与交叉熵；运行一层与两层，按每层的增量外推到全部层",
    "en": "all of Llama 2 7B, with embedding, output layer and cross-entropy; run with one and with "
    "two layers, and extended to all by what a layer adds",
}
MODELS = {"7b": llama.LLAMA_7B, "13b": llama.LLAMA_13B, "70b": llama.LLAMA_70B}

# name: unit, 中文, English, how
METRICS: dict[str, tuple[Unit, str, str, Text]] = {
    "gpt_weights": ("token", "GPT，对 bf16 权重", "GPT, against bf16 weights", FOUND),
    "gpt_states": ("token", "GPT，对全部状态", "GPT, against all states", FOUND),
    "gpt_weights_per_width": ("", "GPT，对权重，除以宽度", "GPT, weights, over the width", FOUND),
    "gpt_states_per_width": ("", "GPT，对状态，除以宽度", "GPT, states, over the width", FOUND),
    "depth_cancels": ("", "一层与三层的门槛相同", "the same for one layer and for three", FOUND),
    "gpt_matrix_weights": (
        "token",
        "GPT，保存注意力矩阵，对权重",
        "GPT with the attention matrix, against weights",
        FOUND,
    ),
    "gpt_matrix_states": (
        "token",
        "GPT，保存注意力矩阵，对状态",
        "GPT with the attention matrix, against states",
        FOUND,
    ),
    **{
        f"llama_{name}_{key}": (
            "token",
            f"Llama 2 {name.upper()}，对{zh}",
            f"Llama 2 {name.upper()}, against {en}",
            FOUND,
        )
        for name in MODELS
        for key, zh, en in (("weights", "权重", "weights"), ("states", "状态", "states"))
    },
    "model_7b_states": ("token", "整个 7B 模型，对状态", "the 7B model, against states", SEVEN),
    "model_7b_checkpointed_states": (
        "token",
        "整个 7B 模型，每块一个检查点，对状态",
        "the 7B model with a checkpoint a block, against states",
        SEVEN,
    ),
    "checkpointing_ratio": (
        "",
        "检查点把门槛推后的倍数",
        "how many times later with checkpoints",
        SEVEN,
    ),
}


def kind_of(how: Text) -> Kind:
    """What is extended to the depth of the whole model was not run at that depth."""
    return "computed" if how is SEVEN else "exact"


def threshold_figure(size: llama.Size) -> Figure:
    """Bytes over tokens for a whole model, both axes logarithmic, against weights and states."""
    tokens = [1024, 8192, 65536]
    total = count(lambda: llama.Llama(size))

    def curve(zh: str, en: str, y: list[int], theory: bool = False) -> Series:
        label = {"zh": zh, "en": en}
        return Series(
            label,
            tuple(tokens),
            tuple(map(float, y)),
            "theory" if theory else "measured",
            kind="computed",
        )

    return Figure(
        "activations_over_tokens",
        {"zh": "Llama 2 7B：激活与参数", "en": "Llama 2 7B: activations and parameters"},
        Axis({"zh": "微批的 token 数", "en": "tokens of the micro-batch"}, scale="log2"),
        Axis({"zh": "字节", "en": "bytes"}, "B", "log2"),
        (
            curve(
                "激活，不设检查点",
                "activations, no checkpoints",
                [model_activations(size, n, False) for n in tokens],
            ),
            curve(
                "激活，每块一个检查点",
                "activations, a checkpoint a block",
                [model_activations(size, n, True) for n in tokens],
            ),
            curve(
                "权重，2 字节/参数",
                "weights, 2 B/param",
                [WEIGHTS * total] * len(tokens),
                theory=True,
            ),
            curve(
                "全部状态，16 字节/参数",
                "all states, 16 B/param",
                [STATES * total] * len(tokens),
                theory=True,
            ),
        ),
    )


def run(config: Config, progress: Progress) -> Result:
    """Thresholds of GPT, of Llama layers, and of a whole Llama with and without checkpoints."""
    h, a = config.width, config.heads
    progress(0.0, "GPT")
    one = Gpt(h, a)
    weights, states = one.crossing(WEIGHTS), one.crossing(STATES)
    deep = Gpt(h, a, layers=3).crossing(WEIGHTS)
    matrix = Gpt(h, a, fused=False)

    progress(0.4, "Llama")
    sizes = {name: shrunk(size, config.shrink) for name, size in MODELS.items()}
    values: dict[str, float] = {
        "gpt_weights": weights,
        "gpt_states": states,
        "gpt_weights_per_width": weights / h,
        "gpt_states_per_width": states / h,
        "depth_cancels": deep == weights,
        "gpt_matrix_weights": matrix.crossing(WEIGHTS),
        "gpt_matrix_states": matrix.crossing(STATES),
    }
    for name, size in sizes.items():
        values[f"llama_{name}_weights"] = llama_crossing(size, WEIGHTS)
        values[f"llama_{name}_states"] = llama_crossing(size, STATES)

    progress(0.7, "7B")
    seven = sizes["7b"]
    limit = STATES * count(lambda: llama.Llama(seven))
    plain, checkpointed = (
        crossing(partial(model_activations, seven, checkpointed=c), limit) for c in (False, True)
    )
    values |= {
        "model_7b_states": plain,
        "model_7b_checkpointed_states": checkpointed,
        "checkpointing_ratio": checkpointed / plain,
    }
    metrics = tuple(
        Metric(name, values[name], unit, kind_of(how), {"zh": zh, "en": en}, how)
        for name, (unit, zh, en, how) in METRICS.items()
    )
    progress(0.9, "figure")
    figure = threshold_figure(seven)
    progress(1.0, "")
    return Result(metrics, (figure,))
