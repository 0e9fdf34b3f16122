"""Tasks that do not see a journal's folder fetch its rows from Kafka themselves."""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.check_journal import SCHEMA, rows
from millstream.brokers.connection import connection
from millstream.journal import Kind, PartitionReader, Slice
from millstream.journal.kinds.kafka import KafkaJournal, local
from millstream.journal.kinds.kafka.wire import Fetcher
from millstream.secrets import Secret
from millstream.spark.io.source import JournalStreamReader, ReadSettings
from millstream.spark.served import direct
from millstream.spark.served.place import ServedPlace, write_place
from millstream.testing.kafka import free_port

pytestmark = pytest.mark.kafka

NOBODY = ServedPlace("127.0.0.1", 9, b"", b"", b"")


@pytest.fixture
def journal(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaJournal:
    """Return a journal whose index has several segments, instructions and batches in pieces."""
    monkeypatch.setattr(local, "SEGMENT_ENTRIES", 3)
    made = KafkaJournal(tmp_path / "here", connection(kafka), f"j-{uuid.uuid4().hex[:8]}")
    made.create(SCHEMA, time="at")
    with made.writer(0) as writer:
        writer.append("a", 0, rows(5, 1, 2))
        writer.instruct(Kind.WATERMARK, 3)
        writer.append("a", 3, rows(2, 7, 8))
        writer.append("b", 0, rows(4))
        writer.append("b", 1, rows(9, 6))
    return made


def shown(slices: Iterator[Slice]) -> list[Any]:
    return [
        replace(one, batch=None if one.batch is None else one.batch.to_pylist())  # type: ignore[arg-type]
        for one in slices
    ]


def view(journal: KafkaJournal) -> PartitionReader:
    return journal.reader().partition(0)


def test_an_excerpt_reads_what_the_copy_does_in_any_range(journal: KafkaJournal) -> None:
    end = view(journal).end
    ranges = [(a, z) for a in range(end) for z in range(a, end + 1)]
    expected = {one: shown(view(journal).read(*one, ["value"])) for one in ranges}
    taken = {one: pickle.dumps(journal.excerpt(0, *one)) for one in ranges}
    shutil.rmtree(journal.path)
    for one in ranges:
        excerpt = pickle.loads(taken[one])
        assert shown(excerpt.read(*one, ["value"])) == expected[one]
        assert excerpt.schema == SCHEMA


def test_a_task_asks_the_driver_for_nothing(journal: KafkaJournal, tmp_path: Path) -> None:
    write_place(tmp_path / "place", NOBODY)
    settings = ReadSettings(
        journal="j",
        path=str(journal.path),
        columns=("at", "value"),
        schema="",
        time="at",
        lateness=0,
        grouped=False,
        limit=1000,
        tasks=1,
        served=str(tmp_path / "place"),
    )
    planning = JournalStreamReader(settings)
    start = planning.initialOffset()
    end = planning.latestOffset(start, planning.getDefaultReadLimit())
    tasks = [pickle.loads(pickle.dumps(one)) for one in planning.partitions(start, end)]
    shutil.rmtree(journal.path)
    found = [
        value
        for task in tasks
        for batch in JournalStreamReader(settings).read(task)
        for value in batch.column("value").to_pylist()
        if value is not None
    ]
    assert found == [50, 70, 80, 90]  # the others are late


def unreachable(found: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Fetcher.watermarks, "__defaults__", (0.5,))
    return replace(found, connection=connection(f"127.0.0.1:{free_port()}"))


def without_a_secret(found: Any, _: pytest.MonkeyPatch) -> Any:
    login = connection(
        found.connection.servers, user="u", password=Secret("of-nobody"), mechanism="PLAIN"
    )
    return replace(found, connection=login)


@pytest.mark.parametrize("spoil", [unreachable, without_a_secret])
def test_the_driver_reads_for_a_task_that_cannot(
    journal: KafkaJournal, spoil: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_ask_at", {})
    excerpt = spoil(journal.excerpt(0, 0, 5), monkeypatch)
    asked: list[int] = []

    def otherwise() -> Iterator[Slice]:
        asked.append(1)
        return view(journal).read(0, 5, ["value"])

    expected = shown(view(journal).read(0, 5, ["value"]))
    for _ in range(2):
        assert shown(direct.slices_of(excerpt, 0, 5, ["value"], otherwise)) == expected
    assert len(asked) == 2
    assert [*direct._ask_at] == [excerpt.place]
