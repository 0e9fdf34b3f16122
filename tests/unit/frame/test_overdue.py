"""Tests that take long are named while they run."""

from __future__ import annotations

import time

import pytest

from support.overdue import Overdue


def test_a_test_is_named_each_time_it_has_run_for_as_long_again(
    pytestconfig: pytest.Config,
) -> None:
    overdue = Overdue(pytestconfig, patience_s=10)
    before = time.monotonic()
    overdue.pytest_runtest_logstart("a")
    assert overdue.lines(before + 9) == []
    assert overdue.lines(before + 12) == ["running for 12 s: a"]
    assert overdue.lines(before + 15) == []
    assert overdue.lines(before + 21) == ["running for 21 s: a"]
    overdue.pytest_runtest_logstart("a")  # a second try begins
    assert overdue.lines(time.monotonic() + 9) == []
    overdue.pytest_runtest_logfinish("a")
    assert overdue.lines(before + 100) == []
