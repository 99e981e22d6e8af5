"""Run one fence in this process and say what it printed: ``python -m generator.lab.fence_process CODE MOST``.

``CODE`` is the fence's text as a JSON string, ``MOST`` how many bytes it may print. Standard output
carries one line:

    {"printed": "…", "environment": {"python": "3.11.7", …}}    it ended without an error
    {"fault": "…", "hint": "…", "lines": [3, 9]}                in place of it

``lines`` are those of the fence that led there, innermost last, counted from 1.

What a fence may not do is noticed by an audit hook, which ends this process at once, so that no
``except`` goes on after it. The hook sees what Python does, and not what C code does by itself: it
catches slips. Whoever reviews a card reviews its code, and ``ctypes`` would get past all of it.

Standard library only: what a fence needs, it imports.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import linecache
import os
import platform
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from runnable_demos.lab import lifetime

MOST_MEMORY = 4 * 2**30
"""Bytes of data. Address space would say little: torch maps far more than it uses."""
MOST_FILE = 64 * 2**20
"""Bytes of each file in the fence's own folder."""

MOST_SAID, MOST_LINES = 200, 20
"""Characters of an error, and lines that led to it, that are told."""

NAME = "<fence>"
_ALONE = ("generator", "runnable_demos")
"""Packages whose code would change without the record of the fence going stale."""


def main() -> None:
    """Run the fence that the first argument is."""
    lifetime.end_with(os.getppid())
    code, most = json.loads(sys.argv[1]), int(sys.argv[2])
    fence = _Fence(_own_line_out())
    folder = Path(os.environ["TMPDIR"]).resolve()
    _settle(folder)
    output = _Output(most, fence.stop)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(  # type: ignore[misc]
        cast(Any, output), encoding="utf-8", newline="\n", write_through=True
    )
    environment = _environment()
    _limit_memory()
    module = _as_main(code)
    sys.addaudithook(_Guard(fence.stop, folder))
    try:
        exec(compile(code, NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            fence.raised(error)
    except BaseException as error:
        fence.raised(error)
    fence.end(printed=output.text(), environment=environment)


def _as_main(code: str) -> types.ModuleType:
    """A module of its own, where dataclasses, pickle and ``inspect`` look for what the fence defines."""
    for name in [each for each in sys.modules if each.partition(".")[0] in _ALONE]:
        del sys.modules[name]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    return module


def _own_line_out() -> int:
    """A way out for this module alone: what is printed around ``sys.stdout`` goes to standard error."""
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def _settle(folder: Path) -> None:
    """Work in ``folder``; caches of libraries find their place there, and compiled code none."""
    os.chdir(folder)
    os.environ.update({"HOME": str(folder), "XDG_CACHE_HOME": str(folder)})
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.dont_write_bytecode = True


def _environment() -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    with suppress(importlib.metadata.PackageNotFoundError):
        found["torch"] = importlib.metadata.version("torch")
    return {**found, "platform": f"{platform.system()} {platform.machine()}"}


def _limit_memory() -> None:
    """Let an allocation fail beyond the limit, as far as the system knows one; and a file's growth."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - POSIX alone

        for kind, most in (
            (resource.RLIMIT_DATA, MOST_MEMORY),
            (resource.RLIMIT_FSIZE, MOST_FILE),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (limit, limit))


Stop = Callable[[str, str], NoReturn]
"""Ends this process with a fault and a hint."""


class _Fence:
    """Says how the fence ended, which ends this process."""

    def __init__(self, out: int) -> None:
        self._out = out

    def end(self, **message: object) -> NoReturn:
        """Say it; what the fence left to threads and to the end of the process is not run."""
        line = memoryview((json.dumps(message) + "\n").encode())
        while line:
            line = line[os.write(self._out, line) :]
        os._exit(0)

    def stop(self, fault: str, hint: str) -> NoReturn:
        """It does what it may not, at the line that runs now."""
        self.end(fault=fault, hint=hint, lines=_running()[-MOST_LINES:])

    def raised(self, error: BaseException) -> NoReturn:
        """It raised this."""
        lines = list(_raised_at(error))[-MOST_LINES:]
        if _is_out_of_memory(error):
            fault = f"takes more than {MOST_MEMORY >> 30} GiB of memory"
            self.end(fault=fault, hint="Let it compute on something smaller.", lines=lines)
        text = str(error.msg if isinstance(error, SyntaxError) else error)
        said = next(iter(text.strip().splitlines()), "")[:MOST_SAID]
        fault = f"raises {type(error).__name__}" + (f": {said}" if said else "")
        hint = "A fence ends without an error; what it shows to fail, it catches."
        if isinstance(error, ModuleNotFoundError):
            hint = "`python -m pip install 'proofdeck[lab]'` brings PyTorch, NumPy and SymPy."
        self.end(fault=fault, hint=hint, lines=lines)


def _running() -> list[int]:
    """The lines of the fence that are under way."""
    found: list[int] = []
    frame: types.FrameType | None = sys._getframe()
    while frame:
        if frame.f_code.co_filename == NAME:
            found.insert(0, frame.f_lineno)
        frame = frame.f_back
    return found


def _raised_at(error: BaseException) -> Iterator[int]:
    """The lines of the fence that an error came through."""
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == NAME:
            yield trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == NAME and error.lineno:
        yield error.lineno


def _is_out_of_memory(error: BaseException) -> bool:
    words = ("can't allocate memory", "bad_alloc", "Cannot allocate memory")
    return isinstance(error, MemoryError) or any(each in str(error) for each in words)


class _Output(io.BufferedIOBase):
    """What the fence prints, as far as it may."""

    def __init__(self, most: int, stop: Stop) -> None:
        self._most = most
        self._stop = stop
        self._kept = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._kept += data
        if len(self._kept) > self._most:
            self._stop(f"prints more than {self._most >> 10} KiB", "Print what a reader reads.")
        return len(data)

    def text(self) -> str:
        """All that was printed."""
        try:
            return self._kept.decode("utf-8")
        except UnicodeDecodeError:
            self._stop("prints bytes that are no UTF-8", "Print text.")


# --- what it may not do --------------------------------------------------------------------------

_PROCESSES = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn",
    "subprocess.Popen",
}  # fmt: skip
_CHANGED: Mapping[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, -1),),
    "os.setxattr": ((0, -1),),
    "os.removexattr": ((0, -1),),
    "sqlite3.connect": ((0, -1),),
}
"""Which arguments of an event are a path that is changed, and the folder's descriptor it counts from."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Guard:
    """An audit hook: it ends the process where the fence does what it may not."""

    def __init__(self, stop: Stop, folder: Path) -> None:
        self._stop = stop
        self._folder = folder
        import _posixsubprocess  # noqa: PLC0415 - how multiprocessing starts one, without an event

        _posixsubprocess.fork_exec = self._fork

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROCESSES:
            self._fork()
        elif event.startswith("socket.") and event != "socket.gethostname":
            self._stop("opens a socket", "A fence computes; what it needs stands in it.")
        elif event == "open":
            path, _, flags = arguments
            if flags & _WRITING:
                self._change(path)
        elif event in _CHANGED:
            for path, folder in _CHANGED[event]:
                self._change(arguments[path], arguments[folder] if folder >= 0 else -1)
        elif event == "import" and arguments[0].partition(".")[0] in _ALONE:
            hint = (
                "Show what it needs: its record would not go stale with code that stands elsewhere."
            )
            self._stop(f"imports `{arguments[0]}`", hint)

    def _fork(self, *_: object) -> NoReturn:
        self._stop("starts a process", "A fence is one process; threads are its own.")

    def _change(self, path: Any, folder: int = -1) -> None:
        """Refuse a path outside of the fence's own folder; what is open already has no path."""
        if isinstance(path, int) or path == ":memory:":
            return
        name = os.fsdecode(path)
        try:
            base = Path(f"/proc/self/fd/{folder}").readlink() if folder >= 0 else Path.cwd()
        except OSError:  # no system but Linux says so
            return
        place = Path(os.path.realpath(base / name))
        if place != Path(os.devnull) and not place.is_relative_to(self._folder):
            hint = "A relative path leads to the fence's own folder, which is gone when it ends."
            self._stop(f"writes outside of its own folder: {name[:60]}", hint)


if __name__ == "__main__":
    main()
