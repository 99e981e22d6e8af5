"""Gives MkDocs the finished pages; all that it knows stands in ``generator.exporters.site``."""

from __future__ import annotations

from typing import Any

from generator.exporters import site


def on_config(config: Any) -> Any:
    """Load the base, and add its navigation, styles and scripts."""
    return site.configure(config)


def on_files(files: Any, config: Any) -> Any:
    """Put the pages in the place of the raw cards."""
    return site.files(files, config)


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Chain the cards in reading order, though they are not in the navigation."""
    return site.chain(nav, files)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """The page's own HTML, with its contents list."""
    return site.content(page, config)
