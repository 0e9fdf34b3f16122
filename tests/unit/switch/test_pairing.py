"""How the results of two versions of an output are paired, and what is told of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Comparison, Example, table
from millstream.switch.pairing import EXAMPLES, Pairing, close, frozen, plain

HOURLY = ("shop", "window_start", "amount")


def pairing(
    old: list[tuple[int, tuple[object, ...]]], new: list[tuple[int, tuple[object, ...]]]
) -> Pairing:
    found = Pairing("hourly", HOURLY, ("shop",), start="window_start")
    for start, row in old:
        found.feed("old", start, row)
    for start, row in new:
        found.feed("new", start, row)
    return found


def numbers(one: Compared) -> tuple[int, ...]:
    return one.equal, one.missing, one.extra, one.different, one.waiting


def test_each_result_is_equal_missing_extra_or_different_once_its_start_is_complete() -> None:
    found = pairing(
        [(0, ("a", 0, 1.0)), (0, ("b", 0, 2.0)), (0, ("c", 0, 3.0)), (9, ("a", 9, 1.0))],
        [(0, ("a", 0, 1.0)), (0, ("b", 0, 5.0)), (0, ("d", 0, 3.0))],
    )
    assert numbers(found.compared()) == (1, 0, 0, 0, 5)
    found.settle(9)
    assert numbers(found.compared()) == (1, 1, 1, 1, 1)
    b = {"shop": "b", "window_start": 0}
    assert found.compared().examples == (
        Example("different", {**b, "amount": 2.0}, {**b, "amount": 5.0}),
        Example("extra", None, {"shop": "d", "window_start": 0, "amount": 3.0}),
        Example("missing", {"shop": "c", "window_start": 0, "amount": 3.0}),
    )
    found.feed("new", 9, ("a", 9, 1.0))
    assert numbers(found.compared()) == (2, 1, 1, 1, 0)


def test_a_result_that_comes_twice_is_extra_once() -> None:
    found = pairing([(0, ("a", 0, 1.0))], [(0, ("a", 0, 1.0)), (0, ("a", 0, 1.0))])
    found.settle(1)
    assert numbers(found.compared()) == (1, 0, 1, 0, 0)


def test_floats_may_differ_in_their_last_digits_and_what_is_no_number_is_the_same() -> None:
    old = [(0, ("a", 0, 0.1 + 0.2)), (0, ("b", 0, math.nan)), (0, ("c", 0, 1.0))]
    found = pairing(old, [(0, ("a", 0, 0.3)), (0, ("b", 0, math.nan)), (0, ("c", 0, 1.001))])
    found.settle(1)
    assert numbers(found.compared()) == (2, 0, 0, 1, 0)
    assert close(frozen([1.0, {"x": 0.1 + 0.2}]), frozen([1.0, {"x": 0.3}]))
    assert not close(frozen([1.0]), frozen([1.0, 2.0]))


def test_the_same_result_with_another_start_is_another_result() -> None:
    found = pairing([(0, ("a", 0, 1.0))], [(5, ("a", 0, 1.0))])
    found.settle(10)
    assert numbers(found.compared()) == (0, 1, 1, 0, 0)


def test_a_few_examples_are_kept_and_all_are_counted() -> None:
    found = pairing([], [(0, (f"k{n}", 0, 1.0)) for n in range(10)])
    found.settle(1)
    assert found.compared().extra == 10
    assert len(found.compared().examples) == EXAMPLES


def test_values_are_shown_as_json_can_hold_them() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    values = (at, b"\x01\xff", Decimal("1.50"), math.inf, None, True, (1, at), "x" * 200)
    shown = [plain(frozen(value)) for value in values]
    assert shown[:7] == [
        "2026-01-01T12:00:00Z",
        "01ff",
        "1.50",
        "inf",
        None,
        True,
        [1, "2026-01-01T12:00:00Z"],
    ]
    assert shown[7] == "x" * 100 + "..."


def test_a_comparison_is_a_table_with_examples() -> None:
    found = pairing(
        [(0, ("a", 0, 1.0)), (0, ("b", 0, 2.0))], [(0, ("a", 0, 1.0)), (0, ("b", 0, 5.0))]
    )
    found.settle(1)
    new = Compared("daily", Change.NEW, extra=7)
    whole = Comparison(
        "2026-01-01T12:00:00Z",
        "2026-01-01T13:00:00Z",
        (found.compared((), ("tax",)), new),
        ("sums",),
        2,
    )
    assert (whole.counted, whole.same) == (2, False)
    assert table(whole).splitlines() == [
        " sink    equal  missing  extra  different  waiting",
        " hourly      1        0      0          1        0",
        " daily                       7                    ",
        "compared: results that start from 2026-01-01T12:00:00Z on, before 2026-01-01T13:00:00Z",
        "hourly: tax is new, and not compared",
        "daily is new: there is nothing to compare it with",
        "not in the shadow: sums, whose state is handed over in a switch",
        "the new version would have made 2 dead letters",
        "hourly different: shop=b window_start=0  amount 2.0 -> 5.0",
    ]


def test_outputs_that_only_one_version_has_make_no_difference() -> None:
    alone = Comparison("2026-01-01T12:00:00Z", None, (Compared("daily", Change.NEW, extra=7),))
    assert (alone.counted, alone.same) == (0, True)
    assert (
        "nothing was compared: no result that starts from 2026-01-01T12:00:00Z on is complete"
        in table(alone)
    )
    assert "the new version had not begun" in table(Comparison())
