"""The front matter of a card: its keys, their forms, and what to say where one is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PositiveInt,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from generator.cards import yaml_document
from generator.cards.model import Difficulty
from generator.lang import LANGS, Frequency
from generator.lines import Lines
from generator.names import is_id, suggest, why_no_id
from generator.problems import Place, Problem
from generator.web import why_unsound

FENCE = "---"


def _id(name: str) -> str:
    if not is_id(name):
        raise PydanticCustomError("id", "{why}", {"why": why_no_id(name)})
    return name


def _sound(url: str) -> str:
    if why := why_unsound(url):
        raise PydanticCustomError("url", "{why}", {"why": why})
    return url


def _languages(texts: dict[str, Any]) -> dict[str, Any]:
    if unknown := [lang for lang in texts if lang not in LANGS]:
        raise PydanticCustomError("language", "{why}", {"why": f"`{unknown[0]}` is no language"})
    return texts


def _every_language(texts: dict[str, Any]) -> dict[str, Any]:
    if missing := [lang for lang in LANGS if lang not in texts]:
        raise PydanticCustomError("language", "{why}", {"why": f"`{missing[0]}` is missing"})
    return _languages(texts)


def once(entries: list[str]) -> list[str]:
    """A list in which nothing stands twice."""
    if len(set(entries)) < len(entries):
        twice = next(entry for entry in entries if entries.count(entry) > 1)
        raise PydanticCustomError("twice", "{entry}", {"entry": twice})
    return entries


def _on_one_line(text: str) -> str:
    """A title is a line; what an escape of YAML brings in is refused as in the file itself."""
    return " ".join(text.split())


Id = Annotated[str, AfterValidator(_id)]
Words = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1),
    AfterValidator(_on_one_line),
]
Texts = Annotated[dict[str, Words], AfterValidator(_every_language)]
TextLists = Annotated[dict[str, list[Words]], AfterValidator(_languages)]
Ids = Annotated[list[Id], AfterValidator(once)]
# What Obsidian takes for a tag: no space, none of its punctuation, not digits alone.
Tag = Annotated[str, StringConstraints(pattern=r"^[\w/-]*[^\W\d][\w/-]*$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://"), AfterValidator(_sound)]


class Strict(BaseModel):
    """Data whose keys and types are exactly those that are declared."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SourceEntry(Strict):
    """A work that the card cites."""

    title: Words
    url: Url
    where: Words


class ScenarioEntry(Strict):
    """What the card's calculations assume."""

    model: Id | None = None
    device: Id | None = None
    devices: PositiveInt | None = None
    batch: PositiveInt | None = None
    sequence: PositiveInt | None = None


class FrontMatter(Strict):
    """All that stands between the fences at the top of a card."""

    id: Id
    title: Texts
    question: Texts | None = None
    asked: TextLists = {}
    frequency: Frequency | None = None
    module: Id
    topic: Id
    difficulty: Difficulty
    updated: date
    tags: Annotated[list[Tag], AfterValidator(once)] = []
    aliases: TextLists = {}
    prerequisites: Ids = []
    related: Ids = []
    formerly: Ids = []
    sources: dict[Id, SourceEntry] = {}
    scenario: ScenarioEntry = ScenarioEntry()
    silenced: dict[Id, Words] = {}


_FORMS: Mapping[str, str] = {
    "id": "a name in kebab-case, such as `bubble-sort`",
    "title": "a text in each language, such as `{zh: 冒泡排序, en: Bubble sort}`",
    "question": "the question as an interviewer asks it, each language in a row of its own: `zh: …`, `en: …`",
    "asked": "lists of other wordings by language, which may be empty: `{zh: [怎么排最快], en: []}`",
    "frequency": "`often`, `sometimes` or `rarely`",
    "module": "the id of a module of `modules.yml`",
    "topic": "the id of a topic of the card's module",
    "difficulty": "`easy`, `medium` or `hard`",
    "updated": "a day, such as `2026-11-29`, without quotes",
    "tags": "a list of words that are not digits alone, such as `[sorting, in-place]`",
    "aliases": "lists of texts by language, such as `{zh: [交换排序], en: [sinking sort]}`",
    "prerequisites": "a list of card ids, such as `[big-o]`",
    "related": "a list of card ids, such as `[big-o]`",
    "formerly": "a list of the ids that this card had before, such as `[bubblesort]`",
    "sources": 'works by key, such as `knuth-1998: {title: "…", url: "https://…", where: "§5.2.2"}`',
    "scenario": "what calculations assume, such as `{model: llama-3-8b, device: h100-sxm, devices: 8}`; "
    "`batch` and `sequence` count sequences and tokens",
    "silenced": "reasons by the code of a check, such as `{bare-quantity: why it is right here}`",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The front matter as far as it could be read; ``body`` is the first row behind it."""

    values: FrontMatter | None
    places: Mapping[str, Place]
    body: int
    problems: tuple[Problem, ...]


def read(lines: Lines) -> Reading | Problem:
    """Read the front matter of a card; a ``Problem`` where there is none to read."""
    if lines.rows[0].rstrip() != FENCE:
        return Problem(
            lines.at(0),
            "no-front-matter",
            "the card does not begin with front matter",
            f"Let the first line be `{FENCE}`, then `id: …` and the other keys, then `{FENCE}`; "
            "`proofdeck new` writes them.",
        )
    end = next((row for row, text in enumerate(lines.rows) if row and text.rstrip() == FENCE), None)
    if end is None:
        return Problem(
            lines.at(0),
            "open-front-matter",
            "the front matter that begins here never ends",
            f"Write `{FENCE}` on a line of its own behind its last key.",
        )
    document = yaml_document.read(lines, lines.start(1), lines.start(end))
    body = end + 1
    if document.value is None and document.problems:
        return Reading(None, {}, body, document.problems)
    values, problems = validate(
        FrontMatter, document.value or {}, document.places, lines.at(0), _FORMS
    )
    card = values if isinstance(values, FrontMatter) else None
    missing = _missing(card, document.places) if card else ()
    return Reading(card, document.places, body, (*document.problems, *problems, *missing))


def _missing(values: FrontMatter, places: Mapping[str, Place]) -> Iterator[Problem]:
    """What a card with a question, which is in format 2, has to say besides."""
    if values.question is None:
        return
    for key in ("asked", "frequency"):
        if key not in values.model_fields_set:
            message = f"the card has a `question`, and the key `{key}` is missing"
            yield Problem(places["question"], "missing-key", message, f"Write {_FORMS[key]}.")
    for lang in LANGS if "asked" in values.model_fields_set else ():
        if lang not in values.asked:
            message = f"in `asked` `{lang}` is missing"
            yield Problem(places["asked"], "wrong-language", message, f"Write {_FORMS['asked']}.")


def validate(
    schema: type[Strict],
    value: Any,
    places: Mapping[str, Place],
    top: Place,
    forms: Mapping[str, str],
) -> tuple[Strict | None, list[Problem]]:
    """Hold data against a schema: the validated data, or ``None``, and a problem for each fault.

    ``forms`` says of each top key what it has to be; ``top`` is the place of the whole.
    A key without a value counts as not given.
    """
    if not isinstance(value, dict):
        return None, [
            Problem(
                top,
                "wrong-value",
                "this is not a list of keys with values",
                "Write `key: value` lines.",
            )
        ]
    given = {key: entry for key, entry in value.items() if entry is not None}
    try:
        return schema.model_validate(given), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, list(_explained(details, value, places, top, schema, forms))


def _explained(
    details: Iterable[ErrorDetails],
    value: Mapping[str, Any],
    places: Mapping[str, Place],
    top: Place,
    schema: type[Strict],
    forms: Mapping[str, str],
) -> Iterable[Problem]:
    seen = set()
    for detail in details:
        path = [part for part in detail["loc"] if part != "[key]"]
        name = ".".join(map(str, path))
        place = _nearest(path, places, top)
        problem = _explain(detail, name, place, value, schema, forms.get(str(path[0]), ""))
        if (problem.place, problem.code, problem.message) not in seen:
            seen.add((problem.place, problem.code, problem.message))
            yield problem


def _explain(
    detail: ErrorDetails,
    name: str,
    place: Place,
    value: Mapping[str, Any],
    schema: type[Strict],
    form: str,
) -> Problem:
    context = detail.get("ctx", {})
    hint = f"Write {form}." if form else ""
    last = name.rpartition(".")[2]
    match detail["type"]:
        case "missing":
            empty = name in value
            message = f"`{name}` has no value" if empty else f"the key `{name}` is missing"
            return Problem(place, "missing-key", message, hint)
        case "extra_forbidden":
            known = _model_at(schema, detail["loc"][:-1]).model_fields
            message = f"there is no key `{last}` here"
            return Problem(place, "unknown-key", message, suggest(last, known))
        case "id":
            return Problem(place, "bad-id", f"`{detail['input']}` {context['why']}", hint)
        case "language":
            message = f"in `{name}` {context['why']}"
            return Problem(place, "wrong-language", message, hint)
        case "twice":
            message = f"`{context['entry']}` stands twice in `{name}`"
            return Problem(place, "duplicate-entry", message, "Keep one of the two.")
        case other:
            why = f"{context['why']}" if other == "url" else f"cannot be {_shown(detail['input'])}"
            return Problem(place, "wrong-value", f"`{name}` {why}", hint)


def _nearest(path: list[int | str], places: Mapping[str, Place], top: Place) -> Place:
    """The place of the entry, or of the innermost entry around it that has one."""
    for length in range(len(path), 0, -1):
        if place := places.get(".".join(map(str, path[:length]))):
            return place
    return top


def _model_at(schema: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model whose keys stand at ``path``: positions and free keys lead into their entries."""
    for part in path:
        entry = schema.model_fields.get(str(part))
        schema = (entry and _inner_model(entry.annotation)) or schema
    return schema


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inner_model, get_args(annotation))), None)


def _shown(value: object) -> str:
    """A value of the wrong form, as a sentence names it."""
    match value:
        case "":
            return "empty"
        case list() | dict():
            return "a list" if isinstance(value, list) else "a mapping of keys"
        case bool():
            return f"the truth value `{str(value).lower()}`"
        case int() | float() | date():
            return f"the {'day' if isinstance(value, date) else 'number'} `{value}`"
        case _:
            text = str(value)
            return f"`{text if len(text) <= 60 else text[:60] + '…'}`"
