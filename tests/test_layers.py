"""The layered drawing holds its promises on any acyclic graph."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from generator.graph.layers import layered_rows


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
    """Nodes of a layer, and edges that pass it, are at least 1 apart; none is above the first row."""
    layers, edges = graph
    rows, between = layered_rows(layers, edges)
    assert rows.keys() == layers.keys()
    assert between.keys() == set(edges)
    passing = [
        (layers[a] + 1 + i, row) for (a, _), via in between.items() for i, row in enumerate(via)
    ]
    assert min([*rows.values(), *(row for _, row in passing)], default=0) == 0
    for layer in set(layers.values()):
        within = [rows[node] for node in layers if layers[node] == layer]
        within = sorted(within + [row for column, row in passing if column == layer])
        assert all(b - a > 1 - 1e-9 for a, b in itertools.pairwise(within))


def test_a_chain_is_straight() -> None:
    """Nodes that follow one another stand in one row."""
    rows, _ = layered_rows({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c")])
    assert rows == {"a": 0, "b": 0, "c": 0}


def test_a_fork_is_centred() -> None:
    """The node before two others stands between them."""
    rows, _ = layered_rows({"a": 0, "b": 1, "c": 1}, [("a", "b"), ("a", "c")])
    assert rows == {"a": 0.5, "b": 0, "c": 1}


def test_crossings_are_undone() -> None:
    """Two chains whose nodes come in crossed order are drawn side by side."""
    rows, _ = layered_rows({"a": 0, "b": 0, "d": 1, "c": 1}, [("a", "c"), ("b", "d")])
    assert (rows["a"] < rows["b"]) == (rows["c"] < rows["d"])


def test_a_long_edge_keeps_clear_of_the_nodes_between() -> None:
    """An edge over a column passes it in a row of its own; a short one has none."""
    rows, between = layered_rows({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c"), ("a", "c")])
    (passing,) = between["a", "c"]
    assert abs(passing - rows["b"]) >= 1
    assert between["a", "b"] == between["b", "c"] == []
