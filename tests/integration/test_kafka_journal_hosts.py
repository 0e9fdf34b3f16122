"""What a journal in Kafka keeps besides rows outlives the host: dead letters, names and ends of senders."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.check_journal import SCHEMA, everything, rows
from millstream.brokers.connection import connection
from millstream.clock import ManualClock
from millstream.errors import BrokerAway, SchemaConflict
from millstream.journal.base import Claim, DeadLetter
from millstream.journal.kinds.files import FilesJournal
from millstream.journal.kinds.kafka import KafkaJournal, letters, local
from millstream.journal.kinds.kafka.wire import Appender, Spot
from millstream.testing.kafka import free_port
from support.kafka import consume, new_topic

pytestmark = pytest.mark.kafka

Host = Callable[[str], KafkaJournal]


@pytest.fixture
def host(kafka: str, tmp_path: Path) -> Host:
    """Return the same journal as each host has it, with a folder of its own."""
    topic = f"j-{uuid.uuid4().hex[:8]}"
    return lambda name: KafkaJournal(tmp_path / name, connection(kafka), topic)


def late(*positions: int) -> list[DeadLetter]:
    return [DeadLetter("late:s", n, "late", f'{{"n": {n}}}', 1) for n in positions]


def put(journal: KafkaJournal, found: list[DeadLetter], clock: ManualClock | None = None) -> int:
    with journal.dead_letters(clock=clock) as dead:
        return dead.put_all(found)


def letters_of(journal: KafkaJournal) -> list[dict[str, Any]]:
    part = journal.dead_journal().reader().partition(0)
    slices = part.read(part.begin, part.end)
    return [row for one in slices if one.batch is not None for row in one.batch.to_pylist()]


# dead letters


def test_dead_letters_of_a_host_that_is_gone_are_found_by_another_one(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    assert put(here, late(1, 2)) == 2
    assert there.exists()
    assert there.dead_counts() == {"late": 2}
    assert letters_of(there) == letters_of(here)
    assert put(there, late(2, 3)) == 1
    assert here.dead_counts() == {"late": 3}
    assert here.summary().dead == {"late": 3}
    assert [row["position"] for row in letters_of(here)] == [1, 2, 3]


def test_a_letter_that_two_hosts_have_written_is_there_once(host: Host, kafka: str) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    put(here, late(1))
    (letter,) = late(1)
    Appender(here.connection).append(
        Spot(f"{here.topic}.dead", 0), [letters.packed(letter, 5, 999)]
    )
    put(here, late(2))
    assert there.exists()
    assert there.dead_counts() == here.dead_counts() == {"late": 2}
    keys = [message.key() for message in consume(kafka, f"{here.topic}.dead")]
    assert keys == [b'["late:s", 1, 1]', None, b'["late:s", 1, 2]']


def test_letters_that_were_kept_in_the_folder_alone_are_written_to_kafka(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    with FilesJournal(here.path).dead_letters(clock=ManualClock(7)) as dead:
        dead.put_all(late(1, 2))
    assert here.dead_counts() == {"late": 2}
    assert put(here, late(2, 3), ManualClock(9)) == 1
    assert there.exists()
    assert there.dead_counts() == {"late": 3}
    assert [row["at"].microsecond for row in letters_of(there)] == [7, 7, 9]


def test_a_copy_of_letters_that_lost_its_place_is_read_again(host: Host, kafka: str) -> None:
    here = host("here")
    here.create(SCHEMA, time="at")
    put(here, late(1, 2))
    (here.path / "dead" / "copied.json").write_text("{")
    assert put(here, late(2, 3)) == 1
    assert len(consume(kafka, f"{here.topic}.dead")) == 3
    assert here.dead_counts() == {"late": 3}


def test_a_letter_that_is_too_large_is_cut(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    assert put(here, [DeadLetter("s", 0, "bad", "x" * 9_000_000)]) == 1
    assert there.exists()
    (row,) = letters_of(there)
    assert 2_000_000 < len(row["record"]) < 8_000_000
    assert row["record"].endswith("x…")


def test_a_topic_that_would_lose_letters_is_refused(host: Host, kafka: str) -> None:
    here = host("here")
    here.create(SCHEMA, time="at")
    new_topic(kafka, name=f"{here.topic}.dead", retention_ms="1000")
    with pytest.raises(SchemaConflict, match=r'\.dead" has retention.ms=1000'):
        put(here, late(1))


def test_letters_wait_no_longer_for_a_broker_than_they_may(host: Host) -> None:
    here = host("here")
    here.create(SCHEMA, time="at")
    put(here, late(1))
    away = KafkaJournal(here.path, connection(f"127.0.0.1:{free_port()}"), here.topic)
    with pytest.raises(BrokerAway), away.dead_letters(timeout=0.5) as dead:
        dead.put_all(late(2))
    assert away.dead_counts() == {"late": 1}
    assert put(here, late(2)) == 1


# names and ends of senders


def test_another_host_knows_who_has_a_name_and_who_has_ended(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    with here.writer(0) as writer:
        writer.append("a", 0, rows(1))
        claims = here.claims(0)
        claims.put("a", Claim(7))
        claims.put("a", Claim(9, "till"))
        here.end_sender(0, "b")
        writer.append("a", 1, rows(2))
    assert there.exists()
    with there.writer(0):
        assert there.claims(0).known == {"a": Claim(9, "till")}
        assert there.ended_senders(0) == ["b"]
        there.claims(0).put("a", Claim(11))
    assert here.claims(0).known == {"a": Claim(11, "till")}
    assert everything(here) == everything(there) == [[10, 20]]


def test_names_and_ends_outlive_the_beginning_of_the_index(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SEGMENT_ENTRIES", 4)
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    with here.writer(0) as writer:
        here.claims(0).put("a", Claim(9, "till"))
        here.end_sender(0, "b")
        for number in range(12):
            writer.append("a", number, rows(number))
        here.commit("r", [12])
        assert here.trim(keep_bytes=0).positions >= 8
    assert there.exists()
    assert there.claims(0).known == {"a": Claim(9, "till")}
    assert there.ended_senders(0) == ["b"]


def test_names_that_were_kept_in_the_folder_alone_are_written_to_kafka(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    here.writer(0).close()
    folder = FilesJournal(here.path)
    folder.claims(0).put("a", Claim(9, "till"))
    folder.end_sender(0, "b")
    for _ in range(2):
        here.writer(0).close()
    assert there.exists()
    assert there.claims(0).known == here.claims(0).known == {"a": Claim(9, "till")}
    assert there.ended_senders(0) == here.ended_senders(0) == ["b"]
