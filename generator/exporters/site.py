"""The static site: Material for MkDocs puts its theme around our pages.

``export`` builds it in this process; ``mkdocs build`` and ``mkdocs serve`` come in by the hook
(``site_overrides/hook.py``) and the functions below it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from string import punctuation
from typing import Any
from urllib.parse import quote, urlsplit

from markupsafe import Markup

from generator import site_url
from generator.edition import assets, pages
from generator.edition import edition as book
from generator.edition.edition import Book
from generator.edition.pages import Page
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.evidence.evidence import DRAFTABLE
from generator.lang import on_one_line
from generator.library import library
from generator.render.markup import bilingual, policy

NAME = "site"
ENTRY = "site/index.html"
DEMOS = "runnable_demos"

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path fill="#0a6656" d="M5 3h10l4 4v14H5zm2 '
    '2v14h10V8h-3V5zm2.2 8.2 1.2-1.2 1.6 1.6 3.2-3.2 1.2 1.2-4.4 4.4z"/></svg>'
)


@dataclass(frozen=True)
class Site:
    """The pages by their source path in MkDocs, and every other file by its address."""

    pages: Mapping[str, Page]
    files: Mapping[str, bytes]


_prepared: ContextVar[tuple[Book, Path | None] | None] = ContextVar("prepared", default=None)


def export(content: Book, out: Path, demos: Path | None) -> None:
    """Build the site into ``out``."""
    os.environ["NO_MKDOCS_2_WARNING"] = "true"  # Material's notice is for those who chose MkDocs
    from mkdocs.commands.build import build  # noqa: PLC0415 - slow to import, and only here
    from mkdocs.config import load_config  # noqa: PLC0415
    from mkdocs.utils.yaml import yaml_load  # noqa: PLC0415

    with assets.SITE_CONFIG.open("rb") as opened:
        theme = yaml_load(opened)["theme"]
    token = _prepared.set((content, demos))
    try:
        # Paths are absolute: MkDocs takes them from its file's folder, not from where the user stands.
        build(
            load_config(
                str(assets.SITE_CONFIG),
                site_dir=str(out.resolve()),
                docs_dir=str(content.library.root.resolve()),
                hooks=[str(assets.OVERRIDES / "hook.py")],
                theme={**theme, "custom_dir": str(assets.OVERRIDES / "theme")},
                watch=[],
            )
        )
    finally:
        _prepared.reset(token)


def make(content: Book, demos: Path | None, site_url: str, report_url: str = "") -> Site:
    """All pages and files of the site."""
    made = {f"{page.address}index.md": page for page in pages.pages(content, demos, report_url)}
    return Site(made, dict(_files(content, site_url)))


def _files(content: Book, site_url: str) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {
        "search.json": _json(search_data(content.library)),
        "study.json": _json(study_data(content.library)),
        "favicon.svg": FAVICON.encode(),
        "social.png": social_card(),
        "robots.txt": _robots(site_url).encode(),
    }
    files |= assets.bundles()
    for name in assets.LIBRARIES:
        files[f"vendor/{name}"] = assets.vendor(name).read_bytes()
    files[f"vendor/{assets.FONT}"] = assets.font(content.formula_characters)
    for address, html in pages.redirects(content):
        files[address] = html.encode()
    return files


def _robots(site_url: str) -> str:
    everyone = "User-agent: *\nAllow: /\n"
    address = quote(f"{site_url}sitemap.xml", safe=punctuation)  # on one line
    return everyone if _is_local(site_url) else f"{everyone}Sitemap: {address}\n"


def _is_local(address: str) -> bool:
    """Whether an address means this machine alone, as that of a preview does."""
    return urlsplit(address).hostname in {None, "localhost", "127.0.0.1"}


def _json(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def social_card() -> bytes:
    """The picture that other sites show beside a link: 1200 × 630 pixels."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="#fbfaf7")
    figure.text(0.08, 0.62, "Proofdeck", fontsize=64, weight="bold", color="#21242a")
    figure.text(0.08, 0.46, "Every number runs, or names its source.", fontsize=30, color="#0a6656")
    figure.text(0.08, 0.22, "Interview cards for ML engineers", fontsize=24, color="#5b6068")
    figure.text(0.08, 0.13, "Chinese and English, side by side", fontsize=24, color="#5b6068")
    figure.text(0.80, 0.40, "\u2713", fontsize=150, color="#0a6656")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


# --- MkDocs' hook --------------------------------------------------------------------------------

_SITE = "pd_site"


def configure(config: Any, *, draft: bool = False) -> Any:
    """Load the base, or take what ``export`` has prepared; add navigation, styles and scripts.

    A ``draft`` shows stale and contradicted numbers as stale; what is published has none.
    """
    root = Path(config.config_file_path).parent
    content, demos = _prepared.get() or _load(Path(config.docs_dir), root, draft)
    made = _made(content, demos, config)
    config.extra[_SITE] = made
    config.extra["pd_policy"] = policy(preview=draft)
    config.extra["pd_ways"] = ways(made)
    config.nav = [path for path, page in made.pages.items() if page.in_navigation]
    config.extra_css = [assets.STYLE]
    config.extra_javascript.clear()
    config.extra_javascript.append(_deferred(assets.SCRIPT))
    return config


def ways(made: Site) -> list[dict[str, object]]:
    """Where one can go from a page that is not there: what is in the navigation, and every card."""
    return [
        {"address": page.address or ".", "title": dict(page.title), "card": card}
        for page in made.pages.values()
        for card in [page.address[6:-1] if page.address.startswith("cards/") else ""]
        if card or page.in_navigation
    ]


def _made(content: Book, demos: Path | None, config: Any) -> Site:
    from mkdocs.exceptions import PluginError  # noqa: PLC0415 - slow to import

    report_url = config.extra.get("report_url") or ""
    if report_url and urlsplit(report_url).scheme not in ("http", "https", "mailto"):
        raise PluginError(
            f"report_url in mkdocs.yml is no address that a reader can open: {report_url!r}"
        )
    try:
        if config.site_url:
            site_url.check(config.site_url)
        return make(content, demos, config.site_url or "", report_url)
    except site_url.SiteUrlError as error:
        raise PluginError(f"{error}\n  hint: {site_url.HINT}") from None
    except assets.MissingAssetsError as error:
        if _prepared.get():
            raise
        raise PluginError(f"{error}\n  hint: {error.hint}") from None


def _deferred(path: str) -> Any:
    from mkdocs.config.config_options import ExtraScriptValue  # noqa: PLC0415 - slow to import

    script = ExtraScriptValue(path)
    script.defer = True
    return script


def _load(cards: Path, root: Path, draft: bool) -> tuple[Book, Path | None]:
    from mkdocs.exceptions import PluginError  # noqa: PLC0415 - slow to import

    demos = root / DEMOS
    found, problems = library.load(
        Path(os.path.relpath(cards)), demos=demos if demos.is_dir() else None
    )
    errors = [
        problem
        for problem in problems
        if problem.severity == "error" and not (draft and problem.code.startswith(DRAFTABLE))
    ]
    if errors or found is None:
        shown = "\n".join(str(problem) for problem in errors)
        raise PluginError(f"the cards have problems:\n{shown}")
    return book.bind(found), demos if demos.is_dir() else None


def files(found: Any, config: Any) -> Any:
    """Our pages and files in the place of the raw cards."""
    from mkdocs.structure.files import File, Files  # noqa: PLC0415 - slow to import

    made: Site = config.extra[_SITE]
    theme = [file for file in found if file.src_dir is not None and file.src_dir != config.docs_dir]
    own = [File.generated(config, path, content="") for path in made.pages]
    other = [File.generated(config, path, content=content) for path, content in made.files.items()]
    return Files([*theme, *own, *other])


def meta(page: Any, config: Any) -> None:
    """What the theme's templates ask of a page; its body comes later, and is no Markdown."""
    own = config.extra[_SITE].pages[page.file.src_uri]
    page.meta = {
        "title": bilingual(own.title),
        "description": on_one_line(own.description),
        "plain": {"title": on_one_line(own.title), "description": on_one_line(own.description)},
    }
    if not own.headings:
        page.meta["hide"] = ["navigation", "toc"]


def escape_by_default(env: Any) -> None:
    """Let the theme's templates escape what is not known to be markup, as our own do.

    Neither MkDocs nor the theme does: a description would stand in its attribute as it is written.
    """
    env.autoescape = True


def chain(nav: Any, found: Any) -> Any:
    """Let cards follow each other in reading order, which the theme's keys and footer use."""
    cards = [
        file.page
        for file in found.documentation_pages()
        if file.src_uri.startswith("cards/") and file.page
    ]
    for before, after in pairwise(cards):
        before.next_page, after.previous_page = after, before
    return nav


def content(page: Any, config: Any) -> Markup:
    """The body of a page, and its contents list."""
    from mkdocs.structure.toc import AnchorLink, TableOfContents  # noqa: PLC0415 - slow to import

    made: Site = config.extra[_SITE]
    own = made.pages[page.file.src_uri]
    page.toc = TableOfContents([AnchorLink(bilingual(h.title), h.anchor, 1) for h in own.headings])
    page.update_date = own.updated.isoformat()
    return own.body


def forget_local_address(page: Any) -> None:
    """A site that was not told its address has no canonical one; the preview's would mislead."""
    if _is_local(page.canonical_url or ""):
        page.canonical_url = None
