"""The commands as their users run them: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from generator import commands, site_url
from generator.problems import Place, Problem

ROOT = Path(__file__).parent.parent
BASE = Path(__file__).parent / "library"
Run = Callable[..., subprocess.CompletedProcess[str]]

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('torch', 'triton'):
            raise ModuleNotFoundError(f'{name} is blocked', name=name)
sys.meta_path.insert(0, Block())
"""
"""Makes this process one in which torch is not installed."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the small base, to be broken."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def proofdeck(
    *arguments: str | Path, prelude: str = BLOCKED, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, without torch unless told otherwise."""
    code = f"{prelude}\nfrom generator.commands import main\nsys.argv[0] = 'proofdeck'\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def edit(base: Path, name: str, old: str, new: str) -> None:
    """Change a card of the copy."""
    file = base / "cards" / "numerics" / f"{name}.md"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


# --- check ---------------------------------------------------------------------------------------


def test_a_sound_base_is_fine() -> None:
    """Nothing but the summary is printed, and the code is 0."""
    done = proofdeck("check", "--cards", BASE / "cards")
    assert (done.stdout, done.stderr, done.returncode) == (
        "3 cards, 44 claims: 0 errors, 0 warnings\n", "", 0,
    )  # fmt: skip


def test_our_own_base_can_be_checked_without_torch() -> None:
    """The default folders are ours; where torch is missing, check has the same to say."""
    done = proofdeck("check")
    assert done.returncode in {0, 1}
    assert " cards, " in done.stdout.splitlines()[-1]


def test_problems_are_printed_with_place_code_and_hint(base: Path) -> None:
    """Every problem has two lines, they are sorted, and the summary comes last."""
    edit(base, "rounding", "related: [float-bytes]", "related: [float-byte]")
    edit(base, "float-bytes", "[53](claim", "[54](claim")
    done = proofdeck("check", "--cards", "cards", cwd=base)
    *lines, summary = done.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines[::2]] == [
        ["cards/numerics/float-bytes.md:71:26:", "claim-number"],
        ["cards/numerics/float-bytes.md:144:76:", "claim-number"],
        ["cards/numerics/rounding.md:18:11:", "dead-related"],
    ]
    assert lines[5] == "  hint: Did you mean `float-bytes`?"
    assert all(line.startswith("  hint: ") for line in lines[1::2])
    assert summary == "3 cards, 44 claims: 3 errors, 0 warnings"
    assert done.returncode == 1


def test_warnings_alone_are_fine(base: Path) -> None:
    """A warning is printed as one, and the code is 0."""
    edit(base, "kahan-sum", "](source:python-fsum)", "](https://docs.python.org)")
    done = proofdeck("check", "--cards", base / "cards")
    assert "unused-source (warning) the source" in done.stdout
    assert done.returncode == 0


def test_json_is_for_programs(base: Path) -> None:
    """The same problems, as data, and nothing else on standard output."""
    edit(base, "rounding", "related: [float-bytes]", "related: [float-byte]")
    done = proofdeck("check", "--json", "--cards", "cards", cwd=base)
    (found,) = json.loads(done.stdout)["problems"]
    place = Place("cards/numerics/rounding.md", 18, 11)
    assert Problem(Place(**found.pop("place")), **found).place == place
    assert done.returncode == 1


def test_json_says_what_stands_behind_the_numbers(base: Path) -> None:
    """Of all numerals that are not free the shares, together and card by card; a base that is none has none."""
    edit(base, "rounding", "误差从存下的一刻就在", "误差从存下 100 年前就在")
    done = proofdeck("check", "--json", "--cards", "cards", cwd=base)
    found = json.loads(done.stdout)
    assert [each["code"] for each in found["problems"]] == ["bare-numeral"]
    assert done.returncode == 1
    assert found["numbers"]["all"]["count"] == 55
    assert found["numbers"]["all"]["backed"] == round(52 / 55, 4)
    assert found["numbers"]["cards"]["rounding"] == {
        "count": 7,
        "backed": round(6 / 7, 4),
        "measured": round(6 / 7, 4),
        "computed": 0,
        "cited": 0,
        "given": 0,
        "bare": round(1 / 7, 4),
    }
    empty = json.loads(proofdeck("check", "--json", "--cards", base / "nothing").stdout)
    assert empty["numbers"] is None


def test_a_card_is_explained_link_by_link(base: Path) -> None:
    """Each link with its place, and what it leads to; a hundred columns hold every line but a path."""
    edit(base, "float-bytes", "[16 GB](fact:toy-gpu/memory)", "[17 GB](fact:toy-gpu/memory)")
    done = proofdeck("check", "--explain", "float-bytes", "--cards", "cards", cwd=base)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "cards/numerics/float-bytes.md:23:20  52"
    assert lines[1].split() == ["assumed", "given:"]
    at = next(n for n, line in enumerate(lines) if line.endswith("  8 B"))
    assert lines[at + 1].split() == ["proven", "claim:float_sums/bytes_per_number"]
    assert [line[16:] for line in lines[at + 2 : at + 4]] == [
        "每个数的字节",
        "bytes a number",
    ]
    assert "“17 GB” is printed, but the fact is" in done.stdout
    assert lines[-1] == "36 links, 4 unresolved"
    assert max(map(cell_len, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    told = proofdeck("check", "--explain", "float-bytes", "--json", "--cards", "cards", cwd=base)
    found = json.loads(told.stdout)
    assert (found["card"], len(found["links"])) == ("float-bytes", 36)
    assert found["links"][0]["place"] == {
        "path": "cards/numerics/float-bytes.md",
        "line": 23,
        "column": 20,
    }
    assert [each["state"] for each in found["links"]].count("unresolved") == 4


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("float-byte", "Did you mean `float-bytes`?"),
        ("round-off", "It is now `rounding`."),
        ("", "Known: "),
        ("\x1b[31m" + "x" * 10_000, "Known: "),
    ],
)
def test_a_card_that_is_not_there_is_not_explained(name: str, hint: str, base: Path) -> None:
    """That is wrong usage, and the hint names what may be meant."""
    done = proofdeck("check", "--explain", name, "--cards", "cards", cwd=base)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no card ")
    assert hint in done.stderr
    assert len(done.stderr) < 1000
    assert done.stderr.replace("\n", "").isprintable()


def test_a_card_that_cannot_be_read_is_not_explained(base: Path) -> None:
    """Its errors are printed instead, and the code is theirs; that of no base is that of usage."""
    edit(base, "rounding", "module: numerics", "module: [")
    done = proofdeck("check", "--explain", "rounding", "--cards", "cards", cwd=base)
    assert done.returncode == 1
    assert "cards/numerics/rounding.md:" in done.stdout
    assert "cannot be read" in done.stderr
    done = proofdeck("check", "--explain", "rounding", "--cards", base / "nothing")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--cards", "--demos", "--evidence"])
def test_an_empty_name_is_no_folder(option: str, base: Path) -> None:
    """It does not stand for the folder in which the user is."""
    for command in (["check"], ["verify"], ["demo", "list"]):
        done = proofdeck(*command, option, "", cwd=base / "cards")
        assert (done.returncode, done.stdout) == (2, ""), command
        assert "the name of the folder is empty" in " ".join(done.stderr.split())


def test_nothing_is_verified_on_a_gpu_where_nothing_gains_from_one(base: Path) -> None:
    """That is said, as wrong usage, and no success of nothing."""
    demo = base / "runnable_demos/float_sums.py"
    demo.write_text(demo.read_text("utf-8").replace("GPU = 1\n", ""), "utf-8")
    done = proofdeck("verify", "--device", "cuda", "--cards", "cards", cwd=base)
    assert (done.returncode, done.stdout) == (2, "")
    assert "gains from a GPU (--device cuda)" in done.stderr


def test_a_broken_record_is_one_problem(base: Path) -> None:
    """It is named where it lies, not again by each of the claims that it carried."""
    record = base / "runnable_demos/evidence/float_sums.cpu.json"
    record.write_text(record.read_text()[:100])
    done = proofdeck("check", "--cards", base / "cards")
    assert done.stdout.count("evidence-corrupt") == 1
    assert "claim" not in done.stdout.replace("44 claims: 1 error", "")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("28, 'disk full', 'a.js', None, 'dist/a.js'", "error: dist/a.js: disk full"),
        ("28, 'disk full'", "error: standard output: disk full"),  # all other files have a name
        ("5, 'broken'", "error: broken"),
        ("13, 'forbidden', 'a', None, 'b'", "error: a: forbidden"),
    ],
)
def test_a_full_disk_is_named_by_what_was_being_written(error: str, line: str) -> None:
    """Not by the file that was copied there, as the system names it."""
    fail = f"import sys, generator.commands\ndef app(): raise OSError({error})\ngenerator.commands.app = app"
    done = proofdeck("check", prelude=fail)
    assert (done.returncode, done.stderr) == (3, f"{line}\n")


def test_folders_can_be_named_apart(base: Path, tmp_path: Path) -> None:
    """Demos and evidence stand beside the cards, or where they are said to be."""
    demos = (base / "runnable_demos").rename(tmp_path / "demos")
    alone = proofdeck("check", "--cards", base / "cards")
    assert "claim-demo" in alone.stdout
    evidence = (demos / "evidence").rename(tmp_path / "evidence")
    done = proofdeck("check", "--cards", base / "cards", "--demos", demos, "--evidence", evidence)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (lambda root: None, 2, "no-folder"),
        (lambda root: (root / "base").touch(), 2, "not-a-folder"),
        (lambda root: (root / "base").mkdir(), 1, "no-cards"),
    ],
)
def test_a_base_that_is_none(
    tmp_path: Path, make: Callable[[Path], None], code: int, word: str
) -> None:
    """A folder that is missing is wrong usage; one that is empty is an error of the base."""
    make(tmp_path)
    done = proofdeck("check", "--cards", tmp_path / "base")
    assert (done.returncode, word in done.stdout) == (code, True)


NOBODY = f"""{BLOCKED}
import os, multiprocessing.popen_fork, generator.commands, generator.checks
generator.commands.discover(), generator.checks.rules()
if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
"""
"""Makes this process one that may read only what everybody may; what it imports, it has imported."""


@pytest.fixture
def open_base() -> Iterator[Path]:
    """A copy of the small base that other users reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copytree(BASE, Path(name) / "base")
        yield Path(name) / "base"
        for path in Path(name).rglob("*"):
            path.chmod(0o755)


@pytest.mark.parametrize("closed", ["cards", "cards/numerics", "cards/numerics/rounding.md"])
def test_without_permission_it_is_the_environments_fault(open_base: Path, closed: str) -> None:
    """What may not be read is named, the rest is checked, and the code is 3."""
    (open_base / closed).chmod(0)
    done = proofdeck("check", "--cards", open_base / "cards", prelude=NOBODY)
    assert done.returncode == 3, done.stdout
    assert "unreadable there is no permission to read this" in done.stdout


@pytest.mark.parametrize("closed", ["runnable_demos", "runnable_demos/evidence"])
def test_demos_that_may_not_be_read_are_not_taken_for_none(open_base: Path, closed: str) -> None:
    """A folder without permission is named, and the code is 3: it would look like an empty one."""
    (open_base / closed).chmod(0)
    for command in (["demo", "list"], ["verify"]):
        done = proofdeck(*command, "--cards", open_base / "cards", prelude=NOBODY)
        assert (done.returncode, done.stdout) == (3, ""), done
        assert done.stderr.startswith(f"error: {open_base / closed}")
        assert done.stderr.endswith(": Permission denied\n")


@pytest.mark.parametrize("closed", ["runnable_demos", "runnable_demos/float_sums.py"])
def test_a_demo_that_may_not_be_read_is_not_taken_for_gone(open_base: Path, closed: str) -> None:
    """Nobody is told to delete its record: the demo is named, once, and the code is 3."""
    evidence = (open_base / "runnable_demos/evidence").rename(open_base / "evidence")
    (open_base / closed).chmod(0)
    folders = ["--cards", open_base / "cards", "--evidence", evidence]
    done = proofdeck("check", *folders, prelude=NOBODY)
    line, _, summary = done.stdout.splitlines()
    assert line.startswith(f"{open_base}/runnable_demos/float_sums.py:1:1: unreadable ")
    assert (done.returncode, summary) == (3, "3 cards, 44 claims: 1 error, 0 warnings")


@pytest.mark.parametrize(
    "closed",
    [
        "runnable_demos/evidence",
        "runnable_demos/evidence/float_sums.cpu.json",
        "cards/numerics/rounding.md",
    ],
)
def test_what_may_not_be_read_is_not_taken_for_refreshed(open_base: Path, closed: str) -> None:
    """What ``refresh`` had to pass over is named, and the code is 3."""
    (open_base / closed).chmod(0)
    done = proofdeck("refresh", "--cards", open_base / "cards", prelude=NOBODY)
    assert done.returncode == 3, done
    assert f"{open_base / closed}:1:1: unreadable " in done.stdout


def test_a_pipe_that_closes_early_is_no_error(base: Path) -> None:
    """``proofdeck check | head`` ends without a traceback."""
    for name in ("rounding", "kahan-sum", "float-bytes"):
        edit(base, name, "- ", "- [a](b) " * 400)
    code = f"{BLOCKED}\nfrom generator.commands import main\nmain()"
    command = [sys.executable, "-c", code, "check", "--cards", str(base / "cards")]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""


def test_a_terminal_that_is_not_utf_8_still_gets_its_text(base: Path) -> None:
    """Chinese in a message is escaped where the terminal cannot show it."""
    edit(base, "rounding", "## 推导", "## 推到")
    done = proofdeck("check", "--cards", base / "cards", PYTHONIOENCODING="ascii")
    assert "\\u63a8\\u5230" in done.stdout
    assert done.returncode == 1


def test_colours_are_for_terminals(base: Path) -> None:
    """Escape codes go to a terminal, not into a file, and not where NO_COLOR is set."""
    edit(base, "rounding", "related: [float-bytes]", "related: [float-byte]")

    def on_a_terminal(**environment: str) -> bytes:
        above, below = pty.openpty()
        code = f"{BLOCKED}\nfrom generator.commands import main\nmain()"
        with subprocess.Popen(
            [sys.executable, "-c", code, "check", "--cards", str(base / "cards")],
            cwd=ROOT,
            stdout=below,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        ) as running:
            os.close(below)
            parts = []
            try:
                while part := os.read(above, 65536):
                    parts.append(part)
            except OSError:  # the other end is closed
                pass
            os.close(above)
            assert running.wait() == 1
        return b"".join(parts)

    assert b"\x1b[31mdead-related\x1b[0m" in on_a_terminal()
    assert b"\x1b[31m" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in proofdeck("check", "--cards", base / "cards").stdout


# --- build ---------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_build_writes_everything_and_says_where(base: Path) -> None:
    """All outputs are there, each with the file to open first, without torch."""
    done = proofdeck("build", "--cards", "cards", cwd=base)
    assert done.returncode == 0, done.stdout + done.stderr
    summary, *entries, opened = done.stdout.splitlines()
    assert summary.startswith("3 cards, 44 claims: 0 errors")
    assert {"site", "handbook", "vault"} <= {line.split()[0] for line in entries}
    assert all((base / line.split()[1]).is_file() for line in entries)
    assert opened == f"open them: {(base / 'dist').as_uri()}/"
    assert done.stderr == ""


def test_an_error_leaves_the_previous_outputs_whole(base: Path) -> None:
    """A build of a base with errors prints them and changes nothing; a draft forgives numbers."""
    assert proofdeck("build", "--cards", "cards", cwd=base).returncode == 0
    before = tree(base / "dist")
    edit(base, "float-bytes", "[53](claim", "[54](claim")
    done = proofdeck("build", "--cards", "cards", cwd=base)
    assert done.returncode == 1
    assert "claim-number" in done.stdout
    assert "nothing was built, and dist is as it was" in done.stderr
    assert tree(base / "dist") == before
    draft = proofdeck("build", "--draft", "--cards", "cards", cwd=base)
    assert draft.returncode == 0, draft.stderr
    assert tree(base / "dist") != before
    edit(base, "rounding", "related: [float-bytes]", "related: [float-byte]")
    assert proofdeck("build", "--draft", "--cards", "cards", cwd=base).returncode == 1


@pytest.mark.parametrize("command", [["build", "--out"], ["export-pages"]])
def test_nothing_that_is_not_ours_is_replaced(base: Path, command: list[str]) -> None:
    """Somebody's files, a folder around the cards and one among them are refused, untouched."""
    (base / "home").mkdir()
    (base / "home" / "thesis.tex").touch()
    before = tree(base)
    for out in ("home", "home/thesis.tex", "home/thesis.tex/x/y", ".", "cards", "cards/x/dist"):
        done = proofdeck(*command, out, "--cards", "cards", cwd=base)
        assert (done.returncode, done.stdout.count("\n") <= 1) == (2, True), out
        assert done.stderr.startswith("error: ")
    assert tree(base) == before


def test_a_disk_that_cannot_be_written_is_the_environments_fault(base: Path) -> None:
    """Where the outputs cannot be written, one line says why, and the code is 3."""
    done = proofdeck("build", "--cards", "cards", "--out", "/proc/dist", cwd=base)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "/proc" in done.stderr


@pytest.mark.parametrize("command", [["build"], ["export-pages", "dist"]])
def test_an_address_where_no_site_can_stand_is_wrong_usage(
    tmp_path: Path, command: list[str]
) -> None:
    """One message with a hint, before anything is read or built."""
    done = proofdeck(*command, "--cards", "nowhere", cwd=tmp_path, SITE_URL="foo")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: the address `foo` of the site is not")
    assert hint.startswith("  hint: Write it whole: `SITE_URL=https://")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    ["foo", "ftp://a.b/", "https://", "https:///b", "https://a b/", "javascript:alert(1)", "http://.",
     'http://a/"><script>', "http://u:p@a/", "http://a:99999/", "http://a/?q", "http://a/#b",
     "http://[", "http://a/\x1b[31m", "http://a..b/", "http://" + "a" * 90_000],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(address: str) -> None:
    """The message quotes them short and printable."""
    with pytest.raises(site_url.SiteUrlError) as refused:
        site_url.read({"SITE_URL": address})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("https://cards.example.org/", "https://cards.example.org/"),
        ("http://localhost:8000", "http://localhost:8000/"),
        ("https://a.b/c/d", "https://a.b/c/d/"),
        ("https://例子.cn/卡片/", "https://例子.cn/卡片/"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("", ""),
    ],
)
def test_addresses_that_are_some_are_taken(address: str, read: str) -> None:
    """With a slash at the end, where pages follow; empty is as good as unset."""
    assert site_url.read({"SITE_URL": address}) == read


def test_mkdocs_alone_refuses_such_an_address_too() -> None:
    """``mkdocs build`` takes it from the same variable."""
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--site-dir", "/dev/null/site"],
        cwd=ROOT,
        env={**os.environ, "SITE_URL": "ftp://a.b/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("the address `ftp://a.b/` of the site is not") == 1
    assert "Traceback" not in done.stderr


def test_what_others_put_into_the_outputs_is_kept_and_named(base: Path) -> None:
    """Own notes and settings stay where they are, an edited note is kept beside; names are bounded."""
    assert proofdeck("build", "--cards", "cards", cwd=base).returncode == 0
    vault = base / "dist" / "vault"
    (vault / ".obsidian").mkdir()
    (vault / ".obsidian" / "app.json").write_text("{}")
    for number in range(20):
        (vault / f"note {number:02}\x1b[2J.md").write_text("mine")
    (vault / "Cards" / "rounding.md").write_text("my words")
    done = proofdeck("build", "--cards", "cards", cwd=base)
    assert (done.returncode, done.stderr) == (0, "")
    (kept,) = (line for line in done.stdout.splitlines() if line.startswith("kept, as no build"))
    assert "vault/.obsidian/, vault/note 00\\x1b[2J.md" in kept
    assert kept.endswith(" and 13 more")
    assert "vault/Cards/rounding.md was not as the last build left it: it is now " in done.stdout
    assert (vault / "Cards" / "rounding.kept.md").read_text() == "my words"
    assert (vault / "Cards" / "rounding.md").read_text() != "my words"
    assert (vault / "note 19\x1b[2J.md").read_text() == "mine"
    assert "\x1b" not in done.stdout


FULL = (
    "import sys, resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, resource.RLIM_INFINITY))"
)


@pytest.mark.parametrize("left", [0, 100_000])
def test_a_disk_that_is_full_is_named_by_the_file_and_loses_nothing(base: Path, left: int) -> None:
    """A build ends with the name of what it could not write, in one line, and the old one stays."""
    assert proofdeck("build", "--cards", "cards", cwd=base).returncode == 0
    before = tree(base)
    done = proofdeck("build", "--cards", "cards", cwd=base, prelude=FULL.format(left))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert done.stderr.startswith(f"error: {base / 'dist'}")
    assert ".proofdeck-build" not in done.stderr
    assert tree(base) == before


def test_on_a_full_disk_no_card_is_half_written(base: Path) -> None:
    """``new`` and ``refresh`` name the card, and leave what was there."""
    edit(base, "float-bytes", "[53](claim", "[54](claim")
    before = tree(base)
    new = ["new", "pairwise-sum", "--module", "numerics", "--topic", "sums"]
    for arguments, name in ((new, "pairwise-sum.md"), (["refresh"], "float-bytes.md")):
        done = proofdeck(*arguments, "--cards", "cards", cwd=base, prelude=FULL.format(1))
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert f"cards/numerics/{name}: " in done.stderr
        assert tree(base) == before


def test_output_that_cannot_be_written_is_said() -> None:
    """A full disk behind standard output ends in one line, too."""
    code = f"{BLOCKED}\nfrom generator.commands import main\nsys.argv[0] = 'proofdeck'\nmain()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "check", "--json", "--cards", BASE / "cards"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "error: standard output: No space left on device\n"


# --- names and texts of others -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\nb.md", "a\x1b]0;x\x07.md", "a\u202e\x9bb.md", "\udcff.md"])
@pytest.mark.parametrize("folder", [False, True])
def test_a_name_that_nobody_can_type_is_a_problem_of_its_own(
    base: Path, name: str, folder: bool
) -> None:
    """Line ends, controls and bytes that are no UTF-8 in a file's name reach no terminal and no output."""
    file = base / "cards" / "numerics" / name
    if folder:
        file.mkdir()
    else:
        shutil.copy(base / "cards/numerics/rounding.md", file)
    for arguments in (["build"], ["check", "--json"]):
        done = proofdeck(*arguments, "--cards", "cards", cwd=base)
        assert done.returncode == 1
        said = done.stdout + done.stderr
        assert said.count("file-name") == 1
        assert said.replace("\n", "").isprintable()
    assert [each["code"] for each in json.loads(done.stdout)["problems"]] == ["file-name"]
    assert not (base / "dist").exists()


def test_folders_with_odd_names_are_built_from_all_the_same(base: Path, tmp_path: Path) -> None:
    """Where somebody's folder has such a name, it is spelled out, and works."""
    home = base.rename(tmp_path / "a\nb\x1b[31m 汉字 'q' \"d\" $HOME")
    done = proofdeck("build", "--cards", home / "cards", "--out", home / "dist")
    assert done.returncode == 0, done.stderr
    edit(home, "rounding", "related: [float-bytes]", "related: [float-byte]")
    done = proofdeck("check", "--cards", home / "cards")
    line, hint, _ = done.stdout.splitlines()
    assert "a\\nb\\x1b[31m 汉字" in line
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize("what", ["id", "prerequisite", "link", "heading", "claim", "item", "key"])
def test_what_a_message_quotes_is_short_and_printable(base: Path, what: str) -> None:
    """A hundred thousand characters in any place of a card give short messages."""
    long = "x" * 100_000
    old, new = {
        "id": ("id: rounding", f'id: "{long}\\x1b[31m"'),
        "prerequisite": ("related: [float-bytes]", f"related: [{long}]"),
        "link": ("## 核心要义\n", f"## 核心要义\n\n[{long}](card:{long})\n"),
        "heading": ("## 核心要义\n", f"## {long}\n"),
        "claim": ("## 核心要义\n", f"## 核心要义\n\n[{long} 1](claim:{long}/a)\n"),
        "item": ("<!-- #", f"<!-- #{long}"),
        "key": ("related: [float-bytes]", f"related: [float-bytes]\n{long}: 1"),
    }[what]
    edit(base, "rounding", old, new)
    done = proofdeck("check", "--cards", "cards", cwd=base)
    assert done.returncode == 1
    assert done.stdout.count("\n") > 2
    assert max(map(len, done.stdout.splitlines())) < 1000
    assert done.stdout.replace("\n", "").isprintable()
    found = json.loads(proofdeck("check", "--json", "--cards", "cards", cwd=base).stdout)[
        "problems"
    ]
    assert max(len(each["message"]) for each in found) < 700
    assert max(len(each["hint"]) for each in found) < 700


def test_what_is_typed_is_quoted_short(base: Path) -> None:
    """A name of a hundred thousand characters on the command line, too."""
    long = "x" * 100_000
    for arguments in (
        ["new", long, "--module", "numerics", "--topic", "sums"],
        ["new", "a", "--module", f"{long}\x1b[31m", "--topic", "sums"],
        ["demo", "run", long],
    ):
        done = proofdeck(*arguments, "--cards", "cards", cwd=base)
        assert done.returncode == 2
        assert len(done.stderr) < 1000
        assert done.stderr.replace("\n", "").isprintable()


# --- refresh -------------------------------------------------------------------------------------


def test_refresh_mends_what_check_finds(base: Path) -> None:
    """Wrong numbers are rewritten and listed; then check is content, and nothing is left to do."""
    before = (base / "cards/numerics/float-bytes.md").read_text()
    edit(base, "float-bytes", "[53](claim", "[54](claim")
    done = proofdeck("refresh", "--cards", "cards", cwd=base)
    assert done.stdout.splitlines() == [
        "cards/numerics/float-bytes.md:71:26: 54 → 53",
        "cards/numerics/float-bytes.md:144:76: 54 → 53",
        "2 numbers rewritten",
    ]
    assert (base / "cards/numerics/float-bytes.md").read_text() == before
    again = proofdeck("refresh", "--json", "--cards", "cards", cwd=base)
    assert json.loads(again.stdout) == {"changes": [], "reworded": [], "problems": []}
    assert (done.returncode, again.returncode) == (0, 0)


# --- new -----------------------------------------------------------------------------------------


def test_a_new_card_is_written_and_found(base: Path) -> None:
    """The file is named, and check then names what waits in it."""
    arguments = ("pairwise-sum", "--module", "numerics", "--topic", "sums", "--cards", "cards")
    done = proofdeck("new", *arguments, cwd=base)
    assert done.stdout.splitlines()[0] == "wrote cards/numerics/pairwise-sum.md"
    found = json.loads(proofdeck("check", "--json", "--cards", "cards", cwd=base).stdout)[
        "problems"
    ]
    assert {each["place"]["path"] for each in found} == {"cards/numerics/pairwise-sum.md"}
    again = proofdeck("new", *arguments, cwd=base)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.splitlines() == [
        "error: the id `pairwise-sum` is taken by cards/numerics/pairwise-sum.md",
        "  hint: Choose another.",
    ]


# --- all commands --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["chekc"],
        ["check", "--crads", "x"],
        ["new", "a"],
        ["demo", "run"],
        ["demo", "run", "nothing"],
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str]) -> None:
    """Unknown commands, options and names end with a sentence on the error stream."""
    done = proofdeck(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


FOLDERS = {
    "check": ("--demos", "--evidence"),
    "refresh": ("--demos", "--evidence"),
    "build": ("--demos", "--evidence"),
    "export-pages out": ("--demos", "--evidence"),
    "verify": ("--cards", "--demos", "--evidence"),
    "demo list": ("--cards", "--demos", "--evidence"),
    "demo run float_sums": ("--cards", "--demos", "--evidence"),
    "demo record-gpu": ("--cards", "--demos", "--evidence"),
}
"""The options of each command that name a folder, but ``--cards`` where a problem tells of it."""


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_that_is_named_has_to_be_there(
    base: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One line names option and folder, before anything is read, run or written."""
    monkeypatch.chdir(base)
    Path("file").touch()
    before = tree(base)
    for option in FOLDERS[command]:
        for name, what in (
            ("nowhere", "there is no folder nowhere"),
            ("file", "file is not a folder"),
            ("\x1b[bold]", "there is no folder \\u001b[bold]"),
        ):
            done = CliRunner().invoke(commands.app(), [*command.split(), option, name])
            assert (done.exit_code, done.stdout) == (2, ""), (option, name, done.output)
            assert done.stderr.splitlines() == [
                f"error: {what} ({option})",
                f"  hint: Name a folder that exists, or leave {option} out.",
            ]
    assert tree(base) == before


def test_a_folder_that_nobody_named_may_be_missing(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demos are listed where there are neither cards nor evidence."""
    monkeypatch.chdir(base)
    shutil.rmtree("runnable_demos/evidence")
    shutil.rmtree("cards")
    listed = CliRunner().invoke(
        commands.app(), ["demo", "list", "--json", "--demos", "runnable_demos"]
    )
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert {each["evidence"]["cpu"]["state"] for each in json.loads(listed.stdout)} == {"missing"}


def test_the_version_is_the_distributions() -> None:
    """``--version`` names the program and what is installed."""
    assert proofdeck("--version").stdout == f"proofdeck {metadata.version('proofdeck')}\n"


def listed(*group: str) -> list[str]:
    """The commands that the program, or a group of it, names in its help, in their order."""
    shown = proofdeck(*group, "--help").stdout.split("─ Commands ─")[1]
    return re.findall(r"^│ ([a-z-]+) ", shown, re.MULTILINE)


def test_the_help_lists_the_commands_in_their_order() -> None:
    """What proves the numbers comes first, and what concerns demos is a group, last."""
    assert listed() == [
        "verify",
        "check",
        "refresh",
        "build",
        "export-pages",
        "new",
        "migrate",
        "demo",
    ]
    assert listed("demo") == ["list", "run", "record-gpu"]


def test_each_file_of_commands_is_a_command() -> None:
    """Found, not listed: a file's name is its command's, and what several share stands apart."""
    files = {path.stem for path in (ROOT / "generator" / "commands").glob("[!_]*.py")}
    shown = {*listed(), *(f"demo {each}" for each in listed("demo"))} - {"demo"}
    assert files == {re.sub("[ -]", "_", each) for each in shown}


def test_every_command_explains_itself() -> None:
    """``--help`` works for each, and says in a sentence what the command does."""
    for command in commands.discover():
        done = proofdeck(*command.NAME.split(), "--help")
        assert done.returncode == 0
        assert "Usage: proofdeck" in done.stdout


DEFAULTS = {
    "--cards": "cards",
    "--demos": "(runnable_demos beside the cards, else proofdeck's own)",
    "--evidence": "(DEMOS/evidence)",
    "--fence-limit": "60.0",
    "--lang": "(the terminal's)",
    "--out": "dist",
    "--time-limit": "600.0",
    "--within": "480.0",
}
"""What an option stands at where it is left out, in whichever command takes it."""


@pytest.mark.parametrize("command", commands.discover(), ids=lambda each: each.NAME)
def test_the_help_says_what_stands_where_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, command: commands.Command
) -> None:
    """Each option and argument that falls back on something names it: nothing is lost as markup."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(commands.app(), [*command.NAME.split(), "--help"]).stdout
    rows = re.findall(r"^│[ *]+(\S+) (.*)│$", shown, re.MULTILINE)
    wanted = {name: f"[default: {DEFAULTS[name]}]" for name, _ in rows if name in DEFAULTS}
    match command.NAME:
        case "verify":
            wanted |= {"--device": "[default: cpu]", "names...": "[default: (all)]"}
        case "demo run":
            wanted |= {"--device": "[default: auto]", "--size": "[default: full]"}
    parts = {name: text.partition("[default: ") for name, text in rows}
    found = {name: f"{at}{rest.rstrip()}" for name, (_, at, rest) in parts.items() if at}
    assert found == wanted
    assert " ." not in shown
