"""Jobs on one to three engines under crashes between any two steps; and with a rule broken, which must be noticed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import pytest

from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import Event, Job, JobState, Order, advance
from millstream.errors import JobBusy
from simulation.jobs.world import OURS, PEERS_S, Node, Operator, Rules, World, story, violation

SEEDS = 5_000


@pytest.mark.slow
def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        found = violation(seed)
        if found is not None:
            pytest.fail(f"seed {seed}: {found}\n" + "\n".join(story(seed)[-40:]), pytrace=False)


def test_the_same_seed_is_the_same_story() -> None:
    for seed in range(20):
        assert story(seed) == story(seed)


def test_the_seeds_reach_every_event_in_every_state_that_can_have_it() -> None:
    seen: set[str] = set()
    for seed in range(1_500):
        world = World(seed)
        world.run()
        seen |= world.seen
    alive = ("starting", "running", "restarting", "draining")
    settled = ("drained", "finished", "failed")
    wanted = {f"DriverDied in {state}" for state in ("starting", "running", "draining")}
    wanted |= {
        f"EngineStarted in {state}" for state in ("deployed", *alive, *settled, "undeployed")
    }
    wanted |= {f"EngineStopping in {state}" for state in ("starting", "running", "draining")}
    wanted |= {f"DrainAsked in {state}" for state in (*alive, "drained", "finished")}
    wanted |= {f"UndeployAsked in {state}" for state in settled}
    wanted |= {f"ResumeAsked in {state}" for state in ("drained", "failed")}
    wanted |= {
        "PeerMissed in draining",
        "Drained in draining",
        "Finished in draining",
        "PauseOver in draining",
    }
    assert wanted - seen == set()


def test_a_storm_of_kills_ends_no_job_that_gets_on() -> None:
    """Kills every 20 seconds for half an hour, while events keep coming."""
    for seed in range(200):
        world = World(seed)
        world.calm_at, world.deadly, world.brittle, world.fails = 1_800.0, 0.0, 0.0, False
        for node in reversed(world.nodes):
            world.deploy(node)

        def strike(world: World = world) -> None:
            for node in world.nodes:
                node.inbox.taken += 5
            for driver in world.drivers:
                if driver.alive and driver.told:
                    world.process(driver)
                    world.die(driver)
            world.after(20.0, strike)

        world.after(20.0, strike)
        ran(world, 1_800.0)
        job = world.nodes[0].job
        assert job is not None
        assert job.state in life.ALIVE, f"seed {seed}: after {job.restarts} restarts"
        assert job.restarts > life.MOST_DEATHS


# the shutdown problem: a source on engine 1 sends END_OF_STREAM to a sink on engine 2, which has
# shut down already


def quiet(engines: int) -> World:
    """A world in which nothing happens by itself but what engines and drivers do."""
    world = next(one for one in map(World, range(1_000)) if len(one.nodes) == engines)
    world.calm_at = world.brittle = world.deadly = 0.0
    for node in reversed(world.nodes):
        world.deploy(node)
        node.inbox.taken = 3
    world.after(20.0, world.watch_peers)
    return world


def ran(world: World, seconds: float) -> None:
    until = world.now + seconds
    while world._queue and world._queue[0][0] <= until:
        world.now, _, what = world._queue[0]
        heapq.heappop(world._queue)
        what()
        world.check()
    world.now = until


def state(node: Node) -> JobState | None:
    return None if node.job is None else node.job.state


def test_an_engine_that_has_shut_down_before_the_end_of_stream_reaches_it_blocks_nobody() -> None:
    world = quiet(2)
    first, second = world.nodes
    ran(world, 30)
    world.kill(second, for_good=True)
    world.ask(first, life.DrainAsked(flush=True))
    ran(world, PEERS_S + 30)
    assert first.job is not None
    assert first.job.state is JobState.FAILED, (
        "it has not finished: what is on engine 2 was not processed"
    )
    assert first.job.reason == "node 1 did not answer: what is there is not processed"
    assert world.ask(first, life.UndeployAsked())
    assert first.disk is None
    assert not any(driver.alive for driver in world.drivers if driver is not first.leaving)


def test_an_engine_that_comes_back_in_time_is_waited_for() -> None:
    world = quiet(2)
    first, second = world.nodes
    ran(world, 30)
    world.kill(second)
    world.ask(first, life.DrainAsked(flush=True))
    ran(world, 60)
    assert second.up
    assert state(first) is JobState.DRAINING, "the end is not in all partitions yet"
    world.ask(second, life.DrainAsked(flush=True))
    ran(world, 30)
    assert state(first) is JobState.FINISHED
    assert world.processed == [3, 3]


def test_draining_comes_before_undeploying_in_whatever_order_engines_are_told() -> None:
    world = quiet(2)
    first, second = world.nodes
    ran(world, 30)
    for node in (first, second):
        with pytest.raises(JobBusy):
            advance(node.job or Job("none"), life.UndeployAsked(), world.now)
    world.ask(second, life.DrainAsked())
    assert second.inbox.open, (
        "one that is drained stays, so that nobody waits for an inbox that is gone"
    )
    ran(world, PEERS_S + 1)
    assert state(second) is JobState.DRAINED, "it waits for the other engine, and not for good"
    assert state(first) is JobState.RUNNING
    operator = Operator(world)
    world.after(0.0, operator.step)
    ran(world, 200)
    assert operator.done
    assert world.processed == [3, 3]


def test_a_job_of_one_engine_is_deployed_entirely_or_not_at_all() -> None:
    after, orders = advance(Job("f", since=1.0), life.Deployed(), 2.0)
    assert (after.state, after.since) == (JobState.STARTING, 2.0)
    assert orders == [life.OpenInboxes(), life.StartDriver()]
    again = 0
    for seed in range(2_000):
        world = World(seed)
        if len(world.nodes) > 1:
            continue
        world.deploy(world.nodes[0])
        job, disk = world.nodes[0].job, world.nodes[0].disk
        assert world.deployed == (disk is not None)
        assert disk is None or disk.state is JobState.STARTING
        again += not world.deployed
        assert job is None or job == disk
    assert again > 0, "no seed crashes before the job is stored"


# broken rules


Advance = Callable[[Job, Event, float], life.Step]


def changed(event_kind: type, broken: Advance) -> Rules:
    """Our rules, with those for one kind of event broken."""

    def rule(job: Job, event: Event, now: float) -> life.Step:
        return (
            broken(job, event, now) if isinstance(event, event_kind) else advance(job, event, now)
        )

    return Rules(advance=rule)


def without(step: life.Step, *kinds: type) -> life.Step:
    return step[0], [order for order in step[1] if not isinstance(order, kinds)]


def drain_forgotten_at_a_restart(job: Job, event: Event, now: float) -> life.Step:
    running = replace(job, state=JobState.RUNNING) if job.state is JobState.DRAINING else job
    return advance(replace(running, intake=True), event, now)


def end_forgotten_at_a_restart(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.EndIntake)


def inboxes_closed_after_a_restart(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.OpenInboxes)


def still_stopping_after_a_restart(job: Job, event: Event, now: float) -> life.Step:
    after, orders = advance(job, event, now)
    return replace(after, stopping=job.stopping), orders


def death_ends_the_drain(job: Job, event: Event, now: float) -> life.Step:
    after, orders = advance(job, event, now)
    lost = job.state is JobState.DRAINING and after.state is JobState.DRAINING
    return (replace(after, state=JobState.RESTARTING), orders) if lost else (after, orders)


def never_given_up(job: Job, event: Event, now: float) -> life.Step:
    return advance(replace(job, deaths=min(job.deaths, 6)), event, now)


def waiting_is_counted(job: Job, event: Event, now: float) -> life.Step:
    assert isinstance(event, life.DriverDied)
    return advance(job, replace(event, waiting=False), now)


def given_up_too_soon(job: Job, event: Event, now: float) -> life.Step:
    return advance(replace(job, deaths=job.deaths + 2), event, now)


def no_pause(job: Job, event: Event, now: float) -> life.Step:
    after, orders = advance(job, event, now)
    at_once: list[Order] = [
        life.StartDriver() if isinstance(one, life.StartDriver) else one for one in orders
    ]
    return replace(after, paused_until=None), at_once


def flush_overtaken(job: Job, event: Event, now: float) -> life.Step:
    return advance(replace(job, flush=False), event, now)


def restarted_driver_not_told(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.DrainDriver)


def peer_waited_for(job: Job, event: Event, now: float) -> life.Step:
    return job, []


def missed_peer_finishes(job: Job, event: Event, now: float) -> life.Step:
    after, orders = advance(job, event, now)
    return (
        (replace(after, state=JobState.FINISHED), orders)
        if after.state is JobState.FAILED
        else (after, orders)
    )


def undeployed_while_running(job: Job, event: Event, now: float) -> life.Step:
    return advance(job, life.UndeployAsked(force=True, purge=True), now)


def driver_left(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.KillDriver)


def inboxes_left(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.CloseInboxes)


def intake_not_paused(job: Job, event: Event, now: float) -> life.Step:
    return without(advance(job, event, now), life.PauseIntake)


def drained_before_the_intake_is_paused(job: Job, event: Event, now: float) -> life.Step:
    after, orders = advance(job, event, now)
    drained = after.state is JobState.DRAINING and not after.flush
    return (
        (replace(after, state=JobState.DRAINED), [life.StopDriver()])
        if drained
        else (after, orders)
    )


def stored_before_it_begins(job: Job, event: Event, now: float) -> life.Step:
    return job, advance(job, event, now)[1]


def first_orders_forgotten(job: Job, event: Event, now: float) -> life.Step:
    return advance(job, event, now)[0], []


BROKEN = [
    (changed(life.Deployed, stored_before_it_begins), {"half deployed"}),
    (changed(life.Deployed, first_orders_forgotten), {"intake"}),
    (changed(life.EngineStarted, drain_forgotten_at_a_restart), {"forgotten"}),
    (changed(life.EngineStarted, end_forgotten_at_a_restart), {"jam", "finished"}),
    (changed(life.EngineStarted, inboxes_closed_after_a_restart), {"intake"}),
    (changed(life.EngineStarted, still_stopping_after_a_restart), {"jam"}),
    (changed(life.DriverDied, death_ends_the_drain), {"forgotten"}),
    (changed(life.DriverDied, never_given_up), {"giving up"}),
    (changed(life.DriverDied, given_up_too_soon), {"giving up"}),
    (changed(life.DriverDied, waiting_is_counted), {"giving up", "pauses"}),
    (changed(life.DriverDied, no_pause), {"pauses"}),
    (changed(life.Drained, flush_overtaken), {"forgotten"}),
    (changed(life.DriverReady, restarted_driver_not_told), {"jam"}),
    (changed(life.PeerMissed, peer_waited_for), {"jam"}),
    (changed(life.PeerMissed, missed_peer_finishes), {"finished"}),
    (changed(life.UndeployAsked, undeployed_while_running), {"lost"}),
    (changed(life.UndeployAsked, driver_left), {"left behind", "one driver"}),
    (changed(life.UndeployAsked, inboxes_left), {"left behind"}),
    (changed(life.DrainAsked, intake_not_paused), {"intake"}),
    (changed(life.DrainAsked, drained_before_the_intake_is_paused), {"drained", "intake"}),
    (
        replace(OURS, written_first=False),
        {"pauses", "giving up", "one driver", "lost", "left behind", "jam"},
    ),
    (
        replace(OURS, owners_asked=False),
        {"one driver", "jam", "giving up", "pauses", "drained", "finished"},
    ),
    (replace(OURS, orphans_ended=False), {"one driver"}),
]


def named(rules: Rules) -> str:
    if rules.advance is advance:
        return next(
            name
            for name in ("written_first", "owners_asked", "orphans_ended")
            if not getattr(rules, name)
        )
    return str(rules.advance.__closure__[0].cell_contents.__name__)  # type: ignore[index]


@pytest.mark.parametrize(
    ("rules", "promises"), [pytest.param(*one, id=named(one[0])) for one in BROKEN]
)
def test_a_broken_rule_is_noticed(rules: Rules, promises: set[str]) -> None:
    found = next(
        ((seed, one) for seed in range(1_500) if (one := violation(seed, rules)) is not None), None
    )
    assert found is not None, "1,500 seeds notice nothing"
    assert found[1].promise in promises, found
