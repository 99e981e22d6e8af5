"""Layered drawing of an acyclic graph: few crossings, short arrows (Sugiyama, Tagawa and Toda 1981).

igraph's own version crashes on some graphs of a hundred nodes, so these few lines stand in for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

SWEEPS = 12


def layered_rows(
    layers: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[dict[str, float], dict[tuple[str, str], list[float]]]:
    """The row of each node, from 0 upwards, where ``layers`` maps every node to its column.

    Each edge goes to a later layer. Within a column rows are at least 1 apart; an edge that passes
    over columns keeps a row of its own in each, so that no node lies in its way: these are the
    second result, for every edge, empty where it goes to the next column.
    """
    neighbours, columns = _columns(layers, edges)
    rows: dict[Hashable, float] = {
        node: float(row) for column in columns for row, node in enumerate(column)
    }
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for index in range(len(columns)) if forward else reversed(range(len(columns))):
            beside = index - 1 if forward else index + 1
            wanted = {
                node: _mean([rows[n] for n, at in neighbours[node] if at == beside], rows[node])
                for node in columns[index]
            }
            columns[index].sort(key=wanted.__getitem__)
            rows |= zip(columns[index], _apart([wanted[n] for n in columns[index]]), strict=True)
    top = min(rows.values(), default=0.0)
    between = {
        (start, end): [
            rows[start, end, layer] - top for layer in range(layers[start] + 1, layers[end])
        ]
        for start, end in edges
    }
    return {node: rows[node] - top for node in layers}, between


def _columns(
    layers: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[dict[Hashable, list[tuple[Hashable, int]]], list[list[Hashable]]]:
    """Who is beside whom, with the column of each, and the columns, stand-ins of long edges included."""
    columns: list[list[Hashable]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    neighbours: dict[Hashable, list[tuple[Hashable, int]]] = {}
    for node, layer in layers.items():
        columns[layer].append(node)
        neighbours[node] = []
    for start, end in edges:
        chain: list[Hashable] = [start]
        for layer in range(layers[start] + 1, layers[end]):
            chain.append((start, end, layer))
            columns[layer].append(chain[-1])
            neighbours[chain[-1]] = []
        chain.append(end)
        for offset in range(len(chain) - 1):
            left, right, layer = chain[offset], chain[offset + 1], layers[start] + offset
            neighbours[left].append((right, layer + 1))
            neighbours[right].append((left, layer))
    return neighbours, columns


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _apart(wanted: Sequence[float]) -> list[float]:
    """Ascending rows at least 1 apart, and as near to those wanted as least squares can be.

    With ``i`` subtracted from the i-th this is isotonic regression: neighbours that violate the order
    are pooled at their mean.
    """
    pools: list[tuple[float, int]] = []
    for i, row in enumerate(wanted):
        total, count = row - i, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    flat = [total / count for total, count in pools for _ in range(count)]
    return [row + i for i, row in enumerate(flat)]
