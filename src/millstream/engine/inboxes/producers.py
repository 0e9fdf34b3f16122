"""What the status of a job shows of producers that have quotas."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.engine.jobs.status import ProducerStatus
from millstream.links.metering import ProducerStatistics


def producer_statuses(found: Iterable[ProducerStatistics], job: str) -> tuple[ProducerStatus, ...]:
    """Return the producers that have sent to a job."""
    return tuple(
        ProducerStatus(
            one.name,
            one.quota.rows_per_second,
            one.quota.bytes_per_second,
            one.quota.connections,
            one.connections,
            one.rows,
            one.bytes,
            one.waits,
        )
        for one in found
        if any(source.startswith(f"{job}.") for source in one.sources)
    )
