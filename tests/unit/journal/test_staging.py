from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import NullKey, NullTime, SchemaConflict
from millstream.journal.base import Staged
from millstream.journal.kinds.files import staging
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.layout import staged_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.staging import stage


@pytest.fixture
def grouped(tmp_path: Path, schema: pa.Schema) -> Path:
    create(tmp_path, schema, partitions=3, time="at", written_by="group")
    return tmp_path


def where(staged: list[Staged]) -> dict[int, int]:
    return {one.partition: one.rows for one in staged}


def files(path: Path) -> list[Path]:
    return list(staged_folder(path).iterdir())


def test_rows_go_to_the_place_of_their_key(grouped: Path, batch: Any) -> None:
    staged = stage(
        grouped, [batch(1, 2, 3, names=["JFK", "LGA", "EWR"]), batch(4, names=["JFK"])], "name"
    )
    assert where(staged) == {1: 1, 2: 3}
    assert [(one.min_time, one.max_time) for one in staged] == [(2, 2), (1, 4)]
    assert pickle.loads(pickle.dumps(staged)) == staged


def test_rows_of_one_key_keep_their_order(grouped: Path, batch: Any) -> None:
    with EpochLog.open(grouped) as log:
        log.decide(
            "g",
            0,
            stage(grouped, [batch(3, 9, 1, 2, names=["JFK", "LGA", "JFK", "JFK"])], "name"),
            None,
        )
        log.publish()
    reader = Reader(grouped).partition(2)
    times = [
        t
        for part in reader.read(0, 3)
        for t in part.batch.column("at").cast(pa.int64()).to_pylist()
    ]  # type: ignore[union-attr]
    assert times == [3, 1, 2]


def test_rows_go_where_they_are_sent(grouped: Path, batch: Any) -> None:
    assert where(stage(grouped, [batch(1, 2)], 2)) == {2: 2}


def test_batches_go_round_without_a_key(grouped: Path, batch: Any) -> None:
    assert where(stage(grouped, [batch(n) for n in range(6)])) == {0: 2, 1: 2, 2: 2}


def test_nothing_is_staged_for_no_rows(grouped: Path, batch: Any) -> None:
    assert stage(grouped, []) == stage(grouped, [batch()]) == []
    assert files(grouped) == []


@pytest.mark.parametrize(
    ("rows", "partition_of", "error"),
    [
        (((1, None), ["a", "b"]), 0, NullTime),
        (((1, 2), ["a", None]), "name", NullKey),
        (((1,), ["a"]), "nothing", SchemaConflict),
        (((1,), ["a"]), 3, SchemaConflict),
        (((1,), ["a"]), -1, SchemaConflict),
    ],
    ids=["no time", "no key", "no such key", "too high", "too low"],
)
def test_rows_that_cannot_be_placed_leave_no_file(
    grouped: Path, batch: Any, rows: Any, partition_of: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        stage(grouped, [batch(1), batch(*rows[0], names=rows[1])], partition_of)
    assert files(grouped) == []


def test_small_batches_are_put_together(
    grouped: Path, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_ROWS", 10)
    (one,) = stage(grouped, [batch(n) for n in range(25)], 0)
    assert (one.rows, one.parts) == (25, 3)


def test_columns_may_be_added_while_epochs_are_written(
    grouped: Path, batch: Any, schema: pa.Schema
) -> None:
    with EpochLog.open(grouped) as log:
        early = stage(grouped, [batch(1)], 0)
        create(
            grouped,
            schema.append(pa.field("extra", pa.int64())),
            partitions=3,
            time="at",
            written_by="group",
        )
        log.decide(
            "g", 0, stage(grouped, [batch(2).append_column("extra", pa.array([7]))], 0), None
        )
        log.decide("g", 1, early, None)
        log.publish()
    rows = [
        row for part in Reader(grouped).partition(0).read(0, 2) for row in part.batch.to_pylist()
    ]  # type: ignore[union-attr]
    assert [(row["name"], row["extra"]) for row in rows] == [("2", 7), ("1", None)]
