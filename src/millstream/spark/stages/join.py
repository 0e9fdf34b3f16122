"""`join` on Spark: a join of two streams that is bounded in time."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.flow.stages import Join
from millstream.spark.io.source import PLACE
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import interval, marked, unmarked
from millstream.spark.stages.kind import SparkKind
from millstream.switch.starts import HIDDEN_START

_RIGHT = "__right_"


def build(stage: Join, builder: Builder, start: str | None = None) -> DataFrame:
    left_time, right_time = builder.time(stage.left), builder.time(stage.right)
    left = builder.frame(stage.left).drop(PLACE)
    right = builder.frame(stage.right).drop(PLACE)
    right = right.select(*(F.col(f"`{name}`").alias(f"{_RIGHT}{name}") for name in right.columns))
    ours, theirs = F.col(f"`{left_time}`"), F.col(f"`{_RIGHT}{right_time}`")
    bound = F.expr(f"INTERVAL {interval(stage.within)}")
    near = (theirs >= ours - bound) & (theirs <= ours + bound)
    times = {*marked(left), *marked(right)}
    condition = reduce(and_, (_same(name, times) for name in stage.on), near)
    joined = left.join(right, condition, {"semi": "left_semi"}.get(stage.how, stage.how))
    if stage.how == "semi":
        return joined
    return joined.select(
        *(_left(stage, name, left_time, right_time) for name in left.columns),
        *(
            _right(hidden, right_time)
            for hidden in right.columns
            if (name := hidden.removeprefix(_RIGHT)) not in stage.on
            and not name == right_time == left_time
        ),
        *([_earlier(left_time, right_time).alias(start)] if start is not None else []),
    )


def results(stage: Join, builder: Builder) -> DataFrame:
    """Return the pairs, each with the time of its earlier row in a hidden column."""
    return build(stage, builder, HIDDEN_START)


def _earlier(left_time: str, right_time: str) -> Column:
    # A row without a partner starts by itself: `least` takes no notice of nulls.
    return F.least(unmarked(left_time), unmarked(f"{_RIGHT}{right_time}"))


def _same(name: str, times: set[str]) -> Column:
    # A key that carries the watermark would let Spark drop state by it instead of by the bound.
    if {name, f"{_RIGHT}{name}"} & times:
        return unmarked(name) == unmarked(f"{_RIGHT}{name}")
    return F.col(f"`{name}`") == F.col(f"`{_RIGHT}{name}`")


def _left(stage: Join, name: str, left_time: str, right_time: str) -> Column:
    column = F.col(f"`{name}`")
    if stage.how not in ("right", "full"):
        return column
    twin = right_time if name == left_time else name
    if name == left_time or name in stage.on:
        return F.coalesce(column, F.col(f"`{_RIGHT}{twin}`")).alias(name)
    return column


def _right(hidden: str, right_time: str) -> Column:
    name = hidden.removeprefix(_RIGHT)
    # A join keeps one time column; the other becomes a plain timestamp.
    column = unmarked(hidden) if name == right_time else F.col(f"`{hidden}`")
    return column.alias(name)


KIND = SparkKind(build, results=results, whole_rows=True)
