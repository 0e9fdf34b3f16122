"""Two clients under one name, while the process that has the inboxes is killed: one of them has the name, and no row is lost."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.errors import SenderReplaced
from millstream.journal import journal_at
from millstream.links.client import Client, connect
from support.links import TARGET, declare, journal, rows, stored, wait_for
from support.links_service import Other

NAME, BLOCK = "till", 10


def claimed(data: Path) -> int:
    return journal_at(journal(data)).claims(0).known[NAME].incarnation


def incarnation(client: Client) -> int:
    """Take the name, and return under which incarnation."""
    return client._target(TARGET).incarnation


@pytest.fixture
def hosts() -> Iterator[list[Other]]:
    hosts = [Other(), Other()]
    yield hosts
    for host in hosts:
        host.kill()


def test_a_client_that_was_replaced_before_a_kill_is_replaced_after_it(
    tmp_path: Path, hosts: list[Other]
) -> None:
    declare(tmp_path)
    address = hosts[0].open(str(tmp_path))
    older, newer = (connect(address, sender=NAME) for _ in range(2))
    older.send(TARGET, rows(0, 5), numbers=range(5))
    mine = incarnation(newer)
    hosts[0].kill()
    assert hosts[1].open(str(tmp_path)) == address
    with pytest.raises(SenderReplaced):
        older.send(TARGET, rows(5, 9), numbers=range(5, 9))
    newer.send(TARGET, rows(5, 7), numbers=range(5, 7))
    older.abort()
    newer.close()
    assert (claimed(tmp_path), stored(tmp_path)) == (mine, [list(range(7))])


class Rivals:
    """Clients that take one name from each other, and note what was acknowledged to them."""

    def __init__(self, address: str, count: int) -> None:
        self.address = address
        self.acknowledged: set[int] = set()
        self.claims: set[int] = set()
        self._blocks, self._stop = itertools.count(), threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(SenderReplaced), connect(self.address, sender=NAME, timeout=100) as one:
                self.claims.add(incarnation(one))
                while not self._stop.is_set():
                    # After the claim: all that others have stored has lower numbers.
                    first = BLOCK * next(self._blocks)
                    numbers = range(first, first + BLOCK)
                    one.send(TARGET, rows(first, first + BLOCK), numbers=numbers)
                    self.acknowledged.update(numbers)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(200)
            assert not thread.is_alive()


@pytest.mark.slow
def test_clients_that_claim_one_name_during_kills_lose_and_double_nothing(
    tmp_path: Path, hosts: list[Other]
) -> None:
    chance = random.Random(7)
    declare(tmp_path)
    rivals = Rivals(hosts[0].open(str(tmp_path)), 2)
    try:
        for _ in range(8):
            before = len(rivals.claims)
            wait_for(lambda before=before: len(rivals.claims) > before + 3)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.05))  # any moment of a claim
            hosts.pop(0).kill()
            assert hosts[0].open(str(tmp_path)) == rivals.address
            hosts.append(Other())
    finally:
        rivals.stop()
    (found,) = stored(tmp_path)
    assert len(found) == len(set(found))
    assert found == sorted(found)
    assert rivals.acknowledged <= set(found)
    assert claimed(tmp_path) == max(rivals.claims)
