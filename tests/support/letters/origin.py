"""Reads lines into a journal. A line's number is its place in the file, so it never changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.errors import NotThere
from millstream.ingest import Feed, OriginContext, Refused, Rows
from millstream.ingest.origin import CHUNK, Pause
from support.letters import Lines


class LinesOrigin:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._sender = f"lines:{path.name}"

    def pump(self, feed: Feed, pause: Pause) -> bool:
        lines = self._path.read_text(encoding="utf-8").splitlines()
        for first in range(feed.highest(self._sender) + 1, len(lines), CHUNK):
            if not pause(0):
                return False
            feed.take(self._sender, self._rows(first, lines[first : first + CHUNK]))
        feed.flush()
        return True

    def _rows(self, first: int, lines: list[str]) -> Rows:
        numbers = [first + place for place, line in enumerate(lines) if line]
        refused = [
            Refused(first + place, "the line is empty", "")
            for place, line in enumerate(lines)
            if not line
        ]
        found = [{"n": number, "line": lines[number - first]} for number in numbers]
        batch = pa.RecordBatch.from_pylist(found, schema=self._schema)
        return Rows(batch, np.array(numbers, np.int64), tuple(refused))


def open_lines(spec: Lines, context: OriginContext) -> LinesOrigin:
    path = context.root / spec.path
    if not path.is_file():
        raise NotThere(f'the text "{path}" does not exist')
    return LinesOrigin(path, context.schema)
