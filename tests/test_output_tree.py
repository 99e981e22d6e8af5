"""A tree of outputs takes the place of the old one, and what others have put there is not lost."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from generator import output_tree
from generator.output_tree import MANIFEST, Kept, OutputError, write_tree


def tree(folder: Path) -> dict[str, str]:
    """The files and links of a folder and what they hold, but for the manifest."""
    return {
        path.relative_to(folder).as_posix(): f"→ {path.readlink()}"
        if path.is_symlink()
        else path.read_text()
        for path in folder.rglob("*")
        if path.name != MANIFEST and (path.is_symlink() or path.is_file())
    }


def build(out: Path, texts: Mapping[str, str]) -> Kept:
    """Let a build write these files."""

    def fill(new: Path) -> None:
        for name, text in texts.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_text(text)

    return write_tree(out, fill)


def in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that cannot exchange two folders."""
    monkeypatch.setattr(output_tree, "_exchange", lambda new, out: False)


ONE_STEP_AND_TWO = pytest.mark.parametrize(
    "system", [lambda _: None, in_two_steps], ids=["exchange", "two-renames"]
)
System = Callable[[pytest.MonkeyPatch], None]


# --- changing places -----------------------------------------------------------------------------


@ONE_STEP_AND_TWO
def test_a_tree_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: System
) -> None:
    """Nothing of the old tree is left, and nothing beside the new one."""
    system(monkeypatch)
    out = tmp_path / "deep" / "dist"
    for content in ("one", "two"):
        assert build(out, {content: content}) == Kept()
        assert tree(out) == {content: content}
        assert [path.name for path in out.parent.iterdir()] == ["dist"]
    assert out.stat().st_mode & 0o777 == 0o755


def test_a_failure_leaves_the_old_tree_whole(tmp_path: Path) -> None:
    """When the build raises, the old tree stays and the new one is gone."""
    out = tmp_path / "dist"
    build(out, {"a": "old"})

    def fail(new: Path) -> None:
        (new / "a").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_tree(out, fail)
    assert tree(out) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_two_folders_are_exchanged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system can exchange two folders, neither is renamed by itself."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    if not output_tree._exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two folders")
    out = tmp_path / "dist"
    build(out, {"one": ""})
    monkeypatch.delattr(Path, "rename")
    build(out, {"two": ""})
    assert tree(out) == {"two": ""}


def test_a_reader_never_sees_the_tree_missing(tmp_path: Path) -> None:
    """Swapped by one rename, the path leads to a whole tree at every moment."""
    out = tmp_path / "dist"
    build(out, {"a": "0"})
    missing, stop = [], threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                (out / "a").read_text()
            except OSError as error:
                missing.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        build(out, {"a": str(number)})
    stop.set()
    reader.join()
    assert missing == []


def test_if_the_second_rename_fails_the_old_tree_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old tree has stepped aside and the new one cannot follow: the old one returns."""
    in_two_steps(monkeypatch)
    out = tmp_path / "dist"
    build(out, {"a": "old"})
    rename = Path.rename

    def fail_for_new(path: Path, target: Path) -> Path:
        if target == out and path.name != "old":
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(OSError, match="No space"):
        build(out, {"a": "new"})
    assert tree(out) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_what_no_build_has_written_is_never_replaced(tmp_path: Path) -> None:
    """A folder of somebody's files, and a file, are refused before anything is written."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    for out in (home, home / "thesis.tex"):
        with pytest.raises(OutputError):
            write_tree(out, lambda _: pytest.fail("it was built"))
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "thesis.tex"]


def test_an_empty_folder_and_a_link_are_built_into(tmp_path: Path) -> None:
    """An empty folder may be replaced; a link stays a link, and what it leads to is replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "dist").symlink_to("real")
    build(tmp_path / "dist", {"a": "a"})
    assert (tmp_path / "dist").is_symlink()
    assert tree(tmp_path / "real") == {"a": "a"}


def test_errors_of_the_disk_name_the_path_that_the_user_knows(tmp_path: Path) -> None:
    """Not the folder that the tree is built in; where the system names nothing, the outputs are named."""
    out = tmp_path / "dist"

    def fail(new: Path) -> None:
        (new / "site").write_text("")
        (new / "site" / "x.html").write_text("")

    def fail_without_name(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NotADirectoryError) as refused:
        write_tree(out, fail)
    assert refused.value.filename == str(out / "site" / "x.html")
    with pytest.raises(OSError, match="No space") as full:
        write_tree(out, fail_without_name)
    assert full.value.filename == str(out)
    assert list(tmp_path.iterdir()) == []


# --- what others have put there ------------------------------------------------------------------

FIRST = {"vault/Cards/lora.md": "lora", "vault/Cards/adam.md": "adam", "vault/Home.md": "home"}
SECOND = {"vault/Cards/lora.md": "lora, again", "vault/Home.md": "home"}


@ONE_STEP_AND_TWO
def test_a_readers_notes_and_settings_survive_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: System
) -> None:
    """Own notes, hidden settings, links, empty folders, times and permissions; each is named once."""
    system(monkeypatch)
    out = tmp_path / "dist"
    build(out, FIRST)
    own = {
        "vault/.obsidian/app.json": "{}",
        "vault/.obsidian/plugins/x/data.json": "[]",
        "vault/Cards/mine.md": "mine",
        "CNAME": "cards.example.org",
    }
    for name, text in own.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    (out / "vault" / "Daily").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "n.md").write_text("outside")
    (out / "vault" / "linked").symlink_to("../../notes")
    os.mkfifo(out / "vault" / "pipe")
    (out / "vault" / "Cards" / "mine.md").chmod(0o440)
    os.utime(out / "CNAME", (1, 1))
    kept = build(out, SECOND)
    assert tree(out) == SECOND | own | {"vault/linked": "→ ../../notes"}
    assert (out / "vault" / "Daily").is_dir()
    assert (out / "vault" / "pipe").is_fifo()
    assert (out / "vault" / "Cards" / "mine.md").stat().st_mode & 0o777 == 0o440
    assert (out / "CNAME").stat().st_mtime == 1
    assert kept.in_place == [
        "CNAME", "vault/.obsidian/", "vault/Cards/mine.md", "vault/Daily/", "vault/linked", "vault/pipe",
    ]  # fmt: skip
    assert (kept.beside, kept.aside) == ([], [])
    assert (tmp_path / "notes" / "n.md").read_text() == "outside"
    assert build(out, SECOND).in_place == kept.in_place
    assert tree(out) == SECOND | own | {"vault/linked": "→ ../../notes"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dist", "notes"]


@ONE_STEP_AND_TWO
def test_an_edited_note_is_kept_beside_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: System
) -> None:
    """Once, under a name that says so, however often it is built again; a second edit gets its own."""
    system(monkeypatch)
    out = tmp_path / "dist"
    build(out, FIRST)
    (out / "vault/Cards/lora.md").write_text("lora, and what I think")
    (out / "vault/Cards/adam.md").write_text("adam, and what I think")
    (out / "vault/Home.md").unlink()
    kept = build(out, SECOND)
    assert kept.beside == [("vault/Cards/lora.md", "vault/Cards/lora.kept.md")]
    assert kept.in_place == ["vault/Cards/adam.md"]  # no card has that name any more
    mine = {
        "vault/Cards/lora.kept.md": "lora, and what I think",
        "vault/Cards/adam.md": "adam, and what I think",
    }
    assert tree(out) == SECOND | mine
    assert build(out, SECOND).beside == []
    assert tree(out) == SECOND | mine
    (out / "vault/Cards/lora.md").write_text("second thoughts")
    assert build(out, SECOND).beside == [("vault/Cards/lora.md", "vault/Cards/lora.kept-2.md")]
    assert tree(out) == SECOND | mine | {"vault/Cards/lora.kept-2.md": "second thoughts"}


def test_what_the_build_takes_over_is_kept_beside_it(tmp_path: Path) -> None:
    """An own note, folder or link at a path that is written now; one that is written alike needs nothing."""
    out = tmp_path / "dist"
    build(out, {"a": "a", "b/c": "c"})
    (out / "same.md").write_text("same")
    (out / "note.md").write_text("own")
    (out / "folder").mkdir()
    (out / "folder" / "x").write_text("own x")
    (out / "b" / "deep").write_text("own deep")
    (out / "link").symlink_to("note.md")
    now = {
        "a": "a",
        "same.md": "same",
        "note.md": "new",
        "folder": "new",
        "b": "new",
        "link": "new",
    }
    kept = build(out, now)
    assert tree(out) == now | {
        "note.kept.md": "own",
        "folder.kept/x": "own x",
        "b.kept/deep": "own deep",
        "link.kept": "→ note.md",
    }
    assert kept.beside == [
        ("b/deep", "b.kept/deep"), ("folder/", "folder.kept/"), ("link", "link.kept"),
        ("note.md", "note.kept.md"),
    ]  # fmt: skip
    assert kept.in_place == []


def test_a_generated_folder_that_is_a_link_now_is_not_followed(tmp_path: Path) -> None:
    """A vault that was moved elsewhere and linked to stays as it is there."""
    out = tmp_path / "dist"
    build(out, FIRST)
    (out / "vault").rename(tmp_path / "elsewhere")
    (out / "vault").symlink_to(tmp_path / "elsewhere")
    kept = build(out, SECOND)
    assert tree(tmp_path / "elsewhere") == {
        name.removeprefix("vault/"): text for name, text in FIRST.items()
    }
    assert kept.beside == [("vault", "vault.kept")]
    assert (out / "vault.kept").readlink() == tmp_path / "elsewhere"


def test_a_change_during_the_swap_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an editor saves between the copy and the exchange is brought over afterwards."""
    out = tmp_path / "dist"
    build(out, FIRST)
    exchange = output_tree._exchange

    def late(new: Path, there: Path) -> bool:
        (out / "vault/late.md").write_text("late")
        (out / "vault/Cards/lora.md").write_text("edited late")
        return exchange(new, there)

    monkeypatch.setattr(output_tree, "_exchange", late)
    kept = build(out, SECOND)
    assert tree(out) == SECOND | {
        "vault/late.md": "late",
        "vault/Cards/lora.kept.md": "edited late",
    }
    assert kept.in_place == ["vault/late.md"]


@pytest.mark.parametrize(
    "manifest", ["Written by an earlier version.\n", "", "{}", "[1]", '{"files": 3}']
)
def test_a_tree_that_does_not_say_what_was_written_is_moved_aside(
    tmp_path: Path, manifest: str
) -> None:
    """An earlier version's outputs, or a manifest that is broken: nothing of it is deleted."""
    out = tmp_path / "dist"
    build(out, FIRST)
    (out / MANIFEST).write_text(manifest)
    (out / "vault/mine.md").write_text("mine")
    kept = build(out, SECOND)
    assert kept.aside == [tmp_path / "dist.kept"]
    assert tree(out) == SECOND
    assert tree(tmp_path / "dist.kept") == FIRST | {"vault/mine.md": "mine"}
    assert build(out, SECOND) == Kept()


def test_the_manifest_names_every_file_by_its_digest(tmp_path: Path) -> None:
    """SHA-256 of what was written, as `sha256sum` prints it."""
    build(tmp_path / "dist", {"a/b.txt": "abc"})
    written = json.loads((tmp_path / "dist" / MANIFEST).read_text())
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert written["files"] == {"a/b.txt": abc}


def test_a_manifest_reaches_no_file_outside(tmp_path: Path) -> None:
    """Paths in it are looked up, never followed."""
    out = tmp_path / "dist"
    build(out, {"a": "a"})
    (tmp_path / "precious").write_text("abc")
    text = (out / MANIFEST).read_text()
    written = json.loads(text)["files"] | {"../precious": json.loads(text)["files"]["a"]}
    (out / MANIFEST).write_text(json.dumps({"files": written}))
    build(out, {"a": "b"})
    assert (tmp_path / "precious").read_text() == "abc"


def test_read_only_files_and_folders_are_no_hindrance_without_roots_rights() -> None:
    """A user's own read-only folder is carried, and its old place is cleared all the same."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import os, sys\n"
                "from pathlib import Path\n"
                "from generator.output_tree import write_tree\n"
                "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
                f"out = Path({name!r}) / 'dist'\n"
                "fill = lambda new: (new / 'a').write_text('a')\n"
                "write_tree(out, fill)\n"
                "(out / 'shut').mkdir(); (out / 'shut/x').write_text('x')\n"
                "(out / 'shut/x').chmod(0o400); (out / 'shut').chmod(0o500); (out / 'a').chmod(0o400)\n"
                "print(write_tree(out, fill).in_place, write_tree(out, fill).in_place)\n"
                "print(sorted(os.listdir(out.parent)), (out / 'shut/x').read_text(),"
                " oct((out / 'shut').stat().st_mode))\n"
                "(out / 'shut').chmod(0o700)\n",
            ],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.splitlines() == ["['shut/'] ['shut/']", "['dist'] x 0o40500"], done.stderr


# --- several builds, and killed ones -------------------------------------------------------------

BUILD = """
import sys, time
from pathlib import Path
from generator.output_tree import write_tree
out, text, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def fill(new):
    for number in range(30):
        (new / str(number)).mkdir()
        (new / str(number) / "page.html").write_text(text)
        time.sleep(pause)
print("begin", flush=True)
while True:
    write_tree(out, fill)
    if len(sys.argv) < 5: break
"""


def started(out: Path, text: str, pause: float, *more: str) -> subprocess.Popen[str]:
    """A build in a process of its own, which has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(out), text, str(pause), *more],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def texts(out: Path) -> set[str]:
    """What the pages of a tree hold; it is whole where all hold the same."""
    pages = [out / str(number) / "page.html" for number in range(30)]
    return {page.read_text() for page in pages}


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGTERM])
def test_killed_builds_leave_the_outputs_whole_and_nothing_for_ever(
    tmp_path: Path, signal_: signal.Signals
) -> None:
    """Killed at any moment, again and again: the tree is whole, own notes are there, the next build clears."""
    out = tmp_path / "dist"
    build(out, {f"{number}/page.html": "first" for number in range(30)})
    (out / "mine.md").write_text("mine")
    chance = random.Random(7)
    for number in range(12):
        process = started(out, f"build {number}", 0.0005, "for ever")
        time.sleep(chance.uniform(0, 0.15))
        process.send_signal(signal_)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        assert len(texts(out)) == 1
        assert (out / "mine.md").read_text() == "mine"
        assert len(list(tmp_path.iterdir())) <= 3  # outputs, lock, and the last one's folder
    kept = build(out, {"a": "last"})
    assert tree(out) == {"a": "last", "mine.md": "mine"}
    assert kept == Kept(in_place=["mine.md"])
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


STEPS = {
    "open", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod",
    "os.truncate", "ctypes.dlsym",
}  # fmt: skip
"""Python's audit events before a change on the disk; the last stands before the exchange."""


@ONE_STEP_AND_TWO
def test_killed_before_any_step_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: System
) -> None:
    """A build dies before each of its steps on the disk; the next one ends with all that was there."""
    system(monkeypatch)
    step, missing, ended = 0, 0, False
    while not ended:
        step += 1
        root = tmp_path / str(step)
        out = root / "dist"
        build(out, FIRST)
        (out / "vault/mine.md").write_text("mine")
        (out / "vault/Cards/lora.md").write_text("edited")
        before = tree(out)
        ended = not _dies_before(step, lambda out=out: build(out, SECOND))  # type: ignore[misc]
        after = SECOND | {"vault/mine.md": "mine", "vault/Cards/lora.kept.md": "edited"}
        if out.exists():
            assert tree(out) in (before, after), step
        missing += not out.exists()
        build(out, SECOND)
        assert tree(out) == after, step
        assert [path.name for path in root.iterdir()] == ["dist"], step
    assert step > 25
    assert missing == (1 if system is in_two_steps else 0)


def _dies_before(step: int, run: Callable[[], object]) -> bool:
    """Whether a process that runs this was killed, as it is before that step on the disk."""
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        reads = event == "open" and not int(arguments[2]) & (os.O_WRONLY | os.O_RDWR)  # type: ignore[call-overload]
        if event in STEPS and not reads:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if not (child := os.fork()):
        sys.addaudithook(hook)
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_killed_between_two_renames_the_old_tree_comes_back(tmp_path: Path) -> None:
    """The moment at which a system without the exchange has no tree at its path."""
    out, work = tmp_path / "dist", tmp_path / ".dist.proofdeck-build"
    build(out, {"a": "old"})
    (out / "mine.md").write_text("mine")
    work.mkdir()
    out.rename(work / "old")
    build(work / "new", {"a": "never seen"})

    def fail(_: Path) -> None:
        assert tree(out) == {"a": "old", "mine.md": "mine"}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_tree(out, fail)
    assert tree(out) == {"a": "old", "mine.md": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_killed_after_the_exchange_nothing_of_the_old_tree_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late note still stands in the old tree, which only the next build can look through."""
    out = tmp_path / "dist"
    build(out, {"a": "old"})
    monkeypatch.setattr(output_tree, "_clear", lambda *_: None)  # killed here
    swap = output_tree._swap

    def late(new: Path, there: Path, old: Path) -> None:
        (out / "late.md").write_text("late")
        swap(new, there, old)

    monkeypatch.setattr(output_tree, "_swap", late)
    build(out, {"a": "new"})
    assert tree(out) == {"a": "new"}
    monkeypatch.undo()
    build(out, {"a": "newer"})
    assert tree(out) == {"a": "newer", "late.md": "late"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_two_builds_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    """Both end well, the tree is one of theirs, and nothing is left beside it."""
    out = tmp_path / "dist"
    build(out, {"a": "old"})
    (out / "mine.md").write_text("mine")
    both = [started(out, name, 0.003) for name in ("one", "two", "three")]
    assert [process.wait() for process in both] == [0, 0, 0]
    for process in both:
        process.stdout.close()  # type: ignore[union-attr]
    assert len(texts(out)) == 1
    assert (out / "mine.md").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_a_build_that_waits_for_another_says_so(tmp_path: Path) -> None:
    """It is told once that it waits, and then it builds."""
    out = tmp_path / "dist"
    other = started(out, "other", 0.02)
    waiting: list[str] = []
    while not list(tmp_path.iterdir()):
        time.sleep(0.001)
    write_tree(out, lambda new: None, lambda: waiting.append("waits"))
    other.wait()
    other.stdout.close()  # type: ignore[union-attr]
    assert waiting == ["waits"]
    assert tree(out) == {}
