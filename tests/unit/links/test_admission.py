"""What an inbox takes of what it is sent."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.links.admission import NOTHING, Admission, Ends, admit, array


@pytest.mark.parametrize(
    ("highest", "after", "numbers", "room", "expected"),
    [
        (NOTHING, NOTHING, range(5), 10, (0, 5)),
        (NOTHING, NOTHING, range(5), 3, (0, 3)),  # full: the rest comes again
        (NOTHING, NOTHING, range(5), 0, (0, 0)),
        (2, NOTHING, range(5), 10, (3, 2)),
        (4, NOTHING, range(5), 10, (5, 0)),  # repeated rows count as taken,
        (
            4,
            NOTHING,
            range(5),
            0,
            (5, 0),
        ),  # also when there is no room: an inbox that did not count them would jam
        (9, NOTHING, range(5), 10, (5, 0)),
        (4, 4, range(5, 8), 10, (0, 3)),
        (
            4,
            5,
            range(6, 8),
            10,
            (0, 0),
        ),  # those before are on their way, or lost: nothing is taken past them
        (4, 3, range(4, 8), 10, (1, 3)),
        (4, NOTHING, range(9, 12), 2, (0, 2)),  # numbers between went to other inboxes
        (7, NOTHING, [2, 5, 7, 9, 12], 10, (3, 2)),
        (8, 7, [9, 12], 10, (0, 2)),
        (4, NOTHING, range(5, 8), -3, (0, 0)),
    ],
)
def test_what_is_taken_from_the_front(
    highest: int, after: int, numbers: list[int], room: int, expected: tuple[int, int]
) -> None:
    for given in (numbers, array(numbers)):
        found = admit(highest, after, given, room)  # type: ignore[arg-type]  # an array is a sequence in all but name
        assert (found.repeated, found.fresh, found.taken) == (*expected, sum(expected))


def test_a_repeated_batch_is_counted_however_often_it_comes() -> None:
    highest = NOTHING
    for _ in range(3):
        found = admit(highest, NOTHING, range(4), 100)
        assert found.taken == 4
        highest = max(highest, 3)
    assert found == Admission(repeated=4, fresh=0)


def test_numbers_as_an_array() -> None:
    assert array(range(2, 5)).tolist() == [2, 3, 4]
    assert array(range(2, 9, 3)).tolist() == [2, 5, 8]
    assert array([2, 7]).dtype == np.int64


def test_the_end_is_needed_from_every_upstream() -> None:
    ends = Ends(frozenset("abc"))
    assert not ends.complete
    for sender, missing in (("a", "bc"), ("a", "bc"), ("c", "b"), ("x", "b"), ("c", "b")):
        ends = ends.after(sender)
        assert not ends.complete
        assert ends.missing == frozenset(missing)
    ends = ends.after("b")
    assert ends.complete
    assert ends.after("b") == ends
    assert ends.after("a").complete


def test_without_a_list_the_first_to_end_speaks_for_all() -> None:
    assert not Ends().complete
    assert Ends().after("anyone").complete
