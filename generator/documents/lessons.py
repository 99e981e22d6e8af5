"""The lessons of a base's demos: ``lessons/DEMO.zh.md`` and ``lessons/DEMO.en.md`` beside them.

A lesson has the same parts as every other, and shows parts of the real source by the names that stand in
its comments (``# --8<-- [start:name]`` … ``[end:name]``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from generator import filesystem
from generator.documents import files
from generator.documents.document import Document
from generator.lang import LANGS
from generator.problems import Place, Problem, quote

FOLDER = "lessons"
PARTS = ("question", "model", "measurement", "result", "try")
"""What each lesson says, in this order."""

_MARK = re.compile(
    r"^[ \t]*# --8<-- \[(?P<end>start|end):(?P<name>[A-Za-z][\w-]*)\]\n?", re.MULTILINE
)


def load(demos: Path) -> tuple[Mapping[str, Document], list[Problem]]:
    """The lessons beside the demos by the demos' names, and what is wrong with others."""
    folder = demos / FOLDER
    if not os.access(demos, os.R_OK | os.X_OK):
        return {}, []  # said of the demos themselves
    try:
        names = sorted(
            {
                path.name.removesuffix(f".{lang}.md")
                for lang in LANGS
                for path in folder.glob(f"*.{lang}.md")
            }
        )
    except OSError as error:
        return {}, [filesystem.unreadable(error, folder.as_posix())]
    found: dict[str, Document] = {}
    problems: list[Problem] = []
    for name in names:
        lesson, wrong = files.load(folder, name)
        if lesson:
            wrong += _faults(lesson, demos)
        if lesson and not wrong:
            found[name] = lesson
        problems += wrong
    return found, problems


def _faults(lesson: Document, demos: Path) -> Iterator[Problem]:
    place = Place((demos / FOLDER / f"{lesson.name}.{LANGS[0]}.md").as_posix())
    if not (demos / f"{lesson.name}.py").is_file():
        message, hint = (
            f"there is no demo `{lesson.name}`",
            "Call the lesson as its demo is called.",
        )
        yield Problem(place, "lesson-demo", message, hint)
    ids = tuple(section.id for section in lesson.sections)
    if ids != PARTS:
        message = (
            f"a lesson has the parts {', '.join(PARTS)}, and this one {', '.join(ids) or 'none'}"
        )
        yield Problem(place, "lesson-parts", message, "Write each part once, in this order.")
    for listing in lesson.listings():
        if listing.included and not _is_there(demos, *listing.included):
            name = quote(":".join(filter(None, listing.included)))
            message = f"the source has no part {name}"
            hint = "Name a file below the demos, and mark the part there: `# --8<-- [start:name]` … `[end:name]`."
            yield Problem(place, "lesson-source", message, hint)


def _is_there(demos: Path, file: str, section: str) -> bool:
    path = demos / file
    try:
        if ".." in Path(file).parts or not path.is_file():
            return False
        text = path.read_text(encoding="utf-8")
    except PermissionError:
        return True  # that it may not be read is said of the demo
    marks = [(m["end"], m["name"]) for m in _MARK.finditer(text)]
    return not section or {("start", section), ("end", section)} <= set(marks)


def without_marks(source: str) -> str:
    """A source as its readers see it, without the comments that name its parts."""
    return _MARK.sub("", source)
