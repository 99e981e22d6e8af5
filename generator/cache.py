"""What was made before, kept under a digest of all that it was made from.

A folder of files that may be deleted at any time, by anyone, during a build too. What cannot be kept
or read is made again, and nobody is told: a cache that fails costs time alone. Builds may share it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SOURCES = ("generator", "runnable_demos/lab", "site_overrides")

MOST = 256 * 2**20
"""Bytes that the folder may hold when a build has ended."""
_OWN = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62}|\.proofdeck-[a-z0-9_]+)")
"""What the cache itself writes, by its path in the folder: nothing else there is ever deleted."""
_ABANDONED = 3600
"""Seconds after which a half-written file belongs to a build that was killed."""
_DAY = 86400


def default_folder() -> Path | None:
    """The user's cache folder, or that which ``PROOFDECK_CACHE`` names; ``None`` where it is empty."""
    chosen = os.environ.get("PROOFDECK_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with suppress(RuntimeError):  # a user without a home
        return Path(home).expanduser() / "proofdeck"
    return None


@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes by what they were made from; without a ``folder`` nothing is kept."""

    folder: Path | None = None
    most: int = MOST

    def get(self, kind: str, source: object, make: Callable[[], bytes]) -> bytes:
        """What ``make`` returns, which depends on ``source``, its ``kind`` and this program alone.

        ``source`` is plain data with a ``repr`` that tells all of it.
        """
        if self.folder is None:
            return make()
        key = hashlib.sha256(f"{program()}\n{kind}\n{source!r}".encode()).hexdigest()
        path = self.folder / key[:2] / key
        found = _read(path)
        if found is None:
            found = make()
            _write(path, found)
        return found

    def prune(self) -> None:
        """Delete what was not used for longest, until the folder holds no more than it may."""
        if self.folder is None:
            return
        now = time.time()
        kept: list[tuple[float, int, Path]] = []
        for path, status in _files(self.folder):
            if path.name.startswith(".") and now - status.st_mtime > _ABANDONED:
                _delete(path)
            else:
                kept.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self.most:
                break
            _delete(path)
            total -= size


NOTHING_KEPT = Cache()


@cache
def program() -> str:
    """A digest of everything but the base that an output depends on: our files, and what they use."""
    made = hashlib.sha256(platform.python_version().encode())
    for name in _SOURCES:
        for path in sorted((_ROOT / name).rglob("*")):
            if path.suffix != ".pyc" and path.is_file():
                content = path.read_bytes()
                made.update(f"{path.relative_to(_ROOT)} {len(content)}\n".encode() + content)
    for name, version in sorted(_versions()):
        made.update(f"{name} {version}\n".encode())
    return made.hexdigest()


def _versions() -> Iterator[tuple[str, str]]:
    """Every package that is installed here: those that ours use have dependencies, too."""
    for distribution in metadata.distributions():
        yield distribution.name or "", distribution.version or ""


def _read(path: Path) -> bytes | None:
    """The bytes that were kept, if they are whole; a file that is used stays longest."""
    try:
        digest, content = path.read_bytes().split(b"\n", 1)
        found = zlib.decompress(content)
        if hashlib.sha256(found).hexdigest().encode() != digest:
            return None
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)
    except (OSError, ValueError, zlib.error):
        return None
    return found


def _write(path: Path, content: bytes) -> None:
    """Keep ``content`` by one rename, so that nobody reads half of it."""
    digest = hashlib.sha256(content).hexdigest().encode()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".proofdeck-", dir=path.parent)
        try:
            with open(number, "wb") as file:  # noqa: PTH123 - the file is open already
                file.write(digest + b"\n" + zlib.compress(content, 1))
            Path(name).replace(path)
        except OSError:
            _delete(Path(name))


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What the cache has written there; another build may delete any of it meanwhile."""
    for inner in _entries(folder):
        for path in () if inner.is_symlink() else _entries(inner):
            with suppress(OSError):
                status = path.lstat()
                if _OWN.fullmatch(f"{inner.name}/{path.name}") and stat.S_ISREG(status.st_mode):
                    yield path, status


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
