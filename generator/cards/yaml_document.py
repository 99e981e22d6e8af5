"""YAML as plain data, with the place of each key and entry, for data that people write by hand.

Anchors, aliases, tags and deep nesting have no use here and are what YAML bombs are made of:
they are refused before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

import yaml
from yaml.constructor import SafeConstructor

from generator.characters import faults
from generator.lines import Lines, strange
from generator.problems import Place, Problem

MAX_DEPTH = 8
"""Lists and mappings inside one another; ``modules.yml`` needs five."""

_PLAIN = "tag:yaml.org,2002:"
_INDENTED_BY_TAB = re.compile(r"^ *\t", re.MULTILINE)
_ENTRY_HINT = "Quote a value that holds `: `, ` #` or begins with one of `[ ] { } * & ! | > % @`."


@dataclass(frozen=True, slots=True)
class Document:
    """The data, and where each part stands: ``title.zh`` a key, ``tags.0`` an entry of a list.

    ``value`` is ``None`` where there is nothing to read, or nothing readable.
    """

    value: Any
    places: Mapping[str, Place]
    problems: tuple[Problem, ...]


def read(lines: Lines, start: int = 0, end: int | None = None) -> Document:
    """Read ``lines.text[start:end]``; every fault becomes a problem, none is raised."""
    end = len(lines.text) if end is None else end
    text = lines.text[start:end]
    tabs = tuple(
        Problem(
            lines.place(start + found.end() - 1),
            "yaml-tab",
            "a tab indents this line, and YAML allows only spaces there",
            "Replace the tab by spaces.",
        )
        for found in _INDENTED_BY_TAB.finditer(text)
    )
    if tabs:
        return Document(None, {}, tabs)
    reading = _Reading(lines, start)
    try:
        if refused := reading.refuse(text):
            return Document(None, {}, (refused,))
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        return Document(None, {}, (reading.broken(error),))
    value = None if node is None else reading.value(node, "")
    return Document(value, reading.places, tuple(reading.problems))


class _Mark(Protocol):
    """What both YAML readers say of a place: how many characters stand before it."""

    index: int


@dataclass
class _Reading:
    """One document being read."""

    lines: Lines
    start: int
    places: dict[str, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, mark: _Mark | None) -> Place:
        # The line of a mark counts U+0085 and U+2028 as line ends, which no editor does.
        return self.lines.place(self.start + (mark.index if mark else 0))

    def refuse(self, text: str) -> Problem | None:
        """What this reader does not accept although it is YAML, found without building it."""
        depth = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                return Problem(
                    self.place(event.start_mark),
                    "yaml-alias",
                    "anchors (`&`) and aliases (`*`) are not read here",
                    "Write the value out; quote it if `&` or `*` is part of it.",
                )
            if tag := getattr(event, "tag", None):
                return Problem(
                    self.place(event.start_mark),
                    "yaml-tag",
                    f"the YAML tag `{tag}` is not read here",
                    "Remove the tag; quote the value if `!` is part of it.",
                )
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    return Problem(
                        self.place(event.start_mark),
                        "yaml-depth",
                        f"lists and mappings stand more than {MAX_DEPTH} deep in one another",
                        "Close the brackets, or flatten the value.",
                    )
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return None

    def broken(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = [getattr(error, "problem", None), getattr(error, "context", None)]
        reason = ", ".join(part for part in said if part) or "it cannot be read"
        return Problem(self.place(mark), "yaml-syntax", f"this is no YAML: {reason}", _ENTRY_HINT)

    def value(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            for index, entry in enumerate(node.value):
                self.places[_join(path, index)] = self.place(entry.start_mark)
            return [self.value(entry, _join(path, i)) for i, entry in enumerate(node.value)]
        self._strange(node)
        return _scalar(node)

    def _strange(self, node: yaml.Node) -> None:
        r"""Characters that only an escape, such as ``"\u200b"``, brought into a text."""
        for fault in faults(str(node.value)):
            if fault.character not in self.lines.text:
                self.problems.append(strange(fault, self.place(node.start_mark)))

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(
                    Problem(place, "yaml-key", "a list or mapping cannot be a key", _ENTRY_HINT)
                )
                continue
            key = key_node.value
            self._strange(key_node)
            if key in result:
                first = self.places[_join(path, key)]
                self.problems.append(
                    Problem(
                        place,
                        "duplicate-key",
                        f"`{key}` is given twice, first in line {first.line}",
                        "Keep one of the two.",
                    )
                )
                continue
            self.places[_join(path, key)] = place
            result[key] = self.value(value_node, _join(path, key))
        return result


def _join(path: str, part: str | int) -> str:
    return f"{path}.{part}" if path else str(part)


def _scalar(node: yaml.Node) -> bool | int | float | str | date | None:
    """The value of a scalar; what looks like a date or a number and is none stays text."""
    kind = node.tag.removeprefix(_PLAIN)
    if kind not in {"null", "bool", "int", "float", "timestamp"}:
        return str(node.value)
    try:
        value: bool | int | float | date | None = SafeConstructor().construct_object(node)
    except (ValueError, OverflowError, yaml.YAMLError):
        return str(node.value)
    return value
