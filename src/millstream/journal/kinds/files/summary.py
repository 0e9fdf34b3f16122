"""A journal in numbers, for the command line and the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from millstream.journal.base import Kind
from millstream.journal.health import PartitionSummary, ReaderSummary, Summary
from millstream.journal.kinds.files.dead import dead_counts
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.index import (
    NOTHING,
    Entries,
    Header,
    State,
    read_header,
    state_after,
)
from millstream.journal.kinds.files.layout import (
    index_file,
    partition_folder,
    segment_bytes,
    segment_positions,
)
from millstream.journal.kinds.files.retention import committed
from millstream.journal.kinds.files.segments import synced_mark
from millstream.journal.kinds.files.senders import read_senders
from millstream.journal.kinds.files.verify import visible


def summary(path: Path | str) -> Summary:
    """Return a journal in numbers; reads the indexes, not the data."""
    description = describe(path)
    partitions = tuple(
        _partition(description.path, number) for number in range(description.partitions)
    )
    return Summary(
        path=description.path,
        written_by=description.written_by,
        time=description.time,
        columns={field.name: str(field.type) for field in description.schema},
        schemas=len(description.schemas),
        partitions=partitions,
        readers=tuple(_readers(description.path, partitions)),
        dead=dead_counts(description.path),
    )


def _readers(path: Path, partitions: tuple[PartitionSummary, ...]) -> Iterator[ReaderSummary]:
    for reader in committed(path):
        positions = {
            part.partition: reader.positions.get(part.partition, part.begin) for part in partitions
        }
        lag = sum(max(0, part.end - positions[part.partition]) for part in partitions)
        yield ReaderSummary(reader.reader, positions, lag)


def _partition(path: Path, number: int) -> PartitionSummary:
    folder = partition_folder(path, number)
    mark = synced_mark(folder)
    rows = lost = size = 0
    lowest: int | None = None
    state, firsts = State(), segment_positions(folder)
    for first in firsts:
        header: Header = read_header(index_file(folder, first))
        _, entries = visible(index_file(folder, first), header, mark)
        stored = (entries["kind"] == Kind.ROWS) | (entries["kind"] == Kind.EPOCH)
        rows += int(entries["count"][stored].sum())
        lost += int(entries["count"][entries["kind"] == Kind.LOST].sum())
        size += segment_bytes(folder, first)
        lowest = _lowest(lowest, entries)
        state = state_after(header.state, entries)
    names = read_senders(folder)
    return PartitionSummary(
        partition=number,
        begin=firsts[0] if firsts else 0,
        end=state.position,
        rows=rows,
        bytes=size,
        segments=len(firsts),
        min_time=lowest,
        running_max=state.running_max,
        floor=state.floor,
        ended=state.ended,
        last_append_at=state.appended_at,
        lost=lost,
        highest={
            names.get(sender, f"sender {sender}"): seq for sender, seq in state.highest.items()
        },
    )


def _lowest(before: int | None, entries: Entries) -> int | None:
    times = entries["min_time"][entries["min_time"] != NOTHING]
    if len(times) == 0:
        return before
    lowest = int(np.min(times))
    return lowest if before is None else min(before, lowest)
