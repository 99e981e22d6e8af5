"""What the hostile base becomes outside of a browser: a vault, a terminal, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from generator import checks, commands
from generator.cards import front_matter
from generator.edition import edition as editions
from generator.exporters import vault
from generator.lang import LANGS, on_one_line
from generator.lines import Lines
from generator.problems import visible
from generator.render import markup
from runnable_demos.lab import records
from tests import hostile

ROOT = Path(__file__).parents[1]
JOINER = "\u2060"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hostile base."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.write(folder)
    return folder


@pytest.fixture(scope="module")
def notes(base: Path) -> dict[str, str]:
    """The notes of its vault, by name."""
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    vault.export(editions.bind(found), base / "vault")
    return {
        file.relative_to(base / "vault").as_posix(): file.read_text(encoding="utf-8")
        for file in (base / "vault").rglob("*.md")
    }


# --- the vault -----------------------------------------------------------------------------------


def read(note: str) -> tuple[dict[str, Any], list[Any]]:
    """A note's properties, and its blocks as CommonMark reads them, HTML and all."""
    front, body = re.fullmatch(r"(?:---\n(.*?)\n---\n)?(.*)", note, re.DOTALL).groups()  # type: ignore[union-attr]
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return yaml.safe_load(front or "{}") or {}, parser.parse(body)


def flat(tokens: list[Any]) -> list[Any]:
    """Tokens and what is in them."""
    return [each for token in tokens for each in (token, *flat(token.children or []))]


def test_notes_hold_no_html_and_nothing_that_a_plugin_runs(notes: dict[str, str]) -> None:
    """A second Markdown reader finds no tag but line breaks, and listings in plain languages."""
    fences = set()
    for name, note in notes.items():
        assert "<%" not in note, name
        for token in flat(read(note)[1]):
            if token.type in ("html_inline", "html_block"):
                assert token.content == "<br>", (name, token.content)
            if token.type == "fence":
                fences.add(token.info)
            if token.type == "code_inline":
                assert not re.match(r"\s*\$?=", token.content), (name, token.content)
    assert fences == {"js", "python", "sh", "text"}


def test_notes_show_what_was_said(notes: dict[str, str]) -> None:
    """Every attack of a card, its blocks and its evidence stands in its note, letter by letter."""
    for name in ("one", "two"):
        tokens = flat(read(notes[f"{vault.CARDS}/{name}.md"])[1])
        texts = ["".join(each.content for each in flat([token])[1:]) for token in tokens]
        texts += [token.content for token in tokens]
        shown = set().union(*(hostile.numbers(each.replace(JOINER, "")) for each in texts))
        assert len(shown) > 80


def test_the_note_of_terms_shows_what_was_written(base: Path, notes: dict[str, str]) -> None:
    """Names, meanings and variants stand in it letter by letter; what is never said does not."""
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    tokens = flat(read(notes[f"{vault.GLOSSARY}.md"])[1])
    texts = ("".join(part.content for part in each.children or ()) for each in tokens)
    shown = "\n".join(texts).replace(JOINER, "")
    assert set(found.glossary.terms) == {"term", "other"}
    for term in found.glossary.terms.values():
        said = {text for lang in LANGS for text in (*term.said(lang), term.means[lang])}
        expected = set().union(*(hostile.numbers(text) for text in said))
        assert len(expected) >= 5
        assert expected <= hostile.numbers(shown)
        never = set().union(*(hostile.numbers(each) for own in term.never.values() for each in own))
        assert never
        assert not never & hostile.numbers(shown)


def test_properties_are_the_texts_that_were_written(base: Path, notes: dict[str, str]) -> None:
    """YAML that breaks nowhere: title, aliases and question come back equal, but for the joiners."""
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    for name, card in found.cards.items():
        properties = read(notes[f"{vault.CARDS}/{name}.md"])[0]
        assert card.question
        aliases = [*card.title.values(), *(a for own in card.aliases.values() for a in own)]
        aliases += [*card.question.values(), *(a for own in card.asked.values() for a in own)]
        assert properties["question"].replace(JOINER, "") == on_one_line(card.question)
        assert [each.replace(JOINER, "") for each in properties["aliases"]] == aliases
        assert not any("<%" in each or "`$=" in each for each in properties["aliases"])
        assert (properties["difficulty"], properties["frequency"]) == ("easy", "often")


# --- the terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_text_steers_the_terminal(base: Path, options: list[str]) -> None:
    """File names and messages show control characters, and none reaches the terminal."""
    odd = base / "cards" / "module" / "a\x1b[31m\nb\u202ec\x9b.md"
    odd.write_text('---\ntitle: {zh: "a\\e[2J", en: "\u202eb"}\n---\n', encoding="utf-8")
    try:
        done = CliRunner().invoke(
            commands.app(),
            ["check", "--cards", str(base / "cards"), "--demos", str(base / "cards"), *options],
        )
    finally:
        odd.unlink()
    assert done.exit_code == 1, done.output
    assert not STEERING.search(done.output)
    if options:
        assert "\\u001b[31m" in done.output
        assert any(
            "\x1b[31m\nb\u202ec\x9b" in e["place"]["path"]
            for e in json.loads(done.output)["problems"]
        )
    else:
        assert re.search(r"a\\x1b\[31m\\nb\\u202ec\\x9b\.md:\d+:\d+: ", done.output)


def test_what_is_visible_is_the_same_json() -> None:
    """Escapes in a string of JSON mean the characters that they stand for."""
    text = "a\x7f\x9b\u202e\ufeff汉"
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


# --- what is refused -----------------------------------------------------------------------------


def test_a_control_character_cannot_come_in_by_an_escape() -> None:
    """YAML's escapes write into a title what the file itself may not hold; white space is one."""
    card = (hostile.DEMOS.parent / "cards/numerics/rounding.md").read_text(encoding="utf-8")

    def reading(zh: str) -> front_matter.Reading:
        text = re.sub(r"title: .*", lambda _: f'title: {{zh: "{zh}", en: b}}', card, count=1)
        found = front_matter.read(Lines("card.md", text))
        assert isinstance(found, front_matter.Reading)
        return found

    refused = reading(r"a\e[31m")
    assert [problem.code for problem in refused.problems] == ["strange-character"]
    folded = reading(r"a\n\tb").values
    assert folded
    assert folded.title["zh"] == "a b"


@pytest.mark.parametrize("name", ['"><script>', "../../float_sums", "a b", ""])
@pytest.mark.parametrize("field", ["demo", "metric", "figure", "parameter"])
def test_names_of_a_record_are_names(tmp_path: Path, name: str, field: str) -> None:
    """What addresses, ids and commands are made of leads nowhere else and ends nothing."""
    known = records.load(hostile.DEMOS / "evidence" / "float_sums.cpu.json")
    result = known.result
    changed = {
        "demo": lambda: dataclasses.replace(known, demo=name),
        "metric": lambda: dataclasses.replace(
            known,
            result=dataclasses.replace(
                result, metrics=(dataclasses.replace(result.metrics[0], name=name),)
            ),
        ),
        "figure": lambda: dataclasses.replace(
            known,
            result=dataclasses.replace(
                result, figures=(dataclasses.replace(result.figures[0], name=name),)
            ),
        ),
        "parameter": lambda: dataclasses.replace(
            known, parameters=(dataclasses.replace(known.parameters[0], name=name),)
        ),
    }[field]()
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    file = evidence / "float_sums.cpu.json"
    file.write_text(records.dumps(changed), encoding="utf-8")
    cards = hostile.DEMOS.parent / "cards"
    found, problems = checks.load(cards, demos=hostile.DEMOS, evidence=evidence)
    assert found
    assert not found.evidence.records
    codes = [each.code for each in problems if each.place.path == str(file)]
    assert codes == ["evidence-corrupt"]


# --- by construction -----------------------------------------------------------------------------


def test_one_file_makes_markup() -> None:
    """No other calls text safe, and no template turns escaping off."""
    made = re.compile(r"\bMarkup\((?!\))|\|\s*safe\b|autoescape (?:false|0)|__html__")
    files = [*(ROOT / "generator").rglob("*.py"), *(ROOT / "site_overrides").rglob("*.py")]
    files += [*(ROOT / "generator").rglob("*.html"), *(ROOT / "site_overrides").rglob("*.html")]
    found = {file.name for file in files if made.search(file.read_text(encoding="utf-8"))}
    assert found == {"markup.py"}


def test_no_python_but_the_renderer_and_the_figures_writes_tags() -> None:
    """HTML comes from templates; the renderer's goes through the sanitiser, the figures' is SVG."""
    tag = re.compile(
        r"""f?["'][^"'`\n]*</?(?:a|p|div|span|svg|g|path|script|meta|td|option)\b[ >{]"""
    )
    files = [f for f in (ROOT / "generator").rglob("*.py") if tag.search(f.read_text("utf-8"))]
    # The parser names a comment.
    assert {file.name for file in files} <= {"html.py", "documents.py", "parse.py"}


def test_scripts_make_no_markup_of_text() -> None:
    """Our scripts build elements; none hands a string to the parser of the page."""
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
    )
    for file in (ROOT / "site_overrides" / "scripts").glob("*.js"):
        assert not sinks.search(file.read_text(encoding="utf-8")), file.name


def test_theme_and_templates_hold_no_script_of_their_own() -> None:
    """What stands inside a page would need a hash: on the site all scripts are files."""
    theme = (ROOT / "site_overrides" / "theme").rglob("*.html")
    for file in theme:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|javascript:", text), file.name


UNUSED = ("object-src", "frame-src", "media-src", "worker-src", "manifest-src")


def test_a_policy_lets_nothing_run_but_what_it_names() -> None:
    """No policy that is published allows scripts in general; a preview's does."""
    for policy in (markup.policy(), markup.policy(["x"]), markup.policy(alone=True)):
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        rest = {each: rules.get(each, rules["default-src"]) for each in UNUSED}
        assert rest == dict.fromkeys(UNUSED, "'none'")
        assert rules["default-src"] in ("'none'", "'self'")
        assert "unsafe" not in rules["script-src"]
        assert not re.search(r"https?:|\*", policy)
    digest = "'sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE='"  # openssl dgst of an x
    assert digest in markup.policy(["x"])
    assert digest not in markup.policy(["y"])
    assert "'unsafe-inline'" in markup.policy(preview=True)
