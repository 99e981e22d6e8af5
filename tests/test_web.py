"""Addresses: which are sound, and what is said of those that are not."""

from __future__ import annotations

import pytest

from generator.web import MAX_LENGTH, why_unsound


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "HTTP://EXAMPLE.ORG:8080/a_(b)?q=1&r=%20#top",
        "https://münchen.de/",
        "https://[2001:db8::1]/a",
        "https://192.0.2.1/",
        "mailto:someone@example.org?subject=x",
    ],
)
def test_an_address_that_leads_somewhere_is_sound(url: str) -> None:
    """Names of several labels, addresses of hosts, and mail."""
    assert why_unsound(url) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://", "names no site"),
        ("https://localhost/a", "names no site"),
        ("https://a..org", "names no site"),
        ("https://-a.org", "names no site"),
        (f"https://{'a' * 64}.org", "names no site"),
        ("https://example.org:0/", "names no site"),
        ("https://example.org:99999/", "names no site"),
        ("https://[zz]/", "names no site"),
        ("https://user@example.org/", "names no site"),
        ("https://a%2eorg/", "names no site"),
        ("https:example.org", "does not begin"),
        ("https%3A//example.org", "does not begin"),
        ("//example.org", "does not begin"),
        ("ftp://example.org", "does not begin"),
        ("https://example.org/%zz", "escapes nothing"),
        ("https://example.org/a b", "holds a blank"),
        ("https://example.org/\u200b", "holds a blank"),
        ("https://example.org\\a", "a backslash"),
        ("mailto:", "no mail address"),
        ("mailto:a@b", "no mail address"),
        ("https://example.org/" + "a" * MAX_LENGTH, "more than"),
    ],
)
def test_an_address_that_leads_nowhere_is_not(url: str, why: str) -> None:
    """Each has its reason."""
    assert why in (why_unsound(url) or "")
