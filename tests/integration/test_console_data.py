"""What the console shows and does with rows of others: a real browser, an engine without Spark."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from millstream.clock import iso
from millstream.engine.jobs.state_status import StageStatus
from millstream.engine.jobs.status import Happening
from millstream.journal import DeadLetter, journal_at
from support.browser import IN_BROWSER, chromium, fits_a_phone, opened, violations
from support.links import batch, pairs, row
from support.served import Served, serving

pytestmark = IN_BROWSER
HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        found.deploy()
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as found:
        yield found


def with_token(page: Page, served: Served) -> None:
    page.get_by_role("textbox", name="Token").fill(served.server.token)
    page.get_by_role("button", name="Go on").click()


def bury(served: Served, numbers: range, reason: str = "no row") -> None:
    """Put dead letters whose rows could be taken."""
    with journal_at(served.data / "f" / "journals" / "s").dead_letters() as dead:
        dead.put_all(
            DeadLetter("till", n, f"{reason} {n}", json.dumps(row(n), default=str)) for n in numbers
        )


def states(served: Served) -> list[str]:
    found = served.http.get("/jobs/f/dead", params={"limit": 10_000}).json()["letters"]
    return [one["state"] for one in found]


def letters(page: Page) -> Locator:
    return page.locator("section.letters")


def test_letters_that_wait_are_shown_behind_a_thousand_that_do_not(
    page: Page, served: Served
) -> None:
    bury(served, range(1_002))
    found = served.http.get("/jobs/f/dead", params={"limit": 1_000}).json()["letters"]
    served.http.post("/jobs/f/discard", json={"ids": [one["id"] for one in found]})
    page.goto(f"{served.server.url}/jobs/f/dead")
    with_token(page, served)
    expect(letters(page)).to_contain_text("2 letters s: no row 1000")
    letters(page).get_by_role("button", name="Edit and replay").last.click()
    bury(served, range(1_002, 1_005))
    served.engine.waiting = 5
    expect(letters(page)).to_contain_text("5 letters")  # they come by themselves
    expect(letters(page).get_by_role("textbox")).to_have_count(1)  # and disturb nobody


def test_all_letters_of_a_reason_are_replayed_or_some_or_they_are_discarded(
    page: Page, served: Served
) -> None:
    bury(served, range(1_005))
    bury(served, range(2_000, 2_002), f"other {HOSTILE}")
    page.goto(f"{served.server.url}/jobs/f/dead")
    with_token(page, served)
    many = letters(page).filter(has_text="no row")
    expect(many).to_contain_text("1,000 letters or more")
    for place in (0, 1):
        many.get_by_role("checkbox").nth(place).check()
    many.get_by_role("button", name="Replay 2 letters").click()
    expect(page.get_by_text("2 replayed", exact=True)).to_be_visible()
    many.get_by_role("button", name="Replay all letters").click()
    expect(page.get_by_text("1,003 replayed", exact=True)).to_be_visible()
    expect(many).to_have_count(0)
    assert len(pairs(served.data)) == 1_005
    other = letters(page)
    expect(other).to_contain_text(HOSTILE)
    other.get_by_role("button", name="Discard 2 letters").click()
    page.get_by_role("dialog", name="Discard 2 letters?").get_by_role("button", name="Yes").click()
    expect(page.get_by_text("2 discarded", exact=True)).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("No dead letters wait.")
    assert states(served).count("discarded") == 2
    assert states(served).count("replayed") == 1_005


def test_rows_are_sent_by_hand_and_those_refused_are_shown_with_the_reason(
    page: Page, served: Served
) -> None:
    bury(served, range(10_001))  # of another sender, before
    page.goto(f"{served.server.url}/jobs/f")
    page.get_by_role("button", name="Send rows").click()
    dialog = page.get_by_role("dialog", name="send rows to s")
    assert violations(page) == []
    assert fits_a_phone(page)
    lines = [json.dumps(row(n), default=str) for n in (1, 2)]
    dialog.get_by_role("textbox").fill("\n".join([*lines, f'{{"n": "{HOSTILE}"}}', "no json"]))
    dialog.get_by_role("button", name="Send").click()
    expect(page.get_by_role("dialog", name="Token")).to_be_visible()
    assert violations(page) == []
    assert fits_a_phone(page)
    with_token(page, served)
    expect(dialog.get_by_role("status")).to_contain_text("2 rows taken, 2 refused")
    expect(dialog.get_by_role("listitem")).to_have_count(2)
    expect(dialog.get_by_role("listitem").filter(has_text="no json")).to_contain_text(
        re.compile("malformed|JSON")
    )
    expect(dialog).to_contain_text("<img src=x onerror=")
    assert page.locator("img[src=x]").count() == 0
    assert violations(page) == []
    assert fits_a_phone(page)
    assert sorted(n for _, n in pairs(served.data)) == [1, 2]


def test_as_many_rows_are_downloaded_as_are_wanted(page: Page, served: Served) -> None:
    served.engine.inbox(0).enqueue("till", range(120), batch(0, 120))
    page.goto(f"{served.server.url}/jobs/f/journals/s")
    page.get_by_label("From position").fill("10")
    page.get_by_role("button", name="Show rows").click()
    with_token(page, served)
    expect(page.locator("table.rows tbody tr")).to_have_count(50)
    for wanted, lines in (("100", 100), ("99999", 110)):
        page.get_by_label("Rows to download").fill(wanted)
        with page.expect_download() as found:
            page.get_by_role("button", name="Download .jsonl").click()
        numbers = [json.loads(line)["n"] for line in found.value.path().read_text().splitlines()]
        assert numbers == list(range(10, 10 + lines))


def test_state_is_looked_up_by_key_where_that_is_possible(page: Page, served: Served) -> None:
    window = StageStatus(group="g", stage="minutes", kind="window", batch=7, bytes=9)
    served.engine.windows = (window,)
    page.goto(f"{served.server.url}/jobs/f/state")
    page.get_by_role("button", name="counted").click()
    page.get_by_label("Key").fill("a")
    show = page.get_by_role("button", name="Show state")
    show.click()
    with_token(page, served)
    expect(page.get_by_role("region", name="state").get_by_role("row").last).to_contain_text('"a"3')
    page.get_by_label("Key").fill("nobody")
    show.click()
    expect(page.get_by_role("main")).to_contain_text("No state is kept for this key.")
    page.get_by_role("button", name="minutes").click()
    expect(page.get_by_role("main")).to_contain_text("Spark keeps that of a window in a form")
    expect(show).to_be_disabled()
    expect(page.get_by_label("Key")).to_be_disabled()
    assert violations(page) == []
    assert fits_a_phone(page)


def test_a_log_is_searched(page: Page, served: Served) -> None:
    page.goto(f"{served.server.url}/jobs/f/logs")
    log = page.get_by_role("log")
    expect(log.locator("div")).to_have_count(20)
    page.get_by_label("Search").fill("LINE 13")
    expect(log.locator("div")).to_have_count(1)
    expect(log).to_have_text("f line 13")
    page.get_by_label("Search").fill("nothing of the kind")
    expect(page.get_by_role("main")).to_contain_text("No line has this text.")


def test_the_last_rows_of_a_node_are_shown(page: Page, served: Served) -> None:
    served.engine.inbox(0).enqueue("till", range(9), batch(0, 9))
    page.goto(f"{served.server.url}/jobs/f")
    page.get_by_role("button", name=re.compile("journal s")).click()
    page.get_by_role("button", name="Show the last rows").click()
    with_token(page, served)
    rows = page.get_by_role("region", name="rows journal s").get_by_role("row")
    expect(rows.last).to_contain_text('"k1"8')
    page.get_by_role("button", name=re.compile("group all")).press("Enter")
    page.get_by_role("button", name="Show the last rows in and out").click()
    expect(page.get_by_role("region", name="rows in: journal s").get_by_role("row")).to_have_count(
        4
    )
    expect(page.get_by_role("main")).to_contain_text("Rows that go to sinks are not kept here.")


def test_plots_tell_the_value_under_the_cursor_and_what_happened(
    page: Page, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [time.time() - 500 + 5 * n for n in range(101)]
    numbers = {"rows_in": [float(n) for n in range(101)], "lag_rows": [10 * n for n in range(101)]}
    series = json.dumps({"at": at, "groups": {"all": numbers}})
    page.route("**/jobs/f/series", lambda route: route.fulfill(body=series))
    happened = [Happening(iso(at[25]), HOSTILE, HOSTILE)]
    monkeypatch.setattr(served.engine, "history", lambda job: happened)
    page.goto(f"{served.server.url}/jobs/f")
    expect(page.locator(".marks")).to_contain_text(HOSTILE)
    plots = page.locator("figure.plot")
    into, lag = plots.filter(has_text="Rows in"), plots.filter(has_text="Lag")
    assert violations(page) == []
    assert fits_a_phone(page)
    into.locator(".u-over").hover()
    expect(into.locator("time")).to_be_visible()
    number = int(re.findall(r"all (\d+)", into.inner_text())[-1])
    assert 40 <= number <= 60  # the middle, not the newest
    expect(into).to_contain_text(f"all {number} /s")
    expect(lag).to_contain_text(f"all {10 * number} rows")  # at the same moment
    page.mouse.move(0, 0)
    expect(lag.locator("time")).to_have_count(0)
    marked = """(canvas) => {
      const { width, height } = canvas, found = new Set();
      const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      const like = (at) => [138, 92, 196].every((one, of) => Math.abs(data[at + of] - one) < 9);
      for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 60 && like(at)) found.add((at / 4) % width);
      return found.size;
    }"""
    for plot in (into, lag):
        assert plot.locator("canvas").evaluate(marked) > 0
    assert page.locator("img[src=x]").count() == 0


def test_what_is_empty_says_what_to_do_next(
    page: Page, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("journals", "states", "checkpoints"):
        monkeypatch.setattr(served.engine, name, lambda job: [])
    for part, text in (
        ("journals", "They are made when the job starts"),
        ("state", "send it rows"),
        ("checkpoints", "A group has one after its first batch"),
    ):
        page.goto(f"{served.server.url}/jobs/f/{part}")
        expect(page.locator(".empty")).to_contain_text(text)
    page.goto(f"{served.server.url}/jobs/f/journals/s")
    page.get_by_role("button", name="Show rows").click()
    with_token(page, served)
    expect(page.locator(".empty")).to_contain_text("The partition is empty.")
    page.route("**/audit?**", lambda route: route.fulfill(body="[]"))
    page.get_by_role("link", name="Audit").click()
    expect(page.locator(".empty")).to_contain_text("millstream deploy flow.py --engine")


def test_the_audit_log_shows_hostile_words_as_they_are(page: Page, served: Served) -> None:
    served.http.post(f"/jobs/{quote(HOSTILE, safe='')}/drain")
    page.goto(f"{served.server.url}/audit")
    with_token(page, served)
    expect(page.get_by_role("cell", name=HOSTILE, exact=True)).to_be_visible()
    page.get_by_label("Search").fill("no such words")
    expect(page.locator(".empty")).to_contain_text("No entry")
    assert page.locator("img[src=x]").count() == 0
