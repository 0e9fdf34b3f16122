"""The console in a real browser, with many jobs of an engine without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from millstream.engine.jobs import lifecycle as life
from support.browser import IN_BROWSER, chromium, opened, violations
from support.served import serving

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_fifty_jobs_are_shown_those_that_fail_first(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, opened(browser) as page:
        for number in range(50):
            served.deploy(name=f"job-{number:02}")
        served.engine.tell("job-31", life.DriverDied("it broke", hopeless=True))
        page.goto(served.server.url)
        expect(page.locator("table.jobs tbody tr")).to_have_count(50)
        first = page.locator("table.jobs tbody tr").first
        expect(first).to_contain_text("job-31")
        expect(first).to_contain_text("it broke")
        with opened(browser, color_scheme="dark") as dark:
            dark.set_viewport_size({"width": 390, "height": 800})
            dark.goto(served.server.url)
            expect(dark.locator("table.jobs tbody tr")).to_have_count(50)
            assert violations(dark) == []
            wide = dark.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390
