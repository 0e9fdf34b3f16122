"""Reading a journal in Kafka: positions from the copy of the index, data by its offsets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, cast

import pyarrow as pa
import xxhash

from millstream.errors import CorruptBatch, PositionTrimmed, RecordsGone
from millstream.journal.base import PartitionState, Slice
from millstream.journal.kinds.files.entry_data import Described, EntryData
from millstream.journal.kinds.files.reader import PartitionReader, Reader, ReaderCache
from millstream.journal.kinds.files.segments import Maps, Segment
from millstream.journal.kinds.kafka.following import Follower, Topics
from millstream.journal.kinds.kafka.records import Address, Place
from millstream.journal.kinds.kafka.wire import fetcher

#: Planning asks for the same few entries again and again.
_REMEMBERED: Final = 16 * 2**20


class FetchedData(EntryData):
    """The data of a partition's entries, fetched from Kafka and compared with its checksums."""

    def __init__(self, topics: Topics, partition: int, described: Described, maps: Maps) -> None:
        super().__init__(described, maps, check=True)
        self._topics, self._partition = topics, partition
        self._known: OrderedDict[int, bytes] = OrderedDict()
        self._known_bytes = 0

    def mapped(self, segment: Segment, number: int) -> pa.Buffer:
        """Return an entry's bytes, which are read once: reading goes on from there."""
        places = self._places(segment, number)
        return _joined([self._fetched(segment, number, place) for place in places])

    def copied(self, segment: Segment, number: int) -> pa.Buffer:
        """Return an entry's bytes, which are remembered for a while."""
        first = int(segment.entries[number]["position"])
        if first not in self._known:
            self._remember(first, self.mapped(segment, number).to_pybytes())
            fetcher(self._topics.connection).rest()
        self._known.move_to_end(first)
        return pa.py_buffer(self._known[first])

    def _remember(self, first: int, data: bytes) -> None:
        self._known[first] = data
        self._known_bytes += len(data)
        while self._known_bytes > _REMEMBERED and len(self._known) > 1:
            self._known_bytes -= len(self._known.popitem(last=False)[1])

    def _places(self, segment: Segment, number: int) -> Sequence[Place]:
        return Address.unpack(self.address(segment, number)).places

    def address(self, segment: Segment, number: int) -> bytes:
        """Return what an entry of the copy points to."""
        raw = segment.entries[number]
        address = segment.read_data(int(raw["offset"]), int(raw["length"]))
        if address is None:
            raise self._damaged(segment, number, f'its address in "{segment.data_path}" is gone')
        return bytes(address)

    def _fetched(self, segment: Segment, number: int, place: Place) -> bytes:
        spot = self._topics.data(self._partition)
        try:
            data = fetcher(self._topics.connection).one(spot, place.offset)
        except RecordsGone as gone:
            position = int(segment.entries[number]["position"])
            msg = f"the data of position {position} was deleted: {gone.message}"
            raise PositionTrimmed(msg, hint="keep the journal for longer") from gone
        if len(data) == place.length and xxhash.xxh3_64_intdigest(data) == place.checksum:
            return data
        raise self._damaged(segment, number, f"record {place.offset} of {spot} is not as it was")

    def _damaged(self, segment: Segment, number: int, fact: str) -> CorruptBatch:
        raw = segment.entries[number]
        position = int(raw["position"])
        return CorruptBatch(
            f"the batch at position {position} of {self._topics.data(self._partition)} is damaged: {fact}",
            file=str(segment.data_path),
            position=position,
            offset=int(raw["offset"]),
            hint="millstream journal repair makes the copy of the index again",
        )


def _joined(pieces: list[bytes]) -> pa.Buffer:
    return pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))


class KafkaPartitionReader(PartitionReader):
    """Reads one partition; not safe for several threads."""

    def __init__(self, topics: Topics, described: Described, partition: int) -> None:
        self._topics = topics
        self._follower = Follower(topics, partition)
        self._follower.follow()
        super().__init__(described, partition)

    def _entry_data(self, *, check: bool) -> EntryData:
        del check
        return FetchedData(
            self._topics, self._follower.partition, self._described, self._visible.maps
        )

    @property
    def begin(self) -> int:
        """The first position that is still there."""
        self._follower.follow()
        return super().begin

    @property
    def end(self) -> int:
        """The position after the last durable one, now."""
        self._follower.follow()
        return super().end

    def excerpt(
        self, start: int, stop: int
    ) -> tuple[PartitionState | None, bytes, tuple[bytes, ...]]:
        """Return the state before a range, its entries, and what they point to."""
        found, data = list(self._walk(start, stop)), cast("FetchedData", self._data)
        before = self._state_before(*found[0]) if found else None
        entries = b"".join(segment.entries[number].tobytes() for segment, number in found)
        return before, entries, tuple(data.address(*one) for one in found)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        """Yield what lies in [start, stop), as `PartitionReader.read` does."""
        try:
            yield from super().read(start, stop, columns)
        finally:
            fetcher(self._topics.connection).rest()


class KafkaReader(Reader):
    """Reads a journal in Kafka."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(topics.path)
        self._topics = topics

    def _opened(self, number: int) -> PartitionReader:
        return KafkaPartitionReader(self._topics, self._described, number)


_readers: ReaderCache[KafkaReader] = ReaderCache()


def cached_reader(topics: Topics) -> KafkaReader:
    """Return this process's reader of a journal."""
    return _readers.get(topics.path, lambda _path: KafkaReader(topics))
