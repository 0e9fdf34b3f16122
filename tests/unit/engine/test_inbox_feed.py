"""What an engine reads itself: real inboxes here and on another engine, which take it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import SystemClock
from millstream.engine.inboxes.inbox_feed import InboxFeed, Stopped
from millstream.engine.inboxes.source_reader import SourceReader, sending
from millstream.errors import NotThere
from millstream.ingest.feed import Feed
from millstream.ingest.rows import Rows, numbered
from millstream.journal import Kind
from millstream.journal.kinds.files.reader import Reader
from millstream.links.client import connect
from millstream.links.inbox import Inbox
from millstream.links.inbox_store import Capacity
from support.links import batch, declare, journal, wait_for
from unit.engine.test_follow import Pair, pair  # noqa: F401 (a fixture)

Pause = Callable[[float], bool]


def nobody(_sender: str) -> None:
    raise AssertionError("nothing goes elsewhere")


@contextmanager
def fed(
    folder: Path, pause: Pause = lambda _s: True, *, rows: int = 1 << 18
) -> Iterator[tuple[InboxFeed, Inbox]]:
    """Open the second of two partitions, which lives here."""
    description, rules = declare(folder, partitions=2, key=None)
    inbox = Inbox(description, 1, rules, capacity=Capacity(rows=rows))
    feed = InboxFeed(
        description,
        [inbox],
        range(1, 2, 2),
        rules.rules,
        SystemClock(),
        target="f.s",
        connect=nobody,  # type: ignore[arg-type]
        pause=pause,
    )
    try:
        yield feed, inbox
    finally:
        feed.close()
        inbox.close()


def stored(path: Path, partition: int = 1) -> list[int]:
    part = Reader(path).partition(partition)
    batches = [one.batch for one in part.read(part.begin, part.end, ["n"])]
    return [n for one in batches if one is not None for n in one["n"].to_pylist()]


def placed(begin: int, end: int) -> Rows:
    """Rows whose places have gaps, as the offsets of a topic have."""
    rows = numbered(batch(begin, end), begin)
    return Rows(rows.batch, rows.numbers * 3 + 1)


def test_what_is_here_already_is_not_taken_again_after_a_restart(tmp_path: Path) -> None:
    with fed(tmp_path) as (feed, _):
        assert feed.here == range(1, 2, 2)
        feed.take("kafka:c/t/1", placed(0, 100), 1)
        feed.flush()
        assert feed.highest("kafka:c/t/1", 1) == 298
    with fed(tmp_path) as (feed, _):
        assert feed.highest("kafka:c/t/1", 1) == 298
        feed.take("kafka:c/t/1", placed(50, 150), 1)
        feed.flush()
        assert feed.repeated == 50
    assert stored(journal(tmp_path)) == list(range(150))


def test_progress_is_noted_once_behind_the_rows_before_it(tmp_path: Path) -> None:
    with fed(tmp_path) as (feed, inbox):
        feed.take("kafka:c/t/1", placed(0, 10), 1)
        for _ in range(2):
            feed.progress("kafka:c/t/1", 500, 1)
        feed.progress("kafka:c/t/1", 400, 1)
        feed.flush()
        assert inbox.highest("kafka:c/t/1") == 500
    part = Reader(journal(tmp_path)).partition(1)
    assert [one.kind for one in part.entries(0, part.end)] == [Kind.ROWS, Kind.PROGRESS]


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    room=st.integers(1, 30),
    allowed=st.lists(st.integers(0, 60), max_size=20),
)
def test_an_inbox_without_room_gets_every_row_in_order_and_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: Sequence[int], room: int, allowed: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("feed")
    limits = iter(allowed)
    opened: list[Inbox] = []

    def pause(_seconds: float) -> bool:
        opened[0].allow(next(limits, None))
        return True

    with fed(folder, pause, rows=room) as (feed, inbox):
        opened.append(inbox)
        inbox.allow(next(limits, None))
        at = 0
        for size in sizes:
            feed.take("kafka:c/t/1", placed(at, at + size), 1)
            feed.progress("kafka:c/t/1", 3 * (at + size) - 1, 1)
            at += size
        feed.flush()
        assert feed.highest("kafka:c/t/1", 1) == 3 * at - 1
    assert stored(journal(folder)) == list(range(at))


def test_a_source_that_is_stopped_does_not_wait_for_room(tmp_path: Path) -> None:
    with fed(tmp_path, lambda _s: False) as (feed, inbox):
        inbox.pause()
        feed.take("kafka:c/t/1", placed(0, 10), 1)
        with pytest.raises(Stopped):
            feed.flush()
        inbox.resume()


def keyed(pair: Pair, node: int) -> InboxFeed:  # noqa: F811
    inboxes = pair.inboxes[node]
    here = [pair.inbox(node)]
    described, rules = here[0].described(), declare(pair.folders[node].parent, partitions=2)[1]
    return InboxFeed(
        described,
        here,
        range(node, 2, 2),
        rules.rules,
        SystemClock(),
        target="f.s",
        connect=partial(sending, inboxes.address, None),
        pause=lambda _s: True,
    )


def noted(feed: InboxFeed, sender: str, number: int) -> int:
    feed.progress(sender, number)
    feed.flush()
    return feed.highest(sender)


def test_rows_with_keys_go_to_the_engines_of_their_partitions_and_once(pair: Pair) -> None:  # noqa: F811
    pair.open(1)
    pair.open(0)
    sender = "kafka:c/t/1"
    first = keyed(pair, 1)
    assert first.highest(sender) == -1
    pair.inbox(0).pause()
    first.take(sender, placed(0, 200))
    wait_for(lambda: pair.inbox(1).highest(sender) > 500)
    assert noted(first, sender, 599) == 0  # not all of it has arrived
    pair.inbox(0).resume()
    wait_for(lambda: pair.inbox(0).highest(sender) > 500)
    first.close()
    # It has ended before it could note that: all of it is sent again.
    again = keyed(pair, 1)
    assert again.highest(sender) == 0
    again.take(sender, placed(0, 300))
    wait_for(lambda: noted(again, sender, 899) == 899)
    again.close()
    pair.inboxes[0].job("f").catch_up()
    found = [n for partition in (0, 1) for n in stored(pair.journal(0), partition)]
    assert sorted(found) == list(range(300))
    assert all(stored(pair.journal(0), partition) for partition in (0, 1))


def test_nobody_sends_to_a_source_that_engines_read(tmp_path: Path) -> None:
    found = Pair(tmp_path, 1)
    try:
        found.open(0)
        inbox = found.inbox(0)
        found.inboxes[0]._listener.sources.host("f.s", [inbox], key=None, read=True)
        with (
            connect(str(found.inboxes[0].address), timeout=10) as client,
            pytest.raises(NotThere, match="takes no events from outside"),
        ):
            client.send("f.s", batch(0, 3))
        with sending(found.inboxes[0].address, None, "kafka:c/t/0") as own:
            assert own.send("f.s", pa.Table.from_batches([batch(0, 3)]), numbers=range(3)) == 3
    finally:
        found.close()


class Failing:
    """An origin that fails until it can be read, and then waits for its system."""

    def __init__(self) -> None:
        self.sound = False

    def pump(self, feed: Feed, pause: Pause) -> bool:
        if not self.sound:
            raise OSError("no such topic")
        feed.waiting = "no broker answers"
        while pause(0.01):
            pass
        return False


def test_a_source_that_cannot_be_read_is_tried_again_and_says_why(pair: Pair) -> None:  # noqa: F811
    pair.open(1)
    pair.open(0)
    origin = Failing()
    reader = SourceReader(
        "f.s", [pair.inbox(1)], lambda: origin, lambda _pause: keyed(pair, 1), again_s=0.01
    )
    reader.start()
    wait_for(lambda: reader.error == "no such topic")
    origin.sound = True
    wait_for(lambda: reader.waiting == "no broker answers")
    assert pair.inbox(0).enqueue("p", range(100), batch(0, 100)) == 100
    # The other partition would be level after 300 ms of silence, but it is not idle.
    with pytest.raises(AssertionError):
        wait_for(lambda: Kind.IDLE in pair.kinds(1, 1), limit_s=2.5)
    reader.stop()
    wait_for(lambda: Kind.IDLE in pair.kinds(1, 1))
    assert not reader.is_alive()
