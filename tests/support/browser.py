"""A browser for tests of the console: Debian's Chromium, and pages that complain about nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from millstream.engine.http.page_files import FOLDER

AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"
#: It asks nobody but the engine: no updates, no services of its maker.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
#: The marks of tests of the console.
IN_BROWSER = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "index.html").exists(), reason="cannot here: the console is not built"
    ),
]
expect.set_options(timeout=30_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser; skips the test where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("cannot here: no Chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, **how: Any) -> Iterator[Page]:
    """Open a page, on which no error may happen but a lost connection."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **how)
    page = context.new_page()
    page.set_default_timeout(30_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    try:
        yield page
        # The browser itself writes down each request that is refused or gets no answer.
        ours = [one for one in errors if not one.startswith("Failed to load resource")]
        assert ours == []
    finally:
        context.close()


def fits_a_phone(page: Page) -> bool:
    """Return whether a page does not scroll sideways on a phone."""
    page.set_viewport_size({"width": 390, "height": 844})
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 900})
    return bool(wide <= 390)


def violations(page: Page) -> list[str]:
    """Return what axe finds against WCAG 2.1 AA on a page."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("tags => axe.run({ runOnly: { type: 'tag', values: tags } })", WCAG)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
