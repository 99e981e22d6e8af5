"""Addresses on the web: which of them lead anywhere."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a codec is imported at its first use, when rights may be fewer
import re
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import urlsplit

MAX_LENGTH = 2_000
"""Characters of an address; some browsers and proxies read no more."""

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)\Z")
_WEB = re.compile(r"https?://", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAIL = re.compile(r"mailto:[^\s@?%]+@([^\s@?/]+)(?:\?[^\s]*)?\Z", re.IGNORECASE)


def why_unsound(url: str) -> str | None:
    """What keeps an ``http``, ``https`` or ``mailto`` address from leading anywhere, if anything does.

    It is the end of a sentence that begins with the address: "names no site".
    """
    if len(url) > MAX_LENGTH:
        return f"has more than {MAX_LENGTH:,} characters"
    if any(ord(each) <= 0x20 or each in '\\<>"' or not each.isprintable() for each in url):
        return (
            "holds a blank, a control character, a backslash, a quotation mark or an angle bracket"
        )
    if url[:7].lower() == "mailto:":
        found = _MAIL.match(url)
        return None if found and _is_site(found[1]) else "is no mail address"
    return _why_no_site(url)


def _why_no_site(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not _WEB.match(url):
        return "does not begin with `https://`"
    if not _is_site(host) or port == 0 or "@" in parts.netloc:
        return "names no site"
    return "has a `%` that escapes nothing" if _BROKEN_ESCAPE.search(url) else None


def _is_site(host: str) -> bool:
    """Whether a host can be one of the public network: a name of several labels, or an address."""
    if ":" in host:
        try:
            IPv6Address(host)
        except AddressValueError:
            return False
        return True
    try:
        labels = host.encode("idna").decode("ascii").removesuffix(".").split(".")
    except UnicodeError:
        return False
    return len(labels) > 1 and all(map(_LABEL.match, labels))
