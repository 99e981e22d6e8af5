"""Counting collectives, against messages whose sizes are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from runnable_demos.lab.collectives import Collective, Collectives, volume


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one rank, which issues the same operators as a large one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_every_kind_is_listed_with_its_whole_message(alone: None) -> None:
    """Order and bytes are those of the calls; within the context alone."""
    x = torch.ones(6)
    dist.all_reduce(x)
    with Collectives() as issued:
        dist.all_reduce(x)
        dist.broadcast(x[:2], src=0)
        dist.all_gather_single(torch.empty(6), x)
        dist.reduce_scatter_single(torch.empty(6), x)
        dist.barrier()
    assert issued.calls == [
        Collective("all_reduce", 24),
        Collective("broadcast", 8),
        Collective("all_gather", 24),
        Collective("reduce_scatter", 24),
    ]
    assert issued.nbytes("broadcast") == 8


def test_collectives_within_the_backward_are_seen(alone: None) -> None:
    """DDP reduces its gradients from C++, through the same operator."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 5, bias=False))
    model(torch.ones(1, 3)).sum().backward()
    with Collectives() as issued:
        model(torch.ones(1, 3)).sum().backward()
    assert issued.nbytes("all_reduce") == 3 * 5 * 4


def test_an_unknown_collective_is_not_missed(alone: None) -> None:
    """What has no kind is an error, since a volume without it would be wrong."""
    with Collectives(), pytest.raises(ValueError, match="not counted"):
        dist.all_to_all([torch.empty(2)], [torch.ones(2)])


def test_volume_counts_an_all_reduce_twice() -> None:
    """It is a reduce-scatter and an all-gather."""
    halves = volume([("reduce_scatter", 10), ("all_gather", 10)])
    assert volume([("all_reduce", 10)]) == halves == 20
    assert volume([("broadcast", 3), ("send", 4), ("recv", 4)]) == 7
