"""What a browser would find in a page: ids, links, resources, and text by language."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {
    *(
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
    ),
    "wbr",
}


@dataclass
class Element:
    """An element with its attributes and what stands in it."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return self.attributes.get(name, "")

    def all(self, tag: str = "", **wanted: str) -> list[Element]:
        """The elements below with this tag and with these words among their attributes' values."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                named = {name.strip("_").replace("_", "-"): value for name, value in wanted.items()}
                if tag in ("", child.tag) and all(v in child[n].split() for n, v in named.items()):
                    found.append(child)
                found += child.all(tag, **wanted)
        return found

    def text(self) -> str:
        """All text below, on one line."""
        pieces = (each if isinstance(each, str) else each.text() for each in self.children)
        return " ".join(" ".join(pieces).split())

    def language(self) -> str:
        """The nearest ``lang``; an empty one says that nobody speaks this."""
        if "lang" in self.attributes or not self.parent:
            return self["lang"]
        return self.parent.language()


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.open = Element("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.children.append(Element(tag, {n: v or "" for n, v in attrs}, self.open))

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self.open
        while at and at.tag != tag:
            at = at.parent
        if at and at.parent:
            self.open = at.parent

    def handle_data(self, data: str) -> None:
        self.open.children.append(data)


def read(html: str) -> Element:
    """The document as a tree."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    return builder.root
