"""Lateness is a function of the rows and their order, not of how they were cut into batches or read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.journal.base import Kind
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.lateness import late_mask, max_lag

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC"))])
moments = st.lists(st.integers(1, 60), min_size=1, max_size=30)


def naive(times: list[int], before: int | None, lateness: int, floor: int | None) -> list[bool]:
    late = []
    for time in times:
        late.append(
            (before is not None and before - time > lateness)
            or (floor is not None and time < floor)
        )
        before = time if before is None else max(before, time)
    return late


@given(moments, st.none() | st.integers(1, 60), st.integers(0, 30), st.none() | st.integers(1, 60))
def test_the_mask_is_what_the_definition_says(
    times: list[int], before: int | None, lateness: int, floor: int | None
) -> None:
    array = np.array(times, dtype=np.int64)
    expected = naive(times, before, lateness, floor)
    assert late_mask(array, before, lateness, floor).tolist() == expected
    lag = max_lag(array, before, floor)
    assert (lag is not None and lag > lateness) == any(expected)


@given(
    moments,
    st.lists(st.integers(1, 8), min_size=30, max_size=30),
    st.lists(st.integers(1, 7), min_size=40, max_size=40),
    st.none() | st.tuples(st.integers(0, 29), st.integers(1, 60)),
    st.integers(0, 30),
)
@settings(max_examples=40)
def test_late_rows_are_the_same_however_rows_were_appended_and_read(
    times: list[int],
    writes: list[int],
    reads: list[int],
    idle: tuple[int, int] | None,
    lateness: int,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        create(path, SCHEMA, time="at")
        expected = write(path, times, writes, idle, lateness)
        reader = Reader(path).partition(0)
        found: list[bool] = []
        position = 0
        for step in reads:
            for part in reader.read(position, position + step):
                if part.batch is not None:
                    array = part.batch.column(0).cast(pa.int64()).to_numpy()
                    late = late_mask(array, part.running_max_before, lateness, part.floor_before)
                    assert (part.max_lag is not None and part.max_lag > lateness) == late.any()
                    found += late.tolist()
            position += step
        assert found == expected


def write(
    path: Path, times: list[int], sizes: list[int], idle: tuple[int, int] | None, lateness: int
) -> list[bool]:
    """Append the rows in batches, with an IDLE floor before one of them; return which rows are late."""
    expected: list[bool] = []
    before, floor, begin = None, None, 0
    with Writer.open(path, background=False) as writer:
        for size in sizes:
            some = times[begin : begin + size]
            if not some:
                break
            if idle is not None and floor is None and begin + size > idle[0]:
                floor = idle[1]
                writer.instruct(Kind.IDLE, floor)
            writer.append(
                "a",
                begin,
                pa.record_batch([pa.array(some, SCHEMA.field("at").type)], schema=SCHEMA),
            )
            expected += naive(some, before, lateness, floor)
            before = max([*some, *([before] if before is not None else [])])
            begin += size
    return expected
