"""Arrivals: epochs of groups elsewhere, on their way into a journal that inboxes write.

What the tasks of such a group send is staged beside the journal, synced, and ignored until their
driver decides. An epoch that is decided is appended to each partition as one entry of *rows*, so
lateness is decided by position, as for all other rows there. The name of a staged file says whose
it is:

    <sender's hash>-<epoch>-<schema>-<random>-<partition>.arrow      rows
    <sender's hash>-<epoch>-<schema>-<random>-<partition>.refused    rows that the source does not take, with reasons

A sender works at one epoch at a time, and at the next one only when the last is in all partitions.
So once an epoch is in a partition, whatever that sender has staged for it, up to this epoch, is
done with, and nothing else ever is: neither side can crash so that a file is removed which a
decision may still name. Of a sender that never comes back the files of one epoch stay, until they
expire (`links/leftovers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import xxhash

from millstream.errors import CorruptStaging
from millstream.journal.base import Description, Reasoned, Staged
from millstream.journal.kinds.files.layout import DATA, staged_folder
from millstream.journal.kinds.files.lines import checked_line, parse_lines, sound_values
from millstream.journal.kinds.files.staging import checksum, open_staged, stage, staged_path
from millstream.journal.lateness import Times
from millstream.journal.rows import conform, times_of
from millstream.storage.disk import REAL, Disk, make_folder

if TYPE_CHECKING:
    from typing_extensions import Buffer

REFUSED: Final = ".refused"
_NAME: Final = re.compile(
    r"(?P<sender>[0-9a-f]{32})-(?P<epoch>\d+)-(?P<version>\d+)-[0-9a-f]{32}-(?P<partition>\d{4,})"
    rf"(?:{re.escape(DATA)}|{re.escape(REFUSED)})"
)


def _hash(sender: str) -> str:
    return xxhash.xxh3_128_hexdigest(sender.encode())


# staging


def stage_arrival(
    description: Description,
    partition: int,
    sender: str,
    epoch: int,
    batches: Iterable[pa.RecordBatch],
    refused: Sequence[Reasoned] = (),
    *,
    disk: Disk = REAL,
) -> list[Staged]:
    """Keep rows of an epoch aside, and refused ones; they are synced when this returns."""
    label = f"{_hash(sender)}-{epoch}"
    staged = stage(description.path, batches, partition, label=label, disk=disk)
    if refused:
        return [*staged, _stage_refused(description, partition, label, refused, disk)]
    return staged


def _stage_refused(
    description: Description, partition: int, label: str, refused: Sequence[Reasoned], disk: Disk
) -> Staged:
    file = staged_path(description, partition, label, REFUSED)
    lines = b"".join(checked_line(one) for one in refused)
    make_folder(disk, file.parent)
    sink = disk.open(file)
    try:
        sink.append([lines])
        sink.sync()
    finally:
        sink.close()
    disk.sync_folder(file.parent)
    return Staged(
        file=file.name,
        partition=partition,
        rows=0,
        bytes=len(lines),
        checksum=xxhash.xxh3_64_intdigest(lines),
        min_time=None,
        max_time=None,
        parts=0,
        version=description.version,
    )


# publishing


def checked(
    staged: Iterable[Staged], partition: int, sender: str, epoch: int
) -> tuple[list[Staged], list[Staged]]:
    """Return the files of rows and those of refused rows, if all were staged here for this epoch.

    Raises:
        CorruptStaging: One was not: names that come over a network are not believed.
    """
    rows: list[Staged] = []
    refused: list[Staged] = []
    for item in staged:
        if (
            _facts(item.file) != (_hash(sender), epoch, item.version, partition)
            or item.partition != partition
        ):
            msg = f'"{item.file}" was not staged for partition {partition} of epoch {epoch} of "{sender}"'
            raise CorruptStaging(msg, hint="publish what staging has answered, as it is")
        (refused if item.file.endswith(REFUSED) else rows).append(item)
    return rows, refused


def _facts(file: str) -> tuple[str, int, int, int] | None:
    found = _NAME.fullmatch(file)
    if found is None:
        return None
    return found["sender"], int(found["epoch"]), int(found["version"]), int(found["partition"])


def read_refused(path: Path, staged: Iterable[Staged]) -> list[Reasoned]:
    """Return the rows that were refused when they were staged.

    Raises:
        CorruptStaging: A file is gone or damaged.
    """
    lines = [
        line
        for item in staged
        for line in sound_values(parse_lines(bytes(open_staged(path, item))))
    ]
    return [(str(line[0]), str(line[1])) for line in lines if isinstance(line, list)]


@dataclass(frozen=True, slots=True)
class Arrival:
    """All rows of an epoch for one partition, ready to be appended."""

    buffers: Sequence[Buffer]
    parts: int
    rows: int
    length: int
    checksum: int
    times: Times | None
    version: int


def read_arrival(description: Description, staged: Sequence[Staged]) -> Arrival:
    """Return what staged files hold; what is said about their rows is not believed but counted.

    Raises:
        CorruptStaging: A file is gone or damaged.
    """
    buffers: list[Buffer] = [open_staged(description.path, item) for item in staged]
    batches = [
        batch
        for item, buffer in zip(staged, buffers, strict=True)
        for batch in _batches(buffer, description.schemas[item.version], item)
    ]
    versions = {item.version for item in staged}
    if len(versions) > 1:
        # Columns were added in between: an entry has one schema.
        batches = [conform(batch, description.schema) for batch in batches]
        buffers, versions = [batch.serialize() for batch in batches], {description.version}
    if description.time is None:
        times = None
    else:
        times = [times_of(batch, description.time) for batch in batches]
    return Arrival(
        buffers=buffers,
        parts=len(batches),
        rows=sum(batch.num_rows for batch in batches),
        length=sum(memoryview(buffer).nbytes for buffer in buffers),
        checksum=checksum(buffers),
        times=np.concatenate(times) if times else None,
        version=max(versions, default=description.version),
    )


def _batches(buffer: Buffer, schema: pa.Schema, item: Staged) -> list[pa.RecordBatch]:
    source, found = pa.BufferReader(pa.py_buffer(buffer)), []
    while source.tell() < source.size():
        found.append(pa.ipc.read_record_batch(pa.ipc.read_message(source), schema))
    if sum(batch.num_rows for batch in found) != item.rows:
        msg = f'staged file "{item.file}" does not have the {item.rows} rows that were promised'
        raise CorruptStaging(msg, hint="publish what staging has answered, as it is")
    return found


def discard(path: Path, partition: int, sender: str, epoch: int, *, disk: Disk = REAL) -> None:
    """Remove what a sender has staged for a partition, for epochs up to this one."""
    whose = _hash(sender)
    for name, (sent_by, at, _, to) in _staged(path).items():
        if (sent_by, to) == (whose, partition) and at <= epoch:
            disk.remove(staged_folder(path) / name)


def left(path: Path, partition: int, besides: Iterable[str]) -> list[str]:
    """Return the files that senders other than these have staged for a partition."""
    known = set(map(_hash, besides))
    return [
        name
        for name, facts in _staged(path).items()
        if facts[3] == partition and facts[0] not in known
    ]


def remove(path: Path, partition: int, name: str, *, disk: Disk = REAL) -> None:
    """Remove a file that was staged for a partition."""
    facts = _facts(name)
    if facts is not None and facts[3] == partition:
        disk.remove(staged_folder(path) / name)


def _staged(path: Path) -> dict[str, tuple[str, int, int, int]]:
    """Return what the names of staged files say: sender, epoch, version, partition."""
    try:
        names = [file.name for file in staged_folder(path).iterdir()]
    except FileNotFoundError:
        return {}
    return {name: facts for name in names if (facts := _facts(name)) is not None}
