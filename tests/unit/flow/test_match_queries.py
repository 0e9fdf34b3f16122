"""MATCH_RECOGNIZE in flows: the stage, its columns, time and key, and what is refused while building."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import (
    DuplicateName,
    InvalidCondition,
    InvalidSql,
    NoTime,
    StatefulSql,
    TimeDropped,
    TimesDiffer,
    UnknownColumn,
    UnknownStream,
    UnsupportedSql,
)
from millstream.flow.dump import dump
from millstream.flow.yaml import load
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.groups import plan as plan_of


def query(select: str = "*", **parts: str) -> str:
    said = {
        "table": "trades",
        "partition": "PARTITION BY sym",
        "order": "ORDER BY at",
        "rows": "",
        "rest": "",
    }
    said |= {
        "measures": "LAST(down.price) AS bottom",
        "pattern": "strt down+ up",
        "after": "WITHIN INTERVAL '1' HOUR",
    }
    said |= {"define": "down AS price < PREV(price), up AS price > PREV(price)", **parts}
    text = "SELECT {select} FROM {table} MATCH_RECOGNIZE ({partition} {order} MEASURES {measures} {rows} PATTERN ({pattern}) {after}"
    return f"{text} DEFINE {{define}}) {{rest}}".format(select=select, **said)


def trades(time: str | None = "at") -> ms.Stream:
    return ms.Flow("market").source(
        "trades", ms.inbox("sym string, price double, at timestamp"), time=time, key="sym"
    )


def test_a_query_has_the_key_the_measures_and_the_time():
    stream = trades().sql("v", query())
    assert stream.schema.ddl == "sym string, bottom double, at timestamp"
    assert (stream.time, stream.key, stream.flow.stages["v"].by) == ("at", "sym", ("sym",))


def test_what_stands_around_the_clause_is_a_query_over_its_rows():
    stream = trades().sql(
        "v", query("upper(sym) AS s, m.bottom, at", rest="AS m WHERE bottom < 10")
    )
    assert (stream.columns, stream.time, stream.key) == (("s", "bottom", "at"), "at", None)


def test_all_rows_keep_their_own_time_beside_the_moment_of_the_match():
    stream = trades().sql("v", query(rows="ALL ROWS PER MATCH"))
    assert (stream.columns, stream.time) == (
        ("sym", "at", "bottom", "price", "match_time"),
        "match_time",
    )


def test_a_flow_finds_the_stream_that_a_query_reads():
    flow = trades().flow
    assert flow.sql("v", query()).flow.stages["v"].input == "trades"
    assert flow.sql("low", "SELECT * FROM v WHERE bottom < 1").columns == ("sym", "bottom", "at")
    with pytest.raises(UnknownStream, match='reads FROM "trade", which is not a stream') as caught:
        flow.sql("x", "SELECT * FROM trade")
    assert caught.value.hint == "its streams are trades, v, low"


def test_the_plan_knows_its_state_and_hands_it_over():
    stream = trades().sql("v", query(after=""))
    stream.sink("out", ms.memory())
    plan = plan_of(stream.flow)
    assert (plan.groups[0].stateful, plan.groups[0].handed_over) == (True, ("v",))
    assert plan.warnings == (
        'stage "v": pattern "match_recognize" has a loop without an end, and has no within: its runs may live for ever',
    )
    assert trades().sql("v", query()).flow.stages["v"].pattern.reach == timedelta(hours=1)


def test_another_layout_means_the_same_and_another_span_does_not():
    def of(text):
        stream = trades().sql("v", text)
        stream.sink("out", ms.memory())
        return fingerprint(plan_of(stream.flow), "out")

    one = of(query())
    assert difference(one, of(query().replace(" ", "\n "))) == []
    assert difference(one, of(query(after="WITHIN INTERVAL '2' HOUR")))
    assert difference(one, of(query(after="WITHIN INTERVAL '1' HOUR SUBSET u = (strt, up)")))
    assert difference(one, of(query(define="down AS price < PREV(price)")))


def test_it_comes_back_from_yaml_as_it_was(tmp_path):
    stream = trades().sql("v", query("sym,\n  at\n"))
    stream.sink("out", ms.memory())
    (tmp_path / "flow.yaml").write_text(dump(stream.flow))
    assert load(tmp_path / "flow.yaml").stages["v"] == stream.flow.stages["v"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (query("bottom"), TimeDropped, 'stage "v" of flow "market" drops the time column "at"'),
        (query("sym, botom, at"), UnknownColumn, 'reads column "botom"'),
        (
            query(table="trade"),
            UnknownStream,
            'matches rows FROM "trade", but its stream is "trades"',
        ),
        (
            query(order="ORDER BY price"),
            TimesDiffer,
            'ORDER BY "price" .* the time of stream "trades" is "at"',
        ),
        (query(partition="PARTITION BY symbol"), UnknownColumn, 'has PARTITION BY column "symbol"'),
        (
            query(define="down AS prize < 1, up AS TRUE"),
            UnknownColumn,
            'variable "down" reads column "prize"',
        ),
        (
            query(define="down AS price < 'x' AND price < LAST(strt.sym), up AS TRUE"),
            InvalidCondition,
            "compares a",
        ),
        (query(measures="LAST(up.at) AS at"), DuplicateName, 'emits "at"'),
        (query(rest="GROUP BY sym"), StatefulSql, "has GROUP BY"),
        (query(pattern="strt down $"), UnsupportedSql, "anchor"),
        (query(after="WITHIN INTERVAL '1' MONTH"), InvalidCondition, "WITHIN is wrong"),
        (query(define="down AS price <"), InvalidSql, "not SQL: .*line 1, column"),
    ],
)
def test_a_mistake_is_found_while_building(text, error, said):
    with pytest.raises(error, match=said) as caught:
        trades().sql("v", text)
    assert caught.value.hint
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_a_stream_without_time_has_no_order():
    with pytest.raises(NoTime, match="is a match"):
        trades(time=None).sql("v", query())


def test_a_mistake_in_yaml_has_its_place(tmp_path):
    text = (
        dump(trades().flow).rstrip()
        + f"\nstages:\n  v:\n    from: trades\n    sql: {query(define='down AS prize < 1')}\n"
    )
    (tmp_path / "flow.yaml").write_text(text + "sinks:\n  out: {from: v, memory: }\n")
    with pytest.raises(UnknownColumn, match='variable "down" reads column "prize"') as caught:
        load(tmp_path / "flow.yaml")
    assert caught.value.where.line == text[: text.index("  v:\n")].count("\n") + 1
