from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait

import pytest

from millstream.errors import LinkClosed
from millstream.links.promise import Group, Promise


def ended(error: BaseException | None = None) -> Future[int]:
    done: Future[int] = Future()
    if error is None:
        done.set_result(1000)
    else:
        done.set_exception(error)
    return done


def test_a_promise_ends_as_its_group_whether_it_was_looked_at_before_or_after() -> None:
    group = Group()
    before, after = Promise(group), Promise(group)
    assert not before.done()
    group.settle(ended())
    assert (before.result(0), after.result(0)) == (1, 1)


def test_a_promise_with_an_error_of_its_own_keeps_it() -> None:
    group = Group()
    bad, good = Promise(group), Promise(group)
    bad.set_exception(ValueError("no row"))
    group.settle(ended())
    assert isinstance(bad.exception(0), ValueError)
    assert good.result(0) == 1


def test_the_error_of_a_group_reaches_all_of_it() -> None:
    group = Group()
    before, after = Promise(group), Promise(group)
    told: list[BaseException | None] = []
    before.add_done_callback(lambda done: told.append(done.exception()))
    group.fail(LinkClosed("closed"))
    assert [type(one) for one in (*told, after.exception(0))] == [LinkClosed, LinkClosed]


def test_nobody_can_take_a_promise_back() -> None:
    assert not Promise(Group()).cancel()


def test_the_standard_library_takes_a_promise_for_a_future() -> None:
    group = Group()
    promises = [Promise(group) for _ in range(3)]
    threading.Timer(0.02, group.settle, [ended()]).start()
    assert len(wait(promises, timeout=120).done) == 3

    async def awaited() -> int:
        return await asyncio.wrap_future(Promise(group))

    assert asyncio.run(awaited()) == 1


def test_two_threads_that_look_at_once_see_one_future() -> None:
    for _ in range(200):
        group = Group()
        promise = Promise(group)
        start = threading.Barrier(3)
        found: list[int] = []

        def look(
            promise: Promise = promise, start: threading.Barrier = start, found: list[int] = found
        ) -> None:
            start.wait()
            found.append(promise.result(120))

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait()
        group.settle(ended())
        for thread in threads:
            thread.join(240)
        assert found == [1, 1]


def test_a_name_that_no_future_has_is_no_attribute_and_begins_nothing() -> None:
    promise = Promise(Group())
    with pytest.raises(AttributeError):
        _ = promise.unheard_of
    assert "_condition" not in vars(promise)
