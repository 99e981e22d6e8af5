"""What does Adafactor remember instead of Adam's second moment, and when is nothing lost?

The lesson is ``lessons/adafactor.en.md`` (中文: ``lessons/adafactor.zh.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory, storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "Adafactor 的因子化二阶矩", "en": "Adafactor's factored second moment"}
QUESTION: Text = {
    "zh": "只记行均值与列均值，要存多少，又在什么情形下一点不丢？",
    "en": "With row means and column means alone, how much is stored, and when is nothing lost?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步之后 optimizer.state 的存储，步数计数器除外",
  "storages of optimizer.state after one step, without the step counter",
]
[method.metrics]
numbers_square = ["", "方阵状态里有几个数", "numbers in the state of the square matrix"]
numbers_long = ["", "长条矩阵状态里有几个数", "numbers in the state of the long matrix"]
numbers_vector = ["", "向量状态里有几个数", "numbers in the state of the vector"]
long_over_square = ["", "同样多的权重，长条的状态是方阵的几倍", "state of the long matrix over the square's"]
bytes_per_param_square = ["B/param", "方阵每个参数的状态", "state a parameter of the square matrix"]
bytes_per_param_vector = ["B/param", "向量每个参数的状态", "state a parameter of the vector"]

[[method]]
kind = "bounded"
how = ["逐元素与梯度平方相比", "compared with the squared gradient, entry by entry"]
bound = 1e-5
reason = [
  "fp32 的单位舍入约 6e-8，长为 n 的均值与两次乘除至多放大百倍",
  "fp32 rounds by about 6e-8; means over n entries and two products magnify it by a hundred at most",
]
[method.metrics]
rank_one_error = ["", "秩一时重建的最大相对误差", "largest relative error of the rebuilt rank-one moment"]

[[method]]
kind = "exact"
how = ["读自 PyTorch 的行列状态", "from PyTorch's row and column state"]
[method.metrics]
identity_diagonal = ["", "V = I 时重建的对角元乘以 n", "rebuilt diagonal entry times n, for V = I"]

[[method]]
kind = "exact"
how = ["逐元素比较", "compared entry by entry"]
[method.metrics]
identity_off_diagonal_equal = [
  "",
  "V = I 时对角内外重建得一样",
  "rebuilt the same on and off the diagonal, for V = I",
]

[[method]]
kind = "exact"
how = [
  "逐个矩阵循环：第三步的实时字节峰值，减去这一步之前已有的，除以一个矩阵的字节",
  "for-loop over matrices: live peak of the third step above what was there before, over the bytes of one matrix",
]
[method.metrics]
transient_copies = ["", "一步的临时量，折合几个矩阵", "transient of a step in matrices"]

[[method]]
kind = "exact"
how = [
  "权重为零，梯度为 0.001 或 0.008 的行：第一步之后两种行的权重之比",
  "zero weights, rows with gradients of 0.001 or 0.008: ratio of their weights after the first step",
]
[method.metrics]
row_ratio_fp32 = ["", "fp32，默认 eps：两种行的步长之比", "fp32, default eps: ratio of the two rows' steps"]
row_ratio_bf16 = ["", "bf16，默认 eps：两种行的步长之比", "bf16, default eps: ratio of the two rows' steps"]
row_ratio_bf16_small_eps = [
  "",
  "bf16，eps[0] = 1e-30：两种行的步长之比",
  "bf16, eps[0] = 1e-30: ratio of the two rows' steps",
]

[[method]]
kind = "exact"
how = [
  "权重为零，梯度为 0.000001 或 0.000008 的行：第一步之后两种行的权重之比",
  "zero weights, rows with gradients of 0.000001 or 0.000008: ratio of their weights after the first step",
]
[method.metrics]
row_ratio_fp32_small = [
  "",
  "fp32，默认 eps，很小的梯度：两种行的步长之比",
  "fp32, default eps, very small gradients: ratio of the two rows' steps",
]

[[method]]
kind = "exact"
how = [
  "一个进程（CPU，gloo）里对一个 Linear 调用 fully_shard，反向之后走一步：AdamW 成功，Adafactor 抛出 RuntimeError",
  "fully_shard on a Linear in one process (CPU, gloo), a backward and a step: AdamW's succeeds, Adafactor's raises",
]
[method.metrics]
fsdp_refused = ["", "torch.optim.Adafactor 不接受 FSDP2 的参数", "torch.optim.Adafactor refuses FSDP2's parameters"]

[figure.state_by_shape]
title = ["权重数相同，形状不同，状态不同", "The same number of weights, another shape, another state"]
x = {label = ["行数", "rows"], scale = "log2"}
y = {label = ["状态里的数", "numbers in the state"], scale = "log2"}
[figure.state_by_shape.series]
theory = ["theory", "行数 + 列数", "rows + columns"]
measured = ["measured", "实测", "measured"]

[figure.rebuilt]
title = [
  "每格是 V → 由行均值 R 与列均值 C 拼回的 V̂；只有最右一列和最下一行存下来",
  "Each cell is V → V̂, rebuilt from row means R and column means C; only the last column and row are kept",
]
x = {label = ["列", "column"]}
y = {label = ["行", "row"]}
[figure.rebuilt.series]
near = ["bar", "V̂ 与 V 差不到 1.5 倍", "V̂ within 1.5× of V"]
above = ["bar", "V̂ 偏大：步长偏小", "V̂ too large: steps too small"]
below = ["bar", "V̂ 偏小：步长偏大", "V̂ too small: steps too large"]
kept = ["bar", "存下来的状态", "the state that is kept"]
mean = ["bar", "总均值，由 R 现算", "overall mean, computed from R"]
[figure.rebuilt.places]
means = ["均值", "means"]
"""


@dataclass(frozen=True)
class Config:
    """Shapes with the same number of weights, ``side``²."""

    side: int = parameter(512, {"zh": "方阵边长", "en": "side of the square matrix"}, 16, 4096)
    stretch: int = parameter(
        32, {"zh": "长条矩阵拉长的倍数", "en": "how far the long matrix is stretched"}, 2, 256
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(side=64, stretch=8), "full": Config()}


def state_after_one_step(gradient: Tensor) -> dict[str, Tensor]:
    """Adafactor's state for one weight of the gradient's shape, without the step counter."""
    # --8<-- [start:state]
    weight = nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    optimizer = optim.Adafactor([weight])
    optimizer.step()
    return {name: t for name, t in optimizer.state[weight].items() if name != "step"}
    # --8<-- [end:state]


def rebuilt(state: dict[str, Tensor]) -> Tensor:
    """V̂ = R Cᵀ / mean(R): ``(n, 1)`` and ``(1, m)`` to ``(n, m)``."""
    # --8<-- [start:rebuild]
    rows, columns = state["row_var"], state["col_var"]
    estimate: Tensor = (rows @ columns) / rows.mean()
    return estimate
    # --8<-- [end:rebuild]


def transient(side: int, matrices: int, device: str) -> float:
    """Scratch of a step over several square matrices, in bytes of one of them."""
    weights = [nn.Parameter(torch.ones(side, side, device=device)) for _ in range(matrices)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = optim.Adafactor(weights)
    for _ in range(2):
        optimizer.step()
    # --8<-- [start:transient]
    with LiveMemory() as live:
        optimizer.step()
    return live.peak / weights[0].nbytes
    # --8<-- [end:transient]


def row_ratio(
    dtype: torch.dtype,
    device: str,
    eps: tuple[float | None, float] = (None, 1e-3),
    smaller: float = 1e-3,
) -> float:
    """First steps of two kinds of rows, whose gradients differ eightfold; ``eps`` is PyTorch's default."""
    n = 64
    weight = nn.Parameter(torch.zeros(n, n, dtype=dtype, device=device))
    # --8<-- [start:floor]
    weight.grad = torch.full_like(weight, smaller)
    weight.grad[1::2] *= 8
    optim.Adafactor([weight], eps=eps).step()
    return (weight[1, 0] / weight[0, 0]).item()
    # --8<-- [end:floor]


def refuses_shards() -> bool:
    """Whether Adafactor's step raises on parameters of FSDP2, on which AdamW's does not."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        model = nn.Linear(8, 8)
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        model(torch.ones(2, 8)).sum().backward()
        optim.AdamW(model.parameters(), foreach=False).step()
        try:
            optim.Adafactor(model.parameters()).step()
        except RuntimeError:
            return True
        return False
    finally:
        dist.destroy_process_group()


GRADIENT = ((1, 2, 8, 2), (2, 4, 2, 4), (1, 2, 1, 2), (3, 6, 3, 6))
"""The outer product of (1, 2, 1, 3) and (1, 2, 1, 2), but for one entry, which is 8 in place of 1."""


def smear() -> list[Tile]:
    """V and V̂ of ``GRADIENT``, entry by entry, with the means that PyTorch keeps at the sides."""
    gradient = torch.tensor(GRADIENT, dtype=torch.float64)
    state = state_after_one_step(gradient)
    n, m = gradient.shape
    tiles = []
    for i, row in enumerate(rebuilt(state).tolist()):
        for j, estimate in enumerate(row):
            true = float(GRADIENT[i][j] ** 2)
            ratio = estimate / true
            kind = "below" if ratio < 1 / 1.5 else "above" if ratio > 1.5 else "near"
            tiles.append(Tile(i, j, kind, (f"{true:g}", f"→ {estimate:.1f}")))
    rows, columns = state["row_var"].flatten(), state["col_var"].flatten()
    tiles += [Tile(i, m, "kept", (f"R {mean:.1f}",)) for i, mean in enumerate(rows.tolist())]
    tiles += [Tile(n, j, "kept", (f"C {mean:.1f}",)) for j, mean in enumerate(columns.tolist())]
    return [*tiles, Tile(n, m, "mean", (f"{rows.mean().item():.1f}",))]


def run(config: Config, progress: Progress) -> Result:
    """Count the state over shapes, and compare the rebuilt second moment with the true one."""
    found = Mechanisms(MEASURES, config)
    generator = torch.Generator(config.device).manual_seed(config.seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=config.device)

    def state_bytes(*shape: int) -> int:
        return storage_bytes(state_after_one_step(random(*shape)))

    n, k = config.side, config.stretch
    progress(0.0, "states by shape")
    square, long, vector = state_bytes(n, n), state_bytes(n // k, n * k), state_bytes(n * n)
    found["numbers_square"] = square // 4
    found["numbers_long"] = long // 4
    found["numbers_vector"] = vector // 4
    found["long_over_square"] = long / square
    found["bytes_per_param_square"] = square / n**2
    found["bytes_per_param_vector"] = vector / n**2

    progress(0.6, "rank one")
    gradient = random(n, 1) * random(1, n)  # its square has rank one, too
    exact = gradient.square()
    error = (rebuilt(state_after_one_step(gradient)) - exact).abs() / exact
    found["rank_one_error"] = error.max().item()

    progress(0.8, "the identity")
    smeared = rebuilt(state_after_one_step(torch.eye(n, device=config.device)))
    found["identity_diagonal"] = smeared[0, 0].item() * n
    found["identity_off_diagonal_equal"] = bool((smeared == smeared[0, 0]).all())

    progress(0.9, "scratch and floor")
    found["transient_copies"] = transient(n, 4, config.device)
    found["row_ratio_fp32"] = row_ratio(torch.float32, config.device)
    # Rounded, as the last digits of fp32 are the processor's.
    found["row_ratio_fp32_small"] = round(row_ratio(torch.float32, config.device, smaller=1e-6), 4)
    found["row_ratio_bf16"] = row_ratio(torch.bfloat16, config.device)
    found["row_ratio_bf16_small_eps"] = row_ratio(torch.bfloat16, config.device, (1e-30, 1e-3))
    found["fsdp_refused"] = refuses_shards()
    places = (*range(1, len(GRADIENT) + 1), "means")
    found.tiles("rebuilt", smear(), rows=places, columns=places)

    rows = row_counts(n)
    found.draw(
        "state_by_shape",
        Line("theory", rows, [r + n * n // r for r in rows]),
        Line("measured", rows, [state_bytes(r, n * n // r) / 4 for r in rows]),
    )
    progress(1.0, "done")
    return found.result()


def row_counts(side: int) -> tuple[int, ...]:
    """Powers of two from 4 rows to ``side``²/4 rows."""
    counts = []
    rows = 4
    while rows <= side * side // 4:
        counts.append(rows)
        rows *= 2
    return tuple(counts)
