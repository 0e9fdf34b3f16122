"""Flows in YAML, and where their mistakes are."""

import textwrap

import pytest

import millstream as ms
from millstream import errors
from millstream.flow import yaml as room
from millstream.flow.dump import dump
from millstream.flow.yaml import load

HEAD = """\
name: flights
sources:
  departures:
    inbox: flight string, origin string, delay double, at timestamp
    time: at
    key: origin
"""


def read(tmp_path, text):
    file = tmp_path / "flow.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file)


def refused(tmp_path, text, kind, *parts, at=None, hint=""):
    with pytest.raises(kind) as caught:
        read(tmp_path, text)
    error = caught.value
    for part in parts:
        assert part in error.message
    assert hint in (error.hint or "")
    assert error.where is not None
    assert error.where.file.endswith("flow.yaml")
    if at is not None:
        assert (error.where.line, error.where.column) == at
    return error


def test_the_form_that_the_docstring_shows_can_be_read(tmp_path):
    text = textwrap.dedent(
        room.__doc__[room.__doc__.index("    name:") : room.__doc__.index("Every mistake")]
    )
    flow = read(tmp_path, text)
    assert sorted(flow.stages) == sorted(
        [
            "departures",
            "weather",
            "ticks",
            "recorded",
            "again",
            "late",
            "hourly",
            "visits",
            "all",
            "paired",
            "named",
            "once",
            "scored",
            "rising",
            "change",
            "slow",
            "kept",
        ]
    )
    flow.check()


def test_a_flow_in_yaml_equals_the_same_in_python(tmp_path):
    flow = ms.Flow("flights", window="2 hours")
    ddl = "flight string, origin string, delay double, at timestamp"
    rows = flow.source(
        "departures", ms.inbox(ddl), time="at", lateness="30 min", key="origin", partitions=3
    )
    weather = flow.source(
        "weather",
        ms.files("w/*.csv", "origin string, at timestamp", follow=True, sep=";"),
        time="at",
    )
    late = rows.sql("late", "SELECT * FROM departures\nWHERE delay > 60")
    late.window("hourly", every="1 h", size="2 h", by={"o": "upper(origin)"}, n="count(*)").sink(
        "hourly", ms.parquet("out")
    )
    rows.join("paired", weather, on="origin", within="1 h", how="left").journal(
        "kept", partitions=2, keep_for="1 d"
    )
    assert read(tmp_path, dump(flow)) == flow
    text = """\
        name: flights
        switch_every: 2 hours
        sources:
          departures:
            inbox: flight string, origin string, delay double, at timestamp
            time: at
            lateness: 30 min
            key: origin
            partitions: 3
          weather:
            files: w/*.csv
            schema: origin string, at timestamp
            follow: yes
            options: {sep: ;}
            time: at
        stages:
          kept: {journal: paired, partitions: 2, keep_for: 1 day}
          hourly:
            from: late
            window: 1 hour
            size: 2 hours
            by: {o: upper(origin)}
            aggregates: {n: count(*)}
          late:
            from: departures
            sql: |-
              SELECT * FROM departures
              WHERE delay > 60
          paired:
            join: [departures, weather]
            on: origin
            within: 1 hour
            how: left
        sinks:
          hourly:
            from: hourly
            parquet: out
        """
    assert read(tmp_path, textwrap.dedent(text)) == flow
    earlier = text.replace("switch_every:", "window:")
    assert read(tmp_path, textwrap.dedent(earlier)) == flow


def test_stages_may_stand_in_any_order(tmp_path):
    text = (
        HEAD
        + "stages:\n  b: {from: a, sql: SELECT * FROM a}\n  a: {from: departures, sql: SELECT * FROM departures}\n"
    )
    assert list(read(tmp_path, text).stages) == ["departures", "a", "b"]


@pytest.mark.parametrize(
    ("target", "spec"),
    [
        ("parquet: out", ms.parquet("out")),
        ("jsonl: out", ms.jsonl("out")),
        ("csv: out", ms.csv("out")),
        ("console:", ms.console()),
        ("console: 5", ms.console(rows=5)),
        ("memory:", ms.memory()),
        ("{postgres: 'postgresql://h/d', table: t}", ms.postgres("postgresql://h/d", table="t")),
        ("{outbox: 'tcp://h:7000', source: b.rows}", ms.outbox("tcp://h:7000", "b.rows")),
        (
            "{outbox: ../b/.millstream, source: b.rows, key: a.key, server: b.public, end: true}",
            ms.outbox("../b/.millstream", "b.rows", key="a.key", server="b.public", end=True),
        ),
    ],
)
def test_every_target_can_be_named(tmp_path, target, spec):
    inner = target.strip("{}")
    text = f"{HEAD}sinks:\n  out: {{from: departures, {inner}}}\n"
    assert read(tmp_path, text).sinks["out"].target == spec


def test_words_that_yaml_takes_for_something_else_are_read_as_they_are_written(tmp_path):
    text = """\
        name: on
        sources:
          no:
            inbox: on int, yes string, at timestamp
            time: at
            key: yes
        stages:
          off: {from: no, window: 1 h, by: on, aggregates: {null: count(*), y: max(`on`)}}
        """
    flow = read(tmp_path, textwrap.dedent(text))
    assert flow.stages["off"].by == (("on", "`on`"),)
    assert read(tmp_path, dump(flow)) == flow


def test_an_aggregate_may_have_the_name_of_an_argument(tmp_path):
    text = (
        HEAD
        + "stages:\n  w: {from: departures, window: 1 h, aggregates: {every: count(*), by: max(delay)}}\n"
    )
    assert [name for name, _ in read(tmp_path, text).stages["w"].aggregates] == ["every", "by"]


def test_a_cycle_without_a_journal_is_refused_with_the_way_around_it(tmp_path):
    text = HEAD + "stages:\n  a: {merge: [departures, b]}\n  b: {from: a, sql: SELECT * FROM a}\n"
    refused(
        tmp_path, text, errors.CycleWithoutJournal, '"a" -> "b" -> "a"', at=(8, 3), hint="reads"
    )


def test_a_cycle_through_a_journal_must_say_what_it_reads(tmp_path):
    text = HEAD + "stages:\n  a: {merge: [departures, b]}\n  b: {journal: a}\n"
    refused(tmp_path, text, errors.CycleWithoutJournal, hint='"reads: b"')


def test_a_cycle_with_reads_is_fine(tmp_path):
    source = "  again: {reads: b, schema: 'flight string, origin string, delay double, at timestamp', time: at}\n"
    text = HEAD + source + "stages:\n  a: {merge: [departures, again]}\n  b: {journal: a}\n"
    flow = read(tmp_path, text)
    flow.check()
    assert read(tmp_path, dump(flow)) == flow


@pytest.mark.parametrize(
    ("text", "part", "at", "hint"),
    [
        ("", "empty", (1, None), ""),
        ("- a\n", "is a list", (1, 1), "names with values"),
        ("window: 1 h\n", 'no "name"', (1, 1), '"name: '),
        ("name: [a]\n", '"name" of "flow.yaml" is a list', (1, 7), "text"),
        ("name: f\nsource: {}\n", 'has "source"', (2, 1), '"sources"'),
        ("name: f\nname: g\n", 'has "name" twice', (2, 1), "once"),
        ("name: f\nsources: [a]\n", '"sources" is a list', (2, 10), "names with values"),
        ("name: f\nsources:\n  a: 3\n", 'source "a" is "3"', (3, 6), "names with values"),
        (
            "name: f\nsources:\n  a:\n    time: at\n",
            'source "a" does not say what it is',
            (3, 3),
            "files, inbox, kafka, rate",
        ),
        (
            "name: f\nsources:\n  a: {inbox: x int, rate: 3}\n",
            "inbox and rate at once",
            (3, 3),
            "one of",
        ),
        (
            "name: f\nsources:\n  a: {rate: fast}\n",
            '"rate" of source "a" is "fast"',
            (3, 13),
            "a number",
        ),
        ("name: f\nsources:\n  a: {rate: 1, rows: 1.5}\n", '"1.5"', (3, 22), "a whole number"),
        (
            "name: f\nsources:\n  a: {rate: 1, latness: 1 h}\n",
            'has "latness"',
            (3, 16),
            '"lateness"',
        ),
        ("name: f\nsources:\n  a: {files: x.csv}\n", 'no "schema"', (3, 3), "columns"),
        (
            "name: f\nsources:\n  a: {files: x.csv, schema: x int, follow: maybe}\n",
            '"maybe"',
            (3, 44),
            "true or false",
        ),
        ("name: 'f\n", "is not YAML", None, ""),
        ("name: f\n\tx: 1\n", "is not YAML", None, ""),
    ],
)
def test_what_is_not_the_form_is_refused_at_its_line_and_column(tmp_path, text, part, at, hint):
    refused(tmp_path, text, errors.NotLoadable, part, at=at, hint=hint)


@pytest.mark.parametrize(
    ("stages", "kind", "part", "hint"),
    [
        ("w: {window: 1 h}", errors.NotLoadable, 'stage "w" has no "from"', "a stream"),
        (
            "w: {from: departures}",
            errors.NotLoadable,
            "does not say what it is",
            "sql, window, session",
        ),
        (
            "w: {from: departures, fold: step}",
            errors.NotLoadable,
            "does not say",
            "fold needs a function",
        ),
        (
            "w: {from: departure, sql: SELECT 1}",
            errors.UnknownStream,
            'stream "departure"',
            'did you mean "departures"?',
        ),
        (
            "w: {from: departures, window: 1 h, every: 2 h}",
            errors.NotAnAggregate,
            "no aggregates",
            "",
        ),
        ("w: {join: [departures], on: a}", errors.NotLoadable, "joins 1 streams", "[left, right]"),
        ("w: {merge: }", errors.NotLoadable, "names no streams", ""),
        (
            "w: {from: departures, window: 1 fortnight, aggregates: {n: count(*)}}",
            errors.InvalidDuration,
            "fortnight",
            "",
        ),
        (
            "w: {from: departures, window: 1 h, aggregates: {n: avg(dealy)}}",
            errors.UnknownColumn,
            "averages",
            "delay",
        ),
        (
            "w: {from: departures, window: 1 h, aggregates: [count(*)]}",
            errors.NotLoadable,
            "is a list",
            "",
        ),
        (
            "departures: {from: departures, sql: x}",
            errors.NotLoadable,
            "name of a source",
            "another name",
        ),
        ("two words: {from: departures, sql: x}", errors.InvalidName, "two words", ""),
        ("w: {from: departures, distinct: flight}", errors.NotLoadable, 'no "within"', "a time"),
        ("w: {journal: departures, partitions: 0}", errors.InvalidOption, "0 partitions", ""),
        (
            "w: {from: departures, lookup: airports, on: origin}",
            errors.InvalidOption,
            "suffix",
            "format=",
        ),
    ],
)
def test_a_mistake_in_a_stage_is_at_its_line(tmp_path, stages, kind, part, hint):
    error = refused(tmp_path, f"{HEAD}stages:\n  {stages}\n", kind, part, hint=hint)
    assert error.where.line == 8
    assert error.where.code == stages


def test_a_wrong_schema_names_the_source(tmp_path):
    text = "name: f\nsources:\n  a:\n    inbox: x strin\n"
    refused(
        tmp_path, text, errors.UnknownType, 'source "a" is wrong', "strin", at=(3, 3), hint="string"
    )


def test_a_sink_without_stream_or_target_is_refused(tmp_path):
    refused(
        tmp_path, HEAD + "sinks:\n  s: {console: }\n", errors.NotLoadable, 'no "from"', at=(8, 3)
    )
    refused(
        tmp_path,
        HEAD + "sinks:\n  s: {from: departures}\n",
        errors.NotLoadable,
        "does not say what it is",
    )


def test_the_stages_know_their_lines(tmp_path):
    where = read(tmp_path, HEAD).stages["departures"].where
    assert (where.line, where.column, where.code) == (3, 3, "departures:")


def test_a_flow_that_calls_functions_cannot_be_written(tmp_path):
    flow = ms.Flow("f")
    flow.source("rows", ms.rate(1)).apply("a", lambda frame: frame)
    with pytest.raises(errors.InvalidFunction, match='stage "a"'):
        dump(flow)


def test_what_is_written_reads_well():
    flow = ms.Flow("flights", window="1 h")
    rows = flow.source(
        "departures", ms.inbox("origin string, at timestamp"), time="at", key="origin"
    )
    rows.window("hourly", every="1 h", n="count(*)").sink("hourly", ms.console())
    assert dump(flow) == textwrap.dedent(
        """\
        name: flights
        switch_every: 1 h

        sources:
          departures:
            inbox: origin string, at timestamp
            time: at
            key: origin

        stages:
          hourly:
            from: departures
            window: 1 h
            by: origin
            aggregates:
              n: count(*)

        sinks:
          hourly:
            from: hourly
            console: 20
        """
    )


def test_a_journal_without_the_stream_s_key_stays_without(tmp_path):
    flow = ms.Flow("f")
    rows = flow.source("rows", ms.inbox("a string, at timestamp"), time="at", key="a")
    rows.key_by(None).journal("kept")
    assert flow.stages["kept"].key is None
    assert read(tmp_path, dump(flow)) == flow


@pytest.mark.parametrize(
    ("given", "meant"), [("", None), ("producers: []", ()), ("producers: [till]", ("till",))]
)
def test_an_inbox_names_its_producers_and_an_empty_list_is_nobody(tmp_path, given, meant):
    text = f"name: f\nsources:\n  a:\n    inbox: k string\n    {given}\nsinks:\n  s:\n    from: a\n    memory:\n"
    assert read(tmp_path, text).stages["a"].origin.producers == meant


KEPT = """\
name: shop
sources:
  orders:
    inbox: id long, at timestamp
    time: at
    journal: kafka://b:9092/orders
stages:
  kept:
    journal: orders
    at: kafka://shop@b:9093/kept?password=kafka-password&tls=true
sinks:
  out:
    from: kept
    console: 10
"""


def test_a_journal_can_be_kept_in_kafka(tmp_path):
    flow = read(tmp_path, KEPT)
    assert flow.stages["orders"].address == "kafka://b:9092/orders"
    assert flow.stages["kept"].address.startswith("kafka://shop@b:9093/kept?")
    again = read(tmp_path, dump(flow))
    assert again.stages == flow.stages


def test_a_journal_that_can_be_nowhere_is_refused(tmp_path):
    wrong = KEPT.replace("kafka://b:9092/orders", "s3://bucket/orders")
    refused(tmp_path, wrong, errors.InvalidOption, 'source "orders"', "is not the address")
