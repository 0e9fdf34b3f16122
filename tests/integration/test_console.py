"""The console in a real browser, on an engine that runs a job on Spark: one engine for all of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import IN_BROWSER, chromium, opened, violations
from support.console import EngineProcess, engine_process, orders
from support.engines import wait_until

pytestmark = IN_BROWSER
HOSTILE = '<img src=x onerror="alert(1)">\u202e{{7*7}}'
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with engine_process(tmp_path_factory.mktemp("engine")) as found:
        found.deploy()
        found.send(orders(2_000))
        rows = [{"shop": HOSTILE, "amount": 1, "at": "2026-01-01T12:00:00Z"}, {"amount": HOSTILE}]
        found.send("".join(f"{json.dumps(row)}\n" for row in rows) + f"no json {SCRIPT}\n", SCRIPT)
        wait_until(
            lambda: (
                len(found.job()["groups"]) == 3
                and all(one["rows_in"] for one in found.job()["groups"])
            ),
            what="a batch of each group",
        )
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as found:
        yield found


def with_token(page: Page, engine: EngineProcess) -> None:
    page.get_by_role("textbox", name="Token").fill(engine.token)
    page.get_by_role("button", name="Go on").click()


def test_the_overview_shows_the_job_and_leads_to_it(page: Page, engine: EngineProcess) -> None:
    page.goto(engine.url)
    row = page.get_by_role("row").filter(has_text="shop")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("dead letters wait")
    expect(row).to_contain_text(" /s")
    assert violations(page) == []
    row.get_by_role("link", name="shop").click()
    expect(page).to_have_url(f"{engine.url}/jobs/shop")
    expect(page.get_by_role("heading", level=1)).to_contain_text("shop")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")


def test_the_graph_lives_and_opens_its_nodes(page: Page, engine: EngineProcess) -> None:
    page.goto(f"{engine.url}/jobs/shop")
    expect(page.locator(".graph .node")).to_have_count(10)
    engine.send(orders(500), "more", int(time.time() * 1000))
    expect(page.locator(".graph .edge.flows").first).to_be_attached()
    stage = page.get_by_role("button", name=re.compile("stage minutes"))
    stage.focus()
    page.keyboard.press("Enter")
    chosen = page.get_by_role("region", name="stage minutes")
    expect(chosen).to_contain_text("sum(amount)")
    expect(chosen).to_contain_text("total")
    expect(chosen).to_contain_text("double")
    expect(page.get_by_role("img", name=re.compile("Batch time: .* m?s"))).to_be_visible()
    expect(page.locator(".marks")).to_contain_text("running")
    assert violations(page) == []


def test_rows_of_others_are_shown_as_they_are_and_never_run(
    page: Page, engine: EngineProcess
) -> None:
    page.goto(f"{engine.url}/jobs/shop/journals/orders")
    page.get_by_label("From position").fill("2000")
    page.get_by_role("button", name="Show rows").click()
    with_token(page, engine)
    expect(page.get_by_role("cell", name="<img src=x").first).to_be_visible()
    page.locator("nav.tabs a", has_text="Dead letters").click()
    expect(page.get_by_text(SCRIPT).first).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert violations(page) == []


def test_a_dead_letter_is_edited_and_replayed(page: Page, engine: EngineProcess) -> None:
    page.goto(f"{engine.url}/jobs/shop/dead")
    with_token(page, engine)
    letter = page.get_by_role("listitem").filter(has_text="no json")
    letter.get_by_role("button", name="Edit and replay").click()
    edited = page.get_by_role("listitem").filter(has=page.get_by_role("textbox"))
    edited.get_by_role("textbox").fill("{broken")
    edited.get_by_role("button", name="Replay this row").click()
    expect(edited.get_by_role("alert")).to_contain_text("this is no JSON")
    row = json.dumps({"shop": "fixed", "amount": 5, "at": datetime.now(UTC).isoformat()})
    edited.get_by_role("textbox").fill(row)
    edited.get_by_role("button", name="Replay this row").click()
    expect(page.get_by_role("status").filter(has_text="1 replayed")).to_be_visible()
    expect(letter).to_have_count(0)


def test_the_other_pages_open(page: Page, engine: EngineProcess) -> None:
    for path, text in [
        ("journals", "payments"),
        ("logs", "lines"),
        ("state", "minutes"),
        ("versions", "has not been switched"),
    ]:
        page.goto(f"{engine.url}/jobs/shop/{path}")
        expect(page.get_by_role("main")).to_contain_text(text)
        assert violations(page) == [], path
    page.goto(f"{engine.url}/audit")
    with_token(page, engine)
    expect(page.get_by_role("cell", name="deploy").first).to_be_visible()


def test_a_page_outlives_an_engine_that_is_killed(page: Page, engine: EngineProcess) -> None:
    page.goto(f"{engine.url}/jobs/shop")
    expect(page.get_by_role("status", name="engine: live")).to_be_visible()
    engine.kill()
    lost = page.get_by_role("alert").filter(has_text="The engine does not answer.")
    expect(lost).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("shop")
    engine.start()
    expect(page.get_by_role("status", name="engine: live")).to_be_visible()
    expect(lost).to_have_count(0)
