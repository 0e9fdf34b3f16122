import pytest

import millstream as ms
from millstream.errors import InvalidOption
from millstream.plan import draw
from millstream.plan.groups import plan as plan_of

DDL = "k string, v double, at timestamp"


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("f")


@pytest.fixture
def rows(flow) -> ms.Stream:
    return flow.source("rows", ms.inbox(DDL), time="at")


def out(stream: ms.Stream, name: str) -> None:
    stream.sink(name, ms.parquet(f"out/{name}"))


def shared(flow: ms.Flow) -> list[tuple[str, ...]]:
    return [one.groups for one in plan_of(flow).shared]


def test_sinks_that_choose_from_the_rows_of_one_stream_share_a_query(flow, rows):
    out(rows, "all")
    big = rows.sql("big", "SELECT k, v, at FROM rows WHERE v > 1")
    out(big, "big")
    out(big.sql("bigger", "SELECT * FROM (SELECT * FROM big WHERE v > 2)"), "bigger")
    assert shared(flow) == [("all", "big", "bigger")]
    assert "all, big, bigger share one query" in draw.tree(plan_of(flow))
    assert draw.to_json(plan_of(flow))["shared"] == [
        {"name": "all", "groups": ["all", "big", "bigger"]}
    ]


def test_a_sink_by_itself_shares_nothing(flow, rows):
    out(rows, "all")
    assert shared(flow) == []
    assert "share" not in draw.tree(plan_of(flow))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, explode(array(1, 2)) AS n FROM rows",
        "SELECT *, rand() AS r FROM rows",
        "SELECT * FROM rows TABLESAMPLE (10 PERCENT)",
        "SELECT k, copy, at FROM rows LATERAL VIEW explode(array(0, 1)) AS copy",
        "SELECT *, uuid() AS id FROM rows",
    ],
)
def test_a_query_that_does_more_than_choose_does_not_share(flow, rows, query):
    out(rows, "all")
    out(rows.sql("more", query), "more")
    assert shared(flow) == []


def test_what_keeps_state_writes_a_journal_or_reads_two_streams_does_not_share(flow, rows):
    out(rows, "all")
    out(rows.window("hourly", every="1 h", by="k", n="count(*)"), "hours")
    kept = rows.journal("kept")
    out(kept, "again")
    out(rows.merge("both", flow.source("more", ms.inbox(DDL), time="at")), "merged")
    assert shared(flow) == []


def test_targets_elsewhere_share_only_if_their_user_says_so(flow, rows):
    out(rows, "all")
    rows.sink("table", ms.postgres("postgresql://localhost/x", table="t"))
    big = rows.sql("big", "SELECT * FROM rows WHERE v > 1")
    big.sink("big", ms.postgres("postgresql://localhost/x", table="big"))
    assert shared(flow) == []
    flow.group("together", "all", "big")
    (one,) = plan_of(flow).shared
    assert (one.name, one.groups) == ("together", ("all", "big"))


def test_a_sink_that_is_named_alone_shares_nothing(flow, rows):
    for name in ("a", "b", "c"):
        out(rows.sql(f"s{name}", "SELECT * FROM rows"), name)
    flow.group("apart", "b")
    assert shared(flow) == [("a", "c")]


def test_sinks_that_cannot_share_are_refused_together_with_the_reason(flow, rows):
    out(rows, "all")
    out(rows.window("hourly", every="1 h", by="k", n="count(*)"), "hours")
    flow.group("both", "all", "hours")
    with pytest.raises(InvalidOption, match='has sink "hours", whose stage "hourly" does more'):
        plan_of(flow)


def test_sinks_of_two_sources_are_refused_together(flow, rows):
    out(rows, "a")
    out(flow.source("others", ms.inbox(DDL), time="at"), "b")
    flow.group("both", "a", "b")
    with pytest.raises(InvalidOption, match='has sinks that read "others" and "rows"'):
        plan_of(flow)


def test_a_group_names_sinks_that_are_there_each_once(flow, rows):
    out(rows, "a")
    with pytest.raises(InvalidOption, match='names "b", which is not a sink'):
        flow.group("g", "b")
    with pytest.raises(InvalidOption, match="names no sinks"):
        flow.group("g")
    flow.group("g", "a")
    with pytest.raises(InvalidOption, match='names sink "a", which is in group "g" already'):
        flow.group("h", "a")


def test_groups_of_sinks_are_kept_in_yaml(flow, rows, tmp_path):
    from millstream.flow.dump import dump
    from millstream.flow.yaml import load

    for name in ("a", "b"):
        out(rows.sql(f"s{name}", "SELECT * FROM rows"), name)
    flow.group("pair", "a", "b")
    file = tmp_path / "flow.yaml"
    file.write_text(dump(flow))
    assert "groups:\n  pair: [a, b]" in file.read_text()
    assert load(file) == flow
    assert load(file).groups["pair"].sinks == ("a", "b")


def test_what_a_group_means_does_not_depend_on_who_it_shares_a_query_with(flow, rows):
    from millstream.plan.fingerprint import fingerprint

    for name in ("a", "b"):
        out(rows.sql(f"s{name}", "SELECT * FROM rows"), name)
    before = fingerprint(plan_of(flow), "a", {})
    flow.group("apart", "a")
    assert fingerprint(plan_of(flow), "a", {}) == before
