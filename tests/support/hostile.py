"""Records that nobody would send on purpose, for all ways into a journal."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from millstream.flow.schema import Schema
from millstream.ingest import Rows

#: Columns that Arrow reads from JSON, and columns that Python must read.
EASY = Schema.parse(
    "n int, s string, x double, d decimal(9,2), t timestamp, b boolean, l array<string>, "
    "r struct<a:int,b:string>"
).arrow()
HARD = Schema.parse(
    "n long, s string, x float, d decimal(38,10), t timestamp, y date, z binary, m map<string,int>"
).arrow()
FLAT = Schema.parse("n int, s string, x double, d decimal(9,2), t timestamp, b boolean, y date")
NAMES = ("n", "s", "x", "d", "t", "b", "l", "r", "y", "z", "m", "unknown", "")

_VALUES = [
    *(b"null true false NaN Infinity -Infinity 1e999 -1e999 1e-999 -0 0.1 01 1. .5 +1".split()),
    *(b"2147483648 9223372036854775808 -9223372036854775809 12345678901234567890.12".split()),
    b"9" * 5000,
    b'""',
    b'"abc"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b'"\\u0000"',
    b'"\x00"',
    b'"\\x"',
    b'"' + b"x" * 100_000 + b'"',
    b'"0001-01-01T00:00:00+14:00"',
    b'"9999-12-31T23:59:59-12:00"',
    b'"1969-12-31"',
    b'"2024-02-30"',
    b'"12345-01-01T00:00:00"',
    b'"2024-01-01T00:00:00.123456789Z"',
    b"[]",
    b"{}",
    b"[null, 1, []]",
    b'{"a": null, "a": 2, "b": {}}',
    b'{"a": "x", "\\ud800": 1}',
    b'{"k": 99999999999}',
]
_NOISE = [
    b"",
    b" ",
    b"\t",
    b"\r",
    b"\x0b",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b",",
    b"}",
    b"{",
]


def _deep(depth: int, opens: bytes, closes: bytes, closed: bool) -> bytes:
    return opens * depth + b"1" + (closes * depth if closed else b"")


_deeply = st.builds(
    lambda depth, kind, closed: _deep(depth, *kind, closed),
    st.sampled_from([150, 250, 1_000, 3_000, 50_000]),
    st.sampled_from([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")]),
    st.booleans(),
)
_value = (
    st.sampled_from(_VALUES) | _deeply | st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))
)
_field = st.tuples(st.sampled_from(NAMES), _value).map(
    lambda one: json.dumps(one[0]).encode() + b":" + one[1]
)
_object = st.lists(_field, max_size=4).map(lambda fields: b"{" + b",".join(fields) + b"}")
#: A line of JSON, more or less.
json_line = st.tuples(
    st.sampled_from(_NOISE), _object | _value | st.binary(max_size=40), st.sampled_from(_NOISE)
).map(lambda parts: b"".join(parts).replace(b"\n", b""))
json_lines = st.lists(json_line, max_size=12)

_cell = (
    st.sampled_from(
        [*(value.strip(b'"') for value in _VALUES), b'"', b'""', b'"a', b'a"b', b'"a,b"']
    )
    | st.binary(max_size=12)
).map(lambda cell: cell.replace(b"\n", b""))
#: A line of CSV, more or less.
csv_line = st.lists(_cell, max_size=9).map(b",".join)
csv_lines = st.lists(csv_line, max_size=12)

_packable: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
#: MessagePack, more or less: nested deeply, with keys that are no text, or cut.
message_pack = (
    _packable.map(msgspec.msgpack.encode)
    | st.binary(max_size=40)
    | st.sampled_from([b"\x91" * 5_000 + b"\xc0", b"\x81\xa1a" * 5_000 + b"\xc0", b"\x81\x01\x02"])
)


def mutated(data: bytes, flips: list[tuple[int, int]], cut: int) -> bytes:
    """Return bytes with some of them changed, and perhaps the end missing."""
    found = bytearray(data)
    for place, value in flips:
        found[place % len(found)] ^= value
    return bytes(found[: len(found) - cut % len(found)] if cut else found)


def some_table() -> pa.Table:
    """Return rows that fit `EASY` more or less."""
    return pa.table(
        {
            "n": pa.array([1, None, 2**40, -1], pa.int64()),
            "s": pa.array(["a", None, "x" * 300, "é"]),
            "t": pa.array([0, None, 2**60, -(2**60)], pa.timestamp("us")),
            "d": pa.array(["1.5", None, "x", "1e40"]),
            "l": pa.array([["a"], None, [], [None]]),
        }
    )


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(some_table(), sink)
    return sink.getvalue()


def _stream() -> bytes:
    sink, table = io.BytesIO(), some_table().select(["n", "s", "t", "l"])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


_flips = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=6)
_cut = st.just(0) | st.integers(0, 500)
parquet_files = st.builds(mutated, st.just(_parquet()), _flips, _cut)
arrow_streams = st.builds(mutated, st.just(_stream()), _flips, _cut)


def check_rows(rows: Rows, numbers: list[int]) -> None:
    """Check that each record is a sound row or can be kept as a dead letter, under its number."""
    refused = [one.number for one in rows.refused]
    assert sorted([*rows.numbers.tolist(), *refused]) == numbers
    check_sound(rows)


def check_sound(rows: Rows) -> None:
    """Check that rows and dead letters can be stored."""
    rows.batch.validate(full=True)
    for one in rows.refused:
        assert one.reason
        one.reason.encode()
        one.record.encode()
