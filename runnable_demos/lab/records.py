"""Records on disk: ``evidence/<demo>.<device>.json``, written and read with nothing lost.

A file holds the fields of ``metrics.Record`` and a digest of them.
The digest is no lock: it notices the hand that edits one number in place of a run.
Standard library only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from runnable_demos.lab import files, mechanisms
from runnable_demos.lab.metrics import Figure, Record

FORMAT = 2

R = TypeVar("R")
"""A dataclass that is kept as a record of a demo is."""


class RecordError(ValueError):
    """A file that is no sound record; the message is one sentence for its reader."""


def record_path(folder: Path, demo: str, device: str) -> Path:
    """Where the record of ``demo`` on ``device`` is kept."""
    return folder / f"{demo}.{device}.json"


def short_name(gpu: str) -> str:
    """A GPU's name as file names and claims have it: ``NVIDIA GeForce RTX 4090`` is ``rtx-4090``.

    Maker and brand go. What tells apart two GPUs of different speed or size stays.
    """
    words = re.sub(r"[^a-z0-9]+", " ", gpu.lower()).split()
    brands = {"nvidia", "amd", "intel", "tesla", "geforce", "instinct", "radeon", "r", "tm"}
    return "-".join(word for word in words if word not in brands) or "gpu"


# --- writing -------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """``value`` in dicts, lists, strings, numbers; what is as by default is left out."""
    if dataclasses.is_dataclass(value):
        fields = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: _plain(item) for f, item in fields if item != _default(f)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _layout(value: Any, indent: str = "") -> str:
    """JSON in which what fits on a line stays on it, so that a diff reads well."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + len(indent) <= 96 or not isinstance(value, (dict, list)) or _is_numbers(value):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(k)}: {_layout(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _layout(item, inner) for item in value) + f"\n{indent}]"


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)


def dumps(record: object) -> str:
    """The text of a record's file.

    Raises ``ValueError`` where a number is infinite or not a number.
    """
    content = {"format": FORMAT, **_plain(record)}
    return _layout({**content, "digest": _digest(content)}) + "\n"


def save(record: Record, path: Path) -> Record:
    """Write ``record`` to ``path`` by one rename, and return what stands there then.

    Where the same environment found equal values before, their date is kept.
    """
    try:
        before = load(path)
    except (OSError, RecordError):
        before = None
    if before and _findings(before) == _findings(record):
        record = dataclasses.replace(record, recorded=before.recorded)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, dumps(record).encode())
    return record


def _findings(record: Record) -> tuple[Any, ...]:
    return (record.result, record.parameters, record.environment)


# --- reading -------------------------------------------------------------------------------------


def _refuse(where: str, wanted: str, value: Any) -> NoReturn:
    shown = json.dumps(value, ensure_ascii=False)
    if len(shown) > 40:
        shown = shown[:40] + "…"
    raise RecordError(f"{where} should be {wanted}, and is {shown}")


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        _refuse(where, "an object", value)
    if kind is Figure:
        kind = next((own for field, own in mechanisms.BY_FIELD.items() if field in value), Figure)
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    needed = {
        f.name
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if missing := sorted(needed - value.keys()):
        raise RecordError(f"{where or 'it'} lacks {', '.join(missing)}")
    if unknown := sorted(value.keys() - {f.name for f in fields}):
        raise RecordError(f"{where or 'it'} has an unknown field {', '.join(unknown)[:40]}")
    decoded = {n: _decode(hints[n], value[n], f"{where}.{n}".lstrip(".")) for n in value}
    try:
        return kind(**decoded)
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from None


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    exact = [kind for kind in kinds if type(value) is kind]  # 1 is no truth value, and stays whole
    for kind in exact or kinds:
        try:
            return _decode(kind, value, where)
        except RecordError:
            continue
    _refuse(where, " or ".join(_NAMES.get(kind, str(kind)) for kind in kinds), value)


_NAMES = {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}
_NAMES |= {types.NoneType: "null"}


def _decode(kind: Any, value: Any, where: str) -> Any:
    """``value``, read from JSON, as the annotated type ``kind``."""
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if origin in (Union, types.UnionType):
        return _decode_union(args, value, where)
    if origin is Literal:
        if value not in args:
            _refuse(where, f"one of {', '.join(map(repr, args))}", value)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            _refuse(where, "a list", value)
        return tuple(_decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            _refuse(where, "an object", value)
        return {k: _decode(args[1], item, f"{where}.{k}") for k, item in value.items()}
    if type(value) is not kind and (kind is not float or type(value) is not int):
        _refuse(where, _NAMES[kind], value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise RecordError(f"{name[:40]} is no number that a metric may have")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _no_constant(literal)


def loads(text: str) -> Record:
    """The record in ``text``. Raises ``RecordError`` where it is not one, or was edited by hand."""
    return _unsealed(text, Record)


def _unsealed(text: str, kind: type[R]) -> R:
    """The ``kind`` of record in ``text``. Raises ``RecordError`` where it is not one, or was edited by hand."""
    try:
        content = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise RecordError("it is nested too deeply to be evidence") from None
    except json.JSONDecodeError as error:
        raise RecordError(
            f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecordError:
        raise
    except ValueError:
        raise RecordError("it holds a whole number of thousands of digits") from None
    if not isinstance(content, dict):
        _refuse("it", "an object", content)
    digest = content.pop("digest", None)
    if content.get("format") != FORMAT:
        _refuse("format", str(FORMAT), content.get("format"))
    try:
        found = _digest(content)
    except UnicodeEncodeError:
        raise RecordError("it holds half a character: a surrogate without its other half") from None
    if digest != found:
        raise RecordError("its digest does not match its content: it was edited by hand")
    del content["format"]
    record: R = _decode(kind, content, "")
    return record


def load(path: Path) -> Record:
    """The record in a file. Raises ``OSError``, or ``RecordError`` where it is corrupt or edited."""
    return read(path.read_bytes())


def read(content: bytes) -> Record:
    """The record that a file holds. Raises ``RecordError`` where it is corrupt or edited."""
    return read_as(Record, content)


def read_as(kind: type[R], content: bytes) -> R:
    """The ``kind`` of record that a file holds. Raises ``RecordError`` where it is corrupt or edited."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"it is not UTF-8 at byte {error.start}") from None
    return _unsealed(text, kind)
