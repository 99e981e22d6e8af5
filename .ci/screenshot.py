"""The picture in the README: `.venv/bin/python .ci/screenshot.py`, after `make build`."""

from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((ROOT / "dist/handbook.html").as_uri() + "?lang=both#card-checkpoint-sqrt-rule")
    page.locator("#card-checkpoint-sqrt-rule .pd-claim").nth(1).focus()
    page.locator("#card-checkpoint-sqrt-rule").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    page.screenshot(path=ROOT / "docs/screenshot.png")
    browser.close()
