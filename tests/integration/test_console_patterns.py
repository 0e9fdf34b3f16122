"""Patterns, checkpoints, programs and engines in the console: a real browser, an engine without Spark."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import millstream as ms
from millstream.clock import iso
from millstream.engine.jobs.pattern_status import KeyRuns, PatternRuns
from millstream.engine.leases.loads import EngineLoad
from millstream.engine.leases.tasks import Tasks, TaskStatus
from millstream.patterns.compile import compile_pattern
from millstream.patterns.sketch import sketch
from millstream.watch.inputs.http import HttpInput
from millstream.watch.replicator import PeerStatus
from millstream.watch.status import PatternStatus as WatchedPattern
from millstream.watch.status import WatcherStatus
from support.browser import IN_BROWSER, chromium, fits_a_phone, opened, violations
from support.links import batch
from support.served import Served, serving

pytestmark = IN_BROWSER
HOSTILE = '<img src=x onerror="alert(1)">'
LONG = "k" * 400


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        found.deploy()
        now = time.time()
        pattern = ms.Pattern(HOSTILE).begin("a", f"x = '{HOSTILE}'").followed_by("b", "y = '\x01'")
        waits = {HOSTILE: 1, "": 1}
        runs = tuple(KeyRuns(key, 2, iso(now - 90), iso(now - 5), waits) for key in (HOSTILE, LONG))
        shown = PatternRuns(
            group="g",
            stage="slow",
            pattern=HOSTILE,
            about="within 1 h",
            sketch=sketch(compile_pattern(pattern)),
            batch=7,
            runs=4,
            states={"0": 4},
            oldest=runs,
            journal="s",
        )
        found.engine.matching = [shown]
        found.engine.inbox(0).enqueue("till", range(40), batch(0, 40))
        yield found


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with opened(browser, color_scheme=request.param) as found:
        yield found


def with_token(page: Page, served: Served) -> None:
    page.get_by_role("textbox", name="Token").fill(served.server.token)
    page.get_by_role("button", name="Go on").click()


def test_a_pattern_is_drawn_with_its_runs_and_its_latest_matches(
    page: Page, served: Served
) -> None:
    page.goto(f"{served.server.url}/jobs/f/patterns")
    with_token(page, served)
    it = page.get_by_role("region", name=f"pattern {HOSTILE}")
    expect(it).to_contain_text("4 live runs")
    expect(it.locator(".runs-text")).to_have_text("4")
    expect(it.get_by_role("img", name="4 runs in state 1")).to_be_visible()
    it.get_by_text("Runs that wait longest").click()
    waiting = it.get_by_role("row").filter(has=page.get_by_role("cell", name=HOSTILE, exact=True))
    expect(waiting).to_contain_text(f"1: {HOSTILE}, 1: time to pass")
    first = it.get_by_role("button", name="match of").first
    first.focus()
    page.keyboard.press("Enter")
    match = page.get_by_role("region", name="match", exact=True)
    expect(match).to_contain_text("origin")
    expect(match).to_contain_text("These are the columns that the stage emits.")
    with page.expect_response(lambda answer: "/rows?" in answer.url):
        """They are read again, and the one that was opened stays so."""
    expect(it.get_by_role("button", name="match of", pressed=True)).to_have_count(1)
    expect(it.get_by_role("button", name="match of", pressed=True)).to_be_focused()
    assert page.locator("img[src=x]").count() == 0
    assert violations(page) == []
    assert fits_a_phone(page)


def test_checkpoints_are_shown_and_verified(page: Page, served: Served) -> None:
    page.goto(f"{served.server.url}/jobs/f/checkpoints")
    it = page.get_by_role("region", name="checkpoint g")
    expect(it).to_contain_text("up to position 3, 4")
    it.get_by_text("Since the batch before").click()
    expect(it).to_contain_text("batch: 6 -> 7")
    served.engine.faults = (f"output: {HOSTILE}",)
    it.get_by_role("button", name="Verify").click()
    with_token(page, served)
    expect(it.get_by_role("status")).to_contain_text(HOSTILE)
    served.engine.faults = ()
    it.get_by_role("button", name="Verify").click()
    expect(it.get_by_role("status")).to_contain_text("all is there")
    assert violations(page) == []
    assert fits_a_phone(page)


def test_programs_and_engines_are_shown(page: Page, served: Served) -> None:
    other = TaskStatus(job=LONG, state="running", engine="b", next="a", reason=HOSTILE)
    disk = {"disk_free": 1_000_000_000, "disk_size": 40_000_000_000}
    busy = EngineLoad(
        state="away", url="http://b", jobs=2, cores=4, load=3.5, rows_in=1_250, age_s=95, **disk
    )
    loads = {"a": EngineLoad(state="up", cores=1), "b": busy, "old": EngineLoad(state="up")}
    loads[LONG] = EngineLoad(url="http://c")
    urls = {"a": "http://a", "b": "http://b"}
    served.engine.known = [Tasks("a", False, (other,), engines=urls, loads=loads)]
    page.goto(served.server.url)
    engines = page.get_by_role("region", name="engines")
    shown = engines.get_by_role("row").filter(has=page.get_by_role("link", name="b", exact=True))
    for text in ("numbers of 1 min 35 s ago", "away", "3.5 on 4 cores", "1.0 GB free of 40 GB"):
        expect(shown).to_contain_text(text)
    expect(shown.get_by_role("cell").last).to_have_text("1,250 /s")
    expect(engines.get_by_role("row", name="old")).to_contain_text("unknown")
    expect(engines.get_by_role("row", name="a this one")).to_contain_text("free of")
    expect(engines.get_by_role("row", name="a this one")).not_to_contain_text("ago")
    expect(engines.get_by_role("row").filter(has_text=HOSTILE)).to_contain_text("running")
    assert violations(page) == []
    assert fits_a_phone(page)
    page.get_by_role("link", name="Programs").click()
    expect(page.get_by_role("main")).to_contain_text("This engine keeps no programs")
    assert violations(page) == []
    assert fits_a_phone(page)


class Answering:
    """Only asked for its status."""

    def status(self) -> WatcherStatus:
        peer = PeerStatus(
            *("B", "tcp://b:1", True, None, None, 12, False, None, None, HOSTILE, None)
        )
        return WatcherStatus(
            *(LONG, "i", "d", 1, 90.0, 50_000_000, 1234, 0, 0, 0),
            patterns=[WatchedPattern(HOSTILE, 3, 4, "d")],
            peers=[peer],
        )


def test_watchers_are_asked_for_their_status(page: Page, served: Served) -> None:
    there = HttpInput("127.0.0.1", 0)
    thread = threading.Thread(target=there.run, args=(Answering(),))
    thread.start()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        away = nobody.getsockname()[1]
    served.server.api.watchers = [f"http://127.0.0.1:{port}" for port in (there.port, away)]
    try:
        page.goto(f"{served.server.url}/watchers")
        expect(page.get_by_role("region", name=f"watcher {LONG}", exact=True)).to_contain_text(
            "3 live, 4 found"
        )
        expect(page.get_by_role("row").filter(has_text="tcp://b:1")).to_contain_text(HOSTILE)
        gone = page.get_by_role("region", name=f"watcher http://127.0.0.1:{away}")
        expect(gone).to_contain_text("does not answer")
        assert violations(page) == []
        assert fits_a_phone(page)
    finally:
        there.stop()
        thread.join(30)
