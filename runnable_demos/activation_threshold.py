"""From how many tokens on do activations take more memory than parameters?

The lesson is ``lessons/activation_threshold.en.md`` (中文: ``lessons/activation_threshold.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import fake, saved_tensors
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models import llama
from runnable_demos.models.paper_gpt import (
    PAPER,
    Departures,
    PaperBlock,
    Shape,
    paper_layer_bytes,
    repeated,
)

TITLE: Text = {"zh": "激活何时超过参数", "en": "When activations pass parameters"}
QUESTION: Text = {
    "zh": "一个微批多少 token 时，激活超过参数？与层数有关吗？",
    "en": "At how many tokens of a micro-batch do activations pass parameters, and does depth matter?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "在 fake 张量上量激活与参数的字节，二分求最小的 token 数；bf16，一条序列",
  "bytes of activations and parameters on fake tensors, fewest tokens by bisection; bf16, one sequence",
]
[method.metrics]
gpt_weights = ["token", "GPT，对 bf16 权重", "GPT, against bf16 weights"]
gpt_states = ["token", "GPT，对全部状态", "GPT, against all states"]
gpt_weights_per_width = ["", "GPT，对权重，除以宽度", "GPT, weights, over the width"]
gpt_states_per_width = ["", "GPT，对状态，除以宽度", "GPT, states, over the width"]
depth_cancels = ["", "一层与三层的门槛相同", "the same for one layer and for three"]
gpt_matrix_weights = ["token", "GPT，保存注意力矩阵，对权重", "GPT with the attention matrix, against weights"]
gpt_matrix_states = ["token", "GPT，保存注意力矩阵，对状态", "GPT with the attention matrix, against states"]
llama_7b_weights = ["token", "Llama 2 7B，对权重", "Llama 2 7B, against weights"]
llama_7b_states = ["token", "Llama 2 7B，对状态", "Llama 2 7B, against states"]
llama_13b_weights = ["token", "Llama 2 13B，对权重", "Llama 2 13B, against weights"]
llama_13b_states = ["token", "Llama 2 13B，对状态", "Llama 2 13B, against states"]
llama_70b_weights = ["token", "Llama 2 70B，对权重", "Llama 2 70B, against weights"]
llama_70b_states = ["token", "Llama 2 70B，对状态", "Llama 2 70B, against states"]

[[method]]
kind = "computed"
how = [
  "整个 Llama 2 7B，含嵌入、输出层与交叉熵；运行一层与两层，按每层的增量外推到全部层",
  "all of Llama 2 7B, with embedding, output layer and cross-entropy; run with one and with two layers, and extended to all by what a layer adds",
]
[method.metrics]
model_7b_states = ["token", "整个 7B 模型，对状态", "the 7B model, against states"]
model_7b_checkpointed_states = [
  "token",
  "整个 7B 模型，每块一个检查点，对状态",
  "the 7B model with a checkpoint a block, against states",
]
checkpointing_ratio = ["", "设检查点后，门槛升到的倍数", "how many times as high with checkpoints"]

[figure.activations_over_tokens]
title = ["Llama 2 7B：激活与参数", "Llama 2 7B: activations and parameters"]
kind = "computed"
x = {label = ["微批的 token 数", "tokens of the micro-batch"], scale = "log2"}
y = {label = ["字节", "bytes"], unit = "B", scale = "log2"}
[figure.activations_over_tokens.series]
plain = ["measured", "激活，不设检查点", "activations, no checkpoints"]
checkpointed = ["measured", "激活，每块一个检查点", "activations, a checkpoint a block"]
weights = ["theory", "权重，2 字节/参数", "weights, 2 B/param"]
states = ["theory", "全部状态，16 字节/参数", "all states, 16 B/param"]

[figure.share]
title = [
  "Llama 2 7B：激活占激活与全部状态之和的份额",
  "Llama 2 7B: share of activations in activations and all states",
]
kind = "computed"
x = {label = ["微批的 token 数", "tokens of the micro-batch"], scale = "log2"}
y = {label = ["激活的份额", "share of activations"]}
[figure.share.series]
sharded = ["measured", "状态分到 {devices} 张卡", "states over {devices} GPUs"]
plain = ["measured", "一张卡", "one GPU"]
sharded_checkpointed = ["measured", "{devices} 张卡，加检查点", "{devices} GPUs, checkpoints"]
checkpointed = ["measured", "一张卡，加检查点", "one GPU, checkpoints"]
half = ["theory", "一半，门槛所在", "one half, at the threshold"]
"""  # noqa: E501 - a method is said on one line


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

DEVICES = 8
"""Ranks over which the figure of shares spreads all states."""


# --- the measurements ----------------------------------------------------------------------------


def crossing(activations: Callable[[int], int], limit: int) -> int:
    """The smallest number of tokens whose activations take at least ``limit`` bytes.

    Interpolates between a number that is too small and one that is not, and halves in between.
    """
    # --8<-- [start:crossing]
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
    # --8<-- [end:crossing]
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
        shape = Shape(1, 1, self.h, self.a)
        return self.layers * count(lambda: PaperBlock(shape, PAPER))

    def activations(self, tokens: int) -> int:
        """Bytes saved by all layers for one sequence of ``tokens``."""
        shape = Shape(tokens, 1, self.h, self.a)
        return paper_layer_bytes(shape, Departures(fused=self.fused), repeated(self.layers))

    def crossing(self, bytes_a_parameter: int) -> int:
        """Tokens from which on activations outweigh ``bytes_a_parameter`` for each parameter."""
        return crossing(self.activations, bytes_a_parameter * self.parameters())


def llama_layer(size: llama.Size) -> int:
    """Parameters of one Llama layer."""
    return count(lambda: llama.LlamaBlock(size, llama.DEFAULT))


def llama_crossing(size: llama.Size, bytes_a_parameter: int) -> int:
    """The same for a Llama layer with fused attention."""
    limit = bytes_a_parameter * llama_layer(size)
    return crossing(lambda tokens: llama.llama_layer_bytes(size, 1, tokens), limit)


def model_activations(size: llama.Size, tokens: int, checkpointed: bool) -> int:
    """Bytes that a whole Llama saves from tokens to loss, its head and cross-entropy among them.

    Run with one and with two layers: each further one adds the same.
    """

    # --8<-- [start:saved]
    def saved(layers: int) -> int:
        with fake():
            model = llama.Llama(replace(size, L=layers), checkpointed=checkpointed)
            batch = torch.zeros(1, tokens, dtype=torch.long)
            with saved_tensors(exclude=[*model.parameters(), batch]) as found:
                model(batch, batch)
            return found.bytes

    one, two = saved(1), saved(2)
    return one + (size.L - 1) * (two - one)
    # --8<-- [end:saved]


def draw(size: llama.Size, total: int, found: Findings) -> None:
    """Activations and states as the micro-batch grows, and what part of both is activations."""
    tokens = [2**power for power in range(10, 20)]
    saved = {
        checkpointed: {n: model_activations(size, n, checkpointed) for n in tokens}
        for checkpointed in (False, True)
    }
    few = tokens[:7:3]
    found.draw(
        "activations_over_tokens",
        Line("plain", few, [saved[False][n] for n in few]),
        Line("checkpointed", few, [saved[True][n] for n in few]),
        Line("weights", few, [WEIGHTS * total] * len(few)),
        Line("states", few, [STATES * total] * len(few)),
    )

    def share(name: str, checkpointed: bool, devices: int) -> Line:
        states = STATES * total / devices
        return Line(name, tokens, [a / (a + states) for a in saved[checkpointed].values()])

    found.draw(
        "share",
        share("sharded", False, DEVICES),
        share("plain", False, 1),
        share("sharded_checkpointed", True, DEVICES),
        share("checkpointed", True, 1),
        Line("half", [tokens[0], tokens[-1]], [0.5, 0.5]),
    )


def shrunk(size: llama.Size, factor: int) -> llama.Size:
    """A Llama of the same proportions."""
    heads = max(size.a // factor, 1)
    return replace(
        size, h=size.h // factor, f=size.f // factor, a=heads, g=max(heads * size.g // size.a, 1)
    )


# --- the demo ------------------------------------------------------------------------------------

MODELS = {"llama_7b": llama.LLAMA_7B, "llama_13b": llama.LLAMA_13B, "llama_70b": llama.LLAMA_70B}


def run(config: Config, progress: Progress) -> Result:
    """Thresholds of GPT, of Llama layers, and of a whole Llama with and without checkpoints."""
    found = Findings(MEASURES, config, devices=DEVICES)
    h, a = config.width, config.heads
    progress(0.0, "GPT")
    layer = Gpt(h, a)
    weights, states = layer.crossing(WEIGHTS), layer.crossing(STATES)
    found["gpt_weights"] = weights
    found["gpt_states"] = states
    found["gpt_weights_per_width"] = weights / h
    found["gpt_states_per_width"] = states / h
    found["depth_cancels"] = Gpt(h, a, layers=3).crossing(WEIGHTS) == weights
    matrix = Gpt(h, a, fused=False)
    found["gpt_matrix_weights"] = matrix.crossing(WEIGHTS)
    found["gpt_matrix_states"] = matrix.crossing(STATES)

    progress(0.4, "Llama")
    sizes = {name: shrunk(size, config.shrink) for name, size in MODELS.items()}
    for name, size in sizes.items():
        found[f"{name}_weights"] = llama_crossing(size, WEIGHTS)
        found[f"{name}_states"] = llama_crossing(size, STATES)

    progress(0.7, "7B")
    seven = sizes["llama_7b"]
    total = count(lambda: llama.Llama(seven))
    plain, checkpointed = (
        crossing(partial(model_activations, seven, checkpointed=c), STATES * total)
        for c in (False, True)
    )
    found["model_7b_states"] = plain
    found["model_7b_checkpointed_states"] = checkpointed
    found["checkpointing_ratio"] = checkpointed / plain

    progress(0.9, "figure")
    draw(seven, total, found)
    progress(1.0, "")
    return found.result()
