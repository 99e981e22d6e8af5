"""Which updates does a bf16 weight lose, and what keeps them?

The lesson is ``lessons/master_weights.en.md`` (中文: ``lessons/master_weights.zh.md``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor, nn

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "主权重", "en": "Master weights"}
QUESTION: Text = {
    "zh": "bf16 权重会丢掉哪些更新，用什么接住它们？",
    "en": "Which updates does a bf16 weight lose, and what keeps them?",
}

MEASURES = """
[[method]]
kind = "computed"
how = ["由公式 1 + nu 算出", "the formula 1 + nu"]
[method.metrics]
true_sum = ["", "不舍入时的结果", "the result without rounding"]

[[method]]
kind = "exact"
how = ["从 1 开始，逐次加同一个更新量", "from 1 on, the same update added again and again"]
[method.metrics]
bf16_after = ["", "bf16 权重的结果", "result of a bf16 weight"]
master_after = ["", "fp32 主权重的结果，舍入到 bf16", "result of an fp32 master, rounded to bf16"]
kahan_after = ["", "bf16 上 Kahan 补偿的结果", "result of Kahan's compensation in bf16"]

[[method]]
kind = "sampled"
how = ["从 1 开始，逐次加同一个更新量", "from 1 on, the same update added again and again"]
[method.metrics]
stochastic_mean = ["", "随机舍入的结果，各权重的均值", "result of stochastic rounding, mean over the weights"]

[[method]]
kind = "exact"
how = ["逐次减半", "halved until lost"]
[method.metrics]
smallest_kept_at_1 = ["", "w = 1 时能留下的最小 2 的幂", "smallest power of two kept at w = 1"]
smallest_kept_below_2 = ["", "w 紧邻 2 之下时能留下的最小 2 的幂", "smallest power of two kept just below 2"]
kahan_smallest_kept_at_1 = [
  "",
  "w = 1 时，Kahan 补偿攒得起来的最小 2 的幂",
  "smallest power of two that Kahan's carry adds up at w = 1",
]

[[method]]
kind = "exact"
how = [
  "2^-10 到 1 之间每个 bf16 数各走一步 PyTorch 的 Adam，梯度为 1",
  "one step of PyTorch's Adam, gradient 1, on every bf16 number from 2^-10 to 1",
]
[method.metrics]
moved_at_lr_1e2 = ["", "学习率 0.01：动了的权重比例", "learning rate 0.01: share of weights that move"]
moved_at_lr_1e3 = ["", "学习率 0.001：动了的权重比例", "learning rate 0.001: share of weights that move"]
moved_at_lr_1e4 = ["", "学习率 0.0001：动了的权重比例", "learning rate 0.0001: share of weights that move"]
moved_at_lr_1e5 = ["", "学习率 1e-05：动了的权重比例", "learning rate 1e-05: share of weights that move"]
moved_with_master_at_lr_1e5 = [
  "",
  "学习率 1e-05：动了的 fp32 主权重比例",
  "learning rate 1e-05: share of fp32 masters that move",
]

[[method]]
kind = "exact"
how = [
  "标准差 0.02 的正态分布的 4096 个分位点，舍入到 bf16，各走一步 PyTorch 的 Adam，梯度为 1",
  "one step of PyTorch's Adam, gradient 1, on 4096 quantiles of a normal distribution of standard deviation 0.02, rounded to bf16",
]
[method.metrics]
initial_moved_at_lr_1e3 = [
  "",
  "标准差 0.02，学习率 0.001：动了的 bf16 权重比例",
  "standard deviation 0.02, learning rate 0.001: share of bf16 weights that move",
]
initial_moved_at_lr_1e4 = [
  "",
  "标准差 0.02，学习率 0.0001：动了的 bf16 权重比例",
  "standard deviation 0.02, learning rate 0.0001: share of bf16 weights that move",
]
initial_moved_at_lr_1e5 = [
  "",
  "标准差 0.02，学习率 1e-05：动了的 bf16 权重比例",
  "standard deviation 0.02, learning rate 1e-05: share of bf16 weights that move",
]

[[method]]
kind = "exact"
how = [
  "torch.optim.AdamW 自己的 exp_avg_sq：梯度为 1，走 1000 步",
  "exp_avg_sq of torch.optim.AdamW itself: 1000 steps with gradients of 1",
]
[method.metrics]
bf16_moment_loop_rises_to = [
  "",
  "bf16 的二阶矩升到（for 循环，β₂ = 0.999）",
  "a bf16 second moment rises to (for loop, β₂ = 0.999)",
]
bf16_moment_foreach_rises_to = [
  "",
  "bf16 的二阶矩升到（CPU 上的 foreach，β₂ = 0.999）",
  "a bf16 second moment rises to (foreach on a CPU, β₂ = 0.999)",
]
bf16_moment_fused_rises_to = [
  "",
  "bf16 的二阶矩升到（融合，β₂ = 0.999）",
  "a bf16 second moment rises to (fused, β₂ = 0.999)",
]

[[method]]
kind = "exact"
how = [
  "torch.optim.AdamW 自己的 exp_avg_sq：梯度为 1 的 1000 步之后，再走梯度为 1/8 的 1000 步，精确的 v 趋近 1/64",
  "exp_avg_sq of torch.optim.AdamW itself: after 1000 steps with gradients of 1, 1000 more with 1/8, under which an exact v tends to 1/64",
]
[method.metrics]
bf16_moment_loop_falls_to_at_999 = [
  "",
  "bf16 的二阶矩降到（for 循环，β₂ = 0.999）",
  "a bf16 second moment falls to (for loop, β₂ = 0.999)",
]
bf16_moment_loop_falls_to_at_99 = [
  "",
  "bf16 的二阶矩降到（for 循环，β₂ = 0.99）",
  "a bf16 second moment falls to (for loop, β₂ = 0.99)",
]
bf16_moment_loop_falls_to_at_95 = [
  "",
  "bf16 的二阶矩降到（for 循环，β₂ = 0.95）",
  "a bf16 second moment falls to (for loop, β₂ = 0.95)",
]
bf16_moment_foreach_falls_to_at_999 = [
  "",
  "bf16 的二阶矩降到（CPU 上的 foreach，β₂ = 0.999）",
  "a bf16 second moment falls to (foreach on a CPU, β₂ = 0.999)",
]
bf16_moment_foreach_falls_to_at_99 = [
  "",
  "bf16 的二阶矩降到（CPU 上的 foreach，β₂ = 0.99）",
  "a bf16 second moment falls to (foreach on a CPU, β₂ = 0.99)",
]
bf16_moment_foreach_falls_to_at_95 = [
  "",
  "bf16 的二阶矩降到（CPU 上的 foreach，β₂ = 0.95）",
  "a bf16 second moment falls to (foreach on a CPU, β₂ = 0.95)",
]
bf16_moment_fused_falls_to_at_999 = [
  "",
  "bf16 的二阶矩降到（融合，β₂ = 0.999）",
  "a bf16 second moment falls to (fused, β₂ = 0.999)",
]
bf16_moment_fused_falls_to_at_99 = [
  "",
  "bf16 的二阶矩降到（融合，β₂ = 0.99）",
  "a bf16 second moment falls to (fused, β₂ = 0.99)",
]
bf16_moment_fused_falls_to_at_95 = [
  "",
  "bf16 的二阶矩降到（融合，β₂ = 0.95）",
  "a bf16 second moment falls to (fused, β₂ = 0.95)",
]

[[method]]
kind = "bounded"
how = [
  "torch.optim.AdamW 自己的 exp_avg_sq：梯度为 1，走 1000 步",
  "exp_avg_sq of torch.optim.AdamW itself: 1000 steps with gradients of 1",
]
bound = 1e-3
reason = [
  "每步至多舍入两次，每次至多 2^-25，一千步累积不超过 6e-5",
  "a step rounds twice, each by at most 2^-25, a thousand by less than 6e-5",
]
[method.metrics]
fp32_moment_error = [
  "",
  "fp32 的二阶矩与闭式之差，三种实现中最大者",
  "an fp32 second moment, off its closed form by; the worst of three ways",
]

[[method]]
kind = "exact"
how = ["存储的字节除以个数", "bytes of its storage over its elements"]
[method.metrics]
master_bytes_per_param = ["B/param", "主权重多占", "a master copy adds"]
kahan_bytes_per_param = ["B/param", "Kahan 的补偿项多占", "Kahan's carry adds"]

[figure.paths]
title = ["每步加 2^-{exponent}：bf16 的权重一步也没走", "Adding 2^-{exponent} a step: the bf16 weight never moves"]
x = {label = ["步数", "steps"]}
y = {label = ["权重", "weight"]}
[figure.paths.series]
bf16 = ["measured", "bf16 权重", "bf16 weight"]
master = ["measured", "fp32 主权重", "fp32 master"]
kahan = ["measured", "bf16 + Kahan", "bf16 with Kahan"]
theory = ["theory", "理论 1 + nu", "theory 1 + nu"]

[figure.moved]
title = [
  "一步 Adam 能推动多少 bf16 权重（权重均匀分布在 2^-10 到 1 的十个 2 倍区间）",
  "How many bf16 weights one Adam step moves (weights of ten binades, 2^-10 to 1)",
]
x = {label = ["学习率", "learning rate"], scale = "log10"}
y = {label = ["动了的权重比例", "share of weights that move"]}
[figure.moved.series]
bf16 = ["measured", "bf16 权重", "bf16 weights"]
master = ["measured", "fp32 主权重", "fp32 masters"]

[figure.remainders]
title = [
  "从 1 开始每步加 2^-{exponent}，以间隔 2^-7 为单位：前向看到的权重，和还没进权重的零头",
  "From 1 on, 2^-{exponent} added a step, in gaps of 2^-7: the weight that the forward sees, and what has not reached it",
]
x = {label = ["第几次更新", "update"]}
y = {label = ["做法", "remedy"]}
[figure.remainders.series]
weight = ["bar", "bf16 权重比 1 多几个间隔", "gaps by which the bf16 weight exceeds 1"]
kept = ["bar", "留着的零头", "remainder that is kept"]
lost = ["bar", "丢掉的更新之和", "sum of the updates lost"]
[figure.remainders.places]
plain = ["纯 bf16", "bf16 only"]
plain_rest = ["丢掉", "lost"]
master = ["主权重", "master"]
master_rest = ["零头", "remainder"]
kahan = ["Kahan", "Kahan"]
kahan_rest = ["补偿 −c", "carry −c"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The update is 2^-exponent, repeated ``steps`` times."""

    steps: int = parameter(1000, {"zh": "更新次数", "en": "updates"}, 10, 100_000)
    exponent: int = parameter(9, {"zh": "更新量 2^-k 的 k", "en": "k of the update 2^-k"}, 8, 16)
    copies: int = parameter(
        16384, {"zh": "随机舍入的权重个数", "en": "weights rounded stochastically"}, 64, 2**20
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(steps=256, copies=4096), "full": Config()}

BF16 = torch.bfloat16


# --- one weight, many equal updates --------------------------------------------------------------


def plain(w: Tensor, u: float, steps: int) -> Tensor:
    """Add ``u`` to bf16 weights, again and again."""
    w = w.to(BF16)
    for _ in range(steps):
        w = w + u
    return w


def with_master(w: Tensor, u: float, steps: int) -> Tensor:
    """Add ``u`` to an fp32 master; what the forward sees is its rounding."""
    master = w.float()
    for _ in range(steps):
        master = master + u
    return master.to(BF16)


def with_kahan(w: Tensor, u: float, steps: int) -> Tensor:
    """Carry what each rounding lost in a second bf16 number, ``c``."""
    w = w.to(BF16)
    c = torch.zeros_like(w)
    for _ in range(steps):
        w, c = kahan_step(w, c, u)
    return w


# --8<-- [start:kahan]
def kahan_step(w: Tensor, c: Tensor, u: float) -> tuple[Tensor, Tensor]:
    """The next weight, and by how much it overshot what was asked of it."""
    y = u - c
    t = w + y
    return t, (t - w) - y


# --8<-- [end:kahan]


# --8<-- [start:stochastic]
def stochastic(w: Tensor, u: float, steps: int, generator: torch.Generator) -> Tensor:
    """Round up with the probability of the remainder: add 16 random bits and cut the lower half."""
    w = w.to(BF16)
    for _ in range(steps):
        exact = (w.float() + u).view(torch.int32)
        noise = torch.randint(0, 2**16, w.shape, generator=generator, dtype=torch.int32)
        w = ((exact + noise.to(w.device)) & -(2**16)).view(torch.float32).to(BF16)
    return w


# --8<-- [end:stochastic]


@dataclass(frozen=True, slots=True)
class State:
    """After an update: the bf16 weight that the forward sees, and what has not reached it."""

    weight: Fraction
    rest: Fraction


def follow_updates(u: float, steps: int, device: str) -> dict[str, list[State]]:
    """The states of a weight of 1 after each update, by remedy."""
    master = torch.ones((), device=device)
    plain_w, kahan_w = master.to(BF16), master.to(BF16)
    c = torch.zeros_like(kahan_w)
    states: dict[str, list[State]] = {"plain": [], "master": [], "kahan": []}

    def note(name: str, weight: Tensor, rest: Fraction) -> None:
        states[name].append(State(Fraction(float(weight)), rest))

    for n in range(1, steps + 1):
        plain_w = plain_w + u
        note("plain", plain_w, 1 + n * Fraction(u) - Fraction(float(plain_w)))
        master = master + u
        seen = master.to(BF16)
        note("master", seen, Fraction(float(master)) - Fraction(float(seen)))
        kahan_w, c = kahan_step(kahan_w, c, u)
        note("kahan", kahan_w, -Fraction(float(c)))
    return states


def smallest_kept(w: float, device: str) -> float:
    """The smallest power of two that changes the bf16 number ``w`` when added."""
    weight = torch.tensor(w, dtype=BF16, device=device)
    u = 1.0
    while weight + u / 2 != weight:
        u /= 2
    return u


def kahan_smallest_kept(w: float, device: str) -> float:
    """The smallest power of two that moves the bf16 number ``w`` when added until it sums to two gaps."""
    weight = torch.tensor(w, dtype=BF16, device=device)
    u = float(GAP)
    while with_kahan(weight, u / 2, round(4 * float(GAP) / u)) != weight:
        u /= 2
    return u


# --- one step of Adam on many weights ------------------------------------------------------------

BINADES = range(-10, 0)


def every_weight(device: str) -> Tensor:
    """Every positive bf16 number from 2^-10 to 1."""
    fractions = 1 + torch.arange(128, device=device) / 128
    return torch.cat([fractions * 2.0**e for e in BINADES]).to(BF16)


def moved_share(lr: float, weights: Tensor) -> float:
    """The share of those weights that the first step of PyTorch's Adam changes."""
    # --8<-- [start:first-step]
    weight = nn.Parameter(weights)
    before = weight.detach().clone()
    optimizer = torch.optim.Adam([weight], lr=lr, foreach=False)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return float((weight.detach() != before).double().mean())
    # --8<-- [end:first-step]


def moved_share_with_master(lr: float, device: str) -> float:
    """The same where the step is taken on fp32 masters: the share of masters that move."""
    master = nn.Parameter(every_weight(device).float())
    before = master.detach().clone()
    optimizer = torch.optim.Adam([master], lr=lr, foreach=False)
    master.grad = torch.ones_like(master)
    optimizer.step()
    return float((master.detach() != before).double().mean())


DEVIATION = 0.02
QUANTILES = 4096


def initial_weights(device: str) -> Tensor:
    """Quantiles of a normal distribution, as weights are when training begins, in bf16."""
    shares = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
    weights: Tensor = DEVIATION * torch.special.ndtri(shares)
    return weights.to(device, BF16)


WAYS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
"""The implementations of ``torch.optim.AdamW``; unless told, it takes the loop on a CPU, foreach on CUDA."""
BETAS = {"999": 0.999, "99": 0.99, "95": 0.95}
MOMENT_STEPS = 1000
LATER_GRADIENT = 1 / 8


@dataclass(frozen=True, slots=True)
class Moment:
    """AdamW's v after 1000 gradients of 1, and after 1000 more of 1/8."""

    risen: float
    fallen: float


def moments(way: str, dtype: torch.dtype, device: str) -> dict[str, Moment]:
    """The second moments that PyTorch's AdamW keeps for weights of ``dtype``, by β₂ (``BETAS``)."""
    weights = {name: nn.Parameter(torch.ones(64, dtype=dtype, device=device)) for name in BETAS}
    groups = [{"params": [w], "betas": (0.9, BETAS[name])} for name, w in weights.items()]
    optimizer = torch.optim.AdamW(groups, **WAYS[way])  # type: ignore[arg-type]

    # --8<-- [start:moments]
    def after(gradient: float) -> dict[str, float]:
        for w in weights.values():
            w.grad = torch.full_like(w, gradient)
        for _ in range(MOMENT_STEPS):
            optimizer.step()
        return {n: float(optimizer.state[w]["exp_avg_sq"].max()) for n, w in weights.items()}

    # --8<-- [end:moments]

    risen, fallen = after(1.0), after(LATER_GRADIENT)
    return {name: Moment(risen[name], fallen[name]) for name in BETAS}


# --- the run -------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Try each remedy, then Adam on every weight."""
    found = Mechanisms(MEASURES, config)
    measure_one_weight(config, found)
    progress(0.6, "Adam")
    measure_adam_step(config, found)
    progress(0.7, "AdamW's second moment")
    measure_moments(config, found)
    weights = torch.ones(config.copies, dtype=BF16)
    found["master_bytes_per_param"] = storage_bytes(weights.float()) / config.copies
    found["kahan_bytes_per_param"] = storage_bytes(torch.zeros_like(weights)) / config.copies
    progress(1.0, "")
    return found.result()


def measure_one_weight(config: Config, found: Mechanisms) -> None:
    """Equal updates of a weight of 1, by remedy, and the smallest update that is kept."""
    u, steps = 2.0**-config.exponent, config.steps
    one = torch.ones((), device=config.device)
    found["true_sum"] = truth = 1 + steps * u
    found["bf16_after"] = float(plain(one, u, steps))
    found["master_after"] = float(with_master(one, u, steps))
    found["kahan_after"] = float(with_kahan(one, u, steps))
    generator = torch.Generator().manual_seed(config.seed)
    rounded = stochastic(torch.ones(config.copies, device=config.device), u, steps, generator)
    found.sample("stochastic_mean", rounded.double().tolist(), closed_form=truth)
    found["smallest_kept_at_1"] = smallest_kept(1.0, config.device)
    found["smallest_kept_below_2"] = smallest_kept(1.9921875, config.device)
    found["kahan_smallest_kept_at_1"] = kahan_smallest_kept(1.0, config.device)

    ticks = [steps * i // 10 for i in range(11)]
    found.draw(
        "paths",
        Line("bf16", ticks, [float(plain(one, u, n)) for n in ticks]),
        Line("master", ticks, [float(with_master(one, u, n)) for n in ticks]),
        Line("kahan", ticks, [float(with_kahan(one, u, n)) for n in ticks]),
        Line("theory", ticks, [1 + n * u for n in ticks]),
    )

    draw_remainders(follow_updates(u, min(steps, SHOWN), config.device), found)


SHOWN = 8
GAP = Fraction(1, 2**7)
QUARTERS = {Fraction(1, 4): "¼", Fraction(1, 2): "½", Fraction(3, 4): "¾"}


def in_gaps(x: Fraction) -> str:
    """``x`` in gaps, as a label: −½, 0, 1¼."""
    whole, part = divmod(abs(x / GAP), 1)
    digits = QUARTERS.get(part, f"+{part}" if part else "")
    return ("−" if x < 0 else "") + (str(whole) if whole or not digits else "") + digits


def runs(labels: Iterable[str], row: int, kind: str) -> list[Span]:
    """A span for each run of equal labels."""
    spans, start = [], 0
    for label, run in itertools.groupby(labels):
        end = start + len(list(run))
        spans.append(Span(row, kind, start, end, label))
        start = end
    return spans


def draw_remainders(states: dict[str, list[State]], found: Mechanisms) -> None:
    """Two rows for each remedy: its weight, and what the weight has not got yet."""
    spans: list[Span] = []
    rows: list[str] = []
    for name, log in states.items():
        spans += runs((in_gaps(s.weight - 1) for s in log), len(rows), "weight")
        rest = "lost" if name == "plain" else "kept"
        spans += runs((in_gaps(s.rest) for s in log), len(rows) + 1, rest)
        rows += [name, f"{name}_rest"]
    found.lanes("remainders", spans, rows)


def measure_adam_step(config: Config, found: Findings) -> None:
    """The share of weights that one step of Adam moves, over the learning rate."""
    device = config.device
    for name, lr in {"1e2": 1e-2, "1e3": 1e-3, "1e4": 1e-4, "1e5": 1e-5}.items():
        found[f"moved_at_lr_{name}"] = moved_share(lr, every_weight(device))
        if name != "1e2":
            found[f"initial_moved_at_lr_{name}"] = moved_share(lr, initial_weights(device))
    found["moved_with_master_at_lr_1e5"] = moved_share_with_master(1e-5, device)

    rates = [2.0**-k for k in range(20, 4, -1)]
    found.draw(
        "moved",
        Line("bf16", rates, [moved_share(lr, every_weight(device)) for lr in rates]),
        Line("master", rates, [moved_share_with_master(lr, device) for lr in rates]),
    )


def measure_moments(config: Config, found: Findings) -> None:
    """Where AdamW's own second moment stops, in each implementation."""
    closed_form = 1 - BETAS["999"] ** MOMENT_STEPS
    errors = []
    for way in WAYS:
        low = moments(way, BF16, config.device)
        found[f"bf16_moment_{way}_rises_to"] = low["999"].risen
        for name in BETAS:
            found[f"bf16_moment_{way}_falls_to_at_{name}"] = low[name].fallen
        high = moments(way, torch.float32, config.device)
        errors.append(abs(high["999"].risen - closed_form))
    found["fp32_moment_error"] = max(errors)
