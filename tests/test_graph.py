"""The knowledge graph shows every card, every prerequisite and every path, in its place."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from generator.graph.drawing import (
    LINE_WIDTH,
    NODE_WIDTH,
    Graph,
    Node,
    graph_page,
    neighbourhood,
    place,
)
from generator.library.library import Library, load

BASE = Path(__file__).parent / "library"


@pytest.fixture(scope="module")
def library() -> Library:
    """The small base."""
    found, _ = load(BASE / "cards", demos=BASE / "runnable_demos")
    assert found
    return found


@pytest.fixture(scope="module")
def large(library: Library) -> Library:
    """A thousand cards in two modules, each after the one before it in its row of ten."""
    like = next(iter(library.cards.values()))
    cards = {
        f"c{i}": replace(
            like,
            id=f"c{i}",
            module=("numerics", "storage")[i % 2],
            prerequisites=(f"c{i - 2}",) if i % 20 > 1 else (),
            title={
                "zh": f"第 {i} 张卡片讲的是一件说来话长的事情",
                "en": f"Card {i} <on> a & b" * 3,
            },
        )
        for i in range(1000)
    }
    return replace(library, cards=cards, unlocks={}, backlinks={})


def overlapping(graph: Graph) -> list[tuple[Node, Node]]:
    """Pairs of nodes of which one lies on the other."""
    nodes = sorted(graph.nodes.values(), key=lambda node: node.x)
    found = []
    for i, a in enumerate(nodes):
        for b in nodes[i + 1 :]:
            if b.x >= a.x + NODE_WIDTH:
                break
            if abs(a.y - b.y) < a.height:
                found.append((a, b))
    return found


def parsed(page: str) -> ET.Element:
    """The page as XML, which it is as long as nothing in it is left open."""
    return ET.fromstring(page.replace(" data-pd-graph", "").replace("&nbsp;", " "))


def test_every_card_is_placed(library: Library) -> None:
    """Written and planned cards alike, each in the frame of its module."""
    graph = place(library)
    planned = {card.id for module in library.modules.values() for card in module.planned}
    assert graph.nodes.keys() == library.cards.keys() | planned
    frames = {box.module.id: box for box in graph.boxes}
    for node in graph.nodes.values():
        box = frames[node.module]
        assert box.x < node.x
        assert box.y < node.y
        assert node.x + NODE_WIDTH < box.x + box.width
        assert node.y + node.height < box.y + box.height


def test_prerequisites_stand_to_the_left(library: Library) -> None:
    """Within a module every arrow points to the right."""
    graph = place(library)
    assert graph.edges
    for edge in graph.edges:
        assert graph.nodes[edge.start].x + NODE_WIDTH < graph.nodes[edge.end].x


def test_a_thousand_cards_do_not_overlap(large: Library) -> None:
    """No node lies on another, and no frame on another."""
    graph = place(large)
    assert len([node for node in graph.nodes.values() if node.card]) == 1000
    assert overlapping(graph) == []
    for i, a in enumerate(graph.boxes):
        for b in graph.boxes[i + 1 :]:
            apart = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_no_arrow_crosses_a_card(large: Library) -> None:
    """Where an arrow passes a column, it passes between the cards of that column."""
    chain = {
        name: replace(card, prerequisites=(*card.prerequisites, "c0")[: 2 if i % 2 == 0 else 0])
        for i, (name, card) in enumerate(large.cards.items())
        if i < 200 and name != "c0"
    }
    graph = place(replace(large, cards={"c0": large.cards["c0"], **chain}))
    passing = [spot for edge in graph.edges for spot in edge.via]
    assert passing
    for x, y in passing:
        for node in graph.nodes.values():
            assert node.x != x or not node.y < y < node.y + node.height


def test_long_titles_are_cut_to_the_node(large: Library) -> None:
    """No line of a label is wider than a node, and marks in titles are escaped."""
    page = graph_page(place(large), large, lambda card: f"../cards/{card}/")
    lines = [span.text or "" for span in parsed(page).iter("tspan") if span.get("x")]
    assert lines
    # 7 px a Latin letter and 13 a 汉字 is what the font needs at 13 px; a little slack on top.
    assert all(
        sum(13 if ord(character) > 0x2E80 else 7 for character in line) <= LINE_WIDTH + 1
        for line in lines
    )


def test_the_page_draws_what_is_there(library: Library) -> None:
    """One link a written card, one mark a planned one, one arrow a prerequisite, one line a path."""
    page = parsed(graph_page(place(library), library, lambda card: f"../cards/{card}/"))
    links = {node.get("data-card"): node.get("href") for node in page.iter("a")}
    assert links == {card: f"../cards/{card}/" for card in library.cards}
    planned = [each for each in page.iter("g") if "pd-planned" in (each.get("class") or "")]
    assert [each.get("data-card") for each in planned] == ["pairwise-sum"]
    edges = [each for each in page.iter("path") if each.get("class") == "pd-edge"]
    assert len(edges) == sum(len(card.prerequisites) for card in library.cards.values())
    (stops,) = (each for each in page.iter("g") if each.get("class") == "pd-stops")
    assert [text.text for text in stops.iter("text")] == ["1", "2", "3", "4"]


def test_each_card_shows_its_neighbourhood(library: Library) -> None:
    """A card stands between what it needs and what it unlocks; without either nothing is drawn."""
    card = library.cards["kahan-sum"]
    drawn = parsed(neighbourhood(card, library, lambda name: f"../{name}/"))
    linked = {node.get("data-card") for node in drawn.iter("a")}
    assert linked == {*card.prerequisites, *library.unlocks.get(card.id, ())}
    alone = replace(card, id="alone", prerequisites=())
    assert neighbourhood(alone, library, str) == ""


def test_the_same_library_gives_the_same_bytes(library: Library) -> None:
    """Two drawings of one base are equal."""
    assert graph_page(place(library), library, str) == graph_page(place(library), library, str)
