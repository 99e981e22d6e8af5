"""Run one command so that nothing of it outlives whoever asked: ``python -m generator.lab.keeper COMMAND …``.

The command gets a temporary folder of its own, as ``TMPDIR``. Its keeper waits until the command
ends, or until standard input closes, which it does when whoever started the keeper closes it
or dies, by SIGKILL as well. Then every process that the command started is killed, whichever
session it is in and whatever it ignores, and the folder is removed.

The keeper holds a lock on the folder. A folder that nobody holds is left over from a keeper that
was itself killed: the next one ends what still runs in it, and removes it.

Exit code: the command's, or 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

PREFIX = "proofdeck-run-"
ENVIRONMENT = 3
PATIENCE = 10.0
"""Seconds that processes get to be gone once they are killed; one that hangs in the kernel may not."""

_PR_SET_CHILD_SUBREAPER = 36  # from <sys/prctl.h>


def main() -> int:
    """Keep the command that the arguments are; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    _adopt_orphans()
    try:
        clear()
        folder, lock = _own_folder()
    except OSError as error:
        where = tempfile.gettempdir()
        message = f"no temporary folder can be made in {where}: {error.strerror}"
        hint = "free some space there, or name another folder in the variable TMPDIR"
        report = {"error": message, "hint": hint, "detail": "", "code": ENVIRONMENT}
        print(json.dumps(report), flush=True)
        return ENVIRONMENT
    try:
        return _keep(sys.argv[1:], folder)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # to be done with it, once begun
        _empty(folder, psutil.Process())
        os.close(lock)


def _keep(command: Sequence[str], folder: Path) -> int:
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)

    def end_with_input() -> None:
        os.read(sys.stdin.fileno(), 1)
        process.kill()

    threading.Thread(target=end_with_input, daemon=True).start()
    code = process.wait()
    return code if code >= 0 else 128 - code


def _adopt_orphans() -> None:
    """Become the parent of processes whose own parent dies, so that none is lost sight of."""
    if sys.platform == "linux":  # elsewhere they are found by their environment alone
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# --- folders -------------------------------------------------------------------------------------


def _own_folder() -> tuple[Path, int]:
    """A new folder, and the lock on it, which is held until it is closed or this process dies."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(folder)
        if lock is not None:
            if folder.exists():
                return folder, lock
            os.close(lock)  # another keeper took it for left over before it was locked


def _lock(folder: Path) -> int | None:
    """A lock on one's own folder, or ``None`` where another process holds it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it is gone, or belongs to somebody else
        return None
    if os.fstat(lock).st_uid == os.getuid():
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    os.close(lock)
    return None


def clear() -> None:
    """End and remove what killed keepers have left behind; what a living one holds stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            _empty(folder)
            os.close(lock)


def _empty(folder: Path, keeper: psutil.Process | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while (living := _processes(folder, keeper)) and time.monotonic() < deadline:
        for process in living:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(living, timeout=1)
    shutil.rmtree(folder, ignore_errors=True)


def _processes(folder: Path, keeper: psutil.Process | None) -> list[psutil.Process]:
    """What runs with ``folder`` as its ``TMPDIR``, and all that descends from ``keeper``."""
    found = keeper.children(recursive=True) if keeper else []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
    return [process for process in dict.fromkeys(found) if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


if __name__ == "__main__":
    sys.exit(main())
