"""Staging: what a task of a Spark group writes, before anyone has decided that it counts.

Runs in executors. A staged file holds the record batches of one partition, byte for byte as they
will lie in the journal; it is ignored until a decision names it (`epochs.py`), and is removed at
the next start if none does.
"""

from __future__ import annotations

import contextlib
import mmap
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from millstream.errors import CorruptStaging, NullKey, SchemaConflict
from millstream.journal.base import Description, Staged
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.layout import DATA, staged_folder
from millstream.journal.partitioning import NOWHERE, Places, places, split
from millstream.journal.rows import conform, times_of
from millstream.storage.disk import REAL, Disk, make_folder

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ROWS = 2**16
_BYTES = 8 * 2**20

PartitionOf = str | int
"""A key column (`partitioning.places`), or a partition."""


def stage(
    path: Path | str,
    batches: Iterable[pa.RecordBatch],
    partition_of: PartitionOf | None = None,
    *,
    label: str = "",
    disk: Disk = REAL,
) -> list[Staged]:
    """Write rows into staged files, one per partition that gets any, and sync them.

    If `partition_of` is None, whole batches go to the partitions in turn. The files' names begin
    with `label`.

    Raises:
        NullKey: A row has no key.
        NullTime: A row has no time.
        SchemaConflict: Rows do not fit the journal.
    """
    description = describe(path)
    folder = staged_folder(description.path)
    make_folder(disk, folder)
    files: dict[int, StagedFile] = {}
    try:
        for partition, batch in split_batches(batches, description, partition_of):
            if partition not in files:
                files[partition] = StagedFile(
                    staged_path(description, partition, label), partition, description, disk
                )
            files[partition].add(batch)
        done = [files[partition].finish() for partition in sorted(files)]
    except BaseException:
        for file in files.values():
            file.discard()
        raise
    if done:
        disk.sync_folder(folder)
    return done


def staged_path(
    description: Description, partition: int, label: str = "", ending: str = DATA
) -> Path:
    """Return a name that no other staged file has; what is labelled tells its schema too."""
    begin = f"{label}-{description.version}-" if label else ""
    return staged_folder(description.path) / f"{begin}{uuid.uuid4().hex}-{partition:04d}{ending}"


def open_staged(path: Path, item: Staged) -> mmap.mmap:
    """Map a staged file of the journal at `path`, compared with its checksum.

    Raises:
        CorruptStaging: It is gone or damaged.
    """
    file = staged_folder(path) / item.file
    problem = "is gone"
    try:
        with file.open("rb") as source:
            mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        mapped = None
    except ValueError:  # empty
        mapped, problem = None, "is empty"
    if mapped is not None:
        if len(mapped) == item.bytes and xxhash.xxh3_64_intdigest(mapped) == item.checksum:
            return mapped
        problem = "is damaged"
    msg = f'staged file "{file}" of a decided epoch {problem}'
    raise CorruptStaging(msg, hint="restore it from a copy: the epoch was promised")


def checksum(buffers: Sequence[Buffer]) -> int:
    """Return the checksum of buffers that will lie one after the other."""
    if len(buffers) == 1:
        return xxhash.xxh3_64_intdigest(buffers[0])
    total = xxhash.xxh3_64()
    for buffer in buffers:
        total.update(buffer)
    return total.intdigest()


def split_batches(
    batches: Iterable[pa.RecordBatch], description: Description, partition_of: PartitionOf | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows with the partition that they belong to."""
    # Tasks begin at different partitions, or small ones would all fill the first.
    turn = uuid.uuid4().int
    for batch in batches:
        if batch.num_rows == 0:
            continue
        fitted = conform(batch, description.schema)
        turn += 1
        if isinstance(partition_of, str):
            for partition, _, rows in split(fitted, _places(fitted, description, partition_of)):
                yield partition, rows
        elif partition_of is None:
            yield turn % description.partitions, fitted
        else:
            yield _checked(partition_of, description), fitted


def _checked(partition: int, description: Description) -> int:
    if not 0 <= partition < description.partitions:
        msg = (
            f'journal "{description.path}" has {description.partitions} partitions,'
            f" a row is meant for {partition}"
        )
        raise SchemaConflict(msg)
    return partition


def _places(batch: pa.RecordBatch, description: Description, key: str) -> Places:
    if key not in batch.schema.names:
        msg = f'journal "{description.path}" has no key column "{key}"'
        raise SchemaConflict(msg, hint=f"its columns are {', '.join(batch.schema.names)}")
    found = places(batch.column(key), description.partitions)
    if np.any(found == NOWHERE):
        msg = f'a row for journal "{description.path}" has no key in column "{key}"'
        raise NullKey(msg, hint="leave such rows out, or give them a key with coalesce")
    return found


class StagedFile:
    """Gathers one partition's rows into large batches and writes them."""

    def __init__(self, path: Path, partition: int, description: Description, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._open()
        self._partition = partition
        self._description = description
        self._waiting: list[pa.RecordBatch] = []
        self._hash = xxhash.xxh3_64()
        self._rows = self._bytes = self._parts = 0
        self._min: int | None = None
        self._max: int | None = None

    def _open(self) -> None:
        self._file = self._disk.open(self._path)

    def _put(self, message: pa.Buffer) -> None:
        self._file.append([message])

    def _close(self) -> str:
        """Make all durable, and return the name by which it is found."""
        self._file.sync()
        self._file.close()
        return self._path.name

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the partition."""
        self._waiting.append(batch)
        if (
            sum(b.num_rows for b in self._waiting) >= _ROWS
            or sum(b.nbytes for b in self._waiting) >= _BYTES
        ):
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        batch = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        self._waiting = []
        if self._description.time is not None:
            times = times_of(batch, self._description.time)
            low, high = int(times.min()), int(times.max())
            self._min = low if self._min is None else min(low, self._min)
            self._max = high if self._max is None else max(high, self._max)
        message = batch.serialize()
        self._hash.update(message)
        self._put(message)
        self._rows += batch.num_rows
        self._bytes += message.size
        self._parts += 1

    def finish(self) -> Staged:
        """Write what is left, and return what is staged now."""
        self._write()
        return Staged(
            file=self._close(),
            partition=self._partition,
            rows=self._rows,
            bytes=self._bytes,
            checksum=self._hash.intdigest(),
            min_time=self._min,
            max_time=self._max,
            parts=self._parts,
            version=self._description.version,
        )

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):  # the first error is the one to tell
            self._file.close()
            self._disk.remove(self._path)
