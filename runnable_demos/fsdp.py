"""How much memory does a rank need while FSDP trains, beside its shard?

The question
    ``fully_shard`` leaves 1/N of all states on a rank, and gathers the parameters of one unit at a time.
    So the peak should be the shard and the largest gathered unit. Is it?

The model
    Ψ parameters in fp32 with Adam on N ranks, in units of u bytes of parameters each. At the end of the
    backward the shards are 16Ψ/N bytes. Above them, the textbook counts one unit. FSDP2 really holds

        forward    the unit, the buffer it is copied out of, the buffer of the unit before it
        backward   the unit, its gradient, the buffer that the next unit is gathered into, and the
                   buffer that the previous unit's gradient was reduced from

    which is 3u, and 4u − 2u/N: two gradient shards are still to come when the peak is reached.

The measurement
    Real ranks, and an empty batch: without rows there are no activations, so that each byte beside the
    shards is a gathered unit, a gradient or a buffer. The live peak of the second step is read in its
    forward and in its backward, over the number of units. Then once more with rows, as a timeline, and
    with few units, to follow what each of them holds: FSDP2 names the unit that it works for in every
    range for the profiler, and so each buffer is that unit's.

The result
    Proportional to the largest unit, as the textbook says, with a factor of almost four in place of one.
    With one unit for the whole model nothing is gained: everything is gathered at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab import ranks
from runnable_demos.lab.collectives import Collectives
from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import CATEGORIES, LiveMemory
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models import zero

TITLE: Text = {"zh": "FSDP：峰值由什么组成", "en": "FSDP: what the peak is made of"}
QUESTION: Text = {
    "zh": "FSDP 训练时，一张卡除了自己那份分片还要多少显存？",
    "en": "How much memory does a rank need while FSDP trains, beside its shard?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "第二步的实时字节除以参数个数，空批",
  "live bytes of step two over the number of parameters, empty batch",
]
[method.metrics]
rest = [
  "B/param",
  "两步之间：参数与优化器状态的分片",
  "between steps: shards of parameters and optimizer states",
]
states = ["B/param", "反向结束：三类状态的分片", "after the backward: shards of all three states"]
peak_layer_units = ["B/param", "峰值，每层一个单元", "peak, one unit per layer"]
peak_lopsided = ["B/param", "峰值，一半参数在一个单元里", "peak, half in one unit"]
peak_one_unit = ["B/param", "峰值，整个模型一个单元", "peak, the whole model in one unit"]

[[method]]
kind = "exact"
how = [
  "第二步的实时峰值减去分片，空批，除以一个单元的参数字节",
  "live peak of step two above the shards, empty batch, over the bytes of a unit's parameters",
]
[method.metrics]
forward_extra_units = ["", "前向：分片之外有几个单元", "forward: units beside the shards"]
backward_extra_units = ["", "反向：分片之外有几个单元", "backward: units beside the shards"]
no_prefetch_extra_units = [
  "",
  "反向，不预取：分片之外有几个单元",
  "backward without prefetch: units beside the shards",
]
lopsided_extra_units = [
  "",
  "一半参数在一个单元里：分片之外有几个这样的单元",
  "half of the parameters in one unit: how many of it beside the shards",
]
one_unit_extra = [
  "",
  "整个模型一个单元：分片之外有几份全部参数",
  "the whole model in one unit: copies of all parameters beside the shards",
]
checkpoint_each_extra_units = [
  "",
  "逐单元做检查点：反向时分片之外有几个单元",
  "a checkpoint around each unit: units beside the shards in the backward",
]
checkpoint_all_extra_units = [
  "",
  "一个检查点包住全部单元：反向时分片之外有几个单元",
  "one checkpoint around all units: units beside the shards in the backward",
]

[[method]]
kind = "exact"
how = [
  "第二步的实时峰值减去分片（分片与其梯度仍是 fp32），空批，除以一个单元的参数以 bf16 存放的字节",
  "live peak of step two above the shards, which stay fp32 with their gradients, empty batch, over the bytes of a unit's parameters in bf16",
]
[method.metrics]
bf16_extra_units = [
  "",
  "反向，以 bf16 做 all-gather、计算和归约：分片之外有几个 bf16 单元",
  "backward, gathered, computed and reduced in bf16: bf16 units beside the shards",
]
bf16_reduce_fp32_extra_units = [
  "",
  "反向，以 bf16 做 all-gather 和计算、以 fp32 归约：分片之外有几个 bf16 单元",
  "backward, gathered and computed in bf16, reduced in fp32: bf16 units beside the shards",
]

[[method]]
kind = "exact"
how = [
  "第二步全部 all-gather 的字节除以 Ψ 的字节",
  "bytes of all all-gathers of step two over those of Ψ",
]
[method.metrics]
gathers = ["", "每步把全部参数 all-gather 几次", "times that all parameters are gathered in a step"]
gathers_checkpoint_each = [
  "",
  "逐单元做检查点：每步把全部参数 all-gather 几次",
  "a checkpoint around each unit: the same",
]
gathers_checkpoint_all = [
  "",
  "一个检查点包住全部单元：每步把全部参数 all-gather 几次",
  "one checkpoint around all units: the same",
]

[[method]]
kind = "exact"
how = ["逐个比较各进程的实时字节", "live bytes compared rank by rank"]
[method.metrics]
ranks_agree = ["", "各进程的峰值相同", "all ranks have the same peaks"]

[figure.units]
title = [
  "峰值随单元数，N = {ranks}，fp32 与 Adam",
  "Peak over the number of units, N = {ranks}, fp32 with Adam",
]
x = {label = ["单元数", "units"], scale = "log2"}
y = {label = ["字节/参数", "bytes per parameter"], unit = "B/param"}
[figure.units.series]
shards = ["theory", "分片", "shards"]
textbook = ["theory", "分片 + 1 个单元", "shards + 1 unit"]
theory = ["theory", "分片 + 4 − 2/N 个单元", "shards + 4 − 2/N units"]
measured = ["measured", "实测", "measured"]

[figure.lanes]
title = [
  "一步之内，每个单元在分片之外占着几份参数",
  "Copies of its parameters that each unit holds beside its shard, within a step",
]
x = {label = ["第几次变化", "change"]}
y = {label = ["单元", "unit"]}
[figure.lanes.series]
half = ["bar", "F 前向，B 反向", "F forward, B backward"]
buffer = ["bar", "缓冲区：预取来的，或还没释放的", "buffer: prefetched, or not yet freed"]
copied = ["bar", "参数和缓冲区", "parameters and buffer"]
whole = ["bar", "参数", "parameters"]
gradient = ["bar", "参数和梯度", "parameters and gradient"]
reducing = ["bar", "等待归约的梯度、归约用的缓冲区", "gradient waiting, buffer being reduced"]
[figure.lanes.places]
step = ["一步", "step"]

[figure.timeline]
title = ["一步之内的实时字节：前向，然后反向", "Live bytes within a step: forward, then backward"]
x = {label = ["分配与释放的次序", "allocations and frees, in order"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.timeline.series]
shards = ["area", "参数与优化器的分片", "shards of parameters and optimizer"]
activations = ["area", "激活", "activations"]
gathered = ["area", "完整的单元、缓冲区与梯度", "gathered units, buffers and gradients"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A stack of ``layers`` matrices, ``width`` × ``width``, wrapped in 1, 2, 4, … ``layers`` units."""

    ranks: int = parameter(4, {"zh": "进程数 N", "en": "ranks N"}, 2, 8)
    layers: int = parameter(8, {"zh": "层数，2 的幂", "en": "layers, a power of two"}, 4, 64)
    width: int = parameter(64, {"zh": "矩阵边长", "en": "rows and columns of each matrix"}, 8, 8192)
    rows: int = parameter(
        64, {"zh": "时间线所用的批大小", "en": "rows of the batch for the timeline"}, 1, 65536
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


DRAWN = 3
"""Units in the figure of who holds what: one with neighbours on both sides, which is all a phone has room for."""

PRESETS = {"small": Config(ranks=2, layers=4, width=16, rows=8), "full": Config()}


def splits(layers: int) -> list[int]:
    """Numbers of units: 1, 2, 4, … ``layers``."""
    return [2**i for i in range(layers.bit_length()) if layers % 2**i == 0]


# --- in each rank --------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """A layer that keeps its input alone and runs again in the backward."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """``x`` to ``layer(x)``."""
        out: Tensor = checkpoint(self.layer, x, use_reentrant=False, preserve_rng_state=False)
        return out


def units(sizes: Sequence[int], width: int, device: str) -> nn.Sequential:
    """A stack of layers in units of the given sizes."""
    return nn.Sequential(*(zero.stack(size, width, device) for size in sizes))


def checkpointed(layers: int, around: int, width: int, device: str) -> zero.Wrapped:
    """One unit a layer, and a checkpoint around every ``around`` of them."""
    groups = [units([1] * around, width, device) for _ in range(layers // around)]
    model = nn.Sequential(*(Checkpointed(group) for group in groups))
    for unit in (*(unit for group in groups for unit in group), model):
        fully_shard(unit, reshard_after_forward=True)
    return zero.Wrapped(model, torch.optim.Adam(model.parameters(), foreach=False))


def no_prefetch(module: nn.Module) -> None:
    """Have each unit "prefetch" itself in the backward, which does nothing: it is gathered by then."""
    for unit in module.children():
        assert isinstance(unit, FSDPModule)
        unit.set_modules_to_backward_prefetch([unit])


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes on a rank in one step."""

    rest: int
    """Between steps: shards of parameters and optimizer states."""
    forward: int
    backward: int
    states: int
    """After the backward: shards of gradients as well."""
    timeline: list[tuple[int, ...]]


def peaks(
    build: Callable[[], zero.Wrapped],
    batch: Tensor,
    prepare: Callable[[nn.Module], None] | None = None,
) -> Peaks:
    """The live peaks of the second step's forward and backward."""
    with LiveMemory() as live:
        trainer = build()

        def sort() -> None:
            live.register("parameters", trainer.parameters)
            live.register("gradients", [p.grad for p in trainer.parameters])
            live.register("optimizer", trainer.states)

        trainer.module(batch).sum().backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        if prepare is not None:
            prepare(trainer.module)
        sort()
        rest = live.by_category["parameters"] + live.by_category["optimizer"]
        books = live.current - rest  # a few bytes a unit, such as the ranks of its mesh
        before = len(live.timeline)
        live.reset_peak()
        loss = trainer.module(batch).sum()
        forward = live.peak - books
        live.reset_peak()
        loss.backward()
        del loss
        backward = live.peak - books
        sort()
        return Peaks(rest, forward, backward, live.current - books, live.timeline[before:])


class Held(TorchDispatchMode):
    """What each unit of a stack holds beside its shards, after every operation, in copies of its parameters.

    A buffer belongs to the unit that FSDP2 names as it gathers into it or reduces from it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.units = list(module.children())
        self.history: list[tuple[str, list[dict[str, int]]]] = []
        self.phase = "forward"
        self._unit = 0
        self._nbytes: list[int] = [sum(p.nbytes for p in unit.parameters()) for unit in self.units]
        self._whole: list[dict[int, UntypedStorage]] = [{} for _ in self.units]  # kept, and emptied
        self._followed: dict[tuple[int, str], list[tuple[StorageWeakRef, int]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name == "profiler::_record_function_enter_new":
            if named := re.search(r"FSDP::\w+ \((\d+)\)", args[0]):
                self._unit = int(named[1])
        elif name == "fsdp::split_with_sizes_copy":
            storages = [t.untyped_storage() for t in tree_leaves(kwargs) if isinstance(t, Tensor)]
            self._whole[self._unit].update({s._cdata: s for s in storages})
        elif name in ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_"):
            kind = "buffer" if "gather" in name else "reducing"
            tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
            self._follow(kind, self._unit, max(tensors, key=lambda t: t.nbytes))
        for i, unit in enumerate(self.units):
            for p in unit.parameters():
                if not isinstance(p, DTensor) and p.grad is not None:
                    self._follow("gradient", i, p.grad)
        self._note()
        return out

    def _follow(self, kind: str, unit: int, tensor: Tensor) -> None:
        """Until its storage is freed, a tensor counts as ``kind`` of a unit."""
        storage = tensor.untyped_storage()
        followed, ref = self._followed.setdefault((unit, kind), []), StorageWeakRef(storage)
        if all(ref != known for known, _ in followed):
            followed.append((ref, storage.nbytes()))

    def _note(self) -> None:
        now = []
        for i, nbytes in enumerate(self._nbytes):
            held = {"whole": sum(s.nbytes() for s in self._whole[i].values())}
            for kind in ("buffer", "gradient", "reducing"):
                followed = self._followed.get((i, kind), [])
                held[kind] = sum(size for ref, size in followed if not ref.expired())
            now.append({kind: size // nbytes for kind, size in held.items() if size})
        if not self.history or self.history[-1] != (self.phase, now):
            self.history.append((self.phase, now))


def lanes(trainer: zero.Wrapped, batch: Tensor) -> list[tuple[str, list[dict[str, int]]]]:
    """What each unit holds in the second step, change by change, with the half of the step."""
    trainer.step(batch)
    held = Held(trainer.module)
    with held:
        loss = trainer.module(batch).sum()
        held.phase = "backward"
        loss.backward()
    return held.history


def gathers(trainer: zero.Wrapped, batch: Tensor) -> int:
    """Bytes of the whole messages of all all-gathers in the second step."""
    trainer.step(batch)
    with Collectives() as collectives:
        trainer.step(batch)
    nbytes: int = collectives.nbytes("all_gather")
    return nbytes


def measure(task: Mapping[str, object]) -> ranks.Report:
    """Peaks of one rank over the number of units and for the special cases."""
    config = Config(**task)  # type: ignore[arg-type]
    L, width, device = config.layers, config.width, config.device
    empty = torch.empty(0, width, device=device)
    torch.manual_seed(config.seed + dist.get_rank())
    batch = torch.randn(config.rows, width, device=device)

    def stack(sizes: Sequence[int], **options: Any) -> Callable[[], zero.Wrapped]:
        return lambda: zero.fsdp(units(sizes, width, device), **options)

    report: dict[str, Any] = {
        f"units_{n}": asdict(peaks(stack([L // n] * n), empty)) for n in splits(L)
    }
    report["no_prefetch"] = asdict(peaks(stack([1] * L), empty, no_prefetch))
    for name, reduced in (("bf16", None), ("bf16_reduce_fp32", torch.float32)):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
        report[name] = asdict(peaks(stack([1] * L, mp_policy=policy), empty))
    # One unit of half the layers among small ones, as an embedding is.
    sizes = [1] * (L // 4) + [L // 2] + [1] * (L // 4)
    report["lopsided"] = asdict(peaks(stack(sizes), empty))
    report["rows"] = asdict(peaks(stack([1] * L), batch))
    report["lanes"] = lanes(stack([1] * min(L, DRAWN))(), empty)
    report["gathers"] = gathers(zero.fsdp(units([1] * L, width, device)), batch)
    for name, around in (("each", 1), ("all", L)):
        build = partial(checkpointed, L, around, width, device)
        report[f"checkpoint_{name}"] = asdict(peaks(build, empty.clone().requires_grad_()))
        report[f"gathers_checkpoint_{name}"] = gathers(build(), batch)
    return report


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once; the shards are equal, so every rank finds the same."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.fsdp", config.ranks, asdict(config))
    report = reports[0]
    L, layer = config.layers, 4 * config.width**2  # layers, and bytes of one
    parameters = L * config.width**2

    def extra(name: str, unit: int, when: str = "backward") -> float:
        """The peak above the shards, in units of ``unit`` bytes."""
        shards = report[name]["rest" if when == "forward" else "states"]
        above: int = report[name][when] - shards
        return above / unit

    finest = report[f"units_{L}"]
    found["rest"] = finest["rest"] / parameters
    found["states"] = finest["states"] / parameters
    found["forward_extra_units"] = extra(f"units_{L}", layer, "forward")
    found["backward_extra_units"] = extra(f"units_{L}", layer)
    found["peak_layer_units"] = finest["backward"] / parameters
    found["ranks_agree"] = all(r[f"units_{L}"] == finest for r in reports)

    found["no_prefetch_extra_units"] = extra("no_prefetch", layer)
    found["bf16_extra_units"] = extra("bf16", layer // 2)
    found["bf16_reduce_fp32_extra_units"] = extra("bf16_reduce_fp32", layer // 2)
    found["lopsided_extra_units"] = extra("lopsided", layer * (L // 2))
    found["peak_lopsided"] = report["lopsided"]["backward"] / parameters
    whole = [extra("units_1", 4 * parameters, when) for when in ("forward", "backward")]
    found["one_unit_extra"] = max(whole)
    found["peak_one_unit"] = peak(report["units_1"]) / parameters

    found["gathers"] = report["gathers"] / (4 * parameters)
    for around in ("each", "all"):
        gathered = report[f"gathers_checkpoint_{around}"]
        found[f"gathers_checkpoint_{around}"] = gathered / (4 * parameters)
        found[f"checkpoint_{around}_extra_units"] = extra(f"checkpoint_{around}", layer)

    draw_units(config, report, found)
    draw_timeline(report["rows"]["timeline"], found)
    found.lanes("lanes", spans(report["lanes"]), ["step", *range(min(L, DRAWN))])
    progress(1.0, "done")
    return found.result()


def peak(step: Mapping[str, Any]) -> int:
    """The higher peak of a step's two halves."""
    higher: int = max(step["forward"], step["backward"])
    return higher


def draw_units(config: Config, report: Mapping[str, Any], found: Findings) -> None:
    """The peak over the number of units."""
    N, n = config.ranks, splits(config.layers)
    parameters = config.layers * config.width**2
    many = n[2:]  # with fewer there is no unit on either side
    found.draw(
        "units",
        Line("shards", n, [16 / N for _ in n]),
        Line("textbook", n, [16 / N + 4 / i for i in n]),
        Line("theory", many, [16 / N + (4 - 2 / N) * 4 / i for i in many]),
        Line("measured", n, [peak(report[f"units_{i}"]) / parameters for i in n]),
    )


def draw_timeline(timeline: Sequence[Sequence[int]], found: Findings) -> None:
    """The live bytes of one step with rows, in at most 250 points."""
    events = [dict(zip(CATEGORIES, event, strict=True)) for event in timeline]
    events = events[:: max(1, -(-len(events) // 250))]
    time = range(len(events))
    found.draw(
        "timeline",
        Line("shards", time, [e["parameters"] + e["optimizer"] for e in events]),
        Line("activations", time, [e["activations"] for e in events]),
        Line("gathered", time, [e["gradients"] + e["other"] for e in events]),
    )


def spans(history: Sequence[tuple[str, Sequence[Mapping[str, int]]]]) -> list[Span]:
    """A row for the halves of the step, and one for each unit: its state and how many copies it holds."""
    rows: list[list[tuple[str, str]]] = [[("half", phase[0].upper()) for phase, _ in history]]
    for unit in range(len(history[0][1])):
        states = [units[unit] for _, units in history]
        rows.append([(state(held), str(sum(held.values()))) for held in states])
    found = []
    for row, changes in enumerate(rows):
        edges = [i for i, c in enumerate(changes) if i == 0 or c != changes[i - 1]]
        for start, end in pairwise([*edges, len(changes)]):
            kind, label = changes[start]
            if kind:
                found.append(Span(row, kind, float(start), float(end), label))
    return found


def state(held: Mapping[str, int]) -> str:
    """One word for what a unit holds; none where it has its shard alone."""
    if "reducing" in held:
        return "reducing"
    if "whole" not in held:
        return "reducing" if "gradient" in held else "buffer" if "buffer" in held else ""
    return "gradient" if "gradient" in held else "copied" if "buffer" in held else "whole"


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))
