"""Memory ran out: what is it that is too much, and since when?

The lesson is ``lessons/oom_diagnosis.en.md`` (中文: ``lessons/oom_diagnosis.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import CATEGORIES, Category, LiveMemory
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "OOM 诊断", "en": "Diagnosing OOM"}
QUESTION: Text = {
    "zh": "显存爆了：多的是什么，从哪一步开始，哪种办法有用？",
    "en": "Memory ran out: what is too much, since which step, and which cure helps?",
}

MEASURES = """
[[method]]
kind = "exact"
how = ["一步之内实时字节的峰值", "live peak within a step"]
[method.metrics]
second_step_adds_large = [
  "B/param",
  "大批：第二步的峰值比第一步多出",
  "large batch: peak of step two above that of step one",
]
second_step_adds_small = [
  "B/param",
  "小批：第二步的峰值比第一步多出",
  "small batch: peak of step two above that of step one",
]
third_step_adds = [
  "B/param",
  "大批：第三步的峰值比第二步多出",
  "large batch: peak of step three above that of step two",
]
kept_gradients_add = [
  "B/param",
  "大批：set_to_none=False 使峰值多出",
  "large batch: what set_to_none=False adds to the peak",
]
checkpointed_large = [
  "",
  "大批：逐块检查点之后的峰值与之前之比",
  "large batch: peak with each block checkpointed over that without",
]
fused_large = [
  "",
  "大批：融合优化器之后的峰值与之前之比",
  "large batch: peak with fused optimizer over that without",
]
checkpointed_small = [
  "",
  "小批：逐块检查点之后的峰值与之前之比",
  "small batch: peak with each block checkpointed over that without",
]
fused_small = [
  "",
  "小批：融合优化器之后的峰值与之前之比",
  "small batch: peak with fused optimizer over that without",
]

[[method]]
kind = "exact"
how = ["第二步峰值时刻按类别归因的实时字节", "live bytes at the peak of step two, by category"]
[method.metrics]
activations_share_large = ["", "大批的峰值里激活占", "activations at the peak, large batch"]
states_share_large = [
  "",
  "大批的峰值里参数、梯度与优化器状态占",
  "parameters, gradients and states at the peak, large batch",
]
activations_share_small = ["", "小批的峰值里激活占", "activations at the peak, small batch"]
states_share_small = [
  "",
  "小批的峰值里参数、梯度与优化器状态占",
  "parameters, gradients and states at the peak, small batch",
]

[[method]]
kind = "exact"
how = [
  "每步之后参数以外的实时字节，最后两步之差",
  "live bytes apart from parameters after a step: difference of the last two",
]
[method.metrics]
leak_validation = [
  "B",
  "每步泄漏：验证：total += loss，没有 no_grad",
  "leaked a step: validation: total += loss, no no_grad",
]
leak_stashed = [
  "B",
  "每步泄漏：训练：张量挂在 ctx 上",
  "leaked a step: training: a tensor as an attribute of ctx",
]
leak_training = [
  "B",
  "每步泄漏：训练：total += loss，在 backward 之后",
  "leaked a step: training: total += loss after backward",
]
leak_item = [
  "B",
  "每步泄漏：训练：total += loss.item()",
  "leaked a step: training: total += loss.item()",
]
leak_validation_over_graph = [
  "",
  "验证循环每步泄漏的，是一步的图所持有的几倍",
  "leak of the validation loop a step, over what one step's graph holds",
]

[[method]]
kind = "exact"
how = [
  "从 total.grad_fn 出发能走到的节点数，两步之差",
  "nodes reached from total.grad_fn, difference of two steps",
]
[method.metrics]
nodes_a_step = [
  "",
  "训练：total += loss 每步留下的计算图节点数",
  "training: graph nodes that total += loss leaves behind a step",
]

[[method]]
kind = "exact"
how = ["except 块内的实时字节", "live bytes within the except block"]
[method.metrics]
held_in_except = [
  "",
  "处理异常期间仍占着的，是一步的图所持有的几倍",
  "held while the exception is handled, over what one step's graph holds",
]

[[method]]
kind = "exact"
how = ["except 块之后的实时字节", "live bytes after the except block"]
[method.metrics]
held_after_except = ["B", "离开 except 之后仍占着的", "held once the except block is left"]

[figure.peaks]
title = ["第二步的峰值由什么组成", "What the peak of step two consists of"]
x = {label = ["批与办法", "batch and cure"]}
y = {label = ["实时字节", "live bytes"], unit = "B"}
[figure.peaks.series]
parameters = ["bar", "参数与输入", "parameters, inputs"]
gradients = ["bar", "梯度", "gradients"]
optimizer = ["bar", "优化器状态", "optimizer states"]
activations = ["bar", "激活", "activations"]
transients = ["bar", "临时量", "transients"]
[figure.peaks.places]
large = ["大批", "large batch"]
large_checkpointed = ["大批，逐块检查点", "large batch, each block checkpointed"]
large_fused = ["大批，融合优化器", "large batch, fused optimizer"]
small = ["小批", "small batch"]
small_checkpointed = ["小批，逐块检查点", "small batch, each block checkpointed"]
small_fused = ["小批，融合优化器", "small batch, fused optimizer"]

[figure.steps]
title = ["前两步里存活的字节（大批）", "Bytes alive over the first two steps (large batch)"]
x = {label = ["事件（分配与释放）", "event (allocation or free)"]}
y = {label = ["存活字节", "bytes alive"], unit = "B"}
[figure.steps.series]
parameters = ["area", "参数与输入", "parameters, inputs"]
optimizer = ["area", "优化器状态", "optimizer states"]
gradients = ["area", "梯度", "gradients"]
activations = ["area", "激活", "activations"]
transients = ["area", "临时量", "transients"]

[figure.leaks]
title = ["四个循环：每步之后还占着多少", "Four loops: what is held after each step"]
x = {label = ["步", "step"]}
y = {label = ["参数以外的字节", "bytes apart from parameters"], unit = "B"}
[figure.leaks.series]
validation = [
  "measured",
  "验证：total += loss，没有 no_grad",
  "validation: total += loss, no no_grad",
]
stashed = [
  "measured",
  "训练：张量挂在 ctx 上",
  "training: a tensor as an attribute of ctx",
]
training = [
  "measured",
  "训练：total += loss，在 backward 之后",
  "training: total += loss after backward",
]
item = ["measured", "训练：total += loss.item()", "training: total += loss.item()"]
"""


@dataclass(frozen=True)
class Config:
    """A residual network, and two batches: one that fills memory itself, and one that does not."""

    layers: int = parameter(4, {"zh": "块数", "en": "blocks"}, 2, 64)
    width: int = parameter(128, {"zh": "宽度", "en": "width"}, 16, 4096)
    rows_large: int = parameter(
        1024, {"zh": "大批的行数", "en": "rows of the large batch"}, 8, 65536
    )
    rows_small: int = parameter(8, {"zh": "小批的行数", "en": "rows of the small batch"}, 1, 65536)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=2, width=32, rows_large=256, rows_small=4), "full": Config()}


class Network(nn.Module):
    """``x + down(gelu(up(x)))``, ``layers`` times; ``(b, h)`` to the same."""

    def __init__(self, config: Config, *, checkpointed: bool = False) -> None:
        super().__init__()
        h = config.width
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h))
            for _ in range(config.layers)
        )
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        """All blocks, each of them checkpointed or none."""
        for block in self.blocks:
            x = x + (
                checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
                if self.checkpointed
                else block(x)
            )
        return x


# --- where the peak is ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peak:
    """The live peak of one step, and what it consisted of."""

    nbytes: int
    categories: dict[Category, int]

    def held(self, *categories: Category) -> int:
        """The bytes of some categories."""
        return sum(self.categories[c] for c in categories)

    def share(self, *categories: Category) -> float:
        """Their share of the peak."""
        return self.held(*categories) / self.nbytes


PARTS: dict[str, tuple[Category, ...]] = {
    "parameters": ("parameters", "inputs"),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations",),
    "transients": ("other",),
}
"""What is drawn of a peak, from the bottom up."""


def peaks(
    config: Config,
    rows: int,
    *,
    steps: int = 2,
    checkpointed: bool = False,
    fused: bool = False,
    set_to_none: bool = True,
) -> list[Peak]:
    """The peak of each training step."""
    torch.manual_seed(config.seed)
    model = Network(config, checkpointed=checkpointed).to(config.device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=not fused, fused=fused)
    x = torch.randn(rows, config.width, device=config.device)
    found = []
    # --8<-- [start:step-by-step]
    with LiveMemory(model=model, optimizer=optimizer, inputs=x) as live:
        for _ in range(steps):
            live.reset_peak()
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            found.append(Peak(live.peak, live.at_peak))
    # --8<-- [end:step-by-step]
    return found


def two_steps(config: Config, points: int = 80) -> list[tuple[int, dict[str, int]]]:
    """What is alive over the first two steps, event by event, of which the highest of neighbours stay.

    ``points`` a step, so that the peak of each is kept.
    """
    torch.manual_seed(config.seed)
    model = Network(config).to(config.device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(config.rows_large, config.width, device=config.device)
    kept: list[tuple[int, dict[str, int]]] = []
    with LiveMemory(model=model, optimizer=optimizer, inputs=x) as live:
        for _ in range(2):
            begun = len(live.timeline)
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            events = list(enumerate(live.timeline))[begun:]
            stride = -(-len(events) // points)
            for i in range(0, len(events), stride):
                number, held = max(events[i : i + stride], key=lambda event: sum(event[1]))
                by_category = dict(zip(CATEGORIES, held, strict=True))
                row = {part: sum(by_category[c] for c in each) for part, each in PARTS.items()}
                kept.append((number, row))
    return kept


# --- what grows ----------------------------------------------------------------------------------


class Square(torch.autograd.Function):
    """x² with its input kept as an attribute of ``ctx``, which ``save_for_backward`` would free."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """``x`` to its square."""
        ctx.x = x.clone()
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        """2x times the gradient."""
        out: Tensor = 2 * ctx.x * grads[0]
        return out


# --8<-- [start:leaks]
def validate(model: nn.Module, x: Tensor, total: Any) -> Any:
    """No backward, no ``no_grad``: the sum holds the graph of every step."""
    return total + model(x).square().mean()


def train(model: nn.Module, x: Tensor, total: Any) -> Any:
    """A backward frees what the graph saved; the sum holds its nodes and scalars."""
    loss = model(x).square().mean()
    loss.backward()
    model.zero_grad()
    return total + loss


# --8<-- [end:leaks]


def keep_graph(model: nn.Module, x: Tensor, total: Any) -> Any:  # noqa: ARG001 - a loop's arguments
    """One forward whose graph is kept, to compare with."""
    return model(x)


def train_stashing(model: nn.Module, x: Tensor, total: Any) -> Any:
    """A custom function's own attribute is not freed by the backward."""
    loss: Tensor = Square.apply(model(x)).mean()  # type: ignore[no-untyped-call]
    loss.backward()
    model.zero_grad()
    return total + loss


def train_detached(model: nn.Module, x: Tensor, total: Any) -> Any:
    """The fix: a Python number."""
    loss = model(x).square().mean()
    loss.backward()
    model.zero_grad()
    return total + loss.item()


Loop = Callable[[nn.Module, Tensor, Any], Any]
LOOPS: dict[str, Loop] = {
    "validation": validate,
    "stashed": train_stashing,
    "training": train,
    "item": train_detached,
}


def growth(config: Config, loop: Loop, steps: int = 6) -> list[int]:
    """Live bytes apart from the parameters after each step."""
    torch.manual_seed(config.seed)
    model = Network(config).to(config.device)
    x = torch.randn(config.rows_large, config.width, device=config.device)
    total: Any = 0.0
    found = []
    with LiveMemory() as live:
        for _ in range(steps):
            total = loop(model, x, total)
            found.append(live.current)
    return found


def nodes(total: Tensor) -> int:
    """Nodes of the graph that hangs on ``total``."""
    found = set()
    todo = [total.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return len(found)


def nodes_a_step(config: Config) -> int:
    """How many nodes a step adds, where ``total`` holds on to losses that are done with."""
    model = Network(config).to(config.device)
    x = torch.randn(config.rows_small, config.width, device=config.device)
    first = train(model, x, 0.0)
    before = nodes(first)
    return nodes(train(model, x, first)) - before


def held_by_exception(config: Config) -> tuple[int, int]:
    """Live bytes while an out-of-memory error is being handled, and once it is over."""
    model = Network(config).to(config.device)
    x = torch.randn(config.rows_large, config.width, device=config.device)

    # --8<-- [start:exception]
    def step() -> None:
        y = model(x)
        raise torch.OutOfMemoryError(f"at {tuple(y.shape)}")

    with LiveMemory() as live:
        try:
            step()
        except torch.OutOfMemoryError:
            within = live.current  # the traceback holds step's frame, and so y with its graph
        return within, live.current
    # --8<-- [end:exception]


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Peaks step by step and cure by cure, then leaks."""
    found = Findings(MEASURES, config)
    parameters = sum(p.numel() for p in Network(config).parameters())

    columns: dict[str, Peak] = {}  # that of step two, by batch and cure
    batches = {"large": config.rows_large, "small": config.rows_small}
    for i, (batch, rows) in enumerate(batches.items()):
        progress(0.3 * i, f"{batch} batch")
        first, second, third = peaks(config, rows, steps=3)
        columns[batch] = second
        found[f"second_step_adds_{batch}"] = (second.nbytes - first.nbytes) / parameters
        found[f"activations_share_{batch}"] = second.share("activations")
        found[f"states_share_{batch}"] = second.share("parameters", "gradients", "optimizer")
        for cure in ("checkpointed", "fused"):
            cured = peaks(config, rows, **{cure: True})[-1]
            columns[f"{batch}_{cure}"] = cured
            found[f"{cure}_{batch}"] = cured.nbytes / second.nbytes
        if batch == "large":
            kept = peaks(config, rows, set_to_none=False)[-1]
            found["third_step_adds"] = (third.nbytes - second.nbytes) / parameters
            found["kept_gradients_add"] = (kept.nbytes - second.nbytes) / parameters
    places = range(len(columns))
    bars = [
        Line(part, places, [peak.held(*categories) for peak in columns.values()])
        for part, categories in PARTS.items()
    ]
    found.draw("peaks", *bars, places=columns)
    events = two_steps(config)
    times = [number for number, _ in events]
    stack = ("parameters", "optimizer", "gradients", "activations", "transients")
    found.draw("steps", *(Line(part, times, [row[part] for _, row in events]) for part in stack))

    progress(0.6, "leaks")
    after = {name: growth(config, loop) for name, loop in LOOPS.items()}
    leaks = {name: held[-1] - held[-2] for name, held in after.items()}
    for name, leak in leaks.items():
        found[f"leak_{name}"] = leak
    (graph,) = growth(config, keep_graph, steps=1)
    found["leak_validation_over_graph"] = leaks["validation"] / graph
    found["nodes_a_step"] = nodes_a_step(config)
    lines = [Line(name, range(1, len(held) + 1), held) for name, held in after.items()]
    found.draw("leaks", *lines)

    within, left = held_by_exception(config)
    found["held_in_except"] = within / graph
    found["held_after_except"] = left
    progress(1.0, "done")
    return found.result()
