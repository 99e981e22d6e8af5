"""The files of documents: ``NAME.zh.md`` beside ``NAME.en.md``."""

from __future__ import annotations

from pathlib import Path

from generator import filesystem
from generator.documents.document import Document, File, read
from generator.lang import LANGS, Lang
from generator.problems import Place, Problem


def load(folder: Path, name: str) -> tuple[Document | None, list[Problem]]:
    """The document of that name in a folder, or why there is none."""
    files: dict[Lang, File] = {}
    problems: list[Problem] = []
    for lang in LANGS:
        path = folder / f"{name}.{lang}.md"
        text = filesystem.read_text(path, path.as_posix())
        if isinstance(text, str):
            files[lang] = File(path.as_posix(), text)
        elif text.code == "no-file":
            message = f"`{name}` is not written in every language"
            problems.append(Problem(Place(path.as_posix()), "document-missing", message, _WRITE))
        else:
            problems.append(text)
    return (None, problems) if problems else read(name, files)


_WRITE = "Write this file: the same sections as in the other language, in words of its own."
