"""Followers: real listeners, sockets and files, in one process."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import ingest
from millstream.clock import ManualClock, SystemClock
from millstream.journal import Kind
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.replica_source import ReplicaSource
from millstream.journal.kinds.files.retention import commit, committed, trim
from millstream.journal.kinds.files.writer import Writer
from millstream.links.client import Client
from millstream.links.follower import Follower
from millstream.links.host import Host, Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.levels import Levels
from millstream.links.listener import Security
from millstream.links.network import Address
from millstream.links.registered import REGISTERED
from property.test_mirror import compare
from support.links import (
    NOON,
    TARGET,
    batch,
    declare,
    entries,
    hosted,
    journal,
    rows,
    stored,
    wait_for,
)


@contextmanager
def following(copy: Path, host: Host, **options: Any) -> Iterator[Follower]:
    """A follower of partition 0 of f.s."""
    follower = Follower(journal(copy), TARGET, 0, lambda: host.address, wait_s=2.0, **options)
    follower.start()
    try:
        yield follower
    finally:
        follower.stop()


@pytest.fixture
def there(tmp_path: Path) -> Path:
    declare(tmp_path / "there")
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def host(there: Path) -> Iterator[Host]:
    found = hosted(there)
    yield found
    found.close()


def send(host: Host, begin: int, end: int) -> None:
    assert host.inbox("s").enqueue("p", range(begin, end), batch(begin, end)) == end - begin


def over_tcp(host: Host) -> Address:
    """Let the host be reached by its socket alone, as if it were in another process of another host."""
    REGISTERED.pop(host.address.port, None)
    return Address(host.address.ip, host.address.port)


def caught_up(follower: Follower, host: Host) -> Callable[[], bool]:
    return lambda: (
        follower.statistics().end == host.inbox("s")._store.writer.end
        and follower.statistics().live
    )


@pytest.mark.parametrize("way", ["local", "ipc"])
def test_rows_come_as_they_are_written(there: Path, here: Path, host: Host, way: str) -> None:
    at = host.address
    if way == "ipc":
        REGISTERED.pop(at.port)
    send(host, 0, 100)
    follower = Follower(journal(here), TARGET, 0, at, wait_s=2.0)
    follower.start()
    try:
        wait_for(caught_up(follower, host))
        assert follower.statistics().transport == way
        for n in range(100, 150):
            send(host, n, n + 1)
        wait_for(caught_up(follower, host))
        compare(journal(there), journal(here))
        assert stored(here) == [list(range(150))]
        assert follower.statistics().behind_bytes == 0
        assert follower.statistics().error is None
    finally:
        follower.stop()


def test_the_engines_of_a_cluster_follow_with_their_key_and_producers_do_not(
    there: Path, here: Path
) -> None:
    files = {name: new_keys(here / "keys", name) for name in ("engine", "producer")}
    (here / "known").mkdir()
    shutil.copy(files["producer"].public, here / "known")
    own, producer = (read_key(files[name].secret) for name in ("engine", "producer"))
    host = hosted(there, Listening(security=Security.read(own, here / "known")))
    try:
        at = over_tcp(host)
        send(host, 0, 10)
        refused = Follower(journal(here / "a"), TARGET, 0, at, keys=producer, server=own.public)
        follower = Follower(journal(here / "b"), TARGET, 0, at, keys=own, server=own.public)
        refused.start()
        follower.start()
        wait_for(lambda: stored_or_none(here / "b") == [list(range(10))])
        wait_for(lambda: refused.statistics().error)
        assert 'producer "producer" may not follow' in str(refused.statistics().error)
        assert refused.statistics().end == 0
        refused.stop()
        follower.stop()
    finally:
        host.close()


def stored_or_none(data: Path) -> list[list[int]] | None:
    return stored(data) if (journal(data) / "journal.json").exists() else None


def test_an_idle_follower_asks_for_nothing_and_a_row_wakes_it_at_once(
    here: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    after = ReplicaSource.after
    monkeypatch.setattr(
        ReplicaSource,
        "after",
        lambda self, reached: asked.append(reached.end) or after(self, reached),
    )
    with following(here, host) as follower:
        wait_for(caught_up(follower, host))
        time.sleep(0.1)
        asked.clear()
        time.sleep(1.0)
        assert len(asked) <= 2
        took = []
        for n in range(20):
            began = time.monotonic()
            send(host, n, n + 1)
            wait_for(lambda: follower.statistics().end == n + 1)  # noqa: B023
            took.append(time.monotonic() - began)
        assert sorted(took)[3] < 0.5


def test_a_host_that_goes_and_comes_is_followed_on(there: Path, here: Path) -> None:
    hosts = [hosted(there)]
    send(hosts[0], 0, 10)
    follower = Follower(journal(here), TARGET, 0, lambda: hosts[-1].address, wait_s=2.0)
    follower.start()
    try:
        wait_for(lambda: follower.statistics().end == 10)
        hosts[0].close()
        wait_for(lambda: not follower.statistics().live)
        hosts.append(hosted(there))
        send(hosts[-1], 10, 20)
        wait_for(caught_up(follower, hosts[-1]))
        compare(journal(there), journal(here))
    finally:
        follower.stop()
        hosts[-1].close()


def test_a_widened_journal_and_an_end_are_followed(there: Path, here: Path, host: Host) -> None:
    with following(here, host) as follower:
        send(host, 0, 5)
        wait_for(caught_up(follower, host))
        declare(there, "origin string, n long, at timestamp, more string")
        with Client(host.address) as client:
            client.send(TARGET, [{**row, "more": "x"} for row in rows(5, 10)])
            client.end(TARGET)
        wait_for(lambda: follower.progress().ended)
    compare(journal(there), journal(here))
    assert describe(journal(here)).schema.names[-1] == "more"
    assert stored(here) == [list(range(10))]


def test_a_copy_is_complete_after_any_order_of_stops_on_both_sides(there: Path, here: Path) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        shutil.rmtree(here, ignore_errors=True)
        writer = Stopping(there, chance, first=seed * 2_000)
        writer.start()
        while writer.is_alive():
            follower = Follower(journal(here), TARGET, 0, writer.address, wait_s=1.0)
            follower.start()
            time.sleep(chance.random() * 0.3)
            follower.stop()
        host = hosted(there)
        with following(here, host) as follower:
            wait_for(caught_up(follower, host))
        host.close()
        compare(journal(there), journal(here))
    found = stored(here)[0]
    assert found == sorted(set(found))
    assert set(writer.sent) <= set(found)


class Stopping(threading.Thread):
    """Sends rows to a host that is closed, cleanly or not, and opened again, now and then."""

    def __init__(self, data: Path, chance: random.Random, first: int) -> None:
        super().__init__()
        self._data, self._chance, self._next = data, chance, first
        self._host = hosted(data)
        self._at = self._host.address
        self.sent: list[int] = []

    def address(self) -> Address:
        return self._at

    def run(self) -> None:
        for _ in range(8):
            for _ in range(self._chance.randint(1, 15)):
                count = self._chance.randint(1, 60)
                send(self._host, self._next, self._next + count)
                self.sent += range(self._next, self._next + count)
                self._next += count
            if self._chance.random() < 0.5:
                self._host.inbox("s").abort()
            self._host.close()
            time.sleep(self._chance.random() * 0.1)
            self._host = hosted(self._data)
            self._at = self._host.address
        self._host.close()


def test_readers_go_on_when_all_is_here_again_that_they_had_read(
    here: Path, there: Path, host: Host
) -> None:
    send(host, 0, 100)
    commit(journal(here), "f.g", [100])
    follower = Follower(journal(here), TARGET, 0, lambda: host.address, wait_s=2.0)
    assert not follower.met()
    follower.start()
    assert follower.met(10)
    assert follower.statistics().end == 100
    follower.stop()
    compare(journal(there), journal(here))
    commit(journal(here), "f.g", [101])
    with following(here, host) as follower:
        wait_for(caught_up(follower, host))
        assert not follower.met()
        send(host, 100, 101)
        assert follower.met(10)


# what is removed


def test_the_owner_removes_what_the_readers_of_the_copy_have_passed(
    there: Path, here: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.inbox("s")._store.writer._log, "_segment_bytes", 2_000)
    with following(here, host, passed_every_s=0.05) as follower:
        for n in range(0, 400, 40):
            send(host, n, n + 40)
        wait_for(caught_up(follower, host))
        commit(journal(here), "f.g", [200])
        send(host, 400, 401)
        wait_for(lambda: [one.positions for one in committed(journal(there))] == [{0: 200}])
        assert Reader(journal(there)).partition(0).begin == 0
        trim(journal(here), keep_bytes=0)
        begin = Reader(journal(here)).partition(0).begin
        assert 0 < begin <= 200
        send(host, 401, 402)
        wait_for(lambda: Reader(journal(there)).partition(0).begin == begin)


def test_a_host_restored_from_an_older_backup_is_an_error_that_names_both_ends(
    there: Path, here: Path
) -> None:
    host = hosted(there)
    send(host, 0, 10)
    host.close()
    shutil.copytree(there, there.with_name("backup"))
    host = hosted(there)
    send(host, 10, 30)
    with following(here, host) as follower:
        wait_for(lambda: follower.statistics().end == 30)
    host.close()
    shutil.rmtree(there)
    shutil.copytree(there.with_name("backup"), there)
    host = hosted(there)
    with following(here, host) as follower:
        wait_for(lambda: follower.statistics().error)
        assert "it ends at 10, its copy at 30" in str(follower.statistics().error)
        assert str(journal(there)) in str(follower.statistics().error)
        send(host, 10, 50)
        wait_for(lambda: "is not that of its copy" in str(follower.statistics().error))
    host.close()
    assert stored(here) == [list(range(30))]


# idle partitions


def test_an_idle_partition_elsewhere_is_given_a_floor_by_its_owner(
    there: Path, here: Path, host: Host
) -> None:
    clock = ManualClock(SystemClock().now_us())
    with following(here, host, clock=clock) as follower, near(here, clock) as (inbox, settings):
        watch = Levels(clock)
        follower.on_rows = lambda: None
        send(host, 0, 10)
        wait_for(caught_up(follower, host))
        clock.advance_us(10_000_000_000)
        assert inbox.enqueue("p", range(3_600, 3_601), batch(3_600, 3_601)) == 1
        watch._watched = {TARGET: ((inbox, follower), settings)}
        watch.level()
        wait_for(lambda: [kind for kind, _, _ in entries(there)][-1] is Kind.IDLE)
        expected = (
            int((NOON + timedelta(seconds=3_600) - settings.lateness).timestamp()) * 1_000_000
        )
        wait_for(lambda: follower.progress().floor == expected)
        watch.level()
        time.sleep(0.2)
        assert [kind for kind, _, _ in entries(there)].count(Kind.IDLE) == 1


@contextmanager
def near(data: Path, clock: ManualClock) -> Iterator[tuple[Any, ingest.SourceSettings]]:
    """Another partition of the same source, as the driver's engine would have it."""
    from millstream.links.inbox import Inbox

    description, settings = declare(data / "near", partitions=2)
    inbox = Inbox(description, 1, settings, clock=clock)
    try:
        yield inbox, settings
    finally:
        inbox.close()


def test_a_floor_is_not_written_over_rows_that_have_just_come(there: Path, host: Host) -> None:
    send(host, 0, 10)
    inbox = host.inbox("s")
    assert not inbox.idleness.level_at(1_000_000, 9)
    assert [kind for kind, _, _ in entries(there)] == [Kind.ROWS]
    assert inbox.idleness.level_at(1_000_000, 10)
    wait_for(lambda: [kind for kind, _, _ in entries(there)] == [Kind.ROWS, Kind.IDLE])


def test_a_partition_whose_owner_is_away_is_not_idle_and_starts_anew_when_it_is_back(
    there: Path, here: Path
) -> None:
    clock = ManualClock(1_000_000_000)
    hosts = [hosted(there)]
    follower = Follower(
        journal(here), TARGET, 0, lambda: hosts[-1].address, wait_s=2.0, clock=clock
    )
    news: list[int] = []
    follower.on_rows = lambda: news.append(1)
    follower.start()
    try:
        wait_for(lambda: follower.statistics().live)
        clock.advance_us(60_000_000)
        assert clock.now_us() - follower.progress().rows_at_us == 60_000_000
        hosts[0].close()
        wait_for(lambda: not follower.statistics().live)
        clock.advance_us(60_000_000)
        assert follower.progress().rows_at_us == clock.now_us()
        news.clear()
        hosts.append(hosted(there))
        wait_for(lambda: follower.statistics().live)
        assert news
        clock.advance_us(5)
        assert clock.now_us() - follower.progress().rows_at_us == 5
    finally:
        follower.stop()
        hosts[-1].close()


def test_a_floor_that_was_refused_is_looked_at_again(here: Path, host: Host) -> None:
    with following(here, host) as follower:
        send(host, 0, 10)
        wait_for(caught_up(follower, host))
        news = threading.Event()
        follower.on_rows = news.set
        follower._state.position = 3  # as if it had not seen the rest yet
        follower.level(1_000_000)
        assert news.wait(120)


def test_nobody_writes_into_a_copy(here: Path, host: Host) -> None:
    with following(here, host) as follower:
        wait_for(lambda: follower.met())
    with pytest.raises(Exception, match="is a copy of the one at"):
        Writer.open(journal(here))
