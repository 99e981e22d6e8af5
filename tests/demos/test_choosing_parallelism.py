"""Bytes held and sent under five plans against hand counts, and the chooser against brute force."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runnable_demos import choosing_parallelism
from runnable_demos.choosing_parallelism import PRESETS, run
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Shards
from runnable_demos.lab.metrics import Result
from runnable_demos.models.plans import LLAMA, Job, Plan, cost, fits, peak, plans, step
from tests.demos.told import told

CONFIG = PRESETS["small"]
L, H, S = CONFIG.layers, CONFIG.width, CONFIG.length
INNER, KEYS, EXPERTS, SEQUENCES = 2 * H, H // 2, 4, 4
ATTENTION = H * H + 2 * KEYS * H + H * H  # q, k and v, out
MLP = 3 * H * INNER
DENSE = L * (ATTENTION + MLP + 2 * H)
SMALL = MLP // EXPERTS  # an expert of a quarter's width
SPARSE = L * (ATTENTION + EXPERTS * SMALL + 2 * H)


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def states(parameters: float, replicas: int) -> float:
    """Weights and gradients of 4 bytes; two moments of 4 bytes, shared; a counter of 4 bytes."""
    return 8 * parameters + 8 * parameters / replicas + 4


def test_states_are_a_hand_count(result: Result) -> None:
    """Norms are whole under TP; a pipeline halves all; experts have replicas of their own."""
    norms, matrices = L * 2 * H, L * (ATTENTION + MLP)
    halves = matrices / 2 + norms
    assert value(result, "tp_dp_states") == states(halves, 2) / DENSE
    assert value(result, "tp_cp_states") == states(halves, 2) / DENSE
    assert value(result, "pp_dp_states") == states(DENSE / 2, 2) / DENSE
    assert value(result, "tp_pp_states") == states((matrices / 2 + norms) / 2, 1) / DENSE
    dense, experts = L * ATTENTION + norms, L * EXPERTS * SMALL / 2
    assert value(result, "ep_dp_states") == (states(dense, 4) + states(experts, 2)) / SPARSE


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        ("tp_dp", 1 / 2),
        ("pp_dp", 2 * 1 / 2),  # two micro-batches in flight, half of the layers
        ("tp_pp", 2 * 1 / 2 * 1 / 2),
        ("tp_cp", 1 / 2 * 1 / 2),
        ("ep_dp", 1),  # each rank's tokens go to all experts, and as many come back
    ],
)
def test_activations_are_divided_by_tp_and_cp_alone(
    result: Result, plan: str, share: float
) -> None:
    """Neither a pipeline nor experts leave the first stage with fewer activations."""
    assert value(result, f"{plan}_activations") == share


def test_traffic_is_a_hand_count(result: Result) -> None:
    """By group: matrices' inputs, keys, boundaries, tokens and gradients, two ranks sending a half."""
    rows = 4 * S * H  # bytes of a sequence's hidden states
    norms = L * 2 * H * 4  # an all-reduce of a half there and a half back
    for plan, micro, length in (("tp_dp", 2, 1.0), ("tp_cp", 4, 0.5)):
        expected = micro * L * 2 * 5 * rows * length / 2 + norms
        assert value(result, f"{plan}_tp_sent") == expected
    keys = 4 * S * 2 * KEYS / 2  # K and V of this TP rank's heads
    assert value(result, "tp_cp_cp_sent") == SEQUENCES * L * 3 * keys / 2
    assert value(result, "pp_dp_pp_sent") == 2 * rows
    assert value(result, "ep_dp_ep_sent") == L * 4 * rows / 2  # one sequence on each rank
    norms_, matrices = L * 2 * H, L * (ATTENTION + MLP)
    both = 2 * 4  # gradients there, weights back
    assert value(result, "tp_dp_dp_sent") == both * (matrices / 2 + norms_) / 2
    assert value(result, "pp_dp_dp_sent") == both * DENSE / 2 / 2
    dense, experts = L * ATTENTION + norms_, L * EXPERTS * SMALL / 2
    assert value(result, "ep_dp_dp_sent") == both * (dense * 3 / 4 + experts / 2)


def test_bytes_are_the_formulas_and_gradients_those_of_one_rank(result: Result) -> None:
    """Every rank of every plan, not rank 0 alone."""
    assert value(result, "as_computed") is True
    assert value(result, "error") <= 1e-5


def test_what_one_rank_finds_is_told() -> None:
    """The last rank alone holds a byte more, or is off by a quarter."""

    def more(report: ranks.Report) -> None:
        report["tp_cp"]["most"] += 1
        report["ep_dp"]["error"] = 1e-6

    found = told(choosing_parallelism, more)
    assert found["as_computed"] is False
    assert found["error"] == pytest.approx(1e-6)

    def sent(report: ranks.Report) -> None:
        report["pp_dp"]["sent"]["pp"] += 1

    assert told(choosing_parallelism, sent)["as_computed"] is False


def test_the_model_and_the_devices_are_those_of_the_facts() -> None:
    """Llama 3 70B, an H100, its NVLink and one port of InfiniBand a GPU."""
    facts = yaml.safe_load(
        (Path(__file__).parents[2] / "cards/facts.yml").read_text(encoding="utf-8")
    )
    model = facts["llama-3-70b"]
    names = ("layers", "width", "heads", "kv_heads", "head_width", "feed_forward")
    assert LLAMA[:6] == tuple(model[name] for name in names)
    assert f"{LLAMA.length} token" == model["context"]
    assert LLAMA.vocabulary == model["vocabulary"]
    assert facts["h100-sxm"]["memory"] == "80 GB"
    assert facts["h100-sxm"]["bf16"] == "989.4 TFLOP/s"
    assert facts["nvlink-4"]["per_direction"] == "450 GB/s"
    assert facts["infiniband-ndr"]["per_direction"] == "50 GB/s"


class Slow:
    """The 70B model on 64 GPUs of 8 a node, spelt out with numbers rather than formulas."""

    def __init__(self, tp: int, cp: int, pp: int, dp: int, zero: int) -> None:
        self.m, self.p = 32 // dp, pp
        n = dp * cp
        layer = (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) / tp
        ends = 2 * 128256 * 8192 / tp / pp
        own = (layer + 2 * 8192) * 80 / pp + ends
        tokens = 8192 / tp / cp
        saved = 2 * (6 * 8192 + 2 * 1024 + 4 * 28672) + 8 + 4 * 64  # bytes a token and layer
        stage = saved * tokens * 80 / pp
        self.memory = max(stage * min(pp, self.m), stage + 12 * tokens * 128256)
        self.memory += own * 16 / n if zero == 3 else own * (4 + 12 / n)
        if zero == 3:
            self.memory += (4 - 4 / n) * 2 * (layer + 2 * 8192)
        row = 2 * 8192 / cp * 8192 * (tp - 1) / tp
        compute = 6 * own * 8192 / cp / (0.4 * 989.4e12)
        in_layers = 80 / pp * (10 * row + 6 * 2 * 8192 * 1024 / tp * (cp - 1) / cp) / 450e9
        in_layers += 4 * 8192 * 2 * 80 / pp * (tp - 1) / tp / 450e9 / self.m
        in_node = max(1, min(8 // tp, 8))
        times = 3 * self.m if zero == 3 else 2
        data = times * 2 * own * (n - 1) / n
        one_node = tp * n <= 8
        self.data = data / 450e9 if one_node else max(data / 450e9, data / in_node / 50e9)
        ports = max(8 // (tp * n), 1)
        border = 2 * self.m * 2 * tokens * 8192 / 50e9 / ports if pp > 1 else 0
        self.slot = compute + in_layers
        self.window = self.slot * (self.m if zero == 3 else 1)
        self.exposed = (self.m + pp - 1) * self.slot + border + self.data
        self.hidden = self.exposed - min(self.data, self.window)


def by_brute_force() -> dict[Plan, Slow]:
    """All tuples of whole numbers up to 64 whose product is 64, and that divide the model."""
    found = {}
    for tp in range(1, 9):
        for cp in range(1, 9):
            for pp in range(1, 65):
                for dp in range(1, 33):
                    if tp * cp * pp * dp != 64 or tp * cp > 8 or 8 % tp or 80 % pp or 32 % dp:
                        continue
                    for zero in (1, 3) if pp == 1 else (1,):
                        found[Plan(tp, cp, pp, dp, 1, zero)] = Slow(tp, cp, pp, dp, zero)
    return found


def test_the_chooser_is_brute_force(result: Result) -> None:
    """The same plans, memory and time, and so the same choices."""
    slow = by_brute_force()
    assert set(plans(LLAMA, 64, 8)) == set(slow)
    for plan, expected in slow.items():
        assert peak(LLAMA, plan) == pytest.approx(expected.memory, rel=1e-6)
        assert step(LLAMA, plan, hide=False) == pytest.approx(expected.exposed, rel=1e-3)
        assert step(LLAMA, plan, hide=True) == pytest.approx(expected.hidden, rel=1e-3)
    fitting = {plan: each for plan, each in slow.items() if each.memory <= 72e9}
    assert set(fits(LLAMA, 64, 8)) == set(fitting)
    assert value(result, "plans") == len(slow)
    assert value(result, "plans_that_fit") == len(fitting)
    best = min(fitting, key=lambda plan: fitting[plan].exposed)
    assert [value(result, f"exposed_{axis}") for axis in ("tp", "cp", "pp")] == list(best[:3])
    assert value(result, "exposed_step") == pytest.approx(fitting[best].exposed, rel=1e-3)
    assert value(result, "exposed_bytes") == pytest.approx(fitting[best].memory, rel=1e-6)
    least = fitting[best].exposed
    assert value(result, "near") == sum(each.exposed < 1.05 * least for each in fitting.values())
    best = min(fitting, key=lambda plan: fitting[plan].hidden)
    assert [value(result, f"hidden_{axis}") for axis in ("tp", "cp", "pp")] == list(best[:3])
    assert value(result, "hidden_step") == pytest.approx(fitting[best].hidden, rel=1e-3)
    plain = min((p for p in fitting if p.cp == 1), key=lambda plan: fitting[plan].exposed)
    assert (value(result, "plain_tp"), value(result, "plain_pp")) == (plain.tp, plain.pp)


def test_experts_take_no_devices_of_their_own() -> None:
    """EP divides the ranks of DP: the product of the others is the number of devices."""
    job = Job(4, 32, 4, 2, 8, 64, 16, 8, experts=4)
    found = plans(job, 8, 8)
    assert all(p.tp * p.cp * p.pp * p.dp == 8 and p.dp % p.ep == 0 for p in found)
    assert {p.ep for p in found} == {1, 2, 4}
    assert cost(job, Plan(dp=8, ep=4)).layers > cost(job, Plan(dp=8)).layers == 0


def test_the_figure_shows_who_holds_what(result: Result) -> None:
    """TP and PP halve the weights, CP and DP do not; experts alone are halved by EP."""
    figure = next(f for f in result.figures if isinstance(f, Shards))
    groups = [c.name for c in figure.x.categories]

    def starts(plan: str, kind: str) -> list[float]:
        boxes = [b for b in figure.boxes if groups[b.group] == plan and b.kind == kind]
        return [b.start / b.whole for b in sorted(boxes, key=lambda b: b.rank)]

    assert starts("tp_dp", "weights") == [0, 1 / 2, 0, 1 / 2]
    assert starts("tp_cp", "weights") == [0, 1 / 2, 0, 1 / 2]
    assert starts("ep_dp", "weights") == [0, 0, 0, 0]
    assert starts("ep_dp", "experts") == [0, 1 / 2, 0, 1 / 2]
    assert starts("pp_dp", "weights") == [0, 0, 1 / 2, 1 / 2]
    assert starts("tp_dp", "activations") == [0, 1 / 4, 1 / 2, 3 / 4]
    assert starts("pp_dp", "activations") == [0, 1 / 2, 1 / 4, 3 / 4]
    assert all(sorted(starts(plan, "optimizer")) == [0, 1 / 4, 1 / 2, 3 / 4] for plan in groups)
