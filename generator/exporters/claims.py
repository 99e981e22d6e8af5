"""Every claim of the base, and what proves it, as one file for programs; its form: ``docs/programs.md``."""

from __future__ import annotations

import json
from pathlib import Path

from generator import site_url
from generator.edition.claims_data import claims_data
from generator.edition.edition import Edition
from generator.lang import Text

NAME = "claims"
TITLE: Text = {"zh": "全部断言，供程序读取", "en": "every claim, for programs"}
DEFAULT = True
ENTRY = "claims.json"


def export(edition: Edition, out: Path) -> None:
    """Write the file ``out``; its addresses are those of the environment's site, see ``site_url``."""
    data = claims_data(edition, site_url.read())
    out.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
