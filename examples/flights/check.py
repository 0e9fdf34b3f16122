"""Is every flight there once? The flow's results against pandas, row by row.

What is expected is computed from the original tables and not from the
recordings or the journals, and by other code than the flow's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from examples.flights import prepare

from millstream.journal.kinds.files.dead import dead_counts
from millstream.journal.kinds.files.reader import Reader
from millstream.web import Check

FLIGHT = ["origin", "carrier", "flight", "at"]
HOUR = ["origin", "hour"]
DAY = ["carrier", "window_start"]
PLANE = ["plane", "began"]
TIME = "datetime64[ns, UTC]"
#: With their types, as a few days may have none of them.
GROUNDED = {
    "plane": "object",
    "began": TIME,
    "carrier": "object",
    "flight": "int64",
    "late": "int64",
    "later": "int64",
    "at": TIME,
}


@dataclass(frozen=True)
class Tables:
    """Two of everything, expected or found."""

    journal: pd.DataFrame
    totals: pd.DataFrame
    hourly: pd.DataFrame
    delays: pd.DataFrame
    airlines: pd.DataFrame
    grounded: pd.DataFrame


@dataclass(frozen=True)
class Comparison:
    """How two tables differ; each number counts rows."""

    rows: int
    missing: int
    repeated: int
    unknown: int
    wrong: int
    first: str = ""

    @property
    def same(self) -> bool:
        return not (self.missing or self.repeated or self.unknown or self.wrong)

    def __str__(self) -> str:
        if self.same:
            return f"{self.rows:,} rows, all equal"
        counts = {
            "missing": self.missing,
            "repeated": self.repeated,
            "unknown": self.unknown,
            "wrong": self.wrong,
        }
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"of {self.rows:,} rows {said}; the first: {self.first}"


def checks(
    wanted: Tables, got: Tables, dead: dict[str, int], cut: datetime | None = None
) -> list[Check]:
    """Return the promises, each with what was found."""
    counts = [*DAY, "flights"]
    found = {
        "every flight was stored once, also across the restart": compare(
            wanted.journal, got.journal, FLIGHT
        ),
        "every flight was counted once": compare(wanted.totals[FLIGHT], got.totals[FLIGHT], FLIGHT),
        "the running total is right at every single flight": compare(
            wanted.totals, got.totals, FLIGHT
        ),
        "flights, cancellations and delays are right for every airport and hour": compare(
            wanted.hourly, got.hourly, HOUR
        ),
        "every hour was joined with the weather of its airport, or with none": compare(
            wanted.delays, got.delays, HOUR
        ),
        "every flight was counted by one version of the airlines, none by both": compare(
            wanted.airlines[counts], got.airlines[counts], DAY
        ),
        f"each version counts late flights by its own rule{_of_both(wanted, cut)}": compare(
            wanted.airlines, got.airlines, DAY
        ),
        "every plane that left late, then later, then not at all was found": compare(
            wanted.grounded[list(GROUNDED)], got.grounded[list(GROUNDED)], PLANE
        ),
        "a program in its own process named the airline of each": compare(
            wanted.grounded, got.grounded, PLANE
        ),
    }
    promised = [
        Check(promise, str(difference), difference.same) for promise, difference in found.items()
    ]
    said = (
        ", ".join(f"{count:,} {reason}" for reason, count in dead.items())
        or "no late rows, no dead letters"
    )
    return [*promised, Check("no row was late or refused", said, not dead)]


def _of_both(wanted: Tables, cut: datetime | None) -> str:
    """Return how many results belong to each version."""
    if cut is None:
        return ""
    mine = int((wanted.airlines["window_start"] >= cut).sum())
    return f": {len(wanted.airlines) - mine:,} days of the old one, until {cut:%-d %b}, and {mine:,} of the new one"


def compare(expected: pd.DataFrame, found: pd.DataFrame, key: Sequence[str]) -> Comparison:
    """Compare two tables whose rows are known by `key`; null equals null, sums may differ in the last digit."""
    by = list(key)
    repeated = found.duplicated(by)
    both = expected.merge(
        found[~repeated], on=by, how="outer", suffixes=("", "|found"), indicator=True
    )
    missing, unknown = both["_merge"] == "left_only", both["_merge"] == "right_only"
    wrong = pd.Series(data=False, index=both.index)
    for column in expected.columns.difference(by):
        wrong |= ~_same(both[column], both[f"{column}|found"])
    wrong &= ~(missing | unknown)
    bad = pd.concat([both[missing | unknown | wrong][by], found[repeated][by]])
    first = ", ".join(str(value) for value in bad.iloc[0]) if len(bad) else ""
    return Comparison(
        len(expected),
        int(missing.sum()),
        int(repeated.sum()),
        int(unknown.sum()),
        int(wrong.sum()),
        first,
    )


def _same(one: pd.Series, other: pd.Series) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(one.dtype):
        return np.isclose(_floats(one), _floats(other), rtol=1e-12, atol=1e-9, equal_nan=True)
    return ((one == other) | (one.isna() & other.isna())).to_numpy()


def _floats(values: pd.Series) -> np.ndarray:
    return values.to_numpy(dtype="float64", na_value=np.nan)


# What there should be


def expected(days: int | None = None, cut: datetime | None = None) -> Tables:
    """Compute the results with pandas; from the cut on those of the second version."""
    flights, weather = prepare.departures(days), prepare.weather(days)
    hourly = hours(flights)
    delays = hourly.merge(weather, on=HOUR, how="left")
    named = grounded(flights).merge(prepare.airlines(), on="carrier", how="left")
    return Tables(
        flights[[*FLIGHT, "dest", "delay"]],
        running(flights),
        hourly,
        delays,
        by_day(flights, cut),
        named,
    )


def running(flights: pd.DataFrame) -> pd.DataFrame:
    late = flights["delay"].clip(lower=0).fillna(0).astype("int64")
    gone = flights["delay"].isna().astype("int64")
    airport = flights["origin"]
    return flights.assign(
        number=flights.groupby("origin").cumcount() + 1,
        cancelled=gone.groupby(airport).cumsum(),
        minutes=late.groupby(airport).cumsum(),
    )


def hours(flights: pd.DataFrame) -> pd.DataFrame:
    plain = flights.assign(
        hour=flights["at"].dt.floor("h"),
        gone=flights["delay"].isna().astype("int64"),
        delay=flights["delay"].astype("float64"),
    )
    return plain.groupby(HOUR, as_index=False).agg(
        flights=("delay", "size"),
        cancelled=("gone", "sum"),
        delay=("delay", "mean"),
        worst=("delay", "max"),
    )


def by_day(flights: pd.DataFrame, cut: datetime | None) -> pd.DataFrame:
    """Return the flights of each airline and day; from the cut on one is late after half an hour."""
    day = flights["at"].dt.floor("D")
    least = 15 if cut is None else np.where(day < cut, 15, 30)
    late = (flights["delay"].astype("float64") > least).astype("int64")
    plain = flights.assign(window_start=day, late=late)
    return plain.groupby(DAY, as_index=False).agg(flights=("late", "size"), late=("late", "sum"))


def grounded(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the planes that left late, then later, and then were cancelled, all in less than two days."""
    own = flights[flights["plane"].notna() & ((flights["delay"] > 30) | flights["delay"].isna())]
    found = []
    for _, plane in own.groupby("plane", sort=False):
        rows = list(plane.itertuples())
        for place, first in enumerate(rows):
            if pd.notna(first.delay):
                found += ended(
                    first,
                    (
                        row
                        for row in rows[place + 1 :]
                        if row.at < first.at + pd.Timedelta("2 days")
                    ),
                )
    return pd.DataFrame(found, columns=list(GROUNDED)).astype(GROUNDED)


def ended(first: Any, rest: Iterator[Any]) -> list[tuple[Any, ...]]:
    """Return the later and the cancelled flight of a plane that was late, if there are any."""
    worse = next((row for row in rest if pd.notna(row.delay) and row.delay > first.delay), None)
    last = next((row for row in rest if pd.isna(row.delay)), None)
    if worse is None or last is None:
        return []
    return [(first.plane, first.at, last.carrier, last.flight, first.delay, worse.delay, last.at)]


# What there is


def found(flow: Path, journals: Path) -> Tables:
    """Read the flow's sinks and journals."""
    out = flow.parent / "out"
    hourly = ["flights", "cancelled", "delay", "worst"]
    weather = ["temperature", "wind", "rain", "visibility"]
    return Tables(
        journal=rows(journals / "departures", [*FLIGHT, "dest", "delay"]),
        totals=pq.read_table(out / "totals").to_pandas(),
        hourly=rows(journals / "hourly", [*HOUR, *hourly]),
        delays=pq.read_table(out / "delays", columns=[*HOUR, *hourly, *weather]).to_pandas(),
        airlines=pq.read_table(out / "airlines", columns=[*DAY, "flights", "late"]).to_pandas(),
        grounded=matches(out / "grounded"),
    )


def matches(sink: Path) -> pd.DataFrame:
    """Return the matches of the pattern; a sink without rows has no files."""
    columns = [*GROUNDED, "airline"]
    if not any(sink.glob("*.parquet")):
        return pd.DataFrame(columns=columns).astype(GROUNDED)
    return pq.read_table(sink, columns=columns).to_pandas().astype(GROUNDED)


def rows(journal: Path, columns: list[str]) -> pd.DataFrame:
    """Return all rows of a journal."""
    reader = Reader(journal)
    parts = [reader.partition(number) for number in range(reader.description.partitions)]
    batches = [
        part.batch
        for view in parts
        for part in view.read(view.begin, view.end, columns)
        if part.batch
    ]
    return pa.Table.from_batches(
        batches, pa.schema([reader.description.schema.field(name) for name in columns])
    ).to_pandas()


def dead(journals: Path) -> dict[str, int]:
    """Return how many rows of the sources were refused, by reason."""
    counts: dict[str, int] = {}
    for source in ("departures", "weather"):
        for reason, count in dead_counts(journals / source).items():
            counts[reason] = counts.get(reason, 0) + count
    return counts
