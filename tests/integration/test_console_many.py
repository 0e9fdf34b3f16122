"""The console in a real browser, with many jobs of an engine without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.status import GroupStatus, ProgramStatus
from support.browser import IN_BROWSER, chromium, fits_a_phone, opened, violations
from support.links import batch
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


def seen(page: Page, *, hidden: bool) -> None:
    """Put the page's tab into the background, or fetch it back."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_plots_have_no_hole_after_the_tab_was_in_the_background(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path) as served, opened(browser) as page:
        served.deploy(name="shop")
        page.clock.install()
        with page.expect_response("**/jobs/shop/series"):
            page.goto(f"{served.server.url}/jobs/shop")
        live = page.get_by_role("status", name="engine: live")
        expect(live).to_be_visible()
        seen(page, hidden=True)
        for number in range(3):  # events come all the while: it is not silence that ends the stream
            served.engine.waiting = 10 + number
            expect(page.locator("nav.tabs .badge")).to_have_text(f"{10 + number}")
            page.clock.fast_forward(8_000)
        page.clock.fast_forward(8_000)
        expect(live).to_have_count(0)
        with page.expect_response("**/jobs/shop/series"):
            seen(page, hidden=False)
        expect(live).to_be_visible()


def slow(name: str, **more: Any) -> GroupStatus:
    return GroupStatus(name, lag_rows=5_000, lag_seconds=120.0, spent={"python": 4.0}, **more)


def test_a_job_with_many_findings_is_one_line_that_opens(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, opened(browser) as page:
        served.engine.groups = tuple(slow(f"group-{n}") for n in range(4))
        served.deploy(name="shop")
        page.goto(served.server.url)
        row = page.locator("table.jobs tbody tr").first
        expect(row.locator("span.finding")).to_have_count(1)
        row.get_by_role("button", name="+4 more").click()  # dead letters wait, too
        expect(row.locator("span.finding")).to_have_count(5)
        expect(row).to_contain_text("group group-3 is 2 min behind, 5,000 rows")
        row.get_by_role("button", name="show less").click()
        expect(row.locator("span.finding")).to_have_count(1)
        expect(page.get_by_role("region", name="engines")).to_contain_text("free of")


def test_a_watermark_is_that_of_groups_that_have_not_ended(
    browser: Browser, tmp_path: Path
) -> None:
    now = int(time.time())
    old = GroupStatus("old", watermark_ms=(now - 7200) * 1000, finished=True)
    with serving(tmp_path) as served, opened(browser) as page:
        served.engine.groups = (old, GroupStatus("new", watermark_ms=(now - 90) * 1000))
        served.deploy(name="shop")
        page.goto(served.server.url)
        age = page.locator("table.jobs td[data-label='Watermark age']")
        expect(age).to_contain_text("1 min")
        served.engine.groups = (old,)
        expect(age).to_have_text("ended")
        expect(page.get_by_role("region", name="tasks")).to_have_count(0)  # nobody shares jobs


def test_programs_of_stages_are_shown_with_what_they_print(
    browser: Browser, tmp_path: Path
) -> None:
    seats = tuple(
        ProgramStatus("score", "host-1", worker, 70 + worker, 2, 1_000, 3, time.time())
        for worker in (11, 12)
    )
    with serving(tmp_path) as served, opened(browser) as page:
        served.engine.groups = (GroupStatus("scored", programs=seats),)
        served.deploy(name="shop")
        log = served.engine.log_file("shop")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("INFO nothing\nshop.score partition 0 worker 11: <b>model</b> loaded\n")
        page.goto(f"{served.server.url}/actions")
        stage = page.get_by_role("region", name="program of stage score")
        expect(stage).to_contain_text("2 workers")
        expect(stage.get_by_role("row").filter(has_text="82")).to_contain_text("1,000")
        stage.get_by_role("button", name="What it prints").click()
        expect(stage.get_by_role("log")).to_contain_text("<b>model</b> loaded")
        expect(stage.get_by_role("log")).not_to_contain_text("nothing")
        assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with serving(tmp_path) as served, opened(browser, color_scheme=scheme) as page:
        served.engine.groups = (slow("all", programs=(ProgramStatus("s", "h", 1),)),)
        served.deploy(name="f")
        served.engine.inbox(0).enqueue("till", range(40), batch(0, 40))
        page.goto(f"{served.server.url}/audit")
        page.get_by_role("textbox", name="Token").fill(served.server.token)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("cell", name="deploy").first).to_be_visible()
        for name in ("Jobs", "Programs", "Watchers", "Audit"):
            page.get_by_role("navigation", name="main").get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(name)
            assert violations(page) == [], name
            assert fits_a_phone(page), name
        page.get_by_role("link", name="Jobs").click()
        page.locator("table.jobs").get_by_role("link", name="f", exact=True).click()
        tabs = page.get_by_role("navigation", name="parts of the job")
        for name in tabs.get_by_role("link").all_inner_texts():
            tabs.get_by_role("link", name=name).click()
            expect(tabs.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
            assert violations(page) == [], name
            assert fits_a_phone(page), name
        page.get_by_role("link", name="Journals").click()
        page.get_by_role("link", name="s", exact=True).click()
        page.get_by_role("button", name="Show rows").click()
        expect(page.locator("table.rows tbody tr")).to_have_count(40)
        assert fits_a_phone(page), "journal"
