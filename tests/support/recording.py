"""What comes in while a flow lives: events that are the same for the same seed, three seconds of them a turn."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millstream.journal import Kind, journal_at
from millstream.spark.flow_run import FlowRun

SECOND: Final = 1_000_000
START: Final = 1_577_872_800 * SECOND
#: How long a turn is, in event time.
TURN: Final = 3 * SECOND
#: How many rows a partition gets in a turn.
ROWS: Final = 6
DDL: Final = "k string, v long, at timestamp"
TIMELESS_DDL: Final = "k string, v long"
_SCHEMA: Final = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
)
_SCHEMAS: Final = {
    "events": _SCHEMA,
    "timeless": pa.schema([_SCHEMA.field("k"), _SCHEMA.field("v")]),
}

Row = tuple[str, int, int]
#: Of a journal and a partition: its rows, or an instruction.
Recorded = list[tuple[str, int, Any]]


@dataclass(frozen=True, slots=True)
class Recording:
    """Events by turn.

    Two partitions have late rows, some of keys that come and go, and every fourth turn nothing; one
    only says that it is idle.
    """

    seed: int
    keys: int = 4

    def turn(self, number: int) -> Recorded:
        """Return the events of a turn."""
        chance, now = random.Random(self.seed * 100_003 + number), START + (number + 1) * TURN
        idle = (Kind.IDLE, now - TURN)
        found: Recorded = [("events", 2, idle)]
        found.append(("timeless", 0, [(f"k{number}", chance.randrange(100)) for _ in range(ROWS)]))
        for partition in (0, 1):
            rows = [self._row(chance, number, now) for _ in range(ROWS)]
            found.append(("events", partition, idle if number % 4 == 3 else rows))
        return found

    def _row(self, chance: random.Random, number: int, now: int) -> Row:
        key = chance.choice([*(f"k{n}" for n in range(self.keys)), f"t{number // 3}"])
        return key, chance.randrange(100), now - int(chance.choice([0, 0, 1, 2, 2.9, 3.5]) * SECOND)


END: Final[Recorded] = [
    *(("events", partition, (Kind.END_OF_STREAM, None)) for partition in range(3)),
    ("timeless", 0, (Kind.END_OF_STREAM, None)),
]


def perform(run: FlowRun, events: Recorded, turn: int) -> None:
    """Write the events of a turn to the journals that the flow has; once more changes nothing."""
    for journal, partition, what in events:
        if journal not in run.flow.stages:
            continue
        with journal_at(run.journal(journal)).writer(partition, timeout=120) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            schema = _SCHEMAS[journal]
            columns = zip(zip(*what, strict=True), schema, strict=True)
            arrays = [pa.array(list(column), field.type) for column, field in columns]
            writer.append("script", turn * ROWS, pa.RecordBatch.from_arrays(arrays, schema=schema))
