from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millstream.cli.journal import app
from millstream.ingest import parse_rows
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.plain import iso, plain, rows_of

NAN, ENDLESS = float("nan"), float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.float64(), [1.5, NAN, ENDLESS, -ENDLESS, None]),
    "numbers": (pa.list_(pa.float64()), [[NAN, 1.0], [-ENDLESS], [], None, [2.0]]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2024, 5, 4, 9, 0, 0, 5, UTC)] * 5),
    "day": (pa.date32(), [date(2024, 5, 4)] * 5),
    "bytes": (pa.binary(), [b"\0\xff", b"", None, b"a", b"b"]),
    "price": (pa.decimal128(8, 2), [Decimal("1.20")] * 5),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", NAN)], [], None, [("b", 1.0)], []]),
    "text": (pa.string(), ["NaN", "ü", "\x1b[31m", None, ""]),
}


def strict(line: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("names", [list(COLUMNS), ["number", "text", "at"]], ids=["all", "plain"])
def test_what_cat_prints_is_json_that_sources_read_back(tmp_path: Path, names: list[str]) -> None:
    schema = pa.schema([(name, COLUMNS[name][0]) for name in names])
    arrays = [pa.array(COLUMNS[name][1], COLUMNS[name][0]) for name in names]
    batch = pa.record_batch(arrays, schema=schema)
    create(tmp_path / "shop" / "journals" / "sent", schema)
    with Writer.open(tmp_path / "shop" / "journals" / "sent") as writer:
        writer.append("a", 0, batch)
    shown = CliRunner().invoke(app, ["cat", "shop.sent", "--data", str(tmp_path)])
    lines = shown.output.splitlines()
    assert [strict(line)["number"] for line in lines] == [1.5, "NaN", "Infinity", "-Infinity", None]
    read = parse_rows(lines, schema)
    assert read.refused == ()
    assert read.batch.schema == schema
    assert repr(read.batch.to_pylist()) == repr(batch.to_pylist())


def test_other_texts_are_not_numbers() -> None:
    schema = pa.schema([("number", pa.float64())])
    read = parse_rows(['{"number": "Inf"}', '{"number": "NaN"}', '{"number": "1"}'], schema)
    assert [one.number for one in read.refused] == [0, 2]
    assert len(read.batch) == 1


def test_times_that_no_calendar_of_python_has_are_iso_8601() -> None:
    assert iso(1_714_813_200_000_000) == "2024-05-04T09:00:00.000000"
    assert iso(2_534_023_008_000_000_000) == "+82269-12-29T00:00:00.000000"
    assert iso(-253_402_300_800_000_000) == "-6060-01-02T00:00:00.000000"
    far = pa.record_batch({"at": pa.array([2_534_023_008_000_000_000], pa.timestamp("us", "UTC"))})
    assert rows_of(far) == [{"at": "+82269-12-29T00:00:00.000000"}]


def test_values_become_what_json_holds() -> None:
    assert plain({"a": (1, NAN, b"x"), 2: None}) == {"a": [1, "NaN", "eA=="], "2": None}
