"""`plot`: the matches of patterns over time, from any kind of table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from millstream.errors import InvalidOption, NoTime, UnknownColumn
from millstream.flow.site import here
from millstream.web.timeline import Dot, Span, Timeline, timeline

Row = dict[str, Any]
#: Columns about the match, which are not part of its key.
_ABOUT = ("pattern", "timed_out")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def plot(
    matches: Any,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    title: str = "matches",
    limit: int = 200,
) -> Timeline:
    """Draw matches as a timeline: a lane per key, a bar per match, a dot per event.

        ms.plot(ms.match(df, pattern, key="card"))                  # in a notebook
        ms.plot(rows, by="origin", title="delays").save("delays.html")

    A run that timed out is drawn with dashes, and its events are faint. Events are the blocks
    of a match, if it comes with them, else its columns that are times. Times are shown in UTC;
    those without a zone are taken for that.

    Args:
        matches: A DataFrame of Spark (not a stream), pandas, Polars or Arrow, or rows:
            dictionaries, as `millstream.testing.matches` returns them, or as a sink has written
            them.
        by: The columns that make a lane; the first one that is a text or a whole number, if it is
            left out.
        time: The time column of events and matches; needed only if events have several.
        title: The title.
        limit: How many matches are drawn at most, the earliest.
    """
    if limit < 1:
        raise InvalidOption(f"a plot of {limit} matches", hint="draw at least one", where=here())
    rows = _rows(matches, time, limit)
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    lanes = _lanes(rows, names, by)
    if time is not None and rows and not any(time in _fields(row) for row in rows):
        hint = f"they have {', '.join(names)}"
        raise UnknownColumn(f'the matches have no time "{time}"', hint=hint, where=here())
    several = len({row.get("pattern") for row in rows}) > 1
    spans = [_span(row, [*lanes, "pattern"] if several else lanes, time) for row in rows]
    shown = sorted(spans, key=lambda span: (span.begin, span.end, span.lane))[:limit]
    return timeline(shown, title=title, note=_note(shown, len(spans) > limit))


# What they come in


def _rows(matches: Any, time: str | None, limit: int) -> list[Row]:
    """Return matches as dictionaries; of a Spark DataFrame no more than one more than the limit."""
    if getattr(matches, "isStreaming", False):
        msg = "a stream has no end, and a plot needs one"
        hint = "plot what it has written: ms.plot(spark.read.parquet(...))"
        raise InvalidOption(msg, hint=hint, where=here())
    if hasattr(matches, "toArrow"):
        moments = [name for name, kind in matches.dtypes if kind.startswith("timestamp")]
        order = time if time in moments else moments[-1] if moments else None
        first = matches if order is None else matches.orderBy(order)
        found = first.limit(limit + 1).toArrow().to_pylist()
    elif hasattr(matches, "to_arrow"):
        found = matches.to_arrow().to_pylist()
    elif hasattr(matches, "to_pylist"):
        found = matches.to_pylist()
    elif hasattr(matches, "to_dict"):
        found = matches.to_dict("records")
    else:
        found = matches
    if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
        msg = f"matches cannot be read from {type(matches).__name__}"
        hint = "give a DataFrame, an Arrow table or a list of dictionaries"
        raise InvalidOption(msg, hint=hint, where=here())
    return [_row(one) for one in found]


def _row(one: Any) -> Row:
    plain = _plain(one)
    if not isinstance(plain, dict):
        msg = f"a match is a dictionary, not {type(one).__name__}"
        hint = "give a DataFrame, an Arrow table or a list of dictionaries"
        raise InvalidOption(msg, hint=hint, where=here())
    return plain


def _plain(value: Any) -> Any:
    """Return a value with dictionaries, lists and times for whatever stands for them."""
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple) or type(value).__name__ == "ndarray":
        return [_plain(inner) for inner in value]
    if isinstance(value, str) and _MOMENT.match(value):
        return _read(value)
    if isinstance(value, datetime):
        # pandas has a time that is none, and is not equal to itself.
        return value if value == value else None  # noqa: PLR0124
    return value


def _read(text: str) -> datetime | str:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


# What they are


def _lanes(rows: Sequence[Row], names: Sequence[str], by: str | Sequence[str] | None) -> list[str]:
    """Return the columns that make a lane."""
    if by is None:
        plain = (
            name
            for name in names
            if name not in _ABOUT and any(_is_key(row.get(name)) for row in rows)
        )
        return [name for name in [next(plain, None)] if name is not None]
    asked = [by] if isinstance(by, str) else list(by)
    unknown = [name for name in asked if rows and name not in names]
    if unknown:
        msg = f'the matches have no column "{unknown[0]}"'
        raise UnknownColumn(msg, hint=f"they have {', '.join(names)}", where=here())
    return asked


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _span(row: Row, lanes: Sequence[str], time: str | None) -> Span:
    blocks = [dot for name, value in row.items() for dot in _events(name, value, row, time)]
    own = [
        Dot(_seconds(value), name, f"{name}  {_written(value)}")
        for name, value in row.items()
        if _is_time(value)
    ]
    # The time of a match is that of its last event, or the moment at which it became certain.
    dots = sorted(blocks or own, key=lambda dot: dot.at)
    if not dots:
        hint = 'let matches come out with one: emit="card, first.at as began"'
        raise NoTime("a match has no time", hint=hint, where=here())
    until = max((dot.at for dot in own), default=None)
    said = "\n".join(f"{name}: {_written(value)}" for name, value in row.items())
    lane = " · ".join(_written(row.get(name)) for name in lanes)
    return Span(lane, dots, said, until, open=row.get("timed_out") is True)


def _events(name: str, value: Any, row: Row, time: str | None) -> list[Dot]:
    """Return the events that a block has taken."""
    taken = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    events = [event for event in taken if isinstance(event, dict)]
    moments = ((event, _moment(event, row, time)) for event in events)
    return [
        Dot(_seconds(at), name, _event_said(name, event)) for event, at in moments if at is not None
    ]


def _moment(event: Row, row: Row, time: str | None) -> datetime | None:
    found = {name: value for name, value in event.items() if _is_time(value)}
    if time is not None:
        return found.get(time)
    shared = [name for name in found if _is_time(row.get(name))]
    names = list(found) if len(found) == 1 else shared
    if found and len(names) != 1:
        msg = f"events have the times {', '.join(found)}"
        raise NoTime(msg, hint=f'say which is theirs: time="{next(iter(found))}"', where=here())
    return found[names[0]] if names else None


def _fields(row: Row) -> set[str]:
    inner = [value if isinstance(value, list) else [value] for value in row.values()]
    return {
        *row,
        *(
            name
            for values in inner
            for value in values
            if isinstance(value, dict)
            for name in value
        ),
    }


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime)


# What is written


def _seconds(at: datetime) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _written(value: Any) -> str:
    match value:
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            return moment.replace(tzinfo=None).isoformat(
                " ", "auto" if moment.microsecond else "seconds"
            )
        case dict():
            return ", ".join(f"{name} {_written(inner)}" for name, inner in value.items())
        case list():
            return "; ".join(_written(inner) for inner in value)
        case float():
            return f"{value:g}"
        case None:
            return "none"
        case _:
            return str(value)


def _event_said(name: str, event: Row) -> str:
    return "\n".join([name, *(f"{column}: {_written(value)}" for column, value in event.items())])


def _note(spans: Sequence[Span], more: bool) -> str:
    if not spans:
        return "no matches"
    first = datetime.fromtimestamp(min(span.begin for span in spans), UTC)
    last = datetime.fromtimestamp(max(span.end for span in spans), UTC)
    if first.date() == last.date():
        days = f"{first:%-d %b %Y}"
    else:
        days = f"{first:%-d %b %Y} to {last:%-d %b %Y}"
    if more:
        count = f"the first {len(spans):,} matches"
    else:
        count = f"{len(spans):,} match{'es' if len(spans) > 1 else ''}"
    return f"{count}, {days}, UTC"
