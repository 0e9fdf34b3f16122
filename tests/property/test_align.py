"""Alignment, attacked: any journal, read in any steps, hands out the same rows and never one below its floor."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from millstream.journal import align

LATENESS = 3


@dataclass(frozen=True)
class Known:
    running_max: int | None
    floor: int | None
    ended: bool


class Partition:
    """A partition in memory: times of rows, floors of instructions, perhaps an end."""

    def __init__(self, entries: list[tuple[str, int]]) -> None:
        self.entries = entries
        self.visible = len(entries)

    @property
    def begin(self) -> int:
        return 0

    @property
    def end(self) -> int:
        return self.visible

    def state_at(self, position: int) -> Known:
        seen = self.entries[:position]
        rows = [at for kind, at in seen if kind == "row"]
        floors = [at for kind, at in seen if kind == "idle"]
        return Known(
            max(rows, default=None),
            max(floors, default=None),
            any(kind == "end" for kind, _ in seen),
        )

    def first_above(self, moment: int, start: int, end: int) -> int:
        highest = self.state_at(start).running_max
        for position in range(start, end):
            kind, at = self.entries[position]
            if kind == "row":
                highest = at if highest is None else max(highest, at)
                if highest > moment:
                    return position
        return end

    def kept(self, start: int, stop: int) -> list[int]:
        """Return the times of the rows that are not late."""
        times = []
        for position in range(start, stop):
            kind, at = self.entries[position]
            before = self.state_at(position)
            late = before.running_max is not None and at < before.running_max - LATENESS
            late = late or (before.floor is not None and at < before.floor)
            if kind == "row" and not late:
                times.append(at)
        return times


entry = st.tuples(st.sampled_from(["row", "row", "row", "idle"]), st.integers(1, 40))
journal = st.lists(st.lists(entry, max_size=12), min_size=1, max_size=3)


def read(partitions: list[Partition], limits: list[int]) -> list[tuple[list[int], align.Reach]]:
    """Read to the end in batches of the given sizes, then in small ones."""
    at = [0] * len(partitions)
    batches = []
    sizes = iter(limits)
    while True:
        reach = align.reach_of_rows(partitions, at, LATENESS, next(sizes, 2))
        if reach.positions == tuple(at):
            return batches
        rows = [
            t for p, a, z in zip(partitions, at, reach.positions, strict=True) for t in p.kept(a, z)
        ]
        batches.append((rows, reach))
        at = list(reach.positions)


@given(journal, st.lists(st.integers(1, 9), max_size=6))
def test_no_row_comes_below_a_floor_that_was_given_out(
    entries: list[list[tuple[str, int]]], limits: list[int]
) -> None:
    partitions = [Partition([*part, ("end", 0)]) for part in entries]
    floor = -LATENESS
    for rows, reach in read(partitions, limits):
        assert all(at >= floor for at in rows)
        if reach.floor is not None:
            assert reach.floor >= floor
            floor = reach.floor
    assert floor == align.FOREVER_US


@given(journal, st.lists(st.integers(1, 9), max_size=6))
def test_whatever_the_batches_everything_is_handed_out_once(
    entries: list[list[tuple[str, int]]], limits: list[int]
) -> None:
    partitions = [Partition([*part, ("end", 0)]) for part in entries]
    handed = sorted(at for rows, _ in read(partitions, limits) for at in rows)
    assert handed == sorted(at for part in partitions for at in part.kept(0, part.end))


@given(journal, st.integers(1, 9))
def test_no_row_handed_out_is_further_ahead_than_the_lateness(
    entries: list[list[tuple[str, int]]], limit: int
) -> None:
    partitions = [Partition(part) for part in entries]
    at = [0] * len(partitions)
    while True:
        reach = align.reach_of_rows(partitions, at, LATENESS, limit)
        if reach.positions == tuple(at):
            break
        at = list(reach.positions)
        highest = max(
            (p.state_at(z).running_max or 0 for p, z in zip(partitions, at, strict=True)), default=0
        )
        assert highest <= min(_next(p, z) for p, z in zip(partitions, at, strict=True)) + LATENESS


def _next(partition: Partition, position: int) -> int:
    """Return n(p): the running maximum with the next unread row, or the progress where nothing is unread."""
    rows = [
        place for place in range(position, partition.end) if partition.entries[place][0] == "row"
    ]
    if rows:
        known = partition.state_at(rows[0])
        return max(
            partition.entries[rows[0]][1],
            known.running_max or 0,
            (known.floor or -LATENESS) + LATENESS,
        )
    return align.progress(partition.state_at(partition.end), LATENESS) or 0


@given(journal)
def test_a_partition_that_has_said_nothing_holds_the_others_and_an_idle_floor_lets_them_go(
    entries: list[list[tuple[str, int]]],
) -> None:
    loud = [Partition(part) for part in entries]
    silent = Partition([])
    views = [*loud, silent]
    assert align.reach_of_rows(views, [0] * len(views), LATENESS, 100).positions == (0,) * len(
        views
    )
    silent = Partition([("idle", 1000)])
    views = [*loud, silent]
    # Those that have spoken hold each other only by what they said.
    alone = align.reach_of_rows(loud, [0] * len(loud), LATENESS, 100)
    assert (
        align.reach_of_rows(views, [0] * len(views), LATENESS, 100).positions[:-1]
        == alone.positions
    )


@given(
    st.lists(st.lists(st.integers(-40, 5), max_size=12), min_size=2, max_size=3), st.integers(1, 9)
)
def test_no_batch_is_larger_than_its_limit_also_before_1970(
    times: list[list[int]], limit: int
) -> None:
    partitions = [Partition([("row", at) for at in part] + [("end", 0)]) for part in times]
    for rows, _ in read(partitions, [limit] * 100):
        assert len(rows) <= limit
