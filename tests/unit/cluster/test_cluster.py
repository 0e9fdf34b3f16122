from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from millstream.cluster import Cluster, EngineClient, merged
from millstream.engine.http.server import Server, Serving
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import InboxStatus, Place, Prepared, SourceStatus
from millstream.errors import (
    EngineAway,
    EngineError,
    EnginesDiffer,
    InvalidAddress,
    JobBusy,
    JobExists,
    JobsRunning,
    NoSuchJob,
    TokenRefused,
    WrongNodes,
)
from support.served import Served, serving

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow" / "f.py"
    file.parent.mkdir()
    file.write_text("import millstream as ms\nflow = ms.Flow('f')\n")
    return file


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "one") as found:
        yield found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Served]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(tmp_path / f"node{node}", node=node, of=2))
            for node in range(2)
        ]


def urls(engines: list[Served]) -> list[str]:
    return [engine.server.url for engine in engines]


# one engine


def test_a_job_lives_and_goes_on_one_engine(one: Served, flow: Path) -> None:
    with Cluster([one.server.url]) as cluster:
        assert cluster.deploy(flow).id == "f-1"
        assert [job.name for job in cluster.jobs()] == ["f"]
        assert cluster.status("f-1").state is JobState.RUNNING
        assert cluster.logs("f", 1) == ["f line 19"]
        assert [one.what for one in cluster.history("f")] == ["deployed"]
        with pytest.raises(JobBusy, match="7 events are not processed yet"):
            cluster.undeploy("f")
        assert cluster.drain("f").state is JobState.DRAINING
        one.engine.tell("f", life.Drained())
        assert cluster.wait("f").state is JobState.DRAINED
        assert cluster.undeploy("f").state is JobState.UNDEPLOYED
        cluster.stop()
    assert one.server.stopped.is_set()


def test_errors_are_those_of_the_engine(one: Served, flow: Path) -> None:
    with Cluster([one.server.url]) as cluster:
        cluster.deploy(flow)
        with pytest.raises(JobExists, match="deployed already") as caught:
            cluster.deploy(flow)
        assert caught.value.hint == "millstream switch f FLOW"
        with pytest.raises(NoSuchJob):
            cluster.status("nothing/of this ?")
        with pytest.raises(JobsRunning):
            cluster.stop()


def test_a_wait_tells_how_it_goes_and_ends_in_time(one: Served, flow: Path) -> None:
    seen: list[int] = []
    with Cluster([one.server.url]) as cluster:
        cluster.deploy(flow)
        assert (
            cluster.wait("f", 0.1, progress=lambda job: seen.append(job.unprocessed)).state
            is JobState.RUNNING
        )
        assert seen[0] == 7
        threading.Timer(0.2, lambda: one.engine.tell("f", life.Finished())).start()
        assert cluster.wait("f", 20).state is JobState.FINISHED


def test_the_token_of_an_engine_here_is_found_and_another_is_refused(
    one: Served, flow: Path
) -> None:
    with (
        Cluster([one.server.url], "not the token of that engine") as cluster,
        pytest.raises(TokenRefused),
    ):
        cluster.deploy(flow)
    with Cluster([one.server.url.replace("127.0.0.1", "localhost")]) as cluster:
        assert cluster.deploy(flow).name == "f"
    with Cluster([one.server.url], {one.server.url: one.server.token}) as cluster:
        assert cluster.drain("f").name == "f"


def test_an_engine_that_is_away_is_named() -> None:
    with Cluster([NOBODY], "token", timeout=2) as cluster:
        with pytest.raises(EngineAway, match=NOBODY) as caught:
            cluster.jobs()
        assert "millstream engine" in str(caught.value.hint)
        with pytest.raises(EngineAway):
            cluster.wait("f", 0.1)
        assert cluster.gone(1)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8340", "tcp://127.0.0.1:1", "http://"])
def test_what_is_no_address_of_an_engine_is_refused(url: str) -> None:
    with pytest.raises(InvalidAddress, match="is not the address of an engine"):
        EngineClient(url)


# several


def test_a_job_is_prepared_everywhere_and_begins_with_the_driver_last(
    two: list[Served], flow: Path
) -> None:
    order: list[int] = []
    for number, engine in enumerate(two):
        tell = engine.engine.tell
        engine.engine.after = lambda name, n=number, tell=tell: (
            order.append(n),
            tell(name, life.DriverReady()),
        )  # type: ignore[misc]
    with Cluster(list(reversed(urls(two)))) as cluster:
        job = cluster.deploy(flow)
        assert (job.name, job.state, job.node) == ("f", JobState.RUNNING, 0)
        assert len(job.inboxes) == 4
    assert order == [1, 0]
    places, driver = two[0].engine.begun["f"]
    assert [place.node for place in places["s"]] == [0, 1, 0, 1]
    assert [place.port for place in places["s"]] == [
        two[n % 2].engine.address.port for n in range(4)
    ]
    assert (driver, two[1].engine.begun["f"][1]) == (True, False)
    assert two[1].engine.begun["f"][0] == places


def test_if_one_engine_cannot_none_does(two: list[Served], flow: Path) -> None:
    two[1].engine.deploy(b"good", name="f")
    with Cluster(urls(two)) as cluster, pytest.raises(JobExists):
        cluster.deploy(flow)
    assert two[0].engine.jobs() == []
    assert [job.name for job in two[1].engine.jobs()] == ["f"], "what was there before stays"


def test_if_one_engine_does_not_begin_all_take_it_back(two: list[Served], flow: Path) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise EngineError("no room here")

    two[0].engine.begin = refuse  # type: ignore[method-assign,assignment]
    with Cluster(urls(two)) as cluster, pytest.raises(EngineError, match="no room here"):
        cluster.deploy(flow)
    assert [engine.engine.jobs() for engine in two] == [[], []]


def test_the_numbers_of_engines_are_checked_before_anything_is_done(
    two: list[Served], one: Served, flow: Path
) -> None:
    with (
        Cluster([urls(two)[0], one.server.url]) as cluster,
        pytest.raises(WrongNodes, match="missing: 1; double: 0"),
    ):
        cluster.deploy(flow)
    with Cluster([urls(two)[1]]) as cluster, pytest.raises(WrongNodes, match="missing: 0"):
        cluster.deploy(flow)
    with (
        Cluster([urls(two)[0]]) as cluster,
        pytest.raises(EnginesDiffer, match="node 0 of 2") as caught,
    ):
        cluster.deploy(flow)
    assert "--engine" in str(caught.value.hint)
    assert all(engine.engine.jobs() == [] for engine in [*two, one])


def test_an_engine_of_several_that_is_away_is_named_and_nothing_is_deployed(
    two: list[Served], flow: Path
) -> None:
    with (
        Cluster([urls(two)[0], NOBODY], timeout=2) as cluster,
        pytest.raises(EngineAway, match=NOBODY),
    ):
        cluster.deploy(flow)
    assert two[0].engine.jobs() == []


def test_a_job_of_several_engines_is_drained_and_undeployed_as_one(
    two: list[Served], flow: Path
) -> None:
    with Cluster(urls(two)) as cluster:
        cluster.deploy(flow)
        with pytest.raises(JobBusy):
            cluster.undeploy("f")
        cluster.drain("f")
        assert [engine.engine.status("f").state for engine in two] == [JobState.DRAINING] * 2
        two[0].engine.tell("f", life.Drained())
        assert cluster.wait("f", 10).state is JobState.DRAINED
        assert [engine.engine.status("f").state for engine in two] == [JobState.DRAINED] * 2
        cluster.resume("f")
        assert two[1].engine.status("f").state is JobState.RUNNING
        cluster.drain("f", flush=True)
        two[0].engine.tell("f", life.Finished())
        assert cluster.wait("f", 10).state is JobState.FINISHED
        cluster.undeploy("f")
        assert cluster.jobs() == []
        cluster.stop()
    assert all(engine.server.stopped.is_set() for engine in two)


def test_a_job_that_nobody_has_waited_for_is_resumed_and_stopped_as_one(
    two: list[Served], flow: Path
) -> None:
    with Cluster(urls(two)) as cluster:
        cluster.deploy(flow)
        cluster.drain("f")
        two[0].engine.tell("f", life.Drained())
        cluster.resume("f")
        assert [engine.engine.status("f").state for engine in two] == [
            JobState.STARTING,
            JobState.RUNNING,
        ]
        two[0].engine.tell("f", life.Finished())
        cluster.stop()
    assert all(engine.server.stopped.is_set() for engine in two)


def test_an_engine_that_stays_away_while_a_job_drains_blocks_nobody(
    two: list[Served], flow: Path
) -> None:
    gone = urls(two)[1]
    with Cluster(urls(two), timeout=3) as cluster:
        cluster.deploy(flow)
        two[1].server.close()
        assert cluster.drain("f").state is JobState.DRAINING
        two[0].engine.tell("f", life.PeerMissed(gone))  # as an engine does after a while
        ended = cluster.wait("f", 10)
        assert cluster.away == (gone,)
        with pytest.raises(EngineAway, match=gone):
            cluster.resume("f")
        with pytest.raises(EngineAway, match=gone):
            cluster.undeploy("f")
        assert two[0].engine.jobs() == []
    assert ended.state is JobState.FAILED
    assert gone in str(ended.reason)


def test_an_engine_that_comes_back_while_a_job_drains_is_told(
    two: list[Served], flow: Path
) -> None:
    port = int(urls(two)[1].rpartition(":")[2])
    with Cluster(urls(two), timeout=3) as cluster:
        cluster.deploy(flow)
        two[1].server.close()
        cluster.drain("f")
        assert two[1].engine.status("f").state is JobState.RUNNING
        back = Server(two[1].engine, two[1].data, Serving(port=port))
        back.start()
        try:
            assert cluster.wait("f", 0.1).state is JobState.DRAINING
            assert two[1].engine.status("f").state is JobState.DRAINING
            two[0].engine.tell("f", life.Drained())
            assert cluster.wait("f", 10).state is JobState.DRAINED
            assert two[1].engine.status("f").state is JobState.DRAINED
        finally:
            back.close()


# merging


def test_a_job_of_several_engines_is_told_as_one(one: Served) -> None:
    first = one.engine.deploy(b"good")
    inbox = InboxStatus("s", 1, "tcp://10.0.0.2:1", rows=5)
    second = msgspec.structs.replace(
        first,
        node=1,
        groups=(),
        sources={"s": SourceStatus(5, 1)},
        inboxes=(inbox,),
        reason="full",
        late=2,
        dead=1,
        unprocessed=90,
    )
    both = merged([second, first])
    assert (both.node, both.groups, both.reason, both.late, both.dead) == (
        0,
        first.groups,
        "full",
        3,
        3,
    )
    assert both.unprocessed == 7, "the others do not know what the driver has processed"
    assert (both.sources["s"].rows, both.sources["s"].refused) == (5, 1)
    assert [one.partition for one in both.inboxes] == [0, 1, 1]
    assert merged([first]) is first


def test_partitions_that_live_nowhere_or_twice_are_noticed(two: list[Served], flow: Path) -> None:
    def prepared(*numbers: int) -> object:
        places = {number: Place("127.0.0.1", 1) for number in numbers}
        return lambda *_args, **_more: Prepared("f-1", "f", {"s": places})

    two[0].engine.prepare = prepared(0, 2)  # type: ignore[method-assign,assignment]
    for numbers, said in [
        ((1, 2), "partition 2 .* lives on two"),
        ((3,), "partition 1 .* lives on no engine"),
    ]:
        two[1].engine.prepare = prepared(*numbers)  # type: ignore[method-assign,assignment]
        with Cluster(urls(two)) as cluster, pytest.raises(EnginesDiffer, match=said):
            cluster.deploy(flow)
