"""What does LoRA take out of training memory, what stays, and what does QLoRA take out beyond it?

The lesson is ``lessons/lora_memory.en.md`` (中文: ``lessons/lora_memory.zh.md``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import LiveMemory, fake, saved_tensors, storage_bytes
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import Llama, LlamaBlock, Size, Variant, rotary

REQUIRES = ("bitsandbytes",)
TITLE: Text = {"zh": "LoRA 与 QLoRA 的显存", "en": "LoRA and QLoRA memory"}
QUESTION: Text = {
    "zh": "LoRA 让哪些显存消失、哪些留下？四比特的基座究竟多少字节？",
    "en": "Which memory does LoRA save, which stays, and how many bytes does a four-bit base take?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "Llama 3 8B 形状的一层，{tokens} 个 token，bf16，伪张量；图里保存的字节，每个存储块只计一次，不含参数",
  "a layer with the widths of Llama 3 8B, {tokens} tokens, bf16, fake tensors; bytes saved in the graph, each storage counted once, without parameters",
]
[method.metrics]
layer_full = ["B", "一层存的激活：全参", "a layer saves: all weights trained"]
layer_frozen = ["B", "一层存的激活：全部冻结，梯度只是穿过", "a layer saves: all weights frozen, a gradient passes through"]
layer_qv = ["B", "一层存的激活：LoRA 挂在 q 和 v 上", "a layer saves: LoRA on q and v"]
layer_all = ["B", "一层存的激活：LoRA 挂在全部 Linear 上", "a layer saves: LoRA on every Linear"]
layer_fp32 = ["B", "一层存的激活：LoRA 挂在全部 Linear 上，旁路 fp32，没有 autocast", "a layer saves: LoRA on every Linear, adapters in fp32, no autocast"]
layer_autocast = ["B", "一层存的激活：LoRA 挂在全部 Linear 上，旁路 fp32，autocast", "a layer saves: LoRA on every Linear, adapters in fp32, autocast"]
layer_dropout = ["B", "一层存的激活：LoRA 挂在全部 Linear 上，带 dropout", "a layer saves: LoRA on every Linear, with dropout"]
layer_first = ["B", "一层存的激活：前面没有可训练的参数，全部冻结，输入不要梯度", "a layer saves: all frozen, nothing trained before it, input needs no gradient"]

[[method]]
kind = "exact"
how = [
  "小 Llama 的第二步，全用 fp32，AdamW，秩 {rank} 的旁路挂在全部 Linear 上；存活的存储块",
  "second step of a small Llama, fp32 throughout, AdamW, adapters of rank {rank} on every Linear; live storages",
]
[method.metrics]
full_weights = ["B", "全参：权重", "all trained: weights"]
full_gradients = ["B", "全参：梯度", "all trained: gradients"]
full_optimizer = ["B", "全参：优化器状态", "all trained: optimizer states"]
full_activations = ["B", "全参：保存的激活", "all trained: saved activations"]
lora_weights = ["B", "LoRA：权重", "LoRA: weights"]
lora_gradients = ["B", "LoRA：梯度", "LoRA: gradients"]
lora_optimizer = ["B", "LoRA：优化器状态", "LoRA: optimizer states"]
lora_activations = ["B", "LoRA：保存的激活", "LoRA: saved activations"]
qlora_weights = ["B", "QLoRA：权重", "QLoRA: weights"]
qlora_gradients = ["B", "QLoRA：梯度", "QLoRA: gradients"]
qlora_optimizer = ["B", "QLoRA：优化器状态", "QLoRA: optimizer states"]
qlora_activations = ["B", "QLoRA：保存的激活", "QLoRA: saved activations"]

[[method]]
kind = "exact"
how = ["同一次运行里数出的参数与字节", "parameters and bytes counted in the same run"]
[method.metrics]
trained_share = ["", "LoRA 训练的参数占全部参数的比例", "parameters that LoRA trains, as a share of all"]
adapter_parameters = ["", "LoRA 训练的参数个数", "parameters that LoRA trains"]
adapter_states = ["B/param", "旁路：权重、梯度、Adam 两个矩，fp32", "an adapter: weights, gradients and Adam's two moments, fp32"]

[[method]]
kind = "exact"
how = [
  "bitsandbytes 的 quantize_4bit，{nf4_side} × {nf4_side} 的 bf16 矩阵，块长 64；结果与 QuantState 里的全部存储块",
  "quantize_4bit of bitsandbytes on a bf16 matrix of {nf4_side} × {nf4_side}, blocks of 64; all storages of the result and its QuantState",
]
[method.metrics]
nf4 = ["B/param", "NF4，不做双重量化", "NF4 without double quantization"]
nf4_double = ["B/param", "NF4，双重量化", "NF4 with double quantization"]
nf4_levels = ["", "NF4 的取值个数", "number of NF4 values"]

[[method]]
kind = "exact"
how = [
  "bitsandbytes 的 Linear4bit，宽 {width} 到四倍宽，bf16，CPU；一次前向与反向",
  "Linear4bit of bitsandbytes, from width {width} to four times that, bf16, CPU; one forward and backward",
]
[method.metrics]
linear4bit_saves_input = ["", "Linear4bit 为反向保存了输入", "Linear4bit saves its input for the backward"]
dequantized_again = ["", "Linear4bit 的反向临时多占多少份 16 位权重", "temporary 16-bit copies of the weight in the backward of Linear4bit"]
linear4bit_weight_frozen = ["", "Linear4bit 的权重没有梯度", "the weight of Linear4bit gets no gradient"]

[[method]]
kind = "exact"
how = ["小 Llama 的两层，torch.utils.checkpoint", "two layers of a small Llama, torch.utils.checkpoint"]
[method.metrics]
reentrant_loses_gradients = ["", "可重入检查点，输入不要梯度：旁路没有梯度", "reentrant checkpoints, input needs no gradient: adapters get no gradient"]
non_reentrant_keeps_gradients = ["", "不可重入检查点：旁路有梯度", "non-reentrant checkpoints: adapters get gradients"]

[[method]]
kind = "exact"
how = ["一个宽 {width} 的 Linear 与它的旁路，fp32", "a Linear of width {width} with its adapter, fp32"]
[method.metrics]
starts_at_base = ["", "B 为零时，输出与基座逐位相等", "with B zero, the output is bit-identical to the base's"]
merged_error_small = ["", "合并进基座之后，输出在舍入范围内相等", "after merging into the base, outputs agree to rounding"]

[figure.held]
title = ["小 Llama 的第二步：反向开始时与更新时的显存", "Second step of a small Llama: memory at the start of the backward and at the update"]
x = {label = ["做法与时刻", "method and moment"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.held.series]
weights = ["bar", "权重", "weights"]
optimizer = ["bar", "优化器状态", "optimizer states"]
gradients = ["bar", "梯度", "gradients"]
activations = ["bar", "激活", "activations"]
[figure.held.places]
full_start = ["全参，反向", "full, start"]
full_update = ["全参，更新", "full, update"]
lora_start = ["LoRA，反向", "LoRA, start"]
lora_update = ["LoRA，更新", "LoRA, update"]
qlora_start = ["QLoRA，反向", "QLoRA, start"]
qlora_update = ["QLoRA，更新", "QLoRA, update"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A real layer on fake tensors, a small model on real ones."""

    tokens: int = parameter(
        8192, {"zh": "一层的 token 数", "en": "tokens of the layer"}, 16, 131072
    )
    hidden: int = parameter(4096, {"zh": "一层的宽度", "en": "width of the layer"}, 64, 16384)
    rank: int = parameter(16, {"zh": "秩 r", "en": "rank r"}, 1, 512)
    width: int = parameter(256, {"zh": "小模型的宽度", "en": "width of the small model"}, 64, 4096)
    layers: int = parameter(4, {"zh": "小模型的层数", "en": "layers of the small model"}, 2, 64)
    length: int = parameter(
        256, {"zh": "小模型的序列长度", "en": "length of its sequence"}, 8, 8192
    )
    nf4_side: int = parameter(
        2048, {"zh": "NF4 矩阵的边长", "en": "side of the NF4 matrix"}, 256, 8192
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(tokens=64, hidden=256, rank=4, width=64, layers=2, length=32, nf4_side=512),
    "full": Config(),
}
ALL = ("q", "k", "v", "o", "gate", "up", "down")
QV = ("q", "v")
VOCABULARY = 512


def size_of(width: int, layers: int = 1) -> Size:
    """The proportions of Llama 3 8B: feed-forward 3.5 h, a key-value head for four heads."""
    return Size(h=width, f=width * 7 // 2, L=layers, a=32, g=8, V=VOCABULARY)


# --- LoRA ----------------------------------------------------------------------------------------


class LoRA(nn.Module):
    """A frozen ``base`` and ``B A x`` beside it, as PEFT runs it: the input cast to the adapter's dtype.

    ``A`` is random and ``B`` zero, so that training starts at the base. The output goes back to the base's dtype.
    """

    def __init__(
        self, base: nn.Module, shape: tuple[int, int], rank: int, dtype: torch.dtype, dropout: float
    ) -> None:
        super().__init__()
        out, into = shape
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, into, dtype=dtype) / into**0.5)
        self.B = nn.Parameter(torch.zeros(out, rank, dtype=dtype))
        self.scale, self.dropout = 2.0, dropout

    # --8<-- [start:adapter]
    def forward(self, x: Tensor) -> Tensor:
        """``(…, into)`` to ``(…, out)``."""
        y: Tensor = self.base(x)
        x = x.to(self.A.dtype)
        if self.dropout:
            x = torch.native_dropout(x, self.dropout, True)[0]
        return (y + F.linear(F.linear(x, self.A), self.B) * self.scale).to(y.dtype)

    # --8<-- [end:adapter]


Wrap = Callable[[nn.Linear], nn.Module]


def replace_linears(module: nn.Module, names: Iterable[str], wrap: Wrap) -> None:
    """Put ``wrap(linear)`` in place of each Linear whose name is among ``names``."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, wrap(child))


def with_lora(
    module: nn.Module,
    rank: int,
    names: Iterable[str] = ALL,
    dtype: torch.dtype | None = None,
    dropout: float = 0.0,
    quantize: Wrap | None = None,
) -> nn.Module:
    """Freeze ``module``, and put adapters beside the Linears in ``names``, which ``quantize`` may replace."""
    module.requires_grad_(False)

    def wrap(linear: nn.Linear) -> nn.Module:
        shape = (linear.out_features, linear.in_features)
        base = quantize(linear) if quantize else linear
        return LoRA(base, shape, rank, dtype or linear.weight.dtype, dropout)

    replace_linears(module, names, wrap)
    return module


def four_bits(linear: nn.Linear) -> nn.Module:
    """The same weight in NF4 with double quantization, by bitsandbytes."""
    bnb = import_module("bitsandbytes.nn")
    made: nn.Module = bnb.Linear4bit(
        linear.in_features,
        linear.out_features,
        bias=False,
        compute_dtype=linear.weight.dtype,
        quant_type="nf4",
        device="meta",
    )
    made.weight = bnb.Params4bit(
        linear.weight.detach().clone(), requires_grad=False, quant_type="nf4", module=made
    ).to(linear.weight.device)
    return made


# --- what a layer saves --------------------------------------------------------------------------


def layer_bytes(
    config: Config,
    train: Callable[[nn.Module], object],
    *,
    autocast: bool = False,
    needs: bool = True,
) -> int:
    """What the graph of one layer holds after ``train`` has said what is trained."""
    # --8<-- [start:layer]
    size = size_of(config.hidden)
    with fake():
        block = LlamaBlock(size, Variant())
        train(block)
        x = torch.zeros(1, config.tokens, size.h, dtype=torch.bfloat16, requires_grad=needs) * 1.0
        tables = rotary(config.tokens, size.h // size.a, torch.bfloat16)
        how = (
            torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
            if autocast
            else nullcontext()
        )
        with how, saved_tensors(exclude=[*block.parameters(), *tables]) as saved:
            block(x, *tables)
        return saved.bytes
    # --8<-- [end:layer]


def add_layer(config: Config, found: Findings) -> None:
    """One layer, trained in eight ways."""
    lora = partial(with_lora, rank=config.rank)
    fp32 = partial(lora, dtype=torch.float32)
    freeze = lambda block: block.requires_grad_(False)  # noqa: E731
    found["layer_full"] = layer_bytes(config, lambda _: None)
    found["layer_frozen"] = layer_bytes(config, freeze)
    found["layer_qv"] = layer_bytes(config, partial(lora, names=QV))
    found["layer_all"] = layer_bytes(config, lora)
    found["layer_fp32"] = layer_bytes(config, fp32)
    found["layer_autocast"] = layer_bytes(config, fp32, autocast=True)
    found["layer_dropout"] = layer_bytes(config, partial(lora, dropout=0.05))
    found["layer_first"] = layer_bytes(config, freeze, needs=False)


# --- a step of a small model ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a step: states, and what the graph holds as the backward starts."""

    weights: int
    gradients: int
    optimizer: int
    activations: int


def frozen_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Every tensor that the weights are made of, with the scales and tables of quantized ones."""
    for parameter_ in model.parameters():
        yield parameter_
        state: Any = getattr(parameter_, "quant_state", None)
        while state is not None:
            yield from (t for t in (state.absmax, state.code, state.offset) if t is not None)
            state = state.state2


def second_step(model: nn.Module, config: Config) -> Held:
    """Two steps of AdamW; what is there in the second."""
    # --8<-- [start:two-steps]
    tokens = torch.randint(VOCABULARY, (1, config.length + 1))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    for _ in range(2):
        optimizer.zero_grad()
        with saved_tensors(exclude=list(frozen_tensors(model))) as saved:
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        gradients = storage_bytes([p.grad for p in model.parameters()])
        optimizer.step()
    # The vocabulary's logits, in fp32, are no part of the layers; they are the same for all.
    return Held(
        storage_bytes(list(frozen_tensors(model))),
        gradients,
        storage_bytes(list(optimizer.state.values())),
        saved.bytes,
    )
    # --8<-- [end:two-steps]


Way = Literal["full", "lora", "qlora"]


def build(way: Way, config: Config) -> nn.Module:
    """The small model in fp32, to be trained in one of three ways; the seed makes it the same in each."""
    torch.manual_seed(config.seed)
    model = Llama(size_of(config.width, config.layers), Variant(dtype=torch.float32))
    if way == "full":
        return model
    return with_lora(model, config.rank, quantize=four_bits if way == "qlora" else None)


def add_steps(config: Config, found: Findings) -> None:
    """Three ways, and the figure: what is there at two moments, which are not added."""
    columns: list[dict[str, int]] = []
    places: list[str] = []
    ways: tuple[Way, ...] = ("full", "lora", "qlora")
    for way in ways:
        model = build(way, config)
        held = second_step(model, config)
        for part in ("weights", "gradients", "optimizer", "activations"):
            found[f"{way}_{part}"] = getattr(held, part)
        start = {"weights": held.weights, "optimizer": held.optimizer}
        for moment, parts in (
            ("start", start | {"activations": held.activations}),
            ("update", start | {"gradients": held.gradients}),
        ):
            columns.append(parts)
            places.append(f"{way}_{moment}")
        if way == "lora":
            trained = [p for p in model.parameters() if p.requires_grad]
            number = sum(p.numel() for p in trained)
            found["adapter_parameters"] = number
            found["trained_share"] = number / sum(p.numel() for p in model.parameters())
            counters = 4 * len(trained)  # Adam's step, a number for each tensor
            states = storage_bytes(trained) + held.gradients + held.optimizer - counters
            found["adapter_states"] = states / number
    stack = ("weights", "optimizer", "gradients", "activations")
    found.draw(
        "held",
        *(Line(kind, range(6), [parts.get(kind, 0) for parts in columns]) for kind in stack),
        places=places,
    )


# --- four bits -----------------------------------------------------------------------------------


def nf4_bytes(side: int, *, double: bool) -> float:
    """Bytes a weight of a matrix that bitsandbytes quantizes, everything counted that it keeps."""
    bf = import_module("bitsandbytes.functional")
    weight = torch.randn(side, side, dtype=torch.bfloat16)
    packed, state = bf.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
    kept = [packed, state.absmax, state.code]
    if double:
        kept += [state.offset, state.state2.absmax, state.state2.code]
    return storage_bytes(kept) / weight.numel()


def add_four_bits(config: Config, found: Findings) -> None:
    """Bytes of NF4, and what its Linear saves and takes."""
    bf = import_module("bitsandbytes.functional")
    found["nf4"] = nf4_bytes(config.nf4_side, double=False)
    found["nf4_double"] = nf4_bytes(config.nf4_side, double=True)
    found["nf4_levels"] = len(set(bf.get_4bit_type("nf4", device="cpu").tolist()))

    linear = nn.Linear(config.width, 4 * config.width, bias=False, dtype=torch.bfloat16)
    layer = four_bits(linear)
    x = torch.randn(8, config.width, dtype=torch.bfloat16, requires_grad=True) * 1.0
    with saved_tensors(exclude=list(frozen_tensors(layer))) as saved:
        y = layer(x)
    found["linear4bit_saves_input"] = saved.bytes > 0
    start = torch.ones_like(y)
    with LiveMemory() as memory:
        y.backward(start)
    found["dequantized_again"] = memory.peak // linear.weight.nbytes
    found["linear4bit_weight_frozen"] = next(layer.parameters()).grad is None


# --- traps ---------------------------------------------------------------------------------------


def reaches_adapters(config: Config, *, reentrant: bool) -> bool:
    """Whether a loss behind checkpoints reaches the adapters, where the input is data to the first layer."""
    size = size_of(config.width, 2)
    variant = Variant(dtype=torch.float32)
    blocks = with_lora(
        nn.ModuleList(LlamaBlock(size, variant) for _ in range(2)), config.rank
    ).requires_grad_(True)
    x = torch.randn(1, config.length, size.h)
    tables = rotary(config.length, size.h // size.a, torch.float32)
    for block in blocks.children():
        x = checkpoint(block, x, *tables, use_reentrant=reentrant, preserve_rng_state=False)
    if not x.requires_grad:
        return False
    x.sum().backward()
    return all(p.grad is not None for n, p in blocks.named_parameters() if n.endswith((".A", ".B")))


def add_traps(config: Config, found: Findings) -> None:
    """Checkpoints that lose gradients; where LoRA starts, and where it ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of just this
        found["reentrant_loses_gradients"] = not reaches_adapters(config, reentrant=True)
    found["non_reentrant_keeps_gradients"] = reaches_adapters(config, reentrant=False)
    base = nn.Linear(config.width, config.width, bias=False)
    layer = LoRA(base, (config.width, config.width), config.rank, torch.float32, 0.0)
    x = torch.randn(8, config.width)
    found["starts_at_base"] = torch.equal(layer(x), base(x))
    nn.init.normal_(layer.B)
    with torch.no_grad():
        wanted = layer(x)
        base.weight += layer.scale * layer.B @ layer.A
        found["merged_error_small"] = torch.allclose(base(x), wanted, rtol=1e-4, atol=1e-4)


def run(config: Config, progress: Progress) -> Result:
    """A layer, a model, four bits, traps."""
    found = Findings(MEASURES, config)
    progress(0.0, "a layer")
    add_layer(config, found)
    progress(0.3, "a small model")
    add_steps(config, found)
    progress(0.7, "four bits")
    add_four_bits(config, found)
    progress(0.9, "traps")
    add_traps(config, found)
    progress(1.0, "")
    return found.result()
