"""Gives MkDocs the finished pages; all that it knows stands in ``generator.exporters.site``."""

from __future__ import annotations

from typing import Any

from generator.exporters import site

_commands: list[str] = []


def on_startup(command: str, **_: Any) -> None:
    """Note whether the site is built or served: MkDocs says so once, however often it builds."""
    _commands.append(command)


def on_config(config: Any) -> Any:
    """Load the base, and add its navigation, styles and scripts."""
    return site.configure(config, draft="serve" in _commands)


def on_files(files: Any, config: Any) -> Any:
    """Put the pages in the place of the raw cards."""
    return site.files(files, config)


def on_nav(nav: Any, files: Any, **_: Any) -> Any:
    """Chain the cards in reading order, though they are not in the navigation."""
    return site.chain(nav, files)


def on_env(env: Any, **_: Any) -> Any:
    """Let every template escape what it prints."""
    site.escape_by_default(env)
    return env


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The title and description of the page."""
    site.meta(page, config)
    return markdown


def on_page_content(_: str, page: Any, config: Any, **__: Any) -> str:
    """The page's own HTML, with its contents list."""
    return site.content(page, config)


def on_page_context(context: Any, page: Any, **_: Any) -> Any:
    """Leave out an address that only this machine knows; the sitemap is written by now."""
    site.forget_local_address(page)
    return context
