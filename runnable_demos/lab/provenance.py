"""Which project files the numbers of a demo depend on, and whether they have changed since.

A demo depends on its own file and on every file of this package that it imports, directly or not,
within functions too. The imports are read from the syntax trees; nothing is executed.
What counts of a file is its code alone: see ``digest``.
Standard library only.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from runnable_demos.lab import table
from runnable_demos.lab.metrics import LANGUAGES

PACKAGE = "runnable_demos"
_PACKAGED = Path(__file__).parents[1]


Read = Callable[[bytes, str, bool], tuple[str, tuple[str, ...]]]
"""What ``read`` is, or remembers."""


@lru_cache(maxsize=256)  # demos share files
def read(content: bytes, name: str, demo: bool) -> tuple[str, tuple[str, ...]]:
    """The digest of the file ``name``, and the files that it might import.

    Raises ``SyntaxError`` or ``ValueError`` where it is no Python that can be taken in.
    """
    try:
        tree = ast.parse(content, name)
        imports = tuple(_imports(tree, name))
        return digest(tree, demo=demo), imports
    except (RecursionError, MemoryError):
        raise ValueError(f"{name} is nested too deeply") from None


def sources(demo: str, folder: Path = _PACKAGED, read: Read = read) -> dict[str, str]:
    """Digests by path (``runnable_demos/lab/measure.py``) of every file that ``demo`` depends on.

    ``folder`` holds the demo; what it lacks is taken from the installed package, as at a run.
    Raises ``OSError`` where a file cannot be read, ``SyntaxError`` or ``ValueError`` where it is no
    Python that can be taken in.
    """
    found: dict[str, str] = {}
    own = f"{demo}.py"
    todo = ["__init__.py", own]
    while todo:
        name = todo.pop()
        key = f"{PACKAGE}/{name}"
        if key in found:
            continue
        content = _place(name, folder).read_bytes()
        found[key], imports = read(content, name, name == own)
        todo += (each for each in imports if _place(each, folder).is_file())
    return dict(sorted(found.items()))


def _place(name: str, folder: Path) -> Path:
    """Where a file is imported from: the runner has the package and its ``lab`` before all others."""
    fixed = name == "__init__.py" or name.startswith("lab/")
    return folder / name if not fixed and (folder / name).is_file() else _PACKAGED / name


def digest(tree: ast.Module, *, demo: bool) -> str:
    """SHA-256 of a file's code, which its numbers follow from; ``tree`` is used up.

    Formatting, comments and docstrings do not count, unless the file reads docstrings. Of a
    ``demo``'s own file, what it says in words does not either: ``TITLE``, ``QUESTION``, the help of
    its parameters, and of ``MEASURES`` all that it does not promise.
    It is the same under each version of Python that reads the file alike.
    """
    if not _reads_docstrings(tree):
        _drop_remarks(tree)
    if demo:
        _drop_words(tree)
    text = json.dumps(_plain(tree), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _reads_docstrings(tree: ast.AST) -> bool:
    names = {"__doc__", "getdoc", "getsource"}
    return any(
        getattr(node, "id", "") in names or getattr(node, "attr", "") in names
        for node in ast.walk(tree)
    )


def _drop_remarks(tree: ast.AST) -> None:
    """Take out texts that stand alone (docstrings, of attributes too) and ``pass`` beside them."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, [each for each in value if not _is_remark(each)])


def _is_remark(node: ast.stmt) -> bool:
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass) or (alone and isinstance(node.value.value, str))  # type: ignore[attr-defined]


def _drop_words(tree: ast.Module) -> None:
    """Put what a demo promises in the place of what it says."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", "") for target in targets}
            if names & {"TITLE", "QUESTION"} and _is_words(node.value):
                node.value = ast.Constant("words")
            elif "MEASURES" in names:
                node.value = ast.Constant(_promise(node.value))
        elif isinstance(node, ast.ClassDef) and node.name == "Config":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "parameter":
                    call.args = [_without_words(each) for each in call.args]
                    for word in call.keywords:
                        word.value = _without_words(word.value)


def _without_words(node: ast.expr) -> ast.expr:
    return ast.Constant("words") if _is_words(node) else node


def _is_words(node: ast.expr) -> bool:
    """``{"zh": …, "en": …}``, in which nothing is worked out."""
    return (
        isinstance(node, ast.Dict)
        and all(isinstance(k, ast.Constant) for k in node.keys)
        and sorted(str(k.value) for k in node.keys if isinstance(k, ast.Constant))
        == sorted(LANGUAGES)
        and all(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in node.values)
    )


def _promise(value: ast.expr) -> str:
    """What a demo's table promises; all of its text where it is no table."""
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return json.dumps(_plain(value))
    try:
        return json.dumps(table.read(value.value).promise())
    except table.TableError:
        return value.value


_NO_CODE = {"type_comment", "type_ignores", "kind", "ctx"}
"""Fields of a syntax tree that do not change what it does."""


def _plain(node: object) -> object:
    """A syntax tree in lists and texts, the same whatever Python prints it."""
    if isinstance(node, ast.AST):
        fields = [
            [name, _plain(value)]
            for name, value in ast.iter_fields(node)
            if name not in _NO_CODE and value is not None and value != []
        ]
        return [type(node).__name__, *fields]
    if isinstance(node, list):
        return [_plain(each) for each in node]
    return [type(node).__name__, hex(node) if type(node) is int else ascii(node)]


def _imports(tree: ast.AST, name: str) -> Iterator[str]:
    """Files that the modules imported in the file ``name`` might be, from the package's folder."""
    package = [PACKAGE, *name.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            modules = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            first, *inner = module.split(".")
            if first == PACKAGE and inner:
                yield "/".join(inner) + ".py"
                for depth in range(1, len(inner) + 1):
                    yield "/".join([*inner[:depth], "__init__.py"])
