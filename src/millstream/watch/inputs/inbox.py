"""An inbox of the watcher's own: the clients of flows send to it, `ms.connect` and `millstream send`.

    inbox                                    on this host, in the data folder
    inbox:tcp://10.0.0.5:7410?key=keys/A.key&producers=keys

The source is called DEVICE.events. Rows are in its journal before they are acknowledged; they are
read from there, and the journal is trimmed behind. An event's id is its sender and number. Needs
the columns of events, and loads pyarrow.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from millstream.errors import InvalidOption
from millstream.flow.schema import Schema
from millstream.watch.inputs import EventId, Feed

SOURCE: Final = "events"
_READER: Final = "watcher"
_AT_ONCE: Final = 4096
_TRIM_EVERY: Final = 100_000


class InboxInput:
    """Events that programs send to this device."""

    def __init__(
        self, device: str, data: Path, schema: Schema, time: str | None, listening: Any
    ) -> None:
        from millstream.ingest.settings import declare_inbox
        from millstream.journal import journal_at
        from millstream.links.host import Host

        folder = data / device
        journal = folder / "journals" / SOURCE
        declared = declare_inbox(SOURCE, schema, journal, time=time)
        self._host = Host(folder, {SOURCE: declared}, listening_at=listening)
        self.name = f"inbox {device}.{SOURCE} at {self._host.address}"
        self.address = str(self._host.address)
        self._journal = journal_at(journal)
        self._more = threading.Event()
        self._stopping = False
        self._host.inbox(SOURCE).on_rows = self._more.set

    def run(self, feed: Feed) -> None:
        committed = {one.reader: one.positions for one in self._journal.committed()}
        reader = self._journal.reader().partition(0)
        position = max(reader.begin, committed.get(_READER, {}).get(0, 0))
        trimmed = position
        try:
            while not self._stopping:
                self._more.clear()
                end = min(reader.end, position + _AT_ONCE)
                if end == position:
                    self._more.wait()
                    continue
                self._take(feed, reader, position, end)
                position = end
                self._journal.commit(_READER, {0: position})
                if position - trimmed >= _TRIM_EVERY:
                    self._journal.trim(keep_bytes=0)
                    trimmed = position
        finally:
            self._host.close()

    def _take(self, feed: Feed, reader: Any, start: int, end: int) -> None:
        ids = _ids(reader, start, end)
        for piece in reader.read(start, end):
            if piece.batch is not None:
                rows = piece.batch.to_pylist()
                places = range(piece.position, piece.position + len(rows))
                feed.take(rows, source=self.name, ids=[ids[place] for place in places])

    def stop(self) -> None:
        self._stopping = True
        self._more.set()


def _ids(reader: Any, start: int, end: int) -> dict[int, EventId]:
    """Return the sender and number of the events at positions."""
    return {
        place: (entry.sender or "", entry.first_seq + place - entry.position)
        for entry in reader.entries(start, end)
        for place in range(max(start, entry.position), min(end, entry.stop))
    }


def make(rest: str, *, device: str, data: Path, columns: Any, **_context: object) -> InboxInput:
    """Return the inbox of a device."""
    if columns.schema is None:
        hint = 'give a schema: --schema "sensor string, temperature double, at timestamp"'
        raise InvalidOption("an inbox needs the columns of its events", hint=hint)
    return InboxInput(device, data, columns.schema, columns.time, _listening(rest))


def _listening(rest: str) -> Any:
    from millstream.links.host import Listening
    from millstream.links.keys import read_key
    from millstream.links.listener import Security

    if not rest:
        return Listening()
    parts = urlsplit(rest)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.scheme != "tcp" or not parts.hostname or not set(given) <= {"key", "producers"}:
        hint = "expected inbox:tcp://HOST:PORT, with ?key=FILE&producers=FOLDER for keys"
        raise InvalidOption(f'the input "inbox" cannot listen at "{rest}"', hint=hint)
    security = None
    if "key" in given:
        security = Security.read(read_key(given["key"]), given.get("producers", "keys"))
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    return Listening(None if local else f"{parts.hostname}", parts.port or 0, security)
