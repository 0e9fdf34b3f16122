"""The records of an index in Kafka are read as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import CorruptIndex, CorruptStaging
from millstream.journal.base import Kind
from millstream.journal.kinds.files.index import Record, State
from millstream.journal.kinds.kafka.epochs import staged_name, staged_places
from millstream.journal.kinds.kafka.log import IndexRecord, What
from millstream.journal.kinds.kafka.records import (
    Address,
    EntryBody,
    Place,
    description_in,
    memo,
    pack,
    pack_snapshot,
    unpack,
    unpack_snapshot,
)

NUMBERS = st.integers(0, 2**62)
TIMES = st.none() | st.integers(-(2**62), 2**62)
PLACES = st.lists(st.builds(Place, NUMBERS, NUMBERS, NUMBERS), max_size=4).map(tuple)
RECORDS = st.builds(
    Record,
    kind=st.sampled_from(Kind),
    position=NUMBERS,
    count=st.integers(0, 2**31),
    appended_at=NUMBERS,
    sender=st.integers(0, 2**32 - 1),
    version=st.integers(0, 2**16 - 1),
    parts=st.integers(0, 2**31),
    length=NUMBERS,
    first_seq=NUMBERS,
    last_seq=NUMBERS,
    min_time=TIMES,
    max_time=TIMES,
    max_before=TIMES,
    max_after=TIMES,
    max_lag=TIMES,
    floor_after=TIMES,
    ended=st.booleans(),
    data_checksum=NUMBERS,
)


@given(RECORDS, PLACES, st.lists(st.tuples(st.integers(0, 99), st.text()), max_size=3).map(tuple))
def test_an_entry(
    record: Record, places: tuple[Place, ...], named: tuple[tuple[int, str], ...]
) -> None:
    body = EntryBody(record, places, named)
    whole = IndexRecord(What.ENTRY, 7, record.position, record.count, body.pack())
    found = unpack(pack(whole), "here")
    assert found == whole
    assert EntryBody.unpack(found.body) == body
    address = Address(5, 7, list(places))
    assert Address.unpack(address.pack()) == address
    if places:
        assert staged_places(staged_name(places)) == list(places)


def test_an_entry_has_some_180_bytes() -> None:
    body = EntryBody(Record(Kind.ROWS, 0, 1, 0), (Place(1, 2, 3),), ())
    assert len(pack(IndexRecord(What.ENTRY, 7, 0, 1, body.pack()))) == 180


@given(st.dictionaries(st.integers(0, 9), NUMBERS), st.lists(st.text()), st.none() | st.text())
def test_a_snapshot(highest: dict[int, int], names: list[str], description: str | None) -> None:
    state = State(position=9, running_max=3, floor=None, ended=False, highest=highest)
    raw = pack_snapshot(state, names, description)
    assert unpack_snapshot(raw) == (state, names)
    assert description_in(IndexRecord(What.SNAPSHOT, body=raw)) == description
    assert description_in(memo(description="d")) == "d"
    assert description_in(memo(other="d")) is None


def test_what_is_no_record_is_refused() -> None:
    for raw in (b"", b"MSK", b"x" * 200):
        with pytest.raises(CorruptIndex, match="is no record of a journal's index"):
            unpack(raw, "record 3")
    for name in ("kafka:", "kafka:1-2", "a-b-c", "kafka:1-2-x"):
        with pytest.raises(CorruptStaging):
            staged_places(name)
