"""Journals: append-only, partitioned, durable logs of Arrow record batches, read by position.

create(path, schema, time="at")          make one, or widen it by nullable columns
grow(path, partitions)                   more partitions for one that inboxes write
Writer.open(path, partition)             inboxes append numbered rows, each stored once
stage(path, batches), EpochLog.open(path)    groups append epochs, each whole or not at all
Reader(path).partition(n)                read by position, while it is written
DeadLetters.open(path)                   what could not be taken, with the reason
"""

from millstream.journal.base import (
    FOREVER,
    Accepted,
    Description,
    Entry,
    Kind,
    PartitionState,
    Slice,
    Staged,
)
from millstream.journal.dead import DeadLetter, DeadLetters, dead_counts
from millstream.journal.description import create, describe
from millstream.journal.epochs import EpochLog
from millstream.journal.growth import grow
from millstream.journal.lateness import late_mask
from millstream.journal.reader import PartitionReader, Reader
from millstream.journal.retention import commit, committed, forget, trim
from millstream.journal.staging import stage
from millstream.journal.writer import Writer

__all__ = [
    "FOREVER",
    "Accepted",
    "DeadLetter",
    "DeadLetters",
    "Description",
    "Entry",
    "EpochLog",
    "Kind",
    "PartitionReader",
    "PartitionState",
    "Reader",
    "Slice",
    "Staged",
    "Writer",
    "commit",
    "committed",
    "create",
    "dead_counts",
    "describe",
    "forget",
    "grow",
    "late_mask",
    "stage",
    "trim",
]
