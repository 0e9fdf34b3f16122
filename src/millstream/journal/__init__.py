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
from millstream.journal.kinds.files.dead import DeadLetter, DeadLetters, dead_counts
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.growth import grow
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.journal.kinds.files.retention import commit, committed, forget, trim
from millstream.journal.kinds.files.staging import stage
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.lateness import late_mask

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
