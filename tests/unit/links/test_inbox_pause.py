"""An inbox whose host pauses it, or ends it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from millstream.clock import ManualClock, micros
from millstream.errors import Ended, NoAnswer
from millstream.journal import Kind
from millstream.links.client import connect
from millstream.links.inbox import Inbox
from millstream.links.levels import Levels
from millstream.links.registered import REGISTERED
from support.links import NOON, TARGET, batch, declare, entries, hosted, stored, wait_for


def test_a_paused_inbox_is_full_and_takes_events_again_when_it_is_resumed(tmp_path: Path) -> None:
    inbox = Inbox(*_source(tmp_path))
    assert inbox.enqueue("me", range(2), batch(0, 2)) == 2
    inbox.pause()
    assert inbox.free == 0
    assert inbox.enqueue("me", range(2, 4), batch(2, 4)) == 0
    assert inbox.enqueue("me", range(2), batch(0, 2)) == 2, "what is there already is counted"
    assert inbox.instruct_nowait("me", 2, Kind.END_OF_STREAM).result().taken == 0
    inbox.resume()
    assert inbox.enqueue("me", range(2, 4), batch(2, 4)) == 2
    inbox.close()
    assert stored(tmp_path) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("way", ["local", "ipc"])
def test_a_sender_gets_the_reason_why_an_inbox_is_paused(tmp_path: Path, way: str) -> None:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as host, connect(tmp_path, timeout=1.0) as client:
        if way == "ipc":
            REGISTERED.pop(host.address.port)
        host.inbox("s").pause(lambda: 'job "f" is drained; undeploy it')
        with pytest.raises(NoAnswer, match=r'"f.s" takes nothing: job "f" is drained; ') as found:
            client.send(TARGET, batch(0, 2))
        assert "as soon as there is room" in str(found.value.hint)
        host.inbox("s").resume()
        client.flush(timeout=120.0)
    assert stored(tmp_path) == [[0, 1]]


def test_a_resumed_inbox_counts_as_busy_until_those_who_waited_had_their_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock(micros(NOON))
    inbox = Inbox(*_source(tmp_path), clock=clock)
    inbox.pause()
    clock.advance_us(11_000_000)
    assert inbox.progress().rows_at_us == micros(NOON)
    inbox.resume()
    assert inbox.progress().rows_at_us == micros(NOON) + 11_000_000
    inbox.close()


def test_a_paused_inbox_can_be_ended_by_its_host_and_is_ended_once(tmp_path: Path) -> None:
    inbox = Inbox(*_source(tmp_path))
    inbox.pause()
    for _ in range(3):
        wait_for(lambda: inbox.end("engine"))
    inbox.close()
    again = Inbox(*_source(tmp_path))
    assert again.end("engine")
    with pytest.raises(Ended):
        again.enqueue("me", range(1), batch(0, 1))
    again.close()
    assert [kind for kind, _, _ in entries(tmp_path)] == [Kind.END_OF_STREAM]


def test_an_inbox_that_others_would_have_to_end_is_ended_by_its_host_alone(tmp_path: Path) -> None:
    inbox = Inbox(*_source(tmp_path), upstreams=["a", "b"])
    inbox.instruct_nowait("a", 0, Kind.END_OF_STREAM).result()
    assert not inbox.progress().ended
    wait_for(lambda: inbox.end("engine"))
    assert inbox.progress().ended
    inbox.close()


def test_idle_partitions_are_brought_level_while_their_inboxes_are_paused(tmp_path: Path) -> None:
    clock = ManualClock(micros(NOON))
    description, settings = declare(tmp_path, partitions=2)
    inboxes = [Inbox(description, n, settings, clock=clock) for n in range(2)]
    levels = Levels(clock)
    levels.add("f.s", inboxes, settings)
    inboxes[0].enqueue("me", range(1), batch(0, 1))
    for inbox in inboxes:
        inbox.pause()
    clock.advance_us(11_000_000)
    levels.level()
    levels.remove("f.s")
    assert levels.level() is None
    levels.close()
    for inbox in inboxes:
        inbox.close()
    assert [kind for kind, _, _ in entries(tmp_path)] == [Kind.ROWS, Kind.IDLE]


def _source(data: Path) -> tuple:  # type: ignore[type-arg]
    description, settings = declare(data)
    return description, 0, settings


def test_senders_that_are_held_back_wait_and_their_partition_is_not_idle(tmp_path: Path) -> None:
    clock = ManualClock(micros(NOON))
    inbox = Inbox(*_source(tmp_path), clock=clock)
    inbox.allow(0)
    assert inbox.free == 0
    assert inbox.enqueue("me", range(2), batch(0, 2)) == 0
    clock.advance_us(11_000_000)
    assert inbox.progress().rows_at_us == clock.now_us()
    inbox.allow(None)
    assert inbox.enqueue("me", range(2), batch(0, 2)) == 2
    inbox.close()


def test_no_more_rows_come_than_are_allowed(tmp_path: Path) -> None:
    inbox = Inbox(*_source(tmp_path), clock=ManualClock(micros(NOON)))
    inbox.allow(3)
    assert inbox.enqueue("me", range(2), batch(0, 2)) == 2
    assert inbox.free == 1
    assert inbox.enqueue("me", range(2, 4), batch(2, 4)) == 1
    assert inbox.enqueue("me", range(2, 4), batch(2, 4)) == 1, "what is repeated needs no room"
    assert inbox.free == 0
    inbox.allow(None)
    assert inbox.enqueue("me", range(2, 4), batch(2, 4)) == 2
    inbox.close()
