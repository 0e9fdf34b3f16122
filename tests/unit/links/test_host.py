"""The host of a flow's inboxes, and how it is found."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import AlreadyWriting, NotThere, WriterBroken
from millstream.journal import Kind
from millstream.links.client import connect
from millstream.links.host import Found, Host, Listening, declared_inboxes, find, read_address
from millstream.links.inbox import Inbox
from millstream.links.listener import Listener
from millstream.links.registered import REGISTERED
from support.links import TARGET, batch, declare, hosted, row, rows, stored


def test_all_inboxes_of_a_flow_are_open(tmp_path: Path) -> None:
    declare(tmp_path, partitions=3)
    declare(tmp_path, source="other", key=None)
    with closing(hosted(tmp_path)) as host:
        assert {name: len(found) for name, found in host.statistics().items()} == {
            "other": 1,
            "s": 3,
        }
        assert host.inbox("s", 2).partition == 2
        with connect(str(host.address)) as client:
            assert client.send(TARGET, rows(0, 20)) == 20
            assert client.send("f.other", row(0)) == 1


def test_it_is_found_while_it_listens(tmp_path: Path) -> None:
    declare(tmp_path)
    assert read_address(tmp_path / "f") is None
    with closing(hosted(tmp_path)) as host:
        assert read_address(tmp_path / "f") == host.address
    assert read_address(tmp_path / "f") is None


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"ip": 3}'])
def test_a_damaged_note_is_no_note(tmp_path: Path, note: bytes) -> None:
    declare(tmp_path)
    (tmp_path / "f" / "inboxes.json").write_bytes(note)
    assert read_address(tmp_path / "f") is None
    with connect(tmp_path) as client:
        assert client.send(TARGET, row(0)) == 1


def test_it_keeps_its_port(tmp_path: Path) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as first:
        address = first.address
    with closing(hosted(tmp_path)) as second:
        assert second.address == address
    with closing(hosted(tmp_path, Listening(port=0))) as third:
        assert third.address == address


def test_a_port_that_is_taken_is_let_go(tmp_path: Path) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as first:
        port = first.address.port
    with closing(Listener(tmp_path / "elsewhere", port=port)), closing(hosted(tmp_path)) as second:
        assert second.address.port != port
        assert (
            json.loads((tmp_path / "f" / "inboxes.json").read_bytes())["port"]
            == second.address.port
        )


def test_a_flow_has_one_host(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    with closing(hosted(tmp_path)) as host:
        with pytest.raises(AlreadyWriting):
            hosted(tmp_path)
        assert (
            host.inbox("s").enqueue("a", range(2), batch(0, 2)) == 2
        )  # the second has taken nothing from the first


def test_a_host_that_cannot_listen_lets_go_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Listener, "start", refuse)
        with pytest.raises(OSError, match="no"):
            hosted(tmp_path)
    assert not REGISTERED
    hosted(tmp_path).close()


def test_closing_goes_on_whatever_one_inbox_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, partitions=2)
    host = hosted(tmp_path)
    close = Inbox.close

    def broken(inbox: Inbox) -> None:
        close(inbox)
        raise WriterBroken("the disk refused")

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "close", broken)
        with pytest.raises(WriterBroken):
            host.close()
    assert not REGISTERED
    hosted(tmp_path).close()
    assert not [one for one in threading.enumerate() if one.name == "inbox levels"]


def test_who_sends_while_a_host_closes_is_not_refused(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    host = hosted(tmp_path)
    with connect(str(host.address), timeout=120.0) as client:
        client.send(TARGET, rows(0, 10))
        for inbox in (host.inbox("s", 0), host.inbox("s", 1)):
            inbox.close()  # as its host does, before the listener goes
        waiting = client.send_nowait(TARGET, rows(10, 20))
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        host.close()
        with closing(hosted(tmp_path)):
            assert waiting.result(120) == 10
    assert sorted(n for part in stored(tmp_path) for n in part) == list(range(20))


def test_only_sources_that_take_events_are_hosted(tmp_path: Path) -> None:
    declare(tmp_path)
    (tmp_path / "f" / "journals" / "none").mkdir()
    assert list(declared_inboxes(tmp_path / "f")) == ["s"]
    with pytest.raises(NotThere) as found:
        find(tmp_path, "f.none", timeout=0.1)
    assert "f.s" in str(found.value.hint)


def test_who_finds_nobody_hosts(tmp_path: Path) -> None:
    declare(tmp_path)
    first = find(tmp_path, TARGET, timeout=5.0)
    second = find(tmp_path, TARGET, timeout=5.0)
    assert first.host is not None
    assert second.host is None
    assert second.address() == first.address()
    first.close()
    assert second.address().port == first.address().port  # one of them has taken over
    hosts = [one.host for one in (first, second) if one.host is not None]
    assert len(hosts) == 1
    for one in (first, second):
        one.close()


def test_many_threads_that_find_nobody_agree(tmp_path: Path) -> None:
    declare(tmp_path)
    found = Found(tmp_path / "f", 10.0)
    addresses: list[Any] = []
    threads = [threading.Thread(target=lambda: addresses.append(found.address())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(addresses) == 8
    assert len(set(addresses)) == 1
    assert read_address(tmp_path / "f") == addresses[0]
    found.close()


def test_who_writes_and_does_not_listen_is_told_of(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    with closing(Inbox(description, 0, settings)), pytest.raises(AlreadyWriting):
        find(tmp_path, TARGET, timeout=0.2)


def test_a_leveller_that_meets_a_broken_disk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, partitions=2)

    def broken(*_: Any, **__: Any) -> Callable[[], None]:
        raise WriterBroken("the disk refused")

    with closing(hosted(tmp_path)) as host:
        host.inbox("s", 0).enqueue("a", range(2), batch(0, 2))
        with monkeypatch.context() as patch:
            patch.setattr("millstream.journal.kinds.files.writer.Writer.instruct_nowait", broken)
            host.inbox("s", 1).level(5)
        host.inbox("s", 1).level(5)
        assert host.inbox("s", 1).instruct_nowait("a", 2, Kind.WATERMARK, 9).result(120).taken == 1


def test_a_host_is_a_plain_object(tmp_path: Path) -> None:
    declare(tmp_path)
    with closing(Host(tmp_path / "f", {})) as host:
        assert host.statistics() == {}
