"""The idle partitions of an inbox: nobody holds its writers, so they are taken for a moment when there is need."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.errors import AlreadyWriting, Ended
from millstream.ingest.feed import Idleness
from millstream.ingest.idle import Progress, proposals
from millstream.ingest.origins import Pause
from millstream.journal.base import Kind
from millstream.journal.files import Writer
from millstream.journal.reader import Reader

_EVERY_S: Final = 1.0


class Levelling:
    """Watches an inbox of several partitions, and gives the idle ones a floor."""

    def __init__(self, folder: Path, idleness: Idleness, clock: Clock) -> None:
        self._folder = folder
        self._idleness = idleness
        self._clock = clock
        self._reader = Reader(folder)
        self._partitions = range(self._reader.description.partitions)
        #: The end of each partition as last seen, and when it was first seen there.
        self._seen = [(self._end(partition), clock.now_us()) for partition in self._partitions]

    def watch(self, pause: Pause) -> bool:
        """Level the partitions until `pause` says stop; return whether the inbox has ended."""
        while not self.ended:
            self.level()
            if not pause(_EVERY_S):
                return False
        return True

    @property
    def ended(self) -> bool:
        return all(one.ended for one in map(self._progress, self._partitions))

    def level(self) -> None:
        """Write the floors that are due now; a sender that has the journal sees to it by itself."""
        self._look()
        microsecond = timedelta(microseconds=1)
        floors = proposals(
            [self._progress(partition) for partition in self._partitions],
            now_us=self._clock.now_us(),
            idle_us=self._idleness.idle // microsecond,
            lateness_us=self._idleness.lateness // microsecond,
        )
        try:
            with ExitStack() as stack:
                writers = [
                    (stack.enter_context(Writer.open(self._folder, partition, clock=self._clock)), floor)
                    for partition, floor in floors
                ]
                for writer, floor in writers:
                    # Rows may have come between the look and the lock: then this is not an idle partition.
                    if writer.end == self._seen[writer.partition][0]:
                        writer.instruct(Kind.IDLE, floor)
                        self._seen[writer.partition] = (writer.end, self._seen[writer.partition][1])
        except (AlreadyWriting, Ended):
            return

    def _look(self) -> None:
        for partition in self._partitions:
            end = self._end(partition)
            if end != self._seen[partition][0]:
                self._seen[partition] = (end, self._clock.now_us())

    def _end(self, partition: int) -> int:
        return self._reader.partition(partition).end

    def _progress(self, partition: int) -> Progress:
        reader = self._reader.partition(partition)
        state = reader.state_at(reader.end)
        return Progress(partition, state.running_max, state.floor, state.ended, self._seen[partition][1])
