"""Makes the states of patterns that are kept beside this file. Run it once for a new format, into a folder of its own.

python tests/upgrade/patterns/make.py tests/upgrade/patterns/format_2
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER, Automaton
from millstream.patterns.batches import Batch, Found
from millstream.patterns.compile import compile_pattern
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import Matcher, matcher
from millstream.patterns.pattern import Pattern

SCHEMA = Schema.parse(
    "number bigint, key string, name string, x bigint, y double, price decimal(10,2), at timestamp"
)


def rows() -> pa.Table:
    """Return 60 events of three keys, with some values missing."""
    random = np.random.default_rng(7)
    whole, names = random.integers(0, 6, 60).tolist(), random.choice(list("abc"), 60).tolist()
    xs = [None if place % 13 == 5 else value for place, value in enumerate(whole)]
    return pa.table(
        {
            "number": pa.array(range(60), pa.int64()),
            "key": pa.array([f"key {place % 3}" for place in range(60)]),
            "name": pa.array([None if place % 17 == 3 else one for place, one in enumerate(names)]),
            "x": pa.array(xs, pa.int64()),
            "y": pa.array([None if x is None else x / 4 for x in xs], pa.float64()),
            "price": pa.array(
                [None if x is None else Decimal(x) / 2 for x in xs], pa.decimal128(10, 2)
            ),
            "at": pa.array([place * 1_000_000 for place in range(60)], pa.timestamp("us")),
        }
    )


def rising(event: dict[str, Any], history: dict[str, list[dict[str, Any]]]) -> bool:
    """Tell whether an event is above the first of its run."""
    first = history["a"][0]["x"] if "a" in history else None
    return event["x"] is not None and first is not None and event["x"] > first


def pattern(name: str) -> Pattern:
    """Return one of the patterns."""
    started = Pattern(name).begin("a", "x >= 1")
    looped = started.followed_by("b", "x > 1").times(2, 4)
    match name:
        case "registers":
            wanted = (
                "x >= first(a.x) and y <= avg(b.y) + 1 and name <> a.name and count(b.x) < 5 "
                "and x + 9 >= sum(b.x) - max(b.x) and name >= 'a' and min(b.y) < last(b.y) + 2"
            )
            return looped.followed_by("c", wanted).within("24 seconds")
        case "held":
            ended = started.followed_by("b", "x < a.x").followed_by("c", "x >= a.x")
            return ended.within("30 seconds").skip_to_next()
        case "late":
            ended = started.not_followed_by("b", "x = 0").followed_by("c", "x = 5").optional()
            return ended.not_followed_by("d", "x = 4").within("14 seconds")
        case "decimals":
            ended = looped.followed_by("c", "price > avg(b.price) and name <> first(a.name)")
            return ended.within("24 seconds").skip_to_next()
        case "shared":
            looped = started.followed_by("b", "x > 1").one_or_more().greedy()
            return looped.followed_by("c", "x = 0").within("30 seconds")
        case "skipped":
            # A run that begins with x = 0 overtakes one that waits for a second x >= 2.
            looped = Pattern(name).begin("a", "x >= 2").times(2).optional().greedy()
            ended = looped.followed_by("b", "x <= 1").followed_by("c", "x in (0, 3)")
            return ended.within("30 seconds").skip_to_next()
        case _:
            ended = started.followed_by("b", rising).one_or_more().greedy()
            return ended.followed_by("c", "x = 0").within("40 seconds").skip_to_last("b")


CLAUSE = """
    SELECT * FROM events MATCH_RECOGNIZE (
        PARTITION BY key ORDER BY at
        MEASURES FIRST(a.x) AS f, MATCH_NUMBER() AS m, LAST(b.name) AS l
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (a b+ c?) WITHIN INTERVAL '30' SECOND
        DEFINE a AS x >= 2, b AS x < PREV(x) OR x < LAST(b.x, 1) OR name = 'b', c AS x > a.x
    )"""
#: Without a limit in time, of which undecided rows are kept.
PLAIN_CLAUSE = """
    SELECT * FROM events MATCH_RECOGNIZE (
        PARTITION BY key ORDER BY at MEASURES FIRST(a.x) AS f AFTER MATCH SKIP TO NEXT ROW
        PATTERN (a b* c) DEFINE a AS x >= 2, b AS x <> PREV(x) OR name = 'b', c AS x = 0
    )"""
CLAUSES = {"sql": CLAUSE, "rows": PLAIN_CLAUSE}
NAMES = ("registers", "held", "late", "decimals", "python", "sql", "rows", "shared", "skipped")


def automaton(name: str) -> Automaton:
    if name in CLAUSES:
        return read(CLAUSES[name], SCHEMA)[1].automaton
    return compile_pattern(pattern(name), SCHEMA)


@dataclass(frozen=True)
class Case:
    """A matcher, the events that it has seen when its state is kept, and those that come after."""

    automaton: Automaton
    matcher: Matcher
    before: pa.Table
    after: pa.Table

    @classmethod
    def named(cls, name: str) -> Case:
        made, table = automaton(name), rows()
        types = [column.type for column in events.values(made, table)]
        found = matcher(made, types, late=name == "late")
        return cls(made, found, table.slice(0, 40), table.slice(40))

    def process(self, state: Any, table: pa.Table, watermark: int) -> tuple[Any, Found]:
        masks = events.met(self.automaton, table).astype(np.int64)
        times, values = events.micros(table.column("at")), events.values(self.automaton, table)
        batch = Batch(table.column("key").combine_chunks(), times, masks, values, table)
        return self.matcher.process(state, batch, watermark)

    def saved(self) -> bytes:
        """Return the state after the first events."""
        empty = self.matcher.empty(pa.string(), self.before.schema)
        state, _ = self.process(empty, self.before, 35_000_000)
        return self.matcher.dump(state)

    def continued(self, state: bytes) -> list[Any]:
        """Return what is found from a state on, until no event comes any more."""
        kept, found = self.process(self.matcher.load(state), self.after, 55_000_000)
        _, last = self.process(kept, self.after.slice(0, 0), FOREVER)
        return [*matches(found), *matches(last)]


def matches(found: Found) -> list[Any]:
    """Return each match: key, moment, whether it is late, blocks and numbers of its events, its own number."""
    numbers, own = found.rows.column("number").to_pylist(), found.numbers
    return [
        [
            key.as_py(),
            int(found.at[place]),
            bool(found.late[place]),
            found.blocks[first:last].tolist(),
            numbers[first:last],
            None if own is None else int(own[place]),
        ]
        for place, (key, first, last) in enumerate(
            zip(found.keys, found.starts, found.ends, strict=True)
        )
    ]


def make(path: Path) -> None:
    path.mkdir(parents=True)
    for name in NAMES:
        case = Case.named(name)
        state = case.saved()
        (path / f"{name}.state").write_bytes(state)
        described = None if name in CLAUSES else pattern(name).described()
        content = {"described": described, "found": case.continued(state)}
        (path / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
