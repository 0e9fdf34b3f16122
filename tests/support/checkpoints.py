"""A job's folder with the checkpoint of a group, written by hand as Spark and Millstream do."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.journal import Staged, journal_at

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
ID = "abc123"
DESCRIPTION: dict[str, Any] = {
    "format": 1,
    "group": "sums",
    "stages": {
        "sales": {"kind": "journal", "journal": "sales"},
        "once": {"kind": "distinct", "input": "sales", "by": ["k"], "within": "1 h", "shards": 64},
        "sums": {"kind": "fold", "input": "once", "by": ["k"], "shards": 64},
    },
    "output": {"stage": "sums", "sinks": {"sums": {"kind": "jsonlines", "path": "out"}}},
    "functions": {},
}
_OPERATOR = "transformWithStateInPandasExec"


def logged(batch: int, position: int, generation: int | None = None) -> str:
    """Return what Spark logs for a batch."""
    floor = 1_714_813_698_400_000 + batch * 1_000_000
    offset = {"journal": "sales", "positions": [position], "floor": floor, "starts": 1}
    if generation is not None:
        offset["generation"] = generation
    return f'v1\n{{"batchWatermarkMs":{batch * 1000}}}\n{json.dumps(offset)}\n'


def written(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def archive(*tables: str) -> bytes:
    """Return a version of RocksDB, which names its tables."""
    named = {"sstFiles": [{"localFileName": one, "dfsSstFileName": one} for one in tables]}
    with zipfile.ZipFile(made := io.BytesIO(), "w") as opened:
        opened.writestr("metadata", f"v1\n{json.dumps(named)}")
    return made.getvalue()


def shop(data: Path, *, batches: int = 3, rows: int = 30) -> Path:
    """Make the folder of a flow "shop" with a group "sums" after some batches; return the group's.

    The first batches are in no log any more, and one more than is committed is logged.
    """
    folder = data / "shop"
    journal = journal_at(folder / "journals" / "sales")
    journal.create(SCHEMA)
    with journal.writer() as writer:
        writer.append("till", 0, pa.record_batch([["a"] * rows, [1] * rows], schema=SCHEMA))
    group = folder / "groups" / "sums"
    written(group / "group.json", json.dumps({"checkpoint": ID, "description": DESCRIPTION}))
    written(group / ID / "metadata", '{"id":"1"}')
    for batch in range(1, batches + 2):
        written(group / ID / "offsets" / str(batch), logged(batch, batch * 5))
    for batch in range(1, batches + 1):
        written(group / ID / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
    for operator in (0, 1):
        _state(group / ID / "state" / str(operator), operator, batches + 1)
    return group


def _state(folder: Path, operator: int, version: int) -> None:
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
    info = {"operatorId": operator, "operatorName": _OPERATOR}
    metadata = {"operatorInfo": info, "stateStoreInfo": [store]}
    written(folder / "_metadata/v2/0", f"v2\n{json.dumps(metadata)}")
    for partition in (0, 1):
        for number in range(1, version + 1):
            written(folder / f"{partition}/{number}.zip", archive(f"{number:06d}-x.sst"))
            written(folder / f"{partition}/SSTs/{number:06d}-x.sst", b"table")


def epoch(journal: Path, sender: str, number: int) -> None:
    """Let a group's journal have an epoch."""
    writer = journal_at(journal).epochs()
    nothing: list[Staged] = []
    writer.decide(sender, number, nothing, floor=number)
    writer.publish()
    writer.close()
