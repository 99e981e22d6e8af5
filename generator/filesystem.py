"""Files that people write, read with care: every fault of theirs is a problem, none is raised."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from generator.lines import BYTE_ORDER_MARK
from generator.problems import Place, Problem

MAX_BYTES = 256 * 1024
"""The largest card or ``modules.yml`` that is read; a long card has some 20 KiB."""

ENVIRONMENT_CODES = frozenset({"unreadable"})
"""Problems that no edit of a file fixes: disk, permission."""

USAGE_CODES = frozenset({"no-folder", "not-a-folder"})
"""Problems of what was asked for, rather than of what stands in a base."""


def read_text(file: Path, shown: str) -> str | Problem:
    """The text of a file, or why it cannot be had; ``shown`` is the path to name it by.

    Line ends and a byte order mark stay: ``lines.Lines`` knows what they mean.
    """
    place = Place(shown)
    try:
        # Not blocking, so that a named pipe does not wait for a writer for ever.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return Problem(place, "not-a-file", "this is no regular file", "Remove it.")
            data = opened.read(MAX_BYTES + 1)
            size = os.fstat(opened.fileno()).st_size
    except OSError as error:
        return unreadable(error, shown)
    if len(data) > MAX_BYTES:
        return Problem(
            place,
            "too-large",
            f"the file has {max(size, len(data)):,} bytes, and at most {MAX_BYTES:,} are read",
            "Split it: one question a card.",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        row = before.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
        row = row.replace("\r\n", "\n").replace("\r", "\n")
        place = Place(shown, row.count("\n") + 1, len(row) - row.rfind("\n"))
        return Problem(
            place,
            "not-utf-8",
            f"the byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8",
            "Save the file as UTF-8; " + _guess(data, before),
        )


def _guess(data: bytes, before: bytes) -> str:
    """What a file that is not UTF-8 may be, by its bytes and by those before the first bad one."""
    if not before.isascii():
        return "most of it is, and this character is damaged."
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "it looks like UTF-16."
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return "its encoding is not known."
    return "it looks like GB 18030 (GBK) or a Latin encoding."


def unreadable(error: OSError, shown: str) -> Problem:
    """Why the operating system gave nothing, as a problem."""
    place = Place(shown)
    match error.errno:
        case errno.ENOENT:
            return Problem(place, "no-file", "there is no such file", "Create it.")
        case errno.ELOOP:
            return Problem(
                place, "link-loop", "this symbolic link leads back to itself", "Remove the link."
            )
        case errno.EACCES | errno.EPERM:
            hint = f"Allow reading: `chmod u+rX '{shown}'`, as its owner."
            return Problem(place, "unreadable", "there is no permission to read this", hint)
        case _:
            reason = error.strerror or str(error)
            return Problem(place, "unreadable", f"this cannot be read: {reason}", "Check the disk.")


def find_cards(root: Path, shown: str) -> tuple[list[tuple[Path, str]], list[Problem]]:
    """Every Markdown file below ``root``, sorted by path, each with the path to show.

    Hidden files and folders are left alone. Symbolic links are followed, but not in circles.
    """
    files: list[tuple[Path, str]] = []
    problems: list[Problem] = []

    def walk(folder: Path, name: str, above: frozenset[str]) -> None:
        real = os.path.realpath(folder)
        if real in above:
            problems.append(
                Problem(
                    Place(name),
                    "link-loop",
                    "this symbolic link leads back to a folder that it stands in",
                    "Remove the link.",
                )
            )
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            problems.append(unreadable(error, name))
            return
        for entry in entries:
            path, inner = Path(entry.path), f"{name}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if not entry.name.isprintable() and (_is_folder(entry) or path.suffix.lower() == ".md"):
                problems.append(_unprintable(inner, entry.name))
                continue
            if _is_folder(entry):
                walk(path, inner, above | {real})
            elif path.suffix.lower() == ".md":
                files.append((path, inner))

    walk(root, shown, frozenset())
    return files, problems


def _unprintable(shown: str, name: str) -> Problem:
    bad = next(each for each in name if not each.isprintable())
    what = "a byte that is not UTF-8" if 0xDC80 <= ord(bad) <= 0xDCFF else f"U+{ord(bad):04X}"
    return Problem(
        Place(shown),
        "file-name",
        f"the name of this file or folder holds {what}, which nobody sees or types",
        "Rename it: a card is called by its id, and a folder by its module.",
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link into a circle; reading it says so
        return False


def as_folder(folder: Path, shown: str) -> Problem | None:
    """Why ``folder`` is no folder, where it is none."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return Problem(
            Place(shown), "no-folder", "there is no such folder", "Name one that exists."
        )
    except NotADirectoryError:
        return Problem(Place(shown), "not-a-folder", "a file stands on this path", "Name a folder.")
    except OSError as error:
        return unreadable(error, shown)
    if not stat.S_ISDIR(mode):
        return Problem(Place(shown), "not-a-folder", "this is a file", "Name a folder.")
    return None
