"""What a card's links lead to, told link by link, against the small base as its files say it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from generator import checks
from generator.library.explanations import Explanation, of_card

BASE = Path(__file__).parent / "library"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the small base, to be changed."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def explained(folder: Path, card: str) -> list[Explanation]:
    """Each link of ``card``."""
    found, _ = checks.load(folder / "cards", demos=folder / "runnable_demos")
    assert found is not None
    return of_card(found.cards[card], found)


def edit(folder: Path, card: str, old: str, new: str) -> None:
    """Change the first place of a text of a card."""
    path = folder / "cards" / "numerics" / f"{card}.md"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize("card", ["float-bytes", "kahan-sum", "rounding"])
def test_every_link_is_told_once_in_reading_order(card: str) -> None:
    """The places are those of the brackets in the file, from its top to its end, and none is left out."""
    text = (BASE / "cards" / "numerics" / f"{card}.md").read_text(encoding="utf-8")
    body = text.split("\n---\n", 1)[1]
    written = len(
        re.findall(r"\]\((?:claim|wrong|param|fact|calc|source|given|gpu|card|https|figure):", body)
    )
    written += len(re.findall(r"\]\[how-many\]", body))
    found = explained(BASE, card)
    assert len(found) == written
    assert [each.place for each in found] == sorted(each.place for each in found)
    rows = text.split("\n")
    for each in found:
        here = rows[each.place.line - 1][each.place.column - 1 :]
        assert here.startswith(f"[{each.printed}]" if each.printed else "![")


def one(found: list[Explanation], target: str) -> Explanation:
    """The first link that leads there."""
    return next(each for each in found if each.target == target)


def test_each_kind_of_link_says_what_it_leads_to() -> None:
    """Words in both languages, value, kind and run of a metric; a fact with its source; a sum with its values."""
    found = explained(BASE, "float-bytes")
    claim = one(found, "claim:float_sums/bytes_per_number")
    assert (claim.lang, claim.state, claim.printed) == ("zh", "proven", "8 B")
    assert claim.said["label"] == {"zh": "每个数的字节", "en": "bytes a number"}
    assert claim.said["method"] == {
        "zh": "数组的字节数除以个数",
        "en": "bytes of the array over its length",
    }
    assert (claim.said["kind"], claim.said["value"]) == ("exact", "8 B")
    assert str(claim.said["run"]).startswith("cpu, recorded 20")
    assert one(found, "wrong:float_sums/bytes_per_number").state == "refuted"
    setting = one(found, "param:float_sums/count")
    assert (setting.state, setting.said["value"]) == ("set", "10000")
    fact = one(found, "fact:toy-gpu/memory")
    assert (fact.state, fact.said["value"], fact.said["as of"]) == ("cited", "16 GB", "2026-11-28")
    assert fact.said["source"] == "Toy GPU datasheet, Table 1, <row> 2 & 3"
    assert fact.said["opened"] == "2026-11-29"
    quoted = one(found, "fact:toy-gpu/memory_bandwidth")
    assert str(quoted.said["opened"]).startswith("not opened")
    assert one(found, "fact:toy-model/head_width").said["follows from"] == "width / heads"
    calc = one(found, "calc:")
    assert calc.said["expression"] == "{device/memory} / {claim:float_sums/bytes_per_number}"
    assert (calc.said["with values"], calc.said["result"]) == ("16 GB / 8 B", "2,000,000,000")
    assert (calc.state, calc.printed) == ("follows", "20 亿")
    assert one(found, "given:").state == "assumed"
    others = explained(BASE, "rounding")
    assert one(others, "source:python-tutorial").said["place"] == "Representation Error"
    assert one(others, "card:kahan-sum#lost-part").state == "written"
    assert one(others, "figure:float_sums/error").state == "drawn"
    slot = one(others, "gpu:float_sums/gpu_seconds")
    assert (slot.state, slot.printed) == ("awaited", "尚未在 GPU 上记录")
    assert slot.said["label"] == {
        "zh": "400 个数在 GPU 上求和的时间",
        "en": "time in which a GPU adds 400 numbers",
    }


@pytest.mark.parametrize(
    ("old", "new", "fault", "still"),
    [
        ("[8 B](claim:float_sums/bytes", "[9 B](claim:float_sums/bytes", "the evidence says", "value"),
        ("claim:float_sums/bytes_per_number", "claim:float_sums/bytes_per_numbers", "has no metric", ""),
        ("claim:float_sums/bytes_per_number", "claim:float_sum/bytes_per_number", "no evidence of a demo", ""),
        ("[16 GB](fact:toy-gpu/memory)", "[17 GB](fact:toy-gpu/memory)", "the fact is", "source"),
        ("fact:toy-gpu/memory)", "fact:toy-gpus/memory)", "no `facts.yml` has an entry", ""),
        ("[10,000](param", "[10,001](param", "the run was set to", "value"),
        ("[40 亿](calc", "[41 亿](calc", "the expression is worth", "result"),
        ('"{devices} × {calc', '"{devices} ×× {calc', "", "expression"),
    ],
)  # fmt: skip
def test_what_does_not_resolve_says_so_and_the_others_go_on(
    old: str, new: str, fault: str, still: str, folder: Path
) -> None:
    """The one link that was broken is told with why, and with what can be said of it; all others are as before."""
    before = explained(folder, "float-bytes")
    edit(folder, "float-bytes", old, new)
    after = explained(folder, "float-bytes")
    [broken] = [each for each in after if each.state == "unresolved"]
    assert fault in broken.fault
    assert broken.fault
    assert broken.hint
    assert not still or still in broken.said
    assert len(after) == len(before)
    assert sum(a.said == b.said for a, b in zip(after, before, strict=True)) >= len(before) - 1


def test_a_link_to_no_card_or_item_is_unresolved(folder: Path) -> None:
    """A card that is not there, and a follow-up that is not on it, are told, each with what may be meant."""
    edit(folder, "rounding", "card:kahan-sum#lost-part", "card:kahan-sum#lost-parts")
    edit(folder, "kahan-sum", "card:pairwise-sum", "card:pairwise-sums")
    [item] = [each for each in explained(folder, "rounding") if each.state == "unresolved"]
    assert "Did you mean `lost-part`?" in item.hint
    [card] = [each for each in explained(folder, "kahan-sum") if each.state == "unresolved"]
    assert "Did you mean `pairwise-sum`?" in card.hint
    assert one(explained(BASE, "kahan-sum"), "card:pairwise-sum").state == "planned"
