"""Exporters, one a file: ``NAME``, ``ENTRY`` (what to open first) and ``export(book, out, demos)``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def discover() -> Iterator[ModuleType]:
    """Every exporter, by name."""
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        yield importlib.import_module(f"{__name__}.{info.name}")
