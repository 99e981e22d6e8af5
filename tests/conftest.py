"""What every test shares: a busy machine is forgiven, and there is one browser a process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

# What a test builds, it builds: nothing is taken from a cache but where a test gives one.
os.environ["PROOFDECK_CACHE"] = ""
# A busy machine is slow, not wrong: speed is a benchmark's business.
settings.register_profile("proofdeck", deadline=None)
settings.load_profile("proofdeck")

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def drivers() -> Iterator[Playwright]:
    """Playwright's drivers of browsers; a process can start them once, so every test shares these."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def chromium(drivers: Playwright) -> Iterator[Browser]:
    """The browser; without one the tests are skipped, or fail where CI is true."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        message = "no Chromium on this machine: browser tests need one (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    browser = drivers.chromium.launch(
        executable_path=found,
        args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    )
    yield browser
    browser.close()
