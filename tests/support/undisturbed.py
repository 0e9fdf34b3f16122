"""What the flow of `lives` gives for a recording, in plain Python: what it must give however it is disturbed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from support.lives import Row, piece
from support.switched import SECOND

Results = dict[str, Counter[str]]
Windows = dict[tuple[str, int], list[int]]
LATENESS = 3 * SECOND


def line(values: dict[str, Any]) -> str:
    """Return a result as a text that is the same for the same values."""
    return json.dumps(values, sort_keys=True)


def small_results(seed: int, turns: int) -> Results:
    """Return what `small` gives, by sink."""
    rows = rows_of(seed, turns)
    return {
        "rows": _lines({"k": key, "v": value, "at": iso(at)} for key, value, at in rows),
        "most": _lines(_of_windows(windows_of(_ends(rows, 5, 15), 10, 10), 10, most=max)),
        "totals": _lines(_totals(rows)),
        "kept": counted(windows_of(rows, 10, 10), 10),
    }


def rows_of(seed: int, turns: int) -> list[Row]:
    """Return the rows of a recording that are not late, in the order in which stages see them."""
    found: list[tuple[int, int, int, Row]] = []
    for partition in (0, 1):
        highest, floor = 0, 0
        for turn in range(turns):
            (what,) = [one for place, one in piece(seed, turn) if place == partition]
            if isinstance(what, tuple):
                floor = what[1]
                continue
            for row in what:
                if row[2] >= max(highest - LATENESS, floor):
                    found.append((row[2], partition, len(found), row))
                highest = max(highest, row[2])
    return [row for *_, row in sorted(found)]


# windows


def windows_of(rows: Iterable[Row], every_s: int, size_s: int) -> Windows:
    """Return the values in each window, by key and start."""
    found: Windows = defaultdict(list)
    for key, value, at in rows:
        start = at - at % (every_s * SECOND)
        while start > at - size_s * SECOND:
            found[key, start].append(value)
            start -= every_s * SECOND
    return found


def counted(windows: Windows, size_s: int) -> Counter[str]:
    """Return windows with what is counted in them."""
    return _lines(_of_windows(windows, size_s, n=len, total=sum))


def _of_windows(windows: Windows, size_s: int, **columns: Any) -> Iterator[dict[str, Any]]:
    for (key, start), values in windows.items():
        yield {"k": key, **_span(start, start + size_s * SECOND), **{name: of(values) for name, of in columns.items()}}


def _ends(rows: Iterable[Row], every_s: int, size_s: int) -> list[Row]:
    """Return windows as rows: how many they hold, at the last moment in them."""
    windows = windows_of(rows, every_s, size_s)
    return [(key, len(values), start + size_s * SECOND - 1) for (key, start), values in windows.items()]


def _totals(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    totals: Counter[str] = Counter()
    for key, value, at in rows:
        totals[key] += value
        yield {"k": key, "at": iso(at), "total": totals[key]}


def _lines(results: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(map(line, results))


def _span(start: int, end: int) -> dict[str, str]:
    return {"window_start": iso(start), "window_end": iso(end), "window_time": iso(end - 1)}


def iso(at: int) -> str:
    """Return a moment as sinks write it."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
