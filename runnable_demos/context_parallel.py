"""How is attention split along the sequence, and what does each way hold, send and wait for?

The question
    Context parallelism gives each of N ranks n = s/N tokens of a sequence. Only attention looks beyond
    them. Three ways to let it: pass K and V around a ring, gather all of them, or trade tokens for
    heads (Ulysses). Are they exact, what stays on a rank, what does it send, who waits under a
    causal mask?

The model
    a query heads, g key-value heads, heads of width d. In units of n·g·d elements, one K of a rank:

        ring         forward 2 (N−1)              backward 2 (N−1) + 2 N
        all-gather   forward 2 (N−1)              backward 4 (N−1)
        Ulysses      forward (2 + 2a/g) (N−1)/N   backward the same

    A block of K and V gives a softmax of its own, o with log-sum-exp ℓ. Two of them make one:

        ℓ = log(e^ℓ₁ + e^ℓ₂),   o = e^(ℓ₁−ℓ) o₁ + e^(ℓ₂−ℓ) o₂

The measurement
    All of it runs on real ranks, in fp64, forward and backward, beside PyTorch's attention of the whole
    sequence. Messages are counted with their bytes, saved tensors with theirs, and each hop counts the
    pairs of query and key that the mask leaves to it.

The result
    All agree with the whole. Under a causal mask and contiguous pieces the last rank has almost seven
    times the first one's pairs, and a ring of four ranks takes 1.74 times as long as it need; zigzag
    pieces make every hop of every rank alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab import collectives, ranks
from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors, storage_bytes
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.split import gather, scatter

TITLE: Text = {"zh": "上下文并行", "en": "Context parallelism"}
QUESTION: Text = {
    "zh": "注意力沿序列切开之后，每张卡存多少、发多少，谁在等谁？",
    "en": "With attention split along the sequence, what does each GPU hold and send, and who waits for whom?",
}

MEASURES = """
[[method]]
kind = "bounded"
how = [
  "fp64，{ranks} 个真实进程，与 PyTorch 对整条序列的注意力比较：输出与 Q、K、V 的梯度，三种切法、有无因果掩码",
  "fp64, {ranks} real ranks, against PyTorch's attention of the whole sequence: output and gradients of Q, K, V",
]
bound = 1e-12
reason = [
  "同样的项以不同次序相加，fp64 舍入约 1e-16，乘以项数仍远小于 1e-12",
  "the same terms are added in another order: fp64 rounds at 1e-16, times the terms",
]
[method.metrics]
ring_error = ["", "环：最大相对误差", "ring: largest relative error"]
gather_error = ["", "all-gather：最大相对误差", "all-gather: largest relative error"]
ulysses_error = ["", "Ulysses：最大相对误差", "Ulysses: largest relative error"]
torch_merge_error = [
  "",
  "PyTorch 的合并类 _SDPAMerger 合并同样的块：相对误差",
  "PyTorch's _SDPAMerger over the same blocks: relative error",
]

[[method]]
kind = "exact"
how = [
  "实际发出的字节，单位是一个进程的 K（n·g·d 个元素）；all-gather 与 reduce-scatter 按环折算成每个进程发出的",
  "bytes that a rank sends, in units of its own K (n·g·d elements); a gather or scatter as a ring sends it",
]
[method.metrics]
ring_forward = ["", "环，{ranks} 个进程：前向", "ring, {ranks} ranks: forward"]
ring_backward = ["", "环，{ranks} 个进程：反向", "ring, {ranks} ranks: backward"]
gather_forward = ["", "all-gather，{ranks} 个进程：前向", "all-gather, {ranks} ranks: forward"]
gather_backward = ["", "all-gather，{ranks} 个进程：反向", "all-gather, {ranks} ranks: backward"]
ulysses_forward = ["", "Ulysses，{ranks} 个进程：前向", "Ulysses, {ranks} ranks: forward"]
ulysses_backward = ["", "Ulysses，{ranks} 个进程：反向", "Ulysses, {ranks} ranks: backward"]

[[method]]
kind = "exact"
how = [
  "前向为反向保存的字节，除以整条序列放在一个进程上时保存的字节",
  "bytes that the forward saves for the backward, over those of the whole sequence on one rank",
]
[method.metrics]
ring_saved_share = ["", "环：每个进程保存的", "ring: saved on a rank"]
gather_saved_share = [
  "",
  "all-gather（反向再做一次）：每个进程保存的",
  "all-gather, repeated in the backward: saved on a rank",
]
ulysses_saved_share = ["", "Ulysses：每个进程保存的", "Ulysses: saved on a rank"]

[[method]]
kind = "exact"
how = [
  "前向途中同时存在的 K、V 张量的字节，不含拼接时的临时副本，除以一个进程自己的 K、V",
  "bytes of K and V at once in the forward, temporary copies of a concatenation aside, over a rank's own",
]
[method.metrics]
ring_buffers = ["", "环：同时存在几份 K、V", "ring: copies of K and V at once"]
gather_buffers = ["", "all-gather：同时存在几份 K、V", "all-gather: copies of K and V at once"]

[[method]]
kind = "exact"
how = [
  "因果掩码下，各进程在环的每一跳实际要算的（查询，键）对，逐块数掩码",
  "pairs of query and key that a causal mask leaves to each rank, hop by hop, counted in the masks",
]
[method.metrics]
contiguous_last_over_first = [
  "",
  "连续切：最后一个进程的（查询，键）对是第一个的几倍",
  "contiguous: pairs of the last rank over the first's",
]
zigzag_last_over_first = ["", "zigzag：最后一个是第一个的几倍", "zigzag: pairs of the last rank over the first's"]
striped_last_over_first = ["", "striped：最后一个是第一个的几倍", "striped: pairs of the last rank over the first's"]
contiguous_idle = ["", "连续切：所有进程的所有跳里，不用算的占多少", "contiguous: share of hops without any work"]

[[method]]
kind = "computed"
how = [
  "由数出的（查询，键）对推算：时间与对的数目成正比，每一跳等最慢的进程，除以完全均分的时间",
  "from the pairs counted: time in proportion to pairs, each hop waits for the slowest rank, over an even split",
]
[method.metrics]
contiguous_critical = ["", "连续切：环的耗时是均分的几倍", "contiguous: time of the ring over an even split"]
zigzag_critical = ["", "zigzag：环的耗时是均分的几倍", "zigzag: time of the ring over an even split"]
striped_critical = ["", "striped：环的耗时是均分的几倍", "striped: time of the ring over an even split"]

[[method]]
kind = "exact"
how = ["与 PyTorch 自带的切法比较，或故意写错", "compared with PyTorch's own split, or written wrongly on purpose"]
[method.metrics]
zigzag_is_torch = [
  "",
  "zigzag 的次序就是 PyTorch 的 _HeadTailLoadBalancer",
  "zigzag's order is PyTorch's _HeadTailLoadBalancer",
]
local_positions_differ = [
  "",
  "zigzag 切数据，掩码却按连续切的位置：结果不同",
  "zigzag data with a mask of contiguous positions: the result differs",
]
late_shift_wrong = [
  "",
  "先切再错位标签：错或缺的标签个数",
  "labels shifted after the split: how many are wrong or missing",
]

[figure.ring]
title = [
  "环的每一跳，每个进程手上是谁的 K、V，要算多少：上为连续切，下为 zigzag",
  "Whose K and V each rank has at each hop, and how much it computes: contiguous above, zigzag below",
]
x = {label = ["跳", "hop"]}
y = {label = ["切法与进程", "split and rank"]}
[figure.ring.series]
full = ["bar", "整块都要算", "all of the block"]
half = ["bar", "一半要算", "half of it"]
idle = ["bar", "全被掩码遮住", "nothing: all masked"]
[figure.ring.places]
c0 = ["连续切 0", "contiguous 0"]
c1 = ["1", "1"]
c2 = ["2", "2"]
c3 = ["3", "3"]
z0 = ["zigzag 0", "zigzag 0"]
z1 = ["1", "1"]
z2 = ["2", "2"]
z3 = ["3", "3"]
h1 = ["1", "1"]
h2 = ["2", "2"]
h3 = ["3", "3"]
h4 = ["4", "4"]

[figure.volume]
title = ["每个进程发出多少，单位：自己的一个 K", "What a rank sends, in units of its own K"]
x = {label = ["做法", "method"]}
y = {label = ["发出的 n·g·d", "n·g·d sent"]}
[figure.volume.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
[figure.volume.places]
ring = ["环", "ring"]
gather = ["all-gather", "all-gather"]
ulysses = ["Ulysses", "Ulysses"]
"""


@dataclass(frozen=True)
class Config:
    """One attention layer over a sequence that is split among ``ranks`` ranks."""

    ranks: int = parameter(4, {"zh": "进程数 N", "en": "ranks N"}, 2, 4)
    tokens: int = parameter(128, {"zh": "序列长度 s", "en": "sequence length s"}, 16, 8192)
    heads: int = parameter(8, {"zh": "查询头数 a", "en": "query heads a"}, 2, 128)
    kv_heads: int = parameter(4, {"zh": "键值头数 g", "en": "key-value heads g"}, 2, 128)
    head_width: int = parameter(16, {"zh": "头维 d", "en": "width d of a head"}, 4, 256)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=3, tokens=36, heads=6, kv_heads=3, head_width=8), "full": Config()}


# --- who has which tokens ------------------------------------------------------------------------


def contiguous(s: int, N: int) -> list[Tensor]:
    """The positions of each rank: one piece after the other."""
    return list(torch.arange(s).chunk(N))


def zigzag(s: int, N: int) -> list[Tensor]:
    """2N pieces: an early and a late one for each rank."""
    pieces = torch.arange(s).chunk(2 * N)
    return [torch.cat([pieces[r], pieces[2 * N - 1 - r]]) for r in range(N)]


def striped(s: int, N: int) -> list[Tensor]:
    """Every N-th token."""
    return [torch.arange(r, s, N) for r in range(N)]


SPLITS = {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}


# --- a block of attention, and how blocks become one ---------------------------------------------


def scores(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """``(a, n, d)`` and ``(g, m, d)`` to ``(a, n, m)``; ``mask`` says which pairs count."""
    S = q @ k.repeat_interleave(len(q) // len(k), 0).mT / math.sqrt(q.shape[-1])
    return S.masked_fill(~mask, -math.inf)


def block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over this block's keys alone, and the log-sum-exp of each row."""
    S = scores(q, k, mask)
    lse = S.logsumexp(-1, keepdim=True)
    P = torch.exp(S - lse).nan_to_num()  # a row without keys in this block: 0, not 0/0
    return P @ v.repeat_interleave(len(q) // len(v), 0), lse


def merge(o: Tensor, lse: Tensor, o2: Tensor, lse2: Tensor) -> tuple[Tensor, Tensor]:
    """Two softmaxes over different keys to the one over all of them."""
    both = torch.logaddexp(lse, lse2)
    return torch.exp(lse - both) * o + torch.exp(lse2 - both) * o2, both


def block_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, lse: Tensor, dO: Tensor, D: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What this block adds to dQ, and its dK and dV; ``lse`` and ``D`` are those of the whole row."""
    group = len(q) // len(k)
    P = torch.exp(scores(q, k, mask) - lse)
    dS = P * (dO @ v.repeat_interleave(group, 0).mT - D) / math.sqrt(q.shape[-1])
    dK, dV = dS.mT @ q, P.mT @ dO
    dQ = dS @ k.repeat_interleave(group, 0)
    return dQ, *(x.unflatten(0, (len(k), group)).sum(1) for x in (dK, dV))


# --- ring ----------------------------------------------------------------------------------------


def pass_on(tensors: Sequence[Tensor]) -> list[Tensor]:
    """To the next rank; what the one before sent. All at once, so that nobody waits for ever."""
    N, rank = dist.get_world_size(), dist.get_rank()
    arriving = [torch.empty_like(x) for x in tensors]
    hop = [dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % N) for x in tensors]
    hop += [dist.P2POp(dist.irecv, x, (rank - 1) % N) for x in arriving]
    for work in dist.batch_isend_irecv(hop):
        work.wait()
    return arriving


class Watch:
    """What a ring saw: pairs and owner at each hop, and the most bytes of K and V at once."""

    def __init__(self) -> None:
        self.hops: list[tuple[int, int]] = []
        self.buffers = 0


class Ring(torch.autograd.Function):
    """Attention of this rank's queries over everybody's keys.

    ``where`` has the positions of each rank; with one entry nothing is sent, and it is attention of
    the whole sequence.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        where: Sequence[Tensor],
        causal: bool,
        watch: Watch,
    ) -> Tensor:
        """``(a, n, d)`` and ``(g, n, d)`` to ``(a, n, d)``."""
        N = len(where)
        rank = dist.get_rank() if N > 1 else 0
        kv, o, lse = [k, v], torch.zeros_like(q), q.new_full((*q.shape[:-1], 1), -math.inf)
        for hop in range(N):
            owner = (rank - hop) % N
            mask = visible(where[rank], where[owner], causal=causal).to(q.device)
            watch.hops.append((owner, int(mask.sum())))
            if mask.any():
                o, lse = merge(o, lse, *block(q, kv[0], kv[1], mask))
            arriving = pass_on(kv) if hop < N - 1 else kv
            watch.buffers = max(watch.buffers, storage_bytes([k, v, kv, arriving]))
            kv = arriving
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.where, ctx.causal = where, causal
        return o

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """K and V go around again, and with them what each rank adds to their gradients."""
        q, k, v, o, lse = ctx.saved_tensors
        where, dO = ctx.where, grads[0]
        N = len(where)
        rank = dist.get_rank() if N > 1 else 0
        D = (dO * o).sum(-1, keepdim=True)
        dQ, kv, dkv = torch.zeros_like(q), [k, v], [torch.zeros_like(k), torch.zeros_like(v)]
        for hop in range(N):
            mask = visible(where[rank], where[(rank - hop) % N], causal=ctx.causal).to(q.device)
            if mask.any():
                more = block_backward(q, kv[0], kv[1], mask, lse, dO, D)
                dQ += more[0]
                dkv = [x + y for x, y in zip(dkv, more[1:], strict=True)]
            if N > 1:  # gradients go one hop further, home
                passed = pass_on([*dkv, *(kv if hop < N - 1 else [])])
                dkv, kv = passed[:2], passed[2:]
        return dQ, *dkv, None, None, None


def visible(queries: Tensor, keys: Tensor, *, causal: bool) -> Tensor:
    """Which pairs count, by position in the whole sequence."""
    pairs = torch.ones(len(queries), len(keys), dtype=torch.bool)
    return pairs & (queries[:, None] >= keys) if causal else pairs


# --- all-gather ----------------------------------------------------------------------------------


class Gathered(torch.autograd.Function):
    """All K and V at once; only this rank's are kept, and gathered again in the backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, watch: Watch) -> Tensor:
        """As ``Ring``."""
        whole = gather(k, dim=1), gather(v, dim=1)
        watch.buffers = storage_bytes([k, v, whole])
        o, lse = block(q, whole[0], whole[1], mask)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mask = mask
        return o

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One block, and the sum of everybody's dK and dV."""
        q, k, v, o, lse = ctx.saved_tensors
        D = (grads[0] * o).sum(-1, keepdim=True)
        dQ, dK, dV = block_backward(
            q, gather(k, dim=1), gather(v, dim=1), ctx.mask, lse, grads[0], D
        )
        return dQ, scatter(dK, dim=1), scatter(dV, dim=1), None, None


# --- Ulysses -------------------------------------------------------------------------------------


def exchange(parts: Sequence[Tensor]) -> list[Tensor]:
    """All-to-all: the r-th part goes to rank r; what everybody sent here, in order."""
    rank = dist.get_rank()
    parts = [x.contiguous() for x in parts]
    got = [torch.empty_like(x) for x in parts]
    got[rank].copy_(parts[rank])  # one's own is not sent
    others = [r for r in range(len(parts)) if r != rank]
    hop = [dist.P2POp(dist.isend, parts[r], r) for r in others]
    hop += [dist.P2POp(dist.irecv, got[r], r) for r in others]
    for work in dist.batch_isend_irecv(hop):
        work.wait()
    return got


class Turn(torch.autograd.Function):
    """From a split of one dimension to a split of another: heads are 0, tokens 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, split: int, join: int) -> Tensor:
        """Cut along ``split``, trade, join along ``join``."""
        ctx.way = join, split
        return torch.cat(exchange(x.chunk(dist.get_world_size(), split)), join)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The way back."""
        split, join = ctx.way
        return torch.cat(exchange(grads[0].chunk(dist.get_world_size(), split)), join), None, None


def ulysses(q: Tensor, k: Tensor, v: Tensor, s: int, *, causal: bool) -> Tensor:
    """Some heads over all tokens, with two all-to-alls around; pieces are contiguous."""
    heads = [Turn.apply(x, 0, 1) for x in (q, k, v)]  # type: ignore[no-untyped-call]
    o = Ring.apply(*heads, [torch.arange(s)], causal, Watch())  # type: ignore[no-untyped-call]
    out: Tensor = Turn.apply(o, 1, 0)  # type: ignore[no-untyped-call]
    return out


# --- in each rank --------------------------------------------------------------------------------


def compare(forward: Any, given: Sequence[Tensor], at: Tensor, *, causal: bool) -> dict[str, Any]:
    """Run one way on the tokens ``at``; its errors, messages and saved bytes."""
    q, k, v = (x.detach().requires_grad_() for x in given[:3])
    expected = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=causal, enable_gqa=True
    )[0]
    (expected * given[3]).sum().backward()
    mine = [x.detach()[:, at].contiguous().requires_grad_() for x in given[:3]]
    with collectives.Collectives() as there, saved_tensors() as saved:
        o = forward(*mine)
    with collectives.Collectives() as back:
        o.backward(given[3][:, at])
    truth = expected, *(x.grad for x in (q, k, v))
    found = o.detach(), *(x.grad for x in mine)
    errors = []
    for x, t in zip(found, truth, strict=True):
        assert x is not None and t is not None
        errors.append(relative(x, t[:, at]))
    calls = [[[call.kind, call.nbytes] for call in mode.calls] for mode in (there, back)]
    return {
        "error": max(errors),
        "calls": calls,
        "saved": saved.bytes,
    }


def measure(task: Mapping[str, object]) -> ranks.Report:
    """Each way, its errors and messages, and what the ring saw under each split."""
    config = Config(**task)  # type: ignore[arg-type]
    s, N, rank = config.tokens, config.ranks, dist.get_rank()
    generator = torch.Generator().manual_seed(config.seed)
    given = [
        torch.randn(heads, s, config.head_width, generator=generator, dtype=torch.float64).to(
            config.device
        )
        for heads in (config.heads, config.kv_heads, config.kv_heads, config.heads)
    ]
    own = 2 * given[1].nbytes // N  # this rank's K and V
    report: ranks.Report = {"errors": {"ring": [], "gather": [], "ulysses": []}, "hops": {}}

    def ring(where: Sequence[Tensor], watch: Watch, *, causal: bool) -> Any:
        return lambda q, k, v: Ring.apply(q, k, v, where, causal, watch)  # type: ignore[no-untyped-call]

    for causal in (False, True):
        for name, split in SPLITS.items():
            where, watch, all_at_once = split(s, N), Watch(), Watch()
            mask = visible(where[rank], torch.cat(where), causal=causal).to(config.device)
            ways = {
                "ring": ring(where, watch, causal=causal),
                "gather": lambda q, k, v, m=mask, w=all_at_once: Gathered.apply(q, k, v, m, w),  # type: ignore[no-untyped-call]
            }
            if name == "contiguous":
                ways["ulysses"] = lambda q, k, v, c=causal: ulysses(q, k, v, s, causal=c)
            for way, forward in ways.items():
                result = compare(forward, given, where[rank], causal=causal)
                report["errors"][way].append(result["error"])
                first = report.setdefault(way, result)  # alike for all masks and splits
                assert (first["calls"], first["saved"]) == (result["calls"], result["saved"])
            report["buffers"] = [watch.buffers / own, all_at_once.buffers / own]
            report["hops"][name] = watch.hops
    everything = torch.arange(s)
    alone = ring([everything], Watch(), causal=True)
    report["whole_saved"] = compare(alone, given, everything, causal=True)["saved"]

    at = zigzag(s, N)[rank]
    wrong = ring(contiguous(s, N), Watch(), causal=True)  # the mask thinks they are contiguous
    report["local"] = compare(wrong, given, at, causal=True)["error"]
    report["late"] = int((torch.roll(at, -1)[:-1] != at[:-1] + 1).sum()) + int(at[-1] != s - 1)
    report["torch"] = library(config, given) if rank == 0 else None
    return report


def library(config: Config, given: Sequence[Tensor]) -> dict[str, Any]:
    """PyTorch's own pieces: its merger over blocks of keys, and its order of the tokens."""
    from torch.distributed.tensor.experimental._context_parallel import (  # noqa: PLC0415 - slow
        _attention,
        _load_balancer,
    )

    q, k, v, _ = given
    merger = _attention._SDPAMerger(convert_to_f32=False, seq_dim=1)
    for keys, values in zip(k.chunk(config.ranks, 1), v.chunk(config.ranks, 1), strict=True):
        everything = torch.ones(q.shape[1], keys.shape[1], dtype=torch.bool, device=q.device)
        merger.step(*block(q, keys, values, everything), partial=False)
    truth = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
    balancer = _load_balancer._HeadTailLoadBalancer(config.tokens, config.ranks, "cpu")
    order = balancer._generate_indices()[0]
    return {
        "merge": relative(merger.results()[0], truth),
        "order": torch.equal(order.long(), torch.cat(zigzag(config.tokens, config.ranks))),
    }


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once; they send alike, and work as the split has it."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.context_parallel", config.ranks, asdict(config))
    N = config.ranks
    one = 8 * config.tokens // N * config.kv_heads * config.head_width  # bytes of a rank's K

    def sent(way: str, direction: int) -> float:
        """The most that a rank sends: whole messages of a collective times (N − 1)/N."""
        most = 0.0
        for r in reports:
            calls = r[way]["calls"][direction]
            direct = sum(n for kind, n in calls if kind == "send")
            whole = [(kind, n) for kind, n in calls if kind not in ("send", "recv")]
            most = max(most, direct + collectives.volume(whole) * (N - 1) / N)
        return most / one

    ways = ("ring", "gather", "ulysses")
    for way in ways:
        found[f"{way}_error"] = max(e for r in reports for e in r["errors"][way])
        found[f"{way}_forward"], found[f"{way}_backward"] = sent(way, 0), sent(way, 1)
        share = max(r[way]["saved"] / r["whole_saved"] for r in reports)
        found[f"{way}_saved_share"] = share
    for i, way in enumerate(("ring", "gather")):
        found[f"{way}_buffers"] = max(r["buffers"][i] for r in reports)
    found["torch_merge_error"] = reports[0]["torch"]["merge"]
    found["zigzag_is_torch"] = reports[0]["torch"]["order"]
    found["local_positions_differ"] = any(r["local"] > 0.01 for r in reports)
    found["late_shift_wrong"] = sum(r["late"] for r in reports)

    for split in SPLITS:
        pairs = [[n for _, n in r["hops"][split]] for r in reports]  # [rank][hop]
        found[f"{split}_last_over_first"] = sum(pairs[-1]) / sum(pairs[0])
        slowest = sum(max(hop) for hop in zip(*pairs, strict=True))
        found[f"{split}_critical"] = slowest * N / sum(map(sum, pairs))
        if split == "contiguous":
            found["contiguous_idle"] = sum(row.count(0) for row in pairs) / N**2

    found.draw(
        "volume",
        Line("forward", range(3), [sent(way, 0) for way in ways]),
        Line("backward", range(3), [sent(way, 1) for way in ways]),
        places=ways,
    )
    rows = [f"{split}{r}" for split in "cz" for r in range(N)]
    hops = [f"h{hop + 1}" for hop in range(N)]
    found.tiles("ring", tiles(reports, (config.tokens // N) ** 2), rows, hops)
    progress(1.0, "done")
    return found.result()


def tiles(reports: Sequence[ranks.Report], block_pairs: int) -> list[Tile]:
    """Hop by hop: whose K and V, and whether the mask leaves all of the block, half or nothing."""
    drawn = []
    for group, split in enumerate(("contiguous", "zigzag")):
        for rank, report in enumerate(reports):
            row = group * len(reports) + rank
            for hop, (owner, pairs) in enumerate(report["hops"][split]):
                kind = "idle" if not pairs else "full" if pairs == block_pairs else "half"
                drawn.append(Tile(row, hop, kind, (f"KV{owner}",)))
    return drawn


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))
