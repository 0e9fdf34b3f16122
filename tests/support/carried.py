"""A flow whose versions change what keeps state, and what comes of it in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import millstream as ms
from millstream.spark.flow_run import FlowRun
from millstream.switch.request import SwitchRequest
from support.lives import LIMIT, Switches
from support.recording import SECOND, Row
from support.switched import Build, begun
from support.undisturbed import Results, iso, line

SINKS: Final = ("totals", "counts")
_TOTALS: Final = "k string, at timestamp, total long"
_COUNTS: Final = "k string, at timestamp, n long, more long"
Step = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


def within(version: int) -> int:
    """Return for how many seconds a version knows the rows that it has seen."""
    return (10, 25, 15)[version % 3]


def later(value: int) -> int:
    """Return by how many seconds a result is dated after its row."""
    return value % 20


def carried(version: str) -> ms.Flow:
    """Return a version of a flow: each has another function, another form of state or another name for it."""
    flow, events = begun()
    number = int(version)
    once = events.distinct("once", by=["k", "v"], within=f"{within(number)} s")
    once.fold("summed", adder(number), initial=0, output=_TOTALS, by="k").sink(
        "totals", ms.jsonl("totals")
    )
    name, initial, convert = counted_by(number)
    events.fold(
        name, counter(number), initial=initial, output=_COUNTS, by="k", convert=convert
    ).sink("counts", ms.parquet("counts"))
    return flow


def counted_by(number: int) -> tuple[str, Any, Callable[[Any], Any] | None]:
    """Return the stage that counts, what its states begin with, and what makes them of those before."""
    if number == 1:
        return "seen", 0, None
    if number == 2:
        return "counted", {"n": 0}, lambda n: {"n": n}
    return "counted", {"n": 0, "more": 100}, lambda n: {"n": n}


#: By the number of a version, the names that its states had before.
RENAMES: Final = {2: {"seen": "counted"}}


def adder(number: int) -> Step:
    def added(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        total += number * row["v"]
        at = row["at"] + timedelta(seconds=row["v"] % 20)
        return total, {"k": row["k"], "at": at, "total": total}

    return added


def counter(number: int) -> Step:
    def counted(state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if number == 1:
            state, n, more = state + 1, state + 1, None
        else:
            state["n"] += 1
            if "more" in state:
                state["more"] += number
            n, more = state["n"], state.get("more")
        return state, {"k": row["k"], "at": row["at"], "n": n, "more": more}

    return counted


@dataclass(frozen=True, slots=True)
class CarryingSwitches(Switches):
    """Versions are asked for with the new names of their states."""

    def ask(self, run: FlowRun, build: Build, turns: int) -> None:
        done = int(run.version) - 1
        if done < len(self.after) and turns > self.after[done] and run.switching() is None:
            states = RENAMES.get(done + 2, {})
            run.switch(
                build(str(done + 2)), str(done + 2), SwitchRequest(timeout=LIMIT, states=states)
            )


@dataclass
class _Model:
    """What stages keep, by key."""

    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    more: dict[str, int] = field(default_factory=dict)


def carried_results(rows: list[Row], cuts: list[int]) -> Results:
    """Return what the versions give that have the rows between two cuts each."""
    model, found = _Model(), {"totals": Counter[str](), "counts": Counter[str]()}
    edges = [0, *cuts, rows[-1][2] + 1]
    for number, (begin, end) in enumerate(pairwise(edges), 1):
        for row in (row for row in rows if begin <= row[2] < end):
            _take(model, number, row, found)
        # What a version has forgotten stays forgotten.
        keep = within(number) * SECOND
        model.seen = {one: at for one, at in model.seen.items() if at > end - keep}
        if number == 2:
            model.more = dict.fromkeys(model.counts, 100)
    return found


def _take(model: _Model, number: int, row: Row, found: Results) -> None:
    key, value, at = row
    known = model.seen.get((key, value))
    if known is None or at - known >= within(number) * SECOND:
        model.seen[key, value] = at
        model.totals[key] += number * value
        dated = iso(at + later(value) * SECOND)
        found["totals"][line({"k": key, "at": dated, "total": model.totals[key]})] += 1
    model.counts[key] += 1
    more = None
    if number > 2:
        more = model.more[key] = model.more.get(key, 100) + number
    counts = {"k": key, "at": iso(at), "n": model.counts[key], "more": more}
    found["counts"][line({name: one for name, one in counts.items() if one is not None})] += 1
