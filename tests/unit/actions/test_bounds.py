"""How much strangers may take."""

from __future__ import annotations

import socket
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.actions.bounds import overdrawn, surplus
from millstream.actions.log import Seldom
from millstream.actions.watcher import READ, Watcher

WAITING = st.dictionaries(st.integers(), st.sampled_from("abc"), max_size=20)
UNFINISHED = st.dictionaries(
    st.integers(), st.tuples(st.floats(0, 9), st.integers(0, 50)), max_size=20
)


@given(WAITING, st.integers(1, 10))
def test_a_host_that_has_fewer_than_another_loses_nobody(waiting, most):
    one = surplus(waiting, most)
    assert (one is None) == (len(waiting) <= most)
    if one is not None:
        counts = Counter(waiting.values())
        assert counts[waiting[one]] == max(counts.values())
        assert next(key for key in waiting if waiting[key] == waiting[one]) == one


@given(UNFINISHED, st.integers(0, 300))
def test_closing_one_after_the_other_brings_memory_below_the_bound(unfinished, most):
    closed = []
    while (one := overdrawn(unfinished, most)) is not None:
        closed.append(unfinished.pop(one))
    assert sum(size for _, size in unfinished.values()) <= most
    assert closed == sorted(closed, key=lambda one: one[0])  # the slowest first
    assert all(size for _, size in closed)


def test_lines_that_strangers_cause_are_counted():
    lines: list[str] = []
    log = Seldom(lines.append, every_s=10.0)
    for moment in (0.0, 1.0, 9.0, 10.0, 25.0):
        log.write("closed", moment)
    assert lines == ["closed", "closed (and 2 times before)", "closed"]


def test_one_that_another_has_closed_in_the_same_turn_is_left_alone():
    watcher, pairs, called = Watcher(lambda: None), [socket.socketpair() for _ in range(2)], []

    def close_both(events: int) -> None:
        called.append(events)
        for ours, _ in pairs:
            watcher.forget(ours)
            ours.close()

    for ours, theirs in pairs:
        watcher.want(ours, READ, close_both)
        theirs.send(b"x")
    watcher.wait(60)
    assert len(called) == 1
    watcher.close()
    for _, theirs in pairs:
        theirs.close()
