"""A base of attacks, built into everything and opened in a browser: nothing runs, all is shown."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from generator.edition import edition as editions
from generator.exporters import handbook, site, zensical
from generator.library import library
from tests import hostile
from tests.browser.conftest import REPORT, _Quiet, playwright

NEVER_SHOWN = {"terms", "parameters", "environment", "never"}
"""Fields that no page prints, or prints only some entries of."""
TEXTS = (
    "p, li, h1, h2, h3, h4, td, th, a, span, title, strong, em, s, small, time, dd, summary, "
    "figcaption, blockquote, code, pre, option, text, button, label, div.pd-half"
)

SEEN = """(texted) => {
  const texts = [];
  const live = [];
  for (const each of document.querySelectorAll("*")) {
    for (const { name, value } of each.attributes) {
      texts.push(value);
      const leads = ["href", "src", "action", "xlink:href"].includes(name);
      if (name.startsWith("on") || (leads && /^\\s*javascript:/i.test(value))) live.push(name);
    }
    if (["SCRIPT", "STYLE"].includes(each.tagName)) continue;
    if (each.matches(texted)) texts.push(each.textContent);
  }
  if (window.pwn !== undefined) live.push("window.pwn");
  for (const tag of ["embed", "object", "iframe", "base", "svg [onload]"]) {
    if (document.querySelector(tag)) live.push(tag);
  }
  const figure = '.pd-drawings > [src*="figures/"][src$=".svg"]'; // the only images there are
  if (document.querySelector(`img:not(${figure})`)) live.push("img");
  return { texts, live };
}"""
"""All that a page says, in text and in attributes, and all in it that could run."""


@dataclass(frozen=True)
class Outputs:
    """Where each output is served, or stands, and the base that it was made from."""

    site: str
    zensical: str
    handbook: str
    pages: tuple[str, ...]
    base: library.Library
    drawn: set[int]


@dataclass
class Watch:
    """A page, and what went wrong on it."""

    page: playwright.Page
    wrong: list[str] = field(default_factory=list)
    shown: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Take in what the page says now."""
        seen = self.page.evaluate(SEEN, TEXTS)
        self.wrong += seen["live"]
        for text in seen["texts"]:
            self.shown |= hostile.numbers(text)


@contextmanager
def watching(chromium: playwright.Browser) -> Iterator[Watch]:
    """A new reader's page, of which each script that runs, and each request, is noted."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.set_default_timeout(20_000)
    context.add_init_script(REPORT)
    watch = Watch(context.new_page())
    watch.page.on("dialog", lambda dialog: (watch.wrong.append("dialog"), dialog.dismiss()))
    watch.page.on("pageerror", lambda error: watch.wrong.append(f"error {error}"))
    watch.page.on("console", lambda m: m.type == "error" and watch.wrong.append(m.text))

    def asked(request: playwright.Request) -> None:
        target = urlsplit(request.url)
        if target.scheme in ("http", "https") and target.hostname != "127.0.0.1":
            watch.wrong.append(f"asked {request.url}")

    context.on("request", asked)
    yield watch
    context.close()


@pytest.fixture(scope="module")
def outputs(chromium: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outputs]:
    """Site, handbook and Zensical's pages of the hostile base."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.write(folder)
    found, _ = library.load(folder / "cards", demos=folder / "runnable_demos")
    assert found
    assert len(found.cards) == 2
    content = editions.bind(found, folder / "shown")
    site.export(content, folder / "site")
    handbook.export(content, folder / "handbook.html")
    zensical.export(content, folder / "pages")
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "-f", "mkdocs.yml"],
        cwd=folder / "pages",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(
        file.relative_to(folder / "site").as_posix() for file in (folder / "site").rglob("*.html")
    )
    with ExitStack() as stack:

        def served(root: Path) -> str:
            handler = functools.partial(_Quiet, directory=str(root))
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/"

        yield Outputs(
            served(folder / "site"),
            served(folder / "pages" / "site"),
            (folder / "handbook.html").as_uri(),
            tuple(pages),
            found,
            drawn_in(folder / "site" / "figures"),
        )


def drawn_in(figures: Path) -> set[int]:
    """The attacks that the files of figures show, in which nothing runs; a page has them as images."""
    said: list[str] = []
    for file in figures.glob("*.svg"):
        for each in ElementTree.parse(file).getroot().iter():
            assert each.tag.rpartition("}")[2] not in ("script", "foreignObject"), file
            assert not [name for name in each.attrib if name.startswith("on")], file
            said += ["".join(each.itertext()), *each.attrib.values()]
    assert said
    return set().union(*map(hostile.numbers, said))


def attacks(value: object, name: str = "") -> set[int]:
    """The numbers of all attacks in a part of the base, but in fields that are never shown."""
    if name in NEVER_SHOWN:
        return set()
    if isinstance(value, str):
        return hostile.numbers(value)
    if isinstance(value, dict):
        return set().union(*(attacks(each, str(key)) for key, each in value.items()), set())
    if isinstance(value, (list, tuple)):
        return set().union(*(attacks(each) for each in value), set())
    fields = getattr(value, "__dataclass_fields__", {})
    return set().union(*(attacks(getattr(value, each), each) for each in fields), set())


def of_the_base(base: library.Library) -> set[int]:
    """The attacks in titles, summaries, questions, labels and the other fields that pages show."""
    filled = {card.module for card in base.cards.values()}  # of others the title alone is named
    parts = [
        *(card.title for card in base.cards.values()),
        *(card.sources for card in base.cards.values()),
        *(module if module.id in filled else module.title for module in base.modules.values()),
        *base.paths,
        *base.glossary.terms.values(),
        *base.evidence.records.values(),
    ]
    return set().union(*(attacks(dict(each) if hasattr(each, "items") else each) for each in parts))


@pytest.mark.parametrize("builder", ["site", "zensical"])
def test_no_page_runs_what_a_base_says(
    chromium: playwright.Browser, outputs: Outputs, builder: str
) -> None:
    """Each page of the site, redirects too, shows every text of the base as it was written."""
    with watching(chromium) as watch:
        for path in outputs.pages:
            if builder == "zensical" and path == "404.html":
                continue
            watch.page.goto(getattr(outputs, builder) + path, wait_until="load")
            watch.look()
        assert sorted(set(watch.wrong)) == []
        missing = of_the_base(outputs.base) - watch.shown - outputs.drawn
        assert missing == set()


def test_the_handbook_runs_nothing_of_what_a_base_says(
    chromium: playwright.Browser, outputs: Outputs
) -> None:
    """The one file, opened from a disk, shows all of it, and runs none."""
    with watching(chromium) as watch:
        watch.page.goto(outputs.handbook)
        watch.look()
        assert sorted(set(watch.wrong)) == []
        assert len(watch.shown) > 150


def through(watch: Watch, address: str, card: str) -> None:
    """What a reader does on a card: languages, proofs, search."""
    page = watch.page
    page.goto(address + card)
    for _ in range(3):
        page.keyboard.press("l")
        watch.look()
    article = page.locator("article.pd-card:visible").first
    claims, terms = (article.locator(f"a.pd-{sort}:visible").all() for sort in ("claim", "term"))
    for told in (*claims[:3], *terms[:2]):
        told.hover()
        page.locator(".pd-tip").wait_for()
        watch.look()
        page.keyboard.press("Escape")
        page.mouse.move(1, 1)
        page.locator(".pd-tip").wait_for(state="detached")
    page.keyboard.press("/")
    page.locator(".pd-search-input").fill("pwn onerror script")
    page.locator(".pd-hit").first.wait_for()
    watch.look()
    page.keyboard.press("Enter")
    page.locator("dialog.pd-search").wait_for(state="hidden")
    watch.look()


def study(watch: Watch, address: str) -> None:
    """A round of study, each item turned over."""
    page = watch.page
    page.goto(address)
    page.locator(".pd-start").click()
    for _ in range(6):
        typed = page.locator(".pd-typed")
        if typed.count():
            typed.fill("<img src=x onerror=window.pwn=1>")
            page.keyboard.press("Enter")
        else:
            page.locator(".pd-sheet .pd-primary").click()
        page.locator(".pd-ratings").wait_for()
        watch.look()
        page.locator("[data-rating='3']").click()


def graph(watch: Watch, address: str) -> None:
    """The graph with each filter tried, and its nodes lit."""
    page = watch.page
    page.goto(address)
    for name in ("module", "tag", "path"):
        select = page.locator(f".pd-graph-controls [name={name}]")
        select.select_option(index=1)
        watch.look()
        select.select_option(index=0)
    page.locator(".pd-node").first.hover()
    watch.look()


WAYS: dict[str, Callable[[Watch, Outputs], None]] = {
    "card": lambda watch, out: through(watch, out.site, "cards/two/"),
    "study": lambda watch, out: study(watch, out.site + "study/"),
    "graph": lambda watch, out: graph(watch, out.site + "graph/"),
    "handbook's card": lambda watch, out: through(watch, out.handbook, "#card-two"),
    "handbook's study": lambda watch, out: study(watch, out.handbook + "#study"),
    "handbook's graph": lambda watch, out: graph(watch, out.handbook + "#graph"),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_runs_on_a_reader_s_way(
    chromium: playwright.Browser, outputs: Outputs, way: str
) -> None:
    """Hovering, searching, studying, filtering put texts into the page, and run none."""
    with watching(chromium) as watch:
        WAYS[way](watch, outputs)
        assert sorted(set(watch.wrong)) == []
        assert len(watch.shown) > 10


def test_neither_an_address_nor_what_is_stored_runs(
    chromium: playwright.Browser, outputs: Outputs
) -> None:
    """Parameters, fragments and stored values are text, whoever wrote them."""
    evil = "<img src=x onerror=window.pwn=1>"
    names = ("settings", "reading", "study")
    values = (f'"{evil}"', "null", f'{{"{evil}": "{evil}"}}', "{", f'["{evil}"]')
    with watching(chromium) as watch:
        watch.page.goto(outputs.site)
        for value in values:
            watch.page.evaluate(
                "([names, value]) => names.forEach((name) => localStorage.setItem(`proofdeck.${name}`, value))",
                [names, value],
            )
            watch.page.evaluate(
                "(value) => localStorage.setItem('/.__palette', value)",
                f'{{"color": {{"media": {value if value != "{" else 0}, "scheme": "\\"><b"}}}}',
            )
            for path in ("cards/two/", "graph/", "report/"):
                query = f"?q={evil}&in={evil}&lang={evil}&path={evil}&card={evil}#pit"
                watch.page.goto(outputs.site + path + query)
                watch.look()
        assert [each for each in set(watch.wrong) if "pwn" in each or "policy" in each] == []
        assert not [each for each in set(watch.wrong) if each in ("img", "dialog")]


@pytest.mark.parametrize(
    "body",
    [
        "<script>window.pwn=1</script>",
        '<p onclick="window.pwn=1">x</p>',
        '<img src="https://evil.example/x.png">',
        '<a href="javascript:window.pwn=1">x</a>',
    ],
)
def test_whoever_watches_would_see_it(
    chromium: playwright.Browser, outputs: Outputs, body: str
) -> None:
    """The same look at a page of ours into which an attack was written finds it."""
    with watching(chromium) as watch:

        def written(route: playwright.Route) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, body=answer.text().replace("<h1", f"{body}<h1", 1))

        watch.page.route("**/report/index.html", written)
        watch.page.goto(outputs.site + "report/index.html", wait_until="load")
        watch.look()
        assert watch.wrong
        assert "window.pwn" not in watch.wrong  # the policy did not let it run
