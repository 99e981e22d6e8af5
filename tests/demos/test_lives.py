"""How long tensors are alive, on tensors that the tests themselves let go."""

from __future__ import annotations

import torch

from runnable_demos.lab.lives import Life, Lives, when_freed


def test_memory_is_free_when_its_last_view_is_gone() -> None:
    """Letting go of the tensor is not enough while a view is there."""
    said: list[str] = []
    x = torch.zeros(4)
    when_freed(x, said.append, "free")
    view = x[1:]
    del x
    assert said == []
    del view
    assert said == ["free"]


def test_lives_are_counted_in_actions() -> None:
    """Born in the first action and let go in the third; the other one ends first."""
    lives = Lives()
    lives.begin()
    x = torch.zeros(4)
    lives.follow("x", x)
    lives.begin()
    y = x * 2.0
    lives.follow(2, y)
    del y
    lives.begin("what a hook passes")
    del x
    assert lives.ended == [Life(2, 16, 2, 2), Life("x", 16, 1, 3)]
