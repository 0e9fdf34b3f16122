from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.connectors.files import reading
from millstream.connectors.files.reading import Block, Place, layout, read
from millstream.errors import UnknownFormat, UnsupportedColumn
from support.ingest import NOON, SCHEMA

JSONL = layout("jsonl", SCHEMA.arrow(), "at", ())
CSV = layout("csv", SCHEMA.arrow(), "at", ())
PARQUET = layout("parquet", SCHEMA.arrow(), "at", ())


def names(blocks: list[Block]) -> list[str]:
    return [name for block in blocks for name in block.rows.batch.column("name").to_pylist()]


def numbers(blocks: list[Block]) -> list[int]:
    return [number for block in blocks for number in block.rows.numbers.tolist()]


def reasons(blocks: list[Block]) -> list[tuple[int, str]]:
    return [(one.number, one.reason) for block in blocks for one in block.rows.refused]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 2)
    monkeypatch.setattr(reading, "_BYTES", 7)


def test_lines_are_cut_in_blocks_that_end_at_lines(tmp_path: Path, small_blocks: None) -> None:
    lines = [f'{{"name": "{letter}"}}' for letter in "abcde"]
    path = written(tmp_path / "a.jsonl", "\n".join(lines))
    blocks = list(read(path, JSONL))
    assert names(blocks) == list("abcde")
    assert numbers(blocks) == [0, 1, 2, 3, 4]
    assert blocks[-1].place == Place(5, path.stat().st_size)


def test_a_file_is_read_on_from_the_place_where_it_ended(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"name": "a"}\n')
    place = list(read(path, JSONL))[-1].place
    with path.open("a") as file:
        file.write('{"name": "b"}\n')
    blocks = list(read(path, JSONL, start=place))
    assert (names(blocks), numbers(blocks)) == (["b"], [1])


def test_a_line_without_its_end_is_left_while_the_file_is_being_written(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"name": "a"}\n{"name": "b"}')
    blocks = list(read(path, JSONL, size=path.stat().st_size))
    assert names(blocks) == ["a"]
    assert blocks[-1].place == Place(1, 14)


def test_known_records_are_passed_over(tmp_path: Path, small_blocks: None) -> None:
    path = written(tmp_path / "a.jsonl", "{\n{\n" + '{"name": "c"}\n{"name": "d"}\n')
    blocks = list(read(path, JSONL, known=2))
    assert (names(blocks), numbers(blocks), reasons(blocks)) == (["d"], [3], [])


def test_packed_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"at,name\n2013-03-08 12:00,a\n"))
    assert names(list(read(path, CSV))) == ["a"]


def test_a_packed_file_that_is_cut_off_keeps_what_could_be_read(
    tmp_path: Path, small_blocks: None
) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = b"".join(b'{"name": "%d"}\n' % n for n in range(5000))
    path.write_bytes(gzip.compress(lines)[:-3000])
    blocks = list(read(path, JSONL))
    assert names(blocks)[:3] == ["0", "1", "2"]
    ((number, reason),) = reasons(blocks)
    assert number == len(names(blocks))
    assert reason.startswith("the rest of the file cannot be read")


def test_the_header_of_a_csv_file_says_which_column_is_which_in_any_case(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "\ufeffN,At,extra,NAME\r\n1,2013-03-08 12:00,x,a\r\n")
    blocks = list(read(path, CSV))
    assert blocks[0].rows.batch.to_pylist() == [{"name": "a", "n": 1, "at": NOON}]
    assert numbers(blocks) == [1]


def test_a_csv_file_without_a_header_has_the_columns_of_the_source(tmp_path: Path) -> None:
    how = layout(
        "csv", SCHEMA.arrow(), "at", (("header", "false"), ("sep", ";"), ("nulls", "NA, -"))
    )
    blocks = list(
        read(written(tmp_path / "a.csv", "a;NA;2013-03-08 12:00\nb;-;2013-03-08 12:00\n"), how)
    )
    assert blocks[0].rows.batch.column("n").to_pylist() == [None, None]
    assert numbers(blocks) == [0, 1]


def test_a_csv_file_that_has_grown_needs_no_second_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "name,at\na,2013-03-08 12:00\n")
    place = list(read(path, CSV))[-1].place
    with path.open("a") as file:
        file.write("b,2013-03-08 12:01\n")
    blocks = list(read(path, CSV, start=place))
    assert (names(blocks), numbers(blocks)) == (["b"], [2])


@pytest.mark.parametrize("text", ["", "name,at\n", "\n"])
def test_a_csv_file_without_records_brings_none(tmp_path: Path, text: str) -> None:
    assert names(list(read(written(tmp_path / "a.csv", text), CSV))) == []


def test_a_file_without_the_time_column_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "name,n\na,1\nb,2\n")
    table = pa.table({"name": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for blocks in (list(read(path, CSV)), list(read(tmp_path / "a.parquet", PARQUET))):
        assert reasons(blocks) == [(0, 'the file has no column "at", the time of its rows')]
        assert names(blocks) == []


def test_parquet_is_read_by_column_and_cast(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "N": [1.0, None],
            "at": pd.to_datetime(["2013-03-08 12:00"] * 2),
            "other": [0, 0],
            "name": ["a", "b"],
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    blocks = list(read(tmp_path / "a.parquet", PARQUET))
    assert blocks[0].rows.batch.to_pylist() == [
        {"name": "a", "n": 1, "at": NOON},
        {"name": "b", "n": None, "at": NOON},
    ]


def test_parquet_rows_of_another_type_are_refused_one_by_one(tmp_path: Path) -> None:
    table = pa.table({"name": ["a", "b", "c"], "n": [1.0, 1.5, 2.0], "at": [NOON] * 3})
    pq.write_table(table, tmp_path / "a.parquet")
    blocks = list(read(tmp_path / "a.parquet", PARQUET))
    assert names(blocks) == ["a", "c"]
    ((number, reason),) = reasons(blocks)
    assert number == 1
    assert reason.startswith('malformed record: column "n"')


def test_parquet_row_groups_that_are_known_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"name": list("abcdef"), "at": [NOON] * 6})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    blocks = list(read(tmp_path / "a.parquet", PARQUET, known=2))
    assert (names(blocks), numbers(blocks)) == (["d", "e", "f"], [3, 4, 5])
    assert list(read(tmp_path / "a.parquet", PARQUET, known=5)) == []


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    ((number, reason),) = reasons(list(read(written(tmp_path / "a.parquet", "no"), PARQUET)))
    assert number == 0
    assert reason.startswith("the rest of the file cannot be read")


def test_mistakes_in_the_layout_are_found_before_a_file_is_read() -> None:
    with pytest.raises(UnknownFormat, match='format "csv" has no option "separator"'):
        layout("csv", SCHEMA.arrow(), "at", (("separator", ";"),))
    with pytest.raises(UnknownFormat, match='format "jsonl" has no option "sep"'):
        layout("jsonl", SCHEMA.arrow(), "at", (("sep", ";"),))
    with pytest.raises(UnsupportedColumn):
        layout("csv", pa.schema([("a", pa.list_(pa.int64()))]), None, ())
