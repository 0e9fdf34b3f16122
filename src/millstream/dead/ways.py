"""How rows reach the journal of a source, each once: through its inboxes, or as its one writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from millstream import ingest
from millstream.clock import Clock, SystemClock
from millstream.dead.fitness import parsed
from millstream.errors import AlreadyWriting, Ended, LetterRefused
from millstream.journal.letters import Row
from millstream.links.client import Client


class Way(Protocol):
    """A way into the sources of a flow."""

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        """Put rows, whose numbers rise, into a journal; they are durable when this returns.

        Rows that are there already are not stored again. If it raises, some may be there.

        Raises:
            Ended: The source takes no more rows.
            LetterRefused: Another process writes the journal, and takes none from here.
        """
        ...


class ThroughInboxes:
    """Send to the inboxes of a flow, whoever has them open."""

    def __init__(self, flow: str, connect: Callable[[str], Client]) -> None:
        self._flow, self._connect = flow, connect

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        client = self._connect(sender)
        try:
            self._send(client, f"{self._flow}.{source}", rows)
            client.close()
        except AlreadyWriting as error:
            msg = f'another process has the inboxes of "{self._flow}", and does not listen here'
            raise LetterRefused(msg, hint="ask the engine that runs it: --engine URL") from error
        finally:
            client.abort()

    def _send(self, client: Client, target: str, rows: Sequence[Row]) -> None:
        if client.ended(target):
            raise Ended(f'"{target}" has ended: it accepts no more events')
        records, numbers = [one.record for one in rows], [one.mark.number for one in rows]
        found = parsed(records, numbers, client.schema(target))
        # Before the rows around them: what the journal remembers of a sender covers its dead letters too.
        if found.refused:
            client.refuse(target, found.refused)
        if len(found):
            places: Any = found.numbers
            client.send(target, found.batch, numbers=places)


class AsWriter:
    """Take the journal of a source that reads files or topics, while nobody else has it."""

    def __init__(self, folder: Path, *, clock: Clock | None = None, timeout: float = 5.0) -> None:
        self._folder, self._clock, self._timeout = folder, clock or SystemClock(), timeout

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        description, settings = ingest.declared(self._folder / "journals" / source)
        try:
            feed = ingest.open_feed(description, settings, self._clock, timeout=self._timeout)
        except AlreadyWriting as error:
            msg = f'source "{source}" is being read, and its journal has one writer'
            hint = "drain the job, or stop the flow; replay; resume it"
            raise LetterRefused(msg, hint=hint) from error
        try:
            numbers = [one.mark.number for one in rows]
            feed.take(sender, parsed([one.record for one in rows], numbers, description.schema))
            feed.close()
        except BaseException:
            feed.abort()
            raise


def way_to(folder: Path, connect: Callable[[str], Client]) -> Way:
    """Return the way into the sources of the flow in a folder: each as it is written."""
    return _Either(folder, ThroughInboxes(folder.name, connect), AsWriter(folder))


class _Either:
    def __init__(self, folder: Path, inboxes: Way, writer: Way) -> None:
        self._folder, self._inboxes, self._writer = folder, inboxes, writer

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        _, settings = ingest.declared(self._folder / "journals" / source)
        (self._inboxes if settings.inbox else self._writer).send(source, sender, rows)
