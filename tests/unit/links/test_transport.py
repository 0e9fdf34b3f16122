"""A loop and its wires go on, whatever one call of theirs meets."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

from millstream.links import envelope, transport
from millstream.links import link as links
from millstream.links.link import SocketLink
from millstream.links.transport import Loop
from support.links import TARGET, declare, hosted


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("test")
    loop.start()
    yield loop
    loop.stop()


def test_a_turn_that_failed_is_taken_again(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_AFTER_ERROR_S", 0.01)
    turns, again = iter([True]), threading.Event()

    def turn(_now: float) -> float | None:
        if next(turns, False):
            raise OSError("too many open files")
        again.set()
        return None

    loop.turn = turn
    loop.soon(lambda: None)
    assert again.wait(120)


def test_a_link_that_could_not_be_made_anew_is_tried_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as host:
        link = SocketLink(loop, lambda: host.address)
        assert isinstance(
            link.call(lambda n: envelope.Ask(n, TARGET)).result(120), envelope.SourceInfo
        )
        wire, refusals = links.Wire, iter([zmq.ZMQError(errno.EMFILE)])

        def scarce(*args: Any, **named: Any) -> Any:
            for refusal in refusals:
                raise refusal
            return wire(*args, **named)

        monkeypatch.setattr(links, "Wire", scarce)
        loop.soon(link.renew)
        loop.soon(link.renew)
        assert isinstance(
            link.call(lambda n: envelope.Ask(n, TARGET)).result(120), envelope.SourceInfo
        )
        loop.soon(link.close)
        loop.soon(link.renew)  # too late, and no error
