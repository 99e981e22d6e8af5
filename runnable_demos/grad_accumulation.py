"""When does accumulating gradients over micro-batches equal one large batch, and when not?

The lesson is ``lessons/grad_accumulation.en.md`` (中文: ``lessons/grad_accumulation.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import LiveMemory, count_flops
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "梯度累积", "en": "Gradient accumulation"}
QUESTION: Text = {
    "zh": "把梯度累积 m 个微批，什么时候等于一个大批，什么时候不等于？",
    "en": "When does accumulating gradients over m micro-batches equal one large batch, and when not?",
}

LONG, SHORT = 4, 1  # tokens that count in a long and in a short sequence, as a ratio
SHOWN = 4  # micro-batches in the picture of a step

MEASURES = """
[[method]]
kind = "bounded"
how = [
  "fp64 下累积梯度与整批梯度之差的范数，除以整批梯度的范数",
  "norm of the difference to the whole batch's gradient over the norm of that, in fp64",
]
bound = 1e-12
reason = [
  "同样的项换次序相加，fp64 的舍入约 1e-16，乘以项数仍远小于 1e-12",
  "the same terms added in another order: fp64 rounds at 1e-16, times the number of terms",
]
[method.metrics]
equal_error = ["", "微批等大：相对误差", "equal micro-batches: relative error"]
token_mean_error = [
  "",
  "token 数不等，求和后除以总 token 数：相对误差",
  "unequal token counts, sum over all tokens' number: relative error",
]

[[method]]
kind = "sampled"
how = [
  "fp64 下累积梯度与整批梯度之差的范数，除以整批梯度的范数；{draws} 组权重与数据的均值",
  "norm of the difference to the whole batch's gradient over the norm of that, in fp64; mean over {draws} draws of weights and data",
]
[method.metrics]
mean_of_means_error = [
  "",
  "token 数不等，各微批先求平均：相对误差",
  "unequal token counts, mean of means: relative error",
]
batchnorm_error = ["", "有 BatchNorm：相对误差", "with BatchNorm: relative error"]
dropout_error = ["", "有 dropout，种子相同：相对误差", "with dropout, same seed: relative error"]

[[method]]
kind = "exact"
how = [
  "累积的损失对每个 token 的损失求导，两者之比",
  "ratio of the derivatives of the accumulated loss by a token's loss",
]
[method.metrics]
short_token_weight = [
  "",
  "短微批里一个 token 的权重是长微批里的几倍",
  "weight of a token in the short micro-batch over that in the long one",
]

[[method]]
kind = "exact"
how = ["读 num_batches_tracked 的增量", "increment of num_batches_tracked"]
[method.metrics]
batchnorm_updates = ["", "一步之内 BatchNorm 更新统计量的次数", "updates of BatchNorm's statistics in a step"]

[[method]]
kind = "exact"
how = ["滑动均值从 1 开始，输入全为 0，动量 0.1", "the mean starts at 1 and the input is 0; momentum 0.1"]
[method.metrics]
batchnorm_old_mean_left = [
  "",
  "一步之后，旧的滑动均值还剩多少",
  "share of the old running mean that is left after a step",
]

[[method]]
kind = "exact"
how = ["两次更新量的范数之比，取三位小数", "ratio of the norms of the two updates, three decimals"]
[method.metrics]
unscaled_sgd = ["", "忘了除以 m：sgd 首次更新放大的倍数", "without the division by m: first update of sgd, times"]
unscaled_adam = [
  "",
  "忘了除以 m：adam 首次更新放大的倍数",
  "without the division by m: first update of adam, times",
]

[[method]]
kind = "exact"
how = [".grad 最后的值", "value of .grad in the end"]
[method.metrics]
bf16_sum = ["", "bf16 梯度为 1，累加 {additions} 次的结果", "{additions} gradients of 1, added up in bf16"]
fp32_sum = ["", "fp32 梯度为 1，累加 {additions} 次的结果", "{additions} gradients of 1, added up in fp32"]

[[method]]
kind = "exact"
how = ["前向与反向的实时字节峰值，含参数", "live peak of forward and backward, parameters included"]
[method.metrics]
second_micro_batch_adds = ["B/param", "第二个微批使峰值多出", "what the second micro-batch adds to the peak"]
peak_m_over_two = [
  "",
  "{micro_batches} 个微批的峰值是两个微批的几倍",
  "peak of {micro_batches} micro-batches over that of two",
]
peak_large_batch = [
  "",
  "一个大批的峰值是 {micro_batches} 个微批的几倍",
  "peak of one large batch over that of {micro_batches} micro-batches",
]

[[method]]
kind = "exact"
how = ["矩阵乘的 FLOPs", "FLOPs of matrix products"]
[method.metrics]
flops_ratio = [
  "",
  "{micro_batches} 个微批的 FLOPs 是一个大批的几倍",
  "FLOPs of {micro_batches} micro-batches over those of one large batch",
]

[figure.peak]
title = ["峰值随有效批大小：一次算完，或累积", "Peak over the effective batch: at once, or accumulated"]
x = {label = ["每步的行数", "rows a step"], scale = "log2"}
y = {label = ["峰值", "peak"], unit = "B"}
[figure.peak.series]
at_once = ["measured", "一个大批", "one large batch"]
accumulated = [
  "measured",
  "每 {rows} 行一个微批",
  "micro-batches of {rows} rows",
]

[figure.lifetimes]
title = [
  "一步之内谁在何时存活：{shown} 个微批一次算完，或逐个累积",
  "What is alive when in a step: {shown} micro-batches at once, or accumulated",
]
x = {label = ["已完成的计算量 / 一个微批的前向", "work done / one micro-batch's forward"]}
y = {label = ["微批", "micro-batch"]}
[figure.lifetimes.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
activations = ["bar", "激活，等反向来用", "activations, kept for the backward"]
gradients = ["bar", ".grad，留到更新", ".grad, kept until the update"]
[figure.lifetimes.places]
at_once = ["一个大批", "one batch"]
accumulated = ["逐个累积", "accumulated"]
grad = [".grad", ".grad"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A two-layer network of one width; micro-batches of ``rows`` rows."""

    micro_batches: int = parameter(8, {"zh": "微批数 m", "en": "micro-batches m"}, 2, 64)
    rows: int = parameter(64, {"zh": "每个微批的行数", "en": "rows of a micro-batch"}, 2, 4096)
    width: int = parameter(64, {"zh": "宽度", "en": "width"}, 8, 4096)
    draws: int = parameter(
        16,
        {"zh": "随机误差取平均的次数", "en": "draws that random errors are averaged over"},
        2,
        256,
    )
    additions: int = parameter(
        512, {"zh": "用 bf16 累加的次数", "en": "gradients that are added up in bf16"}, 2, 8192
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(micro_batches=4, rows=16, width=16, draws=4), "full": Config()}

Loss = Callable[[nn.Module, Tensor], Tensor]


def network(width: int, *, norm: bool = False, dropout: float = 0.0) -> nn.Sequential:
    """Linear, perhaps BatchNorm, GELU, dropout, Linear, dropout."""
    return nn.Sequential(
        nn.Linear(width, width),
        nn.BatchNorm1d(width) if norm else nn.Identity(),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.Dropout(dropout),
    )


# --8<-- [start:accumulate]
def gradients(model: nn.Module, batches: Sequence[Tensor], loss: Loss, scale: float) -> Tensor:
    """All gradients in one vector, after a backward for each of ``batches``."""
    model.zero_grad()
    for batch in batches:
        (loss(model, batch) * scale).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


# --8<-- [end:accumulate]


# --- equal and unequal ---------------------------------------------------------------------------


def mean_square(model: nn.Module, batch: Tensor) -> Tensor:
    """A mean over all elements of the batch."""
    loss: Tensor = (model(batch) - batch).square().mean()
    return loss


def compare(config: Config, model: nn.Module, seed: int) -> float:
    """Relative error of the accumulated gradient against the whole batch's."""
    model = model.double().to(config.device)
    generator = torch.Generator().manual_seed(config.seed)
    m = config.micro_batches
    whole = torch.randn(m * config.rows, config.width, generator=generator, dtype=torch.float64)
    whole = whole.to(config.device)
    # --8<-- [start:compare]
    torch.manual_seed(seed)  # the same for both, as far as dropout is concerned
    expected = gradients(model, [whole], mean_square, 1.0)
    torch.manual_seed(seed)
    return relative(gradients(model, whole.chunk(m), mean_square, 1 / m), expected)
    # --8<-- [end:compare]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Mean of means against the mean over all tokens, with sequences of unequal length."""

    error: float
    fixed: float
    weight: float


def tokens(config: Config) -> Tokens:
    """Next-token losses in two micro-batches, of which one has a quarter of the other's tokens."""
    torch.manual_seed(config.seed)
    vocabulary, device = config.width, config.device
    model = nn.Sequential(
        nn.Embedding(vocabulary, config.width), nn.Linear(config.width, vocabulary)
    )
    model = model.double().to(device)
    x = torch.randint(vocabulary, (2, LONG * config.rows), device=device)
    y = torch.randint(vocabulary, (2, LONG * config.rows), device=device)
    y[1, SHORT * config.rows :] = -100  # padding, which cross_entropy leaves out
    count = int((y >= 0).sum())

    def loss(reduction: str) -> Loss:
        def of(model: nn.Module, row: Tensor) -> Tensor:
            logits = model(x[row])
            return F.cross_entropy(logits.flatten(0, 1), y[row].flatten(), reduction=reduction)

        return of

    rows = [torch.tensor([0], device=device), torch.tensor([1], device=device)]
    both = [torch.tensor([0, 1], device=device)]
    # --8<-- [start:token-weights]
    expected = gradients(model, both, loss("mean"), 1.0)
    # What one token's loss counts in the sum: its derivative by that loss.
    each = torch.ones(2, LONG * config.rows, dtype=torch.float64, requires_grad=True)
    kept = (y >= 0).cpu()
    (sum(each[i][kept[i]].mean() for i in range(2)) / 2).backward()  # type: ignore[union-attr]
    assert each.grad is not None
    return Tokens(
        error=relative(gradients(model, rows, loss("mean"), 1 / 2), expected),
        fixed=relative(gradients(model, rows, loss("sum"), 1 / count), expected),
        weight=float(each.grad[1, 0] / each.grad[0, 0]),
    )
    # --8<-- [end:token-weights]


def forgotten(config: Config) -> tuple[int, float]:
    """BatchNorm's updates in one step of m micro-batches, and what is left of its old mean."""
    norm = nn.BatchNorm1d(1, dtype=torch.float64)
    assert norm.running_mean is not None and norm.num_batches_tracked is not None
    norm.running_mean.fill_(1.0)
    for _ in range(config.micro_batches):
        norm(torch.zeros(2, 1, dtype=torch.float64))
    return int(norm.num_batches_tracked), float(norm.running_mean)


def unscaled(config: Config) -> dict[str, float]:
    """First update without the division by m over that with it, for two optimizers."""
    m = config.micro_batches
    ratios = {}
    for name, optimizer in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)):
        moved = []
        for scale in (1.0, 1 / m):
            torch.manual_seed(config.seed)
            model = network(config.width).double().to(config.device)
            whole = torch.randn(
                m * config.rows, config.width, dtype=torch.float64, device=config.device
            )
            before = nn.utils.parameters_to_vector(model.parameters()).detach()
            gradients(model, whole.chunk(m), mean_square, scale)
            optimizer(model.parameters(), lr=1e-3).step()
            after = nn.utils.parameters_to_vector(model.parameters()).detach()
            moved.append(float((after - before).norm()))
        ratios[name] = moved[0] / moved[1]
    return ratios


def added_in_bf16(config: Config, dtype: torch.dtype) -> float:
    """A gradient of 1, accumulated: what ``.grad`` holds in the end."""
    weight = nn.Parameter(torch.zeros(1, dtype=dtype, device=config.device))
    for _ in range(config.additions):
        weight.sum().backward()
    assert weight.grad is not None
    return float(weight.grad)


# --- memory and arithmetic -----------------------------------------------------------------------


def step(model: nn.Module, batches: Sequence[Tensor]) -> None:
    """Forward and backward of each micro-batch; no optimizer, whose states are another question."""
    for batch in batches:
        (mean_square(model, batch) / len(batches)).backward()


def peak(config: Config, m: int, rows: int) -> int:
    """Live peak of a step with m micro-batches of ``rows`` rows, parameters included."""
    model = network(config.width).to(config.device)
    batches = [torch.randn(rows, config.width, device=config.device) for _ in range(m)]
    with LiveMemory(model=model) as live:
        step(model, batches)
    return live.peak


def flops(config: Config, m: int, rows: int) -> int:
    """FLOPs of the same step."""
    model = network(config.width).to(config.device)
    batches = [torch.randn(rows, config.width, device=config.device) for _ in range(m)]
    return count_flops(lambda: step(model, batches))


# --- a picture of one step -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Life:
    """Something is alive, or under way, from ``start`` until ``end``, both in FLOPs done by then."""

    start: int
    end: int


class Step(TorchDispatchMode):
    """Follows what a step holds; the FLOPs of its matrix products are its clock."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clock = 0
        self.activations: list[Life] = []
        """Each matrix of a forward, as soon as it is gone."""

    def follow(self, x: Tensor, start: int) -> None:
        """Note when the storage of ``x``, which was made at ``start``, dies."""
        end = lambda: self.activations.append(Life(start, self.clock))  # noqa: E731 - one use
        when_freed(x, end)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; a matrix that a forward makes is an activation."""
        start, kwargs = self.clock, kwargs or {}
        out = func(*args, **kwargs)
        if func._overloadpacket in flop_registry:
            self.clock += flop_registry[func._overloadpacket](*args, **kwargs, out_val=out)
        if torch.is_grad_enabled() and isinstance(out, Tensor) and out.dim() == 2:
            given = {a.data_ptr() for a in args if isinstance(a, Tensor)}
            if out.data_ptr() not in given:  # no view
                self.follow(out, start)
        return out


@dataclass(frozen=True, slots=True)
class Trace:
    """A step: its passes in order, the activations of each micro-batch, and ``.grad``."""

    passes: tuple[tuple[Literal["forward", "backward"], Life], ...]
    activations: tuple[Life, ...]
    gradients: Life


def trace(config: Config, m: int, rows: int) -> Trace:
    """Forward and backward of m micro-batches of ``rows`` rows, watched."""
    model = network(config.width).to(config.device)
    batches = [torch.randn(rows, config.width, device=config.device) for _ in range(m)]
    passes: list[tuple[Literal["forward", "backward"], Life]] = []
    activations: list[Life] = []
    arrived: list[int] = []
    with Step() as watched:
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda _: arrived.append(watched.clock))
        for batch in batches:
            begin, watched.activations = watched.clock, []
            loss = mean_square(model, batch) / m
            turn = watched.clock
            loss.backward()
            del loss
            passes += [("forward", Life(begin, turn)), ("backward", Life(turn, watched.clock))]
            lives = watched.activations
            first, last = min(life.start for life in lives), max(life.end for life in lives)
            activations.append(Life(first, last))
    return Trace(tuple(passes), tuple(activations), Life(min(arrived), watched.clock))


def draw_lifetimes(config: Config, found: Mechanisms) -> None:
    """Both ways over the same work: a row of passes, a row for each micro-batch, and ``.grad``."""
    steps = (trace(config, 1, SHOWN * config.rows), trace(config, SHOWN, config.rows))
    unit = steps[1].passes[0][1].end
    parts = []
    for first, step in zip((0, SHOWN + 2), steps, strict=True):
        counts: dict[str, int] = {}
        for kind, life in step.passes:
            counts[kind] = counts.get(kind, 0) + 1
            label = f"{counts[kind]}" if len(step.passes) > 2 else f"1–{SHOWN}"
            parts.append(Span(first, kind, life.start / unit, life.end / unit, label))
        for row in range(SHOWN):  # one large batch holds the rows of all
            life = step.activations[row % len(step.activations)]
            parts.append(Span(first + 1 + row, "activations", life.start / unit, life.end / unit))
        life = step.gradients
        parts.append(Span(first + 1 + SHOWN, "gradients", life.start / unit, life.end / unit))
    each = range(1, SHOWN + 1)
    found.lanes("lifetimes", parts, rows=["at_once", *each, "grad", "accumulated", *each, "grad"])


def over_draws(config: Config, measure: Callable[[Config], float]) -> list[float]:
    """What ``measure`` finds with other weights and data, seed after seed."""
    found = []
    for i in range(config.draws):
        torch.manual_seed(config.seed + i)
        found.append(measure(replace(config, seed=config.seed + i)))
    return found


def run(config: Config, progress: Progress) -> Result:
    """Compare gradients, then memory and FLOPs over the number of micro-batches."""
    found = Mechanisms(MEASURES, config, shown=SHOWN)
    m, rows, width = config.micro_batches, config.rows, config.width
    torch.manual_seed(config.seed)
    progress(0.0, "gradients")
    found["equal_error"] = compare(config, network(width), config.seed)
    norm = over_draws(config, lambda c: compare(c, network(width, norm=True), c.seed))
    found.sample("batchnorm_error", norm)
    dropout = over_draws(config, lambda c: compare(c, network(width, dropout=0.1), c.seed))
    found.sample("dropout_error", dropout)
    uneven = tokens(config)
    found["token_mean_error"] = uneven.fixed
    found["short_token_weight"] = uneven.weight
    found.sample("mean_of_means_error", over_draws(config, lambda c: tokens(c).error))
    updates, left = forgotten(config)
    found["batchnorm_updates"] = updates
    found["batchnorm_old_mean_left"] = round(left, 6)
    for name, ratio in unscaled(config).items():
        found[f"unscaled_{name}"] = round(ratio, 3)
    found["bf16_sum"] = added_in_bf16(config, torch.bfloat16)
    found["fp32_sum"] = added_in_bf16(config, torch.float32)

    progress(0.5, "memory")
    counts = [1, 2, m // 2, m]
    accumulated = {k: peak(config, k, rows) for k in counts}
    at_once = {k: peak(config, 1, k * rows) for k in counts}
    parameters = sum(p.numel() for p in network(width).parameters())
    found["second_micro_batch_adds"] = (accumulated[2] - accumulated[1]) / parameters
    found["peak_m_over_two"] = accumulated[m] / accumulated[2]
    found["peak_large_batch"] = at_once[m] / accumulated[m]
    x = [k * rows for k in counts]
    found.draw(
        "peak",
        Line("at_once", x, [at_once[k] for k in counts]),
        Line("accumulated", x, [accumulated[k] for k in counts]),
    )

    draw_lifetimes(config, found)

    progress(0.9, "FLOPs")
    found["flops_ratio"] = flops(config, m, rows) / flops(config, 1, m * rows)
    progress(1.0, "done")
    return found.result()
