"""What `apply` and `sql` may return: frames without state of their own, in which the time stays.

Spark's plans are Java objects, which have no types here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millstream.errors import InvalidFunction, StatefulSql, TimeDropped
from millstream.flow.flow import Flow
from millstream.flow.stages import OneInput, Stage
from millstream.spark.stages.columns import WATERMARK

#: Nodes of Spark's plans that keep state or need all rows, and what to write instead.
_STATEFUL: Final = {
    "Aggregate": "an aggregate",
    "Distinct": "distinct rows",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "FlatMapGroupsInPandas": "applyInPandas over groups",
    "FlatMapGroupsInArrow": "applyInArrow over groups",
    "Window": "a window function",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Sort": "a sort",
    "Except": "except",
    "Intersect": "intersect",
    "EventTimeWatermark": "withWatermark",
}
_INSTEAD: Final = (
    "use the stages window, distinct, fold or join: "
    "they have names, horizons and state that survives"
)


def title(stage: Stage, flow: Flow) -> str:
    """Return what errors call a stage."""
    return f'stage "{stage.name}" of flow "{flow.name}"'


def check_stateless(stage: OneInput, flow: Flow, frame: Any) -> None:
    """Refuse what is no stream, hides state, or loses the time column."""
    who = title(stage, flow)
    if not isinstance(frame, DataFrame):
        msg = f"{who} returns {type(frame).__name__}, not a DataFrame"
        raise InvalidFunction(msg, hint="return the DataFrame", where=stage.where)
    if not frame.isStreaming:
        msg = f"{who} does not use the stream it is given"
        raise InvalidFunction(msg, hint="build the result from the argument", where=stage.where)
    time = flow.stream(stage.input).time
    found = _stateful_nodes(frame, timed=time is not None)
    if found:
        raise StatefulSql(f"{who} hides {' and '.join(found)}", hint=_INSTEAD, where=stage.where)
    if time is not None:
        _check_time(stage, time, frame, who)


def _check_time(stage: Stage, time: str, frame: DataFrame, who: str) -> None:
    if time not in frame.columns:
        hint = f'keep "{time}" in what it selects'
        raise TimeDropped(f'{who} drops the time column "{time}"', hint=hint, where=stage.where)
    if WATERMARK not in frame.schema[time].metadata:
        msg = f'{who} puts something else in place of the time column "{time}"'
        hint = f'leave "{time}" as it is and put the new value into another column'
        raise TimeDropped(msg, hint=hint, where=stage.where)


def _stateful_nodes(frame: DataFrame, *, timed: bool) -> list[str]:
    names = [node.nodeName() for node in nodes(frame._jdf.queryExecution().analyzed())]
    if timed:
        names.remove("EventTimeWatermark")  # the one of the stub itself
    found = [_STATEFUL[name] for name in names if name in _STATEFUL]
    joins = [n for n in nodes(frame._jdf.queryExecution().analyzed()) if n.nodeName() == "Join"]
    if any(all(children(join)[side].isStreaming() for side in (0, 1)) for join in joins):
        found.append("a join of the stream with itself")
    return sorted(set(found))


def ddl(schema: StructType) -> str:
    """Return columns as errors show them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def first_line(error: Exception) -> str:
    """Return the first line of an error of Spark's, without its codes."""
    text = (str(error).strip() or type(error).__name__).split("\n")[0].split(" SQLSTATE")[0]
    return re.sub(r"^\[[A-Z0-9_.]+\] ", "", text).rstrip(";. ")


def nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan."""
    yield plan
    for child in children(plan):
        yield from nodes(child)


def children(node: Any) -> list[Any]:
    return list(each(node.children()))


def each(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.length()):
        yield sequence.apply(place)
