"""Copies of partitions on other hosts: only journals in files have them, byte for byte."""

from collections.abc import Iterable
from pathlib import Path

from millstream.journal.kinds.files import copylog
from millstream.journal.kinds.files.index import State as CopyState
from millstream.journal.kinds.files.layout import partition_folder
from millstream.journal.kinds.files.mirror import Mirror
from millstream.journal.kinds.files.replica_chunk import NOWHERE, Reached, ReplicaChunk
from millstream.journal.kinds.files.replica_source import ReplicaSource

__all__ = [
    "NOWHERE",
    "CopyState",
    "Mirror",
    "Reached",
    "ReplicaChunk",
    "ReplicaSource",
    "written_here",
]


def written_here(path: Path, partitions: Iterable[int]) -> bool:
    """Tell whether one of these partitions was written in this folder, not copied to it."""
    return any(copylog.written_here(partition_folder(path, number)) for number in partitions)
