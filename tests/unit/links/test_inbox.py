"""An inbox: each event once, in order, durable before it is acknowledged, and never more than it has room for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import AlreadyWriting, Ended, LinkClosed, WriterBroken
from millstream.ingest import Refused, SourceSettings
from millstream.journal import Description, Kind
from millstream.journal.kinds.files.commit_queue import CommitQueue
from millstream.journal.kinds.files.dead import DeadLetters
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.log import PartitionLog
from millstream.journal.kinds.files.writer import Writer
from millstream.links import inbox_appends as module
from millstream.links import inbox_store
from millstream.links.inbox import Inbox
from millstream.links.inbox_store import Capacity
from support.links import NOON, batch, declare, entries, journal, letters, stored

Open = Callable[..., Inbox]


@pytest.fixture
def source(tmp_path: Path) -> tuple[Description, SourceSettings]:
    return declare(tmp_path)


@pytest.fixture
def opened(source: tuple[Description, SourceSettings]) -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda **named: stack.enter_context(closing(Inbox(source[0], 0, source[1], **named)))


class Disk:
    """Holds back what a journal commits, or refuses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_write = threading.Event()
        self.may_write.set()
        self.error: OSError | None = None
        commit = CommitQueue.commit_queued

        def held(queue: CommitQueue) -> None:
            self.may_write.wait(20)
            commit(queue)

        log_commit = PartitionLog.commit

        def refusing(log: Any, items: Any) -> None:
            if self.error is not None:
                raise self.error
            log_commit(log, items)

        monkeypatch.setattr(CommitQueue, "commit_queued", held)
        monkeypatch.setattr("millstream.journal.kinds.files.log.PartitionLog.commit", refusing)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.error = None
    disk.may_write.set()


# once


def test_rows_are_there_when_they_are_acknowledged(opened: Open, tmp_path: Path) -> None:
    inbox = opened()
    assert inbox.enqueue("a", range(5), batch(0, 5)) == 5
    assert stored(tmp_path) == [[0, 1, 2, 3, 4]]
    assert inbox.highest("a") == 4


def test_nothing_is_acknowledged_before_it_is_durable(opened: Open, disk: Disk) -> None:
    inbox = opened()
    disk.may_write.clear()
    first = inbox.enqueue_nowait("a", range(5), batch(0, 5))
    again = inbox.enqueue_nowait("a", range(5), batch(0, 5))  # it is known, and not yet there
    assert not first.done()
    assert not again.done()
    assert (inbox.highest("a"), inbox.statistics().waiting) == (-1, 5)
    disk.may_write.set()
    assert (first.result(120).highest, again.result(120).highest) == (4, 4)
    assert again.result().repeated == 5


def test_repeated_rows_count_as_taken_and_are_not_stored(opened: Open, tmp_path: Path) -> None:
    inbox = opened()
    inbox.enqueue("a", range(5), batch(0, 5))
    assert inbox.enqueue("a", range(5), batch(0, 5)) == 5
    assert inbox.enqueue("a", range(3, 8), batch(3, 8)) == 5
    assert inbox.enqueue("b", range(5), batch(0, 5)) == 5  # another sender's are others
    assert stored(tmp_path) == [[*range(8), *range(5)]]
    assert inbox.statistics().repeated == 7


def test_what_is_known_survives_a_restart(opened: Open, tmp_path: Path) -> None:
    first = opened()
    first.enqueue("a", [3, 5, 9], batch(0, 3))
    first.close()
    second = opened()
    assert second.highest("a") == 9
    assert second.enqueue("a", [3, 5, 9, 12], batch(0, 4)) == 4
    assert stored(tmp_path) == [[0, 1, 2, 3]]


def test_rows_past_a_gap_are_not_taken(opened: Open, tmp_path: Path) -> None:
    inbox = opened()
    inbox.enqueue("a", range(3), batch(0, 3))
    late = inbox.enqueue_nowait("a", range(6, 9), batch(6, 9), after=5).result(120)
    assert (late.taken, late.highest) == (0, 2)
    assert inbox.enqueue("a", range(3, 6), batch(3, 6), after=2) == 3
    assert inbox.enqueue("a", range(6, 9), batch(6, 9), after=5) == 3
    assert stored(tmp_path) == [list(range(9))]


def test_a_message_that_is_taken_whole_is_stored_as_it_came(opened: Open, tmp_path: Path) -> None:
    inbox, rows = opened(), batch(0, 5)
    message = rows.serialize()
    inbox.enqueue_nowait("a", range(5), rows, message=message).result(120)
    inbox.enqueue_nowait("a", range(3, 8), batch(3, 8), message=batch(3, 8).serialize()).result(120)
    assert stored(tmp_path) == [list(range(8))]
    files = [file for file in journal(tmp_path).glob("**/*") if file.is_file()]
    assert any(message.to_pybytes() in file.read_bytes() for file in files)


# back-pressure


@pytest.mark.parametrize(
    ("capacity", "taken"),
    [
        (Capacity(rows=7), 7),
        (Capacity(bytes=batch(0, 7).nbytes), 7),
        (Capacity(bytes=1), 1),
        (Capacity(requests=1), 10),
    ],
)
def test_a_full_inbox_takes_a_part_and_then_nothing(
    opened: Open, disk: Disk, capacity: Capacity, taken: int
) -> None:
    inbox = opened(capacity=capacity)
    disk.may_write.clear()
    first = inbox.enqueue_nowait("a", range(10), batch(0, 10))
    other = inbox.enqueue_nowait("b", range(10), batch(0, 10))
    assert inbox.statistics().waiting == taken
    assert other.result(120).taken == 0
    if capacity.requests == 1:
        assert inbox.free == 0
    disk.may_write.set()
    assert first.result(120).taken == taken
    assert inbox.enqueue("a", range(10), batch(0, 10)) >= taken


def test_full_and_all_acknowledged_is_empty(opened: Open, disk: Disk) -> None:
    inbox = opened(capacity=Capacity(rows=8))
    disk.may_write.clear()
    pending = inbox.enqueue_nowait("a", range(8), batch(0, 8))
    assert inbox.free == 0
    disk.may_write.set()
    assert pending.result(120).taken == 8
    assert (inbox.free, inbox.statistics().waiting) == (8, 0)


def test_an_instruction_finds_no_room_either(opened: Open, disk: Disk) -> None:
    inbox = opened(capacity=Capacity(rows=2))
    disk.may_write.clear()
    inbox.enqueue_nowait("a", range(2), batch(0, 2))
    assert inbox.instruct_nowait("a", 2, Kind.WATERMARK, 5, after=1).result(120).taken == 0
    disk.may_write.set()


# what does not keep to the rules


def test_rows_that_break_a_rule_are_dead_letters_and_count_as_taken(
    opened: Open, tmp_path: Path
) -> None:
    inbox, rows = opened(), batch(0, 4)
    far = NOON + timedelta(days=36500)
    at = pa.array([NOON, None, far, NOON], pa.timestamp("us", "UTC"))
    bad = pa.record_batch(
        [pa.array(["x", "x", "x", None]), rows.column("n"), at], names=rows.schema.names
    )
    answer = inbox.enqueue_nowait("a", [2, 4, 6, 8], bad).result(120)
    assert (answer.taken, answer.highest, answer.refused) == (4, 8, 3)
    assert stored(tmp_path) == [[0]]
    assert [number for number, _ in letters(tmp_path)] == [4, 6, 8]
    assert [reason.split('"')[1] for _, reason in letters(tmp_path)] == ["at", "at", "origin"]
    assert inbox.enqueue("a", [2, 4, 6, 8], bad) == 4
    assert inbox.enqueue("a", [9], batch(9, 10), after=8) == 1
    assert stored(tmp_path) == [[0, 9]]


def test_a_batch_of_dead_letters_alone_waits_for_those_before_it(
    opened: Open, disk: Disk, tmp_path: Path
) -> None:
    inbox, rows = opened(), batch(0, 2)
    nothing = pa.record_batch(
        [pa.nulls(2, pa.string()), *rows.columns[1:]], names=rows.schema.names
    )
    disk.may_write.clear()
    first = inbox.enqueue_nowait("a", range(2), rows)
    disk.may_write.set()
    second = inbox.enqueue_nowait("a", range(2, 4), nothing, after=1)
    assert first.result(120).taken == 2
    assert (second.result(120).taken, second.result().highest) == (2, 3)
    assert inbox.highest("a") == 3
    assert len(letters(tmp_path)) == 2


def test_dead_letters_that_others_hold_make_a_sender_ask_again(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DEAD_LETTERS_S", 0.1)
    inbox, rows = opened(), batch(0, 2)
    bad = pa.record_batch([pa.array(["x", None]), *rows.columns[1:]], names=rows.schema.names)
    with DeadLetters.open(journal(tmp_path)):
        answer = inbox.enqueue_nowait("a", range(2), bad).result(120)
        assert (answer.taken, answer.free) == (0, 0)
    assert inbox.enqueue("a", range(2), bad) == 2
    assert (stored(tmp_path), len(letters(tmp_path))) == ([[0]], 1)


def test_records_that_are_no_rows_are_kept_once(opened: Open, tmp_path: Path) -> None:
    inbox = opened()
    assert inbox.put_dead_letters("a", [Refused(1, "no JSON", "{")]) == 1
    assert (
        inbox.put_dead_letters("a", [Refused(1, "no JSON", "{"), Refused(2, "no JSON", "[")]) == 1
    )
    assert [number for number, _ in letters(tmp_path)] == [1, 2]
    assert inbox.statistics().refused == 2


# instructions


def test_an_instruction_is_taken_once(opened: Open, tmp_path: Path) -> None:
    inbox = opened()
    for _ in range(2):
        assert inbox.instruct_nowait("a", 0, Kind.WATERMARK, 5).result(120).taken == 1
    assert [kind for kind, _, _ in entries(tmp_path)] == [Kind.WATERMARK]


def test_a_watermark_that_does_not_rise_is_taken_and_changes_nothing(
    opened: Open, tmp_path: Path
) -> None:
    inbox = opened()
    inbox.instruct_nowait("a", 0, Kind.WATERMARK, 5).result(120)
    answer = inbox.instruct_nowait("a", 1, Kind.WATERMARK, 4).result(120)
    assert (answer.taken, answer.highest) == (1, 1)
    assert inbox.enqueue("a", [2], batch(0, 1), after=1) == 1
    assert len(entries(tmp_path)) == 2


def test_a_source_has_ended_when_every_upstream_has(opened: Open, tmp_path: Path) -> None:
    inbox = opened(upstreams=["a", "b"])
    inbox.enqueue("a", range(2), batch(0, 2))
    for _ in range(2):
        answer = inbox.instruct_nowait("a", 2, Kind.END_OF_STREAM, after=1).result(120)
        assert (answer.taken, answer.highest) == (1, 2)
        assert not inbox.progress().ended
    assert inbox.enqueue("b", range(2), batch(2, 4)) == 2
    for _ in range(2):
        assert inbox.instruct_nowait("b", 2, Kind.END_OF_STREAM).result(120).taken == 1
        assert inbox.progress().ended
    assert [kind for kind, _, _ in entries(tmp_path)] == [Kind.ROWS, Kind.ROWS, Kind.END_OF_STREAM]


def test_who_has_ended_survives_a_restart(opened: Open) -> None:
    first = opened(upstreams=["a", "b"])
    first.instruct_nowait("a", 0, Kind.END_OF_STREAM).result(120)
    first.close()
    second = opened(upstreams=["a", "b"])
    second.instruct_nowait("b", 0, Kind.END_OF_STREAM).result(120)
    assert second.progress().ended


def test_a_torn_note_of_an_end_is_no_end(opened: Open, tmp_path: Path) -> None:
    first = opened(upstreams=["a", "b"])
    first.instruct_nowait("a", 0, Kind.END_OF_STREAM).result(120)
    first.close()
    (file,) = journal(tmp_path).glob("**/ends")
    file.write_bytes(file.read_bytes()[:-3])  # as a crash leaves it
    second = opened(upstreams=["a", "b"])
    second.instruct_nowait("b", 0, Kind.END_OF_STREAM).result(120)
    assert not second.progress().ended
    second.instruct_nowait("a", 0, Kind.END_OF_STREAM).result(
        120
    )  # it was not acknowledged: it comes again
    assert second.progress().ended
    second.close()
    assert b'"b"' in file.read_bytes().splitlines()[0]  # it follows nothing torn


def test_nothing_follows_the_end(opened: Open) -> None:
    inbox = opened()
    inbox.enqueue("a", range(3), batch(0, 3))
    inbox.instruct_nowait("a", 3, Kind.END_OF_STREAM).result(120)
    assert inbox.enqueue("a", range(3), batch(0, 3)) == 3  # what is there is there
    with pytest.raises(Ended):
        inbox.enqueue("a", [4], batch(4, 5))


# a disk that refuses


def test_an_inbox_takes_nothing_while_the_disk_refuses(
    opened: Open,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(inbox_store, "_REOPEN_EVERY_S", 0.2)
    inbox = opened()
    inbox.enqueue("a", range(2), batch(0, 2))
    disk.error = OSError(28, "No space left on device")
    broken = inbox.enqueue_nowait("a", range(2, 5), batch(2, 5), after=1).result(120)
    assert (broken.taken, broken.highest, broken.free) == (0, 1, 0)
    assert "No space left" in str(inbox.statistics().error)
    assert inbox.free == 0
    again = inbox.enqueue_nowait("a", range(2, 5), batch(2, 5)).result(120)
    assert (again.taken, again.free) == (0, 0)
    assert (
        inbox.highest("a") == -1
    )  # it is not known now: whoever asks sends again, and repeats are harmless
    disk.error = None
    until = time.monotonic() + 120
    while inbox.enqueue_nowait("a", range(2, 5), batch(2, 5)).result(120).taken != 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert inbox.statistics().error is None
    assert stored(tmp_path) == [list(range(5))]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "inbox s/0 takes nothing",
        "inbox s/0 takes events again",
    ]


def test_a_writer_that_broke_a_moment_ago_is_no_refusal(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes knows of it before the inbox does: the sender asks again."""
    inbox = opened()

    def broken(*_: Any, **__: Any) -> Future[Any]:
        raise WriterBroken("the disk refused")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_nowait", broken)
        patch.setattr(Writer, "instruct_nowait", broken)
        assert inbox.enqueue_nowait("a", range(3), batch(0, 3)).result(120).taken == 0
        inbox._store.error = None
        assert inbox.instruct_nowait("a", 3, Kind.WATERMARK, 5).result(120).taken == 0
        inbox._store.error = None
        inbox.level(5)
    inbox._store._reopen_at = 0.0
    assert inbox.enqueue("a", range(3), batch(0, 3)) == 3


# closing


def test_closing_writes_what_was_taken(opened: Open, disk: Disk, tmp_path: Path) -> None:
    inbox = opened()
    disk.may_write.clear()
    pending = inbox.enqueue_nowait("a", range(5), batch(0, 5))
    threading.Timer(0.1, disk.may_write.set).start()
    inbox.close()
    assert pending.result(0).taken == 5
    with pytest.raises(LinkClosed):
        inbox.enqueue("a", range(5, 6), batch(5, 6))
    with pytest.raises(LinkClosed):
        inbox.instruct_nowait("a", 5, Kind.END_OF_STREAM)


def test_aborting_says_what_is_not_there(opened: Open, disk: Disk) -> None:
    inbox = opened()
    disk.may_write.clear()
    first = inbox.enqueue_nowait("a", range(5), batch(0, 5))
    time.sleep(0.05)  # the writer has it in its hands
    second = inbox.enqueue_nowait("a", range(5, 9), batch(5, 9), after=4)
    threading.Timer(0.1, disk.may_write.set).start()
    inbox.abort()
    assert second.result(120).taken == 0
    assert first.result(120).taken in {0, 5}


def test_a_partition_has_one_inbox(
    opened: Open, source: tuple[Description, SourceSettings]
) -> None:
    opened()
    with pytest.raises(AlreadyWriting):
        Inbox(source[0], 0, source[1])


def test_columns_that_were_added_are_taken(
    opened: Open, tmp_path: Path, source: tuple[Description, SourceSettings]
) -> None:
    inbox = opened()
    inbox.enqueue("a", range(2), batch(0, 2))
    wider = source[0].schema.append(pa.field("note", pa.string()))
    create(journal(tmp_path), wider, time="at")
    rows = pa.record_batch([*batch(2, 4).columns, pa.array(["x", "y"])], schema=wider)
    assert inbox.enqueue("a", range(2, 4), rows, after=1) == 2
    assert (
        inbox.enqueue("a", range(4, 6), batch(4, 6), after=3) == 2
    )  # who does not know of them goes on
    assert stored(tmp_path, column="note") == [[None, None, "x", "y", None, None]]
    assert inbox.described(1).version == 1


def test_many_threads_send_at_once(opened: Open, tmp_path: Path) -> None:
    inbox = opened(capacity=Capacity(rows=50))

    def send(sender: str) -> None:
        done = 0
        while done < 100:
            done += inbox.enqueue(
                sender, range(done, min(100, done + 9)), batch(done, min(100, done + 9))
            )

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,) = stored(tmp_path)
    assert sorted(found) == sorted([*range(100)] * 4)
    assert inbox.statistics().senders == 4
