"""A group's checkpoint at one batch, as data: inputs, what was published, state, fingerprint."""

from __future__ import annotations

import msgspec

from millstream.plan import fingerprint
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.outputs import PublishedReport, published
from millstream.spark.inspection.state_files import StateReport, states
from millstream.spark.io.source import Offset


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint at a batch."""

    job: str
    group: str
    #: The group's folder, which has the version's name behind an `@` if it is not the first one's.
    folder: str
    checkpoint: str
    fingerprint: str
    batch: int | None
    logged: int | None
    watermark_ms: int | None
    #: By journal, how far it is read.
    inputs: dict[str, Offset]
    published: tuple[PublishedReport, ...]
    state: tuple[StateReport, ...]
    #: The generation in the job's log, and who has the job; None if it has no log.
    generation: int | None = None
    holder: str | None = None


def report(found: Opened, batch: int | None = None) -> CheckpointReport:
    """Return a checkpoint as of its last committed batch, or of an earlier one.

    Raises:
        NotThere: That one is not there, or not any more.
    """
    checkpoint, log = found.checkpoint, found.place.log
    committed = found.committed(batch)
    number = None if committed is None else committed.batch
    return CheckpointReport(
        job=found.place.name,
        group=checkpoint.group,
        folder=checkpoint.folder.name,
        checkpoint=checkpoint.id,
        fingerprint=fingerprint.digest(dict(checkpoint.description)),
        batch=number,
        logged=checkpoint.last("offsets"),
        watermark_ms=committed.watermark_ms if committed and committed.watermark_ms > 0 else None,
        inputs=dict(committed.offsets) if committed else {},
        published=tuple(published(found, number)),
        state=tuple(states(found, number)),
        generation=None if log is None else log.generation,
        holder=None if log is None or log.released else str(log.holder),
    )
