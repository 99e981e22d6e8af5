"""Where do the bytes of a training step go, and why is the same Adam 8, 16, 18 or 20 bytes a parameter?

The lesson is ``lessons/memory_breakdown.en.md`` (中文: ``lessons/memory_breakdown.zh.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import Category, LiveMemory, allocator_peak, fake
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import GPTSize, build, make_tokens
from runnable_demos.models.recipes import RECIPES, Breakdown, Recipe, Trainer, breakdown

GPU = 3
TITLE: Text = {"zh": "训练显存账本", "en": "The training-memory ledger"}
QUESTION: Text = {
    "zh": "一步训练的字节去了哪里？同是 Adam，为什么有人说每个参数 8 字节，有人说 16、18 或 20？",
    "en": "Where do the bytes of a training step go, and why is the same Adam said to take "
    "8, 16, 18 or 20 bytes a parameter?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "第二步反向结束、更新之前，各张量底层存储的字节，除以参数量",
  "bytes of the tensors' storages after the second backward and before the update, divided by the number of parameters",
]
[method.metrics]
fp32_weights_bytes_per_param = ["B/param", "fp32：权重", "fp32: weights"]
fp32_gradients_bytes_per_param = ["B/param", "fp32：梯度", "fp32: gradients"]
fp32_master_bytes_per_param = ["B/param", "fp32：fp32 主权重", "fp32: fp32 master"]
fp32_moments_bytes_per_param = ["B/param", "fp32：Adam 的 m 与 v", "fp32: Adam's m and v"]
fp32_optimizer_bytes_per_param = ["B/param", "fp32：主权重与 m、v 合计", "fp32: master copy, m and v together"]
fp32_states_bytes_per_param = ["B/param", "fp32：模型状态合计", "fp32: model states together"]
amp_weights_bytes_per_param = ["B/param", "autocast bf16：权重", "autocast bf16: weights"]
amp_gradients_bytes_per_param = ["B/param", "autocast bf16：梯度", "autocast bf16: gradients"]
amp_master_bytes_per_param = ["B/param", "autocast bf16：fp32 主权重", "autocast bf16: fp32 master"]
amp_moments_bytes_per_param = ["B/param", "autocast bf16：Adam 的 m 与 v", "autocast bf16: Adam's m and v"]
amp_optimizer_bytes_per_param = [
  "B/param",
  "autocast bf16：主权重与 m、v 合计",
  "autocast bf16: master copy, m and v together",
]
amp_states_bytes_per_param = ["B/param", "autocast bf16：模型状态合计", "autocast bf16: model states together"]
bf16_weights_bytes_per_param = ["B/param", "纯 bf16：权重", "bf16 throughout: weights"]
bf16_gradients_bytes_per_param = ["B/param", "纯 bf16：梯度", "bf16 throughout: gradients"]
bf16_master_bytes_per_param = ["B/param", "纯 bf16：fp32 主权重", "bf16 throughout: fp32 master"]
bf16_moments_bytes_per_param = ["B/param", "纯 bf16：Adam 的 m 与 v", "bf16 throughout: Adam's m and v"]
bf16_optimizer_bytes_per_param = [
  "B/param",
  "纯 bf16：主权重与 m、v 合计",
  "bf16 throughout: master copy, m and v together",
]
bf16_states_bytes_per_param = ["B/param", "纯 bf16：模型状态合计", "bf16 throughout: model states together"]
bf16_master_weights_bytes_per_param = ["B/param", "bf16 + fp32 主权重：权重", "bf16 + fp32 master: weights"]
bf16_master_gradients_bytes_per_param = ["B/param", "bf16 + fp32 主权重：梯度", "bf16 + fp32 master: gradients"]
bf16_master_master_bytes_per_param = [
  "B/param",
  "bf16 + fp32 主权重：fp32 主权重",
  "bf16 + fp32 master: fp32 master",
]
bf16_master_moments_bytes_per_param = [
  "B/param",
  "bf16 + fp32 主权重：Adam 的 m 与 v",
  "bf16 + fp32 master: Adam's m and v",
]
bf16_master_optimizer_bytes_per_param = [
  "B/param",
  "bf16 + fp32 主权重：主权重与 m、v 合计",
  "bf16 + fp32 master: master copy, m and v together",
]
bf16_master_states_bytes_per_param = [
  "B/param",
  "bf16 + fp32 主权重：模型状态合计",
  "bf16 + fp32 master: model states together",
]
bf16_master_fp32_grads_weights_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：权重",
  "gradients in fp32 instead: weights",
]
bf16_master_fp32_grads_gradients_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：梯度",
  "gradients in fp32 instead: gradients",
]
bf16_master_fp32_grads_master_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：fp32 主权重",
  "gradients in fp32 instead: fp32 master",
]
bf16_master_fp32_grads_moments_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：Adam 的 m 与 v",
  "gradients in fp32 instead: Adam's m and v",
]
bf16_master_fp32_grads_optimizer_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：主权重与 m、v 合计",
  "gradients in fp32 instead: master copy, m and v together",
]
bf16_master_fp32_grads_states_bytes_per_param = [
  "B/param",
  "梯度改存 fp32：模型状态合计",
  "gradients in fp32 instead: model states together",
]
bf16_master_both_grads_weights_bytes_per_param = ["B/param", "两种梯度都留：权重", "gradients in both: weights"]
bf16_master_both_grads_gradients_bytes_per_param = ["B/param", "两种梯度都留：梯度", "gradients in both: gradients"]
bf16_master_both_grads_master_bytes_per_param = [
  "B/param",
  "两种梯度都留：fp32 主权重",
  "gradients in both: fp32 master",
]
bf16_master_both_grads_moments_bytes_per_param = [
  "B/param",
  "两种梯度都留：Adam 的 m 与 v",
  "gradients in both: Adam's m and v",
]
bf16_master_both_grads_optimizer_bytes_per_param = [
  "B/param",
  "两种梯度都留：主权重与 m、v 合计",
  "gradients in both: master copy, m and v together",
]
bf16_master_both_grads_states_bytes_per_param = [
  "B/param",
  "两种梯度都留：模型状态合计",
  "gradients in both: model states together",
]
amp_over_fp32_states = ["", "autocast 与 fp32 的模型状态之比", "model states of autocast over those of fp32"]
bf16_master_optimizer_share = [
  "",
  "bf16 + fp32 主权重：主权重与 m、v 占模型状态的比例",
  "bf16 + fp32 master: share of master copy, m and v in the model states",
]

[[method]]
kind = "exact"
how = [
  "第二步逐次分配、释放跟踪存活字节，取最大值",
  "the most bytes alive in the second step, followed allocation by allocation",
]
[method.metrics]
fp32_peak_bytes = ["B", "fp32：一步的峰值", "fp32: peak of the step"]
fp32_peak_parameters_share = ["", "fp32：峰值中的占比，参数", "fp32: share of the peak, parameters"]
fp32_peak_gradients_share = ["", "fp32：峰值中的占比，梯度", "fp32: share of the peak, gradients"]
fp32_peak_optimizer_share = [
  "",
  "fp32：峰值中的占比，优化器状态与主权重",
  "fp32: share of the peak, optimizer state and master",
]
fp32_peak_activations_share = ["", "fp32：峰值中的占比，激活", "fp32: share of the peak, activations"]
fp32_peak_other_share = [
  "",
  "fp32：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "fp32: share of the peak, other (gradients of activations, transients, batch)",
]
amp_peak_bytes = ["B", "autocast bf16：一步的峰值", "autocast bf16: peak of the step"]
amp_peak_parameters_share = [
  "",
  "autocast bf16：峰值中的占比，参数",
  "autocast bf16: share of the peak, parameters",
]
amp_peak_gradients_share = ["", "autocast bf16：峰值中的占比，梯度", "autocast bf16: share of the peak, gradients"]
amp_peak_optimizer_share = [
  "",
  "autocast bf16：峰值中的占比，优化器状态与主权重",
  "autocast bf16: share of the peak, optimizer state and master",
]
amp_peak_activations_share = [
  "",
  "autocast bf16：峰值中的占比，激活",
  "autocast bf16: share of the peak, activations",
]
amp_peak_other_share = [
  "",
  "autocast bf16：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "autocast bf16: share of the peak, other (gradients of activations, transients, batch)",
]
bf16_peak_bytes = ["B", "纯 bf16：一步的峰值", "bf16 throughout: peak of the step"]
bf16_peak_parameters_share = ["", "纯 bf16：峰值中的占比，参数", "bf16 throughout: share of the peak, parameters"]
bf16_peak_gradients_share = ["", "纯 bf16：峰值中的占比，梯度", "bf16 throughout: share of the peak, gradients"]
bf16_peak_optimizer_share = [
  "",
  "纯 bf16：峰值中的占比，优化器状态与主权重",
  "bf16 throughout: share of the peak, optimizer state and master",
]
bf16_peak_activations_share = ["", "纯 bf16：峰值中的占比，激活", "bf16 throughout: share of the peak, activations"]
bf16_peak_other_share = [
  "",
  "纯 bf16：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "bf16 throughout: share of the peak, other (gradients of activations, transients, batch)",
]
bf16_master_peak_bytes = ["B", "bf16 + fp32 主权重：一步的峰值", "bf16 + fp32 master: peak of the step"]
bf16_master_peak_parameters_share = [
  "",
  "bf16 + fp32 主权重：峰值中的占比，参数",
  "bf16 + fp32 master: share of the peak, parameters",
]
bf16_master_peak_gradients_share = [
  "",
  "bf16 + fp32 主权重：峰值中的占比，梯度",
  "bf16 + fp32 master: share of the peak, gradients",
]
bf16_master_peak_optimizer_share = [
  "",
  "bf16 + fp32 主权重：峰值中的占比，优化器状态与主权重",
  "bf16 + fp32 master: share of the peak, optimizer state and master",
]
bf16_master_peak_activations_share = [
  "",
  "bf16 + fp32 主权重：峰值中的占比，激活",
  "bf16 + fp32 master: share of the peak, activations",
]
bf16_master_peak_other_share = [
  "",
  "bf16 + fp32 主权重：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "bf16 + fp32 master: share of the peak, other (gradients of activations, transients, batch)",
]
bf16_master_fp32_grads_peak_bytes = [
  "B",
  "梯度改存 fp32：一步的峰值",
  "gradients in fp32 instead: peak of the step",
]
bf16_master_fp32_grads_peak_parameters_share = [
  "",
  "梯度改存 fp32：峰值中的占比，参数",
  "gradients in fp32 instead: share of the peak, parameters",
]
bf16_master_fp32_grads_peak_gradients_share = [
  "",
  "梯度改存 fp32：峰值中的占比，梯度",
  "gradients in fp32 instead: share of the peak, gradients",
]
bf16_master_fp32_grads_peak_optimizer_share = [
  "",
  "梯度改存 fp32：峰值中的占比，优化器状态与主权重",
  "gradients in fp32 instead: share of the peak, optimizer state and master",
]
bf16_master_fp32_grads_peak_activations_share = [
  "",
  "梯度改存 fp32：峰值中的占比，激活",
  "gradients in fp32 instead: share of the peak, activations",
]
bf16_master_fp32_grads_peak_other_share = [
  "",
  "梯度改存 fp32：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "gradients in fp32 instead: share of the peak, other (gradients of activations, transients, batch)",
]
bf16_master_both_grads_peak_bytes = ["B", "两种梯度都留：一步的峰值", "gradients in both: peak of the step"]
bf16_master_both_grads_peak_parameters_share = [
  "",
  "两种梯度都留：峰值中的占比，参数",
  "gradients in both: share of the peak, parameters",
]
bf16_master_both_grads_peak_gradients_share = [
  "",
  "两种梯度都留：峰值中的占比，梯度",
  "gradients in both: share of the peak, gradients",
]
bf16_master_both_grads_peak_optimizer_share = [
  "",
  "两种梯度都留：峰值中的占比，优化器状态与主权重",
  "gradients in both: share of the peak, optimizer state and master",
]
bf16_master_both_grads_peak_activations_share = [
  "",
  "两种梯度都留：峰值中的占比，激活",
  "gradients in both: share of the peak, activations",
]
bf16_master_both_grads_peak_other_share = [
  "",
  "两种梯度都留：峰值中的占比，其余（激活的梯度、临时量、批数据）",
  "gradients in both: share of the peak, other (gradients of activations, transients, batch)",
]
sum_of_maxima_over_peak = [
  "",
  "fp32：各类别最大值之和与真实峰值之比",
  "fp32: sum of each category's maximum over the true peak",
]
lookalike_peak_ratio = [
  "",
  "另一次运行（SGD，序列更长）与 fp32 Adam 的峰值之比",
  "peak of another run (SGD, longer sequences) over that of fp32 Adam",
]
lookalike_activation_share = ["", "那次运行的峰值中激活的占比", "share of activations in that run's peak"]
lookalike_optimizer_share = ["", "那次运行的峰值中优化器状态的占比", "share of optimizer state in that run's peak"]

[[method]]
kind = "exact"
how = ["逐个张量计数", "counted tensor by tensor"]
[method.metrics]
parameters = ["", "参数量 P", "parameters P"]

[[method]]
kind = "exact"
how = ["只看第二步的更新，foreach 实现", "over the second step's update alone, foreach"]
[method.metrics]
fp32_update_peak_bytes_per_param = ["B/param", "fp32：更新期间的峰值", "fp32: peak during the update"]

[[method]]
kind = "exact"
how = ["fp32，Adam；两步各取前向与反向的峰值", "fp32, Adam; the peak of forward and backward in each of two steps"]
[method.metrics]
second_backward_rise_bytes_per_param = [
  "B/param",
  "第二步前向反向的峰值比第一步高出",
  "how far the second step's backward peak exceeds the first's",
]

[[method]]
kind = "exact"
how = ["更新期间存活字节的最大值减去更新之前", "the most bytes alive during the update less those before it"]
[method.metrics]
foreach_transient_bytes_per_param = [
  "B/param",
  "Adam 更新时的临时量（foreach）",
  "transient of Adam's update (foreach)",
]
forloop_transient_bytes_per_param = [
  "B/param",
  "Adam 更新时的临时量（forloop）",
  "transient of Adam's update (forloop)",
]
fused_transient_bytes_per_param = ["B/param", "Adam 更新时的临时量（fused）", "transient of Adam's update (fused)"]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
[method.metrics]
fp32_allocated = [
  "B",
  "fp32：一步在状态之上分配的峰值",
  "fp32: peak that a step allocates above the states",
]
amp_allocated = [
  "B",
  "autocast bf16：一步在状态之上分配的峰值",
  "autocast bf16: peak that a step allocates above the states",
]
bf16_allocated = [
  "B",
  "纯 bf16：一步在状态之上分配的峰值",
  "bf16 throughout: peak that a step allocates above the states",
]

[figure.states]
title = ["模型状态：每个参数多少字节", "Model states: bytes a parameter"]
x = {label = ["方案", "recipe"]}
y = {label = ["每个参数的字节", "bytes a parameter"], unit = "B/param"}
[figure.states.series]
weights = ["bar", "权重", "weights"]
gradients = ["bar", "梯度", "gradients"]
master = ["bar", "fp32 主权重", "fp32 master"]
moments = ["bar", "Adam 的 m 与 v", "Adam's m and v"]
[figure.states.places]
fp32 = ["fp32", "fp32"]
amp = ["autocast bf16", "autocast bf16"]
bf16 = ["纯 bf16", "bf16 throughout"]
bf16_master = ["bf16 + fp32 主权重", "bf16 + fp32 master"]
bf16_master_fp32_grads = ["…梯度改存 fp32", "… gradients in fp32 instead"]
bf16_master_both_grads = ["…两种梯度都留", "… gradients in both"]

[figure.peaks]
title = ["一步的峰值由什么组成", "What the peak of a step is made of"]
x = {label = ["方案", "recipe"]}
y = {label = ["峰值字节", "bytes at the peak"], unit = "B"}
[figure.peaks.series]
parameters = ["bar", "参数", "parameters"]
gradients = ["bar", "梯度", "gradients"]
optimizer = ["bar", "优化器状态与主权重", "optimizer state and master"]
activations = ["bar", "激活", "activations"]
other = [
  "bar",
  "其余（激活的梯度、临时量、批数据）",
  "other (gradients of activations, transients, batch)",
]
[figure.peaks.places]
fp32 = ["fp32", "fp32"]
amp = ["autocast bf16", "autocast bf16"]
bf16 = ["纯 bf16", "bf16 throughout"]
bf16_master = ["bf16 + fp32 主权重", "bf16 + fp32 master"]
bf16_master_fp32_grads = ["…梯度改存 fp32", "… gradients in fp32 instead"]
bf16_master_both_grads = ["…两种梯度都留", "… gradients in both"]

[figure.timeline]
title = ["一步训练的存活字节（fp32，Adam）", "Bytes alive over one training step (fp32, Adam)"]
x = {label = ["事件（分配与释放）", "event (allocation or free)"]}
y = {label = ["存活字节", "bytes alive"], unit = "B"}
[figure.timeline.series]
parameters = ["area", "参数", "parameters"]
gradients = ["area", "梯度", "gradients"]
optimizer = ["area", "优化器状态与主权重", "optimizer state and master"]
activations = ["area", "激活", "activations"]
other = [
  "area",
  "其余（激活的梯度、临时量、批数据）",
  "other (gradients of activations, transients, batch)",
]
"""


@dataclass(frozen=True)
class Config:
    """A small GPT and its batch."""

    layers: int = parameter(4, {"zh": "层数 L", "en": "layers L"}, 1, 48)
    width: int = parameter(256, {"zh": "宽度 h", "en": "width h"}, 16, 4096)
    heads: int = parameter(4, {"zh": "头数 a", "en": "heads a"}, 1, 64)
    vocabulary: int = parameter(1024, {"zh": "词表 V", "en": "vocabulary V"}, 16, 200_000)
    batch: int = parameter(4, {"zh": "批大小 b", "en": "batch b"}, 1, 256)
    length: int = parameter(128, {"zh": "序列长度 s", "en": "sequence length s"}, 8, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(layers=2, width=64, heads=2, vocabulary=128, batch=2, length=32),
    "full": Config(),
}


# --- measuring -----------------------------------------------------------------------------------


def gpt_size(config: Config) -> GPTSize:
    """The GPT's."""
    return GPTSize(config.layers, config.width, config.heads, config.vocabulary)


def begin(config: Config, recipe: Recipe) -> tuple[Trainer, Tensor]:
    """A trainer that has not stepped yet, and its batch."""
    return Trainer(gpt_size(config), recipe, config.device), draw_batch(config)


def draw_batch(config: Config) -> Tensor:
    """Random tokens, ``(b, s + 1)``."""
    return make_tokens(config.vocabulary, config.batch, config.length, config.device)


def backward_peaks(config: Config) -> tuple[int, int]:
    """Peaks of forward and backward in the first step and in the second, fp32, in bytes."""
    trainer, tokens = begin(config, RECIPES[0])
    peaks = []
    with LiveMemory(model=trainer.model, inputs=tokens) as live:
        for _ in range(2):
            live.reset_peak()
            trainer.backward(tokens)
            peaks.append(live.peak)
            trainer.update()
    return peaks[0], peaks[1]


def update_transient(config: Config, foreach: bool = False, fused: bool = False) -> int:
    """How far one Adam step rises above what is held before and after it, in bytes."""
    model = build(gpt_size(config), config.device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach, fused=fused)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    # --8<-- [start:transient]
    optimizer.step()
    with LiveMemory(model=model, optimizer=optimizer) as live:
        before = live.current
        optimizer.step()
    return live.peak - before
    # --8<-- [end:transient]


def allocated(config: Config, recipe: Recipe) -> int:
    """On a GPU: how far a step raises the allocator's peak above the states."""
    trainer, tokens = begin(config, recipe)
    trainer.backward(tokens)
    trainer.update()

    def step() -> None:
        trainer.backward(tokens)
        trainer.update()

    return allocator_peak(step)


def sgd_step(config: Config) -> LiveMemory:
    """The second step of fp32 with plain SGD, which keeps no state."""
    model, tokens = build(gpt_size(config), config.device), draw_batch(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    live = LiveMemory(model=model, optimizer=optimizer, inputs=tokens)
    with live:
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
    return live


def lookalike(config: Config, peak: int) -> LiveMemory:
    """The SGD step whose peak comes nearest to ``peak``, over the length of the sequence."""
    with fake():
        low, high = 1, 2
        while sgd_step(replace(config, length=high, device="cpu")).peak < peak:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if sgd_step(replace(config, length=middle, device="cpu")).peak < peak:
                low = middle
            else:
                high = middle
    return min(
        (sgd_step(replace(config, length=length)) for length in (low, high)),
        key=lambda live: abs(live.peak - peak),
    )


# --- the run -------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Measure every recipe, Adam's transient, and two runs with one peak."""
    found = Findings(MEASURES, config)
    steps: dict[str, Breakdown] = {}
    for number, recipe in enumerate(RECIPES):
        progress(0.5 * number / len(RECIPES), recipe.name)
        steps[recipe.name] = breakdown(*begin(config, recipe))
        find_step(recipe.name, steps[recipe.name], found)
    fp32, master = steps["fp32"], steps["bf16_master"]
    P = fp32.parameters
    found["parameters"] = P
    states = sum(master.held.values())
    found["amp_over_fp32_states"] = sum(steps["amp"].held.values()) / sum(fp32.held.values())
    found["bf16_master_optimizer_share"] = (master.held["master"] + master.held["moments"]) / states
    found["fp32_update_peak_bytes_per_param"] = fp32.update_peak / P
    maxima = [max(row[category] for row in fp32.timeline) for category in fp32.at_peak]
    found["sum_of_maxima_over_peak"] = sum(maxima) / fp32.peak
    draw_steps(steps, found)
    draw_timeline(fp32, found)

    progress(0.5, "Adam's transient")
    first, second = backward_peaks(config)
    found["second_backward_rise_bytes_per_param"] = (second - first) / P
    found["foreach_transient_bytes_per_param"] = update_transient(config, foreach=True) / P
    found["forloop_transient_bytes_per_param"] = update_transient(config) / P
    found["fused_transient_bytes_per_param"] = update_transient(config, fused=True) / P

    progress(0.7, "the same peak by SGD")
    other = lookalike(config, fp32.peak)
    found["lookalike_peak_ratio"] = other.peak / fp32.peak
    found["lookalike_activation_share"] = other.at_peak["activations"] / other.peak
    found["lookalike_optimizer_share"] = other.at_peak["optimizer"] / other.peak

    if config.device == "cuda":
        for recipe in RECIPES[:3]:
            found[f"{recipe.name}_allocated"] = allocated(config, recipe)
    progress(1.0, "")
    return found.result()


def find_step(name: str, step: Breakdown, found: Findings) -> None:
    """Bytes a parameter of each part, and the share of each category in the peak."""
    held = {
        **step.held,
        "optimizer": step.held["master"] + step.held["moments"],
        "states": sum(step.held.values()),
    }
    for part, size in held.items():
        found[f"{name}_{part}_bytes_per_param"] = size / step.parameters
    found[f"{name}_peak_bytes"] = step.peak
    for category, size in step.at_peak.items():
        found[f"{name}_peak_{category}_share"] = size / step.peak


def draw_steps(steps: Mapping[str, Breakdown], found: Findings) -> None:
    """Stacked bars by recipe: bytes a parameter by part, and bytes at the peak by category."""
    places, first = range(len(steps)), steps["fp32"]

    def held(part: str) -> list[float]:
        return [step.held[part] / step.parameters for step in steps.values()]

    def at_peak(category: Category) -> list[int]:
        return [step.at_peak[category] for step in steps.values()]

    parts = [Line(part, places, held(part)) for part in first.held]
    found.draw("states", *parts, places=steps)
    categories = [Line(category, places, at_peak(category)) for category in first.at_peak]
    found.draw("peaks", *categories, places=steps)


def draw_timeline(step: Breakdown, found: Findings, points: int = 160) -> None:
    """Areas: what is alive over the second fp32 step, event by event."""
    rows = thin(step.timeline, points)
    times = [time for time, _ in rows]
    areas = [Line(name, times, [row[name] for _, row in rows]) for name in step.at_peak]
    found.draw("timeline", *areas)


def thin(timeline: list[dict[Category, int]], points: int) -> list[tuple[int, dict[Category, int]]]:
    """At most ``points`` events, each the highest of its neighbours, so that the peak is kept."""
    stride = -(-len(timeline) // points)
    events = list(enumerate(timeline))
    runs = (events[i : i + stride] for i in range(0, len(events), stride))
    return [max(run, key=lambda event: sum(event[1].values())) for run in runs]
