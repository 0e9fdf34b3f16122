"""How many rows a group has yet to read, wherever it begins."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import SystemClock
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.retention import commit, trim
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.control import Orders
from millstream.spark.io.sink import Input
from millstream.spark.io.source import Offset
from millstream.spark.run.entry_rows import lag

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two partitions with 6 and 4 rows, each in a file of its own."""
    create(tmp_path / "j", SCHEMA, partitions=2, time="at")
    for partition, rows in ((0, 6), (1, 4)):
        with Writer.open(tmp_path / "j", partition, segment_bytes=1) as writer:
            for row in range(rows):
                columns = [pa.array([row], SCHEMA[0].type)]
                writer.append("s", row, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return tmp_path / "j"


def rows(path: Path, committed: Offset | None = None, orders: Orders | None = None) -> int:
    logged = None if committed is None else Logged(0, 0, {"j": committed})
    inputs = {"j": Input("j", path, "at", 0, grouped=False)}
    return lag(inputs, logged, orders or Orders(), 0)[0]


def test_a_group_that_has_read_nothing_lags_by_the_whole_journal(path: Path) -> None:
    assert rows(path) == 10


def test_after_a_restart_the_lag_counts_from_what_is_committed(path: Path) -> None:
    assert rows(path, Offset("j", (5, 1), None, 3)) == 4
    assert rows(path, Offset("j", (6, 4), None, 3)) == 0


def test_a_partition_that_is_new_is_unread(path: Path) -> None:
    assert rows(path, Offset("j", (6,), None, 1)) == 4


def test_what_retention_has_removed_does_not_wait(path: Path) -> None:
    commit(path, "other", (4, 2))
    assert trim(path, keep_bytes=0).segments > 0
    assert rows(path) == 4


def test_a_held_version_waits_for_nothing_until_its_beginning_is_known(path: Path) -> None:
    warm = Offset("j", (0, 0), None, 1)
    for committed in (None, warm):
        assert rows(path, committed, Orders(held=True)) == 0
        assert rows(path, committed, Orders(held=True, first={"j": (5, 4)})) == 1


def test_a_version_that_has_not_begun_lags_from_its_beginning(path: Path) -> None:
    orders, warm = Orders(first={"j": (5, 3)}), Offset("j", (0, 0), None, 1)
    assert rows(path, None, orders) == rows(path, warm, orders) == 2


def test_a_version_that_has_begun_lags_from_what_it_has_committed(path: Path) -> None:
    begun = Offset("j", (6, 3), None, 1, first=(5, 3))
    assert rows(path, begun, Orders(first={"j": (5, 3)})) == 1


def test_the_age_is_that_of_the_oldest_row_that_waits(path: Path) -> None:
    now = SystemClock().now_us() + 7_000_000
    inputs = {"j": Input("j", path, "at", 0, grouped=False)}
    done = Logged(0, 0, {"j": Offset("j", (6, 4), None, 1)})
    assert lag(inputs, done, Orders(), now) == (0, 0.0)
    assert lag(inputs, None, Orders(), now)[1] >= 7
    waits = lag(inputs, None, Orders(first={"j": (6, 3)}), now)
    assert waits[0] == 1
    assert 7 <= waits[1] < lag(inputs, None, Orders(), now)[1]
