"""How many events a second a pattern's conditions are computed for at the edge, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from millstream.flow.schema import Schema
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.patterns.typed import coerced

SCHEMA = Schema.parse("origin string, flight string, delay double, gate int, at timestamp")
PATTERNS = {
    "one comparison": Pattern().begin("a", "delay > 95"),
    "two blocks": Pattern().begin("a", "delay > 95").followed_by("b", "delay < 1"),
    "looks back": Pattern()
    .begin("a", "delay > 95")
    .followed_by("b", "delay > a.delay and at - a.at < interval 1 hour"),
    "text and choices": Pattern()
    .begin("a", "flight like 'AA%' and lower(origin) in ('ack', 'bos') and delay > 95")
    .followed_by("b", "case when gate is null then delay else delay - gate end > 90"),
    "a predicate": Pattern().begin("a", lambda event: (event["delay"] or 0) > 95),
}


def rate(work: Callable[[], object], events: int) -> float:
    """Return the events a second of the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return events / best


def main() -> None:
    random, start = Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    raw = [
        {
            "origin": random.choice(["ACK", "BOS", "JFK"]),
            "flight": random.choice(["AA12", "UA7"]),
            "delay": random.choice([None, random.uniform(0, 100)]),
            "gate": random.randint(1, 40),
            "at": (start + timedelta(seconds=second)).isoformat(),
        }
        for second in range(20_000)
    ]
    print(
        f"{'coerced to the schema':24} {rate(lambda: [coerced(one, SCHEMA) for one in raw], len(raw)):12,.0f} /s"
    )
    rows = [coerced(one, SCHEMA) for one in raw]
    for name, pattern in PATTERNS.items():
        whole = pattern.within("1 hour").emit("origin, a.delay as delay")
        edge = EdgePattern.of(whole, schema=SCHEMA, time="at", key=["origin"])
        print(f"{name:24} {rate(partial(all_seen, edge, rows), len(rows)):12,.0f} /s")


def all_seen(pattern: EdgePattern, rows: list[dict[str, Any]]) -> None:
    seen = pattern.seen
    for row in rows:
        seen(("s", 1), 1_767_225_600_000_000, row)


if __name__ == "__main__":
    main()
