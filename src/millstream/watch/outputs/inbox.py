"""The inbox of a flow: complex events as rows of a source, each once.

    inbox:FLOW.SOURCE                          of a flow on this host, in .millstream
    inbox:FLOW.SOURCE@tcp://host:port          of a running flow, or http://host:port of an engine
    inbox:FLOW.SOURCE@tcp://host:port?key=keys/A.key&server=keys/flow.pub

The sender is the device with its incarnation, the number is the entry's place in the outbox, so an
entry that is sent again is known to the journal. Columns that the source does not have are left
out. Loads pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final
from urllib.parse import parse_qs

from millstream.errors import InvalidOption, LinkError, MillstreamError, OutputAway, RowsRefused
from millstream.watch.aside import Aside
from millstream.watch.complex_event import RUN
from millstream.watch.outbox import Entry

_TIMEOUT_S: Final = 10.0


class InboxOutput:
    """Sends complex events to a source of a flow."""

    def __init__(self, target: str, where: str, aside: Aside, **keys: str) -> None:
        self.name = f"inbox {target}@{where}"
        self._target, self._where, self._aside = target, where, aside
        self._keys: dict[str, Any] = keys
        self._sender = ""
        self._client: Any = None  # links.client.Client, which loads pyarrow

    def deliver(self, entries: Sequence[Entry]) -> None:
        for sender, some in groupby(entries, key=lambda entry: entry.sender):
            try:
                self._send(sender, list(some))
            except RowsRefused:
                raise
            except (LinkError, MillstreamError) as error:
                self.close()
                raise OutputAway(error.message) from error

    def _send(self, sender: str, entries: list[Entry]) -> None:
        client = self._connected(sender)
        schema = client.schema(self._target)
        floats = {field.name for field in schema if str(field.type) in ("double", "float")}
        rows = [_fitted(entry.row, schema.names, floats) for entry in entries]
        numbers = [entry.number for entry in entries]
        try:
            client.send(self._target, rows, numbers=numbers, timeout=_TIMEOUT_S)
        except RowsRefused as error:
            if len(entries) > 1:
                for entry in entries:  # one at a time, to find which
                    self._send(sender, [entry])
            else:
                entry = entries[0]
                self._aside.put(error.message, entry.json, run=entry.run, number=entry.number)

    def _connected(self, sender: str) -> Any:
        from millstream.links.client import connect

        if self._client is None or self._sender != sender:
            self.close()
            self._client = connect(self._where, sender=sender, timeout=_TIMEOUT_S, **self._keys)
            self._sender = sender
            self._check()
        return self._client

    def _check(self) -> None:
        names = self._client.schema(self._target).names
        if RUN not in names:
            msg = f'source "{self._target}" has no column "{RUN}", by which runs are counted once'
            raise InvalidOption(msg, hint="make the source with ms.watchers()")

    def close(self) -> None:
        if self._client is not None:
            self._client.abort()
            self._client = None


def _fitted(row: dict[str, Any], names: Sequence[str], floats: set[str]) -> dict[str, Any]:
    """Return the columns that a source has; JSON has no NaN, columns of floating point do."""
    return {
        name: float(row[name]) if name in floats and isinstance(row[name], str) else row[name]
        for name in names
        if name in row
    }


def make(rest: str, *, aside: Any, **_context: object) -> InboxOutput:
    """Return the output for FLOW.SOURCE@WHERE."""
    place, _, query = rest.partition("?")
    target, _, where = place.partition("@")
    keys = {name: values[0] for name, values in parse_qs(query).items()}
    if not target.partition(".")[2] or not set(keys) <= {"key", "server"}:
        hint = "expected inbox:FLOW.SOURCE@tcp://host:port, with ?key=FILE&server=FILE for keys"
        raise InvalidOption(f'the output "inbox" cannot send to "{rest}"', hint=hint)
    return InboxOutput(target, where or ".millstream", aside(f"inbox_{target}"), **keys)
