"""Of structs that are only asked for fields, only these are read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.io.arrays import fitted, narrowed
from millstream.spark.stages.fields import single_fields

Node = dict[str, Any]


def node(kind: str, children: int = 1, **more: Any) -> Node:
    return {"class": f"org.apache.spark.{kind}", "num-children": children, **more}


def column(number: int) -> list[Node]:
    return [node("AttributeReference", 0, exprId={"id": number})]


def field(number: int, place: int) -> list[Node]:
    return [node("GetStructField", 1, ordinal=place), *column(number)]


def alias(*parts: Node) -> list[Node]:
    return [node("Alias", 1), *parts]


RELATION = node("StreamingRelation", 0, output=[column(1), column(2)])


def found(*nodes: Node, outputs: tuple[int, ...] = ()) -> dict[int, set[int]]:
    return single_fields(json.dumps([*nodes, RELATION]), outputs)


def test_fields_that_are_asked_for_are_found_through_what_hands_a_column_on() -> None:
    assert found(
        node("Project", projectList=[alias(*field(1, 3)), column(7)]),
        node("Filter", condition=[node("EqualTo", 2), *field(1, 0), node("Literal", 0)]),
        node("EventTimeWatermark", eventTime=column(2)),
        node("Project", projectList=[column(1), column(2)]),
    ) == {1: {0, 3}}


@pytest.mark.parametrize(
    "above",
    [
        node("Filter", condition=[node("IsNotNull", 1), *column(1)]),
        node("Project", projectList=[alias(*column(1))]),
        node("Aggregate", groupingExpressions=[column(1)], aggregateExpressions=[]),
        node("MapInArrow", functionExpr=[node("PythonUDF", 1), *column(1)]),
        node("Expand", projections=[[column(1)], [alias(*field(1, 1))]]),
        # What these need of their input is in no expression.
        node("Union", 1),
        node("Deduplicate", keys=[column(2)]),
    ],
)
def test_a_column_that_is_needed_as_a_whole_stays_whole(above: Node) -> None:
    below = node("Project", projectList=[alias(*field(1, 0)), column(1)])
    assert found(above, below) == {}


def test_a_column_that_comes_out_stays_whole() -> None:
    assert found(node("Filter", condition=field(1, 0)), outputs=(1,)) == {}
    assert found(node("Filter", condition=field(1, 0)), outputs=(2,)) == {1: {0}}


def test_a_struct_is_narrowed_to_fields_and_null_to_nulls() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.struct([("d", pa.bool_())]))])
    rows = [{"a": 1, "b": "x", "c": {"d": True}}, None, {"a": None, "b": "y", "c": None}]
    array = pa.array([{"a": 0, "b": "", "c": None}, *rows], kind).slice(1)
    narrow = narrowed(pa.field("s", kind), ("c", "a"))
    assert fitted(array, narrow.type).to_pylist() == [
        {"c": {"d": True}, "a": 1},
        {"c": None, "a": None},
        {"c": None, "a": None},
    ]
    assert fitted(array, kind) is array
    assert narrowed(pa.field("s", kind), None).type == kind
