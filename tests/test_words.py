"""The table of words: complete, all of it used, and the only place where the interface has words."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest

from generator import words
from generator.edition import assets
from generator.lang import LANGS

ROOT = Path(__file__).parent.parent
OVERRIDES = ROOT / "site_overrides"
HAN = re.compile("[\u3400-\u9fff]")
KEYS = {f"{group}.{name}" for group, rows in words.TABLE.items() for name in rows}


def _sources(folder: Path, pattern: str) -> dict[str, str]:
    """The files of a kind without their comments."""
    comments = re.compile(r"\{#.*?#\}|/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
    return {
        file.relative_to(ROOT).as_posix(): comments.sub("", file.read_text(encoding="utf-8"))
        for file in sorted(folder.rglob(pattern))
    }


TEMPLATES = _sources(ROOT / "generator" / "render" / "templates", "*.html")
THEME = _sources(OVERRIDES / "theme", "*.html")
SCRIPTS = _sources(OVERRIDES / "scripts", "*.js")
PYTHON = _sources(ROOT / "generator", "*.py") | _sources(OVERRIDES, "*.py")


def _named(files: dict[str, str], pattern: str) -> set[str]:
    """The phrases that files name, each by a pattern; a group that is asked for by a variable counts as a whole."""
    found = {name for text in files.values() for name in re.findall(pattern, text)}
    whole = {name.removesuffix(".") for name in found if "." not in name.removesuffix(".")}
    return {name for name in found if "." in name.removesuffix(".")} | {
        f"{group}.{name}" for group in whole for name in words.group(group)
    }


def _in_pages() -> set[str]:
    return _named(TEMPLATES, r"(?<!pd_)\bwords\.([a-z_]+(?:\.[a-z_]+(?![\w(]))?)")


def _in_theme() -> set[str]:
    return _named(THEME, r"\bpd_words\.([a-z_]+(?:\.[a-z_]+)?)")


def _in_scripts() -> set[str]:
    groups = "|".join(words.TABLE)
    return _named(SCRIPTS, rf'["`]((?:{groups})\.[a-z_]*)(?="|\$)')


def _in_python() -> set[str]:
    return _named(PYTHON, r'words\.(?:phrase|group)\(f?"([a-z_]+(?:\.[a-z_]*)?)')


def test_every_phrase_has_every_language() -> None:
    """No column has a hole, and no row a column that is no language."""
    assert [key for key in KEYS if list(words.phrase(key)) != list(LANGS)] == []
    assert [key for key in KEYS if not all(words.phrase(key).values())] == []


def test_every_language_has_the_same_places() -> None:
    """What is filled into one language of a phrase is filled into the others."""
    for key in KEYS:
        places = {
            frozenset(place for _, place, _, _ in string.Formatter().parse(text) if place)
            for text in words.phrase(key).values()
        }
        assert len(places) == 1, key


def test_no_name_hides_behind_a_method() -> None:
    """Templates read ``words.group.name``, where Jinja looks for an attribute of the table first."""
    names = {name for rows in words.TABLE.values() for name in rows} | set(words.TABLE)
    assert [name for name in names if hasattr(words.TABLE, name)] == []


def test_no_phrase_is_unused() -> None:
    """Each row is named by a template, a script or the generator, or its group is asked for as a whole."""
    assert KEYS - _in_pages() - _in_theme() - _in_scripts() - _in_python() == set()


def test_every_phrase_that_is_named_is_there() -> None:
    """No page, and no script in a reader's browser, asks for a phrase that it does not get."""
    assert len(_in_pages()) > 100
    assert _in_pages() <= KEYS
    sent = {key for key in KEYS if key.split(".")[0] in words.IN_SCRIPTS}
    assert len(_in_scripts()) > 100
    assert _in_scripts() <= sent
    shown = {key for key in KEYS if key.split(".")[0] in words.IN_THEME}
    assert len(_in_theme()) > 10
    assert _in_theme() <= shown


def test_no_group_is_sent_in_vain() -> None:
    """Pages carry for their scripts, and hand to the theme, what one of them says."""
    assert set(words.IN_SCRIPTS) == {key.split(".")[0] for key in _in_scripts()}
    assert set(words.IN_THEME) == {key.split(".")[0] for key in _in_theme()}


@pytest.mark.parametrize(
    "files", [TEMPLATES, THEME, SCRIPTS], ids=["templates", "theme", "scripts"]
)
def test_the_words_stand_in_the_table_alone(files: dict[str, str]) -> None:
    """No template and no script holds a 汉字 outside its comments."""
    assert len(files) > 5
    assert {name: found[0] for name, text in files.items() if (found := HAN.findall(text))} == {}


def test_scripts_get_their_words_first() -> None:
    """The site's script begins with the phrases, as JSON that every browser reads."""
    script = assets.bundles()[assets.SCRIPT].decode()
    given, end = json.JSONDecoder().raw_decode(script, script.index("{"))
    assert given["phrases"]["search.nothing"] == words.TABLE["search"]["nothing"]
    assert set(given["htmlLang"]) == set(LANGS)
    assert script[end:].startswith(");\n")


@pytest.mark.parametrize("key", ["search.nought", "nowhere.nothing", "search", ""])
def test_what_is_not_in_the_table_is_an_error(key: str) -> None:
    """An unknown phrase is never printed as nothing."""
    with pytest.raises(words.UnknownPhraseError, match=f"^{re.escape(key)}$"):
        words.phrase(key)
    if key != "search":
        with pytest.raises(words.UnknownPhraseError):
            words.group(key)


def test_a_phrase_is_filled_in_each_language() -> None:
    """A number is the same in all; a text is taken in the language of the phrase around it."""
    text = {"zh": "{number} 张：{what}", "en": "{number} of {what}"}
    filled = words.fill(text, number=3, what={"zh": "卡", "en": "cards"})
    assert filled == {"zh": "3 张：卡", "en": "3 of cards"}
