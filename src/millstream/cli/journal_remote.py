"""The journals of an engine's jobs, over HTTP, for `millstream journal --engine`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.errors import JournalMissing
from millstream.journal.health import (
    Damage,
    PartitionSummary,
    ReaderSummary,
    Summary,
    Verification,
)

if TYPE_CHECKING:
    from millstream.cluster import Cluster


class RemoteJournal:
    """A journal of a job, as the engine with its driver has it."""

    def __init__(self, cluster: Cluster, job: str, name: str) -> None:
        self._cluster, self._job, self._name = cluster, job, name

    @property
    def name(self) -> str:
        return f"{self._job}.{self._name}"

    def summary(self) -> Summary:
        """Return the journal in numbers."""
        import msgspec

        found = self._cluster.journal(self._job, self._name)
        return Summary(
            path=Path(self.name),
            written_by=found.written_by,
            time=found.time,
            columns=found.columns,
            schemas=found.schemas,
            partitions=tuple(
                msgspec.convert(one, PartitionSummary, from_attributes=True)
                for one in found.partitions
            ),
            readers=tuple(
                ReaderSummary(one.reader, {int(n): at for n, at in one.positions.items()}, one.lag)
                for one in found.readers
            ),
            dead=found.dead,
        )

    def partitions(self) -> int:
        return len(self._cluster.journal(self._job, self._name).partitions)

    def rows(
        self, partition: int, start: int | None, columns: str | None, limit: int | None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield rows with their positions, from `start` on; more than `limit` may come."""
        page = 1_000 if limit is None else max(1, min(1_000, limit))
        for found in self._cluster.journal_pages(
            self._job, self._name, partition, start=start, columns=columns, page=page
        ):
            if found.lost:
                typer.echo(f"{found.lost} positions are lost", err=True)
            for one in found.rows:
                yield one.position, one.row

    def verify(self) -> Verification:
        """Let the engine compare all of it with its checksums."""
        found = self._cluster.verify_journal(self._job, self._name)
        damages = tuple(
            Damage(one.partition, Path(one.file), one.offset, one.position, one.positions, one.fact)
            for one in found.damages
        )
        return Verification(damages, found.entries, found.rows, found.bytes, found.lost)


@contextmanager
def remote(
    engines: list[str], token_file: Path | None, name: str, job: str | None
) -> Iterator[RemoteJournal]:
    """Find a journal, "JOB.JOURNAL", or JOURNAL of a job."""
    from millstream.cli.jobs import cluster

    of, _, rest = name.partition(".")
    if job is not None:
        of, rest = job, name.removeprefix(f"{job}.")
    if not rest:
        msg = f'"{name}" names no journal of a job'
        raise JournalMissing(msg, hint=f"give JOB.JOURNAL, or --job JOB {name}")
    with cluster(engines, token_file) as found:
        yield RemoteJournal(found, of, rest)
