"""Files that are written whole or not at all, by one writer at a time.

Standard library only: evidence is written where nothing else is installed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


def write(path: Path, content: bytes, *, new: bool = False, over: bytes | None = None) -> bool:
    """Put ``content`` into a file by one rename; what stood there is whole until then.

    A symbolic link stays one, and permissions stay. ``new`` refuses a file that exists; given
    ``over``, nothing is written where other content stands by now. Returns whether it was written.
    What a killed writer left beside the file is used up by the next.
    Raises ``OSError`` that names ``path``.
    """
    if new and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.proofdeck")
    try:
        with locked(beside) as handle:
            if new and real.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            if over is not None and (not real.is_file() or real.read_bytes() != over):
                return False
            os.ftruncate(handle, 0)
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(handle)
            if real.exists():
                os.fchmod(handle, stat.S_IMODE(real.stat().st_mode))
            beside.replace(real)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold a file that no other process holds, made for this and gone at the end.

    Yields its descriptor. ``waiting`` is called where another process holds the file, until it
    lets go. The system lets go for a process that was killed, so its file is taken over.
    A file system without locks is taken to have one user.
    """
    handle = _take(path, waiting)
    try:
        yield handle
    finally:
        if _is_at(path, handle):  # it may have been renamed
            path.unlink()
        os.close(handle)


def _take(path: Path, waiting: Callable[[], None]) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise
        except BaseException:
            os.close(handle)
            raise
        if _is_at(path, handle):
            return handle
        os.close(handle)  # its last holder has removed or renamed it meanwhile


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
