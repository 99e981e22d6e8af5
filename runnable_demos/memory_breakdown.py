"""Where do the bytes of a training step go, and why is the same Adam 8, 16, 18 or 20 bytes a parameter?

The question
    A step holds weights, gradients, the optimizer's state and activations.
    How many bytes a parameter is each of the first three, by recipe, and what fills the peak?

The model
    With P parameters, Adam keeps two moments m and v. By hand, in bytes a parameter:

        recipe                              weights  gradients  master  m + v   sum
        fp32                                   4         4         –      8      16
        autocast (weights stay fp32)           4         4         –      8      16
        bf16 throughout                        2         2         –      4       8
        bf16 + fp32 master                     2         2         4      8      16
        … gradients kept in fp32 instead       2         4         4      8      18
        … gradients in both                    2       2 + 4       4      8      20

    What is not a matter of parameters, the activations, grows with the tokens in flight.

The measurement
    A small GPT takes two steps; the second is measured, since Adam's state appears in the first.
    Bytes a parameter are those of the storages that are alive when all gradients are there.
    The peak of the step is attributed by category. Then Adam alone, by implementation:
    how far its step rises above what it holds. At last two runs with the same peak and another cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.measure import (
    CATEGORIES,
    Category,
    LiveMemory,
    allocator_peak,
    fake,
    storage_bytes,
)
from runnable_demos.metrics import (
    Axis,
    Figure,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    Unit,
    parameter,
)

GPU = 3
TITLE: Text = {"zh": "训练显存账本", "en": "The training-memory ledger"}
QUESTION: Text = {
    "zh": "一步训练的字节去了哪里？同是 Adam，为什么有人说每个参数 8 字节，有人说 16、18 或 20？",
    "en": "Where do the bytes of a training step go, and why is the same Adam said to take "
    "8, 16, 18 or 20 bytes a parameter?",
}


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


# --- a small GPT ---------------------------------------------------------------------------------


class Block(nn.Module):
    """Pre-norm attention and MLP, ``(b, s, h)`` to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add what attention and the MLP find."""
        b, s, h = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, h // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (b, a, s, h/a)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Tokens ``(b, s)`` to logits ``(b, s, V)``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        blocks = (Block(config.width, config.heads) for _ in range(config.layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token."""
        logits: Tensor = self.head(self.norm(self.blocks(self.embed(tokens))))
        return logits


def build(config: Config) -> GPT:
    """The model, with random fp32 weights."""
    with torch.device(config.device):
        return GPT(config)


# --- recipes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """In which precision weights, gradients and the optimizer's own copy are held."""

    name: str
    label: Text
    weights: torch.dtype = torch.float32
    autocast: bool = False
    master: bool = False
    fp32_gradients: Literal["no", "instead", "too"] = "no"


RECIPES = (
    Recipe("fp32", {"zh": "fp32", "en": "fp32"}),
    Recipe("amp", {"zh": "autocast bf16", "en": "autocast bf16"}, autocast=True),
    Recipe("bf16", {"zh": "纯 bf16", "en": "bf16 throughout"}, torch.bfloat16),
    Recipe(
        "bf16_master",
        {"zh": "bf16 + fp32 主权重", "en": "bf16 + fp32 master"},
        torch.bfloat16,
        master=True,
    ),
    Recipe(
        "bf16_master_fp32_grads",
        {"zh": "…梯度改存 fp32", "en": "… gradients in fp32 instead"},
        torch.bfloat16,
        master=True,
        fp32_gradients="instead",
    ),
    Recipe(
        "bf16_master_both_grads",
        {"zh": "…两种梯度都留", "en": "… gradients in both"},
        torch.bfloat16,
        master=True,
        fp32_gradients="too",
    ),
)


class Trainer:
    """One model and Adam, by one recipe; ``backward`` and ``update`` are the halves of a step."""

    def __init__(self, config: Config, recipe: Recipe) -> None:
        self.recipe = recipe
        self.device = config.device
        self.model = build(config).to(recipe.weights)
        self.weights: list[Tensor] = list(self.model.parameters())
        self.masters = [w.detach().float() for w in self.weights] if recipe.master else []
        stepped = self.masters or self.weights
        # With 16-bit gradients alone the update goes tensor by tensor, as a fused kernel would.
        one_by_one = recipe.master and recipe.fp32_gradients == "no"
        groups = [[p] for p in stepped] if one_by_one else [stepped]
        self.optimizers = [torch.optim.Adam(group, foreach=True) for group in groups]
        if recipe.fp32_gradients == "instead":
            for w, m in zip(self.weights, self.masters, strict=True):
                w.register_post_accumulate_grad_hook(lambda w, m=m: move_gradient(w, m))

    def backward(self, tokens: Tensor) -> None:
        """Forward and backward; afterwards every gradient is there, in the form that is kept."""
        kind = torch.device(self.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.recipe.autocast):
            logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        if self.recipe.fp32_gradients == "too":
            for w, m in zip(self.weights, self.masters, strict=True):
                m.grad = gradient(w).float()

    def update(self) -> None:
        """Step, and set the gradients to None."""
        if len(self.optimizers) > 1:
            for w, m, optimizer in zip(self.weights, self.masters, self.optimizers, strict=True):
                m.grad = gradient(w).float()
                optimizer.step()
                m.grad = None
        else:
            self.optimizers[0].step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        for p in (*self.weights, *self.masters):
            p.grad = None

    def gradients(self) -> list[Tensor]:
        """Every gradient that is held."""
        return [p.grad for p in (*self.weights, *self.masters) if p.grad is not None]

    def moments(self) -> list[object]:
        """Adam's state: m, v and a step counter a tensor."""
        return [optimizer.state for optimizer in self.optimizers]


def gradient(weight: Tensor) -> Tensor:
    """The gradient that a backward has left."""
    assert weight.grad is not None
    return weight.grad


def move_gradient(weight: Tensor, master: Tensor) -> None:
    """Add the 16-bit gradient to the fp32 one and drop it, as soon as it is there."""
    arrived = gradient(weight).float()
    master.grad = arrived if master.grad is None else master.grad + arrived
    weight.grad = None


# --- measuring -----------------------------------------------------------------------------------

PARTS: Mapping[str, Text] = {
    "weights": {"zh": "权重", "en": "weights"},
    "gradients": {"zh": "梯度", "en": "gradients"},
    "master": {"zh": "fp32 主权重", "en": "fp32 master"},
    "moments": {"zh": "Adam 的 m 与 v", "en": "Adam's m and v"},
}


@dataclass(frozen=True)
class Breakdown:
    """One step: bytes of each part once all gradients are there, and the peak by category."""

    parameters: int
    held: Mapping[str, int]
    peak: int
    at_peak: Mapping[Category, int]
    timeline: list[dict[Category, int]]
    update_peak: int
    """The most bytes alive during the update alone."""


def make_tokens(config: Config) -> Tensor:
    """A batch ``(b, s + 1)``: each token is to predict the next."""
    shape = (config.batch, config.length + 1)
    return torch.randint(config.vocabulary, shape, device=config.device)


def breakdown(config: Config, recipe: Recipe) -> Breakdown:
    """Measure the second step of a recipe."""
    trainer, tokens = Trainer(config, recipe), make_tokens(config)
    trainer.backward(tokens)
    trainer.update()
    with LiveMemory(model=trainer.model, inputs=tokens) as live:
        live.register("optimizer", [trainer.masters, trainer.moments()])
        start = len(live.timeline)
        trainer.backward(tokens)
        live.register("gradients", trainer.gradients())
        held = {
            "weights": storage_bytes(trainer.weights),
            "gradients": storage_bytes(trainer.gradients()),
            "master": storage_bytes(trainer.masters),
            "moments": storage_bytes(trainer.moments()),
        }
        live.reset_peak()
        trainer.update()
    numbers = sum(w.numel() for w in trainer.weights)
    timeline = [by_category(row) for row in live.timeline[start:]]
    peak = max(timeline, key=lambda row: sum(row.values()))
    return Breakdown(numbers, held, sum(peak.values()), peak, timeline, live.peak)


def by_category(row: tuple[int, ...]) -> dict[Category, int]:
    """One row of a timeline by name; the batch is too small for a category of its own."""
    named = dict(zip(CATEGORIES, row, strict=True))
    named["other"] += named.pop("inputs")
    return named


def backward_peaks(config: Config) -> tuple[int, int]:
    """Peaks of forward and backward in the first step and in the second, fp32, in bytes."""
    trainer, tokens = Trainer(config, RECIPES[0]), make_tokens(config)
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
    model = build(config)
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach, fused=fused)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    with LiveMemory(model=model, optimizer=optimizer) as live:
        before = live.current
        optimizer.step()
    return live.peak - before


def allocated(config: Config) -> tuple[Metric, ...]:
    """On a GPU: how far forward and backward raise the allocator's peak above the states."""

    def metric(recipe: Recipe) -> Metric:
        trainer, tokens = Trainer(config, recipe), make_tokens(config)
        trainer.backward(tokens)
        trainer.update()

        def step() -> None:
            trainer.backward(tokens)
            trainer.update()

        label = {
            "zh": f"{recipe.label['zh']}：一步在状态之上分配的峰值",
            "en": f"{recipe.label['en']}: peak that a step allocates above the states",
        }
        return allocator_peak(f"{recipe.name}_allocated", label, step)

    return tuple(metric(recipe) for recipe in RECIPES[:3])


def sgd_step(config: Config) -> LiveMemory:
    """The second step of fp32 with plain SGD, which keeps no state."""
    model, tokens = build(config), make_tokens(config)
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

HOW_HELD: Text = {
    "zh": "第二步反向结束、更新之前，各张量底层存储的字节，除以参数量",
    "en": "bytes of the tensors' storages after the second backward and before the update, "
    "divided by the number of parameters",
}
HOW_PEAK: Text = {
    "zh": "第二步逐次分配、释放跟踪存活字节，取最大值",
    "en": "the most bytes alive in the second step, followed allocation by allocation",
}


def run(config: Config, progress: Progress) -> Result:
    """Measure every recipe, Adam's transient, and two runs with one peak."""
    found: dict[str, Breakdown] = {}
    for number, recipe in enumerate(RECIPES):
        progress(0.5 * number / len(RECIPES), recipe.label["en"])
        found[recipe.name] = breakdown(config, recipe)
    progress(0.5, "Adam's transient")
    first, second = backward_peaks(config)
    transients = {
        "foreach": update_transient(config, foreach=True),
        "forloop": update_transient(config),
        "fused": update_transient(config, fused=True),
    }
    progress(0.7, "the same peak by SGD")
    fp32, master = found["fp32"], found["bf16_master"]
    other = lookalike(config, fp32.peak)
    on_gpu = allocated(config) if config.device == "cuda" else ()
    progress(1.0, "")
    metrics = [*on_gpu]
    metrics += [m for recipe in RECIPES for m in held_metrics(recipe, found[recipe.name])]
    metrics += [m for recipe in RECIPES for m in peak_metrics(recipe, found[recipe.name])]
    metrics += [
        _exact(
            "parameters",
            fp32.parameters,
            "",
            {"zh": "参数量 P", "en": "parameters P"},
            {"zh": "逐个张量计数", "en": "counted tensor by tensor"},
        ),
        _exact(
            "amp_over_fp32_states",
            sum(found["amp"].held.values()) / sum(fp32.held.values()),
            "",
            {
                "zh": "autocast 与 fp32 的模型状态之比",
                "en": "model states of autocast over those of fp32",
            },
            HOW_HELD,
        ),
        _exact(
            "bf16_master_optimizer_share",
            (master.held["master"] + master.held["moments"]) / sum(master.held.values()),
            "",
            {
                "zh": "bf16 + fp32 主权重：主权重与 m、v 占模型状态的比例",
                "en": "bf16 + fp32 master: share of master copy, m and v in the model states",
            },
            HOW_HELD,
        ),
        _exact(
            "fp32_update_peak_bytes_per_param",
            fp32.update_peak / fp32.parameters,
            "B/param",
            {"zh": "fp32：更新期间的峰值", "en": "fp32: peak during the update"},
            {
                "zh": "只看第二步的更新，foreach 实现",
                "en": "over the second step's update alone, foreach",
            },
        ),
        _exact(
            "sum_of_maxima_over_peak",
            sum(max(row[name] for row in fp32.timeline) for name in CATEGORY_NAMES) / fp32.peak,
            "",
            {
                "zh": "fp32：各类别最大值之和与真实峰值之比",
                "en": "fp32: sum of each category's maximum over the true peak",
            },
            HOW_PEAK,
        ),
        _exact(
            "second_backward_rise_bytes_per_param",
            (second - first) / fp32.parameters,
            "B/param",
            {
                "zh": "第二步前向反向的峰值比第一步高出",
                "en": "how far the second step's backward peak exceeds the first's",
            },
            {
                "zh": "fp32，Adam；两步各取前向与反向的峰值",
                "en": "fp32, Adam; the peak of forward and backward in each of two steps",
            },
        ),
        *(
            _exact(
                f"{name}_transient_bytes_per_param",
                size / fp32.parameters,
                "B/param",
                {
                    "zh": f"Adam 更新时的临时量（{name}）",
                    "en": f"transient of Adam's update ({name})",
                },
                {
                    "zh": "更新期间存活字节的最大值减去更新之前",
                    "en": "the most bytes alive during the update less those before it",
                },
            )
            for name, size in transients.items()
        ),
        _exact(
            "lookalike_peak_ratio",
            other.peak / fp32.peak,
            "",
            {
                "zh": "另一次运行（SGD，序列更长）与 fp32 Adam 的峰值之比",
                "en": "peak of another run (SGD, longer sequences) over that of fp32 Adam",
            },
            HOW_PEAK,
        ),
        _exact(
            "lookalike_activation_share",
            other.at_peak["activations"] / other.peak,
            "",
            {"zh": "那次运行的峰值中激活的占比", "en": "share of activations in that run's peak"},
            HOW_PEAK,
        ),
        _exact(
            "lookalike_optimizer_share",
            other.at_peak["optimizer"] / other.peak,
            "",
            {
                "zh": "那次运行的峰值中优化器状态的占比",
                "en": "share of optimizer state in that run's peak",
            },
            HOW_PEAK,
        ),
    ]
    return Result(
        tuple(metrics), (states_figure(found), peaks_figure(found), timeline_figure(fp32))
    )


def _exact(name: str, value: float, unit: Unit, label: Text, how: Text) -> Metric:
    return Metric(name, value, unit, "exact", label, how)


def held_metrics(recipe: Recipe, step: Breakdown) -> list[Metric]:
    """Bytes a parameter of each part of one recipe, their sum, and what is the optimizer's."""
    own = step.held["master"] + step.held["moments"]
    sums = {
        "optimizer": (own, {"zh": "主权重与 m、v 合计", "en": "master copy, m and v together"}),
        "states": (sum(step.held.values()), {"zh": "模型状态合计", "en": "model states together"}),
    }
    parts = {name: (step.held[name], PARTS[name]) for name in PARTS} | sums
    return [
        _exact(
            f"{recipe.name}_{name}_bytes_per_param",
            size / step.parameters,
            "B/param",
            named(recipe, label),
            HOW_HELD,
        )
        for name, (size, label) in parts.items()
    ]


def named(recipe: Recipe, label: Text) -> Text:
    """What a metric is, with its recipe."""
    title = {lang: recipe.label[lang].lstrip("… ") for lang in ("zh", "en")}
    return {"zh": f"{title['zh']}：{label['zh']}", "en": f"{title['en']}: {label['en']}"}


def peak_metrics(recipe: Recipe, step: Breakdown) -> list[Metric]:
    """The peak of one recipe's step, and the share of each category in it."""
    whole = _exact(
        f"{recipe.name}_peak_bytes",
        step.peak,
        "B",
        named(recipe, {"zh": "一步的峰值", "en": "peak of the step"}),
        HOW_PEAK,
    )
    shares = [
        _exact(
            f"{recipe.name}_peak_{category}_share",
            step.at_peak[category] / step.peak,
            "",
            named(
                recipe,
                {"zh": f"峰值中的占比，{name['zh']}", "en": f"share of the peak, {name['en']}"},
            ),
            HOW_PEAK,
        )
        for category, name in CATEGORY_NAMES.items()
    ]
    return [whole, *shares]


CATEGORY_NAMES: Mapping[Category, Text] = {
    "parameters": {"zh": "参数", "en": "parameters"},
    "gradients": {"zh": "梯度", "en": "gradients"},
    "optimizer": {"zh": "优化器状态与主权重", "en": "optimizer state and master"},
    "activations": {"zh": "激活", "en": "activations"},
    "other": {
        "zh": "其余（激活的梯度、临时量、批数据）",
        "en": "other (gradients of activations, transients, batch)",
    },
}


def states_figure(found: Mapping[str, Breakdown]) -> Figure:
    """Stacked bars: bytes a parameter by recipe."""
    places = tuple(range(len(RECIPES)))
    return Figure(
        "states",
        {"zh": "模型状态：每个参数多少字节", "en": "Model states: bytes a parameter"},
        Axis({"zh": "方案", "en": "recipe"}, categories=tuple(r.label for r in RECIPES)),
        Axis({"zh": "每个参数的字节", "en": "bytes a parameter"}, "B/param"),
        tuple(
            Series(
                label,
                places,
                tuple(step.held[name] / step.parameters for step in found.values()),
                "bar",
            )
            for name, label in PARTS.items()
        ),
    )


def peaks_figure(found: Mapping[str, Breakdown]) -> Figure:
    """Stacked bars: bytes at the peak of a step by category."""
    places = tuple(range(len(RECIPES)))
    return Figure(
        "peaks",
        {"zh": "一步的峰值由什么组成", "en": "What the peak of a step is made of"},
        Axis({"zh": "方案", "en": "recipe"}, categories=tuple(r.label for r in RECIPES)),
        Axis({"zh": "峰值字节", "en": "bytes at the peak"}, "B"),
        tuple(
            Series(label, places, tuple(step.at_peak[name] for step in found.values()), "bar")
            for name, label in CATEGORY_NAMES.items()
        ),
    )


def timeline_figure(step: Breakdown, points: int = 160) -> Figure:
    """Areas: what is alive over the second fp32 step, event by event."""
    rows = thin(step.timeline, points)
    times = tuple(float(time) for time, _ in rows)
    return Figure(
        "timeline",
        {
            "zh": "一步训练的存活字节（fp32，Adam）",
            "en": "Bytes alive over one training step (fp32, Adam)",
        },
        Axis({"zh": "事件（分配与释放）", "en": "event (allocation or free)"}),
        Axis({"zh": "存活字节", "en": "bytes alive"}, "B"),
        tuple(
            Series(label, times, tuple(row[name] for _, row in rows), "area")
            for name, label in CATEGORY_NAMES.items()
        ),
    )


def thin(timeline: list[dict[Category, int]], points: int) -> list[tuple[int, dict[Category, int]]]:
    """At most ``points`` events, each the highest of its neighbours, so that the peak is kept."""
    stride = -(-len(timeline) // points)
    events = list(enumerate(timeline))
    runs = (events[i : i + stride] for i in range(0, len(events), stride))
    return [max(run, key=lambda event: sum(event[1].values())) for run in runs]
