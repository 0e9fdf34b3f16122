"""The journal as executors on other hosts have it: what they read and stage goes through the service.

All else is done on the driver's host, by the journal of files itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contract.check_journal import JournalChecks
from millstream.journal import DeadLetter, Slice, Staged, journal_at
from millstream.journal.kind import Journal
from millstream.spark.served import client
from millstream.spark.served.borrowed import PutLetters, ServedLetters, put_letters
from millstream.spark.served.service import Service


@dataclass
class _Delegate:
    """What is not served."""

    local: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)


@dataclass
class _Partition(_Delegate):
    service: Service
    path: str
    number: int

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        place = self.service.place
        wanted = client.schema_at(place, self.path).names if columns is None else columns
        end = min(stop, self.local.end)
        return client.slices_at(place, self.path, self.number, start, end, wanted)


@dataclass
class _Reader(_Delegate):
    service: Service
    path: str

    def partition(self, number: int) -> _Partition:
        return _Partition(self.local.partition(number), self.service, self.path, number)


@dataclass(frozen=True)
class _Stage:
    path: str
    partition_of: str | int | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = journal_at(self.path).stage(batches, self.partition_of)
        yield pa.RecordBatch.from_pydict({"staged": [json.dumps(asdict(one)) for one in staged]})


@dataclass
class _Journal(_Delegate):
    service: Service
    path: str

    def reader(self) -> _Reader:
        self.service.allow(self.path)
        return _Reader(self.local.reader(), self.service, self.path)

    cached_reader = reader

    def stage(
        self, batches: Iterable[pa.RecordBatch], partition_of: str | int | None = None
    ) -> list[Staged]:
        with self.service.offered(_Stage(self.path, partition_of)) as work:
            answers = list(client.run_at(self.service.place, work, batches))
        texts = [text for one in answers for text in one.column(0).to_pylist()]
        return [Staged(**json.loads(text)) for text in texts]


class TestServedJournal(JournalChecks):
    @pytest.fixture
    def empty(self, tmp_path: Path) -> Iterator[Journal]:
        service, path = Service("127.0.0.1", "127.0.0.1"), str(tmp_path / "journal")
        yield _Journal(journal_at(path), service, path)  # type: ignore[misc]
        service.close()
        for link in client._links.values():
            link.close()
        client._links.clear()


def test_letters_of_executors_are_those_of_the_journal(tmp_path: Path) -> None:
    local = journal_at(tmp_path / "journal")
    local.create(pa.schema([("v", pa.int64())]))
    letters = [DeadLetter("x", number, "bad", "{}", 0) for number in range(5)]
    service = Service("127.0.0.1", "127.0.0.1")
    try:
        where = ServedLetters(service.place, service.offer(PutLetters(str(tmp_path / "journal"))))
        put_letters(where, letters)
        put_letters(where, letters)
    finally:
        service.close()
    assert local.dead_counts() == {"bad": 5}
