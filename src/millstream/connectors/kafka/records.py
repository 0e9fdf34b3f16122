"""Records of Kafka to rows: a block at a time, bad ones apart."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.connectors.kafka import Kafka, value_columns
from millstream.connectors.kafka.formats import parser_of
from millstream.ingest.parse import Parser, parse_numbered
from millstream.ingest.rows import Numbers, Refused, Rows, joined

_MILLISECOND_US: Final = 1000


class Record(Protocol):
    """A record as confluent-kafka has it."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def headers(self) -> Any: ...  # pairs of a name and bytes, or None
    def timestamp(self) -> tuple[int, int]: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def topic(self) -> str | None: ...


def records_of(spec: Kafka, schema: pa.Schema, root: Path) -> Records:
    """Return what makes rows of a source's records. Raises as `checks.check_kafka` does."""
    names = {name for name, _ in value_columns(spec)}
    known = {column.lower(): what for what, column in spec.metadata}
    values = pa.schema([one for one in schema if one.name.lower() not in known])
    declared = pa.schema([one for one in values if one.name in names])
    parser = parser_of(spec, declared, root)
    metadata = {one.name: known[one.name.lower()] for one in schema if one.name.lower() in known}
    text = spec.format in ("json", "csv")
    return Records(schema, declared, parser, metadata, tombstones=spec.tombstones, text=text)


@dataclass(frozen=True, slots=True)
class Records:
    """Makes rows of records."""

    schema: pa.Schema
    values: pa.Schema
    parser: Parser
    #: What each column of metadata holds.
    metadata: dict[str, str]
    tombstones: bool
    text: bool

    def rows(self, records: Sequence[Record]) -> Rows:
        """Return the rows of records of one partition, numbered by their offsets."""
        offsets = _offsets(records)
        contents = [one.value() for one in records]
        values = [value for value in contents if value is not None]
        if len(values) == len(contents):
            parsed = self._parsed(values, np.arange(len(values), dtype=np.int64))
        else:
            dead = np.array([value is None for value in contents], dtype=np.bool_)
            parsed = self._parsed(values, np.flatnonzero(~dead))
            if self.tombstones:
                parsed = self._with_tombstones(parsed, np.flatnonzero(dead))
        rows = self._with_metadata(parsed, records)
        refused = tuple(replace(one, number=int(offsets[one.number])) for one in rows.refused)
        return Rows(rows.batch, offsets[rows.numbers], refused)

    def _parsed(self, values: list[bytes], places: Numbers) -> Rows:
        if self.text and (not all(values) or any(map(bytes.isspace, values))):
            return self._parsed_but_empty(values, places)
        found = parse_numbered(values, places, self.parser, self.values)
        return found if self.text or not found.refused else self._encoded(found, values, places)

    def _parsed_but_empty(self, values: list[bytes], places: Numbers) -> Rows:
        """Refuse the values that have no text."""
        kept = np.array([bool(value.strip()) for value in values], dtype=np.bool_)
        refused = [
            Refused(place, "malformed record: it is empty", "") for place in places[~kept].tolist()
        ]
        values = [value for value, good in zip(values, kept, strict=True) if good]
        rest = parse_numbered(values, places[kept], self.parser, self.values)
        both = sorted([*rest.refused, *refused], key=lambda one: one.number)
        return Rows(rest.batch, rest.numbers, tuple(both))

    def _encoded(self, found: Rows, values: list[bytes], places: Numbers) -> Rows:
        """Return rows whose dead letters show bytes in base64."""
        shown = dict(zip(places.tolist(), values, strict=True))
        refused = tuple(
            replace(one, record=base64.b64encode(shown[one.number]).decode())
            for one in found.refused
        )
        return Rows(found.batch, found.numbers, refused)

    def _with_tombstones(self, parsed: Rows, places: Numbers) -> Rows:
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(len(places), one.type) for one in self.values], schema=self.values
        )
        both = joined(self.values, [parsed, Rows(nothing, places)])
        order = np.argsort(both.numbers, kind="stable")
        return Rows(both.batch.take(pa.array(order)), both.numbers[order], both.refused)

    def _with_metadata(self, rows: Rows, records: Sequence[Record]) -> Rows:
        if not self.metadata and rows.batch.schema.equals(self.schema):
            return rows
        refused: list[Refused] = []
        if "key" in self.metadata.values() or "headers" in self.metadata.values():
            rows, refused = self._readable(rows, records)
        taken = [records[at] for at in rows.numbers.tolist()]
        columns = [self._column(one, rows, taken) for one in self.schema]
        both = sorted([*rows.refused, *refused], key=lambda one: one.number)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Rows(batch, rows.numbers, tuple(both))

    def _readable(self, rows: Rows, records: Sequence[Record]) -> tuple[Rows, list[Refused]]:
        """Set those apart whose keys and headers are not the text that their column holds."""
        texts = [
            (what, _HOLDS_TEXT[what])
            for name, what in self.metadata.items()
            if what in _HOLDS_TEXT and _is_text(self.schema.field(name).type)
        ]
        bad: dict[int, Refused] = {}
        for at, number in enumerate(rows.numbers.tolist()):
            for what, parts in texts:
                if not all(_utf8(part) for part in parts(records[number])):
                    reason = f"malformed record: its {what} is not UTF-8"
                    shown = base64.b64encode(records[number].value() or b"").decode()
                    bad.setdefault(at, Refused(number, reason, shown))
        if not bad:
            return rows, []
        kept = np.ones(len(rows), dtype=np.bool_)
        kept[list(bad)] = False
        good = rows.filter(kept)
        return Rows(good.batch, good.numbers, rows.refused), list(bad.values())

    def _column(self, column: pa.Field, rows: Rows, taken: Sequence[Record]) -> pa.Array:
        what = self.metadata.get(column.name)
        if what is None:
            at = rows.batch.schema.get_field_index(column.name)
            return rows.batch.column(at) if at >= 0 else pa.nulls(len(rows), column.type)
        return _FILLED[what](taken, column.type)


def _offsets(records: Sequence[Record]) -> Numbers:
    """Return the offsets of records of one partition, which rise, most often by one."""
    first, last = records[0].offset() or 0, records[-1].offset() or 0
    if last - first == len(records) - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    return np.array([one.offset() for one in records], dtype=np.int64)


def _keys(records: Sequence[Record], kind: pa.DataType) -> pa.Array:
    return pa.array([one.key() for one in records], pa.binary()).cast(kind)


def _headers(records: Sequence[Record], kind: pa.DataType) -> pa.Array:
    # A header may come twice: the last one counts, as in most clients.
    found = [list(dict(one.headers() or ()).items()) for one in records]
    if _is_text(kind):
        decoded = [[(k, None if v is None else v.decode()) for k, v in one] for one in found]
        return pa.array(decoded, kind)
    return pa.array(found, kind)


def _timestamps(records: Sequence[Record], kind: pa.DataType) -> pa.Array:
    times = [one.timestamp() for one in records]
    moments = [None if type_ == 0 else ms * _MILLISECOND_US for type_, ms in times]
    return pa.array(moments, pa.int64()).cast(kind)


_FILLED: Final[dict[str, Callable[[Sequence[Record], pa.DataType], pa.Array]]] = {
    "key": _keys,
    "headers": _headers,
    "timestamp": _timestamps,
    "partition": lambda records, kind: pa.array([one.partition() for one in records], kind),
    "offset": lambda records, kind: pa.array([one.offset() for one in records], kind),
    "topic": lambda records, kind: pa.array([one.topic() for one in records], kind),
}
_HOLDS_TEXT: Final[dict[str, Callable[[Record], list[Any]]]] = {
    "key": lambda record: [record.key()],
    "headers": lambda record: [value for _, value in record.headers() or ()],
}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind.item_type if pa.types.is_map(kind) else kind))


def _utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
