"""Which models lie in memory when, over a step of PPO, GRPO and DPO?

The lesson is ``lessons/rlhf_memory.en.md`` (中文: ``lessons/rlhf_memory.zh.md``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory, storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import Llama, Size, rotary, rotate

TITLE: Text = {
    "zh": "RLHF 的显存：哪个模型什么时候在卡上",
    "en": "RLHF memory: which model is resident when",
}
QUESTION: Text = {
    "zh": "PPO、GRPO、DPO 的一步里，哪些模型必须同时在显存里？",
    "en": "Over a step of PPO, GRPO and DPO, which models have to be in memory at the same time?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "PPO 一步，全部驻留：该模型自己的存储的字节，除以它自己的参数个数",
  "a step of PPO, all resident: bytes of a model's own storages, divided by its own parameters",
]
[method.metrics]
trained_states = ["B/param", "训练中的模型，更新前", "a model in training, before its update"]
waiting_states = ["B/param", "要训练、正在等候的模型", "a model to be trained, waiting for its turn"]
frozen_states = ["B/param", "只做前向的模型", "a model that only runs forward"]

[[method]]
kind = "exact"
how = [
  "各模型的字节除以各自的参数个数，再相加；一步之中最满的时刻；不含 KV 缓存、激活与样本",
  "bytes of each model divided by its own parameters, added up; fullest moment of a step; without KV cache, activations and samples",
]
[method.metrics]
ppo_resident = ["B/param", "PPO，全部驻留", "PPO, all resident"]
ppo_rollout_resident = ["B/param", "PPO，全部驻留，rollout 时", "PPO, all resident, during the rollout"]
ppo_offloaded = ["B/param", "PPO，把不用的搬走", "PPO, idle models moved away"]
ppo_rollout_offloaded = ["B/param", "PPO，把不用的搬走，rollout 时", "PPO, idle models moved away, during the rollout"]
grpo_resident = ["B/param", "GRPO，全部驻留", "GRPO, all resident"]
grpo_without_reference = ["B/param", "GRPO，KL 系数为零，全部驻留", "GRPO without a KL term, all resident"]
grpo_offloaded = ["B/param", "GRPO，把不用的搬走", "GRPO, idle models moved away"]
dpo_resident = ["B/param", "DPO，参考模型也在卡上", "DPO, reference on the GPU"]
dpo_precomputed = ["B/param", "DPO，参考模型的对数概率预先算好", "DPO, the reference's log-probs computed beforehand"]
dpo_lora = ["B/param", "DPO 加 LoRA，参考模型就是关掉适配器的底座", "DPO with LoRA; the reference is the base without its adapters"]

[[method]]
kind = "exact"
how = [
  "PPO 与 GRPO 一步，把不用的搬走：拷到主机、拷回设备的字节，各模型除以自己的参数个数再相加",
  "a step of PPO or GRPO with idle models moved away: bytes copied to and from the host, each model's divided by its own parameters, added up",
]
[method.metrics]
ppo_moved_in = ["B/param", "PPO：搬回设备", "PPO: moved back to the device"]
ppo_moved_out = ["B/param", "PPO：搬到主机", "PPO: moved to the host"]
grpo_moved_in = ["B/param", "GRPO：搬回设备", "GRPO: moved back to the device"]
grpo_moved_out = ["B/param", "GRPO：搬到主机", "GRPO: moved to the host"]

[[method]]
kind = "exact"
how = [
  "rollout 结束时这些张量的存储的字节，除以 token 数（含提示）",
  "bytes of the storages of these tensors at the end of a rollout, divided by tokens, prompts included",
]
[method.metrics]
kv_per_token = ["B/token", "KV 缓存，bf16", "KV cache, bf16"]
kv_per_token_layer_head = ["B", "同上，每层、每个 KV 头、每单位头宽", "the same, per layer, key-value head and unit of head width"]

[[method]]
kind = "exact"
how = [
  "PPO：从打分留到训练的张量的字节，除以 token 数：token 编号、旧对数概率、参考对数概率、价值、奖励",
  "PPO: bytes of what scoring leaves for training, divided by tokens: token ids, old and reference log-probs, values, rewards",
]
[method.metrics]
experience_per_token = ["B/token", "样本，每个 token", "samples, per token"]

[[method]]
kind = "exact"
how = ["留到训练的参考对数概率的字节，除以偏好对数", "bytes of reference log-probs kept for training, divided by pairs"]
[method.metrics]
reference_per_pair = ["B", "DPO：预先算好的参考对数概率，每对偏好", "DPO: precomputed reference log-probs, per pair"]

[[method]]
kind = "exact"
how = ["逐位比较", "compared bit by bit"]
[method.metrics]
offload_equal = ["", "搬与不搬，一步之后的权重相同", "moved away or not: the same weights after a step"]
precomputed_equal = ["", "DPO：参考对数概率现算或预先算，一步之后的权重相同", "DPO, reference log-probs computed on the fly or beforehand: the same weights after a step"]
lora_reference_equal = ["", "训练一步之后关掉适配器，输出与原模型相同", "adapters turned off after a step: the same outputs as the original model"]

[[method]]
kind = "exact"
how = [
  "每个阶段最满的时刻，LiveMemory 跟踪到的全部字节，等于各模型、KV 缓存、样本与步数计数器之和",
  "at the fullest moment of each phase, all bytes that LiveMemory tracks equal those of models, KV cache, samples and step counters",
]
[method.metrics]
ledger_closes = ["", "每个阶段的字节都对得上", "the bytes of every phase add up"]

[figure.lanes]
title = ["PPO 一步：每个模型占几个字节/参数", "A step of PPO: bytes per parameter of each model"]
x = {label = ["阶段", "phase"]}
y = {label = ["模型", "model"]}
[figure.lanes.series]
weights = ["bar", "权重", "weights"]
generating = ["bar", "权重，另有 KV 缓存", "weights, plus KV cache"]
waiting = ["bar", "权重与优化器状态", "weights and optimizer states"]
training = ["bar", "权重、优化器状态与梯度", "weights, optimizer states and gradients"]
[figure.lanes.places]
resident = ["全部驻留", "all resident"]
rollout = ["引擎", "engine"]
actor = ["actor", "actor"]
reference = ["参考", "reference"]
critic = ["critic", "critic"]
reward = ["奖励", "reward"]
offloaded = ["把不用的搬走", "idle moved away"]

[figure.peaks]
title = ["最满的一刻，各模型占的字节/参数", "Bytes per parameter of each model at the fullest moment"]
x = {label = ["算法", "algorithm"]}
y = {label = ["字节/参数", "bytes per parameter"], unit = "B/param"}
[figure.peaks.series]
actor = ["bar", "actor", "actor"]
critic = ["bar", "critic", "critic"]
reference = ["bar", "参考", "reference"]
reward = ["bar", "奖励", "reward"]
rollout = ["bar", "引擎", "engine"]
[figure.peaks.places]
ppo = ["PPO", "PPO"]
grpo = ["GRPO", "GRPO"]
dpo = ["DPO", "DPO"]
dpo_precomputed = ["DPO 预先算完", "DPO, precomputed"]
dpo_lora = ["DPO 加 LoRA", "DPO with LoRA"]
ppo_offloaded = ["PPO 搬走", "PPO, moved away"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """Llamas of ``layers`` layers; ``samples`` of ``prompt`` + ``response`` tokens."""

    layers: int = parameter(2, {"zh": "层数", "en": "layers"}, 1, 128)
    width: int = parameter(64, {"zh": "模型宽度 h", "en": "model width h"}, 16, 16384)
    heads: int = parameter(4, {"zh": "查询头数", "en": "query heads"}, 1, 128)
    kv_heads: int = parameter(2, {"zh": "KV 头数", "en": "key-value heads"}, 1, 128)
    vocabulary: int = parameter(256, {"zh": "词表大小", "en": "size of the vocabulary"}, 16, 200000)
    samples: int = parameter(4, {"zh": "样本数", "en": "samples"}, 2, 512)
    prompt: int = parameter(8, {"zh": "提示的 token 数", "en": "tokens per prompt"}, 1, 65536)
    response: int = parameter(24, {"zh": "回答的 token 数", "en": "tokens per response"}, 1, 65536)
    rank: int = parameter(4, {"zh": "LoRA 的秩", "en": "rank of LoRA"}, 1, 256)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=1, width=32, response=8), "full": Config()}


# --- models --------------------------------------------------------------------------------------


def build(config: Config, scalar: bool = False) -> Llama:
    """A Llama in bf16; with ``scalar`` its head gives one number a token."""
    h = config.width
    model = Llama(Size(h, 2 * h, config.layers, config.heads, config.kv_heads, config.vocabulary))
    if scalar:
        model.head = nn.Linear(h, 1, bias=False, dtype=torch.bfloat16)
    return model.to(config.device)


def outputs(model: Llama, tokens: Tensor) -> Tensor:
    """What the head says of every token, in fp32."""
    cos, sin = rotary(tokens.shape[1], model.size.h // model.size.a, model.dtype)
    x = model.embedding(tokens)
    for block in model.blocks:
        x = block(x, cos, sin)
    y: Tensor = model.head(model.norm(x))
    return y.float()


def log_probs(model: Llama, tokens: Tensor) -> Tensor:
    """Log-probability of each token but the first, ``(b, s − 1)``."""
    logits, targets = outputs(model, tokens[:, :-1]), tokens[:, 1:]
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return -losses.view(targets.shape)


Cache = list[tuple[Tensor, Tensor]]


def decode(model: Llama, token: Tensor, position: int, cache: Cache) -> Tensor:
    """Logits after one more token, whose keys and values join those of the ones before."""
    b, a, g, d = len(token), model.size.a, model.size.g, model.size.h // model.size.a
    cos, sin = (table[position:] for table in rotary(position + 1, d, model.dtype))
    x = model.embedding(token)
    block: Any
    for block, (K, V) in zip(model.blocks, cache, strict=True):
        attention, y = block.attention, block.norm1(x)
        query = rotate(attention.q(y).view(b, 1, a, d), cos, sin).transpose(1, 2)
        K[:, position] = rotate(attention.k(y).view(b, 1, g, d), cos, sin)[:, 0]
        V[:, position] = attention.v(y).view(b, g, d)
        keys, values = (t[:, : position + 1].transpose(1, 2) for t in (K, V))
        o = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        x = x + attention.o(o.transpose(1, 2).reshape(b, 1, a * d))
        x = x + block.mlp(block.norm2(x))
    logits: Tensor = model.head(model.norm(x))
    return logits


def new_cache(config: Config) -> Cache:
    """Room for the keys and values of every token that a rollout may have."""
    tokens = config.prompt + config.response
    shape = config.samples, tokens, config.kv_heads, config.width // config.heads
    made = [
        torch.zeros(shape, dtype=torch.bfloat16, device=config.device)
        for _ in range(2 * config.layers)
    ]
    return list(zip(made[::2], made[1::2], strict=True))


class Adapted(nn.Module):
    """A frozen Linear, with a product of two thin matrices beside it while ``on``."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base, self.on = base, True
        like: Any = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.A = nn.Parameter(torch.randn(rank, base.in_features, **like) / 8)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank, **like))

    def forward(self, x: Tensor) -> Tensor:
        """``(…, in)`` to ``(…, out)``."""
        y: Tensor = self.base(x)
        return y + (x @ self.A.T) @ self.B.T if self.on else y


# --- what is where -------------------------------------------------------------------------------


class Role:
    """A model and, where it is trained, fp32 masters with Adam, which goes tensor by tensor."""

    def __init__(self, model: nn.Module, trained: bool = False) -> None:
        self.model = model
        self.weights = list(model.parameters())
        self.size = sum(w.numel() for w in self.weights)
        self.trained = [w for w in self.weights if w.requires_grad] if trained else []
        self.masters = [w.detach().float() for w in self.trained]
        self.optimizers = [torch.optim.Adam([m], lr=1e-2, foreach=False) for m in self.masters]
        if not trained:
            model.requires_grad_(False)

    def states(self) -> list[Tensor]:
        """Masters and moments."""
        moments = [t for o in self.optimizers for s in o.state.values() for t in s.values()]
        return [*self.masters, *(t for t in moments if t.dim())]

    def counters(self) -> list[Tensor]:
        """Adam's step counts."""
        return [s["step"] for o in self.optimizers for s in o.state.values()]

    def update(self) -> None:
        """One step of Adam, from gradients to weights."""
        for w, m, optimizer in zip(self.trained, self.masters, self.optimizers, strict=True):
            assert w.grad is not None
            m.grad = w.grad.float()
            optimizer.step()
            w.grad = m.grad = None
            w.data.copy_(m)

    def held(self) -> dict[str, float]:
        """Bytes a parameter on the device, by part."""
        gradients = [w.grad for w in self.weights if w.grad is not None]
        parts = {"weights": self.weights, "states": self.states(), "gradients": gradients}
        return {name: storage_bytes(part) / self.size for name, part in parts.items()}


class Host:
    """The other memory: plain bytes outside PyTorch's allocator. It counts what crosses the link."""

    def __init__(self) -> None:
        self.copies: dict[Tensor, bytes] = {}
        self.moved: dict[tuple[str, Role], int] = {}

    def crossed(self, way: str) -> float:
        """Bytes that went ``in`` or ``out``, each model's over its own parameters, added up."""
        return sum(n / role.size for (each, role), n in self.moved.items() if each == way)

    def _count(self, way: str, role: Role, nbytes: int) -> None:
        self.moved[way, role] = self.moved.get((way, role), 0) + nbytes

    def put_away(self, role: Role, tensors: Sequence[Tensor], changed: bool = True) -> None:
        """Free the storages; what has ``changed`` since it was read is copied first."""
        # --8<-- [start:away]
        for t in tensors:
            if changed:
                self.copies[t] = ctypes.string_at(t.data_ptr(), t.nbytes)
                self._count("out", role, t.nbytes)
            t.untyped_storage().resize_(0)
        # --8<-- [end:away]

    def bring(self, role: Role, tensors: Sequence[Tensor]) -> None:
        """Take memory again, and copy back what was put away."""
        for t in tensors:
            t.untyped_storage().resize_(t.nbytes)
            ctypes.memmove(t.data_ptr(), self.copies[t], t.nbytes)
            self._count("in", role, t.nbytes)


@dataclass
class Stage:
    """The models of one algorithm, and what is seen of them at the fullest moment of each phase."""

    config: Config
    roles: dict[str, Role]
    live: LiveMemory
    host: Host | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)
    cache: Cache = field(default_factory=list)
    seen: list[dict[str, dict[str, float]]] = field(default_factory=list)
    moved: dict[str, float] = field(default_factory=dict)
    closes: bool = True

    @contextmanager
    def at_work(self, name: str, training: bool = False) -> Iterator[Any]:
        """A model on the device; without a host they all are, always."""
        # --8<-- [start:residence]
        role = self.roles[name]
        parts = [*role.weights, *(role.states() if training else [])]
        if self.host:
            self.host.bring(role, parts)
        yield role.model
        if training:
            self.look()
            role.update()
        if self.host:
            self.host.put_away(role, parts, changed=training)
        # --8<-- [end:residence]

    def look(self) -> None:
        """Note what is there, and whether it is all that there is."""
        self.seen.append({name: role.held() for name, role in self.roles.items()})
        # --8<-- [start:ledger]
        models = [
            [r.weights, [w.grad for w in r.weights], r.states(), r.counters()]
            for r in self.roles.values()
        ]
        known = storage_bytes([models, list(self.kept.values()), self.cache])
        self.closes &= known == self.live.current
        # --8<-- [end:ledger]

    def total(self, moment: Mapping[str, Mapping[str, float]]) -> float:
        """Bytes a parameter of all models."""
        return sum(sum(parts.values()) for parts in moment.values())

    def fullest(self) -> dict[str, dict[str, float]]:
        """The moment with the most."""
        return max(self.seen, key=self.total)


# --- one step of each ----------------------------------------------------------------------------


def rollout(stage: Stage) -> None:
    """Hand the actor's weights to the engine, generate with a KV cache, and put the engine to sleep."""
    config, engine = stage.config, stage.roles["rollout"]
    with stage.at_work("actor"):
        for mine, theirs in zip(engine.weights, stage.roles["actor"].weights, strict=True):
            mine.untyped_storage().resize_(mine.nbytes)
            mine.data.copy_(theirs)
    stage.cache = new_cache(config)
    tokens = stage.kept["tokens"]
    with torch.no_grad():
        for position in range(tokens.shape[1] - 1):
            logits = decode(engine.model, tokens[:, position : position + 1], position, stage.cache)  # type: ignore[arg-type]
            if position + 1 >= config.prompt:
                tokens[:, position + 1] = logits[:, 0].argmax(-1)
    del logits
    stage.look()
    stage.cache = []
    if stage.host:
        stage.host.put_away(engine, engine.weights, changed=False)


def score(stage: Stage, name: str, what: str) -> None:
    """A forward without a graph; what it says of each token is kept."""
    tokens = stage.kept["tokens"]
    with stage.at_work(name) as model, torch.no_grad():
        if what in ("old", "reference"):
            stage.kept[what] = log_probs(model, tokens)
        elif what == "values":
            stage.kept[what] = outputs(model, tokens[:, :-1])[..., 0].clone()
        else:
            stage.kept[what] = outputs(model, tokens)[:, -1, 0].clone()
        stage.look()


def policy_loss(stage: Stage, model: Llama, advantage: Tensor, kl: float = 0.0) -> Tensor:
    """PPO's clipped objective, with a KL term where GRPO has one."""
    new, old = log_probs(model, stage.kept["tokens"]), stage.kept["old"]
    ratio = (new - old).exp()
    loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    if kl:
        gap = stage.kept["reference"] - new
        loss = loss + kl * (gap.exp() - gap - 1).mean()
    return loss


def ppo(stage: Stage) -> None:
    """Rollout, four models that score, two that learn."""
    rollout(stage)
    for name, what in (
        ("actor", "old"),
        ("reference", "reference"),
        ("critic", "values"),
        ("reward", "rewards"),
    ):
        score(stage, name, what)
    kept = stage.kept
    with stage.at_work("actor", training=True) as model:
        penalty = 0.1 * (kept["old"] - kept["reference"]).sum(1)
        returns = (kept["rewards"] - penalty)[:, None].expand_as(kept["values"])
        policy_loss(stage, model, returns - kept["values"]).backward()
        del returns, penalty
    with stage.at_work("critic", training=True) as model:
        values = outputs(model, kept["tokens"][:, :-1])[..., 0]
        F.mse_loss(values, kept["rewards"][:, None].expand_as(values)).backward()
        del values


def grpo(stage: Stage) -> None:
    """Rollout, a rule that rewards, a baseline from the group: no critic, no reward model."""
    rollout(stage)
    score(stage, "actor", "old")
    if "reference" in stage.roles:
        score(stage, "reference", "reference")
    with stage.at_work("actor", training=True) as model:
        rewards = (stage.kept["tokens"] % 2).float().mean(1)
        advantage = ((rewards - rewards.mean()) / (rewards.std() + 1e-4))[:, None]
        kl = 0.1 if "reference" in stage.roles else 0.0
        policy_loss(stage, model, advantage, kl).backward()
        del rewards, advantage


def dpo(stage: Stage) -> None:
    """Chosen answers in the first half of the batch, rejected ones in the second."""
    tokens = stage.kept["tokens"]
    if "reference" not in stage.kept:
        with torch.no_grad():
            stage.kept["reference"] = reference_of(stage, tokens)
    with stage.at_work("actor", training=True) as model:
        margins = (log_probs(model, tokens).sum(1) - stage.kept["reference"]).chunk(2)
        (-F.logsigmoid(0.1 * (margins[0] - margins[1]))).mean().backward()
        del margins


def reference_of(stage: Stage, tokens: Tensor) -> Tensor:
    """Log-probs of whole answers: by the reference, or by the actor without its adapters."""
    if "reference" in stage.roles:
        return log_probs(stage.roles["reference"].model, tokens).sum(1)  # type: ignore[arg-type]
    with adapters_off(stage.roles["actor"].model) as base:
        return log_probs(base, tokens).sum(1)


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[Any]:
    """The model as it was before it was adapted."""
    adapters = [m for m in model.modules() if isinstance(m, Adapted)]
    for adapter in adapters:
        adapter.on = False
    yield model
    for adapter in adapters:
        adapter.on = True


STEPS = {"ppo": ppo, "grpo": grpo, "dpo": dpo}
CASTS = {
    "ppo": ("actor", "critic", "reference", "reward", "rollout"),
    "grpo": ("actor", "reference", "rollout"),
    "grpo_without_reference": ("actor", "rollout"),
    "dpo": ("actor", "reference"),
    "dpo_precomputed": ("actor",),
    "dpo_lora": ("actor",),
}


def adapt(model: Llama, rank: int) -> None:
    """Freeze the model, and put adapters beside the query and value projections."""
    model.requires_grad_(False)
    for block in model.blocks:
        attention: Any = block.attention
        attention.q, attention.v = Adapted(attention.q, rank), Adapted(attention.v, rank)


def play(config: Config, name: str, away: bool = False) -> Stage:
    """Two steps, of which the second is looked at: Adam's state appears in the first."""
    live = LiveMemory()
    with live:
        torch.manual_seed(config.seed)
        roles = {}
        start = build(config)
        for part in CASTS[name]:
            model = build(config, scalar=part in ("critic", "reward"))
            if part not in ("critic", "reward"):
                model.load_state_dict(start.state_dict())
            if name == "dpo_lora":
                adapt(model, config.rank)
            roles[part] = Role(model, trained=part in ("actor", "critic"))
        shape = config.samples, config.prompt + config.response
        torch.manual_seed(config.seed + 1)  # the same samples whatever the cast
        tokens = torch.randint(config.vocabulary, shape, device=config.device)
        stage = Stage(config, roles, live, kept={"tokens": tokens})
        if name == "dpo_precomputed":
            with torch.no_grad():
                stage.kept["reference"] = log_probs(start, tokens).sum(1)
        del model, start
        step = STEPS[name.partition("_")[0]]
        step(stage)
        fresh = {"tokens", "reference"} if name == "dpo_precomputed" else {"tokens"}
        stage.kept = {what: t for what, t in stage.kept.items() if what in fresh}
        if away:
            stage.host = Host()
            for part, role in roles.items():
                stage.host.put_away(
                    role, [*role.weights, *role.states()], changed=part != "rollout"
                )
            stage.host.moved.clear()
        stage.seen, stage.closes = [], True
        step(stage)
        if stage.host:
            stage.moved = {way: stage.host.crossed(way) for way in ("in", "out")}
            for role in (r for part, r in roles.items() if part != "rollout"):
                stage.host.bring(role, role.weights)  # to be compared
    return stage


# --- the demo ------------------------------------------------------------------------------------


def equal(one: Stage, other: Stage) -> bool:
    """Whether the actors, and the critics, are the same bit by bit."""
    return all(
        torch.equal(a, b)
        for name in ("actor", "critic")
        if name in one.roles
        for a, b in zip(one.roles[name].weights, other.roles[name].weights, strict=True)
    )


def run(config: Config, progress: Progress) -> Result:
    """Play each algorithm, and tell what was on stage."""
    found = Mechanisms(MEASURES, config)
    stages = {name: play(config, name) for name in CASTS}
    progress(0.6, "put away")
    away = {name: play(config, name, away=True) for name in ("ppo", "grpo")}

    phases = stages["ppo"].seen  # rollout, four scores, actor, critic
    found["trained_states"] = sum(phases[5]["actor"].values())
    found["waiting_states"] = sum(phases[5]["critic"].values())
    found["frozen_states"] = sum(phases[0]["reference"].values())
    for name, stage in stages.items():
        label = f"{name}_resident" if name in STEPS else name
        found[label] = stage.total(stage.fullest())
    found["ppo_rollout_resident"] = stages["ppo"].total(phases[0])
    found["ppo_rollout_offloaded"] = away["ppo"].total(away["ppo"].seen[0])
    for name, stage in away.items():
        found[f"{name}_offloaded"] = stage.total(stage.fullest())
        for way, moved in stage.moved.items():
            found[f"{name}_moved_{way}"] = moved

    tokens = config.samples * (config.prompt + config.response)
    per_token = storage_bytes(new_cache(config)) / tokens
    found["kv_per_token"] = per_token
    found["kv_per_token_layer_head"] = per_token / (
        config.layers * config.kv_heads * (config.width // config.heads)
    )
    found["experience_per_token"] = storage_bytes(list(stages["ppo"].kept.values())) / tokens
    pairs = config.samples // 2
    found["reference_per_pair"] = stages["dpo_precomputed"].kept["reference"].nbytes / pairs
    found["offload_equal"] = all(equal(stages[name], stage) for name, stage in away.items())
    found["precomputed_equal"] = equal(stages["dpo"], stages["dpo_precomputed"])
    found["lora_reference_equal"] = same_reference(stages["dpo_lora"], stages["dpo"])
    found["ledger_closes"] = all(stage.closes for stage in (*stages.values(), *away.values()))
    draw(found, stages, away["ppo"])
    progress(1.0, "done")
    return found.result()


def same_reference(adapted: Stage, plain: Stage) -> bool:
    """Whether a trained LoRA model without its adapters is the reference, and with them is not."""
    tokens = plain.kept["tokens"]
    with torch.no_grad():
        expected = outputs(plain.roles["reference"].model, tokens)  # type: ignore[arg-type]
        trained = outputs(adapted.roles["actor"].model, tokens)  # type: ignore[arg-type]
        with adapters_off(adapted.roles["actor"].model) as base:
            found = outputs(base, tokens)
    return torch.equal(found, expected) and not torch.equal(trained, expected)


def draw(found: Mechanisms, stages: Mapping[str, Stage], away: Stage) -> None:
    """Who holds what in which phase, with and without putting away; and the fullest moments."""
    cast = ("rollout", "actor", "reference", "critic", "reward")
    spans = []
    for first, stage in ((1, stages["ppo"]), (len(cast) + 2, away)):
        for row, name in enumerate(cast, start=first):
            for phase, moment in enumerate(stage.seen, start=1):
                held = moment[name]
                if not held["weights"]:
                    continue
                kind = (
                    "training" if held["gradients"] else "waiting" if held["states"] else "weights"
                )
                kind = "generating" if name == "rollout" and phase == 1 else kind
                label = f"{sum(held.values()):.0f}"
                spans.append(Span(row, kind, phase - 0.5, phase + 0.5, label))
    found.lanes("lanes", spans, rows=("resident", *cast, "offloaded", *cast))
    tall = ("ppo", "grpo", "dpo", "dpo_precomputed", "dpo_lora")
    moments = [*(stages[name].fullest() for name in tall), away.fullest()]
    places = range(len(moments))
    bars = [
        Line(part, places, [sum(m.get(part, {}).values()) for m in moments])
        for part in ("actor", "critic", "reference", "reward", "rollout")
    ]
    found.draw("peaks", *bars, places=(*tall, "ppo_offloaded"))
