"""The index of a segment, byte by byte.

    header   magic (8), length (4), JSON length (4), checksum of the JSON (8), the JSON, zeros up to the length
    entry    128 bytes, little-endian, the last 8 the checksum of the other 120
    entry    ...

A PROGRESS is written as a WATERMARK that raises nothing, with a flag: versions that do not know it
pass over it, and still learn the sender's number.

The header's length is a multiple of 512, so no entry lies across two sectors. Its JSON is the
partition's state at the segment's start: whoever opens the segment needs none of those before it,
and they may be removed.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from millstream.errors import CorruptIndex
from millstream.journal.base import Kind

MAGIC = b"MSINDEX1"
NOTHING = -(2**63)
"""Stands for None among times and sequence numbers."""
NOBODY = 2**32 - 1

_HEAD = struct.Struct("<8sIIQ")
_BODY = struct.Struct("<BBHIqIIQQ" + "q" * 9 + "Q")
_SUM = struct.Struct("<Q")
SIZE = _BODY.size + _SUM.size
_SECTOR = 512
ENDED = 1
_PROGRESS = 2

DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("version", "<u2"),
        ("sender", "<u4"),
        ("position", "<i8"),
        ("count", "<u4"),
        ("parts", "<u4"),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("first_seq", "<i8"),
        ("last_seq", "<i8"),
        ("min_time", "<i8"),
        ("max_time", "<i8"),
        ("max_before", "<i8"),
        ("max_after", "<i8"),
        ("max_lag", "<i8"),
        ("floor_after", "<i8"),
        ("appended_at", "<i8"),
        ("data_checksum", "<u8"),
        ("checksum", "<u8"),
    ]
)
assert DTYPE.itemsize == SIZE == 128

Entries = npt.NDArray[np.void]


def some(number: int | None) -> int:
    return NOTHING if number is None else number


def maybe(number: int) -> int | None:
    return None if number == NOTHING else int(number)


@dataclass(slots=True)
class Record:
    """An entry as the writer makes it: all that is known before it has a place on the disk."""

    kind: Kind
    position: int
    count: int
    appended_at: int
    sender: int = NOBODY
    version: int = 0
    parts: int = 0
    length: int = 0
    first_seq: int = NOTHING
    last_seq: int = NOTHING
    min_time: int | None = None
    max_time: int | None = None
    max_before: int | None = None
    max_after: int | None = None
    max_lag: int | None = None
    floor_after: int | None = None
    ended: bool = False
    data_checksum: int = 0

    def pack(self, offset: int) -> bytes:
        """Return the entry's bytes, its data lying at `offset`."""
        progress = self.kind is Kind.PROGRESS
        body = _BODY.pack(
            Kind.WATERMARK if progress else self.kind,
            (ENDED if self.ended else 0) | (_PROGRESS if progress else 0),
            self.version,
            self.sender,
            self.position,
            self.count,
            self.parts,
            offset,
            self.length,
            self.first_seq,
            self.last_seq,
            some(self.min_time),
            some(self.max_time),
            some(self.max_before),
            some(self.max_after),
            some(self.max_lag),
            some(self.floor_after),
            self.appended_at,
            self.data_checksum,
        )
        return body + _SUM.pack(xxhash.xxh3_64_intdigest(body))

    @classmethod
    def unpack(cls, raw: bytes) -> Record:
        """Return the record that `pack` made these bytes of, without its offset."""
        kind, flags, version, sender, position, count, parts, _, length, *rest = _BODY.unpack_from(
            raw
        )
        first_seq, last_seq, *times, appended_at, data_checksum = rest
        low, high, before, after, lag, floor = map(maybe, times)
        return cls(
            kind=Kind.PROGRESS if flags & _PROGRESS else Kind(kind),
            position=position,
            count=count,
            appended_at=appended_at,
            sender=sender,
            version=version,
            parts=parts,
            length=length,
            first_seq=first_seq,
            last_seq=last_seq,
            min_time=low,
            max_time=high,
            max_before=before,
            max_after=after,
            max_lag=lag,
            floor_after=floor,
            ended=bool(flags & ENDED),
            data_checksum=data_checksum,
        )


def kind_of(entry: np.void) -> Kind:
    """Return what an entry is."""
    return Kind.PROGRESS if entry["flags"] & _PROGRESS else Kind(int(entry["kind"]))


def sound(raw: bytes | memoryview) -> bool:
    """Tell if an entry's own checksum is right."""
    expected: int = _SUM.unpack_from(raw, _BODY.size)[0]
    return xxhash.xxh3_64_intdigest(raw[: _BODY.size]) == expected


@dataclass(slots=True)
class State:
    """What the writer must know to go on; written into the header of each segment."""

    position: int = 0
    running_max: int | None = None
    floor: int | None = None
    ended: bool = False
    appended_at: int | None = None
    highest: dict[int, int] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Move past a record."""
        self.position = record.position + record.count
        self.running_max = record.max_after
        self.floor = record.floor_after
        self.ended = record.ended
        self.appended_at = record.appended_at
        if record.sender != NOBODY and record.last_seq != NOTHING:
            self.highest[record.sender] = max(record.last_seq, self.highest.get(record.sender, -1))

    def copy(self) -> State:
        return State(
            self.position,
            self.running_max,
            self.floor,
            self.ended,
            self.appended_at,
            dict(self.highest),
        )


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of an index: the state at the segment's start, and how its data is written."""

    state: State
    version: int
    data_start: int
    generation: int
    length: int

    @property
    def first(self) -> int:
        return self.state.position


def pack_header(state: State, *, version: int, data_start: int, generation: int) -> bytes:
    """Return the bytes of a header."""
    body = json.dumps(
        {
            "position": state.position,
            "running_max": state.running_max,
            "floor": state.floor,
            "ended": state.ended,
            "appended_at": state.appended_at,
            "highest": state.highest,
            "version": version,
            "data_start": data_start,
            "generation": generation,
        },
        separators=(",", ":"),
    ).encode()
    length = _length(len(body))
    head = _HEAD.pack(MAGIC, length, len(body), xxhash.xxh3_64_intdigest(body))
    return (head + body).ljust(length, b"\0")


def _length(body: int) -> int:
    """Return the length of a header whose JSON has so many bytes."""
    return -(-(_HEAD.size + body) // _SECTOR) * _SECTOR


def read_header(file: Path) -> Header:
    """Read and check the header of an index.

    Raises:
        CorruptIndex: It is damaged.
    """
    with file.open("rb") as source:
        raw = source.read(_HEAD.size)
        if len(raw) == _HEAD.size and raw.startswith(MAGIC):
            raw += source.read(_HEAD.unpack(raw)[2])
    header = parse_header(raw)
    if header is not None:
        return header
    msg = f'the header of index "{file}" is damaged'
    hint = "millstream journal verify shows the damage, repair fixes it"
    raise CorruptIndex(msg, file=str(file), offset=0, hint=hint)


def parse_header(raw: bytes) -> Header | None:
    """Return the header that some bytes begin with, None if it is damaged."""
    if len(raw) < _HEAD.size:
        return None
    magic, length, size, checksum = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size : _HEAD.size + size]
    if magic != MAGIC or length != _length(size) or xxhash.xxh3_64_intdigest(body) != checksum:
        return None
    return _header(json.loads(body), length)


def _header(body: Mapping[str, object], length: int) -> Header:
    values = dict(body)
    highest = values.pop("highest")
    version, data_start, generation = (
        values.pop(k) for k in ("version", "data_start", "generation")
    )
    assert isinstance(highest, dict)
    state = State(**values, highest={int(k): int(v) for k, v in highest.items()})  # type: ignore[arg-type]
    return Header(state, int(str(version)), int(str(data_start)), int(str(generation)), length)


def map_entries(file: Path, header: Header) -> Entries:
    """Map the entries that the file holds now, whole ones only, unchecked."""
    with file.open("rb") as source:
        size = source.seek(0, 2)
        count = (size - header.length) // SIZE
        if count <= 0:
            return np.empty(0, dtype=DTYPE)
        mapped = mmap.mmap(source.fileno(), header.length + count * SIZE, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype=DTYPE, count=count, offset=header.length)


def sound_prefix(raw: bytes, header: Header) -> Entries:
    """Return the entries before the first that is damaged or leaves a gap."""
    return sound_run(raw, header.first, header.data_start)


def sound_run(raw: bytes, position: int, offset: int) -> Entries:
    """Return the sound entries at the beginning that follow a position without a gap."""
    entries = np.frombuffer(raw, dtype=DTYPE, count=len(raw) // SIZE)
    good = checksums(raw) == entries["checksum"]
    good &= _follows(entries, position, offset)
    bad = np.flatnonzero(~good)
    return entries[: bad[0]] if len(bad) else entries


def checksums(raw: bytes) -> npt.NDArray[np.uint64]:
    """Return what the entries' checksums should be."""
    view, digest, size = memoryview(raw), xxhash.xxh3_64_intdigest, _BODY.size
    begins = range(0, len(raw) - SIZE + 1, SIZE)
    return np.fromiter(
        (digest(view[begin : begin + size]) for begin in begins), np.uint64, count=len(begins)
    )


def _follows(entries: Entries, position: int, offset: int) -> npt.NDArray[np.bool_]:
    """Return which entries begin where the one before them ends, with positions and data."""
    follows = entries["position"] == _joined(entries["position"] + entries["count"], position)
    follows &= entries["offset"] == _joined(entries["offset"] + entries["length"], offset)
    return np.asarray(follows)


def joined(entries: Entries, header: Header, good: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which entries follow the one before them, or an unsound one."""
    before = np.roll(~good, 1)
    before[:1] = False
    return _follows(entries, header.first, header.data_start) | before


def _joined(ends: npt.NDArray[np.integer], first: int) -> npt.NDArray[np.integer]:
    """Return where each entry should begin: where the one before it ends."""
    begins = np.roll(ends, 1)
    begins[:1] = first
    return begins


def state_after(state: State, entries: Entries) -> State:
    """Return the state after `entries`, which follow `state`."""
    if len(entries) == 0:
        return state.copy()
    last, highest = entries[-1], dict(state.highest)
    numbered = entries[(entries["sender"] != NOBODY) & (entries["last_seq"] != NOTHING)]
    for sender in np.unique(numbered["sender"]).tolist():
        newest = int(numbered["last_seq"][numbered["sender"] == sender].max())
        highest[sender] = max(newest, highest.get(sender, -1))
    return State(
        position=int(last["position"]) + int(last["count"]),
        running_max=maybe(last["max_after"]),
        floor=maybe(last["floor_after"]),
        ended=bool(last["flags"] & ENDED),
        appended_at=int(last["appended_at"]),
        highest=highest,
    )
