"""Every departure from New York's three airports in 2013, with the weather.

    python examples/flights/prepare.py              makes the two recordings in data/
    millstream plan examples/flights/flow.py
    millstream run examples/flights/flow.py --until-end

Five groups, each with a checkpoint of its own:

    hourly     flights and delays per airport and hour, into a journal
    delays     that journal, joined with the weather of the same airport and hour
    airlines   flights per airline and day, and how many of them were late
    totals     a running total per airport, one row for every flight
    grounded   planes that left late, then later, and then not at all, with the name of the airline from a program
"""

import millstream as ms

#: The speed of the replay: a year in half a minute.
SPEED = 1_000_000
#: `at` is when a flight should have left; one that never left has no delay.
FLIGHT = (
    "carrier string, flight int, plane string, origin string, dest string, delay int, at timestamp"
)

flow = ms.Flow("flights", switch_every="1 day")

departures = flow.source(
    "departures",
    ms.replay("data/departures.parquet", FLIGHT, speed=SPEED),
    time="at",
    lateness="30 minutes",
    key="origin",
)
weather = flow.source(
    "weather",
    ms.replay(
        "data/weather.parquet",
        "origin string, hour timestamp, temperature double, wind double, rain double, visibility double",
        speed=SPEED,
    ),
    time="hour",
)

hourly = departures.window(
    "hours",
    every="1 hour",
    by={"origin": "origin", "hour": "date_trunc('hour', at)"},
    flights="count(*)",
    cancelled="count_if(delay IS NULL)",
    delay="avg(delay)",
    worst="max(delay)",
).journal("hourly")

# Some hours have no weather report. Their flights count too.
hourly.join("conditions", weather, on=["origin", "hour"], within="1 hour", how="left").sink(
    "delays", ms.parquet("out/delays")
)

# The demo switches to a version in which a flight is late after half an hour.
departures.window(
    "days", every="1 day", by="carrier", flights="count(*)", late="count_if(delay > 15)"
).sink("airlines", ms.parquet("out/airlines"))


def count(
    total: dict[str, int], flight: dict[str, object]
) -> tuple[dict[str, int], dict[str, object]]:
    """Add a flight to its airport's total; early departures do not reduce it."""
    delay = flight["delay"]
    total = {
        "number": total["number"] + 1,
        "cancelled": total["cancelled"] + (delay is None),
        "minutes": total["minutes"] + max(delay or 0, 0),
    }
    return total, flight | total


departures.fold(
    "total",
    count,
    initial={"number": 0, "cancelled": 0, "minutes": 0},
    output=f"{FLIGHT}, number long, cancelled long, minutes long",
).sink("totals", ms.parquet("out/totals"))

# Flights that were cancelled before they had a plane have nothing to follow.
planes = departures.sql("planes", "SELECT * FROM departures WHERE plane IS NOT NULL")

grounded = planes.match(
    "late_later_cancelled",
    ms.Pattern()
    .begin("late", "delay > 30")
    .followed_by("later", "delay > late.delay")
    .followed_by("cancelled", "delay IS NULL")
    .within("2 days"),
    by="plane",
    emit="plane, cancelled.carrier, cancelled.flight, late.at as began, late.delay as late, later.delay as later",
)
# A program adds the names of the airlines. It could be written in any language.
grounded.action(
    "airline",
    ["./airline", "data/airlines.csv"],
    input="carrier",
    output="airline string",
    files=["../../sdk/python/millstream_action.py", "data/airlines.csv"],
).sink("grounded", ms.parquet("out/grounded"))
