"""What does Adam keep when its states are 8-bit, and why are they scaled block by block?

The lesson is ``lessons/adam_8bit.en.md`` (中文: ``lessons/adam_8bit.zh.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn, optim

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "8-bit Adam 的状态与分块", "en": "8-bit Adam: its states and its blocks"}
QUESTION: Text = {
    "zh": "状态压到 8 位后，连同缩放因子每个参数要几字节？为什么要分块缩放？",
    "en": "With 8-bit states, how many bytes a parameter are kept in all, and why is each block scaled by itself?",
}
REQUIRES = ("bitsandbytes",)

SMALLEST_8BIT = 4096
"""Tensors with fewer values keep fp32 states (``min_8bit_size`` in bitsandbytes)."""

STATE_BLOCK = 256
"""Values that share a scale in the states of bitsandbytes, which takes no other number for Adam."""

MEASURES = """
[[method]]
kind = "exact"
how = ["bitsandbytes 一步之后 optimizer.state 的存储", "storages of bitsandbytes' optimizer.state after one step"]
[method.metrics]
state_bytes_per_param = ["B/param", "每个参数的状态，含缩放因子", "state a parameter, scales included"]
codes_bytes_per_param = ["B/param", "其中 8 位编码", "of which 8-bit codes"]
scales_bytes_per_param = ["B/param", "其中缩放因子", "of which scales"]
code_tables_bytes = ["B", "全部参数共用的两张码表", "the two code tables that all parameters share"]
small_tensor_bytes_per_param = [
  "B/param",
  "不足 4096 个元素的张量，每个参数的状态",
  "state a parameter of a tensor with fewer than 4,096 values",
]

[[method]]
kind = "sampled"
how = ["统计出现过的编码，{draws} 个随机张量的均值", "distinct codes that occur, mean over {draws} random tensors"]
[method.metrics]
codes_used_by_block = ["", "分块缩放用到的编码数", "codes in use when blocks are scaled"]
codes_used_by_tensor = ["", "整张量缩放用到的编码数", "codes in use when the tensor is scaled as one"]

[[method]]
kind = "sampled"
how = [
  "一个离群值，其余为标准正态；平均绝对误差之比，{draws} 个随机张量的均值",
  "one outlier among normal values; ratio of mean absolute errors, mean over {draws} random tensors",
]
[method.metrics]
block_over_tensor_error = ["", "分块误差与整张量误差之比", "error with blocks over error with one scale"]

[[method]]
kind = "sampled"
how = ["计数，{draws} 个随机张量的均值", "counted, mean over {draws} random tensors"]
[method.metrics]
values_spoiled_by_block = [
  "",
  "分块时误差超过其他各块最大误差的值",
  "values whose error exceeds the largest one in all other blocks, with blocks",
]

[[method]]
kind = "exact"
how = ["bitsandbytes 的码表", "the code table of bitsandbytes"]
[method.metrics]
lowest_code = ["", "有符号码表里最小的码", "lowest code of the signed table"]

[[method]]
kind = "exact"
how = [
  "第一步梯度 0.5，此后为零；同一块的最大值一直不变；再走 1000 步之后的 v 除以第一步之后的 v",
  "gradients of 0.5 in the first step, then none; the block's largest value stays; v 1,000 steps later over v after it",
]
[method.metrics]
stale_fp32 = ["", "torch Adam，β2 = 0.999：v 剩下几成", "torch Adam, β2 = 0.999: what is left of v"]
stale_8bit = ["", "8-bit，β2 = 0.999：v 剩下几成", "8-bit, β2 = 0.999: what is left of v"]
stale_8bit_99 = ["", "8-bit，β2 = 0.99：v 剩下几成", "8-bit, β2 = 0.99: what is left of v"]
stale_8bit_95 = ["", "8-bit，β2 = 0.95：v 剩下几成", "8-bit, β2 = 0.95: what is left of v"]

[[method]]
kind = "exact"
how = [
  "所有梯度恒为 1 或恒为 −1，100 步之后的 m 除以这个梯度",
  "all gradients 1, or all −1, at each of 100 steps; m over that gradient",
]
[method.metrics]
positive_first_moment = ["", "8-bit，块内全为正：m 与梯度之比", "8-bit, positive block: m over the gradient"]
negative_first_moment = ["", "8-bit，块内全为负：m 与梯度之比", "8-bit, negative block: m over the gradient"]

[figure.bytes_by_size]
title = ["小张量不享受 8 位", "Small tensors stay in fp32"]
x = {label = ["张量的元素数", "values in the tensor"], scale = "log2"}
y = {label = ["状态字节/参数", "state bytes a parameter"], unit = "B/param"}
[figure.bytes_by_size.series]
theory = ["theory", "2 + 8/{state_block}", "2 + 8/{state_block}"]
measured = [
  "measured",
  "实测，含两张共用码表",
  "measured, with the two code tables that all share",
]

[figure.blocks]
title = [
  "每格依次是原值、分块（B）读回的值、整张量共用一个缩放因子（T）读回的值；最右是每块的缩放因子",
  "Each cell: the value, what a scale per block (B) and one for the tensor (T) read back; last, the block's scale",
]
x = {label = ["块内第几个", "value of the block"]}
y = {label = ["块", "block"]}
[figure.blocks.series]
both = ["bar", "B（分块）和 T（整张量）都差不到 5%", "B (blocks) and T (tensor) within 5%"]
blocked = ["bar", "只有 B 差不到 5%", "only B within 5%"]
neither = ["bar", "B 和 T 都差 5% 以上", "neither B nor T within 5%"]
scale = ["bar", "这一块的缩放因子（fp32）", "the block's scale (fp32)"]
[figure.blocks.places]
scales = ["缩放", "scale"]
"""


@dataclass(frozen=True)
class Config:
    """The tensors that are trained and quantised."""

    values: int = parameter(
        2**20, {"zh": "张量的元素数", "en": "values in the tensor"}, SMALLEST_8BIT, 2**26
    )
    block: int = parameter(256, {"zh": "块大小 B", "en": "block size B"}, 64, 4096)
    outlier: int = parameter(
        10_000, {"zh": "离群值是标准差的几倍", "en": "outlier in standard deviations"}, 10, 10**6
    )
    draws: int = parameter(
        16, {"zh": "随机张量的个数", "en": "random tensors that are quantised"}, 2, 256
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(values=2**14), "full": Config()}


def adam_state(values: int, config: Config) -> dict[str, Tensor]:
    """The tensors in the state of bitsandbytes' 8-bit Adam for one weight, after one step."""
    from bitsandbytes.optim.adam import Adam8bit  # noqa: PLC0415 - slow to import, and optional

    weight = nn.Parameter(torch.zeros(values, device=config.device))
    weight.grad = torch.ones_like(weight)
    optimizer = Adam8bit([weight])
    optimizer.step()
    return {k: v for k, v in optimizer.state[weight].items() if isinstance(v, Tensor)}


def stale_second_moment(beta: float, config: Config, *, packed: bool) -> float:
    """What is left of v after 1,000 steps without a gradient, in a block whose largest value stays where it is."""
    from bitsandbytes.optim.adam import Adam8bit  # noqa: PLC0415 - slow to import, and optional

    weight = nn.Parameter(torch.zeros(SMALLEST_8BIT, device=config.device))
    kind = Adam8bit if packed else optim.Adam
    optimizer: optim.Optimizer = kind([weight], lr=0.0, betas=(0.9, beta))
    # --8<-- [start:stale]
    weight.grad = torch.full_like(weight, 0.5)
    weight.grad[::STATE_BLOCK] = 1
    optimizer.step()
    before = second_value(optimizer.state[weight], "2" if packed else "")
    weight.grad.zero_()
    weight.grad[::STATE_BLOCK] = (1 - beta) ** 0.5  # so that v stays at 1 − β
    for _ in range(1000):
        optimizer.step()
    return second_value(optimizer.state[weight], "2" if packed else "") / before
    # --8<-- [end:stale]


def steady_first_moment(gradient: float, config: Config) -> float:
    """Where 8-bit m settles under a gradient that never changes, over that gradient."""
    from bitsandbytes.optim.adam import Adam8bit  # noqa: PLC0415 - slow to import, and optional

    weight = nn.Parameter(torch.zeros(SMALLEST_8BIT, device=config.device))
    weight.grad = torch.full_like(weight, gradient)
    optimizer: optim.Optimizer = Adam8bit([weight], lr=0.0)
    for _ in range(100):
        optimizer.step()
    return second_value(optimizer.state[weight], "1") / gradient


def second_value(state: dict[str, Tensor], moment: str) -> float:
    """The second value of a state: of ``exp_avg_sq``, or of the 8-bit moment 1 or 2."""
    if not moment:
        return state["exp_avg_sq"][1].item()
    code = state[f"qmap{moment}"][int(state[f"state{moment}"][1])]
    return float(code * state[f"absmax{moment}"][0])


def quantize(x: Tensor, codes: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Indices of the nearest codes, and the scale of each block.

    ``x``: (n,) with n a multiple of ``block``; ``codes``: (256,) ascending. Returns (n/block, block) and (n/block, 1).
    """
    # --8<-- [start:quantize]
    blocks = x.view(-1, block)
    scale = blocks.abs().amax(dim=1, keepdim=True)
    between = (codes[1:] + codes[:-1]) / 2
    return torch.bucketize(blocks / scale, between), scale
    # --8<-- [end:quantize]


def restore(index: Tensor, scale: Tensor, codes: Tensor) -> Tensor:
    """The values that indices and scales stand for: (n,)."""
    return (codes[index] * scale).flatten()


def round_trip(x: Tensor, codes: Tensor, block: int) -> Tensor:
    """What is left of ``x`` after it was stored in 8 bits."""
    return restore(*quantize(x, codes, block), codes)


@dataclass(frozen=True, slots=True)
class Draw:
    """One random tensor with its outlier, quantised both ways: errors, and counts of codes and values."""

    block_error: float
    tensor_error: float
    used_by_block: int
    used_by_tensor: int
    spoiled: int
    """Values whose error exceeds the largest one outside the outlier's block."""


def quantize_both(x: Tensor, codes: Tensor, block: int) -> Draw:
    """``x``: (n,), with its outlier in front, in blocks and as a whole."""
    # --8<-- [start:both]
    stored = [quantize(x, codes, size) for size in (block, x.numel())]
    # The outlier itself is the scale of its block and exact in both.
    by_block, by_tensor = ((restore(*each, codes) - x).abs() for each in stored)
    used_by_block, used_by_tensor = (index.unique().numel() for index, _ in stored)
    # --8<-- [end:both]
    return Draw(
        by_block[1:].mean().item(),
        by_tensor[1:].mean().item(),
        used_by_block,
        used_by_tensor,
        int((by_block > by_block[block:].max()).sum()),
    )


EXAMPLE = (0.6, -1.1, 0.3, 1.8, -0.4, 0.9, 1.6, -0.8, 1e4, 0.5, -1.2, 0.8, 1.3, -0.3, 0.7, -0.9)
"""Sixteen values in blocks of four, one of them an outlier; two digits tell which are within 5%."""


def read_back(codes: Tensor) -> list[Tile]:
    """``EXAMPLE`` in blocks and with one scale: what each leaves of a value, and the scales of the blocks."""
    side = 4
    x = torch.tensor(EXAMPLE)
    by_block, by_tensor = (round_trip(x, codes, size).tolist() for size in (side, len(EXAMPLE)))
    tiles = []
    for place, (true, block, whole) in enumerate(zip(x.tolist(), by_block, by_tensor, strict=True)):
        close = [abs(each - true) <= 0.05 * abs(true) for each in (block, whole)]
        kind = "both" if all(close) else "blocked" if close[0] else "neither"
        shown = tuple(
            f"{name}{each:.2g}".replace("-", "−")
            for name, each in (("", true), ("B ", block), ("T ", whole))
        )
        tiles.append(Tile(*divmod(place, side), kind, shown if abs(true) < 1e3 else ("10⁴",)))
    scales = quantize(x, codes, side)[1].flatten().tolist()
    return tiles + [
        Tile(row, side, "scale", (f"{each:.3g}" if each < 1e3 else "10⁴",))
        for row, each in enumerate(scales)
    ]


def run(config: Config, progress: Progress) -> Result:
    """Count the state, then quantise tensors with one outlier, block by block and as a whole."""
    found = Mechanisms(MEASURES, config, state_block=STATE_BLOCK)
    progress(0.0, "load bitsandbytes")
    from bitsandbytes.functional import create_dynamic_map  # noqa: PLC0415 - slow, and optional

    n, draws = config.values, config.draws
    state = adam_state(n, config)
    tables = storage_bytes([state["qmap1"], state["qmap2"]])
    found["state_bytes_per_param"] = (storage_bytes(state) - tables) / n
    found["codes_bytes_per_param"] = storage_bytes([state["state1"], state["state2"]]) / n
    found["scales_bytes_per_param"] = storage_bytes([state["absmax1"], state["absmax2"]]) / n
    found["code_tables_bytes"] = tables
    progress(0.5, "small tensors")
    tiny = adam_state(SMALLEST_8BIT - 1, config)
    found["small_tensor_bytes_per_param"] = storage_bytes(tiny) / (SMALLEST_8BIT - 1)

    progress(0.7, "quantise")
    codes = create_dynamic_map(signed=True).to(config.device)
    generator = torch.Generator(config.device).manual_seed(config.seed)
    stored = []
    for _ in range(draws):
        x = torch.randn(n, generator=generator, device=config.device)
        x[0] = config.outlier
        stored.append(quantize_both(x, codes, config.block))
    errors = [draw.block_error / draw.tensor_error for draw in stored]
    found.sample("block_over_tensor_error", errors)
    # Where all draws count alike, one more might have been off by one.
    least = 1 / draws
    found.sample("codes_used_by_block", [draw.used_by_block for draw in stored], least=least)
    found.sample("codes_used_by_tensor", [draw.used_by_tensor for draw in stored], least=least)
    found.sample("values_spoiled_by_block", [draw.spoiled for draw in stored], least=least)

    progress(0.75, "biases")
    # Rounded, as the last digits of fp32 are the processor's.
    found["lowest_code"] = round(codes.min().item(), 6)
    found["stale_fp32"] = round(stale_second_moment(0.999, config, packed=False), 4)
    for name, beta in (("stale_8bit", 0.999), ("stale_8bit_99", 0.99), ("stale_8bit_95", 0.95)):
        found[name] = round(stale_second_moment(beta, config, packed=True), 4)
    found["positive_first_moment"] = round(steady_first_moment(1.0, config), 4)
    found["negative_first_moment"] = round(steady_first_moment(-1.0, config), 4)
    found.tiles("blocks", read_back(codes), rows=range(1, 5), columns=[*range(1, 5), "scales"])

    progress(0.9, "sizes")
    sizes = [2**i for i in range(10, 17)]
    found.draw(
        "bytes_by_size",
        Line("theory", sizes, [2 + 8 / STATE_BLOCK for _ in sizes]),
        Line("measured", sizes, [storage_bytes(adam_state(size, config)) / size for size in sizes]),
    )
    progress(1.0, "done")
    return found.result()
