"""The arrays of the kernel that go together, as tuples with names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Table = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


class Rules(NamedTuple):
    """An automaton. The program of test t is programs[program_ends[t]:program_ends[t + 1]]."""

    edges: Table
    states: Table
    asks: Table
    programs: Table
    program_ends: Table
    constants: Floats
    registers: Table
    settings: Table


class Events(NamedTuple):
    """The new events of a shard, by key and time; `ends` says where those of each key end.

    `numbers` are those of all events that nodes speak of: the ones kept from before, then, from
    `base` on, the new ones.
    """

    times: Table
    masks: Table
    whole: Table
    real: Floats
    missing: Truths
    ends: Table
    numbers: Table
    base: int


class Carried(NamedTuple):
    """What earlier batches left; `run_ends` and `held_ends` say where those of each key end."""

    runs: Table
    run_ends: Table
    held: Table
    held_ends: Table
    nodes: Table
    node_count: int


class Outcome(NamedTuple):
    """What is left after a batch, and what was found in it."""

    runs: Table
    held: Table
    nodes: Table
    found: Table


class Run(NamedTuple):
    """One run, or a table of them, with the view of its numbers as floats."""

    whole: Table
    real: Floats


class Stack(NamedTuple):
    """The stack machine: its numbers, and the test that it answered last with the answer."""

    whole: Table
    real: Floats
    null: Truths
    answer: Table


class Work(NamedTuple):
    """The tables that grow while a shard is matched, and what one run at a time needs.

    `runs_left` and `held_left` are what is left of the keys that are done.
    """

    nodes: Table
    found: Table
    held: Table
    runs_left: Table
    held_left: Table
    counters: Table
    run: Run
    stack: Stack
