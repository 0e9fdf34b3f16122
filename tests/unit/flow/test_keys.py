"""Keys that are expressions, wherever a key is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DuplicateColumn, FlowError, InvalidOption, InvalidSql, UnknownColumn
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.load import load
from millstream.flow.stages import Keyed
from millstream.plan.draw import tree
from millstream.plan.fingerprint import difference, digest, fingerprint
from millstream.plan.groups import plan
from millstream.plan.picture import svg

DDL = "shop string, till int, amount double, at timestamp"
UPPER = "upper(shop)"
CODE = "upper(shop) as code"


def count(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return total + 1, {"key": row["upper_shop"], "at": row["at"], "n": total + 1}


OUTPUT = "key string, at timestamp, n long"
RISE = ms.Pattern().begin("a", "amount > 1").followed_by("b", "amount > a.amount").within("1 hour")


def sales(key: str | None = None, partitions: int = 1) -> ms.Stream:
    flow = ms.Flow("shop")
    return flow.source("sales", ms.inbox(DDL), time="at", key=key, partitions=partitions)


def test_a_window_has_the_expression_as_a_column() -> None:
    hourly = sales().window("hourly", every="1 hour", by=[UPPER, "till"], n="count(*)")
    assert hourly.columns[:2] == ("upper_shop", "till")
    named = sales().window("hourly", every="1 hour", by="upper(shop) AS code", n="count(*)")
    assert named.columns[0] == "code"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("UPPER( shop )", "upper_shop"),
        ("cast(till as string)", "cast_till_as_string"),
        ("cast(till as string) as till_text", "till_text"),
        ("date_trunc('hour', at)", "date_trunc_hour_at"),
        ("substr(shop, 1, 2) as `the shop`", "the shop"),
    ],
)
def test_a_key_without_a_name_is_called_by_its_words(text: str, name: str) -> None:
    once = sales().distinct("once", by=text, within="1 day")
    assert once.columns == ("shop", "till", "amount", "at", name)
    assert once.flow.stages["once"].grouped_by == (name,)


def test_the_stage_that_computes_it_stands_above_and_no_kind_knows() -> None:
    stream = sales()
    folded = stream.fold("counted", count, initial=0, output=OUTPUT, by=UPPER)
    keyed, fold = stream.flow.stages["counted-key"], folded.flow.stages["counted"]
    assert isinstance(keyed, Keyed)
    assert (keyed.input, keyed.columns) == ("sales", (("upper_shop", UPPER),))
    assert (fold.inputs, fold.grouped_by) == (("counted-key",), ("upper_shop",))
    found = stream.match("rise", RISE, by=[UPPER, "till"])
    assert found.columns is not None
    assert found.columns[:2] == ("upper_shop", "till")


def test_the_sides_of_a_join_that_lack_it_compute_it_and_a_table_has_it() -> None:
    stream = sales()
    other = stream.flow.source(
        "visits", ms.inbox("shop string, people int, seen timestamp"), time="seen"
    )
    stream.join("semi", other, on=UPPER, within="1 hour", how="semi")
    assert stream.flow.stages["semi"].inputs == ("semi-left-key", "semi-right-key")
    coded = other.sql("coded", "SELECT upper(shop) AS code, people, seen FROM visits")
    pair = stream.join("pair", coded, on=CODE, within="1 hour")
    assert pair.columns == ("shop", "till", "amount", "at", "code", "people", "seen")
    turned = coded.join("turned", stream, on=CODE, within="1 hour")
    assert turned.columns == ("code", "people", "seen", "shop", "till", "amount", "at")
    with pytest.raises(UnknownColumn, match='joins on column "shop", which "coded" does not have'):
        stream.join("wrong", coded, on=UPPER, within="1 hour")
    both = coded.sql("both", "SELECT *, code AS shop FROM coded")
    with pytest.raises(DuplicateColumn, match='under the name of the column "code"'):
        both.join("twice", coded, on=CODE, within="1 hour")
    table = ms.table("codes.csv", schema="code string, name string")
    named = stream.join("named", table, on="upper(shop) as code")
    assert named.columns == ("shop", "till", "amount", "at", "code", "name")


def test_a_source_and_a_stream_are_keyed_by_it_until_a_stage_needs_it() -> None:
    for stream in (sales(UPPER), sales().key_by(UPPER)):
        assert stream.columns == ("shop", "till", "amount", "at")
        big = stream.sql("big", "SELECT * FROM sales WHERE amount > 9")
        assert big.window("hourly", every="1 hour", n="count(*)").key == "upper_shop"
        kept = big.journal("kept", partitions=2)
        assert (kept.key, kept.columns) == ("upper_shop", (*stream.columns, "upper_shop"))
        lost = stream.sql("lost", "SELECT amount, at FROM sales")
        assert lost.window("all", every="1 hour", n="count(*)").columns[0] == "window_start"
        assert big.merge("same", stream).keyed_by == stream.keyed_by
        assert big.merge("other", stream.key_by("till")).keyed_by is None


def test_a_source_with_partitions_is_keyed_by_a_column() -> None:
    with pytest.raises(InvalidOption, match="has 2 partitions and is keyed by the expression") as e:
        sales(UPPER, partitions=2)
    assert 'stream.key_by("upper(shop)")' in (e.value.hint or "")


@pytest.mark.parametrize(
    ("text", "error", "fact"),
    [
        ("upper(shp)", UnknownColumn, 'is distinct by column "shp"'),
        ("rand()", InvalidSql, r"rand\(\) is not the same when a row is read again"),
        ("concat(shop, uuid()) as k", InvalidSql, r"uuid\(\) is not the same"),
        ("date_diff(at, now())", InvalidSql, r"now\(\) is not the same"),
        ("concat(shop, current_date)", InvalidSql, r"current_date\(\) is not the same"),
        ("upper(shop) as till", DuplicateColumn, 'under the name of the column "till"'),
        ("sum(amount)", InvalidSql, "which is an aggregate of many rows"),
        ("explode(split(shop, ','))", InvalidSql, "which makes several rows of one"),
        ("shop in (SELECT 1)", InvalidSql, "which has a query in it"),
        ("1 + 1", InvalidSql, "which uses no column"),
        ("upper(shop", InvalidSql, "is not Spark SQL"),
        ("shop shopp", InvalidSql, "is not a plain expression"),
        ("shopp", UnknownColumn, 'is distinct by column "shopp"'),
    ],
)
def test_a_key_that_no_row_can_have_is_refused(
    text: str, error: type[FlowError], fact: str
) -> None:
    with pytest.raises(error, match=fact) as e:
        sales().distinct("once", by=text, within="1 day")
    assert e.value.where is not None


def test_a_new_window_by_something_that_changes_is_objected_to() -> None:
    stream = sales().window("hourly", every="1 h", by={"k": "rand()"}, n="count(*)")
    with pytest.raises(InvalidSql, match=r"groups by \"k\", and rand\(\) is not the same"):
        raise objection_of(stream)


def objection_of(stream: ms.Stream) -> FlowError:
    from millstream.flow.site import Site

    stage = stream.flow.stages[stream.name]
    above = (stream.flow.stream(name) for name in stage.inputs)
    found = stage.objection(Site("shop", stage.name), *above)
    assert found is not None
    return found


def test_the_same_stage_can_be_written_again_after_a_mistake() -> None:
    stream = sales()
    with pytest.raises(FlowError, match="drops the time column"):
        stream.fold("counted", count, initial=0, output="n long", by=UPPER)
    stream.fold("counted", count, initial=0, output=OUTPUT, by=UPPER)


def every_kind() -> ms.Flow:
    stream = sales("upper(shop) as code")
    stream.distinct("once", by=["lower(shop)", "till"], within="1 day").sink("once", ms.memory())
    stream.match("rise", RISE).sink("rise", ms.memory())
    stream.match("falls", RISE, by="till").sink("falls", ms.memory())
    stream.window("hourly", every="1 hour", by=UPPER, n="count(*)").sink("hourly", ms.memory())
    table = ms.table("codes.csv", schema="`the code` string, name string")
    stream.join("named", table, on="upper(shop) as `the code`").sink("named", ms.memory())
    stream.journal("kept", partitions=2)
    people = stream.flow.source("people", ms.inbox("code string, seen timestamp"), time="seen")
    stream.join("paired", people, on=CODE, within="1 hour").sink("paired", ms.memory())
    stream.journal("by_till", key="till % 2 as even")
    return stream.flow


def test_yaml_has_the_expressions_and_loads_to_an_equal_flow(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(dump(every_kind()))
    assert "key: upper(shop) as code" in file.read_text()
    assert "distinct: [lower(shop) as lower_shop, till]" in file.read_text()
    assert "-key" not in file.read_text()
    assert load(file) == every_kind()
    assert dump(load(file)) == file.read_text()


def test_a_plan_shows_it_and_a_description_has_it() -> None:
    flow = every_kind()
    assert "sales ── kept-key ──" in tree(plan(flow))
    assert "upper(shop) as code" in svg(plan(flow))
    assert describe(flow)["stages"][0]["key"] == "upper(shop) as code"
    assert describe(flow)["stages"][0]["output"]["key"] == "upper(shop) as code"


def test_a_fingerprint_changes_with_the_expression_and_not_with_its_spelling() -> None:
    def meaning(text: str) -> dict[str, Any]:
        stream = sales().distinct("once", by=f"{text} as k", within="1 day")
        stream.sink("out", ms.memory())
        return fingerprint(plan(stream.flow), "out")

    assert digest(meaning("upper(shop)")) == digest(meaning("UPPER( shop )"))
    (line,) = difference(meaning("upper(shop)"), meaning("lower(shop)"))
    assert "upper(shop)" in line
    assert "lower(shop)" in line


def test_a_source_with_a_column_as_its_key_is_described_as_before() -> None:
    assert "keyed_by" not in describe(sales("shop").flow)["stages"][0]
