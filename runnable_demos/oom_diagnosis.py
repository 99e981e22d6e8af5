"""Memory ran out: what is it that is too much, and since when?

The question
    Why does the second step fail and not the first? Which cure helps, and which cannot? What grows
    from step to step? One number, the peak, answers none of these; the peak by category does.

The model
    A residual network of P fp32 parameters and Adam. When the backward begins, parameters, the
    optimizer's states and activations are live (4P + 8P + A bytes); at the optimizer's step parameters,
    states, gradients and scratch are (4P + 8P + 4P + 4P). The larger one is the peak. The 8P appear at
    the end of the first step.

The measurement
    Live bytes by category, step after step, for a batch whose activations decide and one where the
    optimizer does. Then the same with a cure for one or the other; then four loops that leak, and the
    retry after an exception.

The result
    Two peaks with different culprits, and each cure helps against its own alone. ``total += loss`` keeps
    a step's activations where no backward ran; where one did, it keeps the graph's empty nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.measure import Category, LiveMemory
from runnable_demos.metrics import (
    Axis,
    Figure,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    parameter,
)

TITLE: Text = {"zh": "OOM 诊断", "en": "Diagnosing OOM"}
QUESTION: Text = {
    "zh": "显存爆了：多的是什么，从哪一步开始，哪种办法有用？",
    "en": "Memory ran out: what is too much, since which step, and which cure helps?",
}


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

    def share(self, *categories: Category) -> float:
        """The share of some categories."""
        return sum(self.categories[c] for c in categories) / self.nbytes


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
    with LiveMemory(model=model, optimizer=optimizer, inputs=x) as live:
        for _ in range(steps):
            live.reset_peak()
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            found.append(Peak(live.peak, live.at_peak))
    return found


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


def validate(model: nn.Module, x: Tensor, total: Any) -> Any:
    """No backward, no ``no_grad``: the sum holds the graph of every step."""
    return total + model(x).square().mean()


def train(model: nn.Module, x: Tensor, total: Any) -> Any:
    """A backward frees what the graph saved; the sum holds its nodes and scalars."""
    loss = model(x).square().mean()
    loss.backward()
    model.zero_grad()
    return total + loss


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
    """The mend: a Python number."""
    loss = model(x).square().mean()
    loss.backward()
    model.zero_grad()
    return total + loss.item()


Loop = Callable[[nn.Module, Tensor, Any], Any]
LOOPS: dict[str, tuple[Text, Loop]] = {
    "validation": (
        {"zh": "验证：total += loss，没有 no_grad", "en": "validation: total += loss, no no_grad"},
        validate,
    ),
    "stashed": (
        {"zh": "训练：张量挂在 ctx 属性上", "en": "training: a tensor as an attribute of ctx"},
        train_stashing,
    ),
    "training": (
        {
            "zh": "训练：total += loss，在 backward 之后",
            "en": "training: total += loss after backward",
        },
        train,
    ),
    "item": (
        {"zh": "训练：total += loss.item()", "en": "training: total += loss.item()"},
        train_detached,
    ),
}


def growth(config: Config, loop: Loop, steps: int = 6) -> list[int]:
    """Live bytes beside the parameters after each step."""
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

    def step() -> None:
        y = model(x)
        raise torch.OutOfMemoryError(f"at {tuple(y.shape)}")

    with LiveMemory() as live:
        try:
            step()
        except torch.OutOfMemoryError:
            within = live.current  # the traceback holds step's frame, and so y with its graph
        return within, live.current


# --- the demo ------------------------------------------------------------------------------------

CURES: dict[str, tuple[Text, dict[str, bool]]] = {
    "checkpointed": ({"zh": "逐块检查点", "en": "each block checkpointed"}, {"checkpointed": True}),
    "fused": ({"zh": "融合优化器", "en": "fused optimizer"}, {"fused": True}),
}
BATCHES: dict[str, Text] = {
    "large": {"zh": "大批", "en": "large batch"},
    "small": {"zh": "小批", "en": "small batch"},
}


def run(config: Config, progress: Progress) -> Result:
    """Peaks step by step and cure by cure, then leaks."""
    rows = {"large": config.rows_large, "small": config.rows_small}
    plain = {batch: peaks(config, n, steps=3) for batch, n in rows.items()}
    progress(0.3, "cures")
    cured = {
        (batch, cure): peaks(config, n, **options)[-1]
        for batch, n in rows.items()
        for cure, (_, options) in CURES.items()
    }
    kept = peaks(config, config.rows_large, set_to_none=False)[-1]
    progress(0.6, "leaks")
    leaks = {name: growth(config, loop) for name, (_, loop) in LOOPS.items()}
    once = growth(config, keep_graph, steps=1)[0]
    within, after = held_by_exception(config)
    progress(1.0, "done")
    parameters = sum(p.numel() for p in Network(config).parameters())

    live = {
        "zh": "一步之内实时字节的峰值",
        "en": "live peak within a step",
    }
    by_category = {
        "zh": "第二步峰值时刻按类别归因的实时字节",
        "en": "live bytes at the peak of step two, by category",
    }
    after_step = {
        "zh": "每步之后参数以外的实时字节，最后两步之差",
        "en": "live bytes beside parameters after a step: difference of the last two",
    }
    metrics = [
        *(
            Metric(
                f"second_step_adds_{batch}",
                (plain[batch][1].nbytes - plain[batch][0].nbytes) / parameters,
                "B/param",
                "exact",
                {
                    "zh": f"{text['zh']}：第二步的峰值比第一步多出",
                    "en": f"{text['en']}: peak of step two above that of step one",
                },
                live,
            )
            for batch, text in BATCHES.items()
        ),
        Metric(
            "third_step_adds",
            (plain["large"][2].nbytes - plain["large"][1].nbytes) / parameters,
            "B/param",
            "exact",
            {
                "zh": "大批：第三步的峰值比第二步多出",
                "en": "large batch: peak of step three above that of step two",
            },
            live,
        ),
        Metric(
            "kept_gradients_add",
            (kept.nbytes - plain["large"][1].nbytes) / parameters,
            "B/param",
            "exact",
            {
                "zh": "大批：set_to_none=False 使峰值多出",
                "en": "large batch: what set_to_none=False adds to the peak",
            },
            live,
        ),
        *(
            Metric(
                f"{name}_share_{batch}",
                plain[batch][1].share(*categories),
                "",
                "exact",
                {
                    "zh": f"{BATCHES[batch]['zh']}的峰值里{zh}占",
                    "en": f"{en} at the peak, {BATCHES[batch]['en']}",
                },
                by_category,
            )
            for batch in BATCHES
            for name, zh, en, categories in (
                ("activations", "激活", "activations", ("activations",)),
                (
                    "states",
                    "参数、梯度与优化器状态",
                    "parameters, gradients and states",
                    ("parameters", "gradients", "optimizer"),
                ),
            )
        ),
        *(
            Metric(
                f"{cure}_{batch}",
                cured[batch, cure].nbytes / plain[batch][1].nbytes,
                "",
                "exact",
                {
                    "zh": f"{BATCHES[batch]['zh']}：{CURES[cure][0]['zh']}之后的峰值与之前之比",
                    "en": f"{BATCHES[batch]['en']}: peak with {CURES[cure][0]['en']} over that without",
                },
                live,
            )
            for batch in BATCHES
            for cure in CURES
        ),
        *(
            Metric(
                f"leak_{name}",
                leaks[name][-1] - leaks[name][-2],
                "B",
                "exact",
                {"zh": f"每步泄漏：{text['zh']}", "en": f"leaked a step: {text['en']}"},
                after_step,
            )
            for name, (text, _) in LOOPS.items()
        ),
        Metric(
            "nodes_a_step",
            nodes_a_step(config),
            "",
            "exact",
            {
                "zh": "训练：total += loss 每步留下的计算图节点数",
                "en": "training: graph nodes that total += loss leaves behind a step",
            },
            {
                "zh": "从 total.grad_fn 出发能走到的节点数，两步之差",
                "en": "nodes reached from total.grad_fn, difference of two steps",
            },
        ),
        Metric(
            "leak_validation_over_graph",
            (leaks["validation"][-1] - leaks["validation"][-2]) / once,
            "",
            "exact",
            {
                "zh": "验证循环每步泄漏的，是一步的图所持有的几倍",
                "en": "leak of the validation loop a step, over what one step's graph holds",
            },
            after_step,
        ),
        Metric(
            "held_in_except",
            within / once,
            "",
            "exact",
            {
                "zh": "处理异常期间仍占着的，是一步的图所持有的几倍",
                "en": "held while the exception is handled, over what one step's graph holds",
            },
            {"zh": "except 块内的实时字节", "en": "live bytes within the except block"},
        ),
        Metric(
            "held_after_except",
            after,
            "B",
            "exact",
            {"zh": "离开 except 之后仍占着的", "en": "held once the except block is left"},
            {"zh": "except 块之后的实时字节", "en": "live bytes after the except block"},
        ),
    ]
    return Result(tuple(metrics), figures(plain, cured, leaks))


PARTS: dict[str, tuple[Text, tuple[Category, ...]]] = {
    "parameters": ({"zh": "参数", "en": "parameters"}, ("parameters", "inputs")),
    "gradients": ({"zh": "梯度", "en": "gradients"}, ("gradients",)),
    "optimizer": ({"zh": "优化器状态", "en": "optimizer states"}, ("optimizer",)),
    "activations": ({"zh": "激活", "en": "activations"}, ("activations",)),
    "other": ({"zh": "临时量", "en": "transients"}, ("other",)),
}


def figures(
    plain: dict[str, list[Peak]],
    cured: dict[tuple[str, str], Peak],
    leaks: dict[str, list[int]],
) -> tuple[Figure, ...]:
    """Peaks by category before and after each cure, and live bytes step after step."""
    columns: list[tuple[Text, Peak]] = []
    for batch, text in BATCHES.items():
        columns.append((text, plain[batch][1]))
        columns += [
            (
                {"zh": f"{text['zh']}，{label['zh']}", "en": f"{text['en']}, {label['en']}"},
                cured[batch, cure],
            )
            for cure, (label, _) in CURES.items()
        ]
    places = tuple(float(i) for i in range(len(columns)))
    at_peak = Figure(
        "peaks",
        {"zh": "第二步的峰值由什么组成", "en": "What the peak of step two consists of"},
        Axis({"zh": "批与办法", "en": "batch and cure"}, categories=tuple(c[0] for c in columns)),
        Axis({"zh": "实时字节", "en": "live bytes"}, "B"),
        tuple(
            Series(
                label,
                places,
                tuple(float(sum(p.categories[c] for c in categories)) for _, p in columns),
                "bar",
            )
            for label, categories in PARTS.values()
        ),
    )
    steps = tuple(float(i + 1) for i in range(len(leaks["item"])))
    growing = Figure(
        "leaks",
        {"zh": "四个循环：每步之后还占着多少", "en": "Four loops: what is held after each step"},
        Axis({"zh": "步", "en": "step"}),
        Axis({"zh": "参数以外的字节", "en": "bytes beside parameters"}, "B"),
        tuple(
            Series(text, steps, tuple(float(n) for n in leaks[name]))
            for name, (text, _) in LOOPS.items()
        ),
    )
    return at_peak, growing
