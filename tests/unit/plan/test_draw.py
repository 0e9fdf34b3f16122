import json
import textwrap
from xml.etree import ElementTree

import pytest

import millstream as ms
from millstream.plan import draw, picture
from millstream.plan.groups import plan as plan_of

DDL = "flight string, origin string, delay double, at timestamp"


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("flights")


@pytest.fixture
def departures(flow) -> ms.Stream:
    return flow.source("departures", ms.inbox(DDL), time="at", lateness="30 min", key="origin")


def drawn(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_the_tree_of_a_small_flow(flow, departures):
    departures.window("hourly", every="1 hour", flights="count(*)").sink(
        "hourly", ms.parquet("out/hourly")
    )
    late = departures.sql("late", "SELECT * FROM departures WHERE delay > 60")
    late.sql("worse", "SELECT * FROM late WHERE delay > 120").sink(
        "alerts", ms.postgres("postgresql://localhost/ops", table="alerts")
    )
    planned = plan_of(flow)
    assert draw.tree(planned, switch=True) == drawn("""
        flights  2 groups, switch interval 1 h
        ├─ hourly   departures ── hourly ─────────▶ hourly   parquet out/hourly   state: windows
        └─ alerts   departures ── late ── worse ──▶ alerts   postgresql alerts    no state
        a switch of hourly would overlap for 30 min, of alerts for 30 min; no state is carried over
        hourly: results appear 30 min (the lateness) after the event time that completes them
        """)
    first, *groups, _, delays = draw.tree(planned, switch=True).splitlines()
    assert draw.tree(planned).splitlines() == [first.partition(",")[0], *groups, delays]


def test_a_source_of_another_flow_is_named(flow, departures):
    departures.sink("on", ms.outbox("tcp://other:7000", "late.departures"))
    assert "──▶ on   outbox late.departures   no state" in draw.tree(plan_of(flow))
    assert "outbox late.departures" in picture.svg(plan_of(flow))


def test_ways_that_meet_run_together(flow, departures):
    weather = flow.source(
        "weather", ms.inbox("origin string, temp double, at timestamp"), time="at"
    )
    third = flow.source("third", ms.inbox(DDL), time="at")
    fourth = flow.source("fourth", ms.inbox(DDL), time="at")
    merged = flow.merge("all", departures, third, fourth)
    joined = merged.join("paired", weather, on="origin", within="1 h")
    once = joined.distinct("once", by="flight", within="1 day")
    once.sink("out", ms.console())
    once.sink("file", ms.jsonl("out"))
    once.sink("kept", ms.memory())
    assert draw.tree(plan_of(flow), switch=True) == drawn("""
        flights  1 group, switch interval 10 s
        └─ out   departures ─┬─ all ─┬─ paired ── once ─┬▶ out    console     state: rows of 1 h, keys of 1 d
                 third ──────┤       │                  ├▶ file   jsonl out
                 fourth ─────┘       │                  └▶ kept   memory
                 weather ────────────┘
        a switch of out would overlap for 1 h 30 min; the state of "once" is handed over
        out: results appear 30 min (the lateness) after the event time that completes them
        """)


def test_journals_open_sessions_and_streams_without_time(flow, departures):
    kept = departures.journal("kept", partitions=2)
    kept.window("visits", gap="10 min", n="count(*)").sink("visits", ms.console())
    flow.source("ticks", ms.rate(1)).sink("ticks", ms.console())
    text = draw.tree(plan_of(flow), switch=True)
    assert "kept     departures ──────▶ kept     journal, 2 partitions   no state" in text
    assert "visits   kept ── visits ──▶ visits   console                 state: sessions" in text
    assert "of visits for as long as the sessions last" in " ".join(text.split())
    assert "for no time, as it has none and is cut at a position" in " ".join(text.split())


def test_a_stage_that_is_reached_twice_is_drawn_once(flow, departures):
    shared = departures.sql("shared", "SELECT * FROM departures")
    one = shared.sql("one", "SELECT * FROM shared")
    two = shared.sql("two", "SELECT * FROM shared")
    one.merge("both", two).sink("out", ms.console())
    text = draw.tree(plan_of(flow))
    assert "departures ── shared ── one ─┬─ both" in text
    assert "(shared) ── two ─────────────┘" in text


def test_warnings_stand_below(flow, departures):
    departures.sink("out", ms.console())
    departures.sql("lost", "SELECT * FROM departures")
    assert 'warning: no sink or journal reads stage "lost" (test_draw.py:' in draw.tree(
        plan_of(flow)
    )


def test_the_table_of_stages_says_how_far_each_reaches(flow, departures):
    departures.window("w", every="2 h", n="count(*)").distinct(
        "once", by="origin", within="1 d"
    ).sink("out", ms.console())
    departures.window("s", gap="1 min", n="count(*)").sink("sessions", ms.console())
    assert draw.stages(plan_of(flow)) == drawn("""
        stage       kind      horizon      look-back
        departures  source    0 s          0 s
        w           window    2 h          0 s
        once        distinct  handed over  handed over
        s           window    open         open
        """)


def test_the_json_holds_flow_groups_journals_and_reach(flow, departures):
    departures.window("w", gap="1 h", n="count(*)").sink("out", ms.console())
    data = json.loads(json.dumps(draw.to_json(plan_of(flow))))
    assert data["flow"] == "flights"
    assert data["groups"][0]["name"] == "out"
    assert data["groups"][0]["horizon"] is None
    assert data["groups"][0]["lateness"] == 1800.0
    assert data["journals"] == [
        {"name": "departures", "kind": "source", "writer": "departures", "readers": ["out"]}
    ]
    assert data["reach"]["w"] == {
        "horizon": None,
        "look_back": None,
        "handed_over": False,
        "behind": 0.0,
    }


def test_the_picture_is_whole_and_needs_nothing_from_outside(flow, departures):
    again = flow.reads("kept", DDL, time="at")
    departures.merge("all", again).journal("kept").sink("out", ms.parquet("a<b>&c"))
    text = draw.svg(plan_of(flow))
    root = ElementTree.fromstring(text)
    words = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"flights", "departures", "all", "kept", "out", "parquet a<b>&c"} <= words
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text


def test_the_rules_of_the_picture_stay_inside_it(flow, departures):
    departures.sink("out", ms.console())
    style = draw.svg(plan_of(flow)).split("<style>")[1].split("</style>")[0]
    selectors = [
        part.split("{")[-2] if "@media" in part else part.split("{")[0]
        for part in style.split("}")
        if "{" in part
    ]
    assert all(selector.startswith(".millstream ") for selector in selectors)
