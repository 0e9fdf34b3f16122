"""The bytes and batches of entries, compared with their checksums the first time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from millstream.errors import CorruptBatch
from millstream.journal.base import Description
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.segments import CHECK_HINT, Maps, Segment
from millstream.journal.rows import times_of, widen

_COPIED = 2**20


class Described:
    """What the readers of partitions share; it holds none of them, so that maps can go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description: Description = describe(path)

    def schema(self, version: int) -> pa.Schema:
        """Return one of the schemas under which batches were written."""
        if version >= len(self.description.schemas):
            self.description = describe(self.path)
        return self.description.schemas[version]


class EntryData:
    """Reads the data of a partition's entries."""

    def __init__(self, described: Described, maps: Maps, *, check: bool) -> None:
        self._described = described
        self._maps = maps
        self._check = check

    def widened(self, batch: pa.RecordBatch, columns: list[str] | None) -> pa.RecordBatch:
        schema = self._described.description.schema
        if columns is None:
            if batch.schema.equals(schema):
                return batch
            columns = schema.names
        return widen(batch, schema, columns)

    def times(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        time = self._described.description.time
        assert time is not None
        return times_of(batch, time)

    def batches(
        self, segment: Segment, number: int, data: pa.Buffer
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield an entry's batches with their positions."""
        raw = segment.entries[number]
        position, schema = int(raw["position"]), self._described.schema(int(raw["version"]))
        if int(raw["parts"]) == 1:
            yield position, pa.ipc.read_record_batch(data, schema)
            return
        source = pa.BufferReader(data)
        for _ in range(int(raw["parts"])):
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
            yield position, batch
            position += batch.num_rows

    def mapped(self, segment: Segment, number: int) -> pa.Buffer:
        """Return an entry's bytes without copying them."""
        raw = segment.entries[number]
        offset, length = int(raw["offset"]), int(raw["length"])
        mapped = self._maps.get(segment.data_path, offset + length)
        return self._checked(
            segment, number, None if mapped is None else mapped.slice(offset, length)
        )

    def copied(self, segment: Segment, number: int) -> pa.Buffer:
        """Return a copy of an entry's bytes, unless it is large: a map would cost more."""
        raw = segment.entries[number]
        if int(raw["length"]) > _COPIED:
            return self.mapped(segment, number)
        return self._checked(
            segment, number, segment.read_data(int(raw["offset"]), int(raw["length"]))
        )

    def _checked(self, segment: Segment, number: int, data: pa.Buffer | None) -> pa.Buffer:
        """Return an entry's bytes, compared with their checksum the first time."""
        raw = segment.entries[number]
        if self._check and data is not None and not segment.checked[number]:
            if xxhash.xxh3_64_intdigest(data) == int(raw["data_checksum"]):
                segment.checked[number] = 1
            else:
                data = None
        if data is not None:
            return data
        position, offset = int(raw["position"]), int(raw["offset"])
        msg = f'the batch at position {position} in "{segment.data_path}" is damaged, at byte {offset}'
        raise CorruptBatch(
            msg, file=str(segment.data_path), position=position, offset=offset, hint=CHECK_HINT
        )
