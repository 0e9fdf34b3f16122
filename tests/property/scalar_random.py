"""Random rows and random expressions over them, of all types that conditions know."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from millstream.flow.schema import Schema

SCHEMA = Schema.parse(
    "t tinyint, i int, j int, l bigint, d double, e double, f float, m decimal(10,2), "
    "n decimal(5,3), s string, u string, b boolean, c boolean, at timestamp, till timestamp, "
    "day date, list array<int>, pair struct<x:int,y:string>"
)
_WORDS = [
    "",
    " ",
    "a",
    "A",
    "b%",
    "a_b",
    "abc",
    "ABC",
    " a b ",
    "é",
    "日本",
    "1",
    "-7",
    "1.5",
    "a\nb",
]
_NUMBERS = [0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e10, 1e-5, 123456.789, math.inf, -math.inf, math.nan]


def rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Return rows with nulls, NaN, infinities, empty texts and the ends of types."""
    return [{field.name: _value(random, field.type) for field in SCHEMA} for _ in range(count)]


def _value(random: Random, kind: str) -> Any:
    return None if random.random() < 0.12 else _VALUES[kind](random)


def _moment(random: Random) -> datetime:
    start = datetime(2024, 2, 28, tzinfo=UTC)
    steps = [timedelta(0), timedelta(microseconds=1), timedelta(hours=36), timedelta(days=400)]
    return start + random.choice(steps) + timedelta(minutes=random.randint(-(10**6), 10**6))


_VALUES: dict[str, Callable[[Random], Any]] = {
    "tinyint": lambda random: random.choice([-128, 127, *range(-3, 4)]),
    "int": lambda random: random.choice([-(2**31), 2**31 - 1, 10, 60, *range(-4, 5)]),
    "bigint": lambda random: random.choice([-(2**63), 2**63 - 1, 2**53 + 1, 10**12, *range(-4, 5)]),
    "double": lambda random: random.choice([*_NUMBERS, 2.0, 3.0, random.uniform(-100, 100)]),
    "float": lambda random: random.choice([0.0, 1.5, -2.25, 0.5, 1024.0, math.nan, math.inf]),
    "decimal(10,2)": lambda random: Decimal(random.randint(-(10**4), 10**4)).scaleb(-2),
    "decimal(5,3)": lambda random: Decimal(random.randint(-99999, 99999)).scaleb(-3),
    "string": lambda random: random.choice(_WORDS),
    "boolean": lambda random: random.random() < 0.5,
    "timestamp": _moment,
    "date": lambda random: _moment(random).date(),
    "array<int>": lambda random: random.choices([None, 0, 1, 2, 3], k=random.randint(0, 4)),
    "struct<x:int,y:string>": lambda random: {
        "x": random.choice([None, 1, 2]),
        "y": random.choice([None, "a", ""]),
    },
}


class Expressions:
    """Random SQL of a wanted type."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def any(self, depth: int = 3) -> str:
        kinds = ["boolean"] * 4 + ["int", "bigint", "double", "string", "timestamp", "date"]
        return self.of(self.random.choice([*kinds, "decimal", "float"]), depth)

    def of(self, kind: str, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self._leaf(kind)
        return self._filled(self.random.choice(_FORMS[kind]), depth - 1)

    def _filled(self, form: str, depth: int) -> str:
        """Return a form with an expression for every <kind> in it."""
        head, mark, rest = form.partition("<")
        if not mark or rest.startswith((">", "=", " ")):
            return form if not mark else head + mark + self._filled(rest, depth)
        kind, _, tail = rest.partition(">")
        if kind == "any":
            kind = self.random.choice(["int", "double", "string", "boolean", "timestamp"])
        tail = tail.replace("<same>", f"<{kind}>")
        return f"{head}{self.of(kind, depth)}{self._filled(tail, depth)}"

    def _leaf(self, kind: str) -> str:
        return self.random.choice(_LEAVES[kind])


_LEAVES = {
    "boolean": ["b", "c", "true", "false", "b", "cast(null as boolean)"],
    "int": ["i", "j", "t", "0", "1", "-3", "60", "pair.x", "size(list)", "cast(null as int)"],
    "bigint": ["l", "2147483648", "cast(1 as bigint)", "l"],
    "double": ["d", "e", "1e3", "cast(2.5 as double)", "0.5e0", "double('NaN')"],
    "float": ["f", "cast(1.5 as float)"],
    "decimal": ["m", "n", "1.5", "0.25", "10.0"],
    "string": [
        "s",
        "u",
        "'a'",
        "''",
        "'ab'",
        "pair.y",
        "'2024-05-06 07:08:09'",
        "cast(null as string)",
    ],
    "timestamp": ["at", "till", "timestamp '2024-03-01 12:00:00'"],
    "date": ["day", "date '2024-02-29'"],
}
_FORMS = {
    "boolean": [
        "(<any> = <same>)",
        "(<any> <> <same>)",
        "(<any> < <same>)",
        "(<any> <= <same>)",
        "(<any> > <same>)",
        "(<any> >= <same>)",
        "(<any> <=> <same>)",
        "(<int> < <double>)",
        "(<bigint> >= <double>)",
        "(<decimal> > <int>)",
        "(<decimal> = <decimal>)",
        "(<double> > <decimal>)",
        "(<float> <= <double>)",
        "(<float> > <int>)",
        "(<timestamp> < <date>)",
        "(<timestamp> > '2024-06-01')",
        "(<boolean> and <boolean>)",
        "(<boolean> or <boolean>)",
        "(not <boolean>)",
        "(<any> is null)",
        "(<any> is not null)",
        "(<boolean> is true)",
        "(<boolean> is not false)",
        "(<int> in (1, 2, null))",
        "(<int> in (1, -3, 60))",
        "(<double> in (<double>, <int>))",
        "(<string> in ('a', '', 'abc'))",
        "(<string> not in ('a', <string>))",
        "(<int> between <int> and <int>)",
        "(<double> not between <double> and 60)",
        "(<string> like 'a%')",
        "(<string> like '%_b%')",
        "(<string> like 'a!_b' escape '!')",
        "(<string> not like '%a')",
        "(<string> ilike 'A%')",
        "(<string> rlike '^a.*c$')",
        "(<string> rlike '[0-9]+')",
        "contains(<string>, <string>)",
        "startswith(<string>, 'a')",
        "endswith(<string>, <string>)",
        "array_contains(list, <int>)",
        "isnan(<double>)",
        "if(<boolean>, <boolean>, <boolean>)",
        "coalesce(<boolean>, <boolean>)",
        "cast(<int> as boolean)",
        "(<timestamp> - <timestamp> > interval 5 minutes)",
        "(<timestamp> < <timestamp> + interval 2 days)",
        "isnull(<any>)",
    ],
    "int": [
        "(<int> + <int>)",
        "(<int> - <int>)",
        "(<int> * <int>)",
        "(<int> % <int>)",
        "(- <int>)",
        "abs(<int>)",
        "length(<string>)",
        "cast(<double> as int)",
        "cast(<decimal> as int)",
        "cast(<boolean> as int)",
        "try_cast(<string> as int)",
        "try_cast(<double> as int)",
        "case when <boolean> then <int> when <boolean> then <int> else <int> end",
        "case <int> when 1 then <int> when <int> then 7 end",
        "if(<boolean>, <int>, <int>)",
        "coalesce(<int>, <int>)",
        "nullif(<int>, <int>)",
        "least(<int>, <int>)",
        "greatest(<int>, <int>, 1)",
        "hour(<timestamp>)",
        "minute(<timestamp>)",
        "second(<timestamp>)",
        "year(<date>)",
        "month(<timestamp>)",
        "day(<date>)",
        "dayofweek(<date>)",
        "weekday(<date>)",
        "dayofyear(<date>)",
        "weekofyear(<date>)",
        "quarter(<date>)",
        "extract(hour from <timestamp>)",
        "datediff(<date>, <date>)",
        "instr(<string>, 'a')",
        "try_add(<int>, <int>)",
        "(<int> & <int>)",
        "(<int> ^ <int>)",
        "pmod(<int>, 3)",
        "element_at(list, 1)",
        "round(<int>, -1)",
    ],
    "bigint": [
        "(<bigint> + <int>)",
        "(<int> * <bigint>)",
        "(<bigint> % 7)",
        "(<bigint> div 3)",
        "(<int> div <int>)",
        "cast(<int> as bigint)",
        "floor(<double>)",
        "ceil(<double>)",
        "unix_micros(<timestamp>)",
        "unix_millis(<timestamp>)",
        "try_multiply(<bigint>, <bigint>)",
        "try_cast(<decimal> as bigint)",
    ],
    "double": [
        "(<double> + <double>)",
        "(<double> - <int>)",
        "(<double> * <decimal>)",
        "(<double> / <double>)",
        "(<int> / <int>)",
        "(<double> / 4)",
        "(<double> % 3)",
        "(- <double>)",
        "abs(<double>)",
        "round(<double>)",
        "round(<double>, 2)",
        "sqrt(<double>)",
        "power(<double>, 2)",
        "sign(<double>)",
        "cast(<int> as double)",
        "cast(<decimal> as double)",
        "cast(<float> as double)",
        "try_cast(<string> as double)",
        "try_divide(<double>, <double>)",
        "coalesce(<double>, <int>)",
        "nanvl(<double>, <double>)",
        "least(<double>, <double>)",
        "greatest(<double>, <double>, <double>)",
        "if(<boolean>, <double>, <int>)",
        "(<float> + <double>)",
    ],
    "float": [
        "(<float> + <float>)",
        "(<float> * <float>)",
        "cast(<double> as float)",
        "(- <float>)",
    ],
    "decimal": [
        "(<decimal> + <decimal>)",
        "(<decimal> - <int>)",
        "(<decimal> * <decimal>)",
        "(<decimal> / <decimal>)",
        "(<decimal> + 1)",
        "(<decimal> % <decimal>)",
        "(- <decimal>)",
        "abs(<decimal>)",
        "round(<decimal>, 1)",
        "floor(<decimal>)",
        "ceil(<decimal>)",
        "cast(<int> as decimal(12,1))",
        "coalesce(<decimal>, <decimal>)",
        "greatest(<decimal>, <decimal>)",
    ],
    "string": [
        "lower(<string>)",
        "upper(<string>)",
        "trim(<string>)",
        "ltrim(<string>)",
        "rtrim(<string>)",
        "substring(<string>, 2, 1)",
        "substring(<string>, -2)",
        "substring(<string>, <int>, 2)",
        "left(<string>, 2)",
        "right(<string>, 1)",
        "concat(<string>, <string>)",
        "(<string> || <string>)",
        "concat_ws('-', <string>, <string>)",
        "replace(<string>, 'a', 'xy')",
        "coalesce(<string>, <string>)",
        "nullif(<string>, 'a')",
        "case when <boolean> then <string> else <string> end",
        "cast(<int> as string)",
        "cast(d as string)",
        "cast(f as string)",
        "cast(<decimal> as string)",
        "cast(<boolean> as string)",
        "cast(<timestamp> as string)",
        "cast(<date> as string)",
        "least(<string>, <string>)",
        "lpad(<string>, 4, 'xy')",
        "rpad(<string>, 2, '-')",
        "repeat(<string>, 2)",
        "reverse(<string>)",
    ],
    "timestamp": [
        "(<timestamp> + interval 5 minutes)",
        "(<timestamp> - interval '1' day)",
        "(<timestamp> + interval 36 hours)",
        "date_trunc('hour', <timestamp>)",
        "date_trunc('week', <timestamp>)",
        "date_trunc('month', <timestamp>)",
        "date_trunc('quarter', <timestamp>)",
        "date_trunc('minute', <timestamp>)",
        "cast(<date> as timestamp)",
        "try_cast(s as timestamp)",
        "try_cast('2024-05-06T07:08:09.5+02:00' as timestamp)",
        "coalesce(<timestamp>, <timestamp>)",
        "greatest(<timestamp>, <timestamp>)",
        "if(<boolean>, <timestamp>, <timestamp>)",
        "timestamp_seconds(<int>)",
        "(<date> + interval 3 hours)",
    ],
    "date": [
        "to_date(<timestamp>)",
        "cast(<timestamp> as date)",
        "date_add(<date>, 3)",
        "date_sub(<date>, 40)",
        "trunc(<date>, 'month')",
        "trunc(<date>, 'week')",
        "coalesce(<date>, <date>)",
        "(<date> + interval 2 days)",
        "try_cast(u as date)",
        "try_cast('2024-5-6' as date)",
    ],
}
