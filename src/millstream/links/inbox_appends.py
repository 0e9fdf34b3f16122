"""What an inbox stores: rows that keep to its rules, and instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from millstream.clock import Clock
from millstream.ingest import Rows as Numbered
from millstream.ingest.checks import Rules, check
from millstream.journal import Kind
from millstream.links.inbox_store import InboxStore, Sender

_DEAD_LETTERS_S: Final = 0.5


class InboxAppends:
    """Appends to the store of an inbox; call with its guard held."""

    def __init__(
        self, store: InboxStore, rules: Rules, clock: Clock, put_dead_letters: Callable[..., int]
    ) -> None:
        self._store, self._rules, self._clock = store, rules, clock
        self._put_dead_letters = put_dead_letters

    def append(self, sender: str, known: Sender, rows: Numbered, message: pa.Buffer | None) -> int:
        """Append the rows that keep to the rules, and return how many others there are."""
        last = int(rows.numbers[-1])
        good = check(rows, self._rules, self._clock.now_us())
        if good.refused:
            message = None
            self._put_dead_letters(sender, good.refused, timeout=_DEAD_LETTERS_S)
        if len(good):
            # One entry, numbered backwards from its last row: the highest number is right, whatever
            # lies between.
            first = int(good.numbers[-1]) - len(good) + 1
            writing = self._store.writer.append_nowait(sender, first, good.batch, message=message)
            self._store.append(known, len(good), good.batch.nbytes, last, writing)
        elif known.tail is None:
            known.durable = max(known.durable, last)
        known.highest = last
        return len(good.refused)

    def instruct(
        self, sender: str, known: Sender, number: int, kind: Kind, floor: int | None
    ) -> int | None:
        if kind is Kind.END_OF_STREAM:
            ends = self._store.ends.after(sender)
            if not ends.complete:
                if known.tail is not None:
                    return None  # noted before its rows are safe, the end could outlive them
                self._store.note_end(sender)
                known.highest = known.durable = number
                return 1
            self._store.ends = ends
        writing = self._store.writer.instruct_nowait(kind, floor, sender=sender, seq=number)
        self._store.append(known, 0, 0, number, writing)
        known.highest = number
        return 1
