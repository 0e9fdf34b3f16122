"""Tables that grow."""

from __future__ import annotations

import numpy as np

from millstream.patterns.kernel import opcodes
from millstream.patterns.kernel.compiled import allocating, compiled
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.records import Carried, Outcome, Rules, Run, Stack, Table, Work


@compiled
def copy(source: Table, target: Table) -> None:
    """Write a row over another; numba compiles this, and runs it, faster than an assignment."""
    for column in range(source.shape[0]):
        target[column] = source[column]


@allocating
def with_rows(table: Table, rows: int) -> Table:
    """Return a table with at least so many rows."""
    if table.shape[0] >= rows:
        return table
    bigger = np.empty((max(rows, table.shape[0] * 2 + 16), table.shape[1]), np.int64)
    for row in range(table.shape[0]):
        copy(table[row], bigger[row])
    return bigger


@allocating
def as_runs(whole: Table) -> Run:
    """Return numbers of runs with their view as floats."""
    return Run(whole, whole.view(np.float64))


@compiled
def first(ends: Table, key: int) -> int:
    """Return where the rows of a key begin: where those of the key before end."""
    return ends[key - 1] if key > 0 else 0


@compiled
def count(ends: Table, key: int) -> int:
    """Return how many rows a key has."""
    return ends[key] - first(ends, key)


@allocating
def workspace(rules: Rules, carried: Carried) -> Work:
    """Return the tables for a shard, with the nodes that are kept from before."""
    width, depth = rules.settings[RUN_WIDTH], opcodes.DEPTH
    numbers, reals = np.zeros(depth, np.int64), np.zeros(depth, np.float64)
    stack = Stack(numbers, reals, np.zeros(depth, np.bool_), np.zeros(2, np.int64))
    counters = np.zeros(COUNTERS, np.int64)
    counters[C_NODES] = carried.node_count
    counters[C_FREE] = -1
    return Work(
        carried.nodes,
        np.empty((64, MATCH_WIDTH), np.int64),
        np.empty((64, MATCH_WIDTH), np.int64),
        np.empty((max(64, carried.runs.shape[0]), width), np.int64),
        np.empty((64, MATCH_WIDTH), np.int64),
        counters,
        as_runs(np.empty(width, np.int64)),
        stack,
    )


@compiled
def is_full(work: Work, more: int) -> bool:
    """Tell whether there is no room for so many more rows, beside all matches that are held."""
    counters = work.counters
    counters[C_WANTED] = more
    return (
        work.nodes.shape[0] < counters[C_NODES] + more
        or work.found.shape[0] < counters[C_FOUND] + counters[C_HELD] + more
        or work.held.shape[0] < counters[C_HELD] + more
        or work.runs_left.shape[0] < counters[C_RUNS_LEFT] + more
        or work.held_left.shape[0] < counters[C_HELD_LEFT] + counters[C_HELD] + more
    )


@allocating
def larger(work: Work) -> Work:
    """Return the tables with the room that was wanted last."""
    counters, more = work.counters, work.counters[C_WANTED]
    return Work(
        with_rows(work.nodes, counters[C_NODES] + more),
        with_rows(work.found, counters[C_FOUND] + counters[C_HELD] + more),
        with_rows(work.held, counters[C_HELD] + more),
        with_rows(work.runs_left, counters[C_RUNS_LEFT] + more),
        with_rows(work.held_left, counters[C_HELD_LEFT] + counters[C_HELD] + more),
        counters,
        work.run,
        work.stack,
    )


@allocating
def outcome(work: Work) -> Outcome:
    """Return the rows that are in use."""
    counters = work.counters
    return Outcome(
        work.runs_left[: counters[C_RUNS_LEFT]],
        work.held_left[: counters[C_HELD_LEFT]],
        work.nodes[: counters[C_NODES]],
        work.found[: counters[C_FOUND]],
    )
