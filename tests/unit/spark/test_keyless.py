"""Rows without a key are kept from the shuffle, and from being lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millstream.journal.kinds.files.dead import dead_counts, dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.spark.io.packed import SHARD, from_bytes
from millstream.spark.io.source import PLACE, POSITION_BITS
from millstream.spark.stages.keyless import RECORD, Keyless


def batch(*rows: tuple[int, dict[str, int] | None]) -> pa.RecordBatch:
    places = [(2 << POSITION_BITS) + place for place, _ in rows]
    return pa.record_batch(
        {
            SHARD: pa.array([0] * len(rows), pa.int32()),
            "__key": pa.array(["k" if record is None else None for _, record in rows], pa.string()),
            PLACE: pa.array(places, pa.int64()),
            RECORD: pa.array([record for _, record in rows], pa.struct({"n": pa.int64()})),
        }
    )


def test_rows_without_a_key_become_dead_letters_once(tmp_path: Path) -> None:
    keyless = Keyless("late", ("gate", "day"), str(tmp_path), None)
    given = [batch((1, None), (2, {"n": 2})), batch((3, None)), batch((4, {"n": 4}))]
    for _ in range(2):  # a batch that is run again adds nothing
        packed = [
            from_bytes(data)
            for one in keyless(iter(given))
            for data in one.column("rows").to_pylist()
        ]
        kept = pa.concat_tables(packed)
        assert [place & 0xFF for place in kept.column(PLACE).to_pylist()] == [1, 3]
        assert RECORD not in kept.column_names
    view = Reader(dead_folder(tmp_path)).partition(0)
    letters = [
        row for part in view.read(0, view.end) if part.batch for row in part.batch.to_pylist()
    ]
    assert [(one["partition"], one["position"], one["record"]) for one in letters] == [
        (2, 2, '{"n": 2}'),
        (2, 4, '{"n": 4}'),
    ]
    assert {one["reason"] for one in letters} == {'pattern "late": the event has no gate and day'}
    assert sum(dead_counts(tmp_path).values()) == 2
