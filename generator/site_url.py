"""The address where the site will stand, from the variable ``SITE_URL``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from generator.problems import quote

VARIABLE = "SITE_URL"
HINT = f"Write it whole: `{VARIABLE}=https://cards.example.org/`; without it the site has no canonical address."

_FORM = re.compile(r"https?://[^\s\"'<>\\^`{|}]+", re.IGNORECASE)
_LONGEST_HOST = 253
_HOST = re.compile(r"[^\W_]([\w-]*[^\W_])?(\.[^\W_]([\w-]*[^\W_])?)*\.?|[0-9a-f:.]*:[0-9a-f:.]*")


class SiteUrlError(ValueError):
    """An address at which no site can stand; the message is for the user."""


def read(environment: Mapping[str, str] = os.environ) -> str:
    """The address with a slash at its end; nothing where none is set.

    Raises ``SiteUrlError``.
    """
    address = environment.get(VARIABLE, "").strip()
    if address:
        check(address)
    return address if address.endswith("/") or not address else f"{address}/"


def check(address: str) -> None:
    """Raise ``SiteUrlError`` where ``address`` is not http or https with a host, and a path at most."""
    if why := _fault(address):
        raise SiteUrlError(f"the address {quote(address)} of the site {why}")


def _fault(address: str) -> str:
    if not address.isprintable() or not _FORM.fullmatch(address):
        return "is not one of http or https without spaces and quotation marks"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return f"cannot be read: {error}"
    if "@" in parts.netloc:
        return "holds a user's name, which every page would show"
    if len(host) > _LONGEST_HOST or not _HOST.fullmatch(host):
        return "names no host"
    if "?" in address or "#" in address:
        return "has a query or a fragment, and pages stand below it"
    return ""
