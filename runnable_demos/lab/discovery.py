"""Find the demos in a folder by reading them; none is imported, so torch may be missing.

A demo is a file with ``TITLE``, ``QUESTION``, ``MEASURES``, ``PRESETS`` and a function ``run``.
Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runnable_demos.lab import table
from runnable_demos.lab.metrics import LANGUAGES, Text

PACKAGED = Path(__file__).parents[1]
"""The demos that come with the program."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What a demo's file says about itself.

    ``help`` says what each parameter of its ``Config`` is, where it says so in a literal.
    ``requires`` names the packages that it imports beside torch and NumPy.
    ``gpu`` is its place in the order in which GPUs are worth using, 1 first; ``None`` where it
    gains nothing from one.
    """

    name: str
    path: Path
    title: Text
    question: Text
    table: table.Table
    help: Mapping[str, Text]
    requires: tuple[str, ...]
    gpu: int | None = None


class DemoError(ValueError):
    """A file that looks like a demo and is none; the message is one sentence with its path."""


def discover(folder: Path) -> dict[str, Demo]:
    """The demos in ``folder`` by name, sorted. A folder that is missing holds none.

    Raises ``DemoError`` where a demo cannot be read, ``OSError`` where the folder cannot.
    """
    found = {}
    for path in sorted(folder.glob("*.py")):
        demo = read(path)
        if demo is not None:
            found[demo.name] = demo
    return found


def named(name: str, folder: Path) -> Demo | None:
    """The demo of that name in ``folder``, or among those of the package, if there is one.

    Raises ``DemoError`` where it cannot be read.
    """
    path = file_of(name, folder)
    return read(path) if path else None


def file_of(name: str, folder: Path) -> Path | None:
    """Where the demo of that name stands: in ``folder``, or among those of the package."""
    paths = (place / f"{name}.py" for place in (folder, PACKAGED))
    return next((path for path in paths if path.is_file()), None)


def read(path: Path) -> Demo | None:
    """The demo in a file, or ``None`` where it is another kind of module."""
    return parse(path.read_bytes(), path)


def parse(content: bytes, path: Path) -> Demo | None:
    """The demo in the content of the file ``path``, or ``None`` where it is another kind of module."""
    try:
        tree = ast.parse(content, str(path))
    except (RecursionError, MemoryError):
        raise DemoError(f"{path}:1: this file is nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise DemoError(f"{path}:{line}: this file is not valid Python: {error}") from None
    values = _assignments(tree)
    runs = any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body)
    if not runs or "PRESETS" not in values:
        return None
    return Demo(
        name=path.stem,
        path=path,
        title=_text(path, values, "TITLE"),
        question=_text(path, values, "QUESTION"),
        table=_table(path, tree, values),
        help=_help(path, tree),
        requires=_names(path, values["REQUIRES"]) if "REQUIRES" in values else (),
        gpu=_place(path, values["GPU"]) if "GPU" in values else None,
    )


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            values[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = node.value
    return values


def _literal(path: Path, node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise DemoError(f"{path}:{node.lineno}: this value must be a literal") from None


def _names(path: Path, node: ast.expr) -> tuple[str, ...]:
    value = _literal(path, node)
    if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
        raise DemoError(f"{path}:{node.lineno}: REQUIRES must be a tuple of package names")
    return value


def _place(path: Path, node: ast.expr) -> int:
    value = _literal(path, node)
    if type(value) is not int or value < 1:
        raise DemoError(f"{path}:{node.lineno}: GPU must be its place among others, from 1 on")
    return value


def _text(path: Path, values: Mapping[str, ast.expr], name: str) -> Text:
    if name not in values:
        raise DemoError(f"{path}:1: a demo says its {name}: {{'zh': …, 'en': …}}")
    return _words(path, values[name], name)


def _words(path: Path, node: ast.expr, what: str) -> Text:
    value = _literal(path, node)
    if (
        not isinstance(value, dict)
        or value.keys() != set(LANGUAGES)
        or not all(isinstance(words, str) and words.strip() for words in value.values())
    ):
        wanted = " and ".join(map(repr, LANGUAGES))
        raise DemoError(f"{path}:{node.lineno}: {what} must hold words for {wanted} alone")
    return value


def _table(path: Path, tree: ast.Module, values: Mapping[str, ast.expr]) -> table.Table:
    if "MEASURES" not in values:
        raise DemoError(f"{path}:1: a demo says in MEASURES what it measures")
    node = values["MEASURES"]
    names = (each for each in ast.walk(tree) if isinstance(each, ast.Name))
    if sum(name.id == "MEASURES" and isinstance(name.ctx, ast.Store) for name in names) != 1:
        raise DemoError(f"{path}:{node.lineno}: MEASURES must be set once")
    text = _literal(path, node)
    if not isinstance(text, str):
        raise DemoError(f"{path}:{node.lineno}: MEASURES must be a text")
    try:
        return table.read(text)
    except table.TableError as error:
        raise DemoError(f"{path}:{node.lineno}: MEASURES: {error}") from None


def _help(path: Path, tree: ast.Module) -> dict[str, Text]:
    """What the fields of ``Config`` say of themselves: the second argument of ``parameter``."""
    found = {}
    for config in tree.body:
        if isinstance(config, ast.ClassDef) and config.name == "Config":
            for field in config.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    for node in _help_of(field.value):
                        if not isinstance(node, ast.Dict):
                            continue  # it is not read here, and counts as code
                        found[field.target.id] = _words(path, node, "the help of a parameter")
    return found


def _help_of(call: ast.expr | None) -> list[ast.expr]:
    if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "parameter":
        return []
    return call.args[1:2] or [word.value for word in call.keywords if word.arg == "help"]
