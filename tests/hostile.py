"""A base in which every text is an attack.

Its fields are found from the schemas of front matter, syllabus, glossary, facts and records, so that a new field is
attacked as well: a text that its schema takes is one, and a name that it refuses has to be given
here, or writing the base fails.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import string
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from generator.cards import glossary_file, parse, syllabus
from generator.cards.front_matter import FrontMatter
from generator.evidence import fact_file
from generator.evidence.fence_records import FenceRecord, Printout
from generator.lang import LANGS
from runnable_demos.lab import records
from runnable_demos.lab.metrics import Record

KINDS = (
    '"><script>window.pwn=1</script>',
    "' onmouseover='window.pwn=1' x='",
    "</script><script>window.pwn=1</script>",
    "</title></style></textarea><img src=x onerror=window.pwn=1>",
    "--><svg onload=window.pwn=1>",
    "]]><script>window.pwn=1</script>",
    "{{ 7*7 }} {% set x = 1 %} {# gone #}",
    "javascript:window.pwn=1//",
    "<% tp.pwn %> `$= pwn` `= pwn` %%pwn%% pwn:: 1 ==pwn== ~~pwn~~ ^pwn",
    "[[pwn]] ![[pwn]] [pwn](https://evil.example) <https://evil.example> #pwn",
    "&lt;img src=x onerror=window.pwn=1&gt; &#60;b&#62; \\<b>",
    "': pwn # !!python/object:pwn \" - [ ] | a",
    '--8<-- "mkdocs.yml"',
)
"""Kinds of hostile text: markup, template, script, address, note, entity, YAML, include."""
HIDDEN = "\u202ednert\u202c \u2028 x"
"""What turns a text around or ends its line; only a record may hold it, since cards, syllabus and facts are refused."""

DEMOS = Path(__file__).parent / "library" / "runnable_demos"
_number = itertools.count(1)


def attack() -> str:
    """All kinds in one text, a different one first each time, between marks of its own."""
    return text_of(next(_number))


def text_of(number: int) -> str:
    """The attack of this number."""
    turn = number % len(KINDS)
    return f"文⟦{number}⟧{' '.join(KINDS[turn:] + KINDS[:turn])}⟦/{number}⟧"


def numbers(shown: str) -> set[int]:
    """The attacks that stand in what is shown whole, from mark to mark."""
    return {
        int(found[1])
        for found in re.finditer(r"文⟦(\d+)⟧.*?⟦/\1⟧", one_line(shown))
        if found[0] == one_line(text_of(int(found[1])))
    }


def one_line(shown: str) -> str:
    """Text as a page shows it: white space is one space."""
    return " ".join(shown.split())


# --- data from their schemas ---------------------------------------------------------------------


def filled(kind: Any, names: Mapping[str, Any], path: str = "") -> Any:
    """A value of the annotated type ``kind`` with attacks for texts, and ``names`` by field."""
    if path in names:
        return names[path]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        hints = get_type_hints(kind, include_extras=True)
        return {
            name: filled(hints[name], names, f"{path}.{name}".lstrip("."))
            for name in kind.model_fields
        }
    origin, arguments = get_origin(kind), get_args(kind)
    if arguments and get_origin(kind) not in (dict, list):  # Annotated
        if get_origin(arguments[0]) in (dict, list):
            return filled(arguments[0], names, path)
        text = attack()
        try:
            TypeAdapter(kind).validate_python(text)
        except ValidationError:
            raise AssertionError(f"give {path} a name: it takes no free text") from None
        return text
    if origin is list:
        return [filled(arguments[0], names, f"{path}[]") for _ in range(2)]
    if origin is dict and arguments[0] is str:
        return {lang: filled(arguments[1], names, f"{path}.*") for lang in LANGS}
    raise AssertionError(f"give {path} a value: it is {kind}")


def filled_record(kind: Any, value: Any, name: str = "") -> Any:
    """``value`` of the annotated type ``kind``, read off a run, with attacks for its texts."""
    if name in _NAMES or get_origin(kind) is Literal:
        return value
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return dataclasses.replace(
            value,
            **{
                field.name: filled_record(hints[field.name], getattr(value, field.name), field.name)
                for field in dataclasses.fields(kind)
            },
        )
    if isinstance(value, tuple):
        return tuple(filled_record(get_args(kind)[0], each) for each in value)
    if isinstance(value, Mapping):
        return {key: filled_record(str, each) for key, each in value.items()}
    if kind is str:
        return attack() + HIDDEN
    return (
        filled_record(get_args(kind)[0], value)
        if value is not None and get_args(kind) and isinstance(value, (Mapping, str))
        else value
    )


_NAMES = {"demo", "device", "name", "recorded", "size", "sources"}
"""What addresses, claims and hashes are made of: ``evidence`` refuses all but plain names."""


# --- a base --------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Markdown that means ``text``."""
    return "".join("\\" + each if each in string.punctuation else each for each in text)


def listing(text: str) -> str:
    """Inline code that means ``text``."""
    return f"``` {text} ```"


def half(lang: str) -> str:
    """One language of a card, an attack in each kind of block and inline content."""
    heads = {
        "zh": (
            *(
                "中文",
                "一句话结论",
                "核心要义",
                "推导",
                "工程权衡",
                "常见陷阱",
                "追问",
                "三十秒口述",
                "直觉",
            ),
            *("算一笔账", "手写", "会说错的", "会写错的", "评分"),
        ),
        "en": (
            *("English", "In one sentence", "Key insights", "Derivation", "Trade-offs"),
            *("Pitfalls", "Follow-ups", "Say it in thirty seconds", "Intuition", "Worked example"),
            *("In code", "Said in interviews", "Shipped in code"),
            "What the interviewer listens for",
        ),
    }[lang]
    known = records.load(DEMOS / "evidence" / "float_sums.cpu.json").result.metrics
    claims = " ".join(f"[{each.name}](claim:float_sums/{each.name})" for each in known)
    text = [plain(attack()) for _ in range(23)]
    code = [attack() for _ in range(5)]
    return f"""# {heads[0]}

## {heads[1]}

{text[0]}

## {heads[7]}

{text[16]}

## {heads[8]}

{text[17]}

## {heads[2]}

- **{text[1]}** *{text[2]}* {listing(code[0])}
- [4×](claim:float_sums/additions_ratio) [{text[3]}](https://x.example/a'b?c=&lt;d)
- [{text[4]}](source:work "{plain(attack())}") [{text[5]}](card:one) [{text[6]}](given:)
- [16 GB](fact:card/memory) [3](fact:card/power) [10,000](param:float_sums/count)
- [32 GB](calc: "{{devices}} × {{device/memory}}") [80,000 B](calc: "{{param:float_sums/count}} × 8 B")
- [5×](wrong:float_sums/additions_ratio) {claims} $\\text{{<b onclick=x>}}$

## {heads[9]}

- {text[18]}

## {heads[3]}

| {text[7]} | b |
|--|--|
| {text[8]} | [{text[9]}](card:planned) |

````dataviewjs
{code[1]}
```
````

````<img/src=x/onerror=window.pwn=1>
{code[2]}
````

![{text[22]} [4×](claim:float_sums/additions_ratio)](figure:float_sums/error)

## {heads[10]}

````python
{code[4]}
````

## {heads[4]}

> [!note]
> {text[10]}

### {text[11]}

> {text[12]}

```js
{code[3]}
```

````python run
# {code[4]}
````

## {heads[5]}

### {heads[11]}

- {text[13]} <!-- #pit -->

### {heads[12]}

- {text[19]} <!-- #fall -->

## {heads[6]}

### {text[14]} <!-- #ask often -->

{text[15]}

## {heads[13]}

- {text[20]} <!-- #point strong asks=ask -->
- {text[21]} <!-- #flag red-flag -->
"""


def facts() -> str:
    """An entry of ``facts.yml`` whose words are attacks."""
    entry = filled(
        fact_file._Entry,
        {
            "kind": "device",
            "as_of": date(2026, 11, 29),
            "source.url": "https://x.example/'onmouseover='window.pwn=1'&lt;b&gt;",
            "source.opened": date(2026, 11, 29),
            "sources": {},
            "derived": {"memory": attack()},
            "labels": {"power": {lang: attack() for lang in LANGS}},
        },
    )
    return yaml.safe_dump({"card": {**entry, "memory": "16 GB", "power": 3}}, allow_unicode=True)


def glossary() -> str:
    """A ``glossary.yml`` whose words are attacks; one of its terms stands in every attack."""
    entry = filled(
        glossary_file._Entry,
        {"variants": {lang: ["pwn", attack()] for lang in LANGS}, "card": "one"},
    )
    plain_entry = filled(glossary_file._Entry, {"card": "planned"})
    terms = {"term": entry, "other": plain_entry}
    return yaml.safe_dump({"terms": terms, "naming": [attack()]}, allow_unicode=True)


def card(name: str, needed: list[str], formerly: list[str]) -> str:
    """A card whose front matter and body are attacks."""
    work = "https://x.example/'onmouseover='window.pwn=1'&lt;b&gt;"
    front = filled(
        FrontMatter,
        {
            "id": name,
            "module": "module",
            "topic": "topic",
            "difficulty": "easy",
            "tags": ["memory", "数值/舍入"],
            "prerequisites": needed,
            "related": ["planned"],
            "formerly": formerly,
            "sources": {"work": {"title": attack(), "url": work, "where": attack()}},
            "scenario": {"model": None, "device": "card", "devices": 2, "batch": 1, "sequence": 1},
            "silenced": {"answer-length": attack()},
            "updated": None,
            "question": {lang: attack() for lang in LANGS},
            "frequency": "often",
        },
    )
    del front["updated"]
    head = yaml.safe_dump(front, allow_unicode=True) + "updated: 2026-11-29\n"
    return f"---\n{head}---\n\n{half('zh')}\n{half('en')}"


def write(folder: Path) -> None:
    """Write ``cards``, ``runnable_demos`` and a demo's source to show, ``shown``, into ``folder``."""
    demos = folder / "runnable_demos"
    (demos / "evidence").mkdir(parents=True)
    (folder / "cards" / "module").mkdir(parents=True)
    (demos / "float_sums.py").write_text(
        (DEMOS / "float_sums.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (folder / "shown").mkdir()
    (folder / "shown" / "float_sums.py").write_text(f'"""{attack()}"""\n', encoding="utf-8")
    known = records.load(DEMOS / "evidence" / "float_sums.cpu.json")
    found = filled_record(Record, known)
    path = demos / "evidence" / "float_sums.cpu.json"
    path.write_text(records.dumps(found), encoding="utf-8")
    modules = [
        filled(
            syllabus._Module,
            {
                "id": name,
                "code": code,
                "topics": {topic: {lang: attack() for lang in LANGS} for topic in topics},
                "planned": [
                    {"id": planned, "title": {lang: attack() for lang in LANGS}}
                    for planned in names
                ],
            },
        )
        for name, code, topics, names in (
            ("module", "M1", ["topic"], ["planned", "later"]),
            ("empty", "M2", [], []),
        )
    ]
    path_ = filled(syllabus._Path, {"id": "way", "cards": ["one", "planned", "two"]})
    text = yaml.safe_dump({"format": 2, "modules": modules, "paths": [path_]}, allow_unicode=True)
    (folder / "cards" / "modules.yml").write_text(text, encoding="utf-8")
    (folder / "cards" / "facts.yml").write_text(facts(), encoding="utf-8")
    (folder / "cards" / "glossary.yml").write_text(glossary(), encoding="utf-8")
    for name, needed, formerly in (("one", [], ["before"]), ("two", ["one", "planned"], [])):
        file = folder / "cards" / "module" / f"{name}.md"
        file.write_text(card(name, needed, formerly), encoding="utf-8")
        write_printouts(file, demos / "evidence")


def write_printouts(file: Path, evidence: Path) -> None:
    """Write the record of a card's fences, each of which has printed an attack."""
    read, _ = parse.parse(file.read_text(encoding="utf-8"), str(file))
    assert read
    printed = tuple(
        Printout(each.digest, f"{attack()}\n```\n", {"python": attack()}, "2026-11-29")
        for each in read.fences
    )
    assert printed
    path = evidence / "cards" / f"{read.id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(records.dumps(FenceRecord(read.id, printed)), encoding="utf-8")
