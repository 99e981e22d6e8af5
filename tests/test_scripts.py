"""What pages carry of a script: its code as it is written, without the comments and types of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.edition import assets

SCRIPTS = sorted((assets.OVERRIDES / "scripts").glob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_pages_carry_the_code_alone(path: Path) -> None:
    """Line by line: what goes is a comment or an indent, and what stays stays in order."""
    source = iter(path.read_text(encoding="utf-8").splitlines())
    for carried in assets.script(path).splitlines():
        for line in source:
            if line.lstrip() == carried:
                break
            assert line.lstrip().startswith(("//", "/**", "* ", "*/")), line
        else:
            raise AssertionError(f"not in the source: {carried}")
    assert all(line.lstrip().startswith("//") for line in source)


def test_a_comment_within_code_stays(tmp_path: Path) -> None:
    """A type in front of an expression, a word behind it, and what a text says are no lines of comment."""
    code = 'const a = 1; // one\n  /** @type {B} */ (b),\n"http://c",\n'
    file = tmp_path / "script.js"
    file.write_text(
        f"// @ts-check\n/** Adds. @param {{A}} a */\n{code}  /**\n   * Two.\n   */\n  d();\n"
    )
    assert assets.script(file) == code.replace("  /**", "/**") + "d();\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_every_script_is_checked(path: Path) -> None:
    """Editors check its types as `make lint` does, and no line is taken out of that."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n")
    assert "@ts-ignore" not in text
    assert "@ts-expect-error" not in text
    assert "@ts-nocheck" not in text


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_no_text_of_a_script_spans_lines(path: Path) -> None:
    """What stands before a line is an indent: no template literal of several lines, which would lose it."""
    code = assets.script(path)
    assert all(line.count("`") % 2 == 0 for line in code.splitlines())


def test_styles_lose_only_what_their_source_needs(tmp_path: Path) -> None:
    """Comments and space go; what stands in a string, and the space of a selector and of a sum, stays."""
    file = tmp_path / "style.css"
    file.write_text(
        '/* One. */\na :is(b, c) {\n  content: "x ; /* y */";\n  width: calc(1em + 2px);\n}\n'
    )
    assert assets.style(file) == 'a :is(b,c){content:"x ; /* y */";width:calc(1em + 2px);}'
