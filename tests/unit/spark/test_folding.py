"""Folds over the rows of a batch: whatever a step returns, the rest of the rows go on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import RunError
from millstream.journal import journal_at
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import RowFailed
from millstream.spark.stages.row_keys import RowKeys

ROWS = pa.table(
    {
        "k": ["a", "a", "b"],
        "v": [1, 0, 2],
        "at": pa.array([10, 20, 30], pa.timestamp("us", "UTC")),
    }
)
KEYS = RowKeys.of(ROWS, ("k",))


def folding(step: Any, time: str | None, letters: Path | None = None) -> Folding:
    names = frozenset({"k", "v", "at"})
    return Folding("f", ("k",), step, 0, names, time, None if letters is None else str(letters))


@pytest.mark.parametrize("time", [None, "at"])
@pytest.mark.parametrize("wrong", [[{"k": 1}], [], ("k", "at"), 5, False, {1: 2}.keys()])
def test_a_result_that_is_no_row_is_a_failure_of_its_row(
    tmp_path: Path, wrong: Any, time: str | None
) -> None:
    def step(state: int, row: dict[str, Any]) -> tuple[int, Any]:
        return state + 1, wrong if row["v"] == 0 else dict(row)

    with pytest.raises(RunError, match=r'"f" failed on \{.*\'v\': 0'):
        folding(step, time).take(ROWS, KEYS, {})
    journal_at(tmp_path).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)
    with pytest.raises(RowFailed) as failed:
        folding(step, time, tmp_path).take(ROWS, KEYS, {})
    state: dict[bytes, tuple[Any, int]] = {}
    assert [row["v"] for row in failed.value.again(ROWS, KEYS, state)] == [1, 2]
    assert [value for value, _ in state.values()] == [1, 1]
    assert sum(journal_at(tmp_path).dead_counts().values()) == 1


def test_a_step_that_takes_the_time_out_of_its_row_fails_on_it() -> None:
    def step(state: int, row: dict[str, Any]) -> tuple[int, Any]:
        return state, {"at": row.pop("at")}

    with pytest.raises(RunError, match='"f" failed on'):
        folding(step, "at").take(ROWS, KEYS, {})


def test_a_row_may_be_any_kind_of_dictionary() -> None:
    def step(state: int, row: dict[str, Any]) -> tuple[int, Any]:
        return state, Counter(v=row["v"])

    assert folding(step, None).take(ROWS, KEYS, {}) == [{"v": 1}, {"v": 0}, {"v": 2}]


def test_the_first_state_of_a_key_is_looked_at_whatever_follows() -> None:
    def step(_: Any, row: dict[str, Any]) -> tuple[Any, None]:
        return (1,) if row["v"] else [1], None

    with pytest.raises(RunError, match="keeps a state that changes when stored"):
        folding(step, None).take(ROWS, KEYS, {})
