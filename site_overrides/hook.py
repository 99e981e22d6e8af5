"""Gives MkDocs the finished pages, whether ``proofdeck build`` or ``mkdocs`` itself is run."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Template
from markupsafe import Markup
from mkdocs.config.config_options import ExtraScriptValue
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.toc import AnchorLink, TableOfContents

from generator import lang, site_url, words
from generator.cache import Cache, default_folder
from generator.checks import load
from generator.edition import assets
from generator.edition import edition as editions
from generator.edition.edition import Edition
from generator.edition.website import Website, is_local, website
from generator.evidence.verdicts import DRAFTABLE
from generator.exporters import site
from generator.render.markup import bilingual, policy

DEMOS = "runnable_demos"
_SITE = "pd_site"
_DOCUMENTS = "documents"
_commands: list[str] = []


def on_startup(command: str, **_: Any) -> None:
    """Note whether the site is built or served: MkDocs says so once, however often it builds."""
    _commands.append(command)


def on_config(config: Any) -> Any:
    """Load the base, or take what is being exported; add navigation, styles and scripts.

    A preview shows stale and contradicted numbers as stale; what is published has none.
    """
    draft = "serve" in _commands
    made = _website(site.prepared.get() or _load(config, draft), config)
    config.extra[_SITE] = made
    config.extra["pd_policy"] = policy(preview=draft)
    config.extra["pd_ways"] = made.ways()
    config.extra["pd_words"] = assets.theme_words()
    config.extra["pd_files"] = {*made.files, *made.texts}
    config.nav = [*made.navigation, {_DOCUMENTS: [*made.documents]}]
    config.extra_css = [assets.STYLE]
    config.extra_javascript.clear()
    script = ExtraScriptValue(assets.SCRIPT)
    script.defer = True
    config.extra_javascript.append(script)
    return config


def _load(config: Any, draft: bool) -> Edition:
    demos: Path | None = Path(config.config_file_path).parent / DEMOS
    demos = demos if demos and demos.is_dir() else None
    cache = Cache(default_folder())
    found, problems = load(Path(os.path.relpath(config.docs_dir)), demos=demos, cache=cache)
    errors = [
        problem
        for problem in problems
        if problem.severity == "error" and not (draft and problem.code.startswith(DRAFTABLE))
    ]
    if errors or found is None:
        shown = "\n".join(str(problem) for problem in errors)
        raise PluginError(f"the cards have problems:\n{shown}")
    return editions.bind(found, demos, cache)


def _website(edition: Edition, config: Any) -> Website:
    report_url = config.extra.get("report_url") or ""
    if report_url and urlsplit(report_url).scheme not in ("http", "https", "mailto"):
        raise PluginError(
            f"report_url in mkdocs.yml is no address that a reader can open: {report_url!r}"
        )
    try:
        if config.site_url:
            site_url.check(config.site_url)
        return website(edition, config.site_url or "", report_url)
    except site_url.SiteUrlError as error:
        raise PluginError(f"{error}\n  hint: {site_url.HINT}") from None
    except assets.MissingAssetsError as error:
        if site.prepared.get():
            raise
        raise PluginError(f"{error}\n  hint: {error.hint}") from None


def on_files(files: Any, config: Any) -> Any:
    """Put the pages in the place of the raw cards."""
    made: Website = config.extra[_SITE]
    theme = [file for file in files if file.src_dir is not None and file.src_dir != config.docs_dir]
    own = [File.generated(config, path, content="") for path in made.pages]
    other = [File.generated(config, path, content=content) for path, content in made.files.items()]
    texts = [_as_it_is(config, path, content) for path, content in made.texts.items()]
    return Files([*theme, *own, *other, *texts])


def _as_it_is(config: Any, address: str, content: bytes) -> File:
    """A file that MkDocs takes for no page, though it is Markdown."""
    file = File.generated(config, f"{address}.txt", content=content)
    file.dest_uri = file.url = address
    return file


def on_nav(nav: Any, files: Any, **_: Any) -> Any:
    """Chain the cards in reading order, which the theme's keys and footer use; name the documents' section."""
    for section in nav.items:
        if section.title == _DOCUMENTS:
            section.title = bilingual(lang.PAGE_TITLES[_DOCUMENTS])
    cards = [
        file.page
        for file in files.documentation_pages()
        if file.src_uri.startswith("cards/") and file.page
    ]
    for before, after in pairwise(cards):
        before.next_page, after.previous_page = after, before
    return nav


def on_env(env: Any, config: Any, **_: Any) -> Any:
    """Let the theme's templates escape what is not known to be markup, as our own do; give them their words.

    Neither MkDocs nor the theme does: a description would stand in its attribute as it is written.
    """
    env.autoescape = True
    env.globals["theme_words"] = {
        name: lang.on_one_line(text) for name, text in words.group("theme").items()
    }
    if _is_alone(config):
        env.template_class = _keeping(config)
    return env


def _is_alone(config: Any) -> bool:
    """Whether no other plugin adds to pages what nobody here knows."""
    return set(config.plugins) == set(config.hooks)


def _keeping(config: Any) -> type[Template]:
    """Templates that draw a page once, until something changes that it shows; the theme draws slowly."""
    made: Website = config.extra[_SITE]
    shared = (
        Path(config.config_file_path).read_bytes(),
        config.site_url,
        config.extra["pd_policy"],
        [
            (page.address, page.title)
            for page in (*made.navigation.values(), *made.documents.values())
        ],
    )

    class Keeping(Template):
        def render(self, *args: Any, **kwargs: Any) -> str:
            context = dict(*args, **kwargs)
            page = context.get("page")
            if page is None:
                return super().render(context)
            beside = [
                other and (other.url, other.meta["plain"])
                for other in (page.previous_page, page.next_page)
            ]
            own = made.pages[page.file.src_uri]

            def draw() -> str:
                page.content = own.body
                return super(Keeping, self).render(context)

            source = (self.name, shared, own.digest, page.canonical_url, beside)
            return made.cache.get("page", source, draw)

    return Keeping


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """What the theme's templates ask of a page; its body comes later, and is no Markdown."""
    own = config.extra[_SITE].pages[page.file.src_uri]
    page.meta = {
        "title": bilingual(own.title),
        "description": lang.on_one_line(own.description),
        "plain": {
            "title": lang.on_one_line(own.title),
            "description": lang.on_one_line(own.description),
        },
    }
    if not own.headings:
        page.meta["hide"] = ["navigation", "toc"]
    return markdown


def on_page_content(_: str, page: Any, config: Any, **__: Any) -> Markup:
    """The body of a page, unless it is read when the page is drawn, and its contents list."""
    made: Website = config.extra[_SITE]
    own = made.pages[page.file.src_uri]
    page.toc = TableOfContents([AnchorLink(bilingual(h.title), h.anchor, 1) for h in own.headings])
    page.update_date = own.updated.isoformat()
    return Markup() if _is_alone(config) else own.body


def on_post_build(config: Any) -> None:
    """Keep the cache within its bound, however often a preview builds; an export's command does it itself."""
    made: Website = config.extra[_SITE]
    if site.prepared.get() is None:
        made.cache.prune()


def on_page_context(context: Any, page: Any, **_: Any) -> Any:
    """A site that was not told its address has no canonical one; the preview's would mislead."""
    if is_local(page.canonical_url or ""):
        page.canonical_url = None
    return context
