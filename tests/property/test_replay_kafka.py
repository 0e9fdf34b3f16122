"""Letters of a journal in Kafka, replayed by two hosts that are killed anywhere: each row is there once."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.dead.choice import letters_of
from millstream.dead.replay import Order, Replayer
from millstream.dead.ways import AsWriter
from millstream.errors import MillstreamError
from millstream.journal import DeadLetter, journal_at, journals_in, keep_journals
from millstream.journal.kind import Journal
from millstream.journal.letters import Letter, Mark, Row
from support.links import declare, journal, row

pytestmark = pytest.mark.kafka
LETTERS = 8


class Killed(BaseException):
    """The process is gone."""


class Host:
    """A host with a folder of its own, which can stop before its nth write."""

    def __init__(self, data: Path, address: str, prefix: str) -> None:
        self.data, self.left = data, -1
        keep_journals(data / "f" / "journals", address, prefix)
        declare(data, partitions=2)
        self._way = AsWriter(data / "f")

    @property
    def journal(self) -> Journal:
        return journal_at(journal(self.data))

    def letters(self) -> list[Letter]:
        return letters_of(journals_in(self.data / "f" / "journals"))

    def replay(self, letters: Sequence[Letter], dies_at: int = -1) -> bool:
        """Replay letters; tell whether it came to its end."""
        self.left = dies_at
        try:
            Replayer(self.data / "f", self).replay(letters, Order(late=True))
        except Killed:
            return False
        return True

    def writes(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        for one in rows:
            self.writes()
            self._way.send(source, sender, [one])

    def rows(self) -> list[int]:
        reader = self.journal.reader()
        parts = [reader.partition(n) for n in range(2)]
        read = [piece for part in parts for piece in part.read(part.begin, part.end, ["n"])]
        return sorted(n for one in read if one.batch for n in one.batch.column(0).to_pylist())


@pytest.fixture
def hosts(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Host]:
    from millstream.journal.kinds.kafka.letters import KafkaDeadLetters

    prefix = f"d-{uuid.uuid4().hex[:8]}"
    found = [Host(tmp_path / name, f"kafka://{kafka}", prefix) for name in ("a", "b")]
    by_path = {journal(one.data) / "dead": one for one in found}
    put = KafkaDeadLetters.put_marks

    def one_by_one(self: KafkaDeadLetters, marks: Sequence[Mark]) -> None:
        for mark in marks:
            by_path[self.path].writes()
            put(self, [mark])

    monkeypatch.setattr(KafkaDeadLetters, "put_marks", one_by_one)
    texts = [json.dumps(row(n), default=str) for n in range(LETTERS)]
    with found[0].journal.dead_letters() as dead:
        dead.put_all(DeadLetter("till", n, "no row", text) for n, text in enumerate(texts))
    return found


def test_each_row_is_there_once_whichever_host_is_killed_when(hosts: list[Host]) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for _ in range(6):
        host = chance.choice(hosts)
        host.replay(chance.sample(host.letters(), 3), dies_at=chance.randrange(9))
    assert hosts[1].replay(hosts[1].letters())
    for host in hosts:
        assert host.rows() == list(range(LETTERS)), seed
        assert {str(one.state) for one in host.letters()} == {"replayed"}, seed
        assert host.journal.dead_waiting() == {}, seed


def test_hosts_that_mark_at_once_agree(hosts: list[Host]) -> None:
    # They die when they begin to send: what is left are two sequences of marks in one topic. A host
    # whose journal the other takes over meanwhile is refused.
    found = hosts[0].letters()
    for one in hosts:
        one.letters()

    def begun(host: Host) -> None:
        with suppress(MillstreamError):
            host.replay(found, LETTERS + 2)

    threads = [threading.Thread(target=begun, args=(host,)) for host in hosts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for host in hosts:
        assert host.replay(host.letters())
    for host in hosts:
        assert host.rows() == list(range(LETTERS))
        assert {str(one.state) for one in host.letters()} == {"replayed"}
