"""Real processes: killed at any moment, many at once, taking over from each other."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from millstream.journal.kinds.files.verify import verify
from millstream.links.client import connect
from millstream.links.host import read_address
from support.links import TARGET, declare, journal, pairs, row, rows, stored, wait_for
from support.links_producer import SPAN, TESTS, Producer
from support.links_service import Other


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.kill()


def check(data: Path, acknowledged: dict[int, int]) -> None:
    """Check that each row that was acknowledged is there, none is there twice, and those of a key are in order."""
    by_producer: dict[int, list[int]] = {number: [] for number in acknowledged}
    by_key: dict[tuple[int, str], list[int]] = {}
    for key, n in pairs(data):
        by_producer[n // SPAN].append(n % SPAN)
        by_key.setdefault((n // SPAN, key), []).append(n % SPAN)
    for number, found in by_producer.items():
        assert len(set(found)) == len(found), f"producer {number} has rows twice"
        assert set(range(acknowledged[number])) <= set(found), f"producer {number} has lost rows"
    for of, found in by_key.items():
        assert found == sorted(found), f"rows of {of} are out of order"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_killed_hosts_and_producers_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    kill_in_a_loop(tmp_path, random.Random(seed), kills=12)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_killed_hosts_and_producers_for_long(tmp_path: Path, seed: int) -> None:
    kill_in_a_loop(tmp_path, random.Random(seed), kills=60)


def kill_in_a_loop(data: Path, chance: random.Random, kills: int) -> None:
    declare(data, partitions=2)
    with ExitStack() as stack:
        # The next host is started before the last one dies: starting Python is slow.
        hosts = [Other(), Other()]
        stack.callback(lambda: [host.kill() for host in hosts])
        address = hosts[0].open(str(data))
        producers = {number: Producer(address, number) for number in range(2)}
        stack.callback(lambda: [producer.kill() for producer in producers.values()])
        wait_for(lambda: all(producer.acknowledged for producer in producers.values()))
        for _ in range(kills):
            time.sleep(chance.uniform(0.02, 0.4))
            told = {number: producer.acknowledged for number, producer in producers.items()}
            if chance.random() < 0.5:
                hosts.pop(0).kill()
                assert hosts[0].open(str(data)) == address
                hosts.append(Other())
            else:
                number = chance.randrange(2)
                producers[number].kill()
                producers[number].start(overlap=chance.choice([0, 35, 400]))
            check(data, told)
        check(data, {number: producer.stop() for number, producer in producers.items()})
        hosts[0].close()
        assert verify(journal(data)).damages == ()


def test_two_processes_over_ipc(tmp_path: Path, other: Other) -> None:
    declare(tmp_path, partitions=2)
    other.open(str(tmp_path))
    with connect(tmp_path) as client:
        assert client.send(TARGET, rows(0, 5000)) == 5000
        assert {one.transport for one in client.statistics()} == {"ipc"}
    assert sorted(n for part in stored(tmp_path) for n in part) == list(range(5000))


def test_a_producer_that_was_killed_adds_nothing_twice(
    tmp_path: Path, other: Other, request: pytest.FixtureRequest
) -> None:
    declare(tmp_path, partitions=2)
    producer = Producer(other.open(str(tmp_path)), 0)
    request.addfinalizer(producer.kill)
    for _ in range(3):
        before = producer.acknowledged
        wait_for(lambda before=before: producer.acknowledged > before + 50)  # type: ignore[misc]
        producer.kill()
        producer.acknowledged, known = 0, producer.acknowledged
        producer.start()  # from the beginning
        wait_for(lambda known=known: producer.acknowledged > known)  # type: ignore[misc]
    check(tmp_path, {0: producer.stop()})


def test_a_host_that_was_killed_keeps_its_port(tmp_path: Path) -> None:
    declare(tmp_path)
    first, second, third = Other(), Other(), Other()
    address = first.open(str(tmp_path))
    first.kill()
    assert second.open(str(tmp_path)) == address
    second.close()
    assert third.open(str(tmp_path)) == address
    second.end()
    third.end()


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_producers_at_once(tmp_path: Path, other: Other) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"cannot here: a process may have {hard} files open")
    declare(tmp_path, partitions=3)
    address = other.open(str(tmp_path))
    command = [sys.executable, "-m", "support.links_producer", "crowd", address]
    crowds = [
        subprocess.Popen(
            [*command, str(number), "250"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": TESTS},
        )
        for number in range(4)
    ]
    for crowd in crowds:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == b"ready\n"
    for crowd in crowds:
        crowd.communicate(b"go\n", timeout=240)
        assert crowd.returncode == 0
    found = sorted(n for part in stored(tmp_path) for n in part)
    assert found == [number * SPAN + n for number in range(4) for n in range(2500)]
    assert sum(one["senders"] for one in other.statistics()) >= 1000
    wait_for(lambda: other.cpu()[3] < 100)  # what they had open is closed


def test_clients_take_over_from_each_other(tmp_path: Path) -> None:
    """Three clients on one folder, with nobody running: the first hosts, and when it goes the next one does."""
    declare(tmp_path, partitions=2)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(connect(tmp_path, timeout=120.0))) for _ in range(3)]
        waiting = []
        for turn, client in enumerate(clients):
            for number, one in enumerate(clients[turn:]):
                base = 1000 * turn + 100 * number
                assert one.send(TARGET, rows(base, base + 50)) == 50
                waiting.append(one.send_nowait(TARGET, rows(base + 50, base + 100)))
            client.close()
            for future in waiting:
                assert future.result(120) == 50
    assert read_address(tmp_path / "f") is None
    expected = [
        1000 * turn + 100 * n + k for turn in range(3) for n in range(3 - turn) for k in range(100)
    ]
    assert sorted(n for part in stored(tmp_path) for n in part) == expected


def test_processes_take_over_from_each_other(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As above, in processes, and killed."""
    declare(tmp_path, partitions=2)
    producers = {number: Producer(str(tmp_path), number) for number in range(3)}
    for producer in producers.values():
        request.addfinalizer(producer.kill)
    wait_for(lambda: all(producer.acknowledged > 20 for producer in producers.values()))
    seen = {number: producer.acknowledged for number, producer in producers.items()}
    for number in (0, 1):
        producers[number].kill()
        rest = [producer for other, producer in producers.items() if other > number]
        before = [producer.acknowledged for producer in rest]
        wait_for(
            lambda: all(one.acknowledged > was + 100 for one, was in zip(rest, before, strict=True))  # noqa: B023
        )
        seen[number] = producers[number].acknowledged
    seen[2] = producers[2].stop()
    check(tmp_path, seen)


def test_nobody_reads_and_events_are_taken(tmp_path: Path, other: Other) -> None:
    """A dead consumer is no matter of an inbox: the journal keeps what it has not read."""
    declare(tmp_path)
    other.open(str(tmp_path))
    with connect(tmp_path) as client:
        for n in range(0, 20_000, 2000):
            client.send_nowait(TARGET, rows(n, n + 2000))
    (told,) = other.statistics()
    assert (told["rows"], told["waiting"]) == (20_000, 0)
    assert stored(tmp_path) == [list(range(20_000))]


def test_a_full_disk_stops_an_inbox_until_there_is_room(tmp_path: Path, other: Other) -> None:
    """A file system of a few megabytes, half of it taken by others."""
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(small)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot here: mount tmpfs: {done.stderr.decode().strip()}")
    try:
        fill_and_free(small, other)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def fill_and_free(small: Path, other: Other) -> None:
    declare(small, "origin string, n long, at timestamp, body string")
    address = other.open(str(small))
    given = [{**row(n), "body": "x" * 10_000} for n in range(300)]  # 3 MB
    with connect(address, timeout=120.0) as client:
        assert client.send(TARGET, row(1000)) == 1
        (small / "others").write_bytes(b"x" * (4 << 20))
        waiting = client.send_nowait(TARGET, given)
        wait_for(lambda: "No space left" in str(other.statistics()[0]["error"]))
        assert other.statistics()[0]["free"] == 0
        time.sleep(0.3)
        assert not waiting.done()
        (small / "others").unlink()
        assert waiting.result(120) == 300
        assert client.send(TARGET, row(1001)) == 1
    assert other.statistics()[0]["error"] is None
    assert stored(small) == [[1000, *range(300), 1001]]
    other.close()
