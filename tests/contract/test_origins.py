"""Every origin brings each record once: the checks that authors of connectors run on theirs."""

from __future__ import annotations

import csv
import gzip
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.flow.schema import Schema
from millstream.testing.connectors import ORIGIN_CHECKS, OriginCase, check_origin
from millstream.testing.connectors.origins import OriginTrial
from millstream.testing.connectors.targets import ODD_TEXTS

DDL = "n long, text string, at timestamp"
NOON = datetime(2024, 5, 4, 12, tzinfo=UTC)
HUGE = "x" * (5 << 20)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    texts = [text for text in ODD_TEXTS if text is not None]
    return [
        {"n": n, "text": f"{n} {texts[n % len(texts)]}", "at": NOON + timedelta(seconds=n)}
        for n in range(first, first + count)
    ]


def settled(path: Path) -> Path:
    """Let a file look as if nobody has written to it for a minute."""
    past = time.time() - 60
    os.utime(path, (past, past))
    return path


def lines(path: Path, found: list[dict[str, Any]], *bad: str) -> Path:
    """Write JSON lines, with lines that are no rows in the middle."""
    text = [json.dumps({**row, "at": row["at"].isoformat()}) for row in found]
    text[len(text) // 2 : len(text) // 2] = bad
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:  # type: ignore[operator]
        file.write("\n".join(text) + "\n")
    return settled(path)


def table(path: Path, found: list[dict[str, Any]]) -> Path:
    pq.write_table(
        pa.Table.from_pylist(found, schema=Schema.parse(DDL).arrow()), path, row_group_size=50
    )
    return settled(path)


def json_lines(folder: Path) -> OriginCase:
    found = [*rows(0, 20_000), {"n": 20_000, "text": HUGE, "at": NOON}]
    lines(folder / "a.jsonl", found[:100], "{", "[1]", '{"n": "none", "at": null}')
    lines(folder / "b.jsonl", found[100:20_000])
    lines(folder / "c.jsonl", found[20_000:], "nothing at all")
    return OriginCase(ms.files(folder, DDL, format="jsonl"), found, refused=4, time="at", key="n")


def packed_and_followed(folder: Path) -> OriginCase:
    found = rows(0, 300)
    lines(folder / "a.jsonl.gz", found[:200], "{")
    lines(folder / "b.jsonl", found[200:])
    spec = ms.files(folder, DDL, format="jsonl", follow=True)
    return OriginCase(spec, found, refused=1, time="at")


def comma_separated(folder: Path) -> OriginCase:
    found = [{**row, "text": str(row["n"])} for row in rows(0, 500)]
    found.append({"n": 500, "text": HUGE, "at": NOON})
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["n", "text", "at"])
        writer.writerow(["many", "more", "never"])
        writer.writerows([row["n"], row["text"], row["at"].isoformat()] for row in found)
    settled(folder / "a.csv")
    return OriginCase(ms.files(folder / "*.csv", DDL), found, refused=1, time="at")


def parquet(folder: Path) -> OriginCase:
    found = [*rows(0, 400), {"n": 400, "text": HUGE, "at": NOON}]
    table(folder / "a.parquet", [*found[:150], {"n": 0, "text": "no time", "at": None}])
    table(folder / "b.parquet", found[150:])
    return OriginCase(ms.files(folder, DDL, format="parquet"), found, refused=1, time="at")


def replay(folder: Path) -> OriginCase:
    found = rows(0, 20_000)
    path = lines(folder / "day.jsonl", found, "{")
    return OriginCase(ms.replay(path, DDL), found, refused=1, time="at", key="text")


def slow_replay(folder: Path) -> OriginCase:
    found = rows(0, 100)
    return OriginCase(
        ms.replay(table(folder / "day.parquet", found), DDL, speed=10, time="at"), found, time="at"
    )


def generated(_: Path) -> OriginCase:
    values = [{"value": n} for n in range(120)]
    return OriginCase(ms.rate(40, rows=len(values)), values, time="at")


EVERY = [
    json_lines,
    packed_and_followed,
    comma_separated,
    parquet,
    replay,
    slow_replay,
    generated,
]


@pytest.mark.parametrize("check", ORIGIN_CHECKS)
@pytest.mark.parametrize("make", EVERY)
def test_every_origin_keeps_to_the_contract(
    tmp_path: Path,
    make: Callable[[Path], OriginCase],
    check: Callable[[OriginTrial], None],
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    check(OriginTrial(make(records), tmp_path / "journal"))


class Forgetful:
    """An origin that gives its rows new numbers every time: the checks must find that."""

    def __init__(self, *_: Any) -> None:
        self.sender = f"sender {time.monotonic_ns()}"

    def pump(self, feed: Any, pause: Callable[[float], bool]) -> bool:
        from millstream.ingest.rows import numbered

        batch = pa.RecordBatch.from_pylist(
            [{"value": n, "at": NOON} for n in range(9)],
            schema=Schema.parse("value long, at timestamp").arrow(),
        )
        feed.take(self.sender, numbered(batch, 0))
        feed.flush()
        return pause(0)


def test_the_checks_find_an_origin_that_brings_rows_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.connectors.rate.origin.open_rate", Forgetful)
    with pytest.raises(AssertionError, match="should not be there"):
        check_origin(lambda _: OriginCase(ms.rate(1), [{"value": n} for n in range(9)]), tmp_path)
