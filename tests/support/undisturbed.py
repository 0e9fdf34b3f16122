"""What flows give for a recording, in plain Python: what they must give however they are disturbed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from support.recording import SECOND, Recording, Row

Results = dict[str, Counter[str]]
Windows = dict[tuple[str, int], list[int]]
LATENESS = 3 * SECOND


def line(values: dict[str, Any]) -> str:
    """Return a result as a text that is the same for the same values."""
    return json.dumps(values, sort_keys=True)


def small_results(recording: Recording, turns: int) -> Results:
    """Return what `small` gives, by sink."""
    rows = rows_of(recording, turns)
    return {
        "rows": _lines(_rows(rows)),
        "most": _lines(_of_windows(most_of(rows), 10, most=max)),
        "totals": _lines(_totals(rows)),
        "kept": counted(windows_of(rows, 10, 10), 10),
    }


def large_results(recording: Recording, turns: int) -> Results:
    """Return what `large` gives, by sink, but for the one whose results depend on the version."""
    rows = rows_of(recording, turns)
    return {
        "acted": _lines(
            {"k": key, "v": value, "at": iso(at), "twice": 2 * value} for key, value, at in rows
        ),
        "kept": _lines(_of_windows(windows_of(rows, 10, 10), 10, n=len)),
        "outer": _lines(_of_windows(windows_of(_ends(rows, 4, 12), 10, 10), 10, n=sum)),
        "singly": counted(windows_of(rows, 5, 5), 5),
        "sessions": _lines(_sessions(rows)),
        "joined": _lines(_joined(rows)),
        "risen": _lines(_risen(rows, overlapping=True)),
        "totals": _lines(_totals(_first_of(rows))),
        "apart": _lines(_risen(rows, overlapping=False)),
        "endless": _lines(_sessions(rows)),
        "timeless": _lines(_timeless(recording, turns)),
    }


def rising_results(recording: Recording, turns: int) -> Results:
    """Return what `rising` gives, by sink, without who made it."""
    rows = rows_of(recording, turns)
    return {
        "sliding": counted(windows_of(rows, 5, 15), 15),
        "kept": _lines(_of_windows(windows_of(rows, 10, 10), 10, n=len)),
    }


def chained_results(recording: Recording, turns: int) -> Results:
    """Return what `chained` gives, by sink, without who made it."""
    rows = rows_of(recording, turns)
    return {
        "rows": _lines(_rows(rows)),
        "outer": _lines(_of_windows(windows_of(_ends(rows, 5, 15), 10, 10), 10, n=sum)),
    }


def rows_of(recording: Recording, turns: int) -> list[Row]:
    """Return the rows of a recording that are not late, in the order in which stages see them."""
    found: list[tuple[int, int, int, Row]] = []
    for partition in (0, 1):
        highest, floor = 0, 0
        for turn in range(turns):
            what = _of(recording, turn, "events", partition)
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
        yield {
            "k": key,
            **_span(start, start + size_s * SECOND),
            **{name: of(values) for name, of in columns.items()},
        }


def _ends(rows: Iterable[Row], every_s: int, size_s: int) -> list[Row]:
    """Return windows as rows: how many they hold, at the last moment in them."""
    windows = windows_of(rows, every_s, size_s)
    return [
        (key, len(values), start + size_s * SECOND - 1) for (key, start), values in windows.items()
    ]


def most_of(rows: Iterable[Row]) -> Windows:
    """Return the windows of the sink "most" of `small`, with what they are to take the highest of."""
    return windows_of(_ends(rows, 5, 15), 10, 10)


def _sessions(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for key, mine in _by_key(rows).items():
        breaks = [
            n for n, (one, other) in enumerate(pairwise(mine), 1) if other[2] > one[2] + 2 * SECOND
        ]
        for first, last in pairwise([0, *breaks, len(mine)]):
            values = [value for _, value, _ in mine[first:last]]
            span = _span(mine[first][2], mine[last - 1][2] + 2 * SECOND)
            yield {"k": key, **span, "n": len(values), "total": sum(values)}


# other stages


def _rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    yield from ({"k": key, "v": value, "at": iso(at)} for key, value, at in rows)


def _joined(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for key, mine in _by_key(rows).items():
        others = [row for row in mine if row[1] % 2 == 1]
        for _, value, at in (row for row in mine if row[1] % 2 == 0):
            partners = [other for _, other, then in others if abs(at - then) <= 5 * SECOND]
            yield from ({"k": key, "v": value, "at": iso(at), "other": other} for other in partners)
            if not partners:
                yield {"k": key, "v": value, "at": iso(at)}


def _risen(rows: Iterable[Row], *, overlapping: bool) -> Iterator[dict[str, Any]]:
    for key, mine in _by_key(rows).items():
        after, open_until = -1, 0
        for first, (_, low, at) in enumerate(mine):
            if low >= 50 or (first <= after and not overlapping):
                continue
            rises = [
                n
                for n in range(first + 1, len(mine))
                if mine[n][1] > low + 20 and mine[n][2] - at < 6 * SECOND
            ]
            if rises:
                after = rises[0]
                # One that began earlier comes first if it comes at all: until that is known, others
                # wait.
                out = mine[after][2] if overlapping else max(mine[after][2], open_until)
                yield {"k": key, "low": low, "high": mine[after][1], "at": iso(out)}
            else:
                open_until = max(open_until, at + 6 * SECOND)


def _first_of(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows whose key and value have not been there for half a minute."""
    seen: dict[tuple[str, int], int] = {}
    for key, value, at in rows:
        if at - seen.get((key, value), 0) >= 30 * SECOND:
            seen[key, value] = at
            yield key, value, at


def _totals(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    totals: Counter[str] = Counter()
    for key, value, at in rows:
        totals[key] += value
        yield {"k": key, "at": iso(at), "total": totals[key]}


def _timeless(recording: Recording, turns: int) -> Iterator[dict[str, Any]]:
    for turn in range(turns):
        yield from ({"k": key, "v": value} for key, value in _of(recording, turn, "timeless", 0))


# small things


def _of(recording: Recording, turn: int, journal: str, partition: int) -> Any:
    (what,) = [
        one for name, place, one in recording.turn(turn) if (name, place) == (journal, partition)
    ]
    return what


def _by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def _lines(results: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(map(line, results))


def _span(start: int, end: int) -> dict[str, str]:
    return {"window_start": iso(start), "window_end": iso(end), "window_time": iso(end - 1)}


def iso(at: int) -> str:
    """Return a moment as sinks write it."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
