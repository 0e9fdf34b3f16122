"""SQL expressions as Python functions of a row; what Spark says to random ones is tested on Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from millstream.errors import InvalidCondition, UnknownColumn
from millstream.flow.schema import Schema
from millstream.patterns.scalar.function import scalar

SCHEMA = Schema.parse(
    "i int, l bigint, d double, m decimal(4,1), s string, b boolean, at timestamp, day date, "
    "some array<int>, tags map<string,int>, pair struct<x:int,`odd name`:string>"
)
NAN, INF = math.nan, math.inf
NOON = datetime(2026, 11, 16, 12, 30, 15, 250000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sql", "row", "expected"),
    [
        # null is unknown
        ("i > 1 and b", {"i": None, "b": False}, False),
        ("i > 1 and b", {"i": None, "b": True}, None),
        ("i > 1 or b", {"i": None, "b": True}, True),
        ("not (i > 1)", {"i": None}, None),
        ("i in (1, null)", {"i": 2}, None),
        ("i in (1, null)", {"i": 1}, True),
        ("i not in (1, 2)", {"i": None}, None),
        ("i <=> null", {"i": None}, True),
        ("i is distinct from 3", {"i": None}, True),
        # NaN is equal to itself and above all
        ("d = double('NaN')", {"d": NAN}, True),
        ("d > 1e300", {"d": NAN}, True),
        ("1e300 < d", {"d": NAN}, True),
        ("d <= double('Infinity')", {"d": NAN}, False),
        ("d in (1.0, double('NaN'))", {"d": NAN}, True),
        ("greatest(d, 5)", {"d": NAN}, NAN),
        # numbers
        ("l = d", {"l": 2**53 + 1, "d": 2.0**53}, True),
        ("-7 % 3", {}, -1),
        ("-7 div 2", {}, -3),
        ("i / 4", {"i": 1}, 0.25),
        ("m + 0.25", {"m": Decimal("1.5")}, Decimal("1.75")),
        ("round(2.5)", {}, Decimal(3)),
        ("round(d, 1)", {"d": -0.25}, -0.3),
        ("floor(d)", {"d": -0.5}, -1),
        ("try_divide(i, 0)", {"i": 1}, None),
        ("try_cast(s as int)", {"s": "x"}, None),
        ("-2147483648", {}, -(2**31)),
        # text
        ("s like 'a\\_%'", {"s": "a_x"}, True),
        ("s like 'a\\_%'", {"s": "abx"}, False),
        ("s like '%b'", {"s": "a\nb"}, True),
        ("s like 'x!%' escape '!'", {"s": "x%"}, True),
        ("s ilike 'A%'", {"s": "abc"}, True),
        ("s rlike '^\\\\d+$'", {"s": "12"}, True),
        ("trim(s)", {"s": " \ta "}, "\ta"),
        ("substring(s, -2, 1)", {"s": "abc"}, "b"),
        ("s || '-' || upper(s)", {"s": "a"}, "a-A"),
        ("concat_ws(',', s, null, 'b')", {"s": None}, "b"),
        ("cast(d as string)", {"d": 1e7}, "1.0E7"),
        # times
        ("hour(at)", {"at": NOON}, 12),
        ("date_trunc('hour', at)", {"at": NOON}, NOON.replace(minute=0, second=0, microsecond=0)),
        ("at - interval 90 minutes < '2026-11-16 11:00:16'", {"at": NOON}, True),
        ("at - timestamp '2026-11-16 12:00:00'", {"at": NOON}, timedelta(seconds=1815.25)),
        ("day + interval 1 day", {"day": date(2026, 12, 31)}, date(2027, 1, 1)),
        ("at > day", {"at": NOON, "day": NOON.date()}, True),
        ("datediff(day, '2026-11-10')", {"day": NOON.date()}, 6),
        ("timestampdiff(HOUR, at, timestamp '2026-11-16 09:00:00')", {"at": NOON}, -3),
        ("timestampdiff(MONTH, timestamp '2026-09-17 00:00:00', at)", {"at": NOON}, 1),
        ("timestampdiff(MONTH, timestamp '2026-08-31 23:00:00', at)", {"at": NOON}, 2),
        (
            "timestampdiff(MONTH, timestamp '2026-10-31 13:00:00', at - interval 15 days)",
            {"at": NOON},
            0,
        ),
        ("timestampdiff(QUARTER, at, timestamp '2026-01-17 00:00:00')", {"at": NOON}, -3),
        # what is inside of others
        ("size(some) > 1", {"some": [1, None]}, True),
        ("array_max(some)", {"some": [1, None, 3]}, 3),
        ("array_min(array(i, 2))", {"i": 4}, 2),
        ("array_contains(some, 2)", {"some": [1, None]}, None),
        ("some[1]", {"some": [1, 2]}, 2),
        ("tags['a'] + 1", {"tags": {"a": 4}}, 5),
        ("tags['z']", {"tags": {"a": 4}}, None),
        ("pair.x = 3", {"pair": {"x": 3}}, True),
        ("pair.`odd name`", {"pair": {"x": 3, "odd name": "yes"}}, "yes"),
        ("pair.x", {"pair": None}, None),
        # choices
        ("case when i > 1 then 'big' when i is null then 'none' end", {"i": None}, "none"),
        ("case i when 1 then 'one' end", {"i": 2}, None),
        ("if(i > 1, d, i)", {"i": 1, "d": 0.5}, 1.0),
        ("nullif(s, '')", {"s": ""}, None),
        ("nvl2(i, 'yes', 'no')", {"i": None}, "no"),
        # beside a null of the text nothing is computed, and a divisor is asked for first
        ("element_at(some, 1) + cast(null as int)", {"some": []}, None),
        ("case element_at(some, 1) when null then 1 else 2 end", {"some": []}, 2),
        ("element_at(some, 1) / i", {"some": [], "i": None}, None),
        ("i + element_at(some, 1)", {"some": [], "i": None}, None),
    ],
)
def test_an_expression_is_what_spark_computes(sql, row, expected):
    found = scalar(sql, SCHEMA)(row)
    assert found is expected or found == expected or (expected is NAN and math.isnan(found))
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("sql", "row", "error"),
    [
        ("i + 1", {"i": 2**31 - 1}, OverflowError),
        ("l * l", {"l": 2**40}, OverflowError),
        ("- i", {"i": -(2**31)}, OverflowError),
        ("i / 0", {"i": 1}, ZeroDivisionError),
        ("d % 0", {"d": 1.0}, ZeroDivisionError),
        ("cast(s as int)", {"s": "1.5"}, ValueError),
        ("cast(d as int)", {"d": 1e10}, OverflowError),
        ("some[5]", {"some": [1]}, ValueError),
        ("element_at(some, 1) + i", {"some": [], "i": None}, ValueError),
        ("i / element_at(some, 1)", {"some": [], "i": None}, ValueError),
    ],
)
def test_what_fails_in_spark_fails(sql, row, error):
    with pytest.raises(error):
        scalar(sql, SCHEMA)(row)


@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        ("soundex(s) = 'A'", r"uses soundex\(\), which only Spark computes"),
        ("exists(some, x -> x > 1)", "uses exists"),
        ("my_function(s)", r"uses my_function\(\)"),
        ("rand() < 0.5", r"uses rand\(\)"),
        ("at < current_timestamp()", r"uses current_timestamp\(\)"),
        ("s rlike '\\\\p{Alpha}'", "has a regular expression that Python cannot read"),
        ("s rlike 'a\\\\Z'", "means something else in Java"),
        ("s like s escape '!!'", "an ESCAPE that is not one character"),
        ("s like 'a!b' escape '!'", "before nothing that it could escape"),
        ("s > 1", "compares a string with a int"),
        ("i and b", "takes a int for true or false"),
        ("upper(i)", "gives a int where a string should be"),
        ("s + 1", "calculates with a string and a int"),
        ("pair.z", 'takes field "z", which is not in struct'),
        ("i.x", 'takes field "x" of a int'),
        ("at + interval 1 month", "an interval without a fixed length"),
        ("timestamp 'noon' < at", "casts 'noon' to timestamp"),
        ("i in (select 1)", "which only Spark computes"),
        ("s like any ('a', 'b')", "which only Spark computes"),
    ],
)
def test_what_is_not_known_is_refused_by_name_when_the_function_is_made(sql, wrong):
    with pytest.raises(InvalidCondition, match=wrong):
        scalar(sql, SCHEMA)


def test_a_column_that_is_not_there_is_refused_and_names_have_no_case():
    with pytest.raises(UnknownColumn, match='reads column "ii"'):
        scalar("ii > 1", SCHEMA)
    assert scalar("I > 1", SCHEMA)({"i": 2}) is True


@pytest.mark.parametrize(
    ("sql", "row", "expected"),
    [
        ("x > 1.5", {"x": 2}, True),
        ("x > 1.5", {"x": None}, None),
        ("x > 1.5", {}, None),
        ("x > 1.5", {"x": NAN}, True),
        ("x + 0.5", {"x": 1}, 1.5),
        ("x + y", {"x": 1, "y": 2}, 3),
        ("x / y", {"x": 1, "y": 2}, 0.5),
        ("x = 'a' or y in (1, 2)", {"x": "b", "y": 2}, True),
        ("lower(x) like 'a%'", {"x": "ABC"}, True),
        ("hour(x)", {"x": "2026-11-16T12:30:00Z"}, 12),
        ("x.y.z > 1", {"x": {"y": {"z": 2}}}, True),
        ("coalesce(x, 0.5)", {}, 0.5),
        ("cast(x as int) + 1", {"x": "41"}, 42),
        ("round(x, 1)", {"x": 2.25}, 2.3),
        ("abs(x)", {"x": -3}, 3),
    ],
)
def test_without_a_schema_values_are_what_comes(sql, row, expected):
    found = scalar(sql)(row)
    assert found == expected
    assert type(found) is type(expected)


def test_texts_of_users_are_never_source():
    evil = '\'"""); import os #\\n\' = s'
    assert scalar(evil, SCHEMA)({"s": '"""); import os #\n'}) is True
    column = scalar("`a'b\"\\n` = 1")
    assert column({"a'b\"\\n": 1}) is True


def test_an_expression_may_be_long_but_not_deeper_than_python_reads():
    long = " or ".join(f"i = {number}" for number in range(150))
    assert scalar(long, SCHEMA)({"i": 149}) is True
    assert scalar(f"i in ({', '.join(map(str, range(5000)))})", SCHEMA)({"i": 4999}) is True
    with pytest.raises(InvalidCondition, match="nested too deeply"):
        scalar(" + ".join(["i"] * 150), SCHEMA)
