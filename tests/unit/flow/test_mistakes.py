"""Every mistake is found while building, with flow, stage, fact, place and hint."""

import dataclasses
import pickle
import traceback
from datetime import timedelta

import pytest

import millstream as ms
from millstream import errors

DDL = "flight string, origin string, delay double, at timestamp"


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("flights")


@pytest.fixture
def departures(flow) -> ms.Stream:
    return flow.source("departures", ms.inbox(DDL), time="at", key="origin")


def refused(kind, call, *parts, hint=""):
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in caught.value.message
    assert hint in (caught.value.hint or "")
    return caught.value


def test_the_text_is_fact_then_place_then_hint(departures):
    with pytest.raises(errors.UnknownColumn) as caught:
        departures.window("hourly", every="1 hour", by="origin", delay="avg(dealy)")
    text = "".join(traceback.format_exception_only(caught.value)).splitlines()
    assert text[0].endswith(
        'stage "hourly" of flow "flights" averages column "dealy", which "departures" does not have'
    )
    assert "test_mistakes.py:" in text[1]
    assert text[1].endswith(
        'departures.window("hourly", every="1 hour", by="origin", delay="avg(dealy)")'
    )
    assert text[2] == 'hint: did you mean "delay"?'


def test_the_place_is_the_line_of_the_call_also_from_a_helper_of_the_user(departures):
    def helper(stream: ms.Stream) -> ms.Stream:
        return stream.sql("bad", "SELECT nothing FROM departures")

    with pytest.raises(errors.UnknownColumn) as caught:
        helper(departures)
    assert caught.value.where.code == 'return stream.sql("bad", "SELECT nothing FROM departures")'


def test_a_mistake_survives_pickling_with_its_place_and_hint(departures):
    with pytest.raises(errors.UnknownColumn) as caught:
        departures.key_by("orign")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is errors.UnknownColumn
    assert (again.message, again.hint, again.where) == (
        caught.value.message,
        caught.value.hint,
        caught.value.where,
    )
    assert again.__notes__ == caught.value.__notes__


@pytest.mark.parametrize("name", ["", None, "two words", "1st", "dotted.name", "ümlaut", "__ours"])
def test_a_name_is_one_plain_word(flow, departures, name):
    refused(errors.InvalidName, lambda: departures.window(name, every="1 h", n="count(*)"))
    refused(errors.InvalidName, lambda: flow.source(name, ms.rate(1)))
    refused(errors.InvalidName, lambda: departures.sink(name, ms.console()))
    refused(errors.InvalidName, lambda: departures.journal(name))
    refused(errors.InvalidName, lambda: ms.Flow(name))


def test_two_stages_of_one_name_are_refused_with_the_line_of_the_first(departures):
    departures.window("hourly", every="1 h", n="count(*)")
    error = refused(
        errors.DuplicateName,
        lambda: departures.window("hourly", every="1 h", n="count(*)"),
        "another stage, in line",
    )
    assert 'stage "hourly" of flow "flights"' in error.message


def test_a_source_and_a_stage_share_their_names(flow, departures):
    refused(errors.DuplicateName, lambda: flow.source("departures", ms.rate(1)), "another stage")
    refused(errors.DuplicateName, lambda: departures.journal("departures"), "another stage")


def test_outputs_share_their_names(departures):
    departures.sink("out", ms.console())
    refused(errors.DuplicateName, lambda: departures.sink("out", ms.memory()), "another sink")
    refused(errors.DuplicateName, lambda: departures.journal("out"), "another sink")
    departures.journal("kept")
    refused(errors.DuplicateName, lambda: departures.sink("kept", ms.memory()), "another journal")


@pytest.mark.parametrize(
    ("make", "verb"),
    [
        (lambda s: s.window("w", every="1 h", by="orign", n="count(*)"), "groups by"),
        (lambda s: s.window("w", every="1 h", by={"x": "upper(orign)"}, n="count(*)"), "groups by"),
        (lambda s: s.window("w", every="1 h", n="sum(orign)"), "sums"),
        (lambda s: s.window("w", every="1 h", n="max(orign)"), "reads"),
        (lambda s: s.sql("q", "SELECT orign, at FROM departures"), "reads"),
        (lambda s: s.distinct("d", by="orign", within="1 h"), "is distinct by"),
        (lambda s: s.fold("f", step, initial=0, output="at timestamp", by="orign"), "folds by"),
        (lambda s: s.key_by("orign"), "is keyed by"),
        (lambda s: s.journal("j", key="orign"), "is keyed by"),
        (lambda s: s.join("j", ms.table("x.csv"), on="orign"), "joins on"),
    ],
)
def test_an_unknown_column_is_met_with_the_one_that_was_meant(departures, make, verb):
    error = refused(
        errors.UnknownColumn,
        lambda: make(departures),
        f'{verb} column "orign"',
        hint='did you mean "origin"?',
    )
    assert 'flow "flights"' in error.message


def test_a_column_unlike_any_other_is_met_with_all_of_them(departures):
    refused(
        errors.UnknownColumn,
        lambda: departures.key_by("xyz"),
        hint="its columns are flight, origin, delay, at",
    )


def test_a_source_s_key_and_time_must_be_its_columns(flow):
    refused(
        errors.UnknownColumn,
        lambda: flow.source("a", ms.inbox(DDL), time="when"),
        "tell the time",
        hint="at",
    )
    refused(
        errors.UnknownColumn, lambda: flow.source("a", ms.inbox(DDL), key="orign"), hint="origin"
    )
    refused(
        errors.UnknownType,
        lambda: flow.source("a", ms.inbox(DDL), time="delay"),
        "double",
        hint="timestamp",
    )
    refused(
        errors.UnknownColumn,
        lambda: flow.source("a", ms.inbox("x int"), time="at"),
        hint="add a column",
    )


def test_a_lateness_without_time_makes_no_sense(flow):
    refused(errors.NoTime, lambda: flow.source("a", ms.inbox(DDL), lateness="1 h"))


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.window("w", every="1 h", n="count(*)"),
        lambda s: s.distinct("d", by="flight", within="1 h"),
        lambda s: s.join("j", s, on="flight", within="1 h"),
        lambda s: s.fold("f", step, initial=0, output="n long"),
    ],
)
def test_what_needs_time_is_refused_on_a_stream_without(flow, make):
    rows = flow.source("rows", ms.inbox(DDL))
    refused(errors.NoTime, lambda: make(rows), 'stream "rows" has no time', hint="time=")


@pytest.mark.parametrize(
    ("arguments", "kind", "part"),
    [
        ({}, errors.InvalidOption, "how often"),
        ({"size": "1 h"}, errors.InvalidOption, "how often"),
        ({"every": "2 h", "size": "1 h"}, errors.InvalidDuration, "in none"),
        ({"every": "0 s"}, errors.InvalidDuration, "no length"),
        ({"every": "-1 h"}, errors.InvalidDuration, "negative"),
        ({"every": "soon"}, errors.InvalidDuration, '"soon"'),
        ({"every": 60}, errors.InvalidDuration, "60"),
        ({"gap": "1 h", "every": "1 h"}, errors.InvalidOption, "both a gap and a size"),
        ({"gap": "1 h", "longest": "1 min"}, errors.InvalidDuration, "less than their gap"),
        ({"every": "1 h", "longest": "1 h"}, errors.InvalidOption, "without gap="),
    ],
)
def test_lengths_of_a_window_that_make_no_sense_are_refused(departures, arguments, kind, part):
    refused(kind, lambda: departures.window("w", n="count(*)", **arguments), 'stage "w"', part)


@pytest.mark.parametrize(
    ("text", "kind", "part", "hint"),
    [
        ("count(distinct flight)", errors.DistinctAggregate, "DISTINCT", "approx_count_distinct"),
        ("delay", errors.NotAnAggregate, "not an aggregate", "max(delay)"),
        ("max(delay) - delay", errors.NotAnAggregate, "outside of an aggregate", "by="),
        ("sum(delay) over (partition by origin)", errors.NotAnAggregate, "window function", "OVER"),
        ("avg(delay", errors.InvalidSql, 'wrong aggregate "x"', ""),
        ("avg(delay) as y", errors.InvalidSql, "not a plain expression", "AS"),
        ("select 1", errors.InvalidSql, "not a plain expression", ""),
    ],
)
def test_an_aggregate_that_a_window_cannot_compute_is_refused(departures, text, kind, part, hint):
    refused(kind, lambda: departures.window("w", every="1 h", x=text), part, hint=hint)


def test_a_window_without_aggregates_is_refused(departures):
    refused(
        errors.NotAnAggregate,
        lambda: departures.window("w", every="1 h"),
        "no aggregates",
        hint="count(*)",
    )


def test_a_column_of_by_may_stand_outside_of_an_aggregate(departures):
    counted = departures.window("w", every="1 h", by="origin", x="concat(origin, count(*))")
    assert counted.columns == ("origin", "window_start", "window_end", "window_time", "x")


@pytest.mark.parametrize(
    "arguments",
    [
        {"by": "origin", "origin": "count(*)"},
        {"window_start": "count(*)"},
        {"by": {"window_end": "origin"}, "n": "count(*)"},
        {"by": ["origin", "ORIGIN"], "n": "count(*)"},
    ],
)
def test_columns_of_a_window_that_clash_are_refused(departures, arguments):
    refused(
        errors.DuplicateColumn,
        lambda: departures.window("w", every="1 h", **arguments),
        "two columns",
    )


def test_grouping_by_an_aggregate_is_refused(departures):
    refused(
        errors.NotAnAggregate,
        lambda: departures.window("w", every="1 h", by={"x": "max(delay)"}, n="count(*)"),
    )


def test_reserved_columns_are_refused(flow, departures):
    refused(errors.InvalidName, lambda: flow.source("a", ms.inbox("__x int")), "reserved")
    refused(
        errors.InvalidName, lambda: departures.window("w", every="1 h", __n="count(*)"), "reserved"
    )
    refused(
        errors.InvalidName,
        lambda: departures.sql("q", "SELECT at, 1 AS __x FROM departures"),
        "reserved",
    )
    refused(
        errors.InvalidName,
        lambda: departures.apply("p", same, schema="__x int, at timestamp"),
        "reserved",
    )


def test_streams_of_two_flows_do_not_meet(departures):
    other = ms.Flow("other").source("rows", ms.inbox(DDL), time="at")
    refused(
        errors.ForeignStream,
        lambda: departures.merge("m", other),
        '"rows" of another flow, "other"',
    )
    refused(errors.ForeignStream, lambda: departures.join("j", other, on="flight", within="1 h"))
    refused(errors.ForeignStream, lambda: departures.flow.merge("m", other, departures))


def test_a_merge_of_different_columns_lists_the_differences(flow, departures):
    other = flow.source(
        "other",
        ms.inbox("flight string, origin int, delay double, gate string, at timestamp"),
        time="at",
    )
    fewer = flow.source("fewer", ms.inbox("flight string, at timestamp"), time="at")
    refused(
        errors.SchemasDiffer,
        lambda: departures.merge("m", other),
        'only "other" has "gate"',
        '"origin" is string in "departures" and int in "other"',
    )
    refused(
        errors.SchemasDiffer,
        lambda: departures.merge("m", fewer),
        'only "departures" has "origin", "delay"',
    )


def test_a_merge_of_different_times_is_refused(flow, departures):
    other = flow.source("other", ms.inbox(DDL))
    refused(
        errors.TimesDiffer,
        lambda: departures.merge("m", other),
        'whose time is "at"',
        "whose time is not known",
    )


def test_a_merge_needs_two_streams(flow, departures):
    refused(errors.InvalidOption, lambda: departures.merge("m"))
    refused(errors.InvalidOption, lambda: flow.merge("m"))
    refused(
        errors.InvalidOption,
        lambda: departures.merge("m", "departures"),
        "str where a stream should be",
    )


def test_a_join_of_streams_needs_a_bound(flow, departures):
    other = flow.source("other", ms.inbox("flight string, at timestamp"), time="at")
    refused(
        errors.UnboundedJoin,
        lambda: departures.join("j", other, on="flight"),
        "without a bound",
        hint="within=",
    )


def test_a_join_on_columns_that_a_side_lacks_is_refused(flow, departures):
    other = flow.source("other", ms.inbox("flights string, at timestamp"), time="at")
    join = lambda on: departures.join("j", other, on=on, within="1 h")  # noqa: E731
    refused(
        errors.UnknownColumn,
        lambda: join("flight"),
        '"flight", which "other" does not have',
        hint="flights",
    )
    refused(errors.UnknownColumn, lambda: join("flights"), '"departures" does not have')
    refused(errors.InvalidOption, lambda: join([]), "no column")


def test_a_join_on_columns_of_different_types_is_refused(flow, departures):
    other = flow.source("other", ms.inbox("flight int, at timestamp"), time="at")
    refused(
        errors.SchemasDiffer,
        lambda: departures.join("j", other, on="flight", within="1 h"),
        'string in "departures" and int in "other"',
    )


def test_columns_that_clash_in_a_join_are_refused(flow, departures):
    other = flow.source("other", ms.inbox("flight string, delay double, at timestamp"), time="at")
    refused(
        errors.DuplicateColumn,
        lambda: departures.join("j", other, on="flight", within="1 h"),
        '"delay"',
        hint="AS",
    )
    table = ms.table("x.csv", schema="flight string, delay double")
    refused(errors.DuplicateColumn, lambda: departures.join("j", table, on="flight"), '"delay"')


def test_joins_that_do_not_exist_are_refused(departures):
    refused(
        errors.InvalidOption,
        lambda: departures.join("j", departures, on="flight", within="1 h", how="cross"),
    )
    refused(
        errors.InvalidOption,
        lambda: departures.join("j", ms.table("x.csv"), on="flight", how="right"),
        "with a table",
    )
    refused(
        errors.InvalidOption,
        lambda: departures.join("j", ms.table("x.csv"), on="flight", within="1 h"),
        "within=",
    )


def test_a_fold_or_apply_that_drops_the_time_is_refused(departures):
    refused(
        errors.TimeDropped,
        lambda: departures.fold("f", step, initial=0, output="n long"),
        'drops the time column "at"',
        hint='add "at timestamp" to its output',
    )
    refused(
        errors.TimeDropped, lambda: departures.apply("a", same, schema="n long"), hint="its schema"
    )


@pytest.mark.parametrize(
    "function", [lambda state: state, lambda: 0, lambda a, b, c: a, 3, int, None]
)
def test_a_step_takes_a_state_and_a_row(departures, function):
    refused(
        errors.InvalidFunction,
        lambda: departures.fold("f", function, initial=0, output="at timestamp"),
    )


def test_a_step_that_does_not_return_is_refused(departures):
    async def later(state, row):
        return state, None

    def several(state, row):
        yield state, None

    for function in (later, several):
        refused(
            errors.InvalidFunction,
            lambda f=function: departures.fold("f", f, initial=0, output="at timestamp"),
        )


def test_an_apply_takes_one_argument(departures):
    refused(
        errors.InvalidFunction, lambda: departures.apply("a", lambda: None), "function(dataframe)"
    )


def test_options_that_make_no_sense_are_refused(flow, departures):
    refused(
        errors.InvalidOption,
        lambda: departures.fold("f", step, initial=0, output="at timestamp", order="random"),
    )
    refused(errors.InvalidOption, lambda: departures.distinct("d", by=[], within="1 h"))
    refused(errors.InvalidDuration, lambda: departures.distinct("d", by="flight", within="0 s"))
    refused(errors.InvalidOption, lambda: departures.journal("j", partitions=0))
    refused(errors.InvalidOption, lambda: departures.journal("j", keep_bytes=-1))
    refused(errors.InvalidOption, lambda: departures.sink("s", "out"))
    refused(errors.InvalidOption, lambda: flow.source("s", "departures"))
    refused(errors.InvalidOption, lambda: flow.source("s", ms.rate(1), partitions=0))
    refused(
        errors.InvalidDuration,
        lambda: flow.source("s", ms.rate(1), time="at", lateness="-1 s"),
        "negative",
    )
    refused(errors.InvalidDuration, lambda: ms.Flow("f", window="0 s"), 'flow "f"')
    refused(errors.InvalidDuration, lambda: ms.Flow("f", window=timedelta(-1)), "negative")


def test_on_error_is_dead_or_stop_and_no_part_of_what_a_fold_means(flow, departures):
    fold = lambda name, **more: departures.fold(  # noqa: E731
        name, step, initial=0, output="at timestamp", **more
    )
    make = lambda: fold("f", on_error="skip")  # noqa: E731
    refused(errors.InvalidOption, make, 'the on_error "skip"', hint='"dead" or "stop"')
    fold("f", on_error="stop")
    assert flow.stages["f"].on_error == "stop"
    assert "on_error" not in flow.stages["f"].described(
        {field.name: None for field in dataclasses.fields(flow.stages["f"])}
    )


def test_states_are_kept_for_a_time_only_in_the_order_of_time(departures):
    fold = lambda **more: departures.fold("f", step, initial=0, output="at timestamp", **more)  # noqa: E731
    fact = "keeps states for a time, and takes rows in the order of arrival"
    make = lambda: fold(keep="1 h", order="arrival")  # noqa: E731
    refused(errors.InvalidOption, make, fact, hint='or say order="time"')
    refused(errors.InvalidDuration, lambda: fold(keep="0 s"), "keep")
    refused(errors.InvalidDuration, lambda: fold(keep="long"), "keep")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.rate(0),
        lambda: ms.rate(1, rows=-1),
        lambda: ms.replay("x.csv", "a int", speed=0),
        lambda: ms.files("x", "a int"),
        lambda: ms.files("x.csv", "a int", format="xml"),
        lambda: ms.table("airports"),
        lambda: ms.console(rows=0),
        lambda: ms.postgres("mysql://x", table="t"),
        lambda: ms.outbox("ipc://x", "b.rows"),
        lambda: ms.outbox("tcp://h:1", "rows"),
        lambda: ms.outbox("tcp://h:1", "b.rows", key="a.key"),
    ],
)
def test_specs_that_make_no_sense_are_refused(make):
    assert refused(errors.InvalidOption, make).hint


def test_a_wrong_schema_names_the_stage(departures):
    refused(
        errors.UnknownType,
        lambda: departures.fold("f", step, initial=0, output="at timestmp"),
        'stage "f"',
        "timestmp",
    )


def test_a_flow_without_outputs_is_not_finished(flow, departures):
    refused(errors.NoOutputs, flow.check, 'flow "flights" has no sinks', hint=".sink(")


def test_a_journal_that_nobody_writes_cannot_be_read(flow, departures):
    flow.reads("kept", DDL, time="at").sink("out", ms.console())
    refused(
        errors.UnknownJournal,
        flow.check,
        'reads journal "kept", which no stage writes',
        hint='.journal("kept")',
    )
    departures.journal("keep")
    refused(errors.UnknownJournal, flow.check, hint="its journals are keep")


def test_a_cycle_is_checked_where_it_closes(flow, departures):
    flow.reads("kept", "flight string, at timestamp", time="at")
    refused(
        errors.SchemasDiffer,
        lambda: departures.journal("kept"),
        'only "kept" has "origin", "delay"',
    )
    flow.reads("other", DDL, time=None)
    refused(errors.TimesDiffer, lambda: departures.journal("other"), "with the time at")


def test_a_journal_that_is_already_written_is_checked_at_once(flow, departures):
    departures.journal("kept")
    refused(errors.SchemasDiffer, lambda: flow.reads("kept", "a int, at timestamp", time="at"))


def test_an_unknown_stream_is_met_with_those_that_are_there(flow, departures):
    refused(
        errors.UnknownStream,
        lambda: flow.stream("nowhere"),
        'no stage "nowhere"',
        hint="departures",
    )


def step(state, row):
    return state, None


def same(frame):
    return frame


@pytest.mark.parametrize("kind", ["boolean", "binary", "date"])
def test_what_is_no_number_is_not_summed(kind):
    stream = ms.Flow("x").source("s", ms.inbox(f"a {kind}, at timestamp"), time="at")
    refused(
        errors.InvalidSql,
        lambda: stream.window("w", every="1 h", total="round(sum(a), 2)"),
        f'sums column "a", which is {kind}',
        hint="sum(cast(a as double))",
    )
    stream.window("w", every="1 h", total="max(a)", n="count(a)", yes="sum(if(a is null, 1, 0))")
