"""Which project files the numbers of a demo depend on, and whether they have changed since.

A demo depends on its own file and on every file of this package that it imports, directly or not,
within functions too. The imports are read from the syntax trees; nothing is executed.
Standard library only.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "runnable_demos"
_HERE = Path(__file__).parent


def sources(demo: str, folder: Path = _HERE) -> dict[str, str]:
    """SHA-256 by path (``runnable_demos/measure.py``) of every file that ``demo`` depends on.

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
        path = folder / name if (folder / name).is_file() else _HERE / name
        content = path.read_bytes()
        found[key] = digest(content)
        todo += (n for n in _imports(ast.parse(content, str(path))) if _exists(n, folder))
    return dict(sorted(found.items()))


def digest(content: bytes) -> str:
    """SHA-256 of a text file's bytes; the three kinds of line ends count as one."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).hexdigest()


def _exists(name: str, folder: Path) -> bool:
    return (folder / name).is_file() or (_HERE / name).is_file()


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
                yield "/".join(inner) + "/__init__.py"
