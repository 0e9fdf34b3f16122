"""Whatever bytes a record has, it becomes a row or a dead letter, on every way into a journal."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.files.reading import layout, read
from millstream.engine.inboxes.intake import ARROW, JSON, NDJSON, _blocks
from millstream.engine.inboxes.payloads import rows_of
from millstream.errors import RequestRefused, RowsRefused
from millstream.ingest.parse import CsvOptions, csv_parser, parse_lines, parse_rows
from millstream.spark.stages.action_work import _as_json
from support import hostile

SCHEMAS = pytest.mark.parametrize("schema", [hostile.EASY, hostile.HARD], ids=["easy", "hard"])


@SCHEMAS
@given(hostile.json_lines)
def test_json_lines(schema: pa.Schema, lines: list[bytes]) -> None:
    rows = parse_rows(lines, schema, 7)
    hostile.check_rows(rows, [number for number, line in enumerate(lines, 7) if line.strip()])
    # Whether a line is good does not depend on its neighbours.
    alone = [parse_rows([line], schema, number) for number, line in enumerate(lines, 7)]
    assert rows.refused == tuple(one for each in alone for one in each.refused)


@given(hostile.csv_lines)
def test_csv_lines(lines: list[bytes]) -> None:
    schema = hostile.FLAT.arrow()
    parser = csv_parser(schema, schema.names, CsvOptions())
    rows = parse_lines(lines, parser, schema, 7)
    hostile.check_rows(rows, [number for number, line in enumerate(lines, 7) if line.strip()])


def _read(content: bytes, format: str, schema: pa.Schema, name: str = "in") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        before = -1
        for block in read(path, layout(format, schema, None, ())):
            hostile.check_sound(block.rows)
            found = [*block.rows.numbers.tolist(), *(one.number for one in block.rows.refused)]
            assert all(number > before for number in found)
            before = max([before, *found])


@SCHEMAS
@given(hostile.json_lines)
def test_files_of_json_lines(schema: pa.Schema, lines: list[bytes]) -> None:
    _read(b"\n".join(lines), "jsonl", schema)


@given(hostile.csv_line | st.just(b"n,s,x,d,t,b,y"), hostile.csv_lines)
def test_files_of_csv(header: bytes, lines: list[bytes]) -> None:
    _read(b"\n".join([header, *lines]), "csv", hostile.FLAT.arrow())


@given(hostile.parquet_files)
def test_files_of_parquet(content: bytes) -> None:
    _read(content, "parquet", hostile.EASY)


@given(hostile.json_lines, st.integers(0, 60), st.integers(1, 255))
def test_packed_files(lines: list[bytes], place: int, flip: int) -> None:
    content = hostile.mutated(gzip.compress(b"\n".join(lines)), [(place, flip)], place)
    _read(content, "jsonl", hostile.EASY, "in.gz")


@SCHEMAS
@given(st.lists(hostile.json_line, max_size=12))
def test_messages_of_runtimes(schema: pa.Schema, payloads: list[bytes]) -> None:
    numbers = list(range(3, 3 + 2 * len(payloads), 2))
    hostile.check_rows(rows_of(payloads, numbers, schema, "json", 0), numbers)


@given(st.lists(st.binary(max_size=20), max_size=12), st.sampled_from(["string", "binary"]))
def test_raw_messages_of_runtimes(payloads: list[bytes], kind: str) -> None:
    schema = pa.schema([("v", getattr(pa, kind)()), ("at", pa.timestamp("us", "UTC"))])
    numbers = list(range(len(payloads)))
    hostile.check_rows(rows_of(payloads, numbers, schema, "raw", 0), numbers)


@SCHEMAS
@given(hostile.json_lines)
def test_lines_over_http(schema: pa.Schema, lines: list[bytes]) -> None:
    for rows in _blocks(NDJSON, b"\n".join(lines), schema, 0, "job.source"):
        hostile.check_sound(rows)


@pytest.mark.parametrize("media", [JSON, ARROW])
@given(st.lists(hostile.json_line, max_size=4).map(b",".join), hostile.arrow_streams)
def test_bodies_over_http(media: str, array: bytes, stream: bytes) -> None:
    body = b"[" + array + b"]" if media == JSON else stream
    try:
        found = _blocks(media, body, hostile.EASY, 0, "job.source")
    except (RequestRefused, RowsRefused):
        return
    for rows in found:
        hostile.check_sound(rows)


@given(hostile.message_pack)
def test_answers_in_message_pack(payload: bytes) -> None:
    rows = parse_rows([_as_json(payload)], hostile.EASY)
    hostile.check_rows(rows, [0])
