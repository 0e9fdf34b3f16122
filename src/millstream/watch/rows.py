"""Events as they come: JSON or dicts, as rows of the types that patterns expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from millstream.clock import moment_of
from millstream.errors import EventRefused
from millstream.flow.schema import Field, Schema
from millstream.patterns.typed import coercer, micros_of, reader

#: The time column of events that the device stamps.
STAMPED: Final = "at"
_MOMENT: Final = reader("timestamp")
#: How deep values may be nested.
DEPTH: Final = 16
_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.msgpack.Encoder()
EventId = tuple[str, int]


class Columns:
    """What is known of the columns of events.

    Args:
        schema: Their names and types; None if they are taken as they come.
        time: The time column; None if the device stamps events.
        id: The column that tells one event from another, wherever it comes in.
        kept: Whether rows go to a disk or to peers, so that they have to be what these can have.
    """

    __slots__ = ("_kept", "_read", "_texts", "id", "schema", "time", "time_column", "whole")

    def __init__(
        self,
        schema: Schema | None = None,
        time: str | None = None,
        id: str | None = None,
        *,
        kept: bool = True,
    ) -> None:
        self.schema, self.time, self.id, self._kept = schema, time, id, kept
        self.time_column = time or STAMPED
        #: The columns, with that of the time.
        self.whole = schema
        if schema is not None and self.time_column not in schema:
            self.whole = Schema((*schema.fields, Field(self.time_column, "timestamp")))
        # What comes with the event; its time is not read if the device stamps it.
        given = self.whole
        if given is not None and time is None:
            given = given.without({self.time_column})
        self._read = None if given is None else coercer(given)
        texts = (one.name for one in given or () if one.type == "string")
        self._texts = tuple(texts) if kept else ()

    def row(self, given: Mapping[str, Any], now: int) -> tuple[int, dict[str, Any]]:
        """Return the time of an event, in microseconds since 1970, and its row.

        One without a time gets `now` if the device stamps events.

        Raises:
            EventRefused: It has no time, or a value is not of its column's type.
        """
        column = self.time_column
        if self.time is not None and given.get(column) is None:
            raise EventRefused(f'an event has no time in column "{column}"')
        if self._read is None:
            found = dict(given)
            if self.time is not None:
                found[column] = self._moment(found[column])
            if self._kept:
                _storable(found)
        else:
            found = self._read(given)
            for name in self._texts:
                text = found[name]
                if text is not None and not text.isascii():
                    _storable(text)
        if self.time is None:
            found[column] = moment_of(now)
            return now, found
        return int(micros_of(found[column])), found

    def _moment(self, value: Any) -> Any:
        try:
            return _MOMENT(value)
        except (ValueError, TypeError, OverflowError) as error:
            fact = f'column "{self.time_column}" of an event is {value!r:.80}'
            raise EventRefused(fact, hint=str(error)) from None

    def event_id(self, given: Mapping[str, Any]) -> EventId:
        """Return the id that an event has itself in column `id`; a number, or a text."""
        assert self.id is not None, "events have an id"
        value = given.get(self.id)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return self.id, value
        if isinstance(value, str) and 0 < len(value) <= 200:
            return f"{self.id} {value}", 0
        fact = f'column "{self.id}" of an event is {value!r:.80}, which is no id'
        raise EventRefused(fact, hint="an id is a whole number from 0, or a short text")


def _storable(value: Any) -> None:
    """Refuse what neither a disk nor a peer could be given.

    Raises:
        EventRefused: The reason.
    """
    try:
        _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EventRefused(f"an event has a value that cannot be kept: {error}") from None
    if isinstance(value, dict):
        for name, one in value.items():
            if type(name) is not str:
                raise EventRefused(f"an event has a column {name!r:.80}, which is no name")
            if not shallow(one):
                raise EventRefused(f'column "{name}" is nested more than {DEPTH} levels deep')


def shallow(value: Any, depth: int = DEPTH) -> bool:
    """Tell whether lists and objects are nested at most `depth` levels deep."""
    if not isinstance(value, list | tuple | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(shallow(one, depth - 1) for one in inner)


def decoded(line: bytes) -> dict[str, Any]:
    """Return the object in a line of JSON.

    Raises:
        EventRefused: It is something else.
    """
    try:
        found = _DECODER.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EventRefused(f"an event is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise EventRefused("an event is not a JSON object")
    return found


def listed(payload: bytes) -> list[bytes]:
    """Return the events of a payload: those of a list, or the payload itself.

    Example:
        >>> listed(b'[{"a": 1}, {"a": 2}]'), listed(b'{"a": 1}')
        ([b'{"a": 1}', b'{"a": 2}'], [b'{"a": 1}'])
    """
    if payload[:1] != b"[":
        return [payload]
    try:
        return [bytes(one) for one in msgspec.json.decode(payload, type=list[msgspec.Raw])]
    except (msgspec.MsgspecError, RecursionError):
        return [payload]


def events_of(body: bytes) -> list[bytes]:
    """Return the events of a body: an object, a list of objects, or one of these on each line.

    Example:
        >>> events_of(b'{"a": 1}' + bytes([10]) + b'{"a": 2}')
        [b'{"a": 1}', b'{"a": 2}']
    """
    body = body.strip()
    if b"\n" in body and _whole(body):
        return listed(body)
    lines = (line.strip() for line in body.splitlines())
    return [event for line in lines if line for event in listed(line)]


def _whole(body: bytes) -> bool:
    """Tell whether a body is one JSON value, over several lines."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
