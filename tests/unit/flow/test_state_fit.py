"""Which states a changed fold can go on with, and what becomes of their values."""

from __future__ import annotations

import pytest

from millstream.flow.stages.state_fit import StateFit, fit_of_columns, fit_of_values, wider

SUMS = (("sums", (("n", "int"), ("total", "float"))),)


def columns(**states: dict[str, str]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    return tuple((name, tuple(one.items())) for name, one in states.items())


def test_the_same_columns_fit_as_they_are() -> None:
    fit = fit_of_columns(SUMS, SUMS, {})
    assert fit.as_it_is
    assert fit.fits
    assert fit.value({"sums": {"n": 1, "total": 2.0}}) == {"sums": {"n": 1, "total": 2.0}}


def test_wider_types_fit_as_they_are() -> None:
    after = columns(sums={"n": "bigint", "total": "double"})
    fit = fit_of_columns(SUMS, after, {})
    assert (fit.fits, fit.as_it_is) == (True, True)
    assert fit.changes == (
        'column "sums.n" was int, and is bigint',
        'column "sums.total" was float, and is double',
    )


@pytest.mark.parametrize(
    ("old", "new"), [("bigint", "int"), ("double", "float"), ("int", "double"), ("int", "string")]
)
def test_other_types_do_not_fit(old: str, new: str) -> None:
    assert not wider(old, new)
    fit = fit_of_columns(columns(sums={"n": old}), columns(sums={"n": new}), {})
    assert fit.differences == (f'column "sums.n" is {old}, and would be {new}',)


def test_an_added_column_begins_with_its_initial_value() -> None:
    after = columns(sums={"n": "int", "total": "float", "most": "double"}, seen={"ids": "int"})
    initial = {"sums": {"n": 0, "total": 0.0, "most": -1.0}, "seen": {"ids": 7}}
    fit = fit_of_columns(SUMS, after, initial)
    before = {"sums": {"n": 3, "total": 1.5}}
    assert fit.value(before) == {
        "sums": {"n": 3, "total": 1.5, "most": -1.0},
        "seen": {"ids": 7},
    }
    assert before == {"sums": {"n": 3, "total": 1.5}}, "the value before stays what it was"
    assert fit.value(before)["seen"] is not initial["seen"]


def test_all_differences_are_listed() -> None:
    before = columns(sums={"n": "bigint", "total": "double"}, seen={"ids": "int"})
    fit = fit_of_columns(before, columns(sums={"n": "int"}), {})
    assert fit.differences == (
        'column "sums.n" is bigint, and would be int',
        'column "sums.total" would be gone',
        'state "seen" would be gone',
    )


def test_states_are_renamed_and_dropped_by_name() -> None:
    before = columns(a={"n": "int"}, b={"n": "int"})
    fit = fit_of_columns(before, columns(a={"n": "int"}), {"a": {}}, {"b": "a"}, {"a"})
    assert fit.fits, fit.differences
    assert fit.value({"a": {"n": 1}, "b": {"n": 2}}) == {"a": {"n": 2}}
    assert fit.changes == ('state "b" is called "a" now', 'state "a" is dropped')


def test_what_is_not_declared_is_compared_by_what_states_begin_with() -> None:
    fit = fit_of_values({"n": 0, "in": {"x": 1}}, {"n": 5.0, "in": {"x": 1, "y": 2}, "more": []})
    assert fit.fits
    assert fit.value({"n": 4, "in": {"x": 3}}) == {"n": 4, "in": {"x": 3, "y": 2}, "more": []}
    assert fit.changes == ('"in.y" is new, and begins as 2', '"more" is new, and begins as []')
    assert fit_of_values({"n": 0}, {"m": 0}).differences == ('"n" would be gone',)
    assert fit_of_values({"n": 0}, {"n": "0"}).differences == (
        "\"n\" began as 0, and would as '0'",
    )
    assert fit_of_values(None, {"n": 0}).fits
    assert fit_of_values(True, 1).differences == ("a state began as True, and would as 1",)


def test_a_function_takes_whatever_there_is() -> None:
    fit = StateFit(convert=lambda value: {"n": value})
    assert (fit.fits, fit.as_it_is) == (True, False)
    assert fit.value(3) == {"n": 3}
