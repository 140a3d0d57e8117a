"""A browser without a window, for what is drawn in pages and tested."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def open_chromium() -> Iterator[Any]:
    """Start Chromium as a browser of playwright, and close it in the end; a FileNotFoundError if there is none."""
    from playwright.sync_api import sync_playwright  # whoever needs no browser needs no playwright

    if CHROMIUM is None:
        raise FileNotFoundError("There is no Chromium on this machine: install chromium or google-chrome.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
