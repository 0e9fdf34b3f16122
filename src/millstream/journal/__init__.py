"""Journals: append-only, partitioned, durable logs of Arrow record batches, read by position.

    orders = journal_at("data/shop/journals/orders")      a path, or a URL

    orders.create(schema, time="at")    make it, or widen it by nullable columns
    orders.grow(partitions)             give it more partitions, if inboxes write it
    orders.writer(partition)            inboxes append numbered rows, each stored once
    orders.stage(batches), .epochs()    groups append epochs, each whole or not at all
    orders.reader().partition(n)        read by position, while it is written
    orders.dead_letters()               what was refused, with the reason

`kind.py` has all operations; `kinds/` has what they are done with.
"""

from millstream.journal.address import journal_at, journal_kept, journals_in, keep_journals
from millstream.journal.base import (
    FOREVER,
    Accepted,
    DeadLetter,
    Description,
    Entry,
    Kind,
    PartitionState,
    Slice,
    Staged,
)
from millstream.journal.kind import (
    Excerpt,
    Journal,
    JournalReader,
    PartitionReader,
    PartitionWriter,
)
from millstream.journal.lateness import Steps, late_mask

__all__ = [
    "FOREVER",
    "Accepted",
    "DeadLetter",
    "Description",
    "Entry",
    "Excerpt",
    "Journal",
    "JournalReader",
    "Kind",
    "PartitionReader",
    "PartitionState",
    "PartitionWriter",
    "Slice",
    "Staged",
    "Steps",
    "journal_at",
    "journal_kept",
    "journals_in",
    "keep_journals",
    "late_mask",
]
