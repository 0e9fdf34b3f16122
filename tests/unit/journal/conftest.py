from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.journal.kinds.files.description import create

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])

Batch = Callable[..., pa.RecordBatch]


@pytest.fixture
def schema() -> pa.Schema:
    return SCHEMA


@pytest.fixture
def batch() -> Batch:
    """Rows with the given times, named after them unless said otherwise."""

    def make(*times: int | None, names: Sequence[str | None] | None = None) -> pa.RecordBatch:
        column = pa.array(times, SCHEMA.field("at").type)
        return pa.record_batch([column, pa.array(names or [str(t) for t in times])], schema=SCHEMA)

    return make


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """An empty journal of one partition."""
    path = tmp_path / "journal"
    create(path, SCHEMA, time="at")
    return path
