"""Installed from a wheel, in an empty environment and far from the checkout, every command works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from generator.documents import program as program_documents

ROOT = Path(__file__).parent.parent
BASE = Path(__file__).parent / "library"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``proofdeck`` of a new environment: the wheel, and beside it what this one has installed.

    A line of a ``.pth`` file adds the other packages. It does not read their own ``.pth`` files,
    so that the checkout, which is installed here as editable, stays out.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build writes beside its sources
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("generator", "runnable_demos", "site_overrides", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    (source / "cards").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "mkdocs.yml", "cards/facts.yml"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    own = ["--no-deps", "--no-index"]
    _run([*pip, "wheel", *own, "--no-build-isolation", "--wheel-dir", folder, source], folder)
    shutil.rmtree(source)
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    _run([*pip, "--python", python, "install", *own, wheel], folder)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    where = _run([python, "-c", "import generator; print(generator.__file__)"], folder).stdout
    assert where.startswith(str(site))
    return python.with_name("proofdeck")


def _run(
    command: list[str | Path], cwd: Path, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command outside the checkout; it must end with ``code``, and name nothing of the checkout."""
    left_out = {"PYTHONPATH", "SITE_URL", "VIRTUAL_ENV"}
    inherited = {key: value for key, value in os.environ.items() if key not in left_out}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**inherited, "COLUMNS": "200", **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=240,
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    if "proofdeck" in str(command[0]):
        assert not re.search(r"make build|make test|--editable|constraints\.txt|CONTRIBUTING", said)
        assert str(ROOT) + "/" not in said.replace(str(cwd), "")
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with a space and 汉字 in its name."""
    made = tmp_path / "我的 卡片"
    made.mkdir()
    return made


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_base_of_ones_own_is_checked_and_built(
    program: Path, folder: Path, absolute: bool
) -> None:
    """Every output, the exported pages and a new card, by relative and by absolute paths."""
    shutil.copytree(BASE, folder / "my base")
    start = folder if absolute else Path()
    cards = ["--cards", start / "my base" / "cards"]
    done = _run([program, "check", *cards], folder)
    assert done.stdout == "3 cards, 44 claims: 0 errors, 0 warnings\n"
    out = start / "out put"
    done = _run([program, "build", *cards, "--out", out], folder, SITE_URL="https://a.example/b")
    home = (folder / "out put" / "site" / "index.html").read_text(encoding="utf-8")
    assert 'rel="canonical" href="https://a.example/b/"' in home
    page = folder / "out put" / "site" / "cards" / "rounding" / "index.html"
    assert 'data-card="rounding"' in page.read_text(encoding="utf-8")
    taught = folder / "out put" / "site" / "demos" / "float_sums" / "index.html"
    assert "What comes out, and why" in taught.read_text(encoding="utf-8")
    for name in program_documents.NAMES:
        assert (folder / "out put" / "site" / "docs" / name / "index.html").is_file()
    assert (folder / "out put" / "handbook.html").stat().st_size > 100_000
    assert (folder / "out put" / "vault" / "Cards" / "rounding.md").is_file()
    _run([program, "export-pages", start / "pages", *cards], folder)
    assert (folder / "pages" / "docs" / "cards" / "rounding" / "index.md").is_file()
    assert (folder / "pages" / "theme" / "main.html").is_file()
    new = ["new", "fused-add", "--module", "numerics", "--topic", "sums"]
    assert "fused-add.md" in _run([program, *new, *cards], folder).stdout
    waiting = json.loads(_run([program, "check", "--json", *cards], folder, code=1).stdout)
    assert {Path(each["place"]["path"]).name for each in waiting["problems"]} == {"fused-add.md"}


def test_demos_come_with_it(program: Path, folder: Path) -> None:
    """Where a base has no demos, those of the program are listed and run, and never rewritten."""
    listed = json.loads(_run([program, "demo", "list", "--json"], folder).stdout)
    assert len(listed) == len(list((ROOT / "runnable_demos" / "evidence").glob("*.cpu.json")))
    name = "fp16_bf16"
    assert name in {each["name"] for each in listed}
    run = [program, "demo", "run", name, "--size", "small", "--device", "cpu", "--json"]
    assert json.loads(_run(run, folder).stdout)["demo"] == name
    refused = _run([program, "demo", "run", name, "--record"], folder, code=2)
    assert "--evidence DIR" in refused.stderr
    assert list(folder.iterdir()) == []


def test_cards_of_a_base_without_demos_may_claim_what_the_programs_own_found(
    program: Path, folder: Path
) -> None:
    """The numbers that come with the program prove the claims of a foreign base, too."""
    shutil.copytree(BASE / "cards", folder / "cards")
    done = _run([program, "check"], folder, code=1)
    assert "there is no evidence of a demo `float_sums`" in done.stdout
    claim = re.compile(r"\[[^\]]*\]\((?:claim|wrong):float_sums/[a-z_0-9]+\)")
    for file in (folder / "cards").rglob("*.md"):
        found = "[33.3%](claim:activation_checkpointing/recompute_overhead)"
        file.write_text(claim.sub(found, file.read_text(encoding="utf-8")), encoding="utf-8")
    done = _run([program, "check"], folder, code=1)
    assert "claim-" not in done.stdout
    _run([program, "new", "x", "--module", "nothing", "--topic", "sums"], folder, code=2)


def test_facts_come_with_it(program: Path, folder: Path) -> None:
    """A foreign base states the public facts that come with the program, and extends them by its own."""
    shutil.copytree(BASE, folder / "base")
    cards = folder / "base" / "cards"
    for file in cards.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        text = text.replace("[16 GB](fact:toy-gpu/memory)", "[80 GB](fact:h100-sxm/memory)")
        file.write_text(text, encoding="utf-8")
    _run([program, "check", "--cards", cards], folder)
    (cards / "facts.yml").unlink()
    done = _run([program, "check", "--cards", cards], folder, code=1)
    assert "no `facts.yml` has an entry `toy-gpu`" in done.stdout


def test_code_on_a_card_is_run_by_it(program: Path, folder: Path) -> None:
    """Its fence is verified, and recorded among the evidence of the base once it has changed."""
    shutil.copytree(BASE, folder / "base")
    verify = [program, "verify", "kahan-sum", "--cards", "base/cards"]
    assert "1 agrees" in _run(verify, folder).stdout
    card = folder / "base" / "cards" / "numerics" / "kahan-sum.md"
    text = card.read_text(encoding="utf-8")
    card.write_text(text.replace("one by one", "in turn"), encoding="utf-8")
    assert "fence-stale" in _run(verify, folder, code=1).stdout
    assert "1 recorded" in _run([*verify, "--record"], folder).stdout
    kept = folder / "base" / "runnable_demos" / "evidence" / "cards" / "kahan-sum.json"
    assert "in turn" in kept.read_text(encoding="utf-8")


def test_what_is_missing_is_said_in_words_that_hold_there(program: Path, folder: Path) -> None:
    """A base that is not there, a torch that is not installed, a library that is gone."""
    assert "no-folder" in _run([program, "check"], folder, code=2).stdout
    (site,) = program.parent.parent.glob("lib/python*/site-packages")
    blocked = site / "sitecustomize.py"
    blocked.write_text("import sys\nsys.modules['torch'] = None\n")  # as if it were not installed
    try:
        done = _run([program, "demo", "run", "fp16_bf16", "--size", "small"], folder, code=3)
    finally:
        blocked.unlink()
    assert "PyTorch is not installed" in done.stderr
    assert "pip install 'proofdeck[lab]'" in done.stderr
    shutil.copytree(BASE, folder / "base")
    script = site / "generator" / "vendor" / "minisearch.js"
    aside = script.rename(script.with_suffix(".aside"))
    try:
        done = _run([program, "build", "--cards", "base/cards"], folder, code=3)
    finally:
        aside.rename(script)
    assert "minisearch.js" in done.stderr
    assert "hint: Install it again" in done.stderr
    assert not (folder / "dist").exists()
