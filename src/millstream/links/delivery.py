"""Delivery: how the epochs of a group get into the inboxes of a source elsewhere, each once.

    tasks stage, over the network -> the driver decides, at home -> publish, to every partition,
    until all have it

Both requests may be repeated: what was staged twice is there twice and named once, what was
published twice is there once. So no answer is never a failure, only a reason to ask again
(`Client.ask`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millstream.journal import Staged
from millstream.journal.partitioning import places, split
from millstream.journal.rows import conform
from millstream.links import envelope
from millstream.links.client import Client
from millstream.links.link import schema_of

PIECE_BYTES: Final = 4 << 20
"""What is staged in one request, unless a single row has more."""


@dataclass(slots=True)
class Delivery:
    """One epoch of a sender on its way to a source."""

    client: Client
    source: str
    sender: str
    epoch: int
    timeout: float = 60.0

    # tasks

    def stage(
        self, batches: Iterable[pa.RecordBatch], partition: int | None = None
    ) -> list[Staged]:
        """Stage rows where their keys belong, or, if the source has no key, in the given partition.

        They are synced there when this returns.

        Raises:
            SchemaConflict: The rows do not fit the source's columns.
            NoAnswer: It took too long.
        """
        info = self.client.info(self.source)
        schema, count = schema_of(info), len(info.inboxes)
        waiting: dict[int, _Pieces] = {number: _Pieces() for number in range(count)}
        staged: list[Staged] = []
        for batch in batches:
            fitted = conform(batch, schema)
            for number, rows in _split(fitted, info.key, count, (partition or 0) % count):
                for piece in waiting[number].add(rows):
                    staged += self._stage(number, piece, info.version)
        for number, pieces in waiting.items():
            for piece in pieces.rest():
                staged += self._stage(number, piece, info.version)
        return staged

    def _stage(self, partition: int, batch: pa.RecordBatch, version: int) -> list[Staged]:
        answer = self._ask(
            partition,
            lambda n: envelope.Stage(
                n, self.source, partition, self.sender, self.epoch, batch.num_rows, version
            ),
            batch.serialize(),
        )
        return envelope.staged_items(answer.staged)

    # the driver

    def publish(self, staged: Sequence[Staged]) -> int:
        """Publish what was staged, and return how many rows were new; this may be repeated.

        All of it is durable when this returns. If it raises, some partitions may have theirs: ask
        again.

        Raises:
            NoAnswer: It took too long.
            CorruptStaging: What was staged is gone.
        """
        rows = 0
        for partition in sorted({item.partition for item in staged}):
            theirs = envelope.staged_rows(item for item in staged if item.partition == partition)
            request = self._publish(partition, theirs)
            rows += self._ask(partition, request).rows
        return rows

    def _publish(
        self, partition: int, staged: list[envelope.StagedRows]
    ) -> Callable[[int], envelope.Request]:
        return lambda n: envelope.Publish(
            n, self.source, partition, self.sender, self.epoch, staged
        )

    def _ask(
        self, partition: int, make: Callable[[int], envelope.Request], *bodies: Any
    ) -> envelope.Done:
        answer = self.client.ask(self.source, partition, make, *bodies, timeout=self.timeout)
        assert isinstance(answer, envelope.Done)
        return answer


class _Pieces:
    """Gathers rows until they are worth a request."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return what is full."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        return self.rest() if self._rows >= envelope.MOST_ROWS or self._bytes >= PIECE_BYTES else []

    def rest(self) -> list[pa.RecordBatch]:
        """Return all rows, in pieces."""
        if not self._rows:
            return []
        batch = pa.concat_batches(self._batches)
        step = max(1, min(envelope.MOST_ROWS, PIECE_BYTES // max(1, self._bytes // self._rows)))
        self._batches, self._rows, self._bytes = [], 0, 0
        return [batch[begin : begin + step] for begin in range(0, batch.num_rows, step)]


def _split(
    batch: pa.RecordBatch, key: str | None, count: int, partition: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order."""
    if key is None or count == 1:
        yield (partition if key is None else 0), batch
        return
    # The first inbox keeps rows without a key among its dead letters.
    for number, _, rows in split(batch, places(batch.column(key), count, keyless=0)):
        yield number, rows
