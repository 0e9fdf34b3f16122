"""Epochs of groups elsewhere: rows that are staged at an inbox, and published as a whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa

from millstream.ingest.checks import Rules, check
from millstream.ingest.rows import numbered
from millstream.journal import DeadLetter, Staged
from millstream.journal.base import Reasoned
from millstream.journal.rows import conform
from millstream.links import leftovers
from millstream.links.inbox_store import InboxStore

_log = logging.getLogger(__name__)
_LOOK_US: Final = 60_000_000
"""How often leftovers are looked for."""


class InboxEpochs:
    """The epochs that an inbox takes."""

    def __init__(self, store: InboxStore, rules: Rules) -> None:
        self._store, self._rules = store, rules
        self._kept = leftovers.kept_for()
        #: When senders were here last, and since when their leftovers are known.
        self._heard: dict[str, int] = {}
        self._noticed: dict[str, int] = {}
        self._look_at = 0
        #: How many leftovers were removed.
        self.expired = 0

    def stage(self, sender: str, epoch: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Keep rows aside for an epoch that may be published; they are synced when this returns.

        Rows that the source does not take are kept too, to become dead letters if it is: the clock
        of this moment decides, however often the epoch is published. Nothing is staged for an epoch
        that is there.
        """
        store = self._store
        self._heard[sender] = store.clock.elapsed_us()
        if epoch <= store.highest(sender):
            return []
        description, now = store.journal.describe(), store.clock.now_us()
        given = [numbered(conform(batch, description.schema), 0) for batch in batches]
        found = [check(rows, self._rules, now) for rows in given]
        refused = [(one.reason, one.record) for rows in found for one in rows.refused]
        return store.journal.stage_arrival(
            store.partition, sender, epoch, [rows.batch for rows in found], refused
        )

    def publish(self, sender: str, epoch: int, staged: Sequence[Staged]) -> int:
        """Put what was staged into the journal as a whole, unless the sender's epoch is there.

        It is durable when this returns how many rows were new. It may be repeated.

        Raises:
            CorruptStaging: A staged file is gone or damaged, or was not staged for this epoch.
            WriterBroken: The disk refuses; ask again.
        """
        store = self._store
        self._heard[sender] = store.clock.elapsed_us()
        rows, refused = store.journal.checked_arrival(staged, store.partition, sender, epoch)
        if epoch > self._queued(sender):
            # Before the rows: where they are, even if only on their way, the letters are.
            self._put_dead_letters(sender, epoch, store.journal.read_refused(refused))
        stored = self._arrive(sender, epoch, rows) if rows else 0
        # Without an entry nothing tells a repetition that the epoch was here: its files stay until
        # the next one.
        store.journal.discard_arrival(store.partition, sender, epoch if rows else epoch - 1)
        return stored

    def expire(self, *, paused: bool) -> None:
        """Remove what senders have staged and never came back for; call this now and then."""
        store, now = self._store, self._store.clock.elapsed_us()
        if paused or store.closed:
            self._noticed, self._look_at = {}, 0
            return
        if now < self._look_at:
            return
        kept_us = self._kept // timedelta(microseconds=1)
        self._look_at = now + min(_LOOK_US, kept_us)
        heard = {sender: at for sender, at in list(self._heard.items()) if now - at < kept_us}
        self._heard = heard
        left = store.journal.left_arrivals(store.partition, besides=heard)
        self._noticed = leftovers.noticed(self._noticed, left, now)
        for name in leftovers.due(self._noticed, now, self._kept):
            _log.warning('inbox %s removes "%s": nobody has come for it', store.name, name)
            store.journal.remove_arrival(store.partition, name)
            self.expired += 1

    def _queued(self, sender: str) -> int:
        with self._store.guard:
            self._store.opened_or_raise(sender)
            return self._store.writer.highest(sender)

    def _put_dead_letters(self, sender: str, epoch: int, refused: Sequence[Reasoned]) -> None:
        if refused:
            store, first = self._store, epoch << 32
            letters = [
                DeadLetter(sender, first + number, reason, record, store.partition)
                for number, (reason, record) in enumerate(refused)
            ]
            with store.journal.dead_letters(clock=store.clock) as dead:
                store.refused += dead.put_all(letters)

    def _arrive(self, sender: str, epoch: int, staged: Sequence[Staged]) -> int:
        rows, size = sum(item.rows for item in staged), sum(item.bytes for item in staged)
        store = self._store
        with store.guard:
            known = store.opened_or_raise(sender)
            if epoch <= store.writer.highest(sender):
                store.repeated += rows
                rows = size = 0
            # Counted before it is appended, which is done without the guard: the writer may make us
            # wait for those before, who need the guard to be told. Until then others find no room,
            # and nobody opens it again.
            store.hold(rows, size)
            writer = store.writer
        try:
            pending = writer.append_staged(sender, epoch, staged)
        except BaseException as error:
            store.release(rows, size, error)
            raise
        with store.guard:
            known.highest = max(known.highest, epoch)
            store.watch(known, rows, size, epoch, pending)
        return pending.result().stored
