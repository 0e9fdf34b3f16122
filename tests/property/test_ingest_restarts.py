"""However often and wherever a source is cut off, every record ends up in its place once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.flow.schema import Schema
from millstream.ingest.checks import Rules
from millstream.ingest.feed import JournalFeed
from millstream.ingest.routing import route
from millstream.ingest.rows import Refused, Rows, numbered
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.writer import Writer
from support.ingest import letters_of, rows_of

#: Not a disk, where there is one: what is tested here is not what a sync does.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SCHEMA = Schema.parse("key string, n long").arrow()


@dataclass(frozen=True)
class Life:
    """A run of a source: the size of its blocks, how many it manages to hand over, and how it ends."""

    block: int
    blocks: int
    killed: bool


lives = st.builds(Life, block=st.integers(1, 9), blocks=st.integers(0, 6), killed=st.booleans())
records = st.lists(st.sampled_from(["JFK", "LGA", "EWR", "BOS", None]) | st.just("{"), max_size=40)


@contextmanager
def feed(path: Path, key: str | None, partitions: int, *, killed: bool) -> Iterator[JournalFeed]:
    writers = [Writer.open(path, partition) for partition in range(partitions)]
    opened = JournalFeed(writers, Rules(key=key, ahead=timedelta(days=1)), ManualClock())
    yield opened
    if killed:
        opened.abort()
    else:
        opened.close()


def blocks(given_records: list[str | None], size: int) -> Iterator[Rows]:
    for at in range(0, len(given_records), size):
        part = list(enumerate(given_records))[at : at + size]
        good = [(number, key) for number, key in part if key != "{"]
        batch = pa.RecordBatch.from_pylist(
            [{"key": key, "n": number} for number, key in good], schema=SCHEMA
        )
        refused = tuple(Refused(number, "malformed", "{") for number, key in part if key == "{")
        numbers = numbered(batch, 0).numbers
        numbers[:] = [number for number, _ in good]
        yield Rows(batch, numbers, refused)


def expected(given_records: list[str | None], key: str | None, partitions: int) -> list[list[int]]:
    """Return the numbers of the records that each partition should have, in order."""
    places: list[list[int]] = [[] for _ in range(partitions)]
    for rows in blocks(given_records, max(len(given_records), 1)):
        kept = (
            rows.filter(rows.batch.column("key").is_valid().to_numpy(zero_copy_only=False))
            if key
            else rows
        )
        for partition, part in route(kept, key, partitions):
            places[partition] = part.numbers.tolist()
    return places


@settings(max_examples=50)
@given(records, st.lists(lives, max_size=4), st.sampled_from([None, "key"]), st.integers(1, 3))
def test_every_record_is_taken_or_refused_once_and_in_order(
    given_records: list[str | None], cut_off: list[Life], key: str | None, partitions: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "journal"
        create(path, SCHEMA, partitions=partitions)
        for life in [*cut_off, Life(block=7, blocks=1000, killed=False)]:
            with feed(path, key, partitions, killed=life.killed) as opened:
                for count, rows in enumerate(blocks(given_records, life.block)):
                    if count == life.blocks:
                        break
                    opened.take("me", rows)
        stored = [[row["n"] for row in rows_of(path, partition)] for partition in range(partitions)]
        assert stored == expected(given_records, key, partitions)
        bad = [
            number
            for number, one in enumerate(given_records)
            if one == "{" or (key and one is None)
        ]
        assert sorted(letter["position"] for letter in letters_of(path)) == bad
