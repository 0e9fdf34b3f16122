"""Which rows go to which outbox."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import WrongNodes
from millstream.journal.partitioning import NOWHERE, grouped, place, places
from millstream.links.network import Address, spanning
from millstream.links.routing import admitted, in_turn, least_loaded


def parts(at: list[int], rooms: list[int]) -> tuple[int, dict[int, list[int]]]:
    places = np.array(at, dtype=np.int64)
    count = admitted(places, rooms)
    return count, {outbox: rows.tolist() for outbox, rows in grouped(places[:count])}


def test_the_places_of_airports() -> None:
    assert [place(key, 3) for key in ("JFK", "LGA", "EWR")] == [2, 1, 2]
    assert places(pa.array(["JFK", "LGA", None, "EWR"]), 3).tolist() == [2, 1, NOWHERE, 2]


def test_a_place_is_the_same_in_every_process() -> None:
    code = "from millstream.journal.partitioning import place; print([place(k, 3) for k in ('JFK', 'LGA', 'EWR')])"
    for seed in ("1", "2"):  # of Python's own hash, which differs
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert told.stdout.strip() == "[2, 1, 2]"


@pytest.mark.parametrize(
    ("at", "rooms", "expected"),
    [
        ([0, 1, 0, 0, 1], [9, 9], (5, {0: [0, 2, 3], 1: [1, 4]})),
        (
            [0, 1, 0, 0, 1],
            [2, 9],
            (3, {0: [0, 2], 1: [1]}),
        ),  # the count is the first row without room
        ([0, 1, 0, 0, 1], [0, 9], (0, {})),
        ([0, 1, 0, 0, 1], [9, 0], (1, {0: [0]})),
        ([0, 1, 0, 0, 1], [-5, 9], (0, {})),
        ([1, 1, 1], [0, 2, 0], (2, {1: [0, 1]})),
        ([2, 2], [0, 0, 5], (2, {2: [0, 1]})),
        ([], [3, 3], (0, {})),
        ([0, 1, 2, 0, 1, 2], [1, 2, 1], (3, {0: [0], 1: [1], 2: [2]})),
    ],
)
def test_rows_go_on_from_the_front(
    at: list[int], rooms: list[int], expected: tuple[int, dict[int, list[int]]]
) -> None:
    assert parts(at, rooms) == expected


def test_a_split_keeps_order_and_loses_nothing() -> None:
    chance = np.random.default_rng(3)
    for _ in range(50):
        at, rooms = chance.integers(0, 4, 30), chance.integers(0, 12, 4).tolist()
        count = admitted(at, rooms)
        found = grouped(at[:count])
        assert sorted(row for _, rows in found for row in rows.tolist()) == list(range(count))
        for outbox, rows in found:
            assert (at[rows] == outbox).all()
            assert (np.diff(rows) > 0).all()
            assert len(rows) <= rooms[outbox]
        if count < 30:
            assert (at[:count] == at[count]).sum() == rooms[at[count]]


def test_in_turn_goes_by_the_number_of_the_row() -> None:
    numbers = np.arange(5, 12)
    assert in_turn(numbers, 3).tolist() == [2, 0, 1, 2, 0, 1, 2]
    assert in_turn(numbers[3:], 3).tolist() == [2, 0, 1, 2]  # sent again, they go where they went


def test_the_least_loaded_has_the_most_room() -> None:
    assert least_loaded([1, 5, 3]) == 1
    assert least_loaded([5, 5, 5]) == 0
    assert least_loaded([0, -1]) == 0


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([0, 1, 1], "missing: 2; double: 1"),
        ([1, 2, 3], "missing: 0; unknown: 3"),
        ([0, 2], "missing: 1; unknown: 2"),
    ],
)
def test_node_numbers_are_all_there_once(nodes: list[int], said: str) -> None:
    spanning([Address("10.0.0.1", 7000 + n, n) for n in (2, 0, 1)])
    with pytest.raises(WrongNodes, match=said):
        spanning([Address("10.0.0.1", 7000, node) for node in nodes])
