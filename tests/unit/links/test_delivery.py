"""Epochs of groups elsewhere get into the inboxes of a source whole and once, whoever is away for a while."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import CorruptStaging, Ended, NoAnswer, SchemaConflict
from millstream.journal import Kind, Staged
from millstream.journal.kinds.files.commit_queue import CommitQueue
from millstream.journal.kinds.files.layout import staged_folder
from millstream.links import envelope
from millstream.links.client import Client
from millstream.links.delivery import Delivery
from millstream.links.host import Listening
from millstream.links.inbox import Inbox
from millstream.links.inbox_store import Capacity
from support.links import NOON, TARGET, batch, declare, entries, hosted, journal, letters, stored

SENDER = "a/hourly/1f/out"


def staged_in(data: Path) -> list[str]:
    folder = staged_folder(journal(data))
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def broken() -> pa.RecordBatch:
    """Three rows, of which one has no time, one no key, and one is from the future."""
    far = NOON + timedelta(days=40_000)
    columns = [
        pa.array(["k1", None, "k2"]),
        pa.array([1, 2, 3], pa.int64()),
        pa.array([None, NOON, far], pa.timestamp("us", "UTC")),
    ]
    return pa.record_batch(columns, names=["origin", "n", "at"])


# the inbox


def test_an_epoch_is_there_once_however_often_it_is_published(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        staged = [
            *inbox.epochs.stage(SENDER, 4, [batch(0, 3)]),
            *inbox.epochs.stage(SENDER, 4, [batch(3, 5)]),
        ]
        lost = inbox.epochs.stage(SENDER, 4, [batch(0, 3)])  # the answer never came
        assert stored(tmp_path) == [[]]
        assert inbox.epochs.publish(SENDER, 4, staged) == 5
        assert inbox.epochs.publish(SENDER, 4, staged) == 0
        assert inbox.epochs.stage(SENDER, 4, [batch(0, 3)]) == []
        assert inbox.statistics().rows == 5
    assert lost
    assert staged_in(tmp_path) == []
    assert entries(tmp_path) == [(Kind.ROWS, 5, SENDER)]
    assert stored(tmp_path) == [[0, 1, 2, 3, 4]]


def test_an_epoch_that_was_published_before_a_restart_is_known_after_it(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        staged = inbox.epochs.stage(SENDER, 0, [batch(0, 3)])
    with closing(Inbox(description, 0, settings)) as inbox:
        assert staged_in(tmp_path) == [staged[0].file], "a decision may name it"
        assert inbox.epochs.publish(SENDER, 0, staged) == 3
    with closing(Inbox(description, 0, settings)) as inbox:
        assert inbox.epochs.publish(SENDER, 0, staged) == 0
    assert stored(tmp_path) == [[0, 1, 2]]


def test_rows_that_break_the_rules_become_dead_letters_each_once(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        for epoch in (0, 1):
            staged = inbox.epochs.stage(SENDER, epoch, [broken(), batch(epoch, epoch + 1)])
            assert letters(tmp_path)[3 * epoch :] == [], "nothing is decided yet"
            assert inbox.epochs.publish(SENDER, epoch, staged) == 1
            assert inbox.epochs.publish(SENDER, epoch, staged) == 0
        assert inbox.statistics().refused == 6
    assert stored(tmp_path) == [[0, 1]]
    found = letters(tmp_path)
    assert [number for number, _ in found] == [0, 1, 2, 1 << 32, (1 << 32) + 1, (1 << 32) + 2]
    assert [reason.split(",")[0][:17] for _, reason in found[:3]] == [
        'time "at" is null',
        'key "origin" is n',
        'time "at" is 2135',
    ]


def test_an_epoch_of_nothing_but_refused_rows_may_be_published_again(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        staged = inbox.epochs.stage(SENDER, 0, [broken()])
        for _ in range(2):
            assert inbox.epochs.publish(SENDER, 0, staged) == 0
        assert len(letters(tmp_path)) == 3
        assert inbox.epochs.publish(SENDER, 1, inbox.epochs.stage(SENDER, 1, [batch(0, 1)])) == 1
    assert staged_in(tmp_path) == []


def test_an_inbox_does_not_publish_what_it_has_not_staged(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        (mine,) = inbox.epochs.stage(SENDER, 0, [batch(0, 1)])
        for sender, item in (("other", mine), (SENDER, replace(mine, file=f"x{mine.file}"))):
            with pytest.raises(CorruptStaging):
                inbox.epochs.publish(sender, 0, [item])
        assert inbox.epochs.publish(SENDER, 0, [mine]) == 1
        with pytest.raises(CorruptStaging, match="is gone"):
            inbox.epochs.publish(
                SENDER, 1, [replace(mine, file=mine.file.replace("-0-0-", "-1-0-"))]
            )
        assert inbox.statistics().waiting == 0, "what failed waits for nothing"
        assert inbox.enqueue("client", range(1), batch(5, 6)) == 1


def test_an_epoch_larger_than_all_room_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders that find the disk busy must not wait with the inbox locked: the disk's answers need it too."""
    monkeypatch.setattr("millstream.journal.kinds.files.commit_queue.QUEUE_BYTES", 4000)
    monkeypatch.setattr("millstream.journal.kinds.files.commit_queue.QUEUE_LENGTH", 4)
    description, settings = declare(tmp_path)
    inbox = Inbox(description, 0, settings, capacity=Capacity(bytes=2000, requests=2))
    epochs = [(epoch, inbox.epochs.stage(SENDER, epoch, [batch(0, 2000)])) for epoch in range(10)]

    def send(name: str) -> None:
        at = 0
        while at < 60:
            at += inbox.enqueue(name, range(at, at + 2), batch(at, at + 2))

    with closing(inbox), ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(send, f"client {number}") for number in range(3)]
        published = pool.submit(lambda: [inbox.epochs.publish(SENDER, *one) for one in epochs])
        assert published.result(120) == [2000] * 10
        for client in clients:
            client.result(120)
    assert len(stored(tmp_path)[0]) == 20_000 + 3 * 60


def test_a_disk_that_refuses_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as host, closing(Client(str(host.address))) as client:
        delivery = Delivery(client, TARGET, SENDER, 0)
        staged = delivery.stage([batch(0, 3)])
        commits = [OSError(28, "no space left")]
        commit = CommitQueue.commit_queued

        def failing(queue: CommitQueue) -> None:
            if commits:
                monkeypatch.setattr(queue._log, "commit", _raising(commits.pop()))
            commit(queue)

        monkeypatch.setattr(CommitQueue, "commit_queued", failing)
        assert delivery.publish(staged) == 3
    assert stored(tmp_path) == [[0, 1, 2]]


def _raising(error: BaseException) -> Any:
    def call(*_: Any) -> None:
        raise error

    return call


# the way there


def test_rows_are_staged_where_their_keys_belong_and_published_in_all_partitions(
    tmp_path: Path,
) -> None:
    declare(tmp_path, partitions=3)
    with closing(hosted(tmp_path)) as host, closing(Client(tmp_path)) as client:
        delivery = Delivery(client, TARGET, SENDER, 0)
        staged = [*delivery.stage([batch(0, 40), batch(40, 50)]), *delivery.stage([batch(50, 60)])]
        assert {item.partition for item in staged} == {0, 1, 2}
        assert delivery.publish(staged) == 60
        assert delivery.publish(staged) == 0
        client.send(TARGET, batch(60, 100))
        assert host.inbox("s", 0).statistics().rows > 0
    found = stored(tmp_path)
    assert sorted(n for part in found for n in part) == list(range(100))
    by_key = {n % 7: {number for number, part in enumerate(found) if n in part} for n in range(100)}
    assert all(len(parts) == 1 for parts in by_key.values()), (
        "a key is in one partition, whoever sends it"
    )


def test_without_a_key_a_task_fills_one_partition(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2, key=None)
    with closing(hosted(tmp_path)), closing(Client(tmp_path)) as client:
        delivery = Delivery(client, TARGET, SENDER, 0)
        staged = [*delivery.stage([batch(0, 3)], 3), *delivery.stage([batch(3, 4)], 4)]
        assert delivery.publish(staged) == 4
    assert stored(tmp_path) == [[3], [0, 1, 2]]


def test_much_is_staged_in_pieces_that_can_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.links.delivery.PIECE_BYTES", 3000)
    declare(tmp_path)
    with closing(hosted(tmp_path)), closing(Client(tmp_path)) as client:
        delivery = Delivery(client, TARGET, SENDER, 0)
        staged = delivery.stage([batch(0, 500), *(batch(n, n + 1) for n in range(500, 700))])
        assert 5 < len(staged) < 20
        assert delivery.publish(staged) == 700
    assert stored(tmp_path) == [list(range(700))]
    assert len(entries(tmp_path)) == 1


def test_columns_that_the_source_does_not_have_are_refused_before_anything_is_staged(
    tmp_path: Path,
) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)), closing(Client(tmp_path)) as client:
        rows = batch(0, 2).append_column("more", pa.array([1, 2]))
        with pytest.raises(SchemaConflict, match="more"):
            Delivery(client, TARGET, SENDER, 0).stage([rows])
        assert Delivery(client, TARGET, SENDER, 0).stage([batch(0, 2).select(["at", "origin"])])


@pytest.mark.parametrize("at", ["staged", "published in part"])
def test_a_host_that_comes_back_has_the_epoch_once(tmp_path: Path, at: str) -> None:
    declare(tmp_path, partitions=2)
    host = hosted(tmp_path)
    address = host.address
    client = Client(str(address))
    delivery = Delivery(client, TARGET, SENDER, 0)
    staged = delivery.stage([batch(0, 20)])
    if at != "staged":
        assert 0 < delivery.publish([item for item in staged if item.partition == 0]) < 20
    host.close()
    with pytest.raises(NoAnswer):
        Delivery(client, TARGET, SENDER, 0, timeout=0.5).publish(staged)

    def come_back() -> None:
        time.sleep(0.7)
        back.append(hosted(tmp_path, Listening(port=address.port)))

    back: list[Any] = []
    thread = threading.Thread(target=come_back)
    thread.start()
    delivery.publish(staged)
    thread.join()
    assert delivery.publish(staged) == 0
    client.close()
    back[0].close()
    assert sorted(n for part in stored(tmp_path) for n in part) == list(range(20))
    assert len(entries(tmp_path)) == 2


def test_a_source_that_has_ended_takes_no_new_epoch(tmp_path: Path) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)), closing(Client(tmp_path, sender="x")) as client:
        old = Delivery(client, TARGET, SENDER, 0)
        first, second = (
            old.stage([batch(0, 1)]),
            Delivery(client, TARGET, SENDER, 1).stage([batch(1, 2)]),
        )
        old.publish(first)
        client.end(TARGET)
        assert old.publish(first) == 0
        with pytest.raises(Ended):
            Delivery(client, TARGET, SENDER, 1).publish(second)


def test_too_many_tasks_at_once_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.links.listener._STAGING", 1)
    declare(tmp_path)
    with closing(hosted(tmp_path)) as host, ThreadPoolExecutor(4) as pool:

        def task(number: int) -> list[Staged]:
            with Client(str(host.address)) as client:
                return Delivery(client, TARGET, SENDER, 0).stage([batch(number, number + 1)])

        staged = [item for found in pool.map(task, range(8)) for item in found]
        with Client(tmp_path) as client:
            assert Delivery(client, TARGET, SENDER, 0).publish(staged) == 8
    assert sorted(stored(tmp_path)[0]) == list(range(8))


# the wire


def test_what_is_staged_travels_as_it_is(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)) as inbox:
        staged = inbox.epochs.stage(SENDER, 0, [batch(0, 3), broken()])
    frame = envelope.encode(envelope.Publish(1, TARGET, 0, SENDER, 0, envelope.staged_rows(staged)))
    request = envelope.decode_request(frame)
    assert isinstance(request, envelope.Publish)
    assert envelope.staged_items(request.staged) == staged
