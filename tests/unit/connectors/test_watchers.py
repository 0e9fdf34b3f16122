"""`ms.watchers`: what devices find, in a flow."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import FlowError
from millstream.flow.stages import Distinct, Source


def test_it_is_an_inbox_and_a_distinct_by_run_within_span_and_lateness() -> None:
    flow = ms.Flow("plant")
    found = ms.watchers(
        flow,
        "alarms",
        "machine string, at timestamp",
        time="at",
        span="1 minute",
        lateness="10 minutes",
        key="machine",
    )
    source, once = flow.stages["alarms"], flow.stages[found.name]
    assert isinstance(source, Source)
    assert isinstance(once, Distinct)
    assert source.schema.names == ("machine", "at", "run", "pattern", "device")
    assert (source.lateness, source.key) == (timedelta(minutes=10), "machine")
    assert (once.by, once.within) == (("run",), timedelta(minutes=11))


def test_columns_that_are_given_are_not_added_again() -> None:
    flow = ms.Flow("plant")
    ms.watchers(flow, "alarms", "run string, at timestamp", time="at", span="1 minute")
    source = flow.stages["alarms"]
    assert isinstance(source, Source)
    assert source.schema.names == ("run", "at", "pattern", "device")


def test_a_wrong_span_is_refused() -> None:
    with pytest.raises(FlowError):
        ms.watchers(ms.Flow("plant"), "alarms", "at timestamp", time="at", span="soon")
