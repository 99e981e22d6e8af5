"""The knowledge graph as SVG: cards by module, prerequisites as arrows, learning paths over them.

Placed at build time, so the page needs no layout of its own; ``site_overrides/scripts/graph.js``
zooms, pans and filters what is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from markupsafe import Markup

from generator.cards.model import Card, LearningPath, Module
from generator.graph.layers import layered_rows
from generator.lang import Lang, Text
from generator.library.library import Library
from generator.render.markup import template

Address = Callable[[str], str]
"""The address of a card's page, as seen from the page that the graph is on."""

NODE_WIDTH, LEAST_HEIGHT = 176, 54
COLUMN, BETWEEN = 236, 14
LINE, EDGE = 14, 8
"""A line of a title, and what a node is higher than its lines."""
PADDING, TITLE_HEIGHT, GAP = 28, 44, 36
LINE_WIDTH = 160
ASPECT = 1.5


@dataclass(frozen=True, slots=True)
class Node:
    """A card in its place; a planned one has no ``card``. ``x`` and ``y`` are its upper left."""

    id: str
    title: Text
    module: str
    card: Card | None
    x: float
    y: float
    height: float

    @property
    def entry(self) -> tuple[float, float]:
        """Where arrows arrive: the middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def exit(self) -> tuple[float, float]:
        """Where arrows leave: the middle of the right side."""
        return self.x + NODE_WIDTH, self.y + self.height / 2

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of the node."""
        return self.x + NODE_WIDTH / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Box:
    """The frame of a module, around its cards."""

    module: Module
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow from a prerequisite; ``via`` are the places between nodes where it passes a column."""

    start: str
    end: str
    via: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """All nodes, the frames of the modules around them, and who must be read before whom."""

    nodes: Mapping[str, Node]
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float


# --- placing -------------------------------------------------------------------------------------


def place(library: Library) -> Graph:
    """Lay out every card: layered from left to right within its module, modules in rows."""
    edges = [
        (needed, card.id)
        for card in library.cards.values()
        for needed in dict.fromkeys(card.prerequisites)
    ]
    depth = _depths(library)
    planned = (card for module in library.modules.values() for card in module.planned)
    written = (card.title for card in library.cards.values())
    height = _height([*written, *(card.title for card in planned)])
    drawn = [(m, *_module(m, library, edges, depth, height)) for m in library.modules.values()]
    drawn = [group for group in drawn if group[1]]
    sizes = [_size(nodes, inner) for _, nodes, inner in drawn]
    corners, width, height = _shelves(sizes)
    placed: dict[str, Node] = {}
    routes: dict[tuple[str, str], Edge] = {}
    boxes: list[Box] = []
    for (module, nodes, inner), size, corner in zip(drawn, sizes, corners, strict=True):
        boxes.append(Box(module, *corner, *size))
        right, down = corner[0] + PADDING, corner[1] + TITLE_HEIGHT + PADDING / 2
        for node in nodes:
            placed[node.id] = replace(node, x=node.x + right, y=node.y + down)
        for edge in inner:
            via = tuple((x + right, y + down) for x, y in edge.via)
            routes[edge.start, edge.end] = replace(edge, via=via)
    known = [ends for ends in edges if ends[0] in placed and ends[1] in placed]
    arrows = tuple(routes.get(ends) or Edge(*ends) for ends in known)
    return Graph(placed, tuple(boxes), arrows, width, height)


def _depths(library: Library) -> dict[str, int]:
    """How long the longest chain of prerequisites within its module is, for each card."""
    home = {
        planned.id: module.id for module in library.modules.values() for planned in module.planned
    }
    depths = dict.fromkeys(home, 0)
    for card in library.cards.values():  # no card before its prerequisites
        within = [
            depths[needed] + 1
            for needed in card.prerequisites
            if needed in depths and home[needed] == card.module
        ]
        depths[card.id] = max(within, default=0)
        home[card.id] = card.module
    return depths


def _module(
    module: Module,
    library: Library,
    edges: Iterable[tuple[str, str]],
    depth: Mapping[str, int],
    height: float,
) -> tuple[list[Node], list[Edge]]:
    """What one module holds, around its own origin: the connected cards layered, the rest below."""
    cards: dict[str, tuple[Text, Card | None]] = {
        card.id: (card.title, card) for card in library.cards.values() if card.module == module.id
    }
    cards |= {planned.id: (planned.title, None) for planned in module.planned}
    inner = [(a, b) for a, b in edges if a in cards and b in cards]
    joined = [name for name in cards if any(name in edge for edge in inner)]
    loose = [name for name in cards if name not in set(joined)]
    rows, between = layered_rows({name: depth.get(name, 0) for name in joined}, inner)
    spots = {name: (depth.get(name, 0), row) for name, row in rows.items()}
    columns = 1 + max(
        [column for column, _ in spots.values()] + [round(sqrt(len(loose))) - 1], default=0
    )
    below = 1 + max([*rows.values(), *(row for via in between.values() for row in via)], default=-1)
    spots |= {name: (i % columns, below + i // columns) for i, name in enumerate(loose)}
    row = height + BETWEEN
    nodes = [
        Node(name, title, module.id, card, spots[name][0] * COLUMN, spots[name][1] * row, height)
        for name, (title, card) in cards.items()
    ]
    arrows = [
        Edge(
            start,
            end,
            tuple(
                ((depth.get(start, 0) + 1 + i) * COLUMN, place * row + height / 2)
                for i, place in enumerate(via)
            ),
        )
        for (start, end), via in between.items()
    ]
    return nodes, arrows


def _size(nodes: Iterable[Node], edges: Iterable[Edge]) -> tuple[float, float]:
    right = max(node.x for node in nodes) + NODE_WIDTH
    ends = [node.y + node.height for node in nodes] + [y for edge in edges for _, y in edge.via]
    return right + 2 * PADDING, max(ends) + TITLE_HEIGHT + 1.5 * PADDING


def _shelves(
    sizes: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float]], float, float]:
    """Corners for boxes set in rows, in their order, and the size of the whole."""
    area = sum((width + GAP) * (height + GAP) for width, height in sizes)
    limit = max([sqrt(area * ASPECT), *(width for width, _ in sizes)], default=0)
    corners: list[tuple[float, float]] = []
    left = top = tallest = widest = 0.0
    for width, height in sizes:
        if left and left + width > limit:
            left, top, tallest = 0.0, top + tallest + GAP, 0.0
        corners.append((left, top))
        widest = max(widest, left + width)
        left, tallest = left + width + GAP, max(tallest, height)
    return corners, widest, top + tallest


# --- drawing -------------------------------------------------------------------------------------


def graph_page(graph: Graph, library: Library, address: Address) -> Markup:
    """The controls and the drawing of the graph page, as one piece of HTML."""
    used = {card.module for card in library.cards.values()}
    return template(
        "graph_canvas.html",
        {
            **_SIZES,
            "graph": graph,
            "view": f"{-GAP} {-GAP} {graph.width + 2 * GAP:g} {graph.height + 2 * GAP:g}",
            "address": address,
            "modules": [module for module in library.modules.values() if module.id in used],
            "tags": sorted({tag for card in library.cards.values() for tag in card.tags}),
            "paths": [(path, _on(path, graph)) for path in library.paths],
        },
    )


def neighbourhood(card: Card, library: Library, address: Address) -> Markup:
    """A card between its prerequisites and what it unlocks, as SVG; empty where it has neither."""
    before = [name for name in card.prerequisites if _title(name, library)]
    after = list(library.unlocks.get(card.id, ()))
    if not before and not after:
        return Markup()
    rows = max(len(before), len(after), 1)
    height = _height(_title(name, library) for name in [*before, card.id, *after])
    nodes: dict[str, Node] = {}
    for column, names in enumerate((before, [card.id], after)):
        offset = (rows - len(names)) / 2
        for row, name in enumerate(names):
            title = _title(name, library)
            spot = 2 + column * COLUMN, 2 + (row + offset) * (height + BETWEEN)
            node = Node(name, title, card.module, library.cards.get(name), *spot, height)
            nodes.setdefault(name, node)
    edges = [(name, card.id) for name in before] + [(card.id, name) for name in after]
    return template(
        "graph_neighbours.html",
        {
            **_SIZES,
            "card": card,
            "nodes": nodes,
            "edges": [Edge(*ends) for ends in edges],
            "width": 2 * COLUMN + NODE_WIDTH + 4,
            "height": (rows - 1) * (height + BETWEEN) + height + 4,
            "address": address,
        },
    )


def _title(name: str, library: Library) -> Text:
    if name in library.cards:
        return library.cards[name].title
    planned = (card for module in library.modules.values() for card in module.planned)
    return next((card.title for card in planned if card.id == name), {})


def _route(edge: Edge, nodes: Mapping[str, Node]) -> str:
    """An arrow's path: level where it leaves, passes a column and arrives."""
    x, y = nodes[edge.start].exit
    parts = [f"M{x:g} {y:g}"]
    for left, level in edge.via:
        parts.append(f"{_bend(x, y, left, level)}H{left + NODE_WIDTH:g}")
        x, y = left + NODE_WIDTH, level
    left, level = nodes[edge.end].entry
    return "".join([*parts, _bend(x, y, left - 2, level)])


def _bend(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = max(28.0, abs(x2 - x1) / 2)
    return f"C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"


def _on(path: LearningPath, graph: Graph) -> list[Node]:
    return [graph.nodes[name] for name in path.cards if name in graph.nodes]


def _height(titles: Iterable[Text]) -> float:
    """How high a node is, that the longest of these titles is whole in it with its languages one above the other."""
    most = max((sum(len(_wrapped(each)) for each in title.values()) for title in titles), default=0)
    return max(LEAST_HEIGHT, most * LINE + EDGE)


def _beside(title: Text, lang: Lang) -> int:
    """How many lines the other languages have."""
    return sum(len(_wrapped(words)) for other, words in title.items() if other != lang)


def _wrapped(title: str) -> list[str]:
    """``title`` in lines that fit a node: between words, between 汉字, and within a word that is too long."""
    found: list[str] = [""]
    for piece in _pieces(title):
        if not found[-1] or _width(found[-1] + piece.rstrip()) <= LINE_WIDTH:
            found[-1] += piece
        else:
            found.append(piece)
        while _width(found[-1].rstrip()) > LINE_WIDTH:
            fit = _fitting(found[-1])
            found[-1:] = [found[-1][:fit], found[-1][fit:]]
    return [line.strip() for line in found]


def _fitting(word: str) -> int:
    """How many characters of a word fit a line, up to the last mark among them."""
    most = next(n for n in range(len(word), 0, -1) if _width(word[:n]) <= LINE_WIDTH)
    return max(word.rfind(mark, 0, most) for mark in "._-/") + 1 or most


def _pieces(title: str) -> Iterator[str]:
    """Where a line may break: behind a space, and behind each 汉字."""
    word = ""
    for character in title:
        word += character
        if character == " " or ord(character) >= 0x2E80:
            yield word
            word = ""
    if word:
        yield word


def _width(text: str) -> float:
    """About how wide the text is at 13 px."""
    return sum(13.2 if ord(character) >= 0x2E80 else 7.1 for character in text)


_SIZES: Mapping[str, object] = {
    "node_width": NODE_WIDTH,
    "line": LINE,
    "padding": PADDING,
    "title_height": TITLE_HEIGHT,
    "route": _route,
    "wrapped": _wrapped,
    "beside": _beside,
}
"""What the templates of the drawing share: its measures, an arrow's path, and the lines of a title."""
