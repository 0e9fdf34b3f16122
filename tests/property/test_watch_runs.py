"""The better of two states of a run is a join: order, repetition and grouping do not matter."""

from __future__ import annotations

from functools import reduce
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from millstream.patterns.edge import Seen
from millstream.watch.messages import COMPLETED, HALTED, LIVE, RunId
from millstream.watch.runs import Link, Run, better

ID = RunId("p", (), ("s", 0))


@st.composite
def runs(draw) -> Run:
    """Return a state of the run that event s:0 began; few values, so that ties are common."""
    link = Link(ID, 0, Seen(0, ("s", 0), 1, (), {}), None, (0,), ())
    for depth in range(draw(st.integers(0, 3))):
        at, sender = draw(st.integers(depth + 1, depth + 2)), draw(st.sampled_from("st"))
        block = draw(st.integers(0, 1))
        link = Link(ID, block, Seen(at, (sender, at), 1, (), {}), link, (0,), ())
    status = draw(st.sampled_from([LIVE, HALTED, COMPLETED]))
    return Run(ID, link, (0,), 0, status=status, waits=draw(st.integers(0, 1)))


def shown(run: Run) -> tuple[object, ...]:
    return run.status, run.waits, [(one.order, one.block) for one in run.link.links]


@given(runs(), runs())
def test_it_is_commutative(one: Run, other: Run) -> None:
    assert shown(better(one, other)) == shown(better(other, one))


@given(runs(), runs(), runs())
def test_it_is_associative(one: Run, two: Run, three: Run) -> None:
    left, right = better(better(one, two), three), better(one, better(two, three))
    assert shown(left) == shown(right)


@given(runs())
def test_it_is_idempotent(run: Run) -> None:
    assert better(run, run) is run


@given(st.lists(runs(), min_size=1, max_size=4), st.data())
def test_every_order_and_repetition_of_messages_ends_with_the_same(
    states: list[Run], data: st.DataObject
) -> None:
    more = [data.draw(st.sampled_from(states)) for _ in range(2)]
    ends = {
        str(shown(reduce(better, order)))
        for order in permutations([*states, *more[: max(0, 5 - len(states))]])
    }
    assert len(ends) == 1


@given(runs(), runs())
def test_complete_beats_halt_beats_update(one: Run, other: Run) -> None:
    assert better(one, other).status == max(one.status, other.status)


@given(runs(), runs())
def test_of_two_live_states_the_one_with_more_events_stays(one: Run, other: Run) -> None:
    if one.status == other.status == LIVE:
        assert better(one, other).link.depth == max(one.link.depth, other.link.depth)
