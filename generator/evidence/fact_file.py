"""``facts.yml``: public facts as people write them, each with its source.

An entry is ``id: {name: {zh, en}, kind, source, as_of, key: value, …}``. A value is a number with its
unit (``80 GB``, ``8030261248 param``), or a plain number. ``source`` (``{title, url, where, opened}``) is
that of all keys but those that ``sources`` gives another; ``derived`` says by which expression a key follows
from others; ``labels`` has the words for keys that this program does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, StringConstraints
from pydantic_core import PydanticCustomError

from generator import words
from generator.cards import yaml_document
from generator.cards.front_matter import Strict, Texts, Url, Words, validate
from generator.evidence.facts import Facts, FactSource, PublicFact
from generator.evidence.quantities import QuantityError
from generator.evidence.quantities import read as read_quantity
from generator.lang import Text
from generator.lines import Lines
from generator.names import is_id, suggest, why_no_id
from generator.problems import Place, Problem

FILE_NAME = "facts.yml"

_HERE = Path(__file__)
PACKAGED = next(
    (
        path
        for path in (_HERE.with_name(FILE_NAME), _HERE.parents[2] / "cards" / FILE_NAME)
        if path.is_file()
    ),
    None,
)
"""The facts that come with the program: beside this file in a package, among the cards in a checkout."""

LABELS: Mapping[str, Text] = words.group("facts")
"""What each key that the program knows is called."""

UNITS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "layers", "dense_layers", "width", "heads", "kv_heads", "head_width", "nope_head_width",
            "rope_head_width", "value_head_width", "query_latent", "kv_latent", "cached_width",
            "feed_forward", "expert_feed_forward", "experts", "active_experts", "shared_experts",
            "vocabulary", "links",
        ),
        "",
    ),
    "context": "token",
    **dict.fromkeys(
        ("parameters", "parameters_stated", "active_parameters", "active_parameters_stated"),
        "param",
    ),
    "memory": "B",
    **dict.fromkeys(
        ("memory_bandwidth", "nvlink", "link_per_direction", "per_direction", "total"), "B/s"
    ),
    **dict.fromkeys(("bf16", "fp8", "bf16_sparse", "fp8_sparse"), "FLOP/s"),
}  # fmt: skip
"""The unit of each key that the program knows; widths, counts and shapes have none."""

_FORMS: Mapping[str, str] = {
    "name": "a name in each language, such as `{zh: H100（SXM）, en: H100 (SXM)}`",
    "kind": "`model`, `device` or `link`",
    "source": 'the work that says so: `{title: "…", url: "https://…", where: "Table 3", opened: 2026-11-30}`',
    "as_of": "the day for which this holds, such as `2026-11-30`, without quotes",
    "sources": "works of keys with another source: `{memory: {title: …, url: …, where: …, opened: …}}`; "
    "`opened` is the day on which the place was read, or `false`",
    "derived": "expressions by key, such as `{head_width: width / heads}`",
    "labels": "words by key, in each language: `{tdp: {zh: 功耗, en: power}}`",
}


def _opened(day: Any) -> date | None:
    if day is False:
        return None
    if type(day) is not date:
        raise PydanticCustomError("opened", "no day")
    return day


class _Source(Strict):
    title: Words
    url: Annotated[Url, StringConstraints(pattern=r"^https://")]
    where: Words
    opened: Annotated[date | None, PlainValidator(_opened)]


class _Entry(Strict):
    name: Texts
    kind: Literal["model", "device", "link"]
    source: _Source
    as_of: date
    sources: dict[str, _Source] = Field(default_factory=dict)
    derived: dict[str, Words] = Field(default_factory=dict)
    labels: dict[str, Texts] = Field(default_factory=dict)


def read(text: str, path: str) -> tuple[Facts, list[Problem]]:
    """The facts of a file, and what is wrong with it; an entry with a fault is ``broken``."""
    lines = Lines(path, text)
    document = yaml_document.read(lines)
    problems = [*lines.problems, *document.problems]
    entries = document.value or {}
    if not isinstance(entries, dict):
        message, hint = (
            "this is not a list of entries",
            "Write `id: {name: …, kind: …, source: …}`.",
        )
        problems.append(Problem(lines.at(0), "wrong-value", message, hint))
    if not isinstance(entries, dict) or (document.value is None and document.problems):
        return Facts(whole=False), sorted(problems)
    found: dict[str, Mapping[str, PublicFact]] = {}
    kinds: dict[str, str] = {}
    broken: set[str] = set()
    for name, value in entries.items():
        reading = _Reading(name, _below(document.places, name))
        facts = reading.entry(value)
        if reading.problems:
            broken.add(name)
        else:
            found[name], kinds[name] = facts, value["kind"]
        problems += reading.problems
    return Facts(found, frozenset(broken), kinds=kinds), sorted(problems)


def _below(places: Mapping[str, Place], name: str) -> dict[str, Place]:
    """The places within an entry by their paths in it, and its own by an empty one."""
    inner = {
        path.removeprefix(f"{name}."): each
        for path, each in places.items()
        if path.startswith(f"{name}.")
    }
    return {**inner, "": places[name]}


@dataclass
class _Reading:
    """One entry being read."""

    name: str
    places: Mapping[str, Place]
    problems: list[Problem] = field(default_factory=list)

    def entry(self, value: Any) -> dict[str, PublicFact]:
        if not is_id(self.name):
            hint = "Write a name in kebab-case, such as `h100-sxm`."
            self._say("", "bad-id", f"`{self.name}` {why_no_id(self.name)}", hint)
        given = value if isinstance(value, dict) else {}
        about = {key: each for key, each in given.items() if key in _Entry.model_fields}
        numbers = {key: each for key, each in given.items() if key not in about}
        schema, found = validate(
            _Entry,
            about if isinstance(value, dict) else value,
            self.places,
            self.places[""],
            _FORMS,
        )
        self.problems += found
        if not isinstance(schema, _Entry):
            return {}
        labels = {**LABELS, **schema.labels}
        for part in ("sources", "derived", "labels"):
            for key in getattr(schema, part).keys() - numbers.keys():
                message = f"`{part}` speaks of `{key}`, which this entry does not have"
                self._say(f"{part}.{key}", "unknown-key", message, suggest(key, numbers))
        return dict(self._facts(schema, numbers, labels))

    def _facts(
        self, schema: _Entry, numbers: Mapping[str, Any], labels: Mapping[str, Text]
    ) -> Iterator[tuple[str, PublicFact]]:
        for key, raw in numbers.items():
            if key not in labels:
                near = suggest(key, {*labels, *_Entry.model_fields})
                own = f"Give a key of your own its words: `labels: {{{key}: {{zh: …, en: …}}}}`."
                hint = near if near.startswith("Did you mean") else own
                self._say(key, "unknown-key", f"there is no key `{key}` here", hint)
                continue
            try:
                value, unit = _value(raw)
            except QuantityError as error:
                hint = "Write a number and its unit, such as `80 GB`, `3.35 TB/s` or `8030261248 param`."
                self._say(key, "wrong-value", f"`{key}` is no value: {error}", hint)
                continue
            wanted = unit if key in schema.labels else UNITS[key]
            if unit != wanted:
                said = f"in {unit}" if unit else "a plain number"
                hint = f"Write it in {wanted}." if wanted else "Write the number alone."
                self._say(key, "wrong-unit", f"`{key}` is {said}", hint)
                continue
            source = schema.sources.get(key, schema.source)
            yield (
                key,
                PublicFact(
                    entry=self.name,
                    key=key,
                    name=dict(schema.name),
                    label=dict(labels[key]),
                    value=value,
                    unit=unit,
                    shown=_shown(raw),
                    derived=schema.derived.get(key, ""),
                    source=FactSource(source.title, source.url, source.where, source.opened),
                    as_of=schema.as_of,
                ),
            )

    def _say(self, path: str, code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(self.places[path], code, message, hint))


def _value(raw: Any) -> tuple[Fraction, str]:
    """A value as it is written, and its unit. Raises ``QuantityError``."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise QuantityError("it is no number")
    try:
        text = str(raw)
    except ValueError:  # more digits than Python writes
        raise QuantityError("it has too many digits") from None
    number = text.removesuffix(" param")
    quantity = read_quantity(number)
    if number == text:
        return quantity.value, quantity.unit
    if quantity.unit:
        raise QuantityError("it has two units")
    return quantity.value, "param"


def _shown(raw: Any) -> str:
    """What is counted with separators, and all else as it is written."""
    text = str(raw).removesuffix(" param").removesuffix(" token")
    return f"{int(text):,}" if text.isdecimal() else text
