"""What the matchers of a shard keep, in pieces by key: a batch reads and writes those that it touches.

A piece is an entry of the room `millstream.state`. Its key is its number, from the low bits of a
checksum of the keys that it holds; its time is when the time of one of its runs is up next. Beside
the pieces lies the *outline*: what belongs to all of them.

    b""       outline: bits | keys | bytes | numbers of the next events | schemas of rows | widths of runs
    number    for each matcher what it keeps of the piece's keys, or nothing

There are so many pieces that one has less than a kilobyte: to cut for each key would cost more than to
read some neighbours. When there are too few or too many, all are cut again, which happens whenever
what is kept has doubled. What is small, or touched for the most part by each batch, is one piece,
which need not be cut at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Numbers
from millstream.patterns.matcher import Kept, Matcher
from millstream.patterns.pieces import Piece
from millstream.patterns.streams import Schemas
from millstream.spark.stages.coding import decode_all, encode_all
from millstream.state import NO_TIME, ShardState
from millstream.state.manifest import Stored

OUTLINE: Final = b""
#: For each piece what each of the matchers keeps of it, if anything: all that it keeps, as it dumps
#: it, if there is one piece.
Contents = list[list[list[Any] | bytes | None]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """When a shard is cut, and how small."""

    #: A piece has so many bytes to twice as many.
    piece: int = 512
    #: What has no more bytes than this is one piece.
    whole: int = 32 << 10
    #: If a batch touches one key in so many, or more, there is one piece.
    touched: int = 16


class Outline(Struct, array_like=True):
    """What belongs to all pieces of a shard."""

    #: There are 2 ** bits pieces.
    bits: int = 0
    keys: int = 0
    size: int = 0
    #: For each matcher the number of the next event.
    sequences: list[int] = []
    schemas: list[bytes] = []
    #: For each matcher how many numbers a run has; 0 if it has none.
    widths: list[int] = []


_OUTLINES: Final = msgspec.msgpack.Decoder(Outline)


@dataclass
class Pieces:
    """The pieces of a shard, for one batch: load, match, commit.

    Nothing is changed by it: `commit` returns what is kept from then on.
    """

    room: ShardState
    matchers: list[Matcher]
    #: What each of the matchers keeps if that is nothing.
    empty: list[Kept]
    sizes: Sizes = Sizes()
    _touched: int = field(default=0, init=False)
    _before: dict[bytes, Stored] = field(default_factory=dict, init=False)
    _keys_before: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._known = self.room.lookup([OUTLINE]).get(OUTLINE)
        self.outline = Outline() if self._known is None else _OUTLINES.decode(self._known[0])
        self._schemas = Schemas(list(self.outline.schemas))

    def load(self, keys: Iterable[pa.Array], watermark: int) -> list[Kept]:
        """Return what is kept of keys, and of all those of which a run's time is up."""
        touched, bits = [some.unique() for some in keys], self.outline.bits
        self._touched = max(map(len, touched))
        if watermark >= FOREVER:
            return self.everything()
        due = map(_number, self.room.due(watermark))
        return self._loaded({*due, *chain(*(numbered(some, bits).tolist() for some in touched))})

    def everything(self) -> list[Kept]:
        """Return what is kept of all keys."""
        return self._loaded(range(1 << self.outline.bits))

    def _loaded(self, numbers: Iterable[int]) -> list[Kept]:
        self._before = self.room.lookup(map(_name, numbers))
        contents, self._keys_before = _contents(self._before)
        return self._joined(contents)

    def _joined(self, contents: Contents) -> list[Kept]:
        sequences = self.outline.sequences or [0] * len(self.matchers)
        parts = list(zip(*contents, strict=True)) or [()] * len(self.matchers)
        return [
            self._of(place, [part for part in some if part is not None], sequence)
            for place, (some, sequence) in enumerate(zip(parts, sequences, strict=True))
        ]

    def _of(self, place: int, parts: list[Any], sequence: int) -> Kept:
        one = self.matchers[place]
        if parts and isinstance(parts[0], bytes):
            return one.load(parts[0])
        return one.joined(self.empty[place], parts, sequence, self._schemas)

    def commit(self, kept: list[Kept]) -> tuple[bytes | None, dict[bytes, Stored | None]]:
        """Return the manifest after a batch, None if it is as before, and what has changed.

        No bytes are a manifest that names nothing.
        """
        outline, before = self.outline, self._before
        outline.sequences = [one.sequence for one in kept]
        cut, keys = self._cut(kept, outline.bits)
        outline.keys += keys - self._keys_before
        outline.size += _size(cut.values()) - _size(before.values())
        bits = wanted_bits(outline, self._touched, self.sizes)
        if bits != outline.bits:
            cut, before = self._cut_again(cut, bits)
        outline.schemas = self._schemas.known
        outline.widths = [one.width for one in self.matchers]
        changes = {key: entry for key, entry in cut.items() if before.get(key) != entry}
        gone = dict.fromkeys(before.keys() - cut.keys())
        manifest = self.room.manifest
        if not outline.keys and not manifest.runs and not manifest.leaving:
            return b"", gone
        data = msgspec.msgpack.encode(outline)
        if self._known != (data, NO_TIME):
            changes[OUTLINE] = data, NO_TIME
        both = changes | gone
        return self.room.commit(both), both

    def _cut(self, kept: list[Kept], bits: int) -> tuple[dict[bytes, Stored], int]:
        """Return pieces as entries, and how many keys there are in them."""

        def places(keys: pa.Array) -> Numbers:
            return numbered(keys, bits)

        both = zip(self.matchers, kept, strict=True)
        if bits:
            found = [one.cut(part, places, self._schemas) for one, part in both]
        else:
            found = [_whole(one, part) for one, part in both]
        numbers = list(dict.fromkeys(chain.from_iterable(found)))
        pieces = [[some.get(number) for some in found] for number in numbers]
        values = encode_all([[p and (p.keys, p.content) for p in some] for some in pieces])
        limits = [
            min((p.soonest for p in some if p and p.soonest is not None), default=NO_TIME)
            for some in pieces
        ]
        entries = zip(map(_name, numbers), zip(values, limits, strict=True), strict=True)
        return dict(entries), sum(p.keys for some in found for p in some.values())

    def _cut_again(
        self, cut: dict[bytes, Stored], bits: int
    ) -> tuple[dict[bytes, Stored], dict[bytes, Stored]]:
        """Return all pieces as entries, cut into another number, and those that there were."""
        before = self.room.lookup(map(_name, range(1 << self.outline.bits)))
        untouched = {key: one for key, one in before.items() if key not in self._before}
        whole = self._joined(_contents(untouched | cut)[0])
        self.outline.bits = bits
        again, self.outline.keys = self._cut(whole, bits)
        self.outline.size = _size(again.values())
        return again, before


def _whole(one: Matcher, kept: Kept) -> dict[int, Piece]:
    """Return all that is kept as one piece."""
    return {} if kept.idle else {0: Piece(one.dump(kept), kept.count, one.soonest(kept))}


def wanted_bits(outline: Outline, touched: int, sizes: Sizes) -> int:
    """Return into how many pieces, as a power of two, to cut a shard of which so many keys were touched."""
    # A cut shard is put together, and a whole one cut, only if that is clearly better.
    margin = 4 if outline.bits else 1
    dense = touched * sizes.touched >= outline.keys * margin
    if outline.size * margin <= sizes.whole or dense:
        return 0
    # What is not cut is compressed.
    size = outline.size if outline.bits else 2 * outline.size
    wanted = max(1, min(size // sizes.piece, outline.keys)).bit_length() - 1
    return outline.bits if wanted <= outline.bits <= wanted + 3 else wanted


def numbered(keys: pa.Array, bits: int) -> Numbers:
    """Return the number of each key's piece: the same in every process and version."""
    if not bits:
        return np.zeros(len(keys), np.int64)
    texts = pc.fill_null(keys.cast(pa.string()), "").cast(pa.binary())
    sums = map(crc32, texts.to_numpy(zero_copy_only=False))
    found: Numbers = np.fromiter(sums, np.int64, len(texts)) & ((1 << bits) - 1)
    return found


def _name(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _number(name: bytes) -> int:
    return int.from_bytes(name, "big")


def _contents(entries: dict[bytes, Stored]) -> tuple[Contents, int]:
    """Return what entries hold, and how many keys that are."""
    found = decode_all([value for value, _ in entries.values()])
    contents = [[part and part[1] for part in parts] for parts in found]
    return contents, sum(part[0] for parts in found for part in parts if part)


def _size(entries: Iterable[Stored]) -> int:
    return sum(len(value) for value, _ in entries)
