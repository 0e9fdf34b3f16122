"""The router: which of a source's inboxes a row goes to (rules: routing.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import LinkError
from millstream.journal.partitioning import Places, places, split
from millstream.links.admission import array
from millstream.links.envelope import MOST_ROWS
from millstream.links.frame import MOST_BYTES
from millstream.links.link import Instruction
from millstream.links.outbox import PIECE_BYTES, Outbox, Ticket
from millstream.links.routing import Policy, admitted, in_turn, least_loaded

_METADATA: Final = 1 << 20  # what a frame has beside the rows, generously

Event = Any  # pa.RecordBatch | Instruction, of which the former has no types
"""What is routed: rows, or an instruction, which counts as one event."""


class Router:
    """Hands rows to outboxes, one per inbox of a source, in the order of its partitions.

    Rows are spread over the first `spread` of them, instructions go to all.
    """

    def __init__(
        self,
        outboxes: Sequence[Outbox],
        policy: Policy,
        key: str | None,
        *,
        spread: int | None = None,
    ) -> None:
        self.outboxes = tuple(outboxes)
        self._spread = self.outboxes[:spread]
        self._policy = policy
        self._key = key
        if policy is Policy.LOCAL and not any(one.local for one in outboxes):
            raise LinkError("no inbox is in this process", hint="choose another policy than local")

    def enqueue(self, numbers: Any, events: Sequence[Event], ticket: Ticket) -> int:
        """Hand on events with these numbers, and return how many were taken from the front.

        An instruction goes to every outbox, after all rows before it. Fewer than were given: there
        is no room now.
        """
        taken = 0
        for event in events:
            if isinstance(event, Instruction):
                size, count = 1, self._everywhere(int(numbers[taken]), event, ticket)
            else:
                size = event.num_rows
                count = self._rows(numbers[taken : taken + size], event, ticket)
            taken += count
            if count < size:
                break
        return taken

    def _everywhere(self, number: int, instruction: Instruction, ticket: Ticket) -> int:
        """Put an instruction into every outbox, or, if one has no room, into none."""
        if any(outbox.room(1) < 1 for outbox in self.outboxes):
            return 0
        for outbox in self.outboxes:
            outbox.put(range(number, number + 1), instruction, 0, ticket)
        return 1

    def _rows(self, numbers: Any, batch: pa.RecordBatch, ticket: Ticket) -> int:
        size = int(batch.nbytes)
        each = max(1, size // max(1, batch.num_rows))
        rooms = [outbox.room(each) for outbox in self._spread]
        if len(self._spread) == 1 or self._policy in (Policy.LEAST_LOADED, Policy.LOCAL):
            chosen = self._chosen(rooms)
            count = min(int(batch.num_rows), rooms[chosen])
            if count == batch.num_rows:
                self._put(chosen, numbers, batch, size, ticket)
            else:
                part = batch[:count]
                self._put(chosen, numbers[:count], part, int(part.nbytes), ticket)
            return count
        numbers = array(numbers)
        chosen_of = self._places(batch, numbers)
        count = admitted(chosen_of, rooms)
        for chosen, rows, part in split(batch[:count], chosen_of[:count]):
            self._put(chosen, numbers[rows], part, int(part.nbytes), ticket)
        return count

    def _chosen(self, rooms: Sequence[int]) -> int:
        if self._policy is Policy.LOCAL:
            rooms = [
                room if outbox.local else -1
                for room, outbox in zip(rooms, self._spread, strict=True)
            ]
        return least_loaded(rooms)

    def _places(
        self, batch: pa.RecordBatch, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Places:
        if self._policy is Policy.IN_TURN or self._key is None:
            return in_turn(numbers, len(self._spread))
        # The first inbox refuses rows without a key, and keeps them among its dead letters.
        return places(batch.column(self._key), len(self._spread), keyless=0)

    def _put(
        self, chosen: int, numbers: Any, batch: pa.RecordBatch, size: int, ticket: Ticket
    ) -> None:
        rows = batch.num_rows
        if rows == 1 or (size <= PIECE_BYTES and 0 < rows <= MOST_ROWS):
            self.outboxes[chosen].put(numbers, batch, size, ticket)
            return
        step = max(1, min(MOST_ROWS, PIECE_BYTES * rows // max(1, size)))
        for begin in range(0, rows, step):
            part = batch[begin : begin + step]
            # Rows are not equally large: a part may be more than can be sent at once.
            self._put(chosen, numbers[begin : begin + step], part, int(part.nbytes), ticket)


def too_large(batch: pa.RecordBatch) -> int | None:
    """Return the first row that is larger than a frame and cannot be sent; None: there is none."""
    if batch.nbytes <= MOST_BYTES - _METADATA:
        return None
    if batch.num_rows == 1:
        return 0
    half = batch.num_rows // 2
    first, second = too_large(batch[:half]), too_large(batch[half:])
    return first if first is not None or second is None else half + second
