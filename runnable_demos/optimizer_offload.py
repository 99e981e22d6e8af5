"""What crosses the link when the optimizer lives on the host, and what does its step cost there?

The lesson is ``lessons/optimizer_offload.en.md`` (中文: ``lessons/optimizer_offload.zh.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn, optim
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runnable_demos.lab.measure import storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import typical_seconds
from runnable_demos.models.llama import Llama, Size

GPU = 11

TITLE: Text = {"zh": "优化器卸载", "en": "Optimizer offload"}
QUESTION: Text = {
    "zh": "优化器放在主机上，一步要过链路多少字节，结果变不变，主机上的 Adam 受什么限制？",
    "en": "With the optimizer on the host, what crosses the link, does the result change, and what bounds Adam?",
}
REQUIRES = ("bitsandbytes",)

MEASURES = """
[[method]]
kind = "exact"
how = ["一步之内经过链路的字节，除以参数个数", "bytes that cross the link in a step, per parameter"]
[method.metrics]
down = ["B/param", "ZeRO-Offload：下行（梯度）", "ZeRO-Offload: down (gradients)"]
up = ["B/param", "ZeRO-Offload：上行（权重）", "ZeRO-Offload: up (weights)"]
down_each_micro = [
  "B/param",
  "每个微批都搬，{micro_batches} 个微批：下行",
  "every micro-batch moves, {micro_batches} of them: down",
]
states_up = ["B/param", "状态搬来搬去，在卡上更新：上行", "states travel, update on the device: up"]
states_down = ["B/param", "状态搬来搬去，在卡上更新：下行", "states travel, update on the device: down"]

[[method]]
kind = "exact"
how = ["更新之前两边占的字节，除以参数个数", "bytes held on each side before the update, per parameter"]
[method.metrics]
resident_device = ["B/param", "全在卡上：卡上", "all on the device: on the device"]
offloaded_device = ["B/param", "卸载：卡上", "offloaded: on the device"]
offloaded_host = ["B/param", "卸载：主机", "offloaded: on the host"]
one_gradient_at_a_time = [
  "",
  "边算边搬时，卡上最多同时有一个参数的梯度",
  "gradients moved as they appear: at most one parameter's are on the device",
]

[[method]]
kind = "exact"
how = ["{steps} 步之后逐元素比较（CPU 的 kernel）", "compared value by value after {steps} steps (kernels of the CPU)"]
[method.metrics]
offloaded_equal = ["", "卸载与不卸载，权重逐位相等", "offloaded or not, the weights are bit-identical"]
travelling_equal = ["", "状态搬来搬去，权重也逐位相等", "with carried states, the weights are bit-identical, too"]
delayed_differs = ["", "延迟一步更新，权重就不同了", "with an update one step late, the weights differ"]

[[method]]
kind = "bounded"
how = [
  "torch 的融合 kernel 与 for 循环，{steps} 步之后主权重的最大差，除以最大的更新",
  "torch's fused kernel and its for-loop: largest difference of master weights over the largest update, {steps} steps",
]
bound = 1e-3
reason = ["两种写法的 fp32 舍入次序不同", "fp32 rounds in another order"]
[method.metrics]
fused_difference = ["", "两种 Adam 的差", "difference between the two Adams"]

[[method]]
kind = "exact"
how = [
  "优化器派发的每个算子：参与的张量、被它改动的张量和新结果的字节，除以参数个数",
  "bytes of each dispatched operation's tensors, of those it changed and of new results, per parameter",
]
[method.metrics]
touched_fused = ["B/param", "融合的 AdamW：读写", "fused AdamW: read and written"]
touched_loop = ["B/param", "for 循环的 AdamW：读写", "AdamW as a for-loop: read and written"]
touched_casts = ["B/param", "梯度转 fp32、权重转 bf16：读写", "gradient to fp32, weight to bf16: read and written"]

[[method]]
kind = "exact"
how = [
  "bitsandbytes 自己的 get_state_buffer 与 prefetch_state，CUDA 的分配与预取换成计数",
  "bitsandbytes' own get_state_buffer and prefetch_state, with CUDA's allocation and prefetch replaced by counting",
]
[method.metrics]
paged_from = ["", "从多少个元素起才分页", "values from which a tensor is paged"]
prefetched = ["B/param", "更新一个参数之前预取的状态（32 位 Adam）", "state prefetched before an update (32-bit)"]
prefetched_8bit = ["B/param", "更新一个参数之前预取的状态（8 位 Adam）", "state prefetched before an update (8-bit)"]

[[method]]
kind = "computed"
how = [
  "排出的时间表：{tokens} 个 token，{compute} TFLOP/s，链路 {link} GB/s，主机内存 {host} GB/s；{drawn} 层",
  "a schedule: {tokens} tokens, {compute} TFLOP/s, a link of {link} GB/s, host memory of {host} GB/s; {drawn} layers",
]
[method.metrics]
step_serial = ["", "一步与只有计算之比：依次做", "a step over its compute alone: one after another"]
step_overlapped = ["", "一步与只有计算之比：边算边搬边更新", "a step over its compute alone: overlapped"]
step_delayed = ["", "一步与只有计算之比：延迟一步更新", "a step over its compute alone: update one step late"]

[[method]]
kind = "measured"
how = ["256 MiB 的拷贝，20 次的中位数", "copies of 256 MiB, median of 20"]
only = "gpu"
[method.metrics]
pinned_down = ["B/s", "锁页内存，下行", "pinned memory, down"]
pinned_up = ["B/s", "锁页内存，上行", "pinned memory, up"]
pageable_down = ["B/s", "普通内存，下行", "pageable memory, down"]

[figure.lanes]
title = [
  "一步之内：卡、链路、主机各在做什么，数字是层号",
  "Within a step: what device, link and host do; numbers are layers",
]
kind = "computed"
x = {label = ["时间（一层的前向为 1）", "time (a layer's forward is 1)"]}
y = {label = ["各行", "row"]}
[figure.lanes.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
down = ["bar", "梯度下行", "gradient down"]
adam = ["bar", "主机上的 Adam", "Adam on the host"]
up = ["bar", "权重上行", "weight up"]
wait = ["bar", "卡在等", "device waits"]
[figure.lanes.places]
serial = ["依次做", "one after another"]
overlapped = ["边算边搬", "overlapped"]
delayed = ["延迟一步", "one step late"]
device = ["卡", "device"]
to_host = ["下行", "down"]
host = ["主机", "host"]
to_device = ["上行", "up"]
"""

DRAWN = 4
"""Layers in the drawing."""
GRADIENT, ADAM = 2, 28
"""Bytes a parameter: one way over the link, and touched by one pass of Adam."""


@dataclass(frozen=True)
class Config:
    """A Llama-style network in bf16, and how it is trained."""

    width: int = parameter(128, {"zh": "宽度", "en": "width"}, 32, 2048)
    layers: int = parameter(4, {"zh": "层数", "en": "layers"}, 1, 64)
    length: int = parameter(32, {"zh": "序列长度", "en": "sequence length"}, 8, 4096)
    steps: int = parameter(4, {"zh": "步数", "en": "steps"}, 2, 100)
    micro_batches: int = parameter(4, {"zh": "微批数", "en": "micro-batches"}, 1, 64)
    tokens: int = parameter(
        8192, {"zh": "时间表：一步的 token 数", "en": "schedule: tokens of a step"}, 1, 2**30
    )
    compute: int = parameter(
        400, {"zh": "时间表：实际算力，TFLOP/s", "en": "schedule: achieved TFLOP/s"}, 1, 10**6
    )
    link: int = parameter(
        64,
        {"zh": "时间表：链路单向带宽，GB/s", "en": "schedule: GB/s of the link, one way"},
        1,
        10**5,
    )
    host: int = parameter(
        300, {"zh": "时间表：主机内存带宽，GB/s", "en": "schedule: GB/s of host memory"}, 1, 10**5
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(width=32, layers=2, steps=3), "full": Config()}

# --- two sides and the link between them -----------------------------------------------------------


@dataclass(slots=True)
class Link:
    """Copies between device and host, counted."""

    device: str
    down_bytes: int = 0
    up_bytes: int = 0

    def down(self, tensor: Tensor) -> Tensor:
        """A copy in the host's memory."""
        self.down_bytes += tensor.nbytes
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.device != "cpu")
        return host.copy_(tensor)

    def up(self, tensor: Tensor, into: Tensor | None = None) -> Tensor:
        """A copy on the device, or ``into`` what is there."""
        self.up_bytes += tensor.nbytes
        if into is None:
            into = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        return into.copy_(tensor)


def adamw(master: Tensor, fused: bool = True) -> optim.AdamW:
    """AdamW for one tensor, as offloading uses it: an optimizer for each, so that each can step by itself."""
    return optim.AdamW([master], lr=1e-3, fused=fused, foreach=False)


@dataclass(slots=True)
class Owner:
    """What one parameter's update needs, on whichever side: fp32 weight and the two moments."""

    master: nn.Parameter
    optimizer: optim.AdamW
    gradient: Tensor | None = None

    @staticmethod
    def of(weight: Tensor) -> Owner:
        """The owner of a 16-bit weight, on its side."""
        master = nn.Parameter(weight.detach().float())
        return Owner(master, adamw(master))

    def update(self) -> Tensor:
        """A step with the gradient at hand; the new weight in 16 bits."""
        assert self.gradient is not None
        self.master.grad = self.gradient.float()
        self.optimizer.step()
        self.master.grad = None
        return self.master.detach().to(torch.bfloat16)

    def states(self) -> list[Tensor]:
        """Master weight and moments."""
        held = self.optimizer.state[self.master].values()
        return [self.master.detach(), *(t for t in held if isinstance(t, Tensor) and t.dim())]


@dataclass(slots=True)
class Offload:
    """ZeRO-Offload on one device: gradients go down as they appear, the host updates, weights come up."""

    model: nn.Module
    link: Link
    owners: dict[nn.Parameter, Owner] = field(default_factory=dict)
    most_gradients: int = 0
    """Bytes of gradients that the device held at most."""

    def __post_init__(self) -> None:
        for p in self.model.parameters():
            self.owners[p] = Owner.of(self.link.down(p.detach()))
            p.register_post_accumulate_grad_hook(self.take)
        self.link.down_bytes = 0

    # --8<-- [start:gradients-down]
    def take(self, p: Tensor) -> None:
        """The gradient of ``p`` moves to the host, where those of several micro-batches are added."""
        here = [q.grad for q in self.model.parameters() if q.grad is not None]
        self.most_gradients = max(self.most_gradients, storage_bytes(here))
        assert p.grad is not None and isinstance(p, nn.Parameter)
        owner, fresh = self.owners[p], self.link.down(p.grad)
        owner.gradient = fresh if owner.gradient is None else owner.gradient + fresh
        p.grad = None

    # --8<-- [end:gradients-down]

    # --8<-- [start:weights-up]
    def step(self) -> None:
        """All updates on the host, and the new weights up."""
        for p, owner in self.owners.items():
            self.link.up(owner.update(), into=p.data)
            owner.gradient = None

    # --8<-- [end:weights-up]

    def host_bytes(self) -> int:
        """What the host holds before an update."""
        held = [[o.states(), o.gradient] for o in self.owners.values()]
        return storage_bytes(held)


def network(config: Config) -> Llama:
    """The same weights at every call."""
    torch.manual_seed(config.seed)
    size = Size(h=config.width, f=3 * config.width, L=config.layers, a=2, g=1, V=4 * config.width)
    return Llama(size).to(config.device)


def losses(config: Config, model: Llama, number: int) -> Iterator[Tensor]:
    """Of ``number`` batches, which are the same at every call."""
    draw = torch.Generator().manual_seed(config.seed + 1)
    for _ in range(number):
        tokens = torch.randint(model.size.V, (2, config.length + 1), generator=draw)
        tokens = tokens.to(config.device)
        yield model(tokens[:, :-1], tokens[:, 1:])


def flat(model: nn.Module) -> Tensor:
    """All weights in a row."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# --- four ways to train ----------------------------------------------------------------------------


def resident(config: Config) -> tuple[Tensor, int]:
    """All states on the device: the weights after training, and bytes before the last update."""
    model = network(config)
    owners = {p: Owner.of(p) for p in model.parameters()}
    held = 0
    for loss in losses(config, model, config.steps):
        loss.backward()
        held = storage_bytes([[p, p.grad, owners[p].states()] for p in owners])
        for p, owner in owners.items():
            owner.gradient, p.grad = p.grad, None
            p.data.copy_(owner.update())
            owner.gradient = None
    return flat(model), held


def offloaded(config: Config, *, late: bool = False) -> tuple[Tensor, Offload, int, int]:
    """ZeRO-Offload: weights, both sides after the last step, and their bytes before its update.

    ``late``: the update of a step reaches the device after the next step's backward.
    """
    model = network(config)
    sides = Offload(model, Link(config.device))
    device = host = 0
    waiting: dict[nn.Parameter, Tensor | None] = {}
    for loss in losses(config, model, config.steps):
        sides.link.down_bytes = sides.link.up_bytes = 0
        loss.backward()
        device = storage_bytes(list(model.parameters()))
        host = sides.host_bytes()
        if late:
            fresh = {p: owner.gradient for p, owner in sides.owners.items()}
            for p, owner in sides.owners.items():
                owner.gradient = waiting.get(p)
                if owner.gradient is not None:
                    sides.link.up(owner.update(), into=p.data)
                owner.gradient = None
            waiting = fresh
        else:
            sides.step()
    return flat(model), sides, device, host


def travelling(config: Config) -> tuple[Tensor, Link]:
    """States rest on the host, and go up for an update on the device, and back."""
    model, link = network(config), Link(config.device)
    owners = {p: Owner.of(p) for p in model.parameters()}
    resting: dict[nn.Parameter, list[Tensor]] = {}
    for loss in losses(config, model, config.steps):
        link.down_bytes = link.up_bytes = 0
        loss.backward()
        for p, owner in owners.items():
            for state, rest in zip(owner.states(), resting.get(p, []), strict=False):
                link.up(rest, into=state)
            owner.gradient, p.grad = p.grad, None
            p.data.copy_(owner.update())
            resting[p] = [link.down(state) for state in owner.states()]
            for state in owner.states():
                state.zero_()  # what is left here is not used
    return flat(model), link


def each_micro_batch(config: Config) -> int:
    """Bytes down where every micro-batch's gradients move, of one step."""
    model = network(config)
    sides = Offload(model, Link(config.device))
    for loss in losses(config, model, config.micro_batches):
        loss.backward()
    sides.step()
    return sides.link.down_bytes


# --- what Adam touches -----------------------------------------------------------------------------


class Traffic(TorchDispatchMode):
    """Bytes that operations read and write: all arguments, what they change of them, and new results."""

    touched = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # --8<-- [start:touch]
        given = {id(t): t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.dim()}
        before = [(t, t.clone()) for t in given.values()]
        result = func(*args, **(kwargs or {}))
        self.touched += sum(t.nbytes for t in given.values())
        self.touched += sum(t.nbytes for t, old in before if not torch.equal(t, old))
        fresh = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.dim()]
        self.touched += sum(t.nbytes for t in fresh if id(t) not in given)
        return result
        # --8<-- [end:touch]


def touched(values: int, *, fused: bool) -> float:
    """Bytes a parameter that a step of AdamW reads and writes; the states exist already."""
    master = nn.Parameter(torch.ones(values))
    optimizer = adamw(master, fused)
    master.grad = torch.full((values,), 1e-6)  # so small that ε, too, changes what it is added to
    optimizer.step()
    traffic = Traffic()  # type: ignore[no-untyped-call]
    with traffic:
        optimizer.step()
    return float(traffic.touched / values)


def touched_casts(values: int) -> float:
    """The same for the gradient's cast to fp32 and the weight's to bf16."""
    gradient, master = torch.ones(values, dtype=torch.bfloat16), torch.ones(values)
    traffic = Traffic()  # type: ignore[no-untyped-call]
    with traffic:
        _ = gradient.float(), master.to(torch.bfloat16)
    return float(traffic.touched / values)


def two_adams(config: Config) -> float:
    """How far the fused kernel and the for-loop part, over the largest update."""
    draw = torch.Generator().manual_seed(config.seed)
    start = torch.randn(2**14, generator=draw)
    ends = []
    gradients = [torch.randn(2**14, generator=draw) for _ in range(config.steps)]
    for fused in (True, False):
        master = nn.Parameter(start.clone())
        optimizer = adamw(master, fused)
        for gradient in gradients:
            master.grad = gradient
            optimizer.step()
        ends.append(master.detach())
    return float((ends[0] - ends[1]).abs().max() / (ends[1] - start).abs().max())


# --- paged optimizers ------------------------------------------------------------------------------


def paged_rules() -> tuple[int, float, float]:
    """From how many values bitsandbytes pages a state, and bytes a parameter that it prefetches before an update."""
    from bitsandbytes import functional  # noqa: PLC0415 - slow to import, and optional
    from bitsandbytes.optim.optimizer import Optimizer2State  # noqa: PLC0415

    rules: Any = Optimizer2State  # called on a stand-in that is no optimizer
    paged: list[Tensor] = []
    prefetched: list[int] = []

    def get_paged(*shape: int, dtype: torch.dtype, **_: object) -> Tensor:
        paged.append(torch.empty(shape, dtype=dtype, device="meta"))
        paged[-1].is_paged = True  # type: ignore[attr-defined]
        return paged[-1]

    counted = {
        "get_paged": get_paged,
        "fill": lambda *_: None,
        "prefetch_tensor": lambda t, *_: prefetched.append(t.nbytes),
    }
    real = {name: getattr(functional, name) for name in counted}
    vars(functional).update(counted)
    try:
        manager = SimpleNamespace(paged_tensors=[])
        owner = SimpleNamespace(is_paged=True, page_mng=manager, state={})
        low, high = 1, 2**20  # not paged, and paged
        while high - low > 1:
            middle, before = (low + high) // 2, len(paged)
            rules.get_state_buffer(owner, torch.empty(middle, device="meta"))
            low, high = (low, middle) if len(paged) > before else (middle, high)
        shares = []
        for dtype in (torch.float32, torch.uint8):
            prefetched.clear()
            weight = torch.empty(2**20, device="meta")
            owner.state[weight] = {
                f"state{i}": rules.get_state_buffer(owner, weight, dtype=dtype) for i in (1, 2)
            }
            rules.prefetch_state(owner, weight)
            shares.append(sum(prefetched) / weight.numel())
    finally:
        vars(functional).update(real)
    return high, shares[0], shares[1]


# --- the schedule ----------------------------------------------------------------------------------

Way = Literal["serial", "overlapped", "delayed"]


def durations(config: Config) -> tuple[float, float]:
    """A copy over the link and Adam on the host, of a layer, in units of its forward of 2 FLOPs a parameter a token."""
    forward = 2 * config.tokens / (config.compute * 1e12)
    return GRADIENT / (config.link * 1e9) / forward, ADAM / (config.host * 1e9) / forward


def schedule(way: Way, copy: float, adam: float, layers: int = DRAWN) -> dict[str, list[Span]]:
    """A step's spans on device, link down, host and link up; the last layer's gradient comes first.

    ``delayed`` is a step in steady state: the host works on the gradients of the step before, and the new
    weights wait in a second buffer until the step ends.
    """
    lanes: dict[str, list[Span]] = {"device": [], "to_host": [], "host": [], "to_device": []}
    free = dict.fromkeys(lanes, 0.0)

    def put(lane: str, kind: str, layer: int, start: float, lasts: float) -> float:
        begin = max(start, free[lane])
        lanes[lane].append(Span(0, kind, begin, begin + lasts, str(layer)))
        free[lane] = begin + lasts
        return free[lane]

    order = range(layers, 0, -1)
    for i in range(1, layers + 1):
        put("device", "forward", i, 0.0, 1.0)
    done = {i: put("device", "backward", i, 0.0, 2.0) for i in order}
    end = free["device"]
    for i in order:
        down = put("to_host", "down", i, end if way == "serial" else done[i], copy)
        if way == "serial" and i > 1:
            continue
        for j in order if way == "serial" else (i,):
            put("host", "adam", j, 0.0 if way == "delayed" else down, adam)
    updated = {int(span.label): span.end for span in lanes["host"]}
    for i in order:
        put("to_device", "up", i, max(updated.values()) if way == "serial" else updated[i], copy)
    if (last := max(free["to_device"], free["host"])) > end and way != "delayed":
        lanes["device"].append(Span(0, "wait", end, last))
    return lanes


def draw_lanes(config: Config, found: Mechanisms) -> None:
    """Three ways, each with a heading and four rows, and what its step takes."""
    spans: list[Span] = []
    rows: list[str] = []
    ways: Iterable[Way] = ("serial", "overlapped", "delayed")
    for way in ways:
        lanes = schedule(way, *durations(config))
        rows.append(way)
        for name, own in lanes.items():
            spans += [replace(span, row=len(rows)) for span in own]
            rows.append(name)
        busy = {name: sum(s.end - s.start for s in own) for name, own in lanes.items()}
        end = max(own[-1].end for own in lanes.values())
        took = max(busy.values()) if way == "delayed" else end
        found[f"step_{way}"] = took / (3 * DRAWN)
    found.lanes("lanes", spans, rows)


def bandwidths(config: Config, found: Mechanisms) -> None:
    """On a GPU: how fast the link is."""
    there = torch.empty(2**28, dtype=torch.uint8, device=config.device)
    pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    pageable = torch.empty(2**28, dtype=torch.uint8)
    for name, to, source in (
        ("pinned_down", pinned, there),
        ("pinned_up", there, pinned),
        ("pageable_down", pageable, there),
    ):
        copy = partial(to.copy_, source, non_blocking=True)
        found[name] = 2**28 / typical_seconds(copy, config.device)


def run(config: Config, progress: Progress) -> Result:
    """Train four ways, then count what Adam touches and run the rules of paging."""
    found = Mechanisms(MEASURES, config, drawn=DRAWN)
    weights, held = resident(config)
    parameters = weights.numel()
    progress(0.2, "offload")
    same, sides, device, host = offloaded(config)
    found["down"] = sides.link.down_bytes / parameters
    found["up"] = sides.link.up_bytes / parameters
    found["resident_device"] = held / parameters
    found["offloaded_device"] = device / parameters
    found["offloaded_host"] = host / parameters
    largest = max(p.nbytes for p in sides.owners)
    found["one_gradient_at_a_time"] = sides.most_gradients == largest
    found["offloaded_equal"] = torch.equal(same, weights)
    progress(0.4, "states that travel")
    same, link = travelling(config)
    found["states_up"], found["states_down"] = (
        link.up_bytes / parameters,
        link.down_bytes / parameters,
    )
    found["travelling_equal"] = torch.equal(same, weights)
    found["delayed_differs"] = not torch.equal(offloaded(config, late=True)[0], weights)
    found["down_each_micro"] = each_micro_batch(config) / parameters
    progress(0.7, "what Adam touches")
    found["fused_difference"] = two_adams(config)
    found["touched_fused"] = touched(2**16, fused=True)
    found["touched_loop"] = touched(2**16, fused=False)
    found["touched_casts"] = touched_casts(2**16)
    progress(0.8, "paged optimizers")
    found["paged_from"], found["prefetched"], found["prefetched_8bit"] = paged_rules()
    draw_lanes(config, found)
    if config.device != "cpu":
        bandwidths(config, found)
    progress(1.0, "done")
    return found.result()
