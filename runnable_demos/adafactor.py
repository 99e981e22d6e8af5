"""What does Adafactor remember instead of Adam's second moment, and when is nothing lost?

The question
    Adam keeps a second moment V for each weight of an n × m matrix: nm numbers. Adafactor keeps its row means R
    (n numbers) and its column means C (m numbers) and rebuilds

        V̂ = R Cᵀ / mean(R)

The model
    V̂ is the rank-one matrix with the row and column sums of V. It equals V where V has rank one,
    V_ij = r_i c_j, and else it smears: for V = I every entry of V̂ is 1/n, on the diagonal and off it.

The measurement
    The state is PyTorch's own (``torch.optim.Adafactor``), after one step. From it V̂ is rebuilt and compared with
    the squared gradient, which after the first step is what V is.
    A vector is not factored: it keeps one number a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn, optim

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import storage_bytes
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

[figure.state_by_shape]
title = ["权重数相同，形状不同，状态不同", "The same number of weights, another shape, another state"]
x = {label = ["行数", "rows"], scale = "log2"}
y = {label = ["状态里的数", "numbers in the state"], scale = "log2"}
[figure.state_by_shape.series]
theory = ["theory", "行数 + 列数", "rows + columns"]
measured = ["measured", "实测", "measured"]
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
    weight = nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    optimizer = optim.Adafactor([weight])
    optimizer.step()
    return {name: t for name, t in optimizer.state[weight].items() if name != "step"}


def rebuilt(state: dict[str, Tensor]) -> Tensor:
    """V̂ = R Cᵀ / mean(R): ``(n, 1)`` and ``(1, m)`` to ``(n, m)``."""
    rows, columns = state["row_var"], state["col_var"]
    estimate: Tensor = (rows @ columns) / rows.mean()
    return estimate


def run(config: Config, progress: Progress) -> Result:
    """Count the state over shapes, and compare the rebuilt second moment with the true one."""
    found = Findings(MEASURES, config)
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
        rows *= 4
    return tuple(counts)
