"""The cache: what it gives is what would be made, whatever happens to its folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from generator import cache
from generator.cache import Cache
from generator.edition.edition import bind
from generator.lang import LANGS
from generator.library import library


class Maker:
    """Makes bytes, and counts how often it was asked."""

    def __init__(self, made: bytes = b"made") -> None:
        self.made, self.times = made, 0

    def __call__(self) -> bytes:
        """Make them once more."""
        self.times += 1
        return self.made


def kept(folder: Path) -> list[Path]:
    """The files of a cache."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_was_made_is_not_made_again(tmp_path: Path) -> None:
    """The second call, of another process's cache too, gets the bytes without making them."""
    make = Maker(os.urandom(10_000))
    assert Cache(tmp_path).get("svg", ("a", 1), make) == make.made
    assert Cache(tmp_path).get("svg", ("a", 1), make) == make.made
    assert make.times == 1


@pytest.mark.parametrize(
    ("kind", "source"), [("html", ("a", 1)), ("svg", ("a", 2)), ("svg", ("b", 1)), ("svg", "a1")]
)
def test_another_source_or_kind_is_another_thing(tmp_path: Path, kind: str, source: object) -> None:
    """Nothing is given for what it was not made from."""
    Cache(tmp_path).get("svg", ("a", 1), Maker(b"other"))
    assert Cache(tmp_path).get(kind, source, Maker(b"own")) == b"own"


def test_another_program_makes_everything_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version kept is not given by a later one."""
    Cache(tmp_path).get("svg", "a", Maker(b"old"))
    monkeypatch.setattr(cache, "program", lambda: "another")
    assert Cache(tmp_path).get("svg", "a", Maker(b"new")) == b"new"


def test_the_program_is_its_files_and_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte of a script, a file more and a package's version change the digest; a second look does not."""
    tree = tmp_path / "generator"
    tree.mkdir()
    (tree / "a.py").write_text("x = 1\n")
    versions = [("jinja2", "3.1")]
    monkeypatch.setattr(cache, "_ROOT", tmp_path)
    monkeypatch.setattr(cache, "_versions", lambda: versions)
    digest = cache.program.__wrapped__
    seen = [digest()]
    assert digest() == seen[0]
    (tree / "a.py").write_text("x = 2\n")
    seen.append(digest())
    (tree / "b.css").write_text("")
    seen.append(digest())
    (tree / "b.css").rename(tree / "c.css")
    seen.append(digest())
    versions[0] = ("jinja2", "3.2")
    seen.append(digest())
    assert len(set(seen)) == len(seen)


def test_without_a_folder_nothing_is_kept() -> None:
    """A cache that is switched off makes everything."""
    make = Maker()
    assert [Cache().get("svg", "a", make) for _ in range(2)] == [b"made", b"made"]
    assert make.times == 2
    Cache().prune()


def spoil_nothing(path: Path) -> None:
    """Take the file away."""
    path.unlink()


def spoil_half(path: Path) -> None:
    """Cut it in two."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_bit(path: Path) -> None:
    """Turn one bit."""
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def spoil_empty(path: Path) -> None:
    """Leave nothing in it."""
    path.write_bytes(b"")


def spoil_folder(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()


def spoil_other(path: Path) -> None:
    """Put another's content in its place, whole but for its digest."""
    digest = path.read_bytes().split(b"\n", 1)[0]
    other = Cache(path.parents[1] / "other")
    other.get("svg", "b", Maker(b"other"))
    (file,) = kept(path.parents[1] / "other")
    path.write_bytes(digest + b"\n" + file.read_bytes().split(b"\n", 1)[1])


@pytest.mark.parametrize(
    "spoil", [spoil_nothing, spoil_half, spoil_bit, spoil_empty, spoil_folder, spoil_other]
)
def test_what_is_spoilt_is_made_again(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Whatever befalls a file, the bytes are right, and no error is raised."""
    make = Maker(b"abc" * 1000)
    Cache(tmp_path).get("svg", "a", make)
    (path,) = kept(tmp_path)
    spoil(path)
    assert Cache(tmp_path).get("svg", "a", make) == make.made
    assert make.times == 2


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_closed_folder_costs_time_alone(tmp_path: Path, mode: int) -> None:
    """Where nothing can be written or read, everything is made."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=mode)
    try:
        assert Cache(folder).get("svg", "a", Maker()) == b"made"
        Cache(folder).prune()
    finally:
        folder.chmod(0o700)


def test_a_file_where_the_folder_should_be_costs_time_alone(tmp_path: Path) -> None:
    """Nor is a file of someone else's touched."""
    (tmp_path / "file").write_text("mine")
    assert Cache(tmp_path / "file").get("svg", "a", Maker()) == b"made"
    Cache(tmp_path / "file").prune()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody writes into it, and nobody waits."""
    Cache(tmp_path).get("svg", "a", Maker())
    (path,) = kept(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert Cache(tmp_path).get("svg", "a", Maker(b"again")) == b"again"


def test_a_folder_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    """Whoever can write what is unpickled can run code, so what stands there does not count."""
    Cache(tmp_path).get("svg", "a", Maker(b"theirs"))
    tmp_path.chmod(0o777)
    assert Cache(tmp_path).get("svg", "a", Maker(b"own")) == b"own"
    tmp_path.chmod(0o755)
    assert Cache(tmp_path).get("svg", "a", Maker(b"own")) == b"theirs"


def test_a_folder_of_someone_else_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that belongs to another user."""
    Cache(tmp_path).get("svg", "a", Maker(b"theirs"))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert Cache(tmp_path).get("svg", "a", Maker(b"own")) == b"own"


def test_a_new_folder_is_closed_to_others(tmp_path: Path) -> None:
    """What the cache makes for itself only its user may enter."""
    Cache(tmp_path / "new").get("svg", "a", Maker())
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_each_source_has_its_own_value(tmp_path: Path) -> None:
    """Of several sources only those that are missing are made, and all stand in their order."""
    made: list[int] = []

    def make(index: int) -> object:
        made.append(index)
        return {"at": (index, frozenset("ab"))}

    Cache(tmp_path).each("k", [0, 2], lambda index: make(2 * index))
    assert Cache(tmp_path).each("k", [0, 1, 2, 3], make) == [make(index) for index in range(4)]
    assert made[2:4] == [1, 3]


def test_what_is_kept_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    """Only the missing one of three is made at once, and none that is kept; its digest tells each one's source."""
    made: list[int] = []

    def make(index: int) -> str:
        made.append(index)
        return f"value {index}"

    store = Cache(tmp_path)
    first = store.later("kind", ["a", "b"], make)
    assert made == [0, 1]
    second = store.later("kind", ["a", "c", "b"], make)
    assert made == [0, 1, 0 + 1]
    assert [each.get() for each in first] == ["value 0", "value 1"]
    assert [each.get() for each in second] == ["value 0", "value 1", "value 1"]
    assert len({each.digest for each in (*first, *second)}) == 3
    assert [each.digest for each in first] == [second[0].digest, second[2].digest]


def test_what_is_asked_for_too_late_is_made_again(tmp_path: Path) -> None:
    """A value whose file is spoilt or deleted in the meantime comes all the same; without a folder, too."""
    for store in (Cache(tmp_path), Cache(None)):
        late = store.later("kind", ["a", "b"], lambda index: f"value {index}")
        for path in kept(tmp_path):
            path.write_bytes(b"spoilt")
        assert [each.get() for each in late] == ["value 0", "value 1"]
        shutil.rmtree(tmp_path, ignore_errors=True)
        assert [each.get() for each in late] == ["value 0", "value 1"]


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    """An error of the maker comes through, and the next one is asked."""

    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Cache(tmp_path).get("svg", "a", fail)
    assert Cache(tmp_path).get("svg", "a", Maker(b"yes")) == b"yes"


def test_the_folder_stays_within_its_bound(tmp_path: Path) -> None:
    """What was not used for longest goes first; what is in use stays."""
    store = Cache(tmp_path, most=5000)
    for number in range(10):
        store.get("svg", number, Maker(os.urandom(1000)))
        newest = max(kept(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number + 1, number + 1))
    used = Maker()
    store.get("svg", 0, used)  # the oldest is used again
    assert used.times == 0
    store.prune()
    assert sum(path.stat().st_size for path in kept(tmp_path)) <= 5000
    again = {number: Maker(b"again") for number in range(10)}
    for number, make in again.items():
        store.get("svg", number, make)
    assert [number for number, make in again.items() if not make.times] == [0, 7, 8, 9]


def test_what_killed_builds_left_is_cleared(tmp_path: Path) -> None:
    """A half-written file goes when it is old; one that is being written stays."""
    Cache(tmp_path).get("svg", "a", Maker())
    (path,) = kept(tmp_path)
    old, new = path.with_name(".proofdeck-old"), path.with_name(".proofdeck-new")
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    Cache(tmp_path).prune()
    assert {each.name for each in kept(tmp_path)} == {path.name, ".proofdeck-new"}


def test_what_the_cache_did_not_write_is_never_deleted(tmp_path: Path) -> None:
    """A home folder, a folder behind a link and files of other names stay, however old and large."""
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    mine = [folder / "proj" / ".env", folder / "ab" / ".bashrc", folder / "ab" / "film.mkv"]
    mine += [folder / "ab" / ("c" * 64), folder / "a", elsewhere / ("cd" + "c" * 62)]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine" * 1000)
        os.utime(path, (1, 1))
    (folder / "cd").symlink_to(elsewhere)
    (folder / "ab" / ("ab" + "d" * 62)).symlink_to(mine[0])
    store = Cache(folder, most=0)
    store.get("svg", "a", Maker())
    before = set(kept(folder))
    store.prune()
    assert all(path.read_bytes() == b"mine" * 1000 for path in mine)
    assert len(before - set(kept(folder))) == 1


def _build(folder: Path, number: int) -> bool:
    """One of several builds at once: every answer is right."""
    store = Cache(folder, most=20_000)
    for turn in range(150):
        source = (turn * 7 + number) % 40
        expected = str(source).encode() * 400
        if store.get("svg", source, lambda made=expected: made) != expected:  # type: ignore[misc]
            return False
        if turn % 10 == 0:
            store.prune()
        if turn == 75 and number == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return True


def test_builds_may_share_it_while_it_is_pruned_and_deleted(tmp_path: Path) -> None:
    """Four processes read, write, prune, and one deletes the folder: each gets its bytes."""
    with get_context("spawn").Pool(4) as pool:
        answers = pool.starmap(_build, [(tmp_path / "shared", number) for number in range(4)])
    assert answers == [True] * 4


def test_the_folder_is_the_user_s_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``PROOFDECK_CACHE`` names another, or none; else it is where the system keeps caches."""
    monkeypatch.setenv("PROOFDECK_CACHE", str(tmp_path))
    assert cache.default_folder() == tmp_path
    monkeypatch.setenv("PROOFDECK_CACHE", "")
    assert cache.default_folder() is None
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("PROOFDECK_CACHE", "~/kept")
    assert cache.default_folder() == Path("/home/someone/kept")
    monkeypatch.delenv("PROOFDECK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "proofdeck"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.default_folder() == Path("/home/someone/.cache/proofdeck")


def test_a_build_draws_no_figure_that_was_drawn_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second edition of the same base has the same figures, and asks the drawing for none."""
    from runnable_demos.lab import figures  # noqa: PLC0415 - matplotlib is slow to import

    base = Path(__file__).parent / "library"
    found, _ = library.load(base / "cards", demos=base / "runnable_demos")
    assert found
    record = found.evidence.records["float_sums", "cpu"]

    def drawn() -> list[str]:
        edition = bind(found, None, Cache(tmp_path))
        return [
            edition.figure(record, figure, lang, "x")
            for figure in record.result.figures
            for lang in LANGS
        ]

    first = drawn()
    assert len(set(first)) == 2
    monkeypatch.delattr(figures, "draw")
    assert drawn() == first
