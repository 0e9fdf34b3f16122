"""The records of an index, byte by byte; all numbers are little-endian.

    head        "MSK", what (1 byte), generation (8), position (8), count (4)
    entry       an entry of the kind `files` (128 bytes), the number of places (4), the places, and the
                senders whose names are new, as JSON: [[number, name], ...]
    snapshot    the state, all names, the journal's description and what memos note, as JSON, compressed
    memo        an object of JSON
    place       where data is: offset (8), length (8), checksum (8)

In the copy of an index (`local.py`) an entry points to its *address*: the offset of its record in the index,
its generation, and its places.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from millstream.errors import CorruptIndex
from millstream.journal.kinds.files.index import SIZE, Record, State
from millstream.journal.kinds.kafka.log import IndexRecord, What

_HEAD: Final = struct.Struct("<3sBqqI")
_MAGIC: Final = b"MSK"
_COUNT: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<QQQ")
_ADDRESS: Final = struct.Struct("<qq")

Named = tuple[int, str]


class Place(NamedTuple):
    """Where some data is in its topic's partition."""

    offset: int
    length: int
    checksum: int


class Stored(bytes):
    """Data that is in Kafka already: packed places, where a writer expects the data itself."""


def pack(record: IndexRecord) -> bytes:
    """Return a record as it is in the index."""
    head = _HEAD.pack(_MAGIC, record.what, record.generation, record.position, record.count)
    return head + record.body


def unpack(raw: bytes, place: str) -> IndexRecord:
    """Return the record that some bytes are.

    Raises:
        CorruptIndex: They are none; `place` says where they are.
    """
    if len(raw) < _HEAD.size or not raw.startswith(_MAGIC):
        msg = f"{place} is no record of a journal's index"
        hint = "is the topic written by another program?"
        raise CorruptIndex(msg, file=place, offset=0, hint=hint)
    _, what, generation, position, count = _HEAD.unpack_from(raw)
    return IndexRecord(What(what), generation, position, count, raw[_HEAD.size :])


def pack_places(places: Iterable[Place]) -> bytes:
    return b"".join(_PLACE.pack(*place) for place in places)


def unpack_places(raw: bytes) -> list[Place]:
    return [Place(*values) for values in _PLACE.iter_unpack(raw)]


# entries


@dataclass(frozen=True, slots=True)
class EntryBody:
    """What an entry has besides what the rules look at."""

    record: Record
    places: tuple[Place, ...]
    named: tuple[Named, ...]

    def pack(self) -> bytes:
        names = json.dumps(self.named, separators=(",", ":")).encode() if self.named else b""
        places = _COUNT.pack(len(self.places)) + pack_places(self.places)
        return self.record.pack(0) + places + names

    @classmethod
    def unpack(cls, raw: bytes) -> EntryBody:
        (count,) = _COUNT.unpack_from(raw, SIZE)
        begin = SIZE + _COUNT.size
        end = begin + count * _PLACE.size
        names = json.loads(raw[end:]) if len(raw) > end else []
        return cls(
            Record.unpack(raw),
            tuple(unpack_places(raw[begin:end])),
            tuple((number, name) for number, name in names),
        )

    @property
    def data_bytes(self) -> int:
        return sum(place.length for place in self.places)


@dataclass(frozen=True, slots=True)
class Address:
    """What an entry of the copy points to."""

    index_offset: int
    generation: int
    places: Sequence[Place]

    def pack(self) -> bytes:
        return _ADDRESS.pack(self.index_offset, self.generation) + pack_places(self.places)

    @classmethod
    def unpack(cls, raw: bytes) -> Address:
        offset, generation = _ADDRESS.unpack_from(raw)
        return cls(offset, generation, unpack_places(raw[_ADDRESS.size :]))

    @property
    def data_bytes(self) -> int:
        return sum(place.length for place in self.places)


def localized(record: Record, length: int) -> Record:
    """Return a record for the copy, whose address has this length."""
    return replace(record, length=length)


# snapshots and memos


def pack_snapshot(
    state: State,
    names: Sequence[str],
    description: str | None = None,
    noted: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the body of a snapshot, with the journal's description in text and what memos note."""
    body = {
        "state": asdict(state),
        "names": list(names),
        "description": description,
        "noted": list(noted),
    }
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 3)


def unpack_snapshot(raw: bytes) -> tuple[State, list[str]]:
    """Return the state and the senders' names of a snapshot."""
    body = json.loads(zlib.decompress(raw))
    state = dict(body["state"])
    highest = {int(number): int(seq) for number, seq in state.pop("highest").items()}
    return State(**state, highest=highest), list(body["names"])


def noted_in(record: IndexRecord) -> list[dict[str, Any]]:
    """Return what a memo, or a snapshot, notes: `noted.py` says what that may be."""
    if record.what is What.MEMO:
        return [json.loads(record.body)]
    return list(json.loads(zlib.decompress(record.body)).get("noted", ()))


def memo(**values: Any) -> IndexRecord:  # Any: JSON
    """Return a record that anybody may add."""
    return IndexRecord(What.MEMO, body=json.dumps(values, separators=(",", ":")).encode())


def description_in(record: IndexRecord) -> str | None:
    """Return the journal's description, if a record has one."""
    if record.what not in (What.MEMO, What.SNAPSHOT):
        return None
    body = record.body if record.what is What.MEMO else zlib.decompress(record.body)
    found = json.loads(body).get("description")
    return None if found is None else str(found)
