from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import ALIVE, SETTLED, Job, JobState, advance
from millstream.errors import InvalidTransition, JobBusy


def job(state: JobState = JobState.RUNNING, **more: object) -> Job:
    up = 0.0 if state in (JobState.RUNNING, JobState.DRAINING) else None
    return replace(Job("flights", state), **{"ready_at": up, **more})  # type: ignore[arg-type]


def test_a_job_that_is_deployed_opens_its_inboxes_before_it_starts_its_driver() -> None:
    after, orders = advance(Job("flights"), life.Deployed(), 1.0)
    assert (after.state, after.since) == (JobState.STARTING, 1.0)
    assert orders == [life.OpenInboxes(), life.StartDriver()]


def test_the_pauses_before_a_driver_is_started_again_grow_up_to_a_minute() -> None:
    one, pauses = job(), []
    for _ in range(life.MOST_DEATHS - 1):
        one, orders = advance(one, life.DriverDied("it died"), 0.0)
        assert isinstance(orders[0], life.StartDriver)
        pauses.append(orders[0].after_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60]
    assert one.state is JobState.RESTARTING
    failed, orders = advance(one, life.DriverDied("it died again"), 0.0)
    assert (failed.state, failed.reason, orders) == (JobState.FAILED, "it died again", [])


def test_a_driver_that_has_run_well_for_five_minutes_is_forgiven() -> None:
    one = job(deaths=7, ready_at=100.0)
    forgiven, _ = advance(one, life.DriverDied("it died"), 100.0 + life.GOOD_RUNNING_S)
    assert (forgiven.state, forgiven.deaths) == (JobState.RESTARTING, 1)
    failed, _ = advance(one, life.DriverDied("it died"), 99.0 + life.GOOD_RUNNING_S)
    assert failed.state is JobState.FAILED
    restarted, _ = advance(one, life.EngineStarted(), 100.0 + life.GOOD_RUNNING_S)
    assert restarted.deaths == 0


def test_a_job_that_gets_on_between_deaths_is_not_given_up() -> None:
    one, committed = job(), 0
    for number in range(100):
        committed += number % (life.MOST_DEATHS - 1) == 0
        one, orders = advance(one, life.DriverDied("killed", committed=committed), 20.0 * number)
        assert one.state is JobState.RESTARTING, f"death {number}"
        assert orders
        one, _ = advance(one, life.PauseOver(), 20.0 * number + 100)
        one, _ = advance(one, life.DriverReady(), 20.0 * number + 100)
    # The storm is over, but the job stands still now.
    for _ in range(life.MOST_DEATHS):
        one, _ = advance(one, life.DriverDied("killed", committed=committed), 9_000.0)
    assert one.state is JobState.FAILED


def test_a_job_with_nothing_left_to_do_is_not_given_up() -> None:
    one = job()
    for _ in range(20):
        one, _ = advance(one, life.DriverDied("killed", committed=3, caught_up=True), 0.0)
    assert (one.state, one.deaths, one.restarts) == (JobState.RESTARTING, 1, 20)


@given(
    st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.booleans(), st.booleans()), max_size=40)
)
def test_a_job_fails_after_eight_deaths_in_a_row_without_progress(
    deaths: list[tuple[int | None, bool, bool]],
) -> None:
    """Each death: batches since the one before (None: it did not report), caught up, ran well."""
    one, now, committed, still = job(), 0.0, 0, 0
    for more, caught_up, well in deaths:
        now += life.GOOD_RUNNING_S if well else 1.0
        committed += more or 0
        reported = None if more is None else committed
        one, _ = advance(one, life.DriverDied("x", committed=reported, caught_up=caught_up), now)
        still = 1 if more or caught_up or well else still + 1
        assert (one.state is JobState.FAILED) == (still >= life.MOST_DEATHS)
        if one.state is JobState.FAILED:
            return
        one, _ = advance(replace(one, paused_until=now), life.PauseOver(), now)
        one, _ = advance(one, life.DriverReady(), now)


def test_a_driver_that_waits_for_another_engine_is_not_counted_as_dead() -> None:
    one = job(JobState.STARTING, deaths=7)
    after, orders = advance(one, life.DriverDied("node 1 is away", waiting=True), 1.0)
    assert (after.state, after.deaths, after.restarts) == (JobState.RESTARTING, 7, 0)
    assert (after.reason, orders) == ("node 1 is away", [life.StartDriver(life.WAITING_S)])


def test_a_pause_is_over_only_when_it_is() -> None:
    one, _ = advance(job(), life.DriverDied("it died"), 10.0)
    assert advance(one, life.PauseOver(), 10.5) == (one, [])
    over, orders = advance(one, life.PauseOver(), 11.0)
    assert (over.state, orders) == (JobState.STARTING, [life.StartDriver()])
    assert advance(over, life.PauseOver(), 12.0) == (over, []), "a second one changes nothing"
    _, orders = advance(one, life.PauseOver(), -3600.0)
    assert orders == [life.StartDriver()], "whoever set the clock back does not wait for an hour"


def test_a_hopeless_mistake_is_given_up_at_once_and_can_be_resumed() -> None:
    failed, orders = advance(job(), life.DriverDied("a mistake", hopeless=True), 1.0)
    assert (failed.state, failed.reason, failed.restarts, orders) == (
        JobState.FAILED,
        "a mistake",
        1,
        [],
    )
    resumed, orders = advance(failed, life.ResumeAsked(), 2.0)
    assert (resumed.state, resumed.reason, resumed.deaths) == (JobState.STARTING, None, 0)
    assert orders == [life.OpenInboxes(), life.OpenIntake(), life.StartDriver()]


def test_intake_is_paused_before_the_driver_drains() -> None:
    draining, orders = advance(job(), life.DrainAsked(), 1.0)
    assert (draining.state, draining.intake) == (JobState.DRAINING, False)
    assert orders == [life.PauseIntake(), life.DrainDriver(flush=False)]
    drained, orders = advance(draining, life.Drained(), 2.0)
    assert (drained.state, orders) == (JobState.DRAINED, [life.StopDriver()])


def test_a_flush_ends_the_intake_and_the_job() -> None:
    draining, orders = advance(job(), life.DrainAsked(flush=True), 1.0)
    assert orders == [life.PauseIntake(), life.EndIntake(), life.DrainDriver(flush=True)]
    finished, orders = advance(draining, life.Finished(), 2.0)
    assert (finished.state, orders) == (JobState.FINISHED, [life.StopDriver()])
    with pytest.raises(InvalidTransition, match="has finished"):
        advance(finished, life.ResumeAsked(), 3.0)
    assert advance(finished, life.DrainAsked(), 3.0) == (finished, [])


def test_a_flush_leaves_the_intake_of_runtimes_open_until_they_have_ended() -> None:
    hosted = job(hosted=True)
    draining, orders = advance(hosted, life.DrainAsked(flush=True), 1.0)
    assert orders == [life.OpenIntake(), life.DrainDriver(flush=True)]
    assert (draining.state, draining.intake) == (JobState.DRAINING, True)
    drained = job(JobState.DRAINED, hosted=True, intake=False, ready_at=None)
    assert advance(drained, life.DrainAsked(flush=True), 1.0)[1] == [
        life.OpenIntake(),
        life.StartDriver(),
    ]
    started = advance(draining, life.EngineStarted(), 2.0)[1]
    assert started == [life.OpenInboxes(), life.OpenIntake(), life.StartDriver()]
    failed = job(JobState.FAILED, hosted=True, flush=True, ready_at=None)
    assert advance(failed, life.ResumeAsked(), 3.0)[1] == [
        life.OpenInboxes(),
        life.OpenIntake(),
        life.StartDriver(),
    ]
    assert advance(hosted, life.DrainAsked(), 1.0)[1] == [life.PauseIntake(), life.DrainDriver()]


def test_a_flush_that_is_asked_for_while_the_driver_says_drained_is_not_lost() -> None:
    draining = job(JobState.DRAINING, flush=True, intake=False)
    after, orders = advance(draining, life.Drained(), 1.0)
    assert after.state is JobState.DRAINING
    assert orders == [life.StopDriver(), life.StartDriver()]


def test_a_driver_that_dies_while_draining_drains_on_when_it_is_back() -> None:
    draining = job(JobState.DRAINING, flush=True, intake=False)
    dead, orders = advance(draining, life.DriverDied("it died"), 5.0)
    assert (dead.state, orders) == (JobState.DRAINING, [life.StartDriver(1.0)])
    started, orders = advance(dead, life.PauseOver(), 6.0)
    assert orders == [life.StartDriver()]
    _, orders = advance(started, life.DriverReady(), 7.0)
    assert orders == [life.DrainDriver(flush=True)]


def test_a_new_engine_goes_on_with_what_was_written_down() -> None:
    for state in (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING):
        after, orders = advance(job(state, stopping=True), life.EngineStarted(), 1.0)
        assert (after.state, after.stopping) == (JobState.STARTING, False)
        assert orders == [life.OpenInboxes(), life.OpenIntake(), life.StartDriver()]
    draining = job(JobState.DRAINING, flush=True, intake=False)
    _, orders = advance(draining, life.EngineStarted(), 1.0)
    assert orders == [life.OpenInboxes(), life.PauseIntake(), life.EndIntake(), life.StartDriver()]
    drained = job(JobState.DRAINED, intake=False)
    assert advance(drained, life.EngineStarted(), 1.0)[1] == [
        life.OpenInboxes(),
        life.PauseIntake(),
    ]
    gone = job(JobState.UNDEPLOYED, purge=True)
    assert advance(gone, life.EngineStarted(), 1.0)[1][-1] == life.RemoveFiles(purge=True)


def test_an_engine_that_closes_drains_drivers_that_are_ready_and_kills_the_others() -> None:
    stopping, orders = advance(job(), life.EngineStopping(), 1.0)
    assert (stopping.state, stopping.intake) == (JobState.RUNNING, True), (
        "it takes events again with the next engine"
    )
    assert orders == [life.PauseIntake(), life.DrainDriver()]
    drained, orders = advance(stopping, life.Drained(), 2.0)
    assert (drained.state, orders) == (JobState.RUNNING, [life.StopDriver()])
    assert advance(drained, life.DriverDied("it died"), 3.0)[1] == []
    assert advance(job(JobState.STARTING), life.EngineStopping(), 1.0)[1] == [
        life.PauseIntake(),
        life.KillDriver(),
    ]
    assert advance(job(JobState.FINISHED), life.EngineStopping(), 1.0)[1] == []


@pytest.mark.parametrize("state", sorted(ALIVE))
def test_a_job_with_work_to_do_is_undeployed_by_force_alone(state: JobState) -> None:
    with pytest.raises(JobBusy) as error:
        advance(job(state), life.UndeployAsked(unprocessed=1204), 1.0)
    assert error.value.message == f'job "flights" is {state}; 1,204 events are not processed yet'
    assert error.value.hint == "millstream drain flights && millstream undeploy flights, or --force"
    gone, orders = advance(job(state), life.UndeployAsked(force=True), 1.0)
    assert gone.state is JobState.UNDEPLOYED
    assert orders == [life.KillDriver(), life.CloseInboxes(), life.RemoveFiles()]


@pytest.mark.parametrize("state", sorted(SETTLED))
def test_a_settled_job_is_undeployed(state: JobState) -> None:
    assert advance(job(state), life.UndeployAsked(purge=True), 1.0)[1][-1] == life.RemoveFiles(
        purge=True
    )


def test_what_makes_no_sense_is_refused_with_a_hint() -> None:
    for state, event, said in (
        (JobState.DEPLOYED, life.DrainAsked(), "has nothing to drain"),
        (JobState.FAILED, life.DrainAsked(), "has failed and cannot drain"),
        (JobState.DRAINING, life.ResumeAsked(), "is still draining"),
        (JobState.DEPLOYED, life.ResumeAsked(), "cannot be resumed"),
    ):
        with pytest.raises(InvalidTransition, match=said):
            advance(job(state), event, 1.0)


def test_a_peer_that_is_missed_is_named_and_holds_nobody_up() -> None:
    for flush in (False, True):
        draining = job(JobState.DRAINING, intake=False, flush=flush)
        failed, orders = advance(draining, life.PeerMissed("node 1"), 1.0)
        assert (failed.state, orders) == (JobState.FAILED, [life.StopDriver()])
        assert failed.reason == "node 1 did not answer: what is there is not processed"
        again, _ = advance(failed, life.ResumeAsked(), 2.0)
        assert again.state is (JobState.DRAINING if flush else JobState.STARTING)
        assert again.missed == (), "everybody is asked again"
    follower = job(JobState.DRAINING, intake=False, driver=False)
    drained, _ = advance(follower, life.PeerMissed("node 0"), 1.0)
    assert drained.state is JobState.DRAINED
    assert advance(drained, life.DrainAsked(flush=True), 3.0)[0].missed == ()


def test_stale_news_of_a_driver_change_nothing() -> None:
    for state in (*SETTLED, JobState.UNDEPLOYED, JobState.DEPLOYED):
        for event in (
            life.DriverReady(),
            life.DriverDied("late"),
            life.PauseOver(),
            life.Drained(),
            life.Finished(),
        ):
            assert advance(job(state), event, 1.0) == (job(state), [])
