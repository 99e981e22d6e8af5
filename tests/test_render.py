"""A card's tokens become clean HTML, with every link in the form that an output can place."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from generator.cards import glossary_file, prose
from generator.cards.glossary import Glossary, Mention
from generator.cards.model import Calc, Card, Claim, Fact, Fence, FigureLink, Param, Scenario
from generator.cards.parse import parse
from generator.edition.pages import SiteAddresses
from generator.evidence import derived, fact_file, settings
from generator.evidence.derived import Derived
from generator.evidence.evidence import load_evidence
from generator.evidence.facts import PublicFact
from generator.evidence.settings import Setting
from generator.exporters.handbook import HandbookAddresses
from generator.lang import Lang
from generator.library import library
from generator.render.html import (
    RenderedCard,
    RenderedSection,
    illustrated,
    localise,
    render,
    sanitised,
)
from generator.tex.mathml import mathml

ROOT = Path(__file__).parents[1]
CARD = (Path(__file__).parent / "library/cards/numerics/kahan-sum.md").read_text(encoding="utf-8")

FACTS, _ = fact_file.read(
    (Path(__file__).parent / "library/cards/facts.yml").read_text(encoding="utf-8"), "facts.yml"
)
DEMOS = Path(__file__).parent / "library/runnable_demos"
EVIDENCE, _ = load_evidence(DEMOS / "evidence", DEMOS)


@dataclass(frozen=True)
class Resolver:
    """Every card but one is written, and every claim holds."""

    planned: str = "pairwise-sum"
    asked: list[Claim] = field(default_factory=list)
    glossary: Glossary = field(default_factory=Glossary)

    def verdict(self, claim: Claim) -> str:
        """What the evidence says."""
        self.asked.append(claim)
        return "refuted" if claim.refuted else "proven"

    def fact(self, link: Fact) -> PublicFact | None:
        """The fact of the small base, if it has it."""
        return FACTS.find(link)

    def setting(self, link: Param) -> Setting | None:
        """The setting of the small base's record, if it has it."""
        return settings.find(link.demo, link.name, EVIDENCE)

    def derived(self, link: Calc) -> Derived | None:
        """What it is worth without a scenario."""
        found = derived.judge(link, derived.Ground(Scenario(), {}, EVIDENCE, FACTS))
        return found if isinstance(found, Derived) else None

    def is_drawn(self, link: FigureLink) -> bool:
        """Whether there is a figure of that name."""
        return link.figure != "undrawn"

    def printed(self, card: Card, fence: Fence) -> str | None:
        """Each fence prints its own code, under the name of its card."""
        return f"{card.id}\n{fence.code}"

    def is_written(self, card: str) -> bool:
        """Whether a card exists."""
        return card != self.planned

    def mentions(self, text: str, lang: Lang) -> Iterator[Mention]:
        """The terms in a text."""
        return self.glossary.mentions(text, lang)


def insights(markdown: str, glossary: Glossary | None = None) -> str:
    """The HTML of ``markdown`` in the English insights of a card."""
    before, after = CARD.split("## Key insights\n", 1)
    rest = after[after.index("## Worked example") :]
    card, _ = parse(f"{before}## Key insights\n\n{markdown}\n\n{rest}", "numerics/kahan-sum.md")
    assert card is not None
    resolver = Resolver(glossary=glossary or Glossary())
    return render(card, resolver).sections["en"]["insights"].html


@pytest.fixture(scope="module")
def card() -> Card:
    """A whole card."""
    found, problems = parse(CARD, "numerics/kahan-sum.md")
    assert found is not None
    assert not problems
    return found


@pytest.fixture(scope="module")
def rendered(card: Card) -> RenderedCard:
    """The same card as HTML."""
    return render(card, Resolver())


CASES = {
    "emphasis": ("*a* **b** `c<d`", "<p><em>a</em> <strong>b</strong> <code>c&lt;d</code></p>\n"),
    "text is escaped": (r"a \<b> & c", "<p>a &lt;b&gt; &amp; c</p>\n"),
    "a line's end": ("one\ntwo", "<p>one two</p>\n"),
    "a hard break": ("one\\\ntwo", "<p>one<br>two</p>\n"),
    "a tight list": ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
    "an ordered list": ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    "a quotation": ("> a", "<blockquote><p>a</p></blockquote>"),
    "a callout": (
        "> [!tip]\n> a",
        '<div class="pd-callout" data-kind="tip"><p class="pd-callout-title">Tip</p><p>a</p></div>',
    ),
    "a table scrolls": (
        "| a | b |\n|---|--:|\n| 1 | 2 |",
        '<div class="pd-scroll" tabindex="0"><table><thead><tr><th>a</th><th align="right">b</th></tr>'
        '</thead><tbody><tr><td>1</td><td align="right">2</td></tr></tbody></table></div>',
    ),
    "code is highlighted, but for what looks like text": (
        "```python\nx = 1\n```",
        '<pre class="highlight" tabindex="0"><code>x <span class="o">=</span> '
        '<span class="mi">1</span></code></pre>',
    ),
    "code of no language": (
        "```\na<b\n```",
        '<pre class="highlight" tabindex="0"><code>a&lt;b</code></pre>',
    ),
    "inline math": ("$x$", "<p><math><mi>x</mi></math></p>"),
    "display math": (
        "$$\nx\n$$",
        '<div class="pd-math"><math display="block"><mi>x</mi></math></div>',
    ),
    "a claim": (
        "[4×](claim:float_sums/additions_ratio)",
        '<p><a class="pd-claim" data-verdict="proven" href="own:ev-float_sums-additions_ratio">4×</a></p>',
    ),
    "a claim on a GPU": (
        "[4×](claim:float_sums/additions_ratio@h200)",
        '<p><a class="pd-claim" data-verdict="proven" '
        'href="own:ev-float_sums-additions_ratio-h200">4×</a></p>',
    ),
    "a refuted number": (
        "[5×](wrong:float_sums/additions_ratio)",
        '<p><a class="pd-claim" data-verdict="refuted" href="own:ev-float_sums-additions_ratio">5×</a></p>',
    ),
    "a citation": (
        '[fsum](source:python-fsum "a & b")',
        '<p><a class="pd-cite" data-source="python-fsum" '
        'title="math — Mathematical functions, a &amp; b" '
        'href="https://docs.python.org/3/library/math.html">fsum</a></p>',
    ),
    "a public fact": (
        "[16 GB](fact:toy-gpu/memory)",
        '<p><a class="pd-fact" title="the toy GPU: memory. Toy GPU datasheet, '
        'Table 1, &lt;row&gt; 2 &amp; 3 (2026-11-28)" href="https://example.org/toy-gpu.pdf">16 GB</a></p>',
    ),
    "a setting": (
        "[10,000](param:float_sums/count)",
        '<p><a class="pd-claim" data-verdict="setting" href="own:ev--set-float_sums-count">10,000</a></p>',
    ),
    "a setting that is not known": (
        "[10,000](param:float_sums/size)",
        '<p><span class="pd-doubtful">10,000</span></p>',
    ),
    "a calculation": (
        '[32 GB](calc: "2 × {fact:toy-gpu/memory}")',
        '<p><a class="pd-claim" data-verdict="follows" '
        f'href="own:ev--calc-{sha256("2 × {fact:toy-gpu/memory}".encode()).hexdigest()[:8]}">32 GB</a></p>',
    ),
    "a calculation from assumptions": (
        '[32 GB](calc: "2 × 16 GB")',
        '<p><a class="pd-claim" data-verdict="assumed" '
        f'href="own:ev--calc-{sha256("2 × 16 GB".encode()).hexdigest()[:8]}">32 GB</a></p>',
    ),
    "a calculation that is wrong": (
        '[31 GB](calc: "2 × {fact:toy-gpu/memory}")',
        '<p><span class="pd-doubtful">31 GB</span></p>',
    ),
    "a fact that is not known": (
        "[16 GB](fact:toy-gpu/size)",
        '<p><span class="pd-doubtful">16 GB</span></p>',
    ),
    "a given quantity": ("[80 GB](given:)", '<p><span class="pd-given">80 GB</span></p>'),
    "a link to a card": ("[r](card:rounding)", '<p><a href="card:rounding">r</a></p>'),
    "a link into a card": (
        "[r](card:rounding#accumulate)",
        '<p><a href="card:rounding#accumulate">r</a></p>',
    ),
    "a link to a planned card": (
        "[p](card:pairwise-sum)",
        '<p><span class="pd-planned">p</span></p>',
    ),
    "a web link": (
        "[w](https://example.org/?a=1&b=2)",
        '<p><a href="https://example.org/?a=1&amp;b=2">w</a></p>',
    ),
    "a mail address": ("[m](mailto:a@b.org)", '<p><a href="mailto:a@b.org">m</a></p>'),
    "a formula in a link": (
        "[$x$](card:rounding)",
        '<p><a href="card:rounding"><math><mi>x</mi></math></a></p>',
    ),
}


class Events(HTMLParser):
    """What a browser's parser would see, whichever way it is written."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[object] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.seen.append(
            (tag, sorted((name, _declarations(name, value or "")) for name, value in attrs))
        )

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        self.seen.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """Text, without the blanks between blocks."""
        if data.strip():
            self.seen.append(data.strip("\n"))


def _declarations(name: str, value: str) -> str:
    """A style however it is spaced; any other value as it is."""
    return re.sub(r"\s*([:;])\s*", r"\1", value).rstrip(";") if name == "style" else value


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES.keys())
def test_markdown_becomes_this_html(source: str, expected: str) -> None:
    """Each construct that cards may use, in the markup that styles and scripts rely on."""
    assert Events(insights(source)).seen == Events(expected).seen


def test_a_line_s_end_is_a_space_unless_it_stands_between_chinese_characters() -> None:
    """汉字 close up over the end of a line; a Latin word keeps its space."""
    text = CARD.replace("不多占数组大小的内存。", "不多占\n数组\nPyTorch\n内存。", 1)
    found, _ = parse(text, "numerics/kahan-sum.md")
    assert found is not None
    assert "不多占数组 PyTorch 内存" in render(found, Resolver()).sections["zh"]["insights"].html


def test_what_a_card_cannot_say_is_taken_out() -> None:
    """Were markup to slip through the parser, no script, handler or foreign scheme would reach a page."""
    hostile = (
        '<p onclick="x()">a<script>x()</script><img src="http://h/x.png">'
        '<a href="javascript:x()">b</a><a href="data:text/html,x">c</a><iframe src="/"></iframe>'
        '<math><mtext><style>*{}</style></mtext><mi href="javascript:x()">d</mi></math></p>'
    )
    clean = sanitised(hostile)
    for word in ("onclick", "script", "img", "data:", "iframe", "style", "http:"):
        assert word not in clean
    assert clean.startswith("<p>a")


FORMULAS = (
    r"\frac{a}{b}+\sqrt[3]{x}",
    r"\sum_{i=1}^{n} x_i \le \int_0^1 f(t)\,dt",
    r"\begin{aligned}a&=b\\&=c\end{aligned}",
    r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
    r"\begin{pmatrix}1&0\\0&1\end{pmatrix}",
    r"\underbrace{a+b}_{\text{two}}\;\overset{!}{=}\;\hat{x}",
    r"\lfloor x\rfloor\lceil y\rceil\lVert z\rVert\left(\frac12\right)",
    r"\operatorname*{arg\,min}_{k}\mathbb{E}[\mathbf{x}]\mathcal{O}(n)\boldsymbol{\theta}",
    r"\boxed{x}\quad\color{red}{y}\quad\not=",
)


@pytest.mark.parametrize("tex", FORMULAS)
def test_formulas_pass_the_sanitiser_unharmed(tex: str) -> None:
    """The sanitiser knows every element and attribute that formulas need."""
    for display in (False, True):
        html = mathml(tex, display)
        assert Events(sanitised(html)).seen == Events(html).seen


def test_every_formula_of_our_cards_passes_the_sanitiser_unharmed() -> None:
    """The same for each formula that the base really has."""
    found, _ = library.load(ROOT / "cards")
    assert found is not None
    count = 0
    for card in found.cards.values():
        for token in prose.formulas(card):
            html = mathml(token.content, token.type == "math_block")
            assert Events(sanitised(html)).seen == Events(html).seen
            count += 1
    assert count > 100


def test_both_languages_have_all_sections_and_pair_their_items(
    card: Card, rendered: RenderedCard
) -> None:
    """Sections come in both languages; follow-ups have the same ids in the same order."""
    assert (
        rendered.sections["zh"].keys()
        == rendered.sections["en"].keys()
        == card.sections["zh"].keys()
    )
    ids = {
        lang: [item.id for item in half["followups"].items]
        for lang, half in rendered.sections.items()
    }
    followups = ["lost-part", "cancellation", "pairwise", "optimised-away"]
    assert ids["zh"] == ids["en"] == followups
    points = rendered.sections["en"]["points"]
    assert points.html.strip() == ""
    assert [item.id for item in points.items] == [
        "low-digits", "loop", "reassociation", "sorted-is-exact",
    ]  # fmt: skip
    assert points.items[3].body == '"Sort them and the sum is exact."'
    assert rendered.sections["en"]["followups"].items[0].title == "How is the lost part found?"


def test_pitfalls_are_items_and_what_stands_around_their_list_is_not() -> None:
    """Each pitfall is a piece of its own, which both languages can share a place for, as is its heading."""
    text = CARD.replace("## Pitfalls\n", "## Pitfalls\n\nBefore.\n", 1)
    found, _ = parse(text.replace("## 追问", "之后。\n\n## 追问", 1), "numerics/kahan-sum.md")
    assert found is not None
    rendered = render(found, Resolver()).sections
    assert rendered["en"]["pitfalls"].html.strip() == "<p>Before.</p>"
    assert rendered["zh"]["pitfalls"].html.strip() == "<p>之后。</p>"
    ids = [item.id for item in rendered["en"]["pitfalls"].items]
    assert ids == ["sorting", "twice-the-memory", "printing"]
    second = rendered["en"]["pitfalls"].items[1].body
    assert second == '"Compensation doubles the memory." It keeps one more number.'


def test_a_figure_stands_over_its_caption() -> None:
    """What the caption links to, and formulas in it, are as in any text; a figure that is lacking leaves it."""
    caption = "Errors: [53](claim:float_sums/significant_bits) bits, $n$"
    placed = insights(f"![{caption}](figure:float_sums/error@h200)")
    assert placed == (
        '<figure class="pd-figure" data-figure="float_sums/h200/error"><figcaption>Errors: '
        '<a class="pd-claim" data-verdict="proven" href="own:ev-float_sums-significant_bits">53</a> bits, '
        f"{sanitised(mathml('n'))}</figcaption></figure>"
    )
    lacking = insights("![Words](figure:float_sums/undrawn)")
    assert "data-figure" not in lacking
    assert '<figcaption class="pd-doubtful">Words</figcaption>' in lacking
    drawn = illustrated(Markup(placed), lambda *key: ("me-" + "-".join(key), Markup("<svg></svg>")))
    assert drawn.startswith(
        '<figure class="pd-figure" id="me-float_sums-h200-error"><svg></svg><figcaption>Errors: '
    )


def test_text_that_looks_like_a_figure_is_text() -> None:
    """Only what the parser took for a figure is drawn."""
    asked: list[object] = []
    shown = insights('`<figure class="pd-figure" data-figure="a/b/c">` in code')
    illustrated(Markup(shown), lambda *key: (asked.append(key) or "", Markup()))
    assert asked == []


def test_every_claim_is_asked_about_once_where_it_stands(card: Card) -> None:
    """The verdict of each claim comes from the resolver, in the order of the text."""
    resolver = Resolver()
    render(card, resolver)
    assert resolver.asked == list(card.claims())


def test_tokens_stay_as_they_are(card: Card) -> None:
    """Tokens are shared by all who read a card."""
    tokens = [section.tokens for half in card.sections.values() for section in half.values()]
    before = copy.deepcopy(tokens)
    render(card, Resolver())
    assert tokens == before


def test_the_same_card_gives_the_same_html(card: Card, rendered: RenderedCard) -> None:
    """Rendering depends on nothing but the card."""
    assert render(card, Resolver()) == rendered


@dataclass(frozen=True)
class Handbook:
    """All cards in one document: ids carry the card's name."""

    own: str

    def card(self, card: str, anchor: str = "") -> str:
        """A card, or a place in it."""
        return f"#{card}--{anchor}" if anchor else f"#card-{card}"

    def name(self, anchor: str) -> str:
        """The id of a place."""
        return f"{self.own}--{anchor}"


def test_one_rendering_is_placed_in_any_output() -> None:
    """Links into the same card and to others get the addresses of the output."""
    html = (
        '<a href="own:ev-a-b">1</a> <a href="card:x">2</a> <a href="card:x#y">3</a> '
        '<a href="https://example.org/card:x">4</a>'
    )
    assert localise(html, Handbook("me")) == (
        '<a href="#me--ev-a-b">1</a> <a href="#card-x">2</a> <a href="#x--y">3</a> '
        '<a href="https://example.org/card:x">4</a>'
    )


# --- terms ---------------------------------------------------------------------------------------

GLOSSARY, _ = glossary_file.read(
    (Path(__file__).parent / "library/cards/glossary.yml").read_text(encoding="utf-8"), "x.yml"
)
TERM = re.compile(
    r'<a class="pd-term" data-term="([^"]*)" title="([^"]*)" href="([^"]*)">([^<]*)</a>'
)


def marked(markdown: str) -> list[str]:
    """The words that lead to the glossary."""
    return [found[4] for found in TERM.finditer(insights(markdown, GLOSSARY))]


def test_a_term_leads_to_the_glossary_with_its_meaning() -> None:
    """Its names, the reader's own first, its meaning and its address, escaped; the text stays as written."""
    html = insights("Of all \\<i> Sums & more.", GLOSSARY)
    [found] = TERM.finditer(html)
    meaning = "Many numbers added into one: &lt;sum&gt; &amp; more."
    assert found.groups() == ("sum · 求和", meaning, "term:sum", "Sums")
    assert html == f"<p>Of all &lt;i&gt; {found[0]} &amp; more.</p>"


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("a sum, a sum\n\nand a sum", ["sum"]),
        ("a partial sum, a sum, a ksum", ["partial sum", "sum", "ksum"]),
        ("a ksum, or compensated summation", ["ksum"]),
        ("**a sum** *a ULP*", ["sum", "ULP"]),
        ("| a sum | b |\n|--|--|\n| a ULP | c |", ["ULP"]),
        ("### A sum\n\nA ULP", ["ULP"]),
        ("[a sum](card:rounding) `sum` $\\text{sum}$ then a sum", ["sum"]),
        ("[a sum](https://x.example) [sum](given:) [a sum](source:python-fsum)", []),
        ("![A sum](figure:float_sums/error)\n\nA ULP", ["ULP"]),
        ("```python\nsum\n```\n\nA grand total is a Kahan addition.", []),
        ("> [!note]\n> A sum", ["sum"]),
    ],
)
def test_a_term_is_marked_where_it_stands_first_in_the_text(
    markdown: str, expected: list[str]
) -> None:
    """Once a section, by the longest form; not in titles, links, code and captions, nor what is never said."""
    assert marked(markdown) == expected


def test_the_titles_of_follow_ups_have_no_terms_and_each_section_begins_anew(card: Card) -> None:
    """A title unfolds what is below it; what one section has told, another tells again."""
    rendered = render(card, Resolver(glossary=GLOSSARY))
    for half in rendered.sections.values():
        told = {name: _terms(section) for name, section in half.items()}
        assert all(len(set(terms)) == len(terms) for terms in told.values())
        assert sum("term:partial-sum" in terms for terms in told.values()) > 1
        for section in half.values():
            assert all("pd-term" not in item.title for item in section.items)


def _terms(section: RenderedSection) -> list[str]:
    html = section.html + "".join(item.body for item in section.items)
    return [found[3] for found in TERM.finditer(html)]


def test_a_term_has_the_address_of_each_output() -> None:
    """Beside the card's page on a site, in the same file in a handbook."""
    html = Markup(insights("A ULP", GLOSSARY))
    assert 'href="../../glossary/#term-ulp"' in localise(html, SiteAddresses("cards/x/"))
    assert 'href="#term-ulp"' in localise(html, HandbookAddresses("x"))
