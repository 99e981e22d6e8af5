"""Home, a card, study and the handbook in Firefox, driven over WebDriver BiDi by ``firefox.mjs``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from pypdf import PdfReader

from tests.browser.conftest import ROOT, Built

SCRIPT = Path(__file__).with_name("firefox.mjs")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Firefox prints to."""
    return tmp_path_factory.mktemp("firefox")


@pytest.fixture(scope="module")
def found(built: Built, printed: Path) -> dict[str, Any]:
    """What Firefox made of the pages; without it the tests are skipped, or fail where CI is true."""
    firefox = shutil.which("firefox-esr") or shutil.which("firefox")
    node = shutil.which("node")
    if not firefox or not node or not (ROOT / "node_modules/puppeteer-core").is_dir():
        message = "no Firefox, node or puppeteer-core here (apt-get install firefox-esr; npm ci)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    done = subprocess.run(
        [node, SCRIPT, firefox, built.url, built.handbook.as_uri(), printed],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_page_reports_an_error(found: dict[str, Any]) -> None:
    """It is Firefox that ran, and no script of ours failed in it."""
    assert found["version"].lower().startswith("firefox/")
    assert found["errors"] == []


def test_home_changes_language_and_searches(found: dict[str, Any]) -> None:
    """The key ``l`` goes from English to both; the dialog finds a card and closes with Esc."""
    assert (found["home"]["before"], found["home"]["after"]) == ("en", "both")
    assert "/cards/flash-attention/" in found["home"]["hit"]
    assert found["home"]["wide"] <= 0


def test_formulas_have_their_font(found: dict[str, Any]) -> None:
    """The font is loaded, and a bracket is nearly as high as the fraction of fractions that it holds."""
    assert found["card"]["font"] == "loaded"
    assert found["card"]["stretched"] > 0.8


def test_the_line_under_a_number_is_whole_at_its_exponent(found: dict[str, Any]) -> None:
    """Under formulas the line is a border: an underline would follow the exponent up and break."""
    assert found["card"]["lines"]
    assert all(line == "none" and width >= 1 for line, width in found["card"]["lines"])


def test_the_proof_opens_and_closes(found: dict[str, Any]) -> None:
    """On focus it is a popover with the command; Esc takes it away."""
    assert found["card"]["tip"] is True
    assert found["card"]["tipsLeft"] == 0


def test_a_card_prints_with_its_answers(found: dict[str, Any], printed: Path) -> None:
    """The first words of every answer are in the file; on screen the answers are closed again."""
    sheets = PdfReader(printed / "card.pdf").pages
    words = " ".join(sheet.extract_text() for sheet in sheets).split()
    text = normalize("NFKC", " ".join(words))  # its font has ligatures
    assert found["card"]["answers"]
    assert [a for a in found["card"]["answers"] if " ".join(a.split()[:5]) not in text] == []
    assert found["card"]["closedAgain"] is True


def test_two_tabs_keep_each_others_ratings(found: dict[str, Any]) -> None:
    """Two reviews in each tab and one more, all of them kept; a question answered with Esc replaces nothing."""
    log = found["study"]["log"]
    assert [rating for _, rating, _ in log] == [3, 3, 2, 2, 4]
    assert set(found["study"]["items"]) == {item for item, _, _ in log}
    assert found["study"]["after"] == 5


def test_the_handbook_works_from_a_disk(found: dict[str, Any]) -> None:
    """Sections of the card, language, and the nearest place to one that is none."""
    assert found["handbook"]["sections"][0] == "#checkpoint-torch--answer"
    assert len(found["handbook"]["sections"]) == 13
    assert found["handbook"]["both"] == "both"
    assert found["handbook"]["nearest"] == "#card-flash-attention"
    assert found["handbook"]["wide"] <= 0
