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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from runnable_demos.lab import table
from runnable_demos.lab.metrics import LANGUAGES

PACKAGE = "runnable_demos"
_PACKAGED = Path(__file__).parents[1]


def sources(demo: str, folder: Path = _PACKAGED) -> dict[str, str]:
    """Digests by path (``runnable_demos/lab/measure.py``) of every file that ``demo`` depends on.

    ``folder`` holds the demo; what it lacks is taken from the installed package, as at a run.
    Raises ``OSError`` where a file cannot be read, ``SyntaxError`` where it is not Python.
    """
    found: dict[str, str] = {}
    todo = ["__init__.py", f"{demo}.py"]
    while todo:
        name = todo.pop()
        key = f"{PACKAGE}/{name}"
        if key in found:
            continue
        path = folder / name if (folder / name).is_file() else _PACKAGED / name
        found[key], imports = _read(path.read_bytes(), str(path))
        todo += (n for n in imports if _exists(n, folder))
    return dict(sorted(found.items()))


@lru_cache(maxsize=256)  # demos share files
def _read(content: bytes, path: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a file, and the files that it might import."""
    tree = ast.parse(content, path)
    return digest(tree), tuple(_imports(tree))


def digest(tree: ast.Module) -> str:
    """SHA-256 of a file's code, which its numbers follow from.

    Formatting, comments and docstrings do not count, nor do words: of a literal
    ``{"zh": …, "en": …}`` that it is there, of ``MEASURES`` what it promises. It is the same under
    each version of Python that reads the file alike.
    """
    text = json.dumps(_plain(tree), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_NO_CODE = {"type_comment", "type_ignores", "kind", "ctx"}
"""Fields of a syntax tree that do not change what it does."""


def _plain(node: object) -> object:
    """A syntax tree in lists and texts, without what is no code."""
    if isinstance(node, ast.AST):
        if _is_words(node):
            return ["words"]
        if _is_table(node):
            return ["table", _promise(node)]
        fields = [
            [name, _plain(value)]
            for name, value in ast.iter_fields(node)
            if name not in _NO_CODE and value is not None and value != []
        ]
        return [type(node).__name__, *fields]
    if isinstance(node, list):
        return [_plain(each) for each in node if not _is_remark(each)]
    return [type(node).__name__, repr(node)]


def _is_remark(node: object) -> bool:
    """A text that stands alone: a docstring, of a module, a function, a class or an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_words(node: ast.AST) -> bool:
    """``{"zh": …, "en": …}``, in which nothing is worked out."""
    return (
        isinstance(node, ast.Dict)
        and bool(node.keys)
        and all(isinstance(k, ast.Constant) and k.value in LANGUAGES for k in node.keys)
        and all(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in node.values)
    )


def _is_table(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [getattr(target, "id", "") for target in targets] == ["MEASURES"]


def _promise(node: ast.AST) -> object:
    """What a demo's table promises; all of its text where it is no table."""
    value = getattr(node, "value", None)
    try:
        text = ast.literal_eval(value) if isinstance(value, ast.expr) else ""
        return table.read(str(text)).promise()
    except (table.TableError, ValueError):
        return ast.dump(node)


def _exists(name: str, folder: Path) -> bool:
    return (folder / name).is_file() or (_PACKAGED / name).is_file()


def _imports(tree: ast.AST) -> Iterator[str]:
    """Files that the modules imported in ``tree`` might be, relative to the package's folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            modules = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            package, *inner = module.split(".")
            if package == PACKAGE and inner:
                yield "/".join(inner) + ".py"
                for depth in range(1, len(inner) + 1):
                    yield "/".join([*inner[:depth], "__init__.py"])
