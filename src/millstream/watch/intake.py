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
        now, columns, shared = self._clock.now_us(), self._columns, self._sensor
        sender, numbers = self._numbered(source)
        for place, given in enumerate(rows):
            try:
                raw = given if type(given) is dict else _mapping(given)
                at, row = columns.row(raw, now)
                if ids is not None:
                    own = ids[place]
                elif columns.id is None:
                    own = sender, next(numbers)
                else:
                    own = columns.event_id(raw)
                events.append((own, at, row, None if shared is None else str(row.get(shared))))
            except EventRefused as error:
                bad.append(Rejected(place, error.message))
        return events, bad

    def _numbered(self, source: str) -> tuple[str, count[int]]:
        """Return who numbers the events of an input that have no id, and the numbers."""
        found = self._numbers.get(source)
        if found is None:
            found = self._numbers[source] = f"{self._sender}/{source}", count()
        return found


def _mapping(given: Mapping[str, Any] | bytes) -> Mapping[str, Any]:
    if isinstance(given, bytes):
        return decoded(given)
    if not isinstance(given, Mapping):
        raise EventRefused(f"it is {type(given).__name__}, not columns with values")
    return given
