"""A million rows with every kind of null, through an engine and a switch: all come out as they went in."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import millstream as ms
from integration.test_service import service
from integration.test_switch_service import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROWS: Final = int(os.environ.get("NULL_ROWS", "1000000"))
BATCH: Final = 20_000
BEGIN: Final = datetime(2024, 5, 4, 9, tzinfo=UTC)
DDL: Final = (
    "id long, at timestamp, flag boolean, small tinyint, short smallint, whole int, single float, twice double, "
    "name string, raw binary, day date, moment timestamp, price decimal(20, 4), list array<int>, "
    "pair struct<x: int, y: string>, map map<string, int>"
)
FLOW: Final = """
import millstream as ms

flow = ms.Flow("nulls", switch_every="10 s")
rows = flow.source("rows", ms.inbox("{ddl}"), time="at", lateness="1 s", partitions=2)
some = rows.sql("some", "SELECT * FROM rows WHERE id > -{version}")
some.sink("rows", ms.parquet("out/rows"))
some.window(
    "counted", every="10 s", by="name", n="count(*)", known="count(whole)", total="sum(price)", least="min(moment)"
).sink("counted", ms.jsonl("out/counted"))
some.distinct("once", by=["name", "flag"], within="1 d").sink("once", ms.jsonl("out/once"))
"""


def value(chance: random.Random, kind: str) -> Any:
    """Return a value of a column, or null in one of its ways."""
    if chance.random() < 0.3:
        return None
    n = chance.randrange(-100, 100)
    match kind:
        case "flag":
            return n > 0
        case "small" | "short" | "whole":
            return n
        case "single" | "twice":
            return n / 4
        case "name":
            return chance.choice(["", "null", "NULL", "a", "b"])
        case "raw":
            return chance.choice([b"", b"\x00", b"null"])
        case "day":
            return date(2024, 1, 1) + timedelta(days=n)
        case "moment":
            return BEGIN + timedelta(seconds=n)
        case "price":
            return Decimal(n) / 4
        case "list":
            return [one if one % 3 else None for one in range(abs(n) % 4)]
        case "pair":
            return {"x": None if n % 2 else n, "y": None if n % 3 else str(n)}
    return [(f"k{one}", None if one % 2 else one) for one in range(abs(n) % 3)]


def batch(number: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch: a few hundred different rows, over and over, each with a number of its own."""
    chance = random.Random(number)
    few = [
        {
            field.name: value(chance, field.name)
            for field in schema
            if field.name not in ("id", "at")
        }
        for _ in range(500)
    ]
    kept = pa.schema([field for field in schema if field.name not in ("id", "at")])
    table = pa.Table.from_pylist(few, schema=kept)
    places = pa.array([one % len(few) for one in range(BATCH)])
    rows = table.take(places).combine_chunks()
    ids = range(number * BATCH, (number + 1) * BATCH)
    at = [BEGIN + timedelta(milliseconds=one) for one in ids]
    columns = {"id": pa.array(ids), "at": pa.array(at, schema.field("at").type)}
    arrays = [
        columns[field.name] if field.name in columns else rows.column(field.name).combine_chunks()
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(
        [one.chunk(0) if isinstance(one, pa.ChunkedArray) else one for one in arrays], schema=schema
    )


def test_a_million_rows_with_all_kinds_of_nulls_come_out_as_they_went_in(tmp_path: Path) -> None:
    for version in (1, 2):
        (tmp_path / f"flow_{version}.py").write_text(FLOW.format(ddl=DDL, version=version))
    schema = ms.inbox(DDL).schema.arrow()
    batches = [batch(number, schema) for number in range(ROWS // BATCH)]
    with service(tmp_path) as engine:
        engine.shell("millstream deploy flow_1.py")
        url = f"{engine.url}/jobs/nulls"
        wait_for(lambda: httpx.get(url, timeout=240).json()["state"] == "running")
        with ms.connect(engine.inbox, timeout=600) as client:
            for number, one in enumerate(batches):
                client.send("nulls.rows", one)
                if number == len(batches) // 2:
                    engine.shell("millstream switch nulls flow_2.py --until-quiet --detach")
        wait_for(lambda: httpx.get(url, timeout=240).json()["switch"]["state"] == "done")
        assert engine.shell("millstream drain nulls --flush") == "nulls has finished\n"
    sent = pa.Table.from_batches(batches)
    found = ds.dataset(tmp_path / "out/rows", format="parquet").to_table().sort_by("id")
    assert found.num_rows == sent.num_rows
    for name in schema.names:
        assert found.column(name).to_pylist() == sent.column(name).to_pylist(), name
    check_windows(tmp_path, sent)


def check_windows(folder: Path, sent: pa.Table) -> None:
    names, flags = sent.column("name").to_pylist(), sent.column("flag").to_pylist()
    at = [one // 10_000 for one in range(sent.num_rows)]
    counted = Counter(zip(names, at, strict=True))
    lines = [
        json.loads(line)
        for file in (folder / "out/counted").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert (
        Counter(
            {(one.get("name"), seconds_of(one["window_start"]) // 10): one["n"] for one in lines}
        )
        == counted
    )
    once = [
        json.loads(line)
        for file in (folder / "out/once").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert Counter((one.get("name"), one.get("flag")) for one in once) == Counter(
        set(zip(names, flags, strict=True))
    )


def seconds_of(text: str) -> int:
    return round((datetime.fromisoformat(text) - BEGIN).total_seconds())
