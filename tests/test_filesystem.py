"""Files in and out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator import filesystem
from generator.filesystem import MARKER, OutputError, find_cards, fresh_tree, read_text
from generator.problems import Place, Problem


def refused(file: Path) -> Problem:
    """Why a file is not read."""
    problem = read_text(file, "a.md")
    assert isinstance(problem, Problem)
    assert problem.hint
    return problem


# --- reading -------------------------------------------------------------------------------------


def test_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    """Line ends and the byte order mark are left to the parser."""
    file = tmp_path / "a.md"
    file.write_bytes(b"\xef\xbb\xbfa\r\n\xe6\xb1\x89\n")
    assert read_text(file, "a.md") == "\ufeffa\r\n汉\n"


@pytest.mark.parametrize(
    ("data", "spot", "said", "guess"),
    [
        (b"a\nb\xffc", (2, 2), "0xff at offset 3", "not known"),
        (b"\xef\xbb\xbfa\r\n\xe6\xb1\x89\xe6", (2, 2), "0xe6 at offset 9", "damaged"),
        ("标题\n".encode("gb18030"), (1, 1), "0xb1 at offset 0", "GB 18030"),
        ("a".encode("utf-16"), (1, 1), "0xff at offset 0", "UTF-16"),
        (b"a\rb\r\n\x80", (3, 1), "0x80 at offset 5", "not known"),
    ],
)
def test_a_file_that_is_not_utf_8_names_the_byte(
    tmp_path: Path, data: bytes, spot: tuple[int, int], said: str, guess: str
) -> None:
    """The offset of the first bad byte becomes a line and a column."""
    file = tmp_path / "a.md"
    file.write_bytes(data)
    problem = refused(file)
    assert (problem.code, problem.place) == ("not-utf-8", Place("a.md", *spot))
    assert said in problem.message
    assert guess in problem.hint


def test_the_largest_file_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    """The limit is inclusive, and what is beyond is not even read."""
    file = tmp_path / "a.md"
    file.write_bytes(b"a" * filesystem.MAX_BYTES)
    assert len(str(read_text(file, "a.md"))) == filesystem.MAX_BYTES
    file.write_bytes(b"\xff" * 10_000_000)
    problem = refused(file)
    assert problem.code == "too-large"
    assert "10,000,000" in problem.message


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """A missing file, a folder, a pipe and a link to itself are each said to be what they are."""
    assert refused(tmp_path / "a.md").code == "no-file"
    (tmp_path / "folder.md").mkdir()
    assert refused(tmp_path / "folder.md").code in {"not-a-file", "unreadable"}
    os.mkfifo(tmp_path / "pipe.md")
    assert refused(tmp_path / "pipe.md").code == "not-a-file"
    (tmp_path / "loop.md").symlink_to("loop.md")
    assert refused(tmp_path / "loop.md").code == "link-loop"


def as_nobody(code: str) -> str:
    """What a snippet prints when it runs without the rights of root."""
    drop = "import os\nif os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    imports = "from pathlib import Path\nfrom generator import filesystem, library\n"
    # Imports come first: the checkout itself may be closed to others.
    done = subprocess.run(
        [sys.executable, "-c", imports + drop + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_without_permission_is_the_environments_fault(open_folder: Path) -> None:
    """A closed file and a closed folder are problems of the environment, and say so."""
    (open_folder / "a.md").touch(0)
    (open_folder / "closed").mkdir(0)
    printed = as_nobody(
        f"root = Path({str(open_folder)!r})\n"
        "print(filesystem.read_text(root / 'a.md', 'a.md').code)\n"
        "print([p.code for p in filesystem.find_cards(root, '.')[1]])\n"
        "print(filesystem.as_folder(root / 'closed' / 'x', 'x').code)\n"
    )
    (open_folder / "closed").chmod(0o755)
    assert printed.split("\n")[:3] == ["unreadable", "['unreadable']", "unreadable"]
    assert "unreadable" in filesystem.ENVIRONMENT_CODES


# --- finding -------------------------------------------------------------------------------------


def test_cards_are_found_in_order_and_hidden_things_are_not(tmp_path: Path) -> None:
    """Every Markdown file, sorted by path; what begins with a dot is somebody else's."""
    for name in ("b/z.md", "b/a.MD", "a/c.md", "top.md", ".obsidian/x.md", "b/.y.md", "b/note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files, problems = find_cards(tmp_path, "cards")
    assert [shown for _, shown in files] == [
        "cards/a/c.md", "cards/b/a.MD", "cards/b/z.md", "cards/top.md",
    ]  # fmt: skip
    assert problems == []


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    """A link to another folder brings its cards; one that leads back is a problem."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.md").touch()
    base = tmp_path / "base"
    (base / "module").mkdir(parents=True)
    (base / "linked").symlink_to(tmp_path / "elsewhere")
    (base / "module" / "up").symlink_to("..")
    (base / "module" / "self").symlink_to("self")
    files, problems = find_cards(base, "base")
    assert [shown for _, shown in files] == ["base/linked/a.md"]
    assert [(p.code, p.place.path) for p in problems] == [("link-loop", "base/module/up")]


# --- writing -------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, str]:
    """The files of a folder and what they hold, but for the marker."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MARKER
    }


def test_a_tree_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """Nothing of the old tree is left, and nothing beside the new one."""
    out = tmp_path / "deep" / "dist"
    for content in ("one", "two"):
        with fresh_tree(out) as new:
            (new / content).write_text(content)
        assert tree(out) == {content: content}
        assert [path.name for path in out.parent.iterdir()] == ["dist"]
    assert out.stat().st_mode & 0o777 == 0o755


def test_a_failure_leaves_the_old_tree_whole(tmp_path: Path) -> None:
    """When the block raises, the old tree stays and the new one is gone."""
    out = tmp_path / "dist"
    with fresh_tree(out) as new:
        (new / "a").write_text("old")

    def fail() -> None:
        with fresh_tree(out) as new:
            (new / "a").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert tree(out) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_two_folders_are_exchanged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system can exchange two folders, neither is renamed by itself."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    if not filesystem._renameat2(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two folders")
    out = tmp_path / "dist"
    with fresh_tree(out) as new:
        (new / "one").touch()
    monkeypatch.delattr(Path, "rename")
    with fresh_tree(out) as new:
        (new / "two").touch()
    assert tree(out) == {"two": ""}


def test_a_reader_never_sees_the_tree_missing(tmp_path: Path) -> None:
    """Swapped by one rename, the path leads to a whole tree at every moment."""
    out = tmp_path / "dist"
    with fresh_tree(out) as new:
        (new / "a").write_text("0")
    missing, stop = [], threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                (out / "a").read_text()
            except OSError as error:
                missing.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(200):
        with fresh_tree(out) as new:
            (new / "a").write_text(str(number))
    stop.set()
    reader.join()
    assert missing == []


def test_without_the_exchange_two_renames_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a system cannot exchange two folders, the old one steps aside first."""
    monkeypatch.setattr(filesystem, "_renameat2", lambda new, out: False)
    out = tmp_path / "dist"
    for content in ("one", "two"):
        with fresh_tree(out) as new:
            (new / content).write_text(content)
        assert tree(out) == {content: content}
        assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_if_the_second_rename_fails_the_old_tree_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old tree has stepped aside and the new one cannot follow: the old one returns."""
    monkeypatch.setattr(filesystem, "_renameat2", lambda new, out: False)
    out = tmp_path / "dist"
    with fresh_tree(out) as new:
        (new / "a").write_text("old")
    rename = Path.rename

    def fail_for_new(path: Path, target: Path) -> Path:
        if target == out and path.name != "old":
            raise OSError(28, "No space left on device", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(OSError, match="No space"), fresh_tree(out) as new:
        (new / "a").write_text("new")
    assert tree(out) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_what_no_build_has_written_is_never_replaced(tmp_path: Path) -> None:
    """A folder of somebody's files, and a file, are refused before anything is written."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    for out in (home, home / "thesis.tex"):
        with pytest.raises(OutputError), fresh_tree(out):
            raise AssertionError
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "thesis.tex"]


def test_an_empty_folder_and_a_link_are_built_into(tmp_path: Path) -> None:
    """An empty folder may be replaced; a link stays a link, and what it leads to is replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "dist").symlink_to("real")
    with fresh_tree(tmp_path / "dist") as new:
        (new / "a").write_text("a")
    assert (tmp_path / "dist").is_symlink()
    assert tree(tmp_path / "real") == {"a": "a"}
