"""Rows that say who they are, and what must hold of any journal that has taken them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from millstream.journal.base import Kind
from millstream.journal.kinds.files.reader import Reader

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("sender", pa.string()), ("seq", pa.int64())]
)


def time_of(sender: str, seq: int) -> int:
    """Return a row's time: it goes up, with steps back, and is the same when the row is sent again."""
    return 1_000 + seq * 10 - (seq * 7919 + len(sender)) % 60


def rows(sender: str, first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    times = [time_of(sender, n) for n in numbers]
    return pa.record_batch(
        [
            pa.array(times, SCHEMA.field("at").type),
            pa.array([sender] * count),
            pa.array(numbers, pa.int64()),
        ],
        schema=SCHEMA,
    )


Item = tuple[int, str, int]
"""Position, sender and number of a row."""


def stored(path: Path, partition: int = 0, start: int | None = None) -> list[Item]:
    """Return all rows as a fresh reader sees them."""
    reader = Reader(path).partition(partition)
    return read_rows(reader, reader.begin if start is None else start, reader.end)


def read_rows(reader: object, start: int, stop: int) -> list[Item]:
    found: list[Item] = []
    for part in reader.read(start, stop):  # type: ignore[attr-defined]
        if part.batch is not None:
            found += [
                (part.position + n, row["sender"], row["seq"])
                for n, row in enumerate(part.batch.select(["sender", "seq"]).to_pylist())
            ]
    return found


@dataclass
class Model:
    """What senders know: numbers acknowledged, and the next to send."""

    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    seen: dict[int, tuple[str, int]] = field(default_factory=dict)

    def note(self, sender: str, first: int, stop: int) -> None:
        self.acknowledged.setdefault(sender, set()).update(range(first, stop))

    def note_seen(self, items: list[Item]) -> None:
        for position, sender, seq in items:
            assert self.seen.setdefault(position, (sender, seq)) == (sender, seq), (
                "a row that was read has changed"
            )

    def check(self, items: list[Item], begin: int = 0) -> None:
        """Everything acknowledged is there, once, in order per sender; what was read once is still there."""
        positions = [position for position, _, _ in items]
        assert positions == sorted(set(positions))
        at = {position: (sender, seq) for position, sender, seq in items}
        for position, row in self.seen.items():
            if position >= begin:
                assert at.get(position) == row, "a row that was read is gone"
        for sender, numbers in self.acknowledged.items():
            found = [seq for _, name, seq in items if name == sender]
            assert found == sorted(set(found)), "a sender's rows are repeated or out of order"
            if begin == 0:
                assert numbers <= set(found), "an acknowledged row is missing"


def check_index(path: Path, partition: int = 0) -> None:
    """What the index says is what the rows say, for every position."""
    reader = Reader(path).partition(partition)
    running: int | None = reader.state_at(reader.begin).running_max
    for part in reader.read(reader.begin, reader.end):
        assert part.running_max_before == running
        if part.batch is None:
            assert part.kind in (Kind.IDLE, Kind.WATERMARK, Kind.PROGRESS, Kind.END_OF_STREAM)
            continue
        for offset, moment in enumerate(part.batch.column("at").cast(pa.int64()).to_pylist()):
            position = part.position + offset
            assert reader.state_at(position).running_max == running
            if running is None or moment > running:
                assert reader.first_above(moment - 1, reader.begin, reader.end) == position
                assert reader.position_at_time(moment) == position
                running = moment
    assert reader.state_at(reader.end).running_max == running
