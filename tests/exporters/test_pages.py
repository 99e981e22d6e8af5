"""The pages of a small base, whole, so that a change of any is seen; and what stands behind them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from generator.edition import pages
from generator.edition.edition import Edition, bind
from generator.edition.figure_table import table_file
from generator.evidence.values import shown
from generator.library.shares import Shares
from runnable_demos.lab.metrics import Axis, Category, Figure, Kind, Metric, Series
from tests.demos.sketched import LIFETIMES, SCHEDULE, STAGES, TILES
from tests.exporters.conftest import of_kind

BOTH = {"zh": "零", "en": "zero"}


def test_the_pages_of_the_small_base(
    edition: Edition, demos: Path, tmp_path: Path, golden: Callable[[str, Path], None]
) -> None:
    """Each body without its drawings, a line an element, below its address; of the documents what has live parts."""
    for page in pages.pages(edition):
        if page.is_document and page.address not in ("docs/", "docs/proofs/"):
            continue  # words of the program, which no base changes
        body = re.sub(r"<svg.*?</svg>", "<svg/>", page.body, flags=re.DOTALL)
        body = re.sub(
            r"\s*(<(?:section|article|header|div|table|tr|p|h\d|li|ul|ol|dl|nav))", r"\n\1", body
        )
        file = tmp_path / f"{page.address.rstrip('/') or 'index'}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body.strip() + "\n", encoding="utf-8")
    golden("pages", tmp_path)


def test_a_base_that_names_an_address_links_to_it(edition: Edition, demos: Path) -> None:
    """Each card and the page of reports lead there, with the card filled in; without one they lead to the page."""
    named = "https://example.org/new?title={card}&file={path}"
    found = {page.address: page.body for page in pages.pages(edition, named)}
    filled = "https://example.org/new?title=kahan-sum&amp;file=numerics/kahan-sum.md"
    assert f'href="{filled}"' in found["cards/kahan-sum/"]
    assert 'href="https://example.org/new?title=&amp;file="' in found["report/"]
    assert "{card}&amp;file={path}" in found["report/"], "the page's script fills it in"
    without = {page.address: page.body for page in pages.pages(edition)}
    assert 'href="../../report/?card=kahan-sum"' in without["cards/kahan-sum/"]
    assert "data-pd-report-to" not in without["report/"]


def metric(value: bool | int | float, unit: str = "", bound: float | None = None) -> Metric:
    """A metric with this value."""
    reason = None if bound is None else BOTH
    kind = "exact" if bound is None else "bounded"
    return Metric("m", value, unit, kind, BOTH, BOTH, bound, reason)  # type: ignore[arg-type]


VALUES = [
    (metric(True), "成立", "holds"),
    (metric(False), "不成立", "fails"),
    (metric(85174520, "B"), "85,174,520 B (81.23 MiB)", "85,174,520 B (81.23 MiB)"),
    (metric(2 * 10**9, "FLOP"), "2,000,000,000 FLOP (2 GFLOP)", "2,000,000,000 FLOP (2 GFLOP)"),
    (metric(1000, "B"), "1,000 B", "1,000 B"),
    (metric(12.0, "B/param"), "12 B/param", "12 B/param"),
    (metric(1 / 3), "0.333333", "0.333333"),
    (metric(0.0), "0", "0"),
    (metric(1.5e-7, "s"), "1.5×10⁻⁷ s", "1.5×10⁻⁷ s"),
    (metric(5e-17, "", 3e-16), "5×10⁻¹⁷ ≤ 3×10⁻¹⁶", "5×10⁻¹⁷ ≤ 3×10⁻¹⁶"),
    (metric(2e-7, "", 1e-6), "2×10⁻⁷ ≤ 10⁻⁶", "2×10⁻⁷ ≤ 10⁻⁶"),
]


@pytest.mark.parametrize(("found", "zh", "en"), VALUES)
def test_values_are_shown_with_their_units(found: Metric, zh: str, en: str) -> None:
    """Whole numbers in full, others to six figures, bounds behind what stays below them."""
    assert shown(found) == {"zh": zh, "en": en}


def test_a_figure_as_a_table_has_a_row_for_each_place() -> None:
    """Series with different places leave cells empty; numbers read as on the axes."""
    series = (
        Series("s", BOTH, (1.0, 3.0), (10.0, 30.0)),
        Series("s", BOTH, (2.0, 3.0), (0.5, 1234567.0), "theory"),
    )
    figure = Figure("f", BOTH, Axis(BOTH), Axis(BOTH), series)
    assert pages.figure_rows(figure) == [
        ["1", "10", ""],
        ["2", "", "0.5"],
        ["3", "30", "1,234,567"],
    ]


def test_a_figure_with_names_on_its_axis_has_them_in_its_table() -> None:
    """Categories count from zero."""
    axis = Axis(
        BOTH,
        categories=(Category("a", {"zh": "甲", "en": "a"}), Category("b", {"zh": "乙", "en": "b"})),
    )
    figure = Figure(
        "f", BOTH, axis, Axis(BOTH), (Series("s", BOTH, (0.0, 1.0), (5.0, 6.0), "bar"),)
    )
    assert pages.figure_rows(figure) == [
        [{"zh": "甲", "en": "a"}, "5"],
        [{"zh": "乙", "en": "b"}, "6"],
    ]


def test_a_mechanism_has_a_table_of_its_parts() -> None:
    """Heads in both languages, then a row a part, with the names of its row and kind."""
    heads, first, *_ = pages.part_rows(LIFETIMES)
    assert [head["en"] for head in heads if isinstance(head, dict)] == [
        "tensor", "kind", "from", "to", "note",
    ]  # fmt: skip
    assert first == [
        {"zh": "词嵌入的输出", "en": "output of the embedding"},
        {"zh": "存下", "en": "saved"}, "0 ms", "9 ms", "",
    ]  # fmt: skip
    *_, last = pages.part_rows(TILES)
    assert last == [{"zh": "3", "en": "3"}] * 2 + [{"zh": "还没到", "en": "to come"}, ""]
    *_, last = pages.part_rows(STAGES)
    assert last[1:] == [
        "3",
        {"zh": "优化器状态", "en": "optimizer states"},
        "18 GB",
        "24 GB",
        "24 GB",
    ]


def test_a_mechanism_is_drawn_for_both_screens(edition: Edition) -> None:
    """In the text of a card two drawings stand together, in the vault's file one; all ids differ."""
    key = ("float_sums", "cpu")
    record = edition.library.evidence.records[key]
    figure = replace(SCHEDULE, name="error")
    other = replace(record, result=replace(record.result, figures=(figure,)))
    evidence = replace(edition.library.evidence, records={key: other})
    changed = bind(replace(edition.library, evidence=evidence), edition.demos)
    page = pages.article(
        changed, changed.library.cards["rounding"], pages.SiteAddresses("cards/rounding/")
    )
    for lang in ("zh", "en"):
        start = page.index(f'id="fig-float_sums-error-{lang}"')
        drawn = page[start : page.index("</figure>", start)]
        assert re.findall(r'<img[^>]* width="(\d+)"', drawn) == ["720", "300"]
        assert drawn.count('<div class="pd-drawings" role="img" aria-label="') == 1
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert table_file(figure).count(",F1\n") == 4  # too long for the page, which links to it
    assert changed.figure_file(other, figure, "zh").count("<svg") == 1


def test_what_is_refuted_is_printed_as_it_is_said(edition: Edition) -> None:
    """The measured number has the unit and the precision of the one that it refutes."""
    card = edition.library.cards["float-bytes"]
    (found,) = edition.refutations(card)
    assert (found.said, found.found) == ({"zh": "4 B", "en": "4 B"}, {"zh": "8 B", "en": "8 B"})
    truths = list(edition.refutations(edition.library.cards["rounding"]))
    assert [each.said["en"] for each in truths] == [
        "the naive sum is exact",
        "0.1 is stored exactly",
    ]
    assert {each.found["en"] for each in truths} == {"fails"}


@pytest.mark.parametrize("kind", ["sampled", "measured", "computed"])
def test_only_what_is_read_off_a_run_counts_as_proven(edition: Edition, kind: Kind) -> None:
    """On the home page, the card and the about page the kind has its own count."""
    card = edition.library.cards["float-bytes"]
    numbers = {c.metric for c in card.claims() if not c.refuted}
    assert edition.tally(card) == {"proven": len(numbers), "refuted": 1}
    other = of_kind(edition, kind)
    assert other.tally(card) == {kind: len(numbers), "refuted": 1}
    assert other.proven(card) == 0
    assert other.states["proven"] < edition.states["proven"]
    assert other.states[kind] > 0
    body = pages.article(other, card, pages.SiteAddresses("cards/float-bytes/"))
    assert f'class="pd-claim" data-verdict="{kind}"' in body
    assert f'<tbody data-kind="{kind}">' in body


def test_the_about_page_says_what_stands_behind_the_numbers(edition: Edition) -> None:
    """A bar that is told in words, its key, and a row a card; nothing of it where there are no numbers."""
    about = next(page for page in pages.pages(edition) if page.address == "docs/proofs/")
    section = about.body.split('id="shares">')[1].split("</section>")[0]
    assert "54 个，其中 96.3%" in section
    assert (
        "70.4% measured, 11.1% computed, 14.8% cited, 3.7% assumed, 0% without a link." in section
    )
    widths = [int(each) for each in re.findall(r'data-share="\w+" x="\d+" width="(\d+)"', section)]
    assert widths == [704, 111, 148, 37]
    rows = re.findall(r'<th scope="row"><a href="../../cards/([a-z-]+)/">', section)
    assert rows == list(edition.library.cards)
    assert "shares" in {each.anchor for each in about.headings}

    none = bind(edition.library)
    vars(none)["shares"] = dict.fromkeys(edition.library.cards, Shares.together([]))
    about = next(page for page in pages.pages(none) if page.address == "docs/proofs/")
    assert 'id="shares"' not in about.body
    assert "shares" not in {each.anchor for each in about.headings}


def test_what_is_refuted_is_not_proven(edition: Edition) -> None:
    """A card that only refutes proves nothing."""
    card = edition.library.cards["rounding"]
    refuted = {c.metric for c in card.claims() if c.refuted}
    assert edition.tally(card)["refuted"] == len(refuted)
    assert edition.proven(card) == len({c.metric for c in card.claims() if not c.refuted})


def test_a_sample_is_shown_with_its_error_and_its_closed_form() -> None:
    """Two digits of the error, as many places of the value, and the unit."""
    rate = Metric("m", 0.48761, "", "sampled", BOTH, BOTH, error=0.0113, closed_form=0.5)
    assert shown(rate) == {
        "zh": "0.488 ± 0.011（闭式 0.5）",
        "en": "0.488 ± 0.011 (closed form 0.5)",
    }
    count = Metric("m", 1793.6, "B", "sampled", BOTH, BOTH, error=23.2)
    assert shown(count)["en"] == "1,794 ± 23 B"


def test_a_stale_record_is_shown_as_stale(edition: Edition) -> None:
    """The panel warns, and no claim of it counts as proven."""
    library = edition.library
    stale = replace(
        library, evidence=replace(library.evidence, stale=frozenset({("float_sums", "cpu")}))
    )
    old = replace(edition, library=stale)
    card = library.cards["kahan-sum"]
    assert [panel.stale for panel in old.panels(card)] == [True]
    assert old.proven(card) == 0
    body = pages.article(old, card, pages.SiteAddresses("cards/kahan-sum/"))
    assert "The code has changed since this record" in body
