"""A source that gets more partitions while programs send to it: each row is there once, whoever knows of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import ingest
from millstream.clock import ManualClock, SystemClock, micros
from millstream.journal import Description, Kind
from millstream.journal.kinds.files.reader import Reader
from millstream.links.client import connect
from millstream.links.host import Host, declared_inboxes
from support.links import NOON, TARGET, declare, entries, hosted, journal, rows, stored, wait_for

LIMIT_S = 240.0


def grow(data: Path, partitions: int) -> Description:
    return ingest.grow(*ingest.declared(journal(data)), partitions, SystemClock())


def ends(data: Path) -> list[bool]:
    """Tell of each partition whether it has ended."""
    reader = Reader(journal(data))
    parts = [reader.partition(number) for number in range(reader.description.partitions)]
    return [part.state_at(part.end).ended for part in parts]


def test_who_has_no_name_spreads_rows_over_all_partitions(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    grow(tmp_path, 4)
    with closing(hosted(tmp_path)), connect(tmp_path, timeout=LIMIT_S) as client:
        card = client.info(TARGET)
        assert (len(card.inboxes), len(card.later)) == (2, 2)
        client.send(TARGET, rows(0, 40))
    found = stored(tmp_path)
    assert all(found)
    assert sorted(n for part in found for n in part) == list(range(40))


def test_who_has_a_name_finds_the_same_places_again(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    with closing(hosted(tmp_path)), connect(tmp_path, sender="me", timeout=LIMIT_S) as client:
        client.send(TARGET, rows(0, 40), numbers=range(40))
    grow(tmp_path, 3)
    with closing(hosted(tmp_path)), connect(tmp_path, sender="me", timeout=LIMIT_S) as client:
        client.send(TARGET, rows(0, 60), numbers=range(60))
        client.end(TARGET)
    found = stored(tmp_path)
    assert found[2] == []
    assert sorted(n for part in found for n in part) == list(range(60))
    assert ends(tmp_path) == [True, True, True]


def test_who_was_connected_before_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    first = hosted(tmp_path)
    with connect(str(first.address), timeout=LIMIT_S) as client:
        client.send(TARGET, rows(0, 20))
        first.close()
        waiting = [client.send_nowait(TARGET, row) for row in rows(20, 40)]
        grow(tmp_path, 4)
        with closing(hosted(tmp_path)):
            assert sum(one.result(LIMIT_S) for one in waiting) == 20
    found = stored(tmp_path)
    assert sorted(n for part in found for n in part) == list(range(40))
    assert found[2:] == [[], []]


def test_partitions_that_a_sender_does_not_know_end_with_the_others_once_they_are_idle(
    tmp_path: Path,
) -> None:
    for time in ("at", None):
        data, clock = tmp_path / str(time), ManualClock(micros(NOON))
        declare(data, partitions=2, time=time)
        first = hosted(data)
        with connect(str(first.address), timeout=LIMIT_S) as client:
            client.send(TARGET, rows(0, 20))
            first.close()
            grow(data, 4)
            with closing(Host(data / "f", declared_inboxes(data / "f"), clock=clock)) as host:
                client.end(TARGET)
                host.level()
                assert ends(data) == [True, True, False, False], (
                    "someone may still have rows for them"
                )
                clock.advance_us(11_000_000)
                host.level()
                wait_for(lambda data=data: all(ends(data)))
        assert [kind for kind, _, _ in entries(data)].count(Kind.END_OF_STREAM) == 4


@dataclass(frozen=True)
class Life:
    """Of a program: the partitions that its source wants, from where to where it sends, and whether it is killed."""

    partitions: int
    begin: int
    count: int
    killed: bool


lives = st.builds(
    Life,
    partitions=st.integers(1, 4),
    begin=st.integers(0, 30),
    count=st.integers(1, 30),
    killed=st.booleans(),
)


@settings(max_examples=15)
@given(st.lists(lives, max_size=4), st.integers(1, 2))
def test_what_a_program_sends_again_is_there_once_whatever_it_has_been_told(
    cut_off: list[Life], made: int
) -> None:
    with TemporaryDirectory() as folder:
        data, done = Path(folder), 0
        declare(data, partitions=made)
        for life in [*cut_off, Life(4, 0, 60, killed=False)]:
            grow(data, life.partitions)
            with closing(hosted(data)):
                client = connect(data, sender="me", timeout=LIMIT_S)
                # It begins where it likes, but leaves nothing out.
                begin = min(life.begin, done)
                end = begin + life.count
                waiting = client.send_nowait(TARGET, rows(begin, end), numbers=range(begin, end))
                if life.killed:
                    client.abort()
                else:
                    client.close()
                    assert waiting.result(LIMIT_S) == life.count
                    done = max(done, end)
        found = stored(data)
        assert sorted(n for part in found for n in part) == list(range(max(60, done)))
        assert not any(found[made:])
