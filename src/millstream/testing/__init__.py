"""For tests of flows: feed rows, move event time, look at results.

    def test_three_delays_make_one_alert(flow_test):
        with flow_test("flights.py") as t:
            t.send("departures", [{"origin": "JFK", "delay": 61.0, "at": "2013-03-08 14:00"}])
            t.advance_to("2013-03-08 17:00")
            assert t.results("hourly")["flights"] == [1]

The whole flow runs on embedded Spark, with journals in a temporary folder. Only the ends are
different: the test feeds the sources, and the sinks are kept in memory. `flow_test` is a pytest
fixture once `millstream` is installed; all tests of a run share the Spark session. `matches` and
`timed_out` try a pattern on a few events, without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.matching import matches, timed_out
    from millstream.testing.under_test import FlowTest, Results, flow_test

__all__ = ["FlowTest", "Results", "flow_test", "matches", "timed_out"]


def __getattr__(name: str) -> Any:
    # pytest loads the plugin beside this in every run, which must not load Spark.
    if name not in __all__:
        raise AttributeError(name)
    from importlib import import_module

    home = "matching" if name in ("matches", "timed_out") else "under_test"
    try:
        return getattr(import_module(f"millstream.testing.{home}"), name)
    except ImportError as error:
        from millstream.extras import missing

        raise missing(error, f"millstream.testing.{name}") or error from error
