"""What was made before, kept under a digest of all that it was made from.

A folder of files that may be deleted at any time, by anyone, during a build too. What cannot be kept
or read is made again, and nobody is told: a cache that fails costs time alone. Builds may share it.

Values are pickled, and whoever can write a pickle can run code: the folder must be the user's own.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from generator.workers import spread

T = TypeVar("T")

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
    if chosen == "":
        return None
    with suppress(RuntimeError):  # a user without a home
        if chosen is not None:
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "proofdeck"
    return None


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A value that is read, or made, when it is asked for; ``digest`` tells all that it is made from."""

    digest: str
    get: Callable[[], T] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cache:
    """Values by what they were made from; without a ``folder`` nothing is kept."""

    folder: Path | None = None
    most: int = MOST

    def get(self, kind: str, source: object, make: Callable[[], T]) -> T:
        """What ``make`` returns, which depends on ``source``, its ``kind`` and this program alone.

        ``source`` is plain data with a ``repr`` that tells all of it; what is made is never changed.
        """
        return self.each(kind, [source], lambda _: make())[0]

    def each(self, kind: str, sources: Sequence[object], make: Callable[[int], T]) -> list[T]:
        """What ``make`` returns for the index of each source; what is missing is made on all cores."""
        folder = self.folder if self.folder and _is_private(self.folder) else None
        if folder is None:
            return spread(make, range(len(sources)))
        files = [_file(folder, _digest(kind, source)) for source in sources]
        found = [_read(file) for file in files]

        def kept(index: int) -> bytes:
            made = pickle.dumps(make(index), protocol=5)
            _write(files[index], made)
            return made

        missing = [index for index, value in enumerate(found) if value is None]
        for index, made in zip(missing, spread(kept, missing), strict=True):
            found[index] = [pickle.loads(made)]
        return [value for entry in found if entry is not None for value in entry]

    def later(
        self, kind: str, sources: Sequence[object], make: Callable[[int], T]
    ) -> list[Later[T]]:
        """As ``each``; what is kept is read when it is asked for, what is missing made at once."""
        digests = [_digest(kind, source) for source in sources]
        if not self.folder or not _is_private(self.folder):
            made = spread(make, range(len(sources)))
            return [Later(*each) for each in zip(digests, map(_same, made), strict=True)]
        missing = [
            at for at, digest in enumerate(digests) if not _file(self.folder, digest).is_file()
        ]
        self.each(kind, [sources[at] for at in missing], lambda index: make(missing[index]))

        def one(index: int) -> T:
            return self.get(kind, sources[index], lambda: make(index))

        return [Later(digest, partial(one, at)) for at, digest in enumerate(digests)]

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


def _is_private(folder: Path) -> bool:
    """Whether nobody but the user can have written there; it need not exist yet."""
    try:
        status = folder.stat()
    except OSError:
        return True
    return not hasattr(os, "getuid") or (
        status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH
    )


def _same(value: T) -> Callable[[], T]:
    return lambda: value


def _digest(kind: str, source: object) -> str:
    return hashlib.sha256(f"{program()}\n{kind}\n{source!r}".encode()).hexdigest()


def _file(folder: Path, digest: str) -> Path:
    return Path(f"{folder}/{digest[:2]}/{digest}")


def _read(path: Path) -> list[Any] | None:
    """The value that was kept, alone in a list, if it is whole; a file that is used stays longest."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        digest, content = path.read_bytes().split(b"\n", 1)
        if hashlib.sha256(content).hexdigest().encode() != digest:
            return None
        found = pickle.loads(zlib.decompress(content))
        if time.time() - status.st_mtime > _DAY:
            os.utime(path)
    except Exception:
        return None
    return [found]


def _write(path: Path, content: bytes) -> None:
    """Keep ``content`` by one rename, so that nobody reads half of it."""
    packed = zlib.compress(content, 1)
    digest = hashlib.sha256(packed).hexdigest().encode()
    with suppress(OSError):
        path.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".proofdeck-", dir=path.parent)
        try:
            with open(number, "wb") as file:  # noqa: PTH123 - the file is open already
                file.write(digest + b"\n" + packed)
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
