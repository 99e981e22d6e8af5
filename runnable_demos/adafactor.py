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

from runnable_demos.measure import storage_bytes
from runnable_demos.metrics import Axis, Figure, Metric, Progress, Result, Series, Text, parameter

TITLE: Text = {"zh": "Adafactor 的因子化二阶矩", "en": "Adafactor's factored second moment"}
QUESTION: Text = {
    "zh": "只记行均值与列均值，要存多少，又在什么情形下一点不丢？",
    "en": "With row means and column means alone, how much is stored, and when is nothing lost?",
}


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
    generator = torch.Generator(config.device).manual_seed(config.seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=config.device)

    n = config.side
    shapes = {
        "square": (n, n),
        "long": (n // config.stretch, n * config.stretch),
        "vector": (n * n,),
    }
    states = {}
    for i, (name, shape) in enumerate(shapes.items()):
        progress(i / 5, f"state of a {name}")
        states[name] = state_after_one_step(random(*shape))

    progress(0.6, "rank one")
    gradient = random(n, 1) * random(1, n)  # its square has rank one, too
    exact = gradient.square()
    error = ((rebuilt(state_after_one_step(gradient)) - exact).abs() / exact).max().item()

    progress(0.8, "the identity")
    smeared = rebuilt(state_after_one_step(torch.eye(n, device=config.device)))
    progress(1.0, "done")

    counted = {
        "zh": "一步之后 optimizer.state 的存储，步数计数器除外",
        "en": "storages of optimizer.state after one step, without the step counter",
    }
    numbers = {name: storage_bytes(state) // 4 for name, state in states.items()}

    def state_numbers(name: str, zh: str, en: str) -> Metric:
        return Metric(f"numbers_{name}", numbers[name], "", "exact", {"zh": zh, "en": en}, counted)

    rows = row_counts(n)
    figure = Figure(
        "state_by_shape",
        {
            "zh": "权重数相同，形状不同，状态不同",
            "en": "The same number of weights, another shape, another state",
        },
        Axis({"zh": "行数", "en": "rows"}, scale="log2"),
        Axis({"zh": "状态里的数", "en": "numbers in the state"}, scale="log2"),
        (
            Series(
                {"zh": "行数 + 列数", "en": "rows + columns"},
                tuple(float(r) for r in rows),
                tuple(float(r + n * n // r) for r in rows),
                "theory",
            ),
            Series(
                {"zh": "实测", "en": "measured"},
                tuple(float(r) for r in rows),
                tuple(storage_bytes(state_after_one_step(random(r, n * n // r))) / 4 for r in rows),
            ),
        ),
    )
    return Result(
        (
            state_numbers(
                "square", "方阵状态里有几个数", "numbers in the state of the square matrix"
            ),
            state_numbers(
                "long", "长条矩阵状态里有几个数", "numbers in the state of the long matrix"
            ),
            state_numbers("vector", "向量状态里有几个数", "numbers in the state of the vector"),
            Metric(
                "long_over_square",
                numbers["long"] / numbers["square"],
                "",
                "exact",
                {
                    "zh": "同样多的权重，长条的状态是方阵的几倍",
                    "en": "state of the long matrix over the square's",
                },
                counted,
            ),
            Metric(
                "bytes_per_param_square",
                storage_bytes(states["square"]) / n**2,
                "B/param",
                "exact",
                {"zh": "方阵每个参数的状态", "en": "state a parameter of the square matrix"},
                counted,
            ),
            Metric(
                "bytes_per_param_vector",
                storage_bytes(states["vector"]) / n**2,
                "B/param",
                "exact",
                {"zh": "向量每个参数的状态", "en": "state a parameter of the vector"},
                counted,
            ),
            Metric(
                "rank_one_error",
                error,
                "",
                "bounded",
                {
                    "zh": "秩一时重建的最大相对误差",
                    "en": "largest relative error of the rebuilt rank-one moment",
                },
                {
                    "zh": "逐元素与梯度平方相比",
                    "en": "compared with the squared gradient, entry by entry",
                },
                bound=1e-5,
                reason={
                    "zh": "fp32 的单位舍入约 6e-8，长为 n 的均值与两次乘除至多放大百倍",
                    "en": "fp32 rounds by about 6e-8; means over n entries and two products magnify it "
                    "by a hundred at most",
                },
            ),
            Metric(
                "identity_diagonal",
                smeared[0, 0].item() * n,
                "",
                "exact",
                {
                    "zh": "V = I 时重建的对角元乘以 n",
                    "en": "rebuilt diagonal entry times n, for V = I",
                },
                {"zh": "读自 PyTorch 的行列状态", "en": "from PyTorch's row and column state"},
            ),
            Metric(
                "identity_off_diagonal_equal",
                bool((smeared == smeared[0, 0]).all()),
                "",
                "exact",
                {
                    "zh": "V = I 时对角内外重建得一样",
                    "en": "rebuilt the same on and off the diagonal, for V = I",
                },
                {"zh": "逐元素比较", "en": "compared entry by entry"},
            ),
        ),
        (figure,),
    )


def row_counts(side: int) -> tuple[int, ...]:
    """Powers of two from 4 rows to ``side``²/4 rows."""
    counts = []
    rows = 4
    while rows <= side * side // 4:
        counts.append(rows)
        rows *= 4
    return tuple(counts)
