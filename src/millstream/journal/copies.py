"""Copies of partitions on other hosts: only journals in files have them, byte for byte."""

from millstream.journal.kinds.files.index import State as CopyState
from millstream.journal.kinds.files.mirror import Mirror
from millstream.journal.kinds.files.replica_chunk import NOWHERE, Reached, ReplicaChunk
from millstream.journal.kinds.files.replica_source import ReplicaSource

__all__ = ["NOWHERE", "CopyState", "Mirror", "Reached", "ReplicaChunk", "ReplicaSource"]
