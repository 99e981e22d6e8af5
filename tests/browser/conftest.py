"""One site and one handbook of the real cards for all browser tests."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from generator.edition import edition as editions
from generator.exporters import handbook, site
from generator.library import library

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ROOT = Path(__file__).parents[2]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

REPORT = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} of ${event.blockedURI} at ${event.sourceFile}`));
"""
"""Whatever the pages' Content-Security-Policy forbids is an error of the page that tries it."""

Open = Callable[..., "playwright.Page"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@dataclass(frozen=True)
class Built:
    """Where the site and the handbook of this session are."""

    site: Path
    handbook: Path
    url: str


class _Quiet(SimpleHTTPRequestHandler):
    """A file server that does not report each request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def built(chromium: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The site, served, and the handbook, both of the real cards."""
    out = tmp_path_factory.mktemp("dist")
    demos = ROOT / "runnable_demos"
    found, _ = library.load(ROOT / "cards", demos=demos)
    assert found
    content = editions.bind(found, demos)
    site.export(content, out / "site")
    handbook.export(content, out / "handbook.html")
    handler = functools.partial(_Quiet, directory=str(out / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Built(out / "site", out / "handbook.html", f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


@pytest.fixture
def visit(chromium: playwright.Browser, built: Built) -> Iterator[Open]:
    """Open a page as a new reader: ``visit("study/", mode="en", phone=True)``.

    Afterwards no page may have asked another host for anything, or have reported an error.
    """
    contexts = []
    wrong: list[str] = []

    def go(
        path: str = "",
        *,
        mode: str | None = "zh",
        phone: bool = False,
        dark: bool = False,
        scripts: bool = True,
        locale: str = "zh-CN",
        offline: bool = False,
    ) -> playwright.Page:
        context = chromium.new_context(
            viewport=PHONE if phone else DESKTOP,
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            locale=locale,
            offline=offline,
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        context.set_default_navigation_timeout(60_000)  # the handbook is one large file
        context.add_init_script(REPORT)
        page = context.new_page()

        def asked(request: playwright.Request) -> None:
            scheme, host = urlsplit(request.url)[:2]
            if scheme in ("http", "https") and host != urlsplit(built.url).netloc:
                wrong.append(f"asked {request.url}")

        context.on("request", asked)
        page.on("pageerror", lambda error: wrong.append(f"error {error}"))
        page.on("console", lambda m: m.type == "error" and wrong.append(f"console {m.text}"))
        page.goto(address(built, path, mode))
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def address(built: Built, path: str, mode: str | None = None) -> str:
    """The URL of ``path`` on the site, or in the handbook where it begins with ``handbook``."""
    start, _, fragment = path.partition("#")
    page = built.handbook.as_uri() if start == "handbook" else built.url + start
    query = f"?lang={mode}" if mode else ""
    return page + query + (f"#{fragment}" if fragment else "")
