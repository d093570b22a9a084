"""Chromium of this machine, driven by playwright: for tests of what people see. Skipped where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name)) is not None), None)


needs_browser = pytest.mark.skipif(program() is None, reason="no chromium on this machine (apt-get install chromium)")


@contextmanager
def browser() -> Iterator[Any]:  # Any: playwright is imported only where there is a browser
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield launched
        finally:
            launched.close()
