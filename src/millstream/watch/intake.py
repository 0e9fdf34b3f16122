"""Rows as they come in: each becomes an event with an id, a time and columns, or is rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from millstream.clock import Clock
from millstream.errors import EventRefused
from millstream.watch.inputs import EventId, Rejected
from millstream.watch.node import Event
from millstream.watch.rows import Columns, decoded


class Intake:
    """Makes events of rows.

    Args:
        columns: What is known of the columns.
        clock: The machine's.
        sender: Who numbers events that have no id: the device, and its incarnation.
        sensor: The column by which devices share sensors, if they do.
    """

    def __init__(self, columns: Columns, clock: Clock, sender: str, sensor: str | None) -> None:
        self._columns, self._clock, self._sender, self._sensor = columns, clock, sender, sensor
        self._numbers: dict[str, tuple[str, count[int]]] = {}

    def events(
        self,
        rows: Sequence[Mapping[str, Any] | bytes],
        source: str,
        ids: Sequence[EventId] | None,
    ) -> tuple[list[Event], list[Rejected]]:
        """Return the events of rows, or of lines of JSON, and those that are none."""
        events: list[Event] = []
        bad: list[Rejected] = []
        now, columns = self._clock.now_us(), self._columns
        for place, given in enumerate(rows):
            try:
                raw = decoded(given) if isinstance(given, bytes) else given
                if type(raw) is not dict and not isinstance(raw, Mapping):
                    raise EventRefused(f"it is {type(raw).__name__}, not columns with values")
                own = ids[place] if ids is not None else columns.event_id(raw)
                at, row = columns.row(raw, now)
                sensor = None if self._sensor is None else str(row.get(self._sensor))
                events.append(Event(own or self._numbered(source), at, row, sensor))
            except EventRefused as error:
                bad.append(Rejected(place, error.message))
        return events, bad

    def _numbered(self, source: str) -> EventId:
        if source not in self._numbers:
            self._numbers[source] = f"{self._sender}/{source}", count()
        sender, numbers = self._numbers[source]
        return sender, next(numbers)
