"""Compiles the kernel before it is needed: `python -m millstream.patterns.warm`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.flow.schema import Field, Schema
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.kernel_cache import mark_ready
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import matcher
from millstream.patterns.pattern import Pattern

_EVENTS = Schema((Field("at", "timestamp"), Field("n", "bigint")))
_CLAUSE = """
    SELECT * FROM events MATCH_RECOGNIZE (
        ORDER BY at MEASURES A.n AS first PATTERN (A B+) {} DEFINE A AS n = 1, B AS n > PREV(n)
    )"""


def warm() -> None:
    """Match a pattern of each kind over two events.

    Run by run, with shared runs, also such that are skipped, by preference, and by a table.
    """
    limits = ("", "WITHIN INTERVAL '1' MINUTE")
    clauses = [read(_CLAUSE.format(limit), _EVENTS)[1].automaton for limit in limits]
    begun = Pattern("warm").begin("a", "n = 1").within("1 minute")
    patterns = [begun.followed_by("b", condition) for condition in ("n = 2", "n > a.n")]
    patterns.append(patterns[0].skip_past_last())
    for automaton in (*(compile_pattern(one, _EVENTS) for one in patterns), *clauses):
        made = matcher(automaton, [pa.int64()] * len(automaton.values))
        values = [pa.array([1, 2], pa.int64())] * len(automaton.values)
        rows = pa.table({"n": [1, 2]})
        batch = Batch(pa.array(["", ""]), np.array([1, 2]), np.array([1, 2]), values, rows)
        made.process(made.empty(pa.string(), rows.schema), batch, FOREVER)
    mark_ready()


if __name__ == "__main__":
    warm()
