"""Who has nothing to do uses no CPU, and what is closed leaves nothing behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from millstream.links.client import connect
from millstream.links.host import Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.listener import Security
from millstream.links.registered import REGISTERED
from support.links import TARGET, declare, hosted, row, wait_for
from support.links_producer import TESTS
from support.links_service import Other

SECONDS = 3.0


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.kill()


def test_idle_clients_and_listeners_sleep(
    tmp_path: Path, other: Other, record_property: pytest.RecordProperty
) -> None:
    declare(tmp_path, partitions=3)
    address = other.open(str(tmp_path))
    client = subprocess.Popen(
        [sys.executable, "-m", "support.links_producer", "idle", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": TESTS},
    )
    with client:
        assert client.stdin is not None
        assert client.stdout is not None

        def told() -> list[float]:
            client.stdin.write(b"?\n")
            client.stdin.flush()
            return [float(value) for value in client.stdout.readline().split()]

        assert client.stdout.readline() == b"ready\n"
        told()
        time.sleep(1.5)  # the leveller looks once after the last row
        before, host_before = told(), other.cpu()
        time.sleep(SECONDS)
        after, host_after = told(), other.cpu()
        client.stdin.close()
    for name, first, second in (("client", before, after), ("listener", host_before, host_after)):
        record_property(f"{name} cpu %", 100 * (second[0] - first[0]) / SECONDS)
        record_property(f"{name} switches/s", (second[1] - first[1]) / SECONDS)
        print(
            f"{name}: {100 * (second[0] - first[0]) / SECONDS:.2f} %, {(second[1] - first[1]) / SECONDS:.1f} switches/s"
        )
        assert (second[1] - first[1]) / SECONDS < 20


def opened() -> Counter[str]:
    """Return the threads of this process by name, and its open files by what they are."""
    gc.collect()
    found = Counter(one.name for one in threading.enumerate())
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them
            found[str(number.readlink()).partition(":[")[0]] += 1
    return found


def wait_until_closed(before: Counter[str]) -> None:
    """Wait until there are no more threads and files than before."""
    try:
        wait_for(lambda: opened().total() <= before.total(), limit_s=60)
    except AssertionError:
        raise AssertionError(f"left behind: {dict(opened() - before)}") from None


def alone(function: Callable[..., None], *given: object) -> None:
    """Call a function in a process of its own, in which nothing else opens files or starts threads."""
    code = (
        f"import sys; from integration.test_links_idle import *; {function.__name__}(*sys.argv[1:])"
    )
    environment = {**os.environ, "PYTHONPATH": TESTS}
    command = [sys.executable, "-c", code, *map(str, given)]
    subprocess.run(command, env=environment, check=True, timeout=240)


def open_clients(folder: str, address: str) -> None:
    with connect(address) as client:
        client.send(TARGET, row(0))
    before = opened()
    for n in range(200):
        client = connect(address if n % 2 else Path(folder))
        if n % 3:
            client.send_nowait(TARGET, row(n))
        if n % 5:
            client.close()
        else:
            client.abort()
    wait_until_closed(before)


def test_closed_clients_leave_nothing_behind(tmp_path: Path, other: Other) -> None:
    declare(tmp_path)
    address = other.open(str(tmp_path))
    with connect(address) as client:
        client.send(TARGET, row(0))
    there = other.cpu()
    alone(open_clients, tmp_path, address)
    wait_for(lambda: other.cpu()[3] <= there[3] and other.cpu()[2] <= there[2])


def open_hosts(place: str) -> None:
    folder = Path(place)
    declare(folder, partitions=2)
    engine, till = new_keys(folder / "keys", "engine"), new_keys(folder / "producers", "till")
    security = Security.read(read_key(engine.secret), till.public.parent)
    with closing(hosted(folder, Listening(security=security))), connect(folder) as client:
        client.send(TARGET, row(0))
    before = opened()
    for n in range(50):
        with closing(hosted(folder, Listening(security=security if n % 5 == 0 else None))):
            if n % 2:
                with connect(folder) as client:
                    client.send(TARGET, row(n))
        with connect(folder) as client:  # which hosts them itself
            client.send(TARGET, row(n))
    wait_until_closed(before)
    assert not REGISTERED


def test_closed_hosts_leave_nothing_behind(tmp_path: Path) -> None:
    alone(open_hosts, tmp_path)
    assert [file.name for file in (tmp_path / "f").iterdir() if file.is_socket()] == []
