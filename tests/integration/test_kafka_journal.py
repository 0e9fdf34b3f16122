"""Journals in Kafka: takeovers, kill -9 of writers and of the broker, retention, and damaged copies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from contract.check_journal import SCHEMA, everything, rows, values
from millstream.brokers import clients
from millstream.brokers.connection import connection
from millstream.cli.journal import app
from millstream.errors import (
    JournalUnreadable,
    RecordsGone,
    SchemaConflict,
    TopicChanged,
    WriterBroken,
)
from millstream.journal.kinds.files.layout import index_file, partition_folder, segment_positions
from millstream.journal.kinds.kafka import KafkaJournal, local, marker, topics
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.wire import Appender, Fetcher, Spot
from millstream.secrets import Secret
from millstream.testing.kafka import Broker, free_port
from support.kafka import new_topic, produce

pytestmark = pytest.mark.kafka

Host = Callable[[str], KafkaJournal]


@pytest.fixture
def host(kafka: str, tmp_path: Path) -> Host:
    """Return the same journal as each host has it, with a folder of its own."""
    topic = f"j-{uuid.uuid4().hex[:8]}"
    return lambda name: KafkaJournal(tmp_path / name, connection(kafka), topic)


def watermarks(journal: KafkaJournal, topic: str) -> tuple[int, int]:
    return Fetcher(journal.connection).watermarks(Spot(topic, 0))


# hosts


def test_another_host_reads_all_and_takes_over_and_the_first_writes_no_more(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    one = here.writer(0)
    one.append("a", 0, rows(1, 2))
    assert there.exists()
    assert there.describe().schema == SCHEMA
    assert everything(there) == [[10, 20]]
    with there.writer(0) as other:
        assert (other.end, other.highest("a")) == (2, 1)
        other.append("b", 0, rows(3))
        with pytest.raises(WriterBroken, match="another writer has claimed"):
            one.append("a", 2, rows(99))
        other.append("a", 1, rows(2, 4))
    one.close()
    assert everything(here) == everything(there) == [[10, 20, 30, 40]]
    (entries,) = [list(j.reader().partition(0).entries(0, 9)) for j in (here,)]
    assert [entry.sender for entry in entries] == ["a", "b", "a"]


def test_a_writer_that_was_fenced_may_come_back(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    one = here.writer(0)
    one.append("a", 0, rows(1))
    there.describe()
    there.writer(0).close()
    with pytest.raises(WriterBroken):
        one.append("new", 0, rows(5))
    one.close()
    with here.writer(0) as again:
        assert again.append("late", 0, rows(6)).position == 1
    assert everything(here) == everything(there) == [[10, 60]]
    assert here.summary().partitions[0].highest == {"a": 0, "late": 0}


def test_columns_that_another_host_has_added_are_known(host: Host) -> None:
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    with here.writer(0) as one:
        one.append("a", 0, rows(1))
    reader = there.reader().partition(0) if there.exists() else None
    assert reader is not None
    assert values(reader, 0, 1) == [10]
    wider = SCHEMA.append(pa.field("note", pa.string()))
    here.create(wider, time="at")
    with here.writer(0) as one:
        one.append("a", 1, rows(2).append_column("note", pa.array(["x"])))
    (part,) = there.reader().partition(0).read(1, 2)
    assert part.batch is not None
    assert part.batch.column("note").to_pylist() == ["x"]


def test_the_folder_says_where_the_journal_is(host: Host, tmp_path: Path) -> None:
    here = host("here")
    here.create(SCHEMA, time="at")
    assert KafkaJournal.marked(tmp_path / "here") == here
    login = connection("b:9092", user="u", password=Secret("kafka-password"), tls=True)
    marker.mark(Topics(tmp_path / "other", login, "t"))
    assert KafkaJournal.marked(tmp_path / "other").connection == login
    with pytest.raises(SchemaConflict, match='is in topic "t", not "u"'):
        marker.mark(Topics(tmp_path / "other", login, "u"))
    (tmp_path / "other" / marker.FILE).write_text("{")
    with pytest.raises(JournalUnreadable):
        KafkaJournal.marked(tmp_path / "other")


# deaths


def test_a_writer_killed_at_any_moment_loses_nothing_and_repeats_nothing(
    host: Host, kafka: str
) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    acknowledged = -1
    command = [sys.executable, "-m", "support.kafka_journal_writer"]
    for life in range(4):
        process = subprocess.Popen(
            [*command, str(journal.path), kafka, journal.topic],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for _ in range(3 + life * 7):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        process.wait()
        process.stdout.close()
        (found,) = everything(journal)
        assert found == [number * 10 for number in range(len(found))]
        assert len(found) > acknowledged
    with journal.writer(0) as writer:
        assert writer.highest("a") == len(found) - 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.soak), "pause"])
def test_a_broker_that_goes_away_and_comes_back_loses_nothing(tmp_path: Path, how: str) -> None:
    broker = Broker(tmp_path / "kafka", free_port())
    broker.start()
    try:
        journal = KafkaJournal(tmp_path / "j", connection(broker.servers), "j")
        journal.create(SCHEMA, time="at")
        with journal.writer(0) as writer:
            writer.append("a", 0, rows(0))
            (broker.kill if how == "kill" else broker.pause)()
            future = writer.append_nowait("a", 1, rows(1))
            back = threading.Timer(3, broker.start if how == "kill" else broker.resume)
            back.start()
            assert future.result(100).position == 1
            back.join()
            for number in range(2, 6):
                writer.append("a", number, rows(number))
        fresh = KafkaJournal(tmp_path / "fresh", connection(broker.servers), "j")
        assert fresh.exists()
        assert everything(fresh) == everything(journal) == [[0, 10, 20, 30, 40, 50]]
    finally:
        broker.kill()


def test_a_child_of_a_process_that_reads_reads_too(host: Host) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    with journal.writer(0) as writer:
        writer.append("a", 0, rows(1, 2))
    assert everything(journal) == [[10, 20]]
    child = os.fork()
    if child == 0:
        os._exit(0 if everything(journal) == [[10, 20]] else 1)
    until = time.monotonic() + 30
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < until:
        time.sleep(0.05)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
    assert (ended, os.waitstatus_to_exitcode(status)) == (child, 0)


def test_a_journal_is_shown_as_it_is_known_while_the_broker_is_away(host: Host) -> None:
    journal = host("here")
    journal.create(SCHEMA, partitions=2, time="at")
    with journal.writer(0) as writer:
        writer.append("a", 0, rows(1, 2))
    known = journal.summary()
    assert known.rows == 2
    away = replace(journal, connection=connection(f"127.0.0.1:{free_port()}"))
    assert replace(away.summary(), place=known.place) == known


# records


def test_a_batch_that_is_larger_than_a_record_is_stored_in_pieces(host: Host) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    many = rows(*range(120_000))
    assert many.nbytes > 1_800_000
    with journal.writer(0) as writer:
        assert writer.append("a", 0, many).stored == 120_000
    _, high = watermarks(journal, journal.topic)
    assert high >= 2
    verified = journal.verify()
    assert (verified.rows, verified.bytes) == (120_000, journal.bytes_to_verify())
    assert verified.bytes > 1_900_000
    part = journal.reader().partition(0)
    assert values(part, 119_998, 120_000) == [1_199_980, 1_199_990]
    assert len(values(part, 0, 120_000)) == 120_000


def test_what_zombies_and_others_write_into_the_topics_is_left_out_or_refused(host: Host) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    other = Appender(journal.connection)
    with journal.writer(0) as writer:
        writer.append("a", 0, rows(1))
        other.append(Spot(journal.topic, 0), [b"garbage"])  # data that nothing names
        writer.append("a", 1, rows(2))
    assert everything(journal) == [[10, 20]]
    other.append(Spot(f"{journal.topic}.index", 0), [b"garbage"])
    with pytest.raises(Exception, match="is no record of a journal's index"):
        everything(journal)


# topics


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ({"retention_ms": "604800000"}, "set retention.ms=-1 on the topic"),
        ({"retention_ms": "-1", "retention_bytes": "1000"}, "set retention.bytes=-1 on the topic"),
        ({"retention_ms": "-1", "cleanup_policy": "compact"}, "set cleanup.policy=delete"),
        ({"retention_ms": "-1", "min_insync_replicas": "2"}, "set min.insync.replicas=1"),
        ({"retention_ms": "-1", "max_message_bytes": "1000"}, "set max.message.bytes="),
    ],
)
def test_a_topic_that_would_lose_rows_is_refused(
    kafka: str, tmp_path: Path, setting: dict[str, str], hint: str
) -> None:
    topic = new_topic(kafka, **setting)
    journal = KafkaJournal(tmp_path / "j", connection(kafka), topic)
    with pytest.raises(SchemaConflict, match=f'topic "{topic}" ') as caught:
        journal.create(SCHEMA, time="at")
    assert caught.value.hint is not None
    assert hint in caught.value.hint


# retention and copies


@pytest.mark.parametrize("deleted", [("",), (".index",), ("", ".index")])
def test_topics_that_were_made_again_are_an_error_on_hosts_that_knew_them(
    host: Host, deleted: tuple[str, ...]
) -> None:
    here = host("here")
    here.create(SCHEMA, time="at")
    with here.writer(0) as writer:
        writer.append("a", 0, rows(1, 2))
    here.create(SCHEMA, time="at")
    admin = clients.admin(here.connection)
    for removed in admin.delete_topics([here.topic + end for end in deleted]).values():
        removed.result(30)
    with pytest.raises(TopicChanged, match=f'"{here.topic}{deleted[0]}" was deleted') as found:
        here.create(SCHEMA, time="at")
    assert found.value.hint
    with pytest.raises(TopicChanged):
        here.create(SCHEMA, time="at")


def test_a_topic_that_is_made_again_disturbs_no_reader_of_another(kafka: str) -> None:
    gone, kept = (Spot(new_topic(kafka), 0) for _ in range(2))
    for spot in (gone, kept):
        produce(kafka, spot.topic, [b"1"])
    one, other = (Fetcher(connection(kafka)) for _ in range(2))
    for reader in (one, other):
        assert reader.one(gone, 0) == b"1"
    admin = clients.admin(connection(kafka))
    admin.delete_topics([gone.topic])[gone.topic].result(30)
    new_topic(kafka, name=gone.topic)
    with pytest.raises(RecordsGone, match="made again"):
        other.one(gone, 1)  # both readers are told, and one has not looked yet
    assert one.one(kept, 0) == b"1"


def test_limits_of_a_folder_from_before_topics_had_ids_are_known(host: Host) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    file = journal.path / "limits.json"
    found = json.loads(file.read_bytes())
    del found["ids"]
    file.write_text(json.dumps(found))
    assert topics.known(journal.path) == topics.Limits(**found)
    journal.create(SCHEMA, time="at")
    assert len(json.loads(file.read_bytes())["ids"]) == 2


def test_what_nobody_needs_is_deleted_and_a_new_host_begins_with_a_snapshot(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SEGMENT_ENTRIES", 4)
    here, there = host("here"), host("there")
    here.create(SCHEMA, time="at")
    with here.writer(0) as writer:
        for number in range(20):
            writer.append(f"s{number % 3}", number, rows(number))
        here.commit("r", [13])
        trimmed = here.trim(keep_bytes=0)
        assert 8 <= trimmed.positions <= 13
        writer.append("s0", 20, rows(20))
    low, _ = watermarks(here, f"{here.topic}.index")
    data_low, _ = watermarks(here, here.topic)
    assert low > 8
    assert 0 < data_low <= 13
    assert there.exists()
    part = there.reader().partition(0)
    assert part.begin == trimmed.positions
    assert values(part, 13, 21) == [number * 10 for number in range(13, 21)]
    with there.writer(0) as writer:
        found = [writer.highest(f"s{n}") for n in range(3)]
        assert found == [20, 19, 17]
        assert writer.append("s1", 19, rows(19)).stored == 0
        assert writer.append("s1", 21, rows(21)).position == 21
    assert everything(here) == everything(there)


@pytest.mark.parametrize("damage", ["index", "cut", "senders"])
def test_a_damaged_copy_is_made_again(host: Host, damage: str) -> None:
    journal = host("here")
    journal.create(SCHEMA, time="at")
    with journal.writer(0) as writer:
        for number in range(6):
            writer.append(f"s{number}", 0, rows(number))
    folder = partition_folder(journal.path, 0)
    index = index_file(folder, segment_positions(folder)[0])
    content = bytearray(index.read_bytes())
    if damage == "index":
        content[600] ^= 255
        index.write_bytes(content)
    elif damage == "cut":
        index.write_bytes(content[:-200])
    else:
        (folder / "senders").write_bytes(b"nonsense\n")
        (folder / "senders.copy").unlink()
    with journal.writer(0) as writer:
        assert [writer.highest(f"s{number}") for number in range(7)] == [0] * 6 + [-1]
        writer.append("s6", 0, rows(6))
    assert everything(journal) == [[number * 10 for number in range(7)]]


def test_repair_makes_a_damaged_copy_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SEGMENT_ENTRIES", 2)
    journal = host("here")
    journal.create(SCHEMA, time="at")
    with journal.writer(0) as writer:
        for number in range(4):
            writer.append("a", number, rows(number))
    folder = partition_folder(journal.path, 0)
    index = index_file(folder, 0)
    content = bytearray(index.read_bytes())
    content[600] ^= 255
    index.write_bytes(content)
    (found,) = journal.verify().damages
    assert found.partition == 0
    (repaired,) = journal.repair()
    assert "was made again" in repaired.fact
    assert journal.verify().damages == ()
    assert everything(journal) == [[0, 10, 20, 30]]


def test_commands_look_into_a_journal_in_kafka(kafka: str, tmp_path: Path) -> None:
    topic = f"j-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "shop" / "journals" / "orders"
    journal = KafkaJournal(folder, connection(kafka), topic)
    journal.create(SCHEMA, time="at", partitions=2)
    with journal.writer(0) as first, journal.writer(1) as second:
        first.append("feed", 0, rows(1, 2))
        second.append("feed", 0, rows(3))
    journal.commit("shop.hourly", [1, 1])
    with journal.dead_letters() as dead:
        dead.put("late:orders", 7, "late", {"value": 9})

    def printed(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--data", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return result.output

    (listed,) = json.loads(printed("ls", "--json"))
    assert (listed["name"], listed["rows"], listed["dead"]) == ("shop.orders", 3, {"late": 1})
    shown = printed("show", "shop.orders")
    assert f'kept in  topic "{topic}" at {kafka}' in shown
    assert "shop.hourly" in shown
    found = [json.loads(line)["value"] for line in printed("cat", "shop.orders").splitlines()]
    assert sorted(found) == [10, 20, 30]
    assert '"reason": "late"' in printed("cat", "shop.orders.dead")
    assert "sound; 3 rows" in printed("verify", "shop.orders")
    assert "nothing to repair" in printed("repair", "shop.orders")
