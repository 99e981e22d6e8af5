"""``LiveMemory`` against the CPU allocator's own events, in every demo whose peak a card claims.

How far the two may differ, and why: ``SLACK`` bytes. A Python number that meets a tensor becomes a
tensor of one element inside the operation, 8 bytes by the allocator (4 more where it is cast); an
operation on a list of tensors holds one for each, and no small preset has more than a dozen.

What an operation takes for itself is no tensor of the program, and the meter says that it does not see
it. ``SCRATCH`` names the demos in which there is more of it than that; there the program's own tensors
must agree all the same.
"""

from __future__ import annotations

import importlib
import re
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab import discovery, ranks, records
from runnable_demos.lab.measure import LiveMemory, fake
from tests.demos.allocator import Reading, audited

ROOT = Path(__file__).parents[2]
FOLDER = Path(discovery.__file__).parents[1]
SLACK = 128
SCRATCH = {
    "checkpoint_peak_rises": "the loss is a plain sum, whose gradient is one number expanded: kernels "
    "copy it to full size",
    "fsdp": "gloo stages what it sends in copies of its own",
    "offload": "a bf16 product on the CPU copies an operand that is transposed",
    "zero_stages": "gloo stages what it sends in copies of its own",
    "optimizer_states": "bitsandbytes on the CPU computes an 8-bit step from dequantised fp32 states, "
    "within one custom operation",
}
RANKS = {"fsdp", "zero_stages", "pipeline_schedule"}
"""Demos that measure in ranks of their own."""
REPLAYED = {"allocator_fragments"}
"""Demos that replay requests traced on fake tensors; nothing is allocated, and no meter is read."""
REAL_MODELS_TOO_LARGE = {"forecast"}
"""Demos that forecast models on fake tensors, and ``compare`` small ones with a real run of the same."""


@cache
def claimed() -> frozenset[str]:
    """Demos of which a card claims a peak, or other live bytes, by the words of their records."""
    cards = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "cards").rglob("*.md"))
    claims = set(re.findall(r"\((?:claim|wrong):(\w+)/(\w+)", cards))
    return frozenset(
        record.demo
        for path in (FOLDER / "evidence").glob("*.cpu.json")
        for record in [records.load(path)]
        for metric in record.result.metrics
        if (record.demo, metric.name) in claims
        and re.search(r"\bpeak|\blive\b|\btransient", f"{metric.label['en']} {metric.how['en']}")
    )


def measures_live_bytes() -> list[str]:
    """Those demos, and every other one that uses the meter at all."""
    using = {
        name
        for name in discovery.discover(FOLDER)
        if "LiveMemory" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    }
    return sorted((claimed() | using) - REPLAYED)


@cache
def audit(name: str) -> tuple[Reading, ...]:
    """Both meters' readings of all that a demo measures at its small size."""
    demo = importlib.import_module(f"runnable_demos.{name}")
    config = demo.PRESETS["small"]
    torch.manual_seed(config.seed)
    with pytest.MonkeyPatch.context() as patch:
        if name in RANKS:
            patch.setenv("PYTHONPATH", str(ROOT))
            task = {**asdict(config), "demo": name}
            reports = ranks.launch("tests.demos.allocator", config.ranks, task)
            return tuple(Reading(**reading) for found in reports for reading in found["readings"])
        with audited() as readings:
            if name in REAL_MODELS_TOO_LARGE:
                demo.compare(config.device, config.proofs)
            else:
                if hasattr(demo, "fake"):
                    patch.setattr(demo, "fake", nullcontext)
                demo.run(config, lambda *_: None)
    return tuple(readings)


@pytest.mark.parametrize("name", measures_live_bytes())
def test_the_meter_agrees_with_the_allocator(name: str) -> None:
    """Each peak that a demo reads is the allocator's, but for one-element tensors and named scratch."""
    readings = audit(name)
    assert readings, "a peak is claimed, and nothing was measured on real tensors"
    for reading in readings:
        assert abs(reading.tensors - reading.meter) <= SLACK, reading
        if name not in SCRATCH:
            assert abs(reading.allocator - reading.meter) <= SLACK, reading


@pytest.mark.parametrize("name", SCRATCH)
def test_every_named_scratch_is_there(name: str) -> None:
    """An exception that is no longer needed has to go."""
    assert any(reading.allocator - reading.meter > SLACK for reading in audit(name))


def test_peaks_are_claimed_of_many_demos() -> None:
    """The search for claims on peaks finds them: cards speak of the peak in most of the family."""
    assert {"checkpoint_spacing", "checkpoint_extremes", "forecast", "offload"} <= claimed()


# --- the comparison can say no ---


def reading_of(hidden: str) -> Reading:
    """One allocation of 4,000 bytes that is dispatched, and one that is hidden or done wrong."""
    with audited() as readings, LiveMemory() as live:
        a = torch.zeros(1000)
        if hidden == "generator state":
            kept = torch.default_generator.get_state()
        elif hidden == "below the dispatcher":
            with torch.utils._python_dispatch._disable_current_modes():
                kept = torch.zeros(1000)
        elif hidden == "forgotten":
            next(iter(live._blocks.values())).finalizer()
            kept = torch.zeros(1000)
        else:
            kept = a
        assert a.numel() + kept.numel() > 1000
    return readings[0]


@pytest.mark.parametrize(
    ("hidden", "missed"),
    [("generator state", 5056), ("below the dispatcher", 4000), ("forgotten", 4000), ("", 0)],
)
def test_what_the_meter_misses_is_found(hidden: str, missed: int) -> None:
    """The allocator sees what hides from the meter, to the byte, and nothing where nothing hides."""
    reading = reading_of(hidden)
    assert reading.allocator - reading.meter == missed
    assert reading.tensors - reading.meter == missed


def test_scratch_is_told_from_what_lasts() -> None:
    """What a custom operation takes and drops inside is scratch; its result is not."""

    @torch.library.custom_op("proofdeck_test::wasteful", mutates_args=())
    def wasteful(x: Tensor) -> Tensor:
        return x.repeat(4).exp()[:1000].clone()

    x = torch.zeros(1000)
    with audited() as readings, LiveMemory():
        y = wasteful(x)
    assert y.numel() == 1000
    assert readings == [Reading(meter=4000, allocator=2 * 16000, tensors=4000)]


def test_fake_tensors_of_the_library_are_no_memory() -> None:
    """A shape worked out on a fake tensor in the middle of a real step adds no byte."""
    with audited() as readings, LiveMemory() as live:
        a = torch.zeros(10)
        with fake():
            b = torch.zeros(1000)
        assert live.current == 40
        assert a.numel() + b.numel() == 1010
    assert readings == [Reading(meter=40, allocator=40, tensors=40)]


@pytest.mark.parametrize("preserve", [False, True])
def test_the_state_that_a_checkpoint_keeps_is_counted(preserve: bool) -> None:
    """Ten checkpoints keep ten states of the generator by default, which both meters see, or none."""
    x = torch.zeros(1000, requires_grad=True)
    with audited() as readings, LiveMemory() as live:
        y = x * 1.0
        for _ in range(10):
            y = checkpoint(torch.sin, y, use_reentrant=False, preserve_rng_state=preserve)
        states = live.current - 11 * 4000
        y.sum().backward()
    assert states == (10 * torch.get_rng_state().nbytes if preserve else 0)
    assert abs(readings[0].allocator - readings[0].meter) <= SLACK
