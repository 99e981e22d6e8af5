"""A tree of outputs, built beside the old one and swapped in by one rename; nothing of others is lost.

A tree carries a manifest: what the build wrote, by path and digest. Whatever else stands in the old
tree, or is no longer what was written, belongs to its reader. It is linked into the new tree before
the two change places: at its own path, or, where the build has written there, beside it
(``lora.md`` → ``lora.kept.md``).
"""

from __future__ import annotations

import ctypes
import errno
import filecmp
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from generator.workers import spread
from runnable_demos.lab.files import locked, write

MANIFEST = ".proofdeck"
"""The file by which a tree of outputs is known, so that nothing else is ever replaced."""

_ABOUT = (
    "Files written by proofdeck, with their SHA-256. The next build replaces these, and keeps "
    "all others and those that were edited."
)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class OutputError(Exception):
    """An output folder that may not be replaced; the message is for the user."""


@dataclass
class Kept:
    """What a tree held that no build had written; paths are relative to it, a folder's end in ``/``."""

    in_place: list[str] = field(default_factory=list)
    beside: list[tuple[str, str]] = field(default_factory=list)
    """Where a file was, and where it is, since the build has written its own there."""
    aside: list[Path] = field(default_factory=list)
    """Whole trees of a version that noted nothing of what it wrote."""


def write_tree(
    out: Path, fill: Callable[[Path], None], waiting: Callable[[], None] = lambda: None
) -> Kept:
    """Let ``fill`` write a new folder, put it in the place of ``out``, and say what was kept.

    Until then, and for ever if ``fill`` raises, ``out`` stays as it is. What killed builds left
    beside it is cleared first. One build writes at a time; ``waiting`` is called where this one
    waits for another. Raises ``OutputError`` where ``out`` is a file, or a folder that no build has
    written, and ``OSError`` from the disk, with the path that it concerns.
    """
    out = Path(os.path.realpath(out))
    _refuse(out)
    work = out.with_name(f".{out.name}.proofdeck-build")
    new = work / "new"
    kept = Kept()
    with _naming(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out.with_name(f".{out.name}.proofdeck-lock"), waiting):
            _clear(out, work, kept)
            try:
                new.mkdir(parents=True)
                new.chmod(0o755)
                fill(new)
                _note(new)
                _refuse(out)
                if out.exists():
                    _carry(out, new, kept)
                    shutil.copymode(out, new)
                _swap(new, out, work / "old")
            finally:
                _clear(out, work, kept)
    return kept


def _refuse(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise OutputError(f"{out} is a file; name a folder to build into")
    if not (out / MANIFEST).is_file() and any(out.iterdir()):
        raise OutputError(
            f"{out} holds files that no build has written; name another folder, or empty this one"
        )


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    """Let errors of the disk name the path that the user knows, and at least the folder."""
    beside = str(out.with_name(f".{out.name}.proofdeck-"))

    def known(name: object) -> str | None:
        if not isinstance(name, str | os.PathLike):
            return None
        head, found, tail = str(name).partition(beside)
        return (
            f"{out}{tail.removeprefix('build').removeprefix('/new')}"
            if found and not head
            else str(name)
        )

    try:
        yield
    except OSError as error:
        first, second = known(error.filename), known(error.filename2)
        why = error.strerror or str(error)
        raise OSError(error.errno, why, first or str(out), None, second) from error


# --- what was written ----------------------------------------------------------------------------


def _note(new: Path) -> None:
    """Write the manifest of a finished tree."""
    paths = [path for path in sorted(new.rglob("*")) if path.is_file()]
    names = [path.relative_to(new).as_posix() for path in paths]
    files = dict(zip(names, spread(_digest, paths), strict=True))
    text = json.dumps({"about": _ABOUT, "files": files}, ensure_ascii=False, indent=0)
    write(new / MANIFEST, f"{text}\n".encode())


def _written(tree: Path) -> Mapping[str, str] | None:
    """The manifest of a tree; ``None`` where it has none that can be read."""
    try:
        files = json.loads((tree / MANIFEST).read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return files if isinstance(files, dict) else None


def _unchanged(tree: Path, written: Mapping[str, str]) -> set[str]:
    """The files of a tree that are what a build has written."""

    def is_ours(name: str) -> bool:
        path = tree / name
        try:
            return stat.S_ISREG(path.lstat().st_mode) and _digest(path) == written[name]
        except (OSError, ValueError):  # a build can read what it wrote, under a name that can be
            return False

    names = list(written)
    return {name for name, ours in zip(names, spread(is_ours, names), strict=True) if ours}


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# --- what others have put there ------------------------------------------------------------------


def _carry(old: Path, new: Path, kept: Kept) -> None:
    """Link all that no build has written from ``old`` into ``new``; nothing in ``old`` changes.

    A tree without a manifest that can be read is left for ``_settle``.
    """
    written = _written(old)
    if written is not None:
        _Carrier(old, new, written, kept).carry(old, new, "")


def _settle(old: Path, out: Path, kept: Kept) -> None:
    """Save what a tree that ``out`` has replaced still holds: late changes, or, where unknown, all."""
    if _written(old) is not None:
        with suppress(OSError, OutputError):
            _carry(old, out, kept)
            return
    aside = _free(out.with_name(f"{out.name}.kept"), lambda _: False)
    old.rename(aside)
    kept.aside.append(aside)


class _Carrier:
    """Carries what is not ``written`` from one tree into another."""

    def __init__(self, old: Path, new: Path, written: Mapping[str, str], kept: Kept) -> None:
        self.new, self.kept = new, kept
        self.ours = _unchanged(old, written)
        self.device = old.lstat().st_dev
        self.folders = {
            above.as_posix() for name in written for above in PurePath(name).parents
        } - {"."}

    def carry(self, source: Path, target: Path, shown: str, *, foreign: bool = False) -> bool:
        """Carry the content of one folder; returns whether anything in it was new in ``target``.

        ``foreign`` says that all of it is the reader's, which is told once, for the whole folder.
        """
        carried = False
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            name = f"{shown}{entry.name}"
            if name == MANIFEST:
                continue
            try:
                one = self._folder if entry.is_dir(follow_symlinks=False) else self._file
                carried |= one(Path(entry.path), target / entry.name, name, foreign)
            except FileNotFoundError:  # an editor has just replaced it
                if os.path.lexists(entry.path):
                    raise
        return carried

    def _folder(self, path: Path, goal: Path, name: str, foreign: bool) -> bool:
        if path.lstat().st_dev != self.device:
            raise _mounted(path)
        goal = _free(goal, _is_folder)
        if not foreign and name in self.folders:
            return self.carry(path, goal, f"{name}/")
        carried = not goal.exists()
        goal.mkdir(parents=True, exist_ok=True)
        carried |= self.carry(path, goal, f"{name}/", foreign=True)
        shutil.copystat(path, goal)  # last, as it may forbid writing
        if carried and not foreign:
            self._tell(f"{name}/", goal)
        return carried

    def _file(self, path: Path, goal: Path, name: str, foreign: bool) -> bool:
        if not foreign and name in self.ours:
            return False
        goal = _free(goal, lambda there: _is_same(path, there))
        if os.path.lexists(goal):
            return False
        goal.parent.mkdir(parents=True, exist_ok=True)
        _link(path, goal)
        if not foreign:
            self._tell(name, goal)
        return True

    def _tell(self, name: str, goal: Path) -> None:
        there = goal.relative_to(self.new).as_posix() + ("/" if name.endswith("/") else "")
        if there == name:
            self.kept.in_place.append(name)
        else:
            self.kept.beside.append((name, there))


def _free(path: Path, usable: Callable[[Path], bool]) -> Path:
    """``path``, or the first of ``x.kept.md``, ``x.kept-2.md`` … that is free or ``usable`` as it is."""
    number = 1
    place = path
    while os.path.lexists(place) and not usable(place):
        mark = ".kept" if number == 1 else f".kept-{number}"
        place = path.with_name(f"{path.stem}{mark}{path.suffix}")
        number += 1
    return place


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, or hold the same."""
    first, second = one.lstat(), other.lstat()
    if os.path.samestat(first, second):
        return True
    if stat.S_ISLNK(first.st_mode) and stat.S_ISLNK(second.st_mode):
        return one.readlink() == other.readlink()
    if not (stat.S_ISREG(first.st_mode) and stat.S_ISREG(second.st_mode)):
        return False
    try:
        return filecmp.cmp(one, other, shallow=False)
    except PermissionError:
        return False


def _link(path: Path, goal: Path) -> None:
    """A second name for a file, so that nothing is copied; a copy where the disk has no such names."""
    try:
        os.link(path, goal, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise _mounted(path) from None
        shutil.copy2(path, goal, follow_symlinks=False)


def _mounted(path: Path) -> OutputError:
    """What is mounted here would be emptied along with the old tree."""
    return OutputError(f"{path} is on another file system, mounted there; unmount it first")


# --- changing places -----------------------------------------------------------------------------


def _clear(out: Path, work: Path, kept: Kept) -> None:
    """Clear what this build, or one that was killed, has left beside ``out``; the lock is held."""
    new, old = work / "new", work / "old"
    if not out.exists() and old.exists():  # it ended between two renames
        old.rename(out)
    for tree in (old, new):
        if (tree / MANIFEST).exists() and out.exists():  # one without it was never finished
            _settle(tree, out, kept)
    _remove(work)


def _swap(new: Path, out: Path, old: Path) -> None:
    """Put ``new`` in the place of ``out``: at once where the system can, else in two steps."""
    if out.exists() and not _exchange(new, out):
        out.rename(old)
    if new.exists() and not out.exists():
        new.rename(out)


def _exchange(new: Path, out: Path) -> bool:
    """Let two folders change names in one step, where the system knows how."""
    if not sys.platform.startswith("linux"):
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return (
        call is not None
        and call(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(out), _RENAME_EXCHANGE) == 0
    )


def _remove(tree: Path) -> None:
    """Delete a tree, folders that may not be written among it; links are not followed."""
    for folder, inner, _ in os.walk(tree):
        for name in inner:
            path = Path(folder, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(tree, ignore_errors=True)
