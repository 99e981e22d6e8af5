"""What a plan of parallelism holds and sends on a rank, by formulas, and which plan is the fastest.

A plan says how many ranks share what, a job what is trained; times are those of GPUs in nodes.
"""

from __future__ import annotations

from typing import NamedTuple


class Plan(NamedTuple):
    """How many ranks share what; their product but for ``ep``, which divides ``dp``, is all devices."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 1


class Job(NamedTuple):
    """A model, a sequence, how many of them a step takes, and bytes an element of each state."""

    layers: int
    width: int
    heads: int
    keys: int  # heads of keys and values
    depth: int  # width of a head
    inner: int  # width of the MLP, or of an expert
    length: int
    batch: int
    vocabulary: int = 0
    experts: int = 0
    chosen: int = 1
    weight: int = 4
    gradient: int = 4
    optimizer: int = 8
    element: int = 4
    statistics: int = 0  # bytes a head and token that attention keeps


def local(job: Job, plan: Plan) -> tuple[float, float]:
    """Parameters of a rank: those that all replicas have, and those of its experts."""
    matrices = 2 * job.width * job.depth * (job.heads + job.keys)
    mlp = 3 * job.width * job.inner
    dense = (matrices + (0 if job.experts else mlp)) / plan.tp + 2 * job.width
    ends = 2 * job.vocabulary * job.width / (plan.tp * plan.pp)  # embedding and head, taken as even
    return job.layers / plan.pp * dense + ends, job.layers / plan.pp * job.experts / plan.ep * mlp


def states(job: Job, plan: Plan) -> float:
    """Bytes of weights, gradients and optimizer states on a rank."""
    total, n = 0.0, plan.dp * plan.cp
    for parameters, sharing in zip(local(job, plan), (n, n // plan.ep), strict=True):
        whole = 0 if plan.zero == 3 else job.weight + job.gradient
        cut = job.optimizer if plan.zero < 3 else job.weight + job.gradient + job.optimizer
        total += parameters * (whole + cut / sharing)
    return total


# --8<-- [start:activations]
def layer(job: Job, plan: Plan) -> float:
    """Bytes that a layer saves on a rank for one micro-batch."""
    heads, h = job.heads * job.depth, job.width
    saved = 3 * h + 2 * heads + 2 * job.keys * job.depth + (4 * job.inner + h) * job.chosen
    a_token = job.element * saved + 8 + job.statistics * job.heads  # two norms' fp32 deviations
    return a_token * job.length / (plan.tp * plan.cp)


def activations(job: Job, plan: Plan) -> float:
    """Bytes that the first stage saves under 1F1B."""
    return layer(job, plan) * job.layers / plan.pp * min(job.batch // plan.dp, plan.pp)


# --8<-- [end:activations]


# --8<-- [start:sent]
def sent(job: Job, plan: Plan) -> dict[str, float]:
    """Bytes that a rank of the first stage sends in a step, by group."""
    m, depth, e = job.batch // plan.dp, job.layers / plan.pp, job.element
    rows, h, n = job.length / plan.cp, job.width, plan.dp * plan.cp
    ring = {k: (k - 1) / k for k in (plan.tp, plan.cp, plan.ep, n, n // plan.ep)}
    dense, experts = local(job, plan)
    passes = (m * 2, m) if plan.zero == 3 else (1, 1)  # of weights, of gradients
    both = passes[0] * job.weight + passes[1] * job.gradient
    norms = 2 * 2 * h * depth * job.gradient * ring[plan.tp]
    kv = 2 * job.keys * job.depth * job.length / plan.tp
    return {
        "tp": m * depth * (5 if job.experts else 10) * e * rows * h * ring[plan.tp] + norms,
        "cp": m * depth * 3 * e * kv * ring[plan.cp],
        "pp": m * e * rows * h / plan.tp if plan.pp > 1 else 0,
        "ep": m * depth * 4 * e * rows / plan.tp * h * job.chosen * ring[plan.ep],
        "dp": both * dense * ring[n],
        "edp": both * experts * ring[n // plan.ep],
    }


# --8<-- [end:sent]


# --- the chooser ---------------------------------------------------------------------------------

LLAMA = Job(80, 8192, 64, 8, 128, 28672, 8192, 32, 128256, 0, 1, 2, 2, 12, 2, 4)
"""Llama 3 70B in mixed precision, one sequence of its full length a micro-batch, 32 a step."""
GPUS, NODE, MEMORY, FLOPS, NVLINK, NIC = 64, 8, 80e9, 0.4 * 989.4e12, 450e9, 50e9
LOGIT = 12  # bytes a logit at the peak of an unfused cross-entropy


def plans(job: Job, gpus: int, node: int) -> list[Plan]:
    """All plans that divide evenly; pipelines with ZeRO-1 alone, experts' layers without TP."""
    divisors = [k for k in range(1, gpus + 1) if gpus % k == 0]
    return [
        Plan(tp, cp, pp, dp, ep, zero)
        for tp in ([1] if job.experts else divisors)
        for cp in divisors
        for pp in divisors
        for dp in divisors
        for ep in divisors
        for zero in (1, 3)
        if tp * cp * pp * dp == gpus
        and tp * cp <= node  # what waits in every layer stays in a node
        and job.keys % tp == job.layers % pp == job.batch % dp == job.length % cp == 0
        and dp % ep == (job.experts or 1) % ep == 0
        and (zero == 1 or pp == 1)
    ]


def peak(job: Job, plan: Plan) -> float:
    """Bytes on the fullest GPU: the first stage, or the last one with its logits."""
    gathered = 0.0
    if plan.zero == 3:
        dense, experts = local(job._replace(vocabulary=0), plan)
        unit = (dense + experts) / job.layers * job.weight
        gathered = (4 - 4 / (plan.dp * plan.cp)) * unit
    logits = LOGIT * job.length * job.vocabulary / (plan.tp * plan.cp)
    last = layer(job, plan) * job.layers / plan.pp + logits
    return states(job, plan) + max(activations(job, plan), last) + gathered


class Cost(NamedTuple):
    """Seconds of a step by cause, and how many of the last could be hidden behind the others."""

    compute: float
    bubble: float
    layers: float
    data: float
    hidden: float


def cost(job: Job, plan: Plan) -> Cost:
    """What a step takes; a message between nodes has the NICs of all ranks of its group in a node."""
    strides = {
        "tp": (1, plan.tp),
        "cp": (plan.tp, plan.cp),
        "ep": (plan.tp * plan.cp, plan.ep),
        "dp": (plan.tp, plan.cp * plan.dp),
        "edp": (plan.tp * plan.cp * plan.ep, plan.cp * plan.dp // plan.ep),
        "pp": (plan.tp * plan.cp * plan.dp, plan.pp),
    }

    def seconds(group: str, nbytes: float) -> float:
        stride, n = strides[group]
        within = nbytes / NVLINK
        return within if stride * n <= NODE else max(within, nbytes / max(NODE // stride, 1) / NIC)

    time = {group: seconds(group, nbytes) for group, nbytes in sent(job, plan).items()}
    dense, experts = local(job, plan)
    active = dense + experts * plan.ep * job.chosen / max(job.experts, 1)
    m = job.batch // plan.dp
    compute = 6 * active * job.length / plan.cp / FLOPS  # of a micro-batch on a stage
    traffic = (time["tp"] + time["cp"] + time["ep"]) / m
    slot = compute + traffic
    # --8<-- [start:price]
    data = time["dp"] + time["edp"]
    hidden = min(data, slot * (m if plan.zero == 3 else 1))
    bubble = (plan.pp - 1) * slot
    return Cost(m * compute, bubble, m * traffic, data + 2 * time["pp"], hidden)
    # --8<-- [end:price]


def step(job: Job, plan: Plan, *, hide: bool) -> float:
    """Seconds of a step; with ``hide`` data-parallel traffic overlaps where there is time."""
    spent = cost(job, plan)
    return sum(spent[:4]) - (spent.hidden if hide else 0)


def fits(job: Job, gpus: int, node: int) -> list[Plan]:
    """Those plans that leave a tenth of the memory free."""
    return [plan for plan in plans(job, gpus, node) if peak(job, plan) <= 0.9 * MEMORY]
