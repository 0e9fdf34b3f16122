"""The console in a real browser, on an engine that runs a job on Spark: one engine for all of it."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import IN_BROWSER, chromium, opened, violations
from support.console import FLOW, EngineProcess, engine_process, orders
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
    row = page.get_by_role("row").filter(has_text="shop version 1")  # what runs where names it too
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


def test_rows_are_found_by_time_and_downloaded(page: Page, engine: EngineProcess) -> None:
    page.goto(f"{engine.url}/jobs/shop/journals/orders")
    page.get_by_label("or from event time").fill("2026-01-01T11:00:00")
    page.get_by_role("button", name="Show rows").click()
    with_token(page, engine)
    expect(page.locator("table.rows tbody tr")).not_to_have_count(0)
    page.get_by_label("Rows to download").fill("50")
    with page.expect_download() as found:
        page.get_by_role("button", name="Download .csv").click()
    text = found.value.path().read_text()
    assert text.startswith("shop,amount,at\n")
    assert len(text.splitlines()) == 1 + page.locator("table.rows tbody tr").count()


def test_a_switch_is_planned_begun_and_done_on_the_page(
    page: Page, engine: EngineProcess, tmp_path: Path
) -> None:
    new = tmp_path / "flow.py"
    new.write_text(FLOW.replace('total="sum(amount)"', 'total="2 * sum(amount)"'))
    page.goto(f"{engine.url}/jobs/shop/switch")
    page.get_by_label("Flow, and modules beside it").set_input_files(new)
    page.get_by_role("button", name="Show the plan").click()
    with_token(page, engine)
    plan = page.get_by_role("region", name="plan", exact=True)
    expect(plan.get_by_role("row").filter(has_text="minutes")).to_contain_text("replaced")
    page.get_by_role("button", name="Begin the switch").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    it = page.get_by_role("region", name="switch", exact=True)
    expect(it).to_contain_text("from version 1 to 2")

    ahead = itertools.count()

    def retired() -> bool:
        # Events whose time goes on let the old version reach the cut, and the end of its windows.
        number = next(ahead)
        at = datetime.fromtimestamp(time.time() + 10 * number, UTC).isoformat()
        engine.send(f'{{"shop": "shop-1", "amount": 1, "at": "{at}"}}\n', "clock", number)
        return it.get_by_text("done", exact=True).count() == 1

    wait_until(retired, what="the old version retired")
    expect(page.locator("dl.facts").first).to_contain_text("Version2")
    expect(it.get_by_role("list", name="steps")).to_contain_text("overlapping")
    expect(it.get_by_role("button", name="Switch back to version 1")).to_be_visible()


RUN = """
import millstream as ms

flow = ms.Flow("beats")
ticks = flow.source("ticks", ms.rate(200), time="at")
ticks.distinct("once", by="value", within="1 hour").sink("seen", ms.jsonl("seen"))
"""


def test_a_run_without_an_engine_has_the_same_page(page: Page, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(RUN)
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--page"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            url = next(line for line in run.stdout if "  page http" in line).split()[-1]
            page.goto(url)
            row = page.get_by_role("row").filter(has_text="beats")
            expect(row).to_contain_text("running")
            expect(page.locator("header")).to_contain_text("one run")
            expect(page.get_by_role("link", name="Audit")).to_have_count(0)
            row.get_by_role("link", name="beats").click()
            expect(page.locator(".graph .node")).not_to_have_count(0)
            page.get_by_role("link", name="Journals").click()
            page.get_by_role("link", name="ticks").click()
            page.get_by_role("button", name="Show rows").click()
            (token,) = tmp_path.glob("**/page/token")
            page.get_by_role("textbox", name="Token").fill(token.read_text().strip())
            page.get_by_role("button", name="Go on").click()
            expect(page.locator("table.rows tbody tr")).not_to_have_count(0)
            assert violations(page) == []
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=60)


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
