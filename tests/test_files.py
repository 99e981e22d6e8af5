"""A file is written whole or not at all, and an error names it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest

from generator.authoring import new_card
from runnable_demos.lab import files, records

ROOT = Path(__file__).parent.parent


@contextmanager
def a_full_disk(bytes_left: int = 0) -> Iterator[None]:
    """No file can grow beyond this, as on a full disk; the kernel itself refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    """Content and permissions are as they should be, and nothing stays beside it."""
    file = tmp_path / "a.md"
    files.write(file, b"one")
    umask = os.umask(0)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    file.chmod(0o640)
    files.write(file, b"2")
    assert file.read_bytes() == b"2"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """What it leads to is rewritten."""
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "a.md").symlink_to("real.md")
    files.write(tmp_path / "a.md", b"new")
    assert (tmp_path / "a.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    """Neither a file nor a link that leads nowhere."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").symlink_to("nowhere")
    for name in ("a", "b"):
        with pytest.raises(FileExistsError):
            files.write(tmp_path / name, b"new", new=True)
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("old", [None, "old"])
def test_on_a_full_disk_nothing_changes_and_the_file_is_named(
    tmp_path: Path, old: str | None
) -> None:
    """No empty or half a file, nothing beside it, and the error says which file it was."""
    file = tmp_path / "a.md"
    if old:
        file.write_text(old)
    with a_full_disk(3), pytest.raises(OSError, match=r"a\.md") as full:
        files.write(file, b"x" * 10_000)
    assert (full.value.errno, full.value.filename) == (errno.EFBIG, str(file))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == (
        {"a.md": old} if old else {}
    )


def test_a_killed_writer_leaves_nothing_that_the_next_does_not_use_up(tmp_path: Path) -> None:
    """Killed while it writes, again and again: the file is whole, and at most one other lies beside it."""
    file = tmp_path / "a.md"
    file.write_bytes(b"old")
    code = (
        "import sys\nfrom pathlib import Path\nfrom runnable_demos.lab import files\n"
        "print('begin', flush=True)\n"
        "while True: files.write(Path(sys.argv[1]), b'n' * 1_000_000)"
    )
    for number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(file)], cwd=ROOT, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.003 * number)
            process.send_signal(signal.SIGKILL)
        assert file.read_bytes() in (b"old", b"n" * 1_000_000)
        assert len(list(tmp_path.iterdir())) <= 2
    files.write(file, b"last")
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]
    assert file.read_bytes() == b"last"


def test_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    """Of many processes that write one file, each leaves it whole."""
    file = tmp_path / "a.md"
    code = (
        "import sys\nfrom pathlib import Path\nfrom runnable_demos.lab import files\n"
        "for _ in range(100): files.write(Path(sys.argv[1]), sys.argv[2].encode() * 50_000)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(file), letter], cwd=ROOT)
        for letter in "abc"
    ]
    while any(writer.poll() is None for writer in writers):
        if file.exists():
            assert len(set(file.read_text())) == 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def _card(folder: Path) -> Path:
    base = ROOT / "tests" / "library" / "cards"
    (folder / "numerics").mkdir()
    (folder / "modules.yml").write_bytes((base / "modules.yml").read_bytes())
    new_card.write(folder, "dot", "numerics", "sums", date(2026, 11, 29))
    return folder / "numerics" / "dot.md"


def _record(folder: Path) -> Path:
    kept = ROOT / "tests/library/runnable_demos/evidence/float_sums.cpu.json"
    file = folder / "evidence" / "float_sums.cpu.json"
    records.save(records.load(kept), file)
    return file


@pytest.mark.parametrize("save", [_card, _record])
def test_cards_and_records_are_written_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], Path]
) -> None:
    """A new card and a record come by the same way: on a full disk there is none of it."""
    write = files.write

    def on_a_full_disk(path: Path, content: bytes, *, new: bool = False) -> None:
        with a_full_disk():
            write(path, content, new=new)

    (tmp_path / "full").mkdir()
    (tmp_path / "fine").mkdir()
    monkeypatch.setattr(files, "write", on_a_full_disk)
    with pytest.raises(OSError, match="full/") as full:
        save(tmp_path / "full")
    monkeypatch.undo()
    file = save(tmp_path / "fine")
    assert file.stat().st_size > 100
    assert full.value.filename == str(tmp_path / "full" / file.relative_to(tmp_path / "fine"))
    assert list((tmp_path / "full").rglob(f"*{file.name}*")) == []
