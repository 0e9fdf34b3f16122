"""Who should run a job, over random engines and jobs: everybody agrees, nobody waits for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as some

from millstream.engine.leases import rules
from millstream.engine.leases.rules import INTERVALS, TURN, EngineView, JobView, Watched

ids = some.sampled_from([f"engine{n}" for n in range(5)])
engines = some.lists(
    some.builds(
        EngineView, ids, some.integers(1, 16), draining=some.booleans(), silent=some.booleans()
    ),
    max_size=5,
    unique_by=lambda one: one.id,
)
jobs = some.lists(
    some.builds(
        JobView,
        some.sampled_from([f"job{n}" for n in range(12)]),
        some.none() | ids,
        some.integers(0, 12),
        settled=some.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
)


@given(jobs, engines)
def test_of_those_that_see_the_same_one_alone_claims_first(
    seen: list[JobView], there: list[EngineView]
) -> None:
    able = [one.id for one in there if one.candidate]
    for job in seen:
        claimers = [one for one in able if job.name in rules.to_claim(one, seen, there)]
        if job.free_for is None:
            assert claimers == []
        elif able:
            turns = min(len(able), 1 + job.free_for // TURN)
            assert len(claimers) == turns, "one, and another one every TURN looks"


@given(jobs, engines)
def test_who_lives_alone_claims_every_free_job(
    seen: list[JobView], there: list[EngineView]
) -> None:
    able = [one.id for one in there if one.candidate]
    if len(able) == 1:
        free = {job.name for job in seen if job.free_for is not None}
        assert set(rules.to_claim(able[0], seen, there)) == free


@given(jobs, engines)
def test_a_job_is_left_to_a_holder_that_appends(
    seen: list[JobView], there: list[EngineView]
) -> None:
    held = {job.name for job in seen if job.holder is not None and job.quiet < INTERVALS}
    for one in there:
        assert not held & set(rules.to_claim(one.id, seen, there))


@given(some.integers(1, 5), some.integers(0, 30), some.integers(1, 8))
def test_free_jobs_are_spread_evenly_over_equal_engines(engine: int, job: int, cores: int) -> None:
    there = [EngineView(f"engine{n}", cores) for n in range(engine)]
    seen = [JobView(f"job{n}", None, 0) for n in range(job)]
    order = rules.next_candidates(seen, there)
    counts = Counter(found[0] for found in order.values())
    parts = [counts[one.id] for one in there]
    assert max(parts) - min(parts) <= 1


@given(jobs, engines, some.randoms(use_true_random=False))
def test_the_order_in_which_an_engine_lists_things_does_not_matter(
    seen: list[JobView], there: list[EngineView], dice: object
) -> None:
    mixed, others = list(seen), list(there)
    dice.shuffle(mixed)  # type: ignore[attr-defined]
    dice.shuffle(others)  # type: ignore[attr-defined]
    assert rules.next_candidates(seen, there) == rules.next_candidates(mixed, others)


@given(jobs, engines)
def test_the_next_one_is_never_the_holder_and_always_able(
    seen: list[JobView], there: list[EngineView]
) -> None:
    able = {one.id for one in there if one.candidate}
    for job in seen:
        found = rules.next_candidates(seen, there)[job.name]
        assert set(found) <= able
        assert len(set(found)) == len(found)
        if job.free_for is None:
            assert job.holder not in found


@given(some.lists(some.tuples(some.integers(0, 3), some.booleans()), min_size=1))
def test_looks_without_a_change_are_counted_since_the_last_change(
    looks: list[tuple[int, bool]],
) -> None:
    known: Watched | None = None
    for mark, counted in looks:
        known = rules.watched(known, mark, counted=counted)
    assert known is not None
    last = looks[-1][0]
    same = 0
    for mark, _ in reversed(looks):
        if mark != last:
            break
        same += 1
    began = len(looks) - same  # this look saw the change
    assert known == Watched(last, sum(counted for _, counted in looks[began + 1 :]))
