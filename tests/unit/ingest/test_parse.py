from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import UnsupportedColumn
from millstream.flow.schema import Schema
from millstream.ingest import parse
from millstream.ingest.parse import (
    CsvOptions,
    csv_header,
    csv_parser,
    json_parser,
    parse_lines,
    parse_rows,
    parse_text,
)
from millstream.ingest.rows import Rows

EVENTS = Schema.parse("flight string, delay double, at timestamp").arrow()
NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)


PLAIN = CsvOptions()


def csv(
    lines: list[bytes], columns: tuple[str, ...], ddl: str, options: CsvOptions = PLAIN
) -> Rows:
    schema = Schema.parse(ddl).arrow()
    return parse_lines(lines, csv_parser(schema, columns, options), schema)


def test_json_lines_become_rows_numbered_by_line() -> None:
    rows = parse_rows(
        ['{"flight": "A", "delay": 3, "at": "2013-03-08 12:00"}', "", '{"flight": "B"}'],
        EVENTS,
        first=10,
    )
    assert rows.batch.to_pylist() == [
        {"flight": "A", "delay": 3.0, "at": NOON},
        {"flight": "B", "delay": None, "at": None},
    ]
    assert rows.numbers.tolist() == [10, 12]
    assert rows.refused == ()


@pytest.mark.parametrize(
    "text",
    [
        "2013-03-08T12:00:00Z",
        "2013-03-08 12:00",
        "2013-03-08T14:00:00+02:00",
        "2013-03-08 12:00:00.000000",
    ],
)
def test_a_moment_may_have_a_zone_and_without_one_is_in_utc(text: str) -> None:
    by_json = parse_rows([json.dumps({"at": text})], EVENTS)
    by_csv = csv([text.encode()], ("at",), "at timestamp")
    assert by_json.batch.column("at").to_pylist() == [NOON]
    assert by_csv.batch.column("at").to_pylist() == [NOON]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"flight": "A"', "expecting ',' delimiter at character 15"),
        ("[1, 2]", "expected an object, not [1, 2]"),
        ('{"delay": "late"}', 'column "delay": expected a number, not "late"'),
        ('{"flight": 7}', 'column "flight": expected a string, not 7'),
        ('{"at": 1362744000}', 'column "at": expected a timestamp, not 1362744000'),
        ('{"delay": 1} {"delay": 2}', "extra data at character 14"),
    ],
)
def test_a_malformed_line_is_refused_with_its_place_and_its_reason(line: str, reason: str) -> None:
    rows = parse_rows(['{"flight": "A"}', line, '{"flight": "B"}'], EVENTS)
    assert rows.batch.column("flight").to_pylist() == ["A", "B"]
    (refused,) = rows.refused
    assert (refused.number, refused.reason, refused.record) == (
        1,
        f"malformed record: {reason}",
        line,
    )


@pytest.mark.parametrize("text", ["null", " null ", "null null", '{"delay": 1} null'])
def test_a_null_is_no_row_wherever_it_stands(text: str) -> None:
    for lines, place in (([text], 0), ([text, '{"delay": 2}'], 0), (['{"delay": 2}', text], 1)):
        rows = parse_rows(lines, EVENTS)
        assert [one.number for one in rows.refused] == [place]
        assert len(rows) == len(lines) - 1


def test_types_that_arrow_reads_differently_are_read_as_spark_does() -> None:
    schema = Schema.parse("day date, tags map<string,int>, raw binary, n int").arrow()
    good = '{"day": "2013-03-08", "tags": {"a": 1}, "raw": "aGk=", "n": 1}'
    rows = parse_rows([good, '{"n": 1.5}', '{"day": 15772}', '{"n": true}'], schema)
    assert rows.batch.to_pylist() == [
        {"day": date(2013, 3, 8), "tags": [("a", 1)], "raw": b"hi", "n": 1}
    ]
    assert [one.number for one in rows.refused] == [1, 2, 3]


def test_nested_values_are_read() -> None:
    schema = Schema.parse("tags array<string>, place struct<x:double,y:double>").arrow()
    rows = parse_rows(['{"tags": ["a", null], "place": {"x": 1}}'], schema)
    assert rows.batch.to_pylist() == [{"tags": ["a", None], "place": {"x": 1.0, "y": None}}]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 60))
def test_what_is_refused_does_not_depend_on_where_blocks_are_cut(
    good: list[bool], size: int
) -> None:
    lines = [b'{"delay": 1}' if fine else b"{" for fine in good]
    whole = parse_rows(lines, EVENTS)
    parts = [parse_rows(lines[at : at + size], EVENTS, at) for at in range(0, len(lines), size)]
    assert [n for part in parts for n in part.numbers.tolist()] == whole.numbers.tolist()
    assert [one for part in parts for one in part.refused] == list(whole.refused)
    assert [one.number for one in whole.refused] == [at for at, fine in enumerate(good) if not fine]


CSV_LINES = (
    *(b"A,1,2013-03-08 12:00", b'"B, C",2,2013-03-08T12:00Z', b"D,3,2013-03-08T14:00+02", b",,"),
    *(b'"A,1,2013-03-08', b'A",1,2013-03-08', b"A,x,2013-03-08", b"A,1,then", b"A", b"A,1,,"),
    *(b"", b" ", b"\r", b"\t ", b"A,1,2013-03-08\r", b"\xff,1,", b"A\rB,1,"),
)
JSON_LINES = (
    *(b'{"flight": "A", "delay": 1}', b'{"at": "2013-03-08 12:00"}', b' {"delay": 1}', b"{}"),
    *(b'{"delay": "NaN"}', b'{"delay": "x"}', b"{", b"}", b"null", b'{"a": 1} {"a": 2}', b"[1]"),
    *(b"", b" ", b"\r", b'{"flight": "B"}\r', b'{"flight": "\xff"}'),
)


@given(
    st.lists(st.sampled_from(CSV_LINES), min_size=1, max_size=6),
    st.sampled_from(["flight string, delay double, at timestamp", "flight string"]),
)
def test_a_csv_text_has_the_rows_and_the_refused_of_its_lines(lines: list[bytes], ddl: str) -> None:
    schema = Schema.parse(ddl).arrow()
    _same_as_by_line(lines, csv_parser(schema, schema.names, CsvOptions()), schema)


@given(st.lists(st.sampled_from(JSON_LINES), min_size=1, max_size=6))
def test_a_json_text_has_the_rows_and_the_refused_of_its_lines(lines: list[bytes]) -> None:
    _same_as_by_line(lines, json_parser(EVENTS), EVENTS)


def _same_as_by_line(lines: list[bytes], parser: parse.TextParser, schema: pa.Schema) -> None:
    by_line = [parse_lines([line], parser, schema, at) for at, line in enumerate(lines, 5)]
    found = parse_text(b"\n".join(lines), parser, schema, 5)
    assert str(found.batch.to_pylist()) == str(
        [r for one in by_line for r in one.batch.to_pylist()]
    )
    assert found.numbers.tolist() == [n for one in by_line for n in one.numbers.tolist()]
    assert list(found.refused) == [refused for one in by_line for refused in one.refused]


def test_a_text_of_good_lines_is_not_cut_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "parse_lines", lambda *_: pytest.fail("it was cut into lines"))
    schema = Schema.parse("flight string, at timestamp").arrow()
    parser = csv_parser(schema, schema.names, CsvOptions())
    rows = parse_text(b'"A, B",2013-03-08 12:00\nC,2013-03-08 12:00', parser, schema, 7)
    assert rows.numbers.tolist() == [7, 8]
    assert rows.batch.column("at").to_pylist() == [NOON, NOON]
    assert len(parse_text(b'{"delay": 1}\n{"delay": 2}', json_parser(EVENTS), EVENTS)) == 2


def test_csv_fields_are_found_by_the_name_of_their_column() -> None:
    rows = csv(
        [b"7,JFK,x", b'8,"L,GA",', b"9,,"],
        ("n", "origin", "other"),
        "origin string, n long, missing double",
    )
    assert rows.batch.to_pylist() == [
        {"origin": "JFK", "n": 7, "missing": None},
        {"origin": "L,GA", "n": 8, "missing": None},
        {"origin": None, "n": 9, "missing": None},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x,JFK", 'column "n": "x" is not of type int64'),
        (b"1", "expected 2 fields, got 1"),
        (b"1,2,3", "expected 2 fields, got 3"),
        (b'1,"JFK', "a quoted field does not end on its line"),
    ],
)
def test_a_malformed_csv_record_does_not_take_its_neighbours_along(
    line: bytes, reason: str
) -> None:
    rows = csv([b"1,A", line, b"2,B"], ("n", "origin"), "n long, origin string")
    assert rows.batch.column("origin").to_pylist() == ["A", "B"]
    assert [(one.number, one.reason) for one in rows.refused] == [
        (1, f"malformed record: {reason}")
    ]


def test_a_csv_moment_that_is_none_is_refused() -> None:
    rows = csv([b"2013-02-30"], ("at",), "at timestamp")
    assert rows.refused[0].reason == 'malformed record: "2013-02-30" is not a timestamp'


def test_csv_options_say_how_a_file_is_written() -> None:
    options = CsvOptions(delimiter=";", quote="'", nulls=("", "NA"))
    rows = csv([b"'a;b';NA"], ("s", "n"), "s string, n double", options)
    assert rows.batch.to_pylist() == [{"s": "a;b", "n": None}]
    assert csv_header(b"s;'n;m'\r\n", options) == ("s", "n;m")


def test_csv_cannot_hold_nested_columns() -> None:
    schema = pa.schema([("tags", pa.list_(pa.string()))])
    with pytest.raises(UnsupportedColumn, match='CSV cannot hold column "tags"'):
        csv_parser(schema, ["tags"], CsvOptions())


def test_torn_lines_are_refused_whatever_stands_beside_them() -> None:
    lines = ['{"n": 1, "more":', '{"n": 2}}', '{"n": 3} {"n": 4}', ' {"n": 5} ']
    found = parse_rows(lines, pa.schema([("n", pa.int64())]))
    assert found.batch.to_pylist() == [{"n": 5}]
    assert [one.number for one in found.refused] == [0, 1, 2]


@given(st.lists(st.text("{} \n", max_size=4).map(str.encode), min_size=1, max_size=4))
def test_lines_that_are_quickly_known_to_be_objects_are_found_so_one_by_one(
    lines: list[bytes],
) -> None:
    whole = all(line[:1] == b"{" and line[-1:] == b"}" for line in lines)
    plain = not any(b"\n" in line for line in lines)
    # Those with line ends in them, and with spaces around them, are looked at one by one.
    assert parse._all_objects(b"\n".join(lines), len(lines)) == (whole and plain)
