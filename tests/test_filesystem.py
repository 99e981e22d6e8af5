"""Files in and out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator import filesystem
from generator.filesystem import find_cards, read_text
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
    imports = "from pathlib import Path\nfrom generator import filesystem\nfrom generator.library import library\n"
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
