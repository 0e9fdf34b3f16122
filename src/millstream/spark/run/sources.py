"""The sources of a run: what brings events into its journals, and the host of its inboxes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from millstream import ingest
from millstream.clock import Clock
from millstream.errors import AlreadyWriting
from millstream.flow.stages import Source
from millstream.links.host import Host, Listening, declared_inboxes
from millstream.links.host import Source as HostedSource
from millstream.spark.failpoints import passing
from millstream.spark.run.version import FlowVersion

#: How often to try to host inboxes that another process has.
HOST_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Hosting:
    """Where a run listens for events, if it hosts its inboxes itself."""

    folder: Path
    root: Path
    listening: Listening
    wanted: bool
    #: The sources that engines read.
    elsewhere: frozenset[str] = frozenset()


class RunSources:
    """The sources of all versions that run, started and stopped as versions come and go."""

    def __init__(
        self, hosting: Hosting, clock: Clock, versions: Callable[[], list[FlowVersion]]
    ) -> None:
        self._hosting, self._clock, self._versions = hosting, clock, versions
        self._ingests: dict[str, ingest.Ingest] = {}
        self.host: Host | None = None
        self._host_at = 0.0
        self._levelled: list[ingest.JournalFeed] = []

    @property
    def _wanted(self) -> dict[str, Source]:
        """The sources of all versions, as the newest has them, with the fewest partitions of any.

        So a journal grows once the version that wants it runs alone, and until then can be what the
        other one has.
        """
        found: dict[str, Source] = {}
        for version in self._versions():
            for stage in version.flow.stages.values():
                if isinstance(stage, Source):
                    least = min(stage.partitions, found.get(stage.name, stage).partitions)
                    found[stage.name] = replace(stage, partitions=least)
        return found

    @property
    def _inboxes(self) -> list[str]:
        return [name for name, stage in self._wanted.items() if stage.origin.intake]

    def start(self) -> None:
        """Start the sources that are wanted, and stop those that no version has any more."""
        wanted = self._wanted
        for name in [name for name in self._ingests if name not in wanted]:
            self._ingests.pop(name).stop()
        for name, stage in wanted.items():
            if name in self._ingests and self._ingests[name].outgrown(stage):
                self._ingests.pop(name).stop()
                passing("outgrown")
            if name not in self._ingests:
                self._ingests[name] = ingest.open(
                    stage,
                    self._journal(name),
                    root=self._hosting.root,
                    clock=self._clock,
                    read=name not in self._hosting.elsewhere,
                )
                passing("source-opened")
                self._ingests[name].start()
                self._release_inboxes(name)
        self.host_inboxes()

    def _journal(self, name: str) -> Path:
        return self._versions()[0].journal(name)

    def check(self) -> None:
        """Raise what a source has failed with, if one has."""
        for source in self._ingests.values():
            source.check()

    # inboxes

    def _release_inboxes(self, name: str) -> None:
        """Open the inboxes again if there are more, or one gets more partitions."""
        if self.host is not None and name in self._inboxes:
            self.host.close()
            self.host, self._host_at = None, 0.0

    def host_inboxes(self) -> None:
        """Host the flow's inboxes; while a client hosts them, try again later."""
        idle = self.host is None and time.monotonic() >= self._host_at
        if not (self._hosting.wanted and idle and self._inboxes):
            return
        self._host_at = time.monotonic() + HOST_EVERY_S
        try:
            self.host = Host(
                self._hosting.folder.resolve(),
                self._grown_inboxes(),
                listening_at=self._hosting.listening,
                clock=self._clock,
            )
        except AlreadyWriting:
            return

    def _grown_inboxes(self) -> dict[str, HostedSource]:
        """Return the flow's inboxes, with the partitions that they shall have."""
        wanted = self._wanted
        return {
            name: (
                ingest.grow(description, settings, wanted[name].partitions, self._clock),
                settings,
            )
            for name, (description, settings) in declared_inboxes(self._hosting.folder).items()
            if name in self._inboxes
        }

    def statistics(self) -> dict[str, ingest.IngestStatistics]:
        """Return the numbers of each source."""
        found = {name: source.statistics() for name, source in self._ingests.items()}
        if self.host is None:
            return found
        for name, inboxes in self.host.statistics().items():
            rows, refused = sum(one.rows for one in inboxes), sum(one.refused for one in inboxes)
            error = next((one.error for one in inboxes if one.error is not None), None)
            found[name] = replace(found[name], rows=rows, refused=refused, error=error)
        return found

    # ending

    def drain(self, *, flush: bool) -> None:
        """Bring nothing more; with `flush` end the sources permanently. Inboxes are their host's."""
        self._close_levelled()
        for name, source in self._ingests.items():
            source.stop()
            if not self._taken_elsewhere(name) and not source.ended:
                feed = ingest.open_feed(*ingest.declared(self._journal(name)), self._clock)
                if flush:
                    feed.end()
                    feed.close()
                else:
                    # Its idle partitions still hold up the others.
                    self._levelled.append(feed)

    def _taken_elsewhere(self, name: str) -> bool:
        return name in self._inboxes or name in self._hosting.elsewhere

    def level(self) -> None:
        """Let the idle partitions of drained sources hold nothing up."""
        for feed in self._levelled:
            feed.tick()

    def _close_levelled(self) -> None:
        while self._levelled:
            self._levelled.pop().close()

    def stop(self) -> None:
        """Stop all sources; nothing that was taken is lost."""
        if self.host is not None:
            self.host.close()
            self.host = None
        for source in self._ingests.values():
            source.stop()
        self._close_levelled()
