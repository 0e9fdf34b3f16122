"""Functions of times and dates; like all of Millstream they are in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from sqlglot import exp

from millstream.clock import EPOCH, MICROSECOND
from millstream.patterns.history import Value
from millstream.patterns.scalar.calling import constant, given, strict
from millstream.patterns.scalar.codes import Build, Code, Writer

_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
Moment = date | datetime


def day_of_week(day: Moment) -> int:
    """Return the day of the week; Sunday is 1."""
    return day.isoweekday() % 7 + 1


def day_of_year(day: Moment) -> int:
    return day.timetuple().tm_yday


def quarter(day: Moment) -> int:
    return (day.month + 2) // 3


def week(day: Moment) -> int:
    return day.isocalendar().week


def seconds(moment: datetime) -> Decimal:
    return Decimal(moment.second * 10**6 + moment.microsecond).scaleb(-6)


_PARTS: Final[dict[str, tuple[Callable[..., Value], str, str]]] = {
    "YEAR": (lambda day: day.year, "int", "date"),
    "QUARTER": (quarter, "int", "date"),
    "MONTH": (lambda day: day.month, "int", "date"),
    "WEEK": (week, "int", "date"),
    "DAY": (lambda day: day.day, "int", "date"),
    "DAYOFWEEK": (day_of_week, "int", "date"),
    "DOW": (day_of_week, "int", "date"),
    "DOY": (day_of_year, "int", "date"),
    "HOUR": (lambda moment: moment.hour, "int", "timestamp"),
    "MINUTE": (lambda moment: moment.minute, "int", "timestamp"),
    "SECOND": (seconds, "decimal(8,6)", "timestamp"),
}


def _part(name: str) -> Build:
    helper, result, takes = _PARTS[name]
    return strict(helper, result, takes)


def _extracted(writer: Writer, tree: exp.Extract) -> Code:
    return _part_named(writer, tree.this.name, tree.expression, tree)


def _date_part(writer: Writer, tree: exp.Anonymous) -> Code:
    name, moment = tree.expressions
    return _part_named(writer, str(constant(writer, name, tree)), moment, tree)


def _part_named(writer: Writer, name: str, moment: exp.Expr, tree: exp.Expr) -> Code:
    unit = name.upper()
    found = next((_PARTS[one] for one in (unit, unit.removesuffix("S")) if one in _PARTS), None)
    if found is None:
        raise writer.refused(tree)
    helper, result, takes = found
    code = given(writer, writer.code(moment), takes, tree)
    return writer.call(helper, result, code)


def _day(writer: Writer, tree: exp.TsOrDsToDate) -> Code:
    if tree.args.get("format") is not None:
        raise writer.refused(tree)
    return given(writer, writer.code(tree.this), "date", tree)


# Beginnings

_FIRST_OF_DAY: Final = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
_WITHIN_DAY: Final[dict[str, dict[str, int]]] = {
    "DAY": _FIRST_OF_DAY,
    "HOUR": {"minute": 0, "second": 0, "microsecond": 0},
    "MINUTE": {"second": 0, "microsecond": 0},
    "SECOND": {"microsecond": 0},
    "MICROSECOND": {},
}
_DAYS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
    **dict.fromkeys(("MONTH", "MON", "MM"), "MONTH"),
    **{unit: unit for unit in ("QUARTER", "WEEK")},
}


def first_day(day: Value, unit: str) -> Value:
    """Return the first day of the year, quarter, month or week of a day."""
    match unit:
        case "YEAR":
            return day.replace(month=1, day=1)
        case "QUARTER":
            return day.replace(month=day.month - (day.month - 1) % 3, day=1)
        case "MONTH":
            return day.replace(day=1)
    return day - timedelta(days=day.weekday())


def _truncated(writer: Writer, tree: exp.TimestampTrunc) -> Code:
    unit = tree.args["unit"].name.upper()
    unit = {"DD": "DAY"}.get(unit, unit)
    code = writer.code(tree.this)
    code = given(
        writer, code, "timestamp_ntz" if code.type == "timestamp_ntz" else "timestamp", tree
    )

    def truncated(moment: datetime) -> datetime:
        if unit == "MILLISECOND":
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        if unit in _WITHIN_DAY:
            return moment.replace(**_WITHIN_DAY[unit])  # type: ignore[arg-type]
        found: datetime = first_day(moment.replace(**_FIRST_OF_DAY), _DAYS[unit])  # type: ignore[arg-type]
        return found

    if unit not in (*_WITHIN_DAY, *_DAYS, "MILLISECOND"):
        raise writer.refused(tree)
    return writer.call(truncated, code.type or "timestamp", code)


def _first_day(writer: Writer, tree: exp.DateTrunc) -> Code:
    unit = _DAYS.get(tree.args["unit"].name.upper())
    code = given(writer, writer.code(tree.this), "date", tree)
    if unit is None:
        raise writer.refused(tree)
    return writer.call(lambda day: first_day(day, unit), "date", code)


# Distances


def later(day: date, days: int) -> date:
    return day + timedelta(days=days)


def days_between(end: date, start: date) -> int:
    return (end - start).days


def _since(unit: timedelta) -> Callable[[datetime], int]:
    return lambda moment: (moment - EPOCH) // unit


def _after(unit: timedelta) -> Callable[[int], datetime]:
    return lambda count: EPOCH + count * unit


# Differences

_UNITS: Final = {
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": _MILLISECOND,
    "SECOND": _SECOND,
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
    "WEEK": timedelta(weeks=1),
}
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def months_between(first: datetime, last: datetime) -> int:
    """Return the whole months from one time to another, which may be earlier.

    As in Spark, a day that is not whole is taken off before months are counted.
    """
    day = last.date()
    if day > first.date() and last.time() < first.time():
        day -= timedelta(days=1)
    elif day < first.date() and last.time() > first.time():
        day += timedelta(days=1)
    return int((_months(day) - _months(first)) / 32)


def _months(day: Moment) -> int:
    # A month has fewer than 32 days, so that one is whole if as many lie between.
    return (day.year * 12 + day.month) * 32 + day.day


def _difference(writer: Writer, tree: exp.TimestampDiff) -> Code:
    unit = tree.args["unit"].name.upper()
    if unit not in _UNITS and unit not in _MONTHS:
        raise writer.refused(tree)

    def between(first: datetime, last: datetime) -> int:
        if unit in _MONTHS:
            return int(months_between(first, last) / _MONTHS[unit])
        whole = abs(last - first) // _UNITS[unit]
        return whole if last >= first else -whole

    codes = writer.codes([tree.expression, tree.this])
    moments = [given(writer, code, "timestamp", tree) for code in codes]
    return writer.call(between, "bigint", *moments)


def _days(writer: Writer, tree: exp.DateDiff) -> Code:
    if tree.args.get("unit") is not None:
        raise writer.refused(tree)
    return strict(days_between, "int", "date", "date")(writer, tree)


TIME_CALLS: Final[dict[type[exp.Expr], Build]] = {
    exp.Year: _part("YEAR"),
    exp.Quarter: _part("QUARTER"),
    exp.Month: _part("MONTH"),
    exp.Week: _part("WEEK"),
    exp.WeekOfYear: _part("WEEK"),
    exp.Day: _part("DAY"),
    exp.DayOfMonth: _part("DAY"),
    exp.DayOfWeek: _part("DAYOFWEEK"),
    exp.DayOfYear: _part("DOY"),
    exp.Hour: _part("HOUR"),
    exp.Minute: _part("MINUTE"),
    exp.Second: strict(lambda moment: moment.second, "int", "timestamp"),
    exp.Extract: _extracted,
    exp.TsOrDsToDate: _day,
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _first_day,
    exp.TsOrDsAdd: strict(later, "date", "date", "int"),
    exp.DateDiff: _days,
    exp.TimestampDiff: _difference,
    exp.UnixMicros: strict(_since(MICROSECOND), "bigint", "timestamp"),
    exp.UnixMillis: strict(_since(_MILLISECOND), "bigint", "timestamp"),
    exp.UnixSeconds: strict(_since(_SECOND), "bigint", "timestamp"),
}
TIME_NAMES: Final[dict[str, Build]] = {
    "weekday": strict(lambda day: day.weekday(), "int", "date"),
    "date_part": _date_part,
    "timestamp_micros": strict(_after(MICROSECOND), "timestamp", "bigint"),
    "timestamp_millis": strict(_after(_MILLISECOND), "timestamp", "bigint"),
    "timestamp_seconds": strict(_after(_SECOND), "timestamp", "bigint"),
}
