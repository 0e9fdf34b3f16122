"""Taking rows back that are in files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.clock import micros
from millstream.connectors.files.target import FilesTarget
from millstream.connectors.files.withdraw import withdraw
from millstream.spark.io.targets import SinkContext

AT = [datetime(2026, 3, 8, hour, tzinfo=UTC) for hour in (10, 11, 12, 13)]
SINCE = micros(AT[2])


def lines(moments: list[datetime]) -> str:
    return "".join(f'{{"k":"é\\n{at.hour}","at":"{at.isoformat()}"}}\n' for at in moments)


def records(moments: list[datetime]) -> str:
    return "k,at\n" + "".join(
        f'"a \\"quoted\\" name,\nof two lines {at.hour}",{at.isoformat()}\n' for at in moments
    )


def table(moments: list[datetime]) -> pa.Table:
    return pa.table(
        {"k": [at.hour for at in moments], "at": pa.array(moments, pa.timestamp("us", "UTC"))}
    )


def written(file: Path, moments: list[datetime]) -> bytes:
    match file.suffix:
        case ".jsonl":
            file.write_text(lines(moments), newline="")
        case ".csv":
            file.write_text(records(moments), newline="")
        case ".parquet":
            pq.write_table(table(moments), file)
    return file.read_bytes()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_rows_from_a_moment_on_go_and_the_others_stay_as_they_were(
    tmp_path: Path, kind: str
) -> None:
    file, temporary, wish = tmp_path / f"a.{kind}", tmp_path / f"t.{kind}", tmp_path / f"w.{kind}"
    written(file, AT)
    for _ in range(2):  # again, as after a crash
        withdraw(file, "at", SINCE, temporary)
        assert file.read_bytes() == written(wish, AT[:2])
    written(file, AT[2:])
    withdraw(file, "at", SINCE, temporary)
    assert not file.exists()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_file_without_such_rows_is_not_touched(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"a.{kind}"
    written(file, AT[:2])
    before = file.stat().st_ino
    withdraw(file, "at", SINCE, tmp_path / "t")
    withdraw(file, "other", SINCE, tmp_path / "t")
    assert file.stat().st_ino == before


def test_a_row_without_a_value_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"k":"a"}\n' + lines(AT[2:]))
    withdraw(file, "at", SINCE, tmp_path / "t")
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"k": "a"}]


def test_what_others_have_in_the_folder_stays(tmp_path: Path) -> None:
    target = FilesTarget(tmp_path, "jsonl", SinkContext("f", "out", tmp_path, tmp_path))
    target.recover()
    mine = tmp_path / "f.out-0123456789ab-000000007-01234567.jsonl"
    other, foreign = (
        tmp_path / "f.out-2-0123456789ab-000000007-01234567.jsonl",
        tmp_path / "notes.jsonl",
    )
    for file in (mine, other, foreign):
        written(file, AT)
    target.withdraw("at", SINCE)
    assert [file.read_text() == lines(AT) for file in (mine, other, foreign)] == [False, True, True]
