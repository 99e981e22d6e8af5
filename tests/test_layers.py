"""The layered drawing holds its promises on any acyclic graph."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.layers import layered_rows


@st.composite
def layered_graphs(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Up to 60 nodes in up to 8 layers, with edges from earlier layers to later ones."""
    layers = {f"n{i}": draw(st.integers(0, 7)) for i in range(draw(st.integers(0, 60)))}
    pairs = [(a, b) for a in layers for b in layers if layers[a] < layers[b]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=80)) if pairs else []
    return layers, edges


@given(layered_graphs())
def test_nodes_of_a_layer_never_overlap(
    graph: tuple[dict[str, int], list[tuple[str, str]]],
) -> None:
    """Every node has a row, none above the first, and those of a layer are at least 1 apart."""
    layers, edges = graph
    rows = layered_rows(layers, edges)
    assert rows.keys() == layers.keys()
    assert min(rows.values(), default=0) == 0
    for layer in set(layers.values()):
        within = sorted(rows[node] for node in layers if layers[node] == layer)
        assert all(b - a > 1 - 1e-9 for a, b in itertools.pairwise(within))


def test_a_chain_is_straight() -> None:
    """Nodes that follow one another stand in one row."""
    rows = layered_rows({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c")])
    assert rows == {"a": 0, "b": 0, "c": 0}


def test_a_fork_is_centred() -> None:
    """The node before two others stands between them."""
    rows = layered_rows({"a": 0, "b": 1, "c": 1}, [("a", "b"), ("a", "c")])
    assert rows == {"a": 0.5, "b": 0, "c": 1}


def test_crossings_are_undone() -> None:
    """Two chains whose nodes come in crossed order are drawn side by side."""
    rows = layered_rows({"a": 0, "b": 0, "d": 1, "c": 1}, [("a", "c"), ("b", "d")])
    assert (rows["a"] < rows["b"]) == (rows["c"] < rows["d"])


def test_a_long_edge_keeps_clear_of_the_nodes_between() -> None:
    """The node that an edge passes over does not stand on the line from end to end."""
    rows = layered_rows({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c"), ("a", "c")])
    assert abs(rows["b"] - (rows["a"] + rows["c"]) / 2) == pytest.approx(0.5, abs=0.01)
