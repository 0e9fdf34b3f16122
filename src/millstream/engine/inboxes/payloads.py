"""The messages of runtimes as rows of a source.

json    an object, whose fields are the columns
raw     the bytes of the one binary or string column; a timestamp beside it gets the time of arrival
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream import ingest
from millstream.flow.sources import Payload
from millstream.ingest import Refused, Rows


def rows_of(
    payloads: list[bytes], numbers: list[int], schema: pa.Schema, format: Payload, now_us: int
) -> Rows:
    """Return messages with these numbers as rows; others are refused, with the reason."""
    found = _raw(payloads, schema, now_us) if format == "raw" else _json(payloads, schema)
    given = np.asarray(numbers, np.int64)
    refused = tuple(replace(one, number=int(given[one.number])) for one in found.refused)
    return Rows(found.batch, given[found.numbers], refused)


def _json(payloads: Sequence[bytes], schema: pa.Schema) -> Rows:
    # A newline in JSON lies between its parts, never inside one. Blank lines would be passed over.
    lines = [
        payload.replace(b"\n", b" ").replace(b"\r", b" ").strip() or b"null" for payload in payloads
    ]
    return ingest.parse_rows(lines, schema)


def _raw(payloads: Sequence[bytes], schema: pa.Schema, now_us: int) -> Rows:
    text = any(pa.types.is_string(field.type) for field in schema)
    reasons = [_no_text(payload) if text else None for payload in payloads]
    bad = {place: reason for place, reason in enumerate(reasons) if reason}
    good = [place for place in range(len(payloads)) if place not in bad]
    columns = [_column(field, [payloads[place] for place in good], now_us) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    refused = [
        Refused(place, reason, payloads[place].decode(errors="replace"))
        for place, reason in bad.items()
    ]
    return Rows(batch, np.asarray(good, np.int64), tuple(refused))


def _no_text(payload: bytes) -> str | None:
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        return f"malformed record: not UTF-8 at byte {error.start + 1}"
    return None


def _column(field: pa.Field, payloads: list[bytes], now_us: int) -> Any:
    if pa.types.is_timestamp(field.type):
        moments = pa.array([now_us] * len(payloads), pa.int64())
        return moments.cast(pa.timestamp("us")).cast(field.type)
    return pa.array(payloads, pa.binary()).cast(field.type)
