"""A listener answers for the sources behind it, and outlives whatever it is sent."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import BadFrame, NotAllowed, NotThere, OpenNetwork
from millstream.ingest import SourceSettings
from millstream.journal import Description
from millstream.links import envelope
from millstream.links.client import Client
from millstream.links.inbox import Inbox
from millstream.links.listener import Listener
from millstream.links.network import ipc_path
from millstream.links.registered import REGISTERED
from support.links import batch, declare, stored


@pytest.fixture
def source(tmp_path: Path) -> tuple[Description, SourceSettings]:
    return declare(tmp_path)


@pytest.fixture
def listener(tmp_path: Path, source: tuple[Description, SourceSettings]) -> Iterator[Listener]:
    with ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(tmp_path / "f")))
        inbox = stack.enter_context(closing(Inbox(source[0], 0, source[1])))
        listener.sources.host("f.s", [inbox], key="origin", allowed=["till"])
        listener.start()
        yield listener


def ask(listener: Listener, request: envelope.Request, *bodies: Any) -> envelope.Answer:
    return listener.serve(request, list(bodies)).result(120)


def rows_frames(begin: int, end: int, **other: Any) -> tuple[envelope.Rows, Any]:
    header = envelope.Rows(7, "f.s", 0, "a", -1, begin, end - begin, 0)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return envelope.Rows(**(fields | other)), batch(begin, end).serialize()


def test_a_source_has_a_card(listener: Listener) -> None:
    card = ask(listener, envelope.Ask(5, "f.s"))
    assert isinstance(card, envelope.SourceInfo)
    assert (card.request, card.key, card.time, card.version, card.ended) == (
        5,
        "origin",
        "at",
        0,
        False,
    )
    assert [(place.ip, place.port) for place in card.inboxes] == [
        (listener.address.ip, listener.address.port)
    ]


def test_rows_are_answered_when_they_are_in_the_journal(listener: Listener, tmp_path: Path) -> None:
    answer = ask(listener, *rows_frames(0, 5))
    assert isinstance(answer, envelope.TakenAnswer)
    assert (answer.taken, answer.highest) == (5, 4)
    assert stored(tmp_path) == [[0, 1, 2, 3, 4]]


def test_what_is_not_there_is_refused_by_name(listener: Listener) -> None:
    with pytest.raises(NotThere, match="there is no source") as found:
        ask(listener, envelope.Ask(1, "f.x"))
    assert found.value.hint == "its sources: f.s"
    with pytest.raises(NotThere, match="partition 3"):
        ask(listener, *rows_frames(0, 1, partition=3))


def test_a_producer_that_is_not_on_the_list_is_refused(listener: Listener) -> None:
    assert listener.sources.info("f.s", producer="till").source == "f.s"
    assert listener.sources.info("f.s", producer=None).source == "f.s"  # not over a network
    with pytest.raises(NotAllowed, match='"other" may not send'):
        listener.sources.info("f.s", producer="other")
    with pytest.raises(NotAllowed):
        listener.sources.inbox("f.s", 0, producer="other")


def test_a_withdrawn_source_is_gone(listener: Listener) -> None:
    listener.sources.withdraw("f.s")
    assert listener.sources.names == ()
    with pytest.raises(NotThere):
        ask(listener, envelope.Ask(1, "f.s"))


def test_it_is_registered_while_it_listens(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    assert listener.address.port not in REGISTERED
    listener.start()
    assert REGISTERED[listener.address.port] is listener
    listener.close()
    assert listener.address.port not in REGISTERED


def test_requests_wait_until_the_sources_are_hosted(
    tmp_path: Path, source: tuple[Description, SourceSettings]
) -> None:
    """A client that finds the port before the sources must not be told that they do not exist."""
    with ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(tmp_path / "f")))
        client = stack.enter_context(closing(Client(str(listener.address))))
        sending = threading.Thread(target=lambda: client.send("f.s", batch(0, 3)))
        sending.start()
        sending.join(0.3)
        assert sending.is_alive()
        inbox = stack.enter_context(closing(Inbox(source[0], 0, source[1])))
        listener.sources.host("f.s", [inbox], key="origin")
        listener.start()
        sending.join(240)
        assert stored(tmp_path) == [[0, 1, 2]]


def test_a_network_that_others_can_reach_needs_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.links.listener.preferred", lambda _: "10.1.2.3")
    with pytest.raises(OpenNetwork, match=r"10\.1\.2\.3 can be reached from other hosts") as found:
        Listener(tmp_path, network="10.1.0.0/16")
    assert "millstream keys new" in str(found.value.hint)


def test_no_other_user_can_connect_to_the_socket(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        listener = Listener(tmp_path)
    finally:
        os.umask(before)
    with closing(listener):
        file = ipc_path(tmp_path, listener.address.port)
        assert stat.S_ISSOCK(file.stat().st_mode)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


def test_a_socket_lies_in_a_folder_with_a_long_name(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with closing(Listener(folder)) as listener:
        file = ipc_path(folder, listener.address.port)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


def test_what_a_dead_process_left_is_no_hindrance(tmp_path: Path) -> None:
    with closing(Listener(tmp_path)) as first:
        port = first.address.port
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(ipc_path(tmp_path, port)))
    with closing(Listener(tmp_path, port=port)) as second:
        assert second.address.port == port


def test_a_name_that_is_taken_means_another_port(tmp_path: Path) -> None:
    with closing(Listener(tmp_path)) as first:
        port = first.address.port
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(ipc_path(tmp_path, port)))
        other.listen()
        with closing(Listener(tmp_path, port=port)) as second:
            assert second.address.port != port


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 4}, "a batch has 5 rows, 4 were announced"),
        ({"rows": 70_000}, "70000 were announced"),
        ({"version": 3}, "a schema that the journal has or had"),
    ],
)
def test_wrong_counts_and_versions_are_refused_counted_and_logged(
    listener: Listener, caplog: pytest.LogCaptureFixture, change: dict[str, int], said: str
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(BadFrame, match=said):
        ask(listener, *rows_frames(0, 5, **change))
    assert listener.refused_frames == 1
    assert said in caplog.text
    assert isinstance(ask(listener, *rows_frames(0, 5)), envelope.TakenAnswer)


def test_a_batch_is_needed(listener: Listener) -> None:
    with pytest.raises(BadFrame, match="rows need a batch"):
        ask(listener, rows_frames(0, 5)[0])
    with pytest.raises(BadFrame, match="rows need a batch"):
        ask(listener, *rows_frames(0, 5), b"", b"")
