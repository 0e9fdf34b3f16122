"""What a connection may ask for that has no key: rows are taken, and nothing else is done."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zmq

from millstream.errors import LinkBroken, LinkError, NoAnswer, NotAllowed
from millstream.ingest import Refused
from millstream.journal import journal_at
from millstream.journal.kinds.files.replica_chunk import Reached
from millstream.journal.kinds.files.retention import committed
from millstream.links import envelope, follow
from millstream.links.client import Client, connect
from millstream.links.host import Host, Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.listener import Security
from millstream.links.registered import REGISTERED
from support.links import (
    NOON,
    TARGET,
    batch,
    declare,
    entries,
    hosted,
    journal,
    letters,
    rows,
    stored,
    wait_for,
)
from support.links_service import TESTS

NOBODY = 65534


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    declare(tmp_path)
    host = hosted(tmp_path)
    with connect(tmp_path) as client:
        client.send(TARGET, rows(0, 100))
    yield host
    host.close()


def requests() -> list[tuple[envelope.Request, Any]]:
    """Return what somebody may want of an inbox beside sending rows, with a body."""
    reached = follow.CopyReached.of(Reached())
    staged = envelope.StagedRows("x", 0, 1, 1, 1, None, None, 1, 0)
    return [
        (follow.Follow(1, TARGET, 0, reached, 0.0), None),
        (follow.Passed(2, TARGET, 0, {}, 50), None),
        (follow.Level(3, TARGET, 0, 1 << 61, 100), None),
        (envelope.PutDeadLetter(4, TARGET, 0, "till-1", [(1, "no", "{}")]), None),
        (envelope.Instruct(5, TARGET, 0, "x", -1, 0, "END_OF_STREAM"), None),
        (envelope.Instruct(6, TARGET, 0, "x", -1, 0, "WATERMARK", 1 << 61), None),
        (envelope.Stage(7, TARGET, 0, "x", 1, 5, 0), batch(0, 5).serialize().to_pybytes()),
        (envelope.Publish(8, TARGET, 0, "x", 1, [staged]), None),
    ]


def answers(address: str) -> list[envelope.Answer]:
    """Ask for all of it over TCP, last of all that rows are taken; return the answers."""
    header = envelope.Rows(9, TARGET, 0, "x", -1, 0, 5, 0)
    found = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(address)
        for request, body in [*requests(), (header, batch(100, 105).serialize().to_pybytes())]:
            sock.send_multipart(envelope.frames_of(request, body))
            assert sock.poll(60_000), f"no answer to {request}"
            found.append(envelope.decode_answer(sock.recv_multipart()[0]))
    return found


def check(found: list[envelope.Answer], data: Path) -> None:
    *refused, taken = found
    assert [one.error for one in refused if isinstance(one, envelope.Refusal)] == (
        ["NotAllowed"] * len(requests())
    )
    assert isinstance(taken, envelope.TakenAnswer)
    assert taken.taken == 5
    assert stored(data) == [list(range(105))]
    assert {kind.name for kind, _, _ in entries(data)} == {"ROWS"}
    assert letters(data) == []
    assert [one.reader for one in committed(journal(data))] == ["group"]


def test_a_connection_without_a_key_may_send_rows_and_nothing_else(
    host: Host, tmp_path: Path
) -> None:
    journal_at(journal(tmp_path)).commit_for(0, {"group": 10})
    check(answers(str(host.address)), tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="cannot here: only root becomes another user")
def test_neither_does_another_user_of_this_host(host: Host, tmp_path: Path) -> None:
    journal_at(journal(tmp_path)).commit_for(0, {"group": 10})
    program = f"""if True:
        import os, pickle, sys
        from integration.test_links_rights import answers
        os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
        sys.stdout.buffer.write(pickle.dumps(answers("{host.address}")))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": TESTS},
        stdout=subprocess.PIPE,
        check=True,
        timeout=240,
    )
    check(pickle.loads(done.stdout), tmp_path)


def test_the_owner_may_do_it_all_by_the_same_address(host: Host, tmp_path: Path) -> None:
    with connect(str(host.address)) as client:
        client.send(TARGET, rows(100, 105))
        client.end(TARGET)
    assert entries(tmp_path)[-1][0].name == "END_OF_STREAM"


def test_a_client_without_a_key_hears_what_it_may_not(host: Host, tmp_path: Path) -> None:
    (tmp_path / "f" / f"inbox_{host.address.port}").unlink()
    program = f"""if True:
        from millstream.errors import NotAllowed
        import millstream as ms
        with ms.connect("{host.address}") as c:
            try:
                c.end("f.s")
            except NotAllowed as error:
                print(error, "|", error.hint)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=240, text=True
    )
    assert done.stdout.startswith('a connection without a key may not end or advance "f.s" |')


# keys


class Keyed:
    """A host of f.s that knows the keys in a folder."""

    def __init__(self, data: Path, **grants: str) -> None:
        self.data, self.producers = data, data / "producers"
        self.engine = new_keys(data / "keys", "engine")
        self.files = {name: new_keys(self.producers, name) for name in grants}
        for name, lines in grants.items():
            self.grant(name, lines)
        declare(data)
        self.host: Host | None = None

    def grant(self, name: str, lines: str) -> None:
        with self.files[name].public.open("a") as file:
            file.write(lines + "\n")

    def open(self) -> None:
        security = Security.read(read_key(self.engine.secret), self.producers)
        self.host = hosted(self.data, Listening(security=security))
        REGISTERED.pop(self.host.address.port)  # as if it were in another process
        (self.data / "f" / f"inbox_{self.host.address.port}").unlink()

    def connect(self, name: str, **named: Any) -> Client:
        assert self.host is not None
        key = self.files[name].secret
        return connect(str(self.host.address), key=key, server=self.engine.public, **named)


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Keyed]:
    keyed = Keyed(tmp_path, till="", evil="", clock='may = "rows, end, watermark"')
    keyed.open()
    yield keyed
    assert keyed.host is not None
    keyed.host.close()


def test_a_key_sends_under_names_that_begin_with_its_own(keyed: Keyed) -> None:
    with keyed.connect("evil", sender="till-1") as evil:
        with pytest.raises(NotAllowed, match='"evil" may not send as "till-1"') as found:
            evil.send(TARGET, rows(0, 1), numbers=[1 << 61])
        assert "begin the sender's name with" in str(found.value.hint)
        with pytest.raises(NotAllowed):
            evil.refuse(TARGET, [Refused(1, "no", "{}")])
    with keyed.connect("till", sender="till-1") as till:
        assert till.send(TARGET, rows(0, 5), numbers=range(5)) == 5
    with keyed.connect("evil") as evil:
        assert evil.send(TARGET, rows(5, 6)) == 1
    assert stored(keyed.data) == [[0, 1, 2, 3, 4, 5]]
    assert letters(keyed.data) == []


def test_ends_and_watermarks_are_permissions_of_their_own(keyed: Keyed) -> None:
    with keyed.connect("till") as till:
        till.send(TARGET, rows(0, 1))
        with pytest.raises(NotAllowed, match=r'"till" may not end "f.s"') as found:
            till.end(TARGET)
        assert 'may = "rows, end"' in str(found.value.hint)
        with pytest.raises(NotAllowed, match="may not declare a watermark"):
            till.watermark(TARGET, NOON)
    with keyed.connect("clock") as clock:
        with pytest.raises(LinkError, match=r"a watermark of .* is more than 1 d ahead"):
            clock.watermark(TARGET, datetime.now(UTC) + timedelta(days=30_000))
        clock.watermark(TARGET, NOON)
        clock.end(TARGET)
    assert [kind.name for kind, _, _ in entries(keyed.data)] == [
        "ROWS",
        "WATERMARK",
        "END_OF_STREAM",
    ]


def test_a_key_that_is_removed_is_cut_off_and_a_new_one_let_in(keyed: Keyed) -> None:
    with keyed.connect("evil") as evil, keyed.connect("till") as till:
        evil.send(TARGET, rows(0, 1))
        till.send(TARGET, rows(1, 2))
        keyed.files["evil"].public.unlink()
        began = time.monotonic()
        wait_for(lambda: not sent(evil))
        assert time.monotonic() - began < 20  # half a second, where the machine is not busy
        with pytest.raises(NotAllowed, match="not known any more"):
            evil.send(TARGET, rows(0, 1))
        assert till.send(TARGET, rows(2, 3)) == 1
    with pytest.raises(NotAllowed), keyed.connect("evil") as evil:
        evil.send(TARGET, rows(0, 1))
    keyed.files["new"] = new_keys(keyed.producers, "new")
    with keyed.connect("new") as new:
        wait_for(lambda: sent(new))


def sent(client: Client) -> bool:
    try:
        return client.send(TARGET, rows(3, 4)) == 1
    except NotAllowed:
        return False


def test_a_sender_of_the_version_before_belongs_to_the_first_key_that_uses_it(
    tmp_path: Path,
) -> None:
    keyed = Keyed(tmp_path, till="", evil="")
    before = hosted(tmp_path)
    before.inbox("s").enqueue("cash", range(5), batch(0, 5))
    before.close()
    for _ in range(2):  # also after a restart
        keyed.open()
        try:
            with keyed.connect("till", sender="cash") as till:
                assert till.send(TARGET, rows(0, 6), numbers=range(6)) == 6
            with (
                keyed.connect("evil", sender="cash") as evil,
                pytest.raises(NotAllowed, match='may not send as "cash"'),
            ):
                evil.send(TARGET, rows(6, 7), numbers=[6])
        finally:
            assert keyed.host is not None
            keyed.host.close()
    assert stored(tmp_path) == [list(range(6))]


# quotas


def open_connections(keyed: Keyed, name: str) -> int:
    assert keyed.host is not None
    assert keyed.host._listener is not None
    found = keyed.host._listener.metering.statistics()
    return {one.name: one.connections for one in found}.get(name, 0)


def test_a_producer_over_its_quota_is_slowed_down_and_loses_nothing(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, slow='rows_per_second = "200"', till="")
    keyed.open()
    assert keyed.host is not None
    try:
        began = time.monotonic()
        with keyed.connect("slow") as slow, keyed.connect("till") as till:
            sent = [slow.send_nowait(TARGET, rows(n, n + 100)) for n in range(0, 600, 100)]
            assert till.send(TARGET, rows(1000, 6000)) == 5000
            assert not sent[-1].done()
            slow.flush()
        # A second's worth at once, then 200 each second.
        assert time.monotonic() - began >= 1.9
        found = {one.name: one for one in keyed.host._listener.metering.statistics()}  # type: ignore[union-attr]
        assert list(found) == ["slow"]
        assert (found["slow"].rows, found["slow"].waits > 0) == (600, True)
    finally:
        keyed.host.close()
    assert sorted(stored(tmp_path)[0]) == [*range(600), *range(1000, 6000)]


def test_a_client_that_waits_too_long_hears_of_the_quota_and_goes_on_later(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, slow='rows_per_second = "50"')
    keyed.open()
    try:
        with keyed.connect("slow") as slow:
            with pytest.raises(NoAnswer, match='producer "slow" may send 50 rows a second'):
                slow.send(TARGET, rows(0, 150), timeout=1)
            slow.flush()
    finally:
        assert keyed.host is not None
        keyed.host.close()
    assert stored(tmp_path) == [list(range(150))]


def test_a_producer_has_no_more_connections_than_it_may(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, slow='connections = "2"', till="")
    keyed.open()
    try:
        with keyed.connect("slow") as first, keyed.connect("slow") as second:
            for n, client in enumerate((first, second)):
                assert client.send(TARGET, rows(n, n + 1)) == 1
            third = keyed.connect("slow", timeout=2)
            with pytest.raises(LinkError, match='producer "slow" has its 2 connections already'):
                third.send(TARGET, rows(2, 3))
            assert open_connections(keyed, "slow") == 2
            with keyed.connect("till") as till:
                assert till.send(TARGET, rows(9, 10)) == 1
            first.close()
            wait_for(lambda: open_connections(keyed, "slow") == 1)
            assert second.send(TARGET, rows(3, 4)) == 1
            third.abort()
            with keyed.connect("slow") as fourth:
                wait_for(lambda: connected(fourth))
        assert keyed.files["slow"].public.exists()
    finally:
        assert keyed.host is not None
        keyed.host.close()
    assert sorted(stored(tmp_path)[0]) == [0, 1, 3, 4, 9]


def connected(client: Client) -> bool:
    try:
        return client.send(TARGET, rows(4, 5)) == 1
    except LinkBroken:
        return False
