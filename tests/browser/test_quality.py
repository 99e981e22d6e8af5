"""Every page type: accessible, light, still, of one host, whole without scripts and on paper."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path

import pytest

from tests.browser.conftest import PHONE, ROOT, Built, Open, address

CARD = "cards/activation-checkpointing/"
PAGES = {
    "home": "",
    "module": "deep-learning/",
    "path": "paths/first-interview/",
    "card": CARD,
    "graph": "graph/",
    "study": "study/",
    "demo": "demos/activation_checkpointing/",
    "glossary": "glossary/",
    "documents": "docs/",
    "proofs": "docs/proofs/",
    "contributing": "docs/contributing/",
    "exporters": "docs/exporters/",
    "report": "report/",
    "missing": "404.html",
    "handbook": "handbook",
    "handbook-card": "handbook#card-activation-checkpointing",
    "handbook-study": "handbook#study",
    "handbook-glossary": "handbook#glossary",
}
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
AXE = (ROOT / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def violations(page, only: list[str] = LEVELS) -> list[str]:
    """What axe finds against WCAG 2.2 AA on the page as it is, each with its first element."""
    page.evaluate("document.getAnimations().forEach((each) => each.finish())")
    return page.evaluate(
        """async (only) => {
          for (const away of document.querySelectorAll(".pd-handbook-main > .pd-card:not(.pd-view)")) away.remove();
          const { violations } = await axe.run(document, { runOnly: only, resultTypes: ["violations"] });
          return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
        }""",
        only,
    )


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(visit: Open, name: str) -> None:
    """No violation of WCAG 2.2 AA, in light and dark, on a large screen and a phone."""
    page = visit(PAGES[name], mode="both")
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE)
    assert violations(page) == []
    page.set_viewport_size(PHONE)
    page.wait_for_timeout(100)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => getComputedStyle(document.body).color.match(/\\d+/)[0] > 150")
    assert violations(page, ["color-contrast"]) == []  # nothing else depends on the scheme


@pytest.mark.parametrize(
    "act",
    [
        lambda page: (
            page.keyboard.press("/"),
            page.wait_for_selector(".pd-search-input"),
            page.keyboard.type("检查点"),
            page.wait_for_selector(".pd-hit"),
        ),
        lambda page: page.keyboard.press("?"),
        lambda page: page.locator(".pd-claim:visible").first.focus(),
    ],
    ids=["search", "help", "proof"],
)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_what_opens(visit: Open, act, dark: bool) -> None:
    """Dialogs and the proof beside a number hold to the same standard."""
    page = visit(CARD, dark=dark)
    page.evaluate(AXE)
    act(page)
    assert violations(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_needs_no_sideways_scrolling(visit: Open, name: str) -> None:
    """In no language mode is a page wider than a phone."""
    page = visit(PAGES[name], phone=True)
    for mode in ("zh", "en", "both"):
        page.evaluate("(mode) => window.pd.set('mode', mode)", mode)
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, mode


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_nothing_jumps(visit: Open, phone: bool) -> None:
    """The shifts of a card's layout while it loads, and while it is scrolled, add up to under 0.05."""
    page = visit("report/", phone=phone)
    page.add_init_script(
        """window.shift = 0;
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
        }).observe({ type: "layout-shift", buffered: true });"""
    )
    page.goto(page.url.replace("report/", CARD))
    page.wait_for_load_state("networkidle")
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(200)
    assert page.evaluate("window.shift") < 0.05


def test_a_card_page_is_light(built: Built) -> None:
    """The heaviest card's HTML with our styles and scripts is at most 110 KB, gzipped file by file.

    It holds both languages, every proof, and each drawing for two widths; nothing else is fetched to read it.
    """
    own = [built.site / "proofdeck.css", built.site / "proofdeck.js"]
    shared = sum(len(gzip.compress(path.read_bytes())) for path in own)
    pages = (built.site / "cards").glob("*/index.html")
    weights = {path.parent.name: shared + len(gzip.compress(path.read_bytes())) for path in pages}
    assert max(weights.values()) <= 110_000, weights


def test_a_card_page_loads_no_library(visit: Open) -> None:
    """MiniSearch comes with the first search, and ts-fsrs with the study page."""
    page = visit(CARD)
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert not [name for name in loaded if name.endswith(("minisearch.js", "ts-fsrs.js", ".json"))]
    page.keyboard.press("/")
    page.wait_for_function("() => Boolean(window.MiniSearch)")


@pytest.mark.parametrize("path", [CARD, "handbook"])
def test_without_scripts_everything_shows(visit: Open, path: str) -> None:
    """Both languages, all sections and all answers; no control that would do nothing."""
    page = visit(path, mode=None, scripts=False)
    card = page.locator('article[data-card="activation-checkpointing"]')
    for lang in ("zh", "en"):
        assert card.locator(f'[data-section="answer"] [data-lang="{lang}"] p').first.is_visible()
        answers = card.locator(f'[data-lang="{lang}"] .pd-answer')
        assert answers.count() >= 3
        assert all(answer.is_visible() for answer in answers.all())
    card.locator(".pd-demo > summary").first.click()
    assert card.locator('[data-section="evidence"] .pd-metrics').first.is_visible()
    for control in ("[data-pd-set]", "[data-pd-open]", "[data-pd-copy]"):
        shown = page.locator(control).evaluate_all(
            "(all) => all.filter((e) => e.checkVisibility()).length"
        )
        assert shown == 0, control


@pytest.mark.parametrize("mode", ["zh", "en", "both"])
def test_a_card_prints_on_few_sheets(visit: Open, mode: str) -> None:
    """Six sheets, both sides, or eight side by side; every answer open; nothing that only a screen needs."""
    page = visit(CARD, mode=mode, dark=True)
    printed = page.pdf(prefer_css_page_size=True)
    most = 16 if mode == "both" else 12
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= most
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    shown = '[data-lang="zh"]' if mode == "zh" else '[data-lang="en"]'
    assert page.locator(f"{shown} .pd-answer").first.evaluate(
        "(answer) => answer.getBoundingClientRect().height > 0 && answer.checkVisibility()"
    )
    for hidden in (".md-header", ".pd-controls", ".pd-depth", ".md-sidebar", ".md-footer"):
        assert not page.locator(hidden).first.is_visible()
    paper = page.evaluate("getComputedStyle(document.querySelector('.pd-card')).color")
    assert max(map(int, re.findall(r"\d+", paper)[:3])) < 100, "ink is dark on paper"


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_long_words_and_right_to_left_text_hold(visit: Open, phone: bool) -> None:
    """A word of 300 letters, a formula of 60 terms and a page in Arabic keep within the page."""
    page = visit(CARD, mode="both", phone=phone)
    page.evaluate(
        """() => {
          const p = document.querySelector(".pd-half p");
          p.append("x".repeat(300), " اختبار النص الطويل ".repeat(30));
          const sum = "<mi>x</mi><mo>+</mo>".repeat(60);
          p.insertAdjacentHTML("afterend", `<math display="block"><mrow>${sum}</mrow></math>`);
          document.querySelector(".pd-title .pd-zh").textContent = "W".repeat(120);
          document.querySelector(".pd-number").textContent = "9".repeat(80);
        }"""
    )
    for direction in ("ltr", "rtl"):
        page.evaluate(
            "(dir) => { document.body.dir = document.documentElement.dir = dir }", direction
        )
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, direction


def test_pages_say_who_they_are(built: Built) -> None:
    """Title, description, address and picture in every page's head; all of them in the sitemap."""
    sitemap = (built.site / "sitemap.xml").read_text(encoding="utf-8")
    for path in [p for p in PAGES.values() if p.endswith("/") or not p]:
        html = (built.site / path / "index.html").read_text(encoding="utf-8")
        head = html[: html.index("</head>")]
        for mark in (
            '<meta name="description"',
            'property="og:title"',
            'property="og:description"',
        ):
            assert mark in head, (path, mark)
        assert re.search(r"<title>[^<]*[一-鿿][^<]* · [^<]*[A-Za-z][^<]*</title>", head), path
        assert f"/{path}</loc>" in sitemap, path
    assert (built.site / "social.png").stat().st_size > 1000


def test_the_handbook_needs_no_network(visit: Open, built: Built) -> None:
    """It names no file beside itself and no host but those that its cards cite."""
    html = Path(built.handbook).read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|img|link|source|iframe)[^>]*(?:src|href)=\"(?!data:)", html)
    page = visit("handbook#card-activation-checkpointing", offline=True)
    assert page.locator("#activation-checkpointing--answer").is_visible()
    assert address(built, "handbook").startswith("file://")


def test_formulas_are_whole_when_their_font_comes_late(visit: Open) -> None:
    """Roots, bars and brackets are drawn alike whether the font is there at once or a second later, not without it."""
    looks = {}
    for name in ("at once", "late", "never"):
        page = visit("report/")
        if name == "late":
            page.context.route("**/*.woff2", lambda route: (time.sleep(1), route.continue_()))
        if name == "never":
            page.context.route("**/*.woff2", lambda route: route.fulfill(body="", status=200))
        page.goto(page.url.replace("report/", "cards/checkpoint-sqrt-rule/"))
        page.evaluate("window.pd.set('depth', 'deep')")
        page.evaluate("() => document.fonts.ready.then(() => true)")
        page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        formula = page.locator("math[display='block']:visible:has(msqrt)").first
        looks[name] = formula.screenshot()
    assert looks["late"] == looks["at once"]
    assert looks["never"] != looks["at once"]


def test_the_font_is_fetched_early_where_there_are_formulas_alone(built: Built) -> None:
    """A card with formulas preloads it; home and the report of an error do not."""
    for path, preloads in (("cards/checkpoint-sqrt-rule/", True), ("", False), ("report/", False)):
        html = (built.site / path / "index.html").read_text(encoding="utf-8")
        assert bool(re.search(r'<link rel="preload" as="font"', html)) == preloads, path
