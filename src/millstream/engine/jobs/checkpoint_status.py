"""The checkpoints of a job's groups, as an engine shows them."""

from __future__ import annotations

import msgspec


class PublishedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has published in an output: the last epoch, and the last that is decided."""

    name: str
    kind: str
    epoch: int | None
    decided: int | None = None


class StateFilesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The files that hold the state of a stage; `missing` are those that are not there."""

    stage: str | None
    kind: str | None
    version: int
    files: int
    bytes: int
    missing: tuple[str, ...] = ()


class CheckpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint of a group: how far it is, and what has changed since the batch before."""

    group: str
    #: Its folder, which has the version's name behind an `@` if that is not the first one.
    folder: str
    checkpoint: str
    fingerprint: str
    batch: int | None
    logged: int | None
    watermark_ms: int | None
    #: By journal, the position after the last that is read of each partition.
    inputs: dict[str, tuple[int, ...]]
    published: tuple[PublishedStatus, ...]
    state: tuple[StateFilesStatus, ...]
    #: The generation in the job's log, and who has the job; None if it has no log.
    generation: int | None = None
    holder: str | None = None
    changes: tuple[str, ...] = ()


class VerifiedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a checkpoint has found, and how many things were looked at."""

    faults: tuple[str, ...]
    batches: int
    files: int
    outputs: int
    unseen: tuple[str, ...] = ()
