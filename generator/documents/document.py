"""A document: a file a language, whose sections carry the same ids and show the same code.

``# Title`` begins it, a heading ``## Words <!-- #id -->`` each section; all else is Markdown. A fence at the
margin, and a live part (``{name}`` on a line of its own), are the same in both languages and stand on the page
once. A fence with ``.annotate`` belongs to its language, since the notes below it do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.lang import LANGS, Lang, Text
from generator.problems import Place, Problem, quote

_TITLE = re.compile(r"# +(?P<title>.+)")
_HEADING = re.compile(r"## +(?P<title>.+?)(?: +<!-- #(?P<id>[a-z][a-z0-9-]*) -->)?")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,}) *(?P<info>.*)")
_PART = re.compile(r"\{(?P<name>[a-z-]+)\}")
_COMMENT = re.compile(r"<!--.*-->")
_INCLUDED = re.compile(r'--8<-- "(?P<file>[\w./-]+?)(?::(?P<section>[A-Za-z][\w-]*))?"')


@dataclass(frozen=True, slots=True)
class Listing:
    """Code as it is fenced, and the place in a source file that it shows, where it is no code of its own."""

    info: str
    code: str

    @property
    def included(self) -> tuple[str, str] | None:
        """The file that is shown, and the section of it, which is all of it where there is no name."""
        found = _INCLUDED.fullmatch(self.code.strip())
        return (found["file"], found["section"] or "") if found else None


@dataclass(frozen=True, slots=True)
class Row:
    """What is said in each language, and the code or the live part that it leads up to."""

    prose: Mapping[Lang, str]
    listing: Listing | None = None
    part: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands below a heading; ``id`` is its anchor, whatever the words."""

    id: str
    title: Text
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A document in all languages; ``lead`` stands before its first section."""

    name: str
    title: Text
    lead: Mapping[Lang, str]
    sections: tuple[Section, ...]

    def listings(self) -> Iterator[Listing]:
        """All code that is the same in both languages, in its order."""
        for section in self.sections:
            for row in section.rows:
                if row.listing:
                    yield row.listing


@dataclass(frozen=True, slots=True)
class File:
    """The text of a document in one language, and the path to name it by."""

    path: str
    text: str


def read(name: str, files: Mapping[Lang, File]) -> tuple[Document | None, list[Problem]]:
    """The document of these files, one a language, or why they are none."""
    halves: dict[Lang, _Half] = {}
    problems: list[Problem] = []
    for lang, file in files.items():
        halves[lang] = half = _half(file)
        problems += half.problems
    problems = problems or list(_differences(halves, files))
    if problems:
        return None, problems
    first = halves[LANGS[0]]
    sections = [
        Section(
            section.id,
            {lang: halves[lang].sections[at].title for lang in LANGS},
            tuple(_rows({lang: halves[lang].sections[at].blocks for lang in LANGS})),
        )
        for at, section in enumerate(first.sections)
    ]
    title: Text = {lang: halves[lang].title for lang in LANGS}
    lead = {lang: halves[lang].lead for lang in LANGS}
    return Document(name, title, lead, tuple(sections)), []


# --- one language --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """What stands between two breaks: prose, which differs from language to language, or what is shared."""

    line: int
    prose: str = ""
    shared: Listing | str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    line: int
    id: str
    title: str
    blocks: tuple[_Block, ...]


@dataclass(frozen=True, slots=True)
class _Half:
    title: str
    lead: str
    sections: tuple[_Part, ...]
    problems: tuple[Problem, ...]


def _half(file: File) -> _Half:
    """A file taken apart, line by line."""
    title, lead, problems = "", "", []
    sections: list[_Part] = []
    gathered: list[_Block] = []
    heading, place = ("", ""), 1
    for block in _blocks(file.text.removeprefix("\ufeff").splitlines()):
        if not block.prose and block.shared == "":
            continue
        found = None if block.shared else _HEADING.fullmatch(block.prose)
        if not title and not block.shared and (top := _TITLE.fullmatch(block.prose)):
            title = _plain(top["title"])
        elif found:
            if sections or heading[0]:
                sections.append(_Part(place, *heading, tuple(gathered)))
            elif gathered:
                lead = "\n\n".join(each.prose for each in gathered)
            gathered, heading, place = [], (found["id"] or "", _plain(found["title"])), block.line
            if not found["id"]:
                problems.append(_problem(file, block.line, "heading", *_NO_ID))
        else:
            gathered.append(block)
    if heading[0]:
        sections.append(_Part(place, *heading, tuple(gathered)))
    if not title:
        problems.append(_problem(file, 1, "title", *_NO_TITLE))
    ids = [each.id for each in sections]
    problems += [
        _problem(
            file, each.line, "heading", f"the id {quote(each.id)} is that of another heading", _ONE
        )
        for at, each in enumerate(sections)
        if each.id in ids[:at]
    ]
    return _Half(title, lead, tuple(sections), tuple(problems))


_NO_ID = (
    "this heading has no id",
    "Write it behind the words, the same in both languages: `<!-- #name -->`.",
)
_NO_TITLE = ("the document has no title", "Begin it with `# ` and its title.")
_ONE = "Give each heading an id of its own."


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """Headings, shared code and live parts, each by itself, and the prose between them."""
    prose: list[str] = []
    start = at = 0

    def said() -> Iterator[_Block]:
        text = "\n".join(prose).strip("\n")
        prose.clear()
        if text:
            yield _Block(start + 1, text)

    while at < len(lines):
        line = lines[at].rstrip()
        fence, part = _FENCE.fullmatch(line), _PART.fullmatch(line)
        end = _end(lines, at, fence["marks"]) if fence else at
        alone = _TITLE.fullmatch(line) or _HEADING.fullmatch(line)
        if alone or part or (fence and ".annotate" not in fence["info"]):
            yield from said()
            if fence:
                yield _Block(at + 1, shared=Listing(fence["info"], "\n".join(lines[at + 1 : end])))
            elif part:
                yield _Block(at + 1, shared=part["name"])
            else:
                yield _Block(at + 1, line)
            start = end + 1
        elif not _COMMENT.fullmatch(line):
            prose += lines[at : end + 1]
        at = end + 1
    yield from said()


def _end(lines: Sequence[str], start: int, marks: str) -> int:
    """The line that closes the fence which begins at ``start``; the last one where none does."""
    for at in range(start + 1, len(lines)):
        line = lines[at].strip()
        if len(line) >= len(marks) and line == marks[0] * len(line):
            return at
    return len(lines) - 1


def _plain(title: str) -> str:
    return title.replace("`", "").strip()


# --- both together -------------------------------------------------------------------------------


def _differences(halves: Mapping[Lang, _Half], files: Mapping[Lang, File]) -> Iterator[Problem]:
    """Where the languages do not have the same headings, code and live parts."""
    first, *others = LANGS
    wanted = [section.id for section in halves[first].sections]
    for lang in others:
        found = [section.id for section in halves[lang].sections]
        if found != wanted:
            shown = " and ".join(
                f"{files[each].path} has {', '.join(ids) or 'none'}"
                for each, ids in ((first, wanted), (lang, found))
            )
            message = f"the headings differ: {shown}"
            yield _problem(
                files[lang], 1, "languages", message, "Write the same sections in one order."
            )
            continue
        for one, other in zip(halves[first].sections, halves[lang].sections, strict=True):
            shared = [[b.shared for b in part.blocks if b.shared] for part in (one, other)]
            if shared[0] != shared[1]:
                message = f"below {quote(other.id)} the code or a live part is not that of {files[first].path}"
                hint = "Code at the margin is shown once: write the same in both languages."
                yield _problem(files[lang], other.line, "languages", message, hint)


def _rows(blocks: Mapping[Lang, Sequence[_Block]]) -> Iterator[Row]:
    """A row for what is shared, with the prose before it, and one for the prose at the end."""
    cut = {lang: _cut(found) for lang, found in blocks.items()}
    for at, (_, shared) in enumerate(cut[LANGS[0]]):
        prose = {lang: cut[lang][at][0] for lang in LANGS}
        if isinstance(shared, Listing):
            yield Row(prose, shared)
        elif shared or any(prose.values()):
            yield Row(prose, part=shared)


def _cut(blocks: Sequence[_Block]) -> list[tuple[str, Listing | str]]:
    """Prose, and what is shared behind it; the last has nothing behind it."""
    found: list[tuple[str, Listing | str]] = []
    prose = ""
    for block in blocks:
        if block.shared:
            found.append((prose, block.shared))
            prose = ""
        else:
            prose = block.prose
    return [*found, (prose, "")]


def _problem(file: File, line: int, code: str, message: str, hint: str) -> Problem:
    return Problem(Place(file.path, line), f"document-{code}", message, hint)
