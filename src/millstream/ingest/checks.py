"""What an inbox takes: every row has a time that can be true, and a key if the source has one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.flow import durations
from millstream.ingest.rows import Refused, Rows
from millstream.journal.plain import iso, records
from millstream.journal.rows import as_numpy

_SECOND_US: Final = 1_000_000
#: The last moment that Python can write: year 9999.
_LAST_US: Final = 253_402_300_799 * _SECOND_US


@dataclass(frozen=True, slots=True)
class Rules:
    """What a source asks of a row."""

    time: str | None = None
    key: str | None = None
    ahead: timedelta = timedelta(days=1)

    @property
    def ahead_us(self) -> int:
        return self.ahead // timedelta(microseconds=1)


def check(rows: Rows, rules: Rules, now_us: int) -> Rows:
    """Return the rows that keep to the rules; the others are refused, each with a reason."""
    if _clean(rows.batch, rules, now_us):
        return rows
    reasons: dict[int, str] = {}
    for broken, reason in _broken(rows.batch, rules, now_us):
        for at in np.flatnonzero(broken):
            reasons.setdefault(int(at), reason(int(at)))
    if not reasons:
        return rows
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[list(reasons)] = False
    refused = [
        Refused(int(rows.numbers[at]), reasons[at], record(rows.batch, at))
        for at in sorted(reasons)
    ]
    good = rows.filter(kept)
    return Rows(
        good.batch,
        good.numbers,
        tuple(sorted([*rows.refused, *refused], key=lambda one: one.number)),
    )


def _clean(batch: pa.RecordBatch, rules: Rules, now_us: int) -> bool:
    """Tell quickly, if it can be told quickly, that all rows keep to the rules."""
    if rules.key is not None and batch.column(rules.key).null_count:
        return False
    if rules.time is None or batch.num_rows == 0:
        return True
    column = batch.column(rules.time)
    if column.null_count or not pa.types.is_timestamp(column.type) or column.type.unit != "us":
        return False
    times = as_numpy(column, np.int64)
    return bool(
        times.min() > 0 and times.max() <= now_us + rules.ahead // timedelta(microseconds=1)
    )


def _broken(
    batch: pa.RecordBatch, rules: Rules, now_us: int
) -> list[tuple[npt.NDArray[np.bool_], Any]]:
    broken: list[tuple[npt.NDArray[np.bool_], Any]] = []
    if rules.time is not None:
        times, unknown = times_us(batch, rules.time)
        name, ahead_us = rules.time, rules.ahead // timedelta(microseconds=1)
        broken = [
            (unknown, lambda _: f'time "{name}" is null'),
            (
                ~unknown & (times <= 0),
                lambda at: f'time "{name}" is {moment(int(times[at]))}, at or before 1970',
            ),
            (
                ~unknown & (times > now_us + ahead_us),
                lambda at: (
                    f'time "{name}" is {moment(int(times[at]))}, more than {durations.format(rules.ahead)} ahead'
                ),
            ),
        ]
    if rules.key is not None:
        no_key = _nulls(batch.column(rules.key))
        broken.append((no_key, lambda _: f'key "{rules.key}" is null'))
    return broken


def times_us(
    batch: pa.RecordBatch, time: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the times of a batch in microseconds, 0 where they are null, and where they are."""
    column = batch.column(time)
    unknown = _nulls(column)
    moments = column.cast(
        pa.timestamp("us", column.type.tz)
        if pa.types.is_timestamp(column.type)
        else pa.timestamp("us")
    )
    numbers = moments.cast(pa.int64())
    return as_numpy(pc.fill_null(numbers, 0) if numbers.null_count else numbers, np.int64), unknown


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    return as_numpy(pc.is_null(column).cast(pa.uint8()), np.uint8).view(np.bool_)


def moment(us: int) -> str:
    """Return a moment as people read it."""
    if not -_LAST_US // 8 < us <= _LAST_US:
        return iso(us).replace("T", " ")
    return (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
        .isoformat(sep=" ")
        .removesuffix("+00:00")
    )


def record(batch: pa.RecordBatch, at: int) -> str:
    """Return a row as JSON, for the dead letters."""
    return records(batch.slice(at, 1))[0]
