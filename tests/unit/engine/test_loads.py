"""How busy engines are, as they publish it and as others show it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import msgspec
import pytest

from millstream.cli.engine import _say
from millstream.clock import SystemClock
from millstream.engine.engine import Engine
from millstream.engine.http.server import Server, Serving
from millstream.engine.leases.coordination import Coordination, Presence
from millstream.engine.leases.loads import Ages, EngineLoad, Measured
from millstream.engine.leases.tasks import Tasks
from support.engines import wait_until
from support.links import batch
from support.served import Served

LEASE_S = 1.5
#: As an engine of the release before wrote it: nothing is measured.
EARLIER = b'{"id":"old","beat":7,"cores":8,"url":"http://old","jobs":{"shop":"running"}}'


def measured(at: float) -> Measured:
    return Measured(at=at, load=0.5, disk_free=1, disk_size=2, rows_in=3.0)


class Clocks:
    """A clock on the wall, and one that says how much time has passed."""

    def __init__(self) -> None:
        self.now, self.passed = 1_000.0, 0.0
        self.ages = Ages(lambda: self.now, lambda: self.passed)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.passed += seconds


def test_what_was_there_before_is_as_old_as_its_writer_says() -> None:
    clocks = Clocks()
    for _ in range(2):
        clocks.ages.see([("a", measured(940.0)), ("ahead", measured(5_000.0))])
        assert clocks.ages.of("a") == 60.0 + clocks.passed
        assert clocks.ages.of("ahead") == 0.0, "a clock that is ahead makes nothing negative"
        clocks.sleep(7)


def test_what_changes_is_as_old_as_its_change_whatever_its_writers_clock_says() -> None:
    clocks = Clocks()
    clocks.ages.see([("a", measured(0.0))])
    clocks.ages.see([("a", measured(5.0))])
    clocks.now -= 500  # somebody sets the clock
    assert clocks.ages.of("a") == 0.0
    for _ in range(3):
        clocks.sleep(10)
        clocks.ages.see([("a", measured(5.0))])
    assert clocks.ages.of("a") == 30.0
    clocks.ages.see([("a", measured(6.0))])
    assert clocks.ages.of("a") == 0.0


def test_an_engine_that_has_published_nothing_has_no_numbers_and_no_age() -> None:
    clocks = Clocks()
    clocks.ages.see([("a", None)])
    assert clocks.ages.of("a") == clocks.ages.of("nobody") == 0.0
    load = EngineLoad(state="up", cores=2).with_measured(None, 0.0)
    assert (load.load, load.disk_free, load.rows_in, load.age_s) == (None, None, None, None)


def test_an_engine_measures_what_its_inboxes_take(served: Served) -> None:
    served.deploy()
    live = served.server.api.live
    live.rows_in, live._tick_s = -1.0, 0.1

    def taking() -> float:
        served.http.get("/live?once=true")
        return live.rows_in

    wait_until(lambda: taking() == 0.0)
    numbers = iter(range(1_000_000))

    def takes() -> bool:
        first = next(numbers) * 40
        served.engine.inbox(0).enqueue("till", range(first, first + 40), batch(first, first + 40))
        return taking() > 0

    wait_until(takes, what="rows a second")
    found = live.measured()
    assert found is not None
    assert time.time() - 60 < found.at <= time.time()
    about = served.http.get("/engine").json()
    assert about["rows_in"] > 0
    assert (about["disk_size"], about["cores"]) == (found.disk_size, about["cores"])
    assert 0 < found.disk_free < found.disk_size


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Two engines that share jobs, started as the command starts them."""
    with ExitStack() as stack:
        found = []
        for name in ("first", "second"):
            data, shared = tmp_path / name, str(tmp_path / "shared")
            engine = Engine(data, coordination=shared, lease_s=LEASE_S)
            engine.start()
            stack.callback(engine.close)
            server = Server(engine, data, Serving(port=0))
            stack.callback(server.close)
            server.start()
            _say(engine, server, data, json=True)
            found.append(server)
        yield found[0], found[1]


def asked(server: Server) -> Tasks:
    answer = httpx.get(f"{server.url}/tasks", timeout=30, trust_env=False)
    return msgspec.json.decode(answer.content, type=Tasks)


def numbers(server: Server) -> dict[str, EngineLoad]:
    """Return the loads that an engine shows of those that have published theirs, by URL."""
    found = asked(server).loads.values()
    return {one.url: one for one in found if one.measured_at is not None}


def test_every_engine_shows_the_numbers_of_all(cluster: tuple[Server, Server]) -> None:
    urls = {one.url for one in cluster}
    for server in cluster:
        wait_until(lambda server=server: set(numbers(server)) == urls)
        for one in numbers(server).values():
            assert (one.state, one.jobs) == ("up", 0)
            assert one.cores
            assert one.disk_size
            assert one.rows_in == 0.0
            assert one.age_s is not None
            assert one.age_s < 60


def test_engines_of_an_earlier_release_are_shown_without_numbers_and_ones_that_died_with_age(
    cluster: tuple[Server, Server], tmp_path: Path
) -> None:
    shared = Coordination(str(tmp_path / "shared"), clock=SystemClock())
    shared._storage.put("engines/old", EARLIER)
    dead = Presence(id="dead", beat=3, cores=2, measured=measured(time.time() - 3_600))
    shared.show(dead)
    first = cluster[0]

    def state(name: str) -> str | None:
        found = asked(first).loads.get(name)
        return None if found is None else found.state

    wait_until(lambda: state("old") == state("dead") == "away", what="both are silent")
    loads = asked(first).loads
    assert (loads["old"].cores, loads["old"].jobs, loads["old"].url) == (8, 1, "http://old")
    assert loads["old"].load is loads["old"].measured_at is loads["old"].age_s is None
    assert loads["dead"].load == 0.5
    assert loads["dead"].age_s == pytest.approx(3_600, abs=120)
