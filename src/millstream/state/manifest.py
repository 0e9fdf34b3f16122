"""The manifest of a shard, as bytes.

    format 0     msgpack: [[key, value], ...], all that there is (before run files)
    format 1     C1 01, then msgpack: [touches, runs, fresh, removed, leaving]

No msgpack begins with C1. Values stay encoded until somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from millstream.errors import InternalError

#: The time of an entry that has none: it never expires.
NO_TIME: Final = (1 << 63) - 1
#: A manifest of more bytes moves its own entries to a run file.
INLINE: Final = 128 << 10

_MARK: Final = b"\xc1\x01"


class Entry(NamedTuple):
    """What is kept for a key, encoded, and the event time at which it was put."""

    value: bytes
    time: int = NO_TIME


#: The same, wherever there are many: a tuple with names takes longer to make.
Stored = tuple[bytes, int]


class Run(Struct, array_like=True, frozen=True):
    """A run file: its name, how many entries and bytes it has, and how old these are."""

    name: str
    rows: int
    size: int
    #: The time of its newest entry, and one that half of its entries do not lie after.
    newest: int = NO_TIME
    middle: int = NO_TIME


class Manifest(Struct, array_like=True):
    """All that a shard keeps."""

    #: How often the shard was changed.
    touches: int = 0
    #: Oldest first.
    runs: list[Run] = []
    #: Entries that are newer than those of all run files.
    fresh: dict[bytes, tuple[Raw, int]] = {}
    #: Keys that were removed since.
    removed: list[bytes] = []
    #: Run files that were replaced, each with the touch that did it.
    leaving: list[tuple[int, str]] = []
    #: The token of the import that it has taken over: see `importing`.
    imported: str = ""

    @classmethod
    def of(cls, fresh: Mapping[bytes, Stored]) -> Manifest:
        """Return a manifest with entries of its own alone."""
        return cls(fresh={key: (Raw(value), time) for key, (value, time) in fresh.items()})

    def names(self) -> Iterator[str]:
        """Yield the names of all files that must stay."""
        yield from (run.name for run in self.runs)
        yield from (name for _, name in self.leaving)


_NEW: Final = msgspec.msgpack.Decoder(Manifest)
_OLD: Final = msgspec.msgpack.Decoder(list[tuple[bytes, Raw]])
_encode: Final = msgspec.msgpack.Encoder().encode


def dump(manifest: Manifest) -> bytes:
    """Return a manifest as bytes."""
    return _MARK + _encode(manifest)


def no_time(_value: Raw) -> int:
    """Return the time of an entry of which nothing is known."""
    return NO_TIME


def load(data: bytes, old_time: Callable[[Raw], int] = no_time) -> Manifest:
    """Return the manifest of any format; an empty one of no bytes.

    In format 0 entries have no times: `old_time` returns that of a value.
    """
    if not data:
        return Manifest()
    if data[:2] == _MARK:
        return _NEW.decode(memoryview(data)[2:])
    if data[:1] == _MARK[:1]:
        msg = f"the state of a shard has the format {data[1]}, which this version does not know"
        raise InternalError(msg)
    return Manifest(fresh={key: (value, old_time(value)) for key, value in _OLD.decode(data)})


def joined(pieces: Iterable[bytes]) -> bytes:
    """Return the bytes of a manifest that is stored in pieces."""
    return b"".join(bytes(piece) for piece in pieces)
