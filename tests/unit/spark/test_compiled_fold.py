"""Folds by functions that are compiled: what can be, and what is computed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import numba
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import millstream as ms
from millstream.errors import FlowError
from millstream.flow.declared import CompiledFold
from millstream.flow.stages import Fold
from millstream.spark.stages.compiled_fold import folded, ready

COLUMNS = StructType(
    [
        StructField("k", StringType()),
        StructField("n", ShortType()),
        StructField("x", DoubleType()),
        StructField("b", BooleanType()),
        StructField("at", TimestampType()),
        StructField("long", LongType()),
    ]
)


def made(step: Callable[..., float], *columns: str, initial: float = 0.0) -> CompiledFold:
    """Return a fold as Spark gets it, of a stream whose columns only Spark knows."""
    flow = ms.Flow("compiled")
    events = flow.source("events", ms.inbox("k string, at timestamp"), time="at", key="k")
    known = events.apply("known", lambda frame: frame)
    own = ms.compiled(step, *columns, initial=initial)
    kinds = {bool: "boolean", int: "bigint", float: "double"}
    output = f"k string, at timestamp, own {kinds[type(initial)]}"
    known.fold("folds", output=output, own=own).sink("out", ms.memory())
    stage = flow.stages["folds"]
    assert isinstance(stage, Fold)
    (found,) = ready(stage, flow, COLUMNS)
    assert isinstance(found, CompiledFold)
    return found


@numba.njit
def helped(known, x):  # type: ignore[no-untyped-def]
    return known + 2 * x


def using(known: float, x: float, n: int) -> float:
    total: float = helped(known, x)
    return total - n


def test_rows_are_folded_by_segment_and_nulls_are_left_out() -> None:
    rows = pa.table(
        {
            "x": [1.0, 10.0, None, 3.0, 20.0],
            "n": pa.array([1, 1, 1, None, 2], pa.int16()),
        }
    )
    order, ends = np.array([0, 2, 3, 1, 4]), np.array([3, 5])
    results, kept = folded(made(using), rows, order, ends, [None, 0.5])
    assert results.to_pylist() == [1.0, 19.5, 1.0, 1.0, 57.5]
    assert kept.to_pylist() == [1.0, 57.5]
    nothing = pa.table({"x": pa.array([None], pa.float64()), "n": pa.array([1], pa.int16())})
    results, kept = folded(made(using), nothing, np.array([0]), np.array([1]), [None])
    assert results.to_pylist() == kept.to_pylist() == [None]


def test_a_parameter_with_a_default_is_no_column() -> None:
    fold = made(lambda known, X, weight=0.5: known + weight * X)
    assert fold.columns == ("x",), "as the stream spells it"
    assert fold.after(None, {"x": 1.5}) == 0.75
    assert fold.after(3.0, {"x": None}) == 3.0
    (results, _) = folded(fold, pa.table({"x": [1.0]}), np.array([0]), np.array([1]), [2.0])
    assert results.to_pylist() == [2.5]


def test_an_executor_needs_numba_alone() -> None:
    code = "import sys; sys.modules['sqlglot'] = None; import millstream.spark.stages.compiled_fold"
    subprocess.run([sys.executable, "-c", code], check=True)


def divided(known: float, x: float) -> float:
    return known + 1 / x


def test_a_function_may_fail_on_a_row() -> None:
    fold, rows = made(divided), pa.table({"x": [1.0, 0.0]})
    with pytest.raises(ZeroDivisionError):
        folded(fold, rows, np.array([0, 1]), np.array([2]), [None])
    with pytest.raises(ZeroDivisionError):
        fold.after(1.0, {"x": 0.0})


@pytest.mark.parametrize(
    ("step", "columns", "initial", "fact"),
    [
        (lambda known, x: known + x, ("at",), 0.0, 'column "at" is timestamp'),
        (lambda known, x: known + x, ("k",), 0.0, 'column "k" is string'),
        (lambda known, x: known + x, ("x",), 0, "it returns float64, and is bigint"),
        (lambda known, x: x > 0, ("x",), 0.0, "it returns bool, and is double"),
        (lambda known, n: known + n, ("n",), True, "it returns int64, and is boolean"),
        (lambda known, x: None, ("x",), 0.0, "it returns none"),
        (lambda known, n: np.uint64(known) + np.uint64(n), ("n",), 0, "it returns uint64"),
        (lambda known, y: known + y, ("y",), 0.0, '"known" has no column "y"'),
        (lambda known, x: known + "x", ("x",), 0.0, "No implementation of function"),
        (lambda known, x: re.compile("x"), ("x",), 0.0, 'cannot compile the fold "own"'),
        (max, ("x",), 0.0, 'cannot compile the fold "own"'),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    step: Callable[..., float], columns: tuple[str, ...], initial: float, fact: str
) -> None:
    with pytest.raises(FlowError, match=re.escape(fact)) as caught:
        made(step, *columns, initial=initial)
    assert 'stage "folds" of flow "compiled"' in caught.value.message
    assert caught.value.hint is not None
