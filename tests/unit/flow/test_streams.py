"""What a stream knows, and the stages that building leaves behind."""

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import InvalidOption
from millstream.flow import stages
from millstream.flow.describe import describe_stage
from millstream.flow.durations import duration
from millstream.flow.schema import Schema

DDL = "flight string, origin string, delay double, at timestamp"
HOUR = timedelta(hours=1)


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("flights")


@pytest.fixture
def departures(flow) -> ms.Stream:
    return flow.source("departures", ms.inbox(DDL), time="at", lateness="30 min", key="origin")


def test_a_source_is_plain_data_with_every_default_filled_in(flow, departures):
    assert flow.stages["departures"] == stages.Source(
        name="departures",
        origin=ms.inbox(DDL),
        schema=Schema.parse(DDL),
        time="at",
        lateness=timedelta(minutes=30),
        key="origin",
        ahead=timedelta(days=1),
        idle=timedelta(seconds=10),
        partitions=1,
    )
    assert (departures.name, departures.time, departures.key) == ("departures", "at", "origin")
    assert departures.columns == ("flight", "origin", "delay", "at")


@pytest.mark.parametrize(
    ("lengths", "window"),
    [
        ([], "10 s"),
        (["1 s"], "10 s"),
        (["4 s"], "12 s"),
        (["10 min"], "10 min"),
        (["4 min", "6 min"], "12 min"),
        (["1 day"], "1 hour"),
        (["7 min", "11 min"], "1 hour"),
    ],
)
def test_the_switch_interval_is_the_shortest_at_which_all_tumbling_windows_end(
    flow, departures, lengths, window
):
    for number, every in enumerate(lengths):
        departures.window(f"w{number}", every=every, n="count(*)")
    departures.window("sliding", every="7 s", size="70 s", n="count(*)")
    assert flow.switch_every == duration(window)
    assert flow.given_switch_every is None
    for given in (
        ms.Flow("f", "3 s"),
        ms.Flow("f", switch_every="3 s"),
        ms.Flow("f", window="3 s"),
    ):
        assert given.switch_every == given.window == timedelta(seconds=3)
    with pytest.raises(InvalidOption, match="two switch intervals, switch_every and window"):
        ms.Flow("f", "3 s", window="4 s")


def test_a_window_has_its_keys_edges_and_aggregates(departures):
    hourly = departures.window(
        "hourly", every="1 hour", by="origin", flights="count(*)", delay="avg(delay)"
    )
    assert hourly.schema == Schema.parse(
        "origin string, window_start timestamp, window_end timestamp, window_time timestamp, flights long, delay double"
    )
    assert hourly.time == "window_time"
    assert hourly.lateness == timedelta(minutes=30)


@pytest.mark.parametrize(
    ("by", "named"),
    [
        (None, (("origin", "origin"),)),
        ("flight", (("flight", "flight"),)),
        (["flight", "origin"], (("flight", "flight"), ("origin", "origin"))),
        ({"route": "concat(flight, origin)"}, (("route", "concat(flight, origin)"),)),
        ([], ()),
        ("ORIGIN", (("origin", "origin"),)),
    ],
)
def test_a_window_groups_by_what_it_is_told_or_by_the_key(flow, departures, by, named):
    departures.window("w", every="1 h", by=by, n="count(*)")
    assert flow.stages["w"].by == named


@pytest.mark.parametrize("name", ["order", "on", "end", "key", "timestamp", "odd name"])
def test_a_column_whose_name_means_something_in_sql_can_be_grouped_by(flow, name):
    rows = flow.source("rows", ms.inbox(f"`{name}` int, at timestamp"), time="at")
    window = rows.window("w", every="1 h", by=name, n="count(*)")
    assert window.schema.find(name).type == "int"


def test_a_window_over_a_stream_without_key_is_one_for_all(flow):
    rows = flow.source("rows", ms.inbox(DDL), time="at")
    rows.window("w", every="1 h", n="count(*)")
    assert flow.stages["w"].by == ()


@pytest.mark.parametrize(
    ("arguments", "shape", "lengths"),
    [
        ({"every": "1 h"}, "tumbling", (HOUR, HOUR, None, None)),
        ({"every": "1 h", "size": "60 min"}, "tumbling", (HOUR, HOUR, None, None)),
        ({"every": "20 min", "size": "1 h"}, "sliding", (HOUR, HOUR / 3, None, None)),
        ({"gap": "1 h"}, "session", (None, None, HOUR, None)),
        ({"gap": "1 h", "longest": "2 h"}, "session", (None, None, HOUR, 2 * HOUR)),
    ],
)
def test_the_lengths_of_a_window_tell_its_shape(flow, departures, arguments, shape, lengths):
    departures.window("w", n="count(*)", **arguments)
    stage = flow.stages["w"]
    assert stage.shape == shape
    assert (stage.size, stage.every, stage.gap, stage.longest) == lengths


def test_a_merge_takes_the_largest_lateness_and_fills_in_types(flow, departures):
    other = flow.source("other", ms.inbox(DDL), time="at", lateness="2 h", key="origin")
    guessed = departures.sql(
        "guessed", "SELECT flight, origin, delay + 1 AS delay, at FROM departures"
    )
    merged = flow.merge("all", guessed, other)
    assert merged.lateness == 2 * HOUR
    assert merged.schema == Schema.parse(DDL)
    assert merged.key == "origin"
    assert flow.stages["all"].inputs == ("guessed", "other")


def test_a_merge_of_streams_with_different_keys_has_none(flow, departures):
    other = flow.source("other", ms.inbox(DDL), time="at", key="flight")
    assert departures.merge("all", other).key is None


def test_a_join_has_the_left_columns_then_the_right_ones_without_those_they_share(flow, departures):
    weather = flow.source(
        "weather", ms.inbox("origin string, temp double, at timestamp"), time="at", lateness="1 h"
    )
    joined = departures.join("joined", weather, on="origin", within="1 hour")
    assert joined.columns == ("flight", "origin", "delay", "at", "temp")
    assert (joined.time, joined.key, joined.lateness) == ("at", "origin", HOUR)
    assert flow.stages["joined"] == stages.Join(
        "joined", "departures", "weather", ("origin",), HOUR, "inner"
    )


def test_the_right_s_time_is_an_ordinary_column_if_it_has_another_name(flow, departures):
    weather = flow.source("weather", ms.inbox("origin string, seen timestamp"), time="seen")
    assert departures.join("j", weather, on="origin", within="1 h", how="left").columns == (
        *departures.columns,
        "seen",
    )


def test_a_semi_join_keeps_the_left_columns(flow, departures):
    weather = flow.source(
        "weather", ms.inbox("origin string, delay double, at timestamp"), time="at"
    )
    assert (
        departures.join("j", weather, on="origin", within="1 h", how="semi").columns
        == departures.columns
    )


def test_a_lookup_adds_the_columns_of_a_table(flow, departures):
    airports = ms.table("airports.csv", schema="origin string, title string")
    named = departures.join("named", airports, on="origin", how="left")
    assert named.columns == (*departures.columns, "title")
    assert flow.stages["named"] == stages.Lookup(
        "named", "departures", airports, ("origin",), "left"
    )


def test_a_lookup_in_a_table_without_a_schema_is_left_to_spark(departures):
    assert departures.join("named", ms.table("airports.parquet"), on="origin").schema is None


def test_distinct_keeps_everything(flow, departures):
    once = departures.distinct("once", by=["flight"], within="1 day")
    assert (once.schema, once.time, once.key) == (departures.schema, "at", "origin")
    assert flow.stages["once"] == stages.Distinct(
        "once", "departures", ("flight",), timedelta(days=1), 64
    )


def test_a_fold_puts_out_what_it_says_and_takes_the_key(flow, departures):
    total = departures.fold("total", count, initial=0, output="origin string, n long, at timestamp")
    assert total.columns == ("origin", "n", "at")
    assert total.key == "origin"
    stage = flow.stages["total"]
    assert (stage.by, stage.initial, stage.order, stage.shards) == (("origin",), 0, "time", 64)


def test_a_fold_may_keep_its_states_for_a_time(flow, departures):
    output = "origin string, n long, at timestamp"
    departures.fold("long", count, initial=0, output=output, keep="30 days")
    departures.fold("for_ever", count, initial=0, output=output)
    long, for_ever = flow.stages["long"], flow.stages["for_ever"]
    assert long.keep == timedelta(days=30)
    assert long.bounded_state == "a value per key, for 30 d"
    assert for_ever.bounded_state == "a value per key"
    assert describe_stage(long)["keep"] == "30 d"
    assert "keep" not in describe_stage(for_ever), "its description is that of earlier versions"


class Counter:
    def __call__(self, state: int, row: dict[str, object]) -> tuple[int, None]:
        return state + 1, None


def test_a_fold_may_be_an_object_that_can_be_called(departures):
    assert departures.fold("total", Counter(), initial=0, output="at timestamp").columns == ("at",)


def test_a_fold_in_the_order_of_arrival_needs_no_time(flow):
    rows = flow.source("rows", ms.inbox("a int"))
    assert rows.fold("total", count, initial=0, output="n long", order="arrival").columns == ("n",)


def test_an_apply_knows_its_columns_if_it_is_told(departures):
    assert departures.apply("a", same).schema is None
    assert departures.apply("b", same, schema="x int, at timestamp").columns == ("x", "at")
    assert departures.apply("c", same).time == "at"


def test_a_journal_keeps_schema_time_and_key_and_has_no_late_rows(flow, departures):
    kept = departures.journal("kept", partitions=3, keep_for="7 days", keep_bytes=1_000)
    assert (kept.schema, kept.time, kept.key) == (departures.schema, "at", "origin")
    assert kept.lateness == timedelta(0)
    assert flow.stages["kept"] == stages.Journal(
        "kept", "departures", 3, "origin", timedelta(days=7), 1_000
    )


def test_key_by_makes_no_stage(flow, departures):
    by_flight = departures.key_by("flight")
    assert list(flow.stages) == ["departures"]
    assert by_flight.key == "flight"
    assert departures.key_by(None).key is None
    by_flight.window("w", every="1 h", n="count(*)")
    assert flow.stages["w"].by == (("flight", "flight"),)


def test_a_sink_may_have_the_name_of_the_stage_that_feeds_it(flow, departures):
    departures.window("hourly", every="1 h", n="count(*)").sink("hourly", ms.console())
    assert flow.sinks == {"hourly": stages.Sink("hourly", "hourly", ms.console())}


def test_a_cycle_reads_a_journal_that_is_written_further_down(flow, departures):
    again = flow.reads("kept", DDL, time="at")
    assert again.name == "reads_kept"
    departures.merge("all", again).journal("kept")
    flow.check()


def test_a_replay_takes_the_source_s_time(flow):
    flow.source("r", ms.replay("flights.parquet", DDL, speed=60), time="at")
    assert flow.stages["r"].origin.time == "at"


@pytest.mark.parametrize(
    ("spec", "bounded"),
    [
        (ms.inbox("a int"), False),
        (ms.files("x.csv", "a int"), True),
        (ms.files("x", "a int", format="jsonl", follow=True), False),
        (ms.rate(10), False),
        (ms.rate(10, rows=5), True),
        (ms.replay("x.jsonl", "a int"), True),
    ],
)
def test_a_source_knows_whether_it_ends(spec, bounded):
    assert spec.bounded is bounded


def test_a_rate_has_a_number_and_a_time():
    assert ms.rate(10).schema == Schema.parse("value long, at timestamp")


def test_options_of_files_are_text_in_order():
    assert ms.files("x.csv", "a int", sep=";", header=False).options == (
        ("header", "false"),
        ("sep", ";"),
    )


def test_building_changes_nothing_but_the_flow(flow, departures):
    before = dict(flow.stages)
    departures.key_by("flight")
    with pytest.raises(ms.MillstreamError):
        departures.sql("bad", "SELECT nothing FROM departures")
    assert dict(flow.stages) == before


def test_flows_of_the_same_stages_are_equal():
    def make(delay: str) -> ms.Flow:
        flow = ms.Flow("f")
        rows = flow.source("rows", ms.inbox("a int, at timestamp"), time="at", lateness=delay)
        rows.sink("out", ms.memory())
        return flow

    assert make("1 h") == make("60 min")
    assert make("1 h") != make("2 h")


def test_the_stages_of_a_flow_cannot_be_changed_from_outside(flow, departures):
    with pytest.raises(TypeError):
        flow.stages["x"] = flow.stages["departures"]


def count(state, row):
    return state + 1, None


def same(frame):
    return frame
