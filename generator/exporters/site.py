"""The static site: Material for MkDocs puts its theme around our pages.

MkDocs takes them from ``site_overrides/hook.py``, by which ``mkdocs build`` and ``mkdocs serve`` come
in as well.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from pathlib import Path

from generator.edition import assets
from generator.edition.edition import Edition
from generator.lang import Text

NAME = "site"
TITLE: Text = {"zh": "静态站点", "en": "static site"}
DEFAULT = True
ENTRY = "site/index.html"

prepared: ContextVar[Edition | None] = ContextVar("prepared", default=None)
"""The edition that is being exported; where there is none, MkDocs was started by hand."""


def export(edition: Edition, out: Path) -> None:
    """Build the site into the folder ``out``."""
    os.environ["NO_MKDOCS_2_WARNING"] = "true"  # Material's notice is for those who chose MkDocs
    from mkdocs.commands.build import build  # noqa: PLC0415 - slow to import, and only here
    from mkdocs.config import load_config  # noqa: PLC0415
    from mkdocs.utils.yaml import yaml_load  # noqa: PLC0415

    with assets.SITE_CONFIG.open("rb") as opened:
        theme = yaml_load(opened)["theme"]
    token = prepared.set(edition)
    try:
        # Paths are absolute: MkDocs takes them from its file's folder, not from where the user stands.
        build(
            load_config(
                str(assets.SITE_CONFIG),
                site_dir=str(out.resolve()),
                docs_dir=str(edition.library.root.resolve()),
                hooks=[str(assets.OVERRIDES / "hook.py")],
                theme={**theme, "custom_dir": str(assets.OVERRIDES / "theme")},
                watch=[],
            )
        )
    finally:
        prepared.reset(token)
