"""Results on their way to a sink, packed: the same rows as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.io.result_rows import MESSAGE_BYTES, RESULTS, messages, opened
from millstream.spark.io.sink import all_owned
from millstream.spark.io.staging import StageFiles
from millstream.switch.cut import WHOLE

ROWS = pa.record_batch({"k": ["a", "b", None], "n": [1, None, 3]})


def packed(*batches: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({RESULTS: [one for batch in batches for one in messages(batch)]})


def test_rows_come_out_as_they_went_in_and_others_pass() -> None:
    more = ROWS.slice(1, 2)
    found = list(opened(iter([packed(ROWS, more), ROWS, packed()])))
    assert found == [ROWS, more, ROWS]


def test_many_rows_become_several_messages_and_none_becomes_none() -> None:
    large = pa.record_batch({"t": ["x" * 1000] * 20_000, "n": list(range(20_000))})
    parts = messages(large)
    assert len(parts) == -(-large.nbytes // MESSAGE_BYTES)
    assert (
        pa.Table.from_batches(opened(iter([packed(large)])))
        .combine_chunks()
        .equals(pa.Table.from_batches([large]))
    )
    assert messages(ROWS.slice(0, 0)) == []


def test_large_rows_behind_small_ones_are_messages_of_their_own() -> None:
    texts = [*("x" * 10 for _ in range(100_000)), *("y" * MESSAGE_BYTES for _ in range(5))]
    found = messages(pa.record_batch({"t": texts}))
    opened_ones = [batch for part in found for batch in pa.ipc.open_stream(part)]
    assert max(one.nbytes for one in opened_ones) <= MESSAGE_BYTES + 100
    assert sum(one.num_rows for one in opened_ones) == len(texts)


def test_a_file_of_packed_rows_is_that_of_the_rows(tmp_path: Path) -> None:
    files = []
    for batch in (ROWS, packed(ROWS)):
        (answer,) = StageFiles(str(tmp_path), "p", "parquet").write(iter([batch]))
        assert answer.column("rows").to_pylist() == [3]
        files.append(pq.read_table(tmp_path / answer.column("file")[0].as_py()))
    assert files[0].equals(files[1])


@pytest.mark.parametrize(
    ("parts", "owned"),
    [
        (None, True),
        (((None, None, 0, WHOLE),), True),
        # From a cut on, behind which all of them start, or not.
        (((5_000, None, 0, WHOLE),), True),
        (((5_001, None, 0, WHOLE),), False),
        # A version that leaves, one that shares keys, one that owns nothing.
        (((None, 5_000, 0, WHOLE),), False),
        (((5_000, None, 0, WHOLE // 2),), False),
        ((), False),
        (((None, 1_000, 0, WHOLE), (2_000, None, 0, WHOLE)), True),
    ],
)
def test_results_stay_packed_only_where_all_of_them_are_the_version_s(
    parts: Any, owned: bool
) -> None:
    assert all_owned(parts, 5_000) == owned


def test_results_that_may_start_at_any_time_are_a_version_s_only_without_a_cut() -> None:
    assert all_owned(None, None)
    assert all_owned(((None, None, 0, WHOLE),), None)
    assert not all_owned(((5_000, None, 0, WHOLE),), None)
