"""Letters that are replayed by hosts that are killed anywhere, and at once: each row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.journal import DeadLetter
from millstream.journal.letters import (
    Delivered,
    Discard,
    Letter,
    Log,
    Mark,
    Row,
    State,
    as_letter,
    as_mark,
    discard_marks,
    replay_marks,
)

LETTERS = tuple(
    Letter("s", DeadLetter("till", n, "no row", f'{{"n": {n}}}', n % 2), n) for n in range(6)
)
HOSTS = 3


@dataclass
class World:
    """A log that all hosts append to, and a journal of two partitions that knows its senders."""

    entries: list[DeadLetter] = field(default_factory=list)
    highest: dict[tuple[int, str], int] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)

    def log(self) -> Log:
        first: dict[int, Mark] = {}
        for entry in self.entries:
            first.setdefault(entry.position, as_mark(entry))
        return Log(LETTERS, tuple(mark for _, mark in sorted(first.items())))

    def take(self, row: Row) -> None:
        place = (hash(row.record) % 2, row.mark.sender)
        if row.mark.number > self.highest.get(place, -1):
            self.highest[place] = row.mark.number
            self.rows.append(row.record)


def replaying(world: World, host: int, wanted: list[Letter]) -> Iterator[None]:
    """Replay letters, and yield before each write."""
    while marks := replay_marks(world.log(), wanted, "s", f"replay:{host}", {}):
        for mark in marks:
            yield
            world.entries.append(as_letter(mark))
    log = world.log()
    for row in log.outstanding("s"):
        yield
        world.take(row)
    through = max((mark.number for mark in log.replays().values()), default=-1)
    while (log := world.log()).delivered("s") < through:
        yield
        world.entries.append(as_letter(Delivered(log.next, "s", through)))


def discarding(world: World, wanted: list[Letter]) -> Iterator[None]:
    while marks := discard_marks(world.log(), wanted):
        for mark in marks:
            yield
            world.entries.append(as_letter(mark))


CHOSEN = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.tuples(st.integers(0, HOSTS - 1), st.sampled_from(["go", "go", "go", "kill", "discard"])),
    max_size=60,
)


@given(CHOSEN, STEPS, st.data())
def test_each_row_is_there_once_whoever_is_killed_when(
    last: list[Letter], steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    world, running = World(), dict[int, Iterator[None]]()
    for host, what in steps:
        if what == "kill":
            running.pop(host, None)
            continue
        if host not in running:
            wanted = data.draw(CHOSEN)
            discards = what == "discard"
            running[host] = (
                discarding(world, wanted) if discards else replaying(world, host, wanted)
            )
        if next(running[host], "over") == "over":
            del running[host]
    for one in running.values():
        for _ in one:
            """Those that live finish, one after the other."""
    for _ in replaying(world, 9, last):
        """And one more, which nobody disturbs."""
    log = world.log()
    assert sorted(world.rows) == sorted(
        letter.letter.record for letter in LETTERS if letter.letter.key in log.replays()
    )
    states = {letter.letter.key: letter.state for letter in log.settled()}
    assert State.REPLAYING not in states.values()
    for letter in last:
        assert states[letter.letter.key] in (State.REPLAYED, State.DISCARDED)


@given(CHOSEN, CHOSEN)
def test_numbers_begin_again_under_another_name_once_all_marks_are_gone(
    first: list[Letter], second: list[Letter]
) -> None:
    world = World()
    for _ in replaying(world, 1, first):
        """All of it."""
    world.entries.clear()
    rows, world.rows = world.rows, []
    for _ in replaying(world, 2, second):
        """Of letters that nothing is known about."""
    assert sorted(rows) == sorted(one.letter.record for one in first)
    assert sorted(world.rows) == sorted(one.letter.record for one in second)


@given(st.text(), st.integers(0, 9), st.text(), st.none() | st.text())
def test_marks_are_read_as_they_were_written(
    origin: str, number: int, reason: str, record: str | None
) -> None:
    letter = Letter("s", DeadLetter(origin, 3, reason, "{}", 1), 0)
    edited = {} if record is None else {letter.id: record}
    (replay,) = replay_marks(Log((letter,)), [letter], "s", "replay:a", edited)
    for mark in (replay, Discard(number, letter.letter.key, reason), Delivered(number, "s", 4)):
        assert as_mark(as_letter(mark)) == mark


@pytest.mark.long
@pytest.mark.process
def test_a_process_that_is_killed_between_any_two_writes_adds_each_row_once(tmp_path: Path) -> None:
    """All points are tried: the same replay is killed at each, and run again."""
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "support.replay_killed", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(here)},
        capture_output=True,
        timeout=300,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) > 15
    assert [one["killed"] for one in found] == [True] * (len(found) - 1) + [False]
    for one in found:
        assert one["rows"] == [0, 1, 2, 3, 4, 5], one
        assert one["states"] == ["replayed"] * 6, one
