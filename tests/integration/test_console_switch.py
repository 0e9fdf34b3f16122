"""A switch in the console, in a real browser: planned by the real planner, on an engine without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from millstream.clock import iso
from millstream.engine.jobs import package as packages
from millstream.engine.jobs.status import GroupStatus
from millstream.engine.jobs.switch_record import Planned
from millstream.flow.load import load
from millstream.plan.drawing import drawing
from millstream.plan.groups import plan
from millstream.switch import show
from millstream.switch.changes import Change, Version
from millstream.switch.comparison import Compared, Comparison, Example
from millstream.switch.plan import switch_plan
from millstream.switch.progress import SwitchProgress, SwitchStep
from millstream.switch.request import SwitchRequest
from support.browser import IN_BROWSER, chromium, fits_a_phone, opened, violations
from support.served import Served, serving

pytestmark = IN_BROWSER
HOSTILE = '<img src=x onerror="alert(1)">'
FLOW = """
import millstream as ms
from beside import BY

flow = ms.Flow("f")
s = flow.source("s", ms.inbox("origin string, n long, at timestamp"), time="at", key="origin", lateness="10 s")
s.window("minutes", by=BY, every="1 min", total="sum(n)").sink("totals", ms.jsonl("totals"))
s.sql("large", "SELECT * FROM s WHERE n > 90").sink("alerts", ms.jsonl("alerts"))
s.distinct("once", by="n", within="1 hour").sink("seen", ms.jsonl("seen"))
"""
CHANGED = FLOW.replace("sum(n)", "sum(n) * 2").replace("once", "again")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        (tmp_path / "beside.py").write_text('BY = "origin"\n')
        (tmp_path / "old.py").write_text(FLOW)
        (tmp_path / "new.py").write_text(CHANGED)
        old = Version.of(plan(load(tmp_path / "old.py")))

        def planned(request: SwitchRequest) -> Planned:
            assert request.package is not None
            flow = load(packages.unpack(request.package, tmp_path / "unpacked"))
            mode = "share" if request.share else "shadow" if request.shadow else "switch"
            new = Version.of(plan(flow))
            found = switch_plan(old, new, consent=request.consent, mode=mode)
            return Planned(show.to_json(found), show.table(found), graph=drawing(found.new))

        found.engine.planner = planned
        found.deploy()
        yield found


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with opened(browser) as found:
        found.goto(f"{served.server.url}/jobs/f/switch")
        yield found


def agree(page: Page, title: str, served: Served | None = None) -> None:
    """Say yes, and give the token if it is asked for."""
    page.get_by_role("dialog", name=title).get_by_role("button", name="Yes").click()
    if served is not None:
        page.get_by_role("textbox", name="Token").fill(served.server.token)
        page.get_by_role("button", name="Go on").click()


def choose(page: Page, served: Served, folder: Path) -> None:
    files = page.get_by_label("Flow, and modules beside it")
    files.set_input_files([folder / "new.py", folder / "beside.py"])
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("textbox", name="Token").fill(served.server.token)
    page.get_by_role("button", name="Go on").click()


def test_a_switch_is_planned_from_files_agreed_to_and_begun(
    page: Page, served: Served, tmp_path: Path
) -> None:
    choose(page, served, tmp_path)
    found = page.get_by_role("region", name="plan", exact=True)
    expect(found.get_by_role("row").filter(has_text="minutes")).to_contain_text("owned by start")
    expect(found.get_by_role("row").filter(has_text="alerts")).to_contain_text("kept")
    expect(found).to_contain_text("Impossible")
    expect(found.get_by_role("img", name="New version")).to_be_visible()
    expect(found.locator(".graph .box.replaced")).not_to_have_count(0)
    begin = page.get_by_role("button", name="Begin the switch")
    expect(begin).to_have_count(0)
    assert violations(page) == []
    assert fits_a_phone(page)
    page.get_by_label("I agree to lose the state of once").check()
    begin.click()
    asked = page.get_by_role("dialog", name="Begin the switch?")
    asked.get_by_role("button", name="No").click()
    assert served.http.get("/jobs/f").json()["switch"] is None
    begin.click()
    asked.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("region", name="switch", exact=True)).to_contain_text("to 2 asked")
    assert served.engine.wanted is not None
    assert served.engine.wanted.consent == ("drop:once",)


def test_a_plan_that_was_asked_for_elsewhere_is_shown(
    browser: Browser, served: Served, tmp_path: Path
) -> None:
    flow = packages.pack(tmp_path / "old.py")
    served.engine.plan_switch("f", SwitchRequest(package=flow))
    with opened(browser, color_scheme="dark") as page:
        page.goto(f"{served.server.url}/jobs/f/switch")
        expect(page.get_by_role("region", name="plan", exact=True)).to_contain_text(
            "means the same as the running one"
        )
        assert violations(page) == []
        assert fits_a_phone(page)


def test_a_switch_that_goes_on_shows_where_groups_are_and_can_be_aborted(
    page: Page, served: Served
) -> None:
    now, served.engine.planner = int(time.time()), None
    served.engine.switch("f", SwitchRequest(package=b"good", share=1_000))
    served.engine.groups = (
        GroupStatus("minutes", 3, watermark_ms=(now - 90) * 1000),
        GroupStatus("minutes@2", 3, watermark_ms=(now - 30) * 1000),
        GroupStatus("alerts", 3, watermark_ms=now * 1000),
    )
    going = SwitchProgress(
        *("2", "overlapping", (now - 60) * 1_000_000, 30.0),
        steps=(
            SwitchStep(now - 40, "preparing", "held"),
            SwitchStep(now - 20, "overlapping", "cut"),
        ),
        waits="source s is at 12:00",
        share=1_000,
        wanted=1_000,
    )
    served.engine.reported("f", going)
    axis = page.get_by_role("region", name="event time")
    expect(axis.get_by_role("listitem").filter(has_text="version 1 and 2")).to_contain_text(
        "alerts"
    )
    expect(axis.get_by_role("listitem").filter(has_text="version 2")).to_contain_text("after")
    expect(axis.get_by_role("img", name="minutes: 30 s before the cut")).to_be_visible()
    expect(page.get_by_role("list", name="steps")).to_contain_text("preparing")
    expect(page.get_by_role("button", name="Abort")).to_have_count(0)
    page.get_by_role("button", name="Give all keys back to version 1").click()
    agree(page, "Give all keys back?", served)
    expect(page.get_by_role("button", name="Give all keys back")).to_have_count(0)
    assert served.http.get("/jobs/f").json()["switch"]["wanted"] == 0
    page.get_by_role("slider").fill("50")
    page.get_by_role("button", name="Give it 50 %").click()
    agree(page, "Change the share?")
    page.get_by_role("button", name="Abort: version 1 runs on").click()
    assert violations(page) == []
    assert fits_a_phone(page)
    agree(page, "Abort the switch?")
    expect(page.get_by_text("it was asked to end")).to_be_visible()


def test_a_switch_that_is_done_is_taken_back(page: Page, served: Served) -> None:
    served.engine.planner = None
    served.engine.switch("f", SwitchRequest(package=b"good"))
    served.engine.reported("f", SwitchProgress("2", ended="done"))
    page.get_by_role("button", name="Switch back to version 1").click()
    agree(page, "Switch back?", served)
    expect(page.get_by_role("region", name="switch", exact=True)).to_contain_text(
        "from version 2 to 3 asked"
    )
    assert served.engine.wanted == SwitchRequest()


def test_a_shadow_shows_how_it_compares_and_is_ended(page: Page, served: Served) -> None:
    served.engine.planner = None
    served.engine.switch("f", SwitchRequest(package=b"good", shadow=True))
    example = Example("different", {"origin": HOSTILE, "total": 1}, {"origin": "a", "total": 2})
    totals = Compared(f"totals {HOSTILE}", Change.REPLACED, 40, 0, 1, 2, 3, examples=(example,))
    shadow = Comparison(iso(time.time()), None, (totals,))
    served.engine.reported("f", SwitchProgress("2", "shadowing", shadow=shadow))
    found = page.get_by_role("region", name="shadow")
    expect(found.get_by_role("row").filter(has_text="totals")).to_contain_text("40")
    expect(found).to_contain_text('{"origin":"a","total":2}')
    expect(found.get_by_text("<img src=x").first).to_be_visible()
    expect(page.get_by_text("There is no cut yet.")).to_have_count(0)  # and never will be
    assert page.locator("img[src=x]").count() == 0
    assert violations(page) == []
    assert fits_a_phone(page)
    page.get_by_role("button", name="End the shadow").click()
    agree(page, "End the shadow?", served)
    expect(page.get_by_text("it was asked to end")).to_be_visible()


def test_a_plan_with_hostile_words_is_shown_as_it_is(page: Page, served: Served) -> None:
    stage = {"name": HOSTILE, "change": "replaced", "state": HOSTILE, "move": "dropped"}
    stage |= {"how": HOSTILE, "differences": [HOSTILE]}
    group = {"name": HOSTILE, "change": "replaced", "differences": [HOSTILE], "stages": [stage]}
    plan = {
        "flow": "f",
        "mode": "switch",
        "possible": False,
        "groups": [group],
        "units": [],
        "step": 60.0,
        "overlap": None,
        "obstacles": [{"fact": HOSTILE, "hint": HOSTILE}],
        "grown": [HOSTILE],
        "notes": [HOSTILE],
    }
    served.engine.planner = lambda request: Planned(plan, "")
    served.engine.plan_switch("f", SwitchRequest(package=b"good"))
    page.reload()
    found = page.get_by_role("region", name="plan", exact=True)
    expect(found).to_contain_text(f"Impossible: {HOSTILE}")
    expect(found.get_by_role("cell", name=HOSTILE)).to_have_count(3)
    assert page.locator("img[src=x]").count() == 0
    assert violations(page) == []
    assert fits_a_phone(page)


def test_on_a_phone_the_tab_is_in_sight_rows_are_cards_and_nothing_is_cut_off(
    page: Page, served: Served
) -> None:
    served.engine.planner = None
    served.engine.switch("f", SwitchRequest(package=b"good"))
    served.engine.reported("f", SwitchProgress("2", "overlapping", 1_000_000, 35.0))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{served.server.url}/jobs/f/versions")
    expect(page.get_by_role("link", name="Versions")).to_be_in_viewport(ratio=1)
    cell = page.locator("table.cards td").first
    expect(cell).to_have_attribute("data-label", "Flow")
    expect(page.locator("table.cards td").last).to_be_in_viewport(ratio=1)
    page.goto(served.server.url)
    expect(page.get_by_text("switch: overlapping")).to_be_in_viewport(ratio=1)
    assert fits_a_phone(page)
