"""What the console shows and does with rows of others: a real browser, an engine without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from millstream.journal import DeadLetter, journal_at
from support.browser import IN_BROWSER, chromium, opened
from support.links import pairs, row
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
    lines = [json.dumps(row(n), default=str) for n in (1, 2)]
    dialog.get_by_role("textbox").fill("\n".join([*lines, f'{{"n": "{HOSTILE}"}}', "no json"]))
    dialog.get_by_role("button", name="Send").click()
    with_token(page, served)
    expect(dialog.get_by_role("status")).to_contain_text("2 rows taken, 2 refused")
    expect(dialog.get_by_role("listitem")).to_have_count(2)
    expect(dialog.get_by_role("listitem").filter(has_text="no json")).to_contain_text(
        re.compile("malformed|JSON")
    )
    expect(dialog).to_contain_text("<img src=x onerror=")
    assert page.locator("img[src=x]").count() == 0
    assert sorted(n for _, n in pairs(served.data)) == [1, 2]
