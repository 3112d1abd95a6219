"""A browser for tests: a Chromium that is installed, without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@contextmanager
def open_browser() -> Iterator[Any]:
    """A browser with a profile of its own. Without one tests are skipped; in CI they fail."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("found no browser: install Debian's package chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing('found no playwright: pip install -c constraints.txt -e ".[test]"')
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def missing(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{why}. In CI the tests of pages must run")
    pytest.skip(why)
