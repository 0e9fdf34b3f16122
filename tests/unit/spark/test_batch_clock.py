from __future__ import annotations

import threading
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.batch_clock import CAUSES, BatchClock, Spending, note, spent
from millstream.spark.failpoints import passing


class Ticking:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def batch(clock: BatchClock, time: Ticking, steps: Sequence[tuple[float, str]]) -> None:
    with clock.running():
        for seconds, point in steps:
            time.now += seconds
            clock.passed(point) if point in ("turn", "written") else passing(point)


def test_time_is_put_down_to_the_step_that_it_leads_to() -> None:
    time = Ticking()
    clock = BatchClock(time)
    steps = [(0.5, "logged"), (2, "turn"), (8, "staged"), (1, "decided"), (3, "published")]
    batch(clock, time, [*steps, (0.25, "written"), (0.25, "before-commit")])
    assert clock.seconds == {
        "planning": 0.5,
        "waiting": 2,
        "running": 8,
        "commit": 1,
        "publishing": 3.5,
    }


def test_a_target_without_points_has_run_its_stages_when_it_is_written() -> None:
    time = Ticking()
    clock = BatchClock(time)
    batch(clock, time, [(0, "logged"), (4, "written"), (1, "before-commit")])
    assert (clock.seconds["running"], clock.seconds["publishing"]) == (4, 1)


def test_two_targets_are_both_measured_and_points_of_others_are_none() -> None:
    time = Ticking()
    clock = BatchClock(time)
    one = [(3, "staged"), (1, "switch-asked"), (1, "decided"), (1, "published")]
    batch(clock, time, [(0, "logged"), *one, *one])
    assert (clock.seconds["running"], clock.seconds["commit"]) == (6, 4)


def test_a_clock_is_read_by_its_own_thread_alone() -> None:
    time = Ticking()
    clock = BatchClock(time)
    with clock.running():
        time.now += 5
        other = threading.Thread(target=note, args=("staged",))
        other.start()
        other.join()
        assert not clock.seconds
    note("staged")
    assert not clock.seconds


def test_sparks_durations_and_ours_add_up_to_the_trigger() -> None:
    durations = {
        "latestOffset": 100,
        "queryPlanning": 200,
        "walCommit": 50,
        "addBatch": 5_000,
        "commitOffsets": 150,
        "triggerExecution": 5_600,
    }
    found = spent(durations, {"running": 4.0, "publishing": 0.5}, state_ms=6_000, tasks=2)
    assert found == {
        "reading": 0.1,
        "planning": 0.7,
        "running": 1.0,
        "state": 3.0,
        "publishing": 0.5,
        "commit": 0.2,
    }


@given(
    st.dictionaries(
        st.sampled_from(["latestOffset", "addBatch", "walCommit"]), st.integers(0, 10**6)
    ),
    st.dictionaries(st.sampled_from(["running", "publishing", "commit"]), st.floats(0, 1e4)),
    st.floats(0, 1e9),
    st.integers(0, 64),
)
def test_no_time_is_negative(
    durations: dict[str, int], sink: dict[str, float], state_ms: float, tasks: int
) -> None:
    found = spent(durations, sink, state_ms, tasks)
    assert set(found) <= set(CAUSES)
    assert all(seconds > 0 for seconds in found.values())


def test_triggers_are_added_up_and_what_the_sink_did_counts_once() -> None:
    time = Ticking()
    clock, spending = BatchClock(time), Spending()
    states = [{"allUpdatesTimeMs": 600, "allRemovalsTimeMs": 200, "commitTimeMs": 200}]
    for _ in range(2):
        batch(clock, time, [(0.5, "logged"), (3, "staged"), (0.5, "published")])
        ran = {"durationMs": {"addBatch": 4_000, "walCommit": 100}, "stateOperators": states}
        spending.add([ran], clock, 1)
        spending.add([{"durationMs": {"latestOffset": 50}, "stateOperators": []}], clock, 1)
    assert spending.seconds == {
        "reading": 0.1,
        "planning": 1.0,
        "running": 4.0,
        "state": 2.0,
        "publishing": 1.0,
        "commit": 0.2,
    }


def test_batches_that_are_seen_together_take_what_the_clock_has_of_all() -> None:
    time = Ticking()
    clock, spending = BatchClock(time), Spending()
    for _ in range(3):
        batch(clock, time, [(0.5, "logged"), (3, "staged"), (0.5, "published")])
    ran = {"durationMs": {"addBatch": 5_000}, "stateOperators": []}
    spending.add([ran] * 3, clock, 1)
    assert spending.seconds == {"planning": 4.5, "running": 9.0, "publishing": 1.5}


def test_a_new_clock_begins_at_nothing() -> None:
    time = Ticking()
    spending = Spending()
    for clock in (BatchClock(time), BatchClock(time)):
        batch(clock, time, [(1, "logged"), (3, "staged")])
        spending.add([{"durationMs": {"addBatch": 4_000}, "stateOperators": []}], clock, 1)
    assert spending.seconds == {"planning": 2.0, "running": 6.0}


def test_what_spark_counts_as_updates_of_a_stage_in_python_is_all_that_its_task_does() -> None:
    time = Ticking()
    clock, spending = BatchClock(time), Spending()
    times = {"allUpdatesTimeMs": 2_500, "allRemovalsTimeMs": 0, "commitTimeMs": 500}
    operator = {"operatorName": "transformWithStateInPandasExec", **times}
    batch(clock, time, [(0, "logged"), (3, "staged")])
    spending.add([{"durationMs": {"addBatch": 3_000}, "stateOperators": [operator]}], clock, 1)
    assert spending.seconds == {"running": 2.5, "state": 0.5}
