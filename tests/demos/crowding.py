"""Words of a drawing that overlap, leave it or are small: reckoned from the SVG alone."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

SVG = "{http://www.w3.org/2000/svg}"
LEAST = 12
"""Pixels of a drawing; on a phone of 320 pixels one of them is nine tenths of a pixel."""


@dataclass(frozen=True)
class Words:
    """A text and the box that it takes."""

    words: str
    size: float
    left: float
    right: float
    top: float
    bottom: float


def wide(words: str, size: float) -> float:
    """汉字 are square; the average letter or digit of a sans-serif is half as wide as high, and wide ones more."""
    return size * sum(
        1.0 if c > "\u2e80" else 0.8 if c in "mwMW" else 0.65 if c.isupper() else 0.52
        for c in words
    )


def texts(svg: str) -> list[Words]:
    """Every text of a drawing."""
    found = []
    for node in ET.fromstring(svg).iter(f"{SVG}text"):
        style = node.attrib["style"]
        size = float(re.search(r"font-size: ([\d.]+)px", style)[1])  # type: ignore[index]
        anchor = re.search(r"text-anchor: (\w+)", style)
        moved = re.search(r"translate\((\S+) (\S+)\)", node.attrib.get("transform", ""))
        x, y = map(float, moved.groups() if moved else (node.attrib["x"], node.attrib["y"]))
        width = wide(node.text or "", size)
        x -= {"middle": width / 2, "end": width}.get(anchor[1] if anchor else "", 0.0)
        found.append(Words(node.text or "", size, x, x + width, y - 0.8 * size, y + 0.15 * size))
    return [each for each in found if each.words]


def faults(svg: str) -> list[str]:
    """What a reader could not read, one sentence each."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    width, height = map(float, box.groups())
    all_of_it = texts(svg)
    said = []
    for each in all_of_it:
        if each.size < LEAST:
            said.append(f"{each.words!r} is small")
        if min(each.left, each.top) < -1 or each.right > width + 1 or each.bottom > height + 1:
            said.append(f"{each.words!r} is outside")
    for a, b in itertools.combinations(all_of_it, 2):
        across = min(a.right, b.right) - max(a.left, b.left)
        if across > 1 and min(a.bottom, b.bottom) - max(a.top, b.top) > 3:
            said.append(f"{a.words!r} collides with {b.words!r}")
    return said
