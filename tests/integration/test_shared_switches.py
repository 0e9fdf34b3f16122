"""Switches of jobs that engines share: an engine goes on with what the one before has begun; no Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from integration.test_engine_versions import (
    DONE,
    GIVEN_UP,
    ORDERS,
    keyed,
    let,
    switched,
    version,
)
from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.switch_record import SwitchState
from millstream.errors import NoSuchJob, SwitchRefused
from millstream.switch.request import SwitchRequest
from support.engines import flow_file, rows, until, wait_until, without_spark

pytestmark = pytest.mark.kafka

Engines = Callable[[str], Engine]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    without_spark(monkeypatch)
    made: list[Engine] = []

    def new(name: str) -> Engine:
        made.append(Engine(tmp_path / name, coordination=str(tmp_path / "shared"), lease_s=3.0))
        made[-1].start()
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "flow"


@pytest.fixture
def first(engine: Engines, root: Path, kafka: str) -> Engine:
    found = engine("first")
    journals = f"kafka://{kafka}/site-{uuid.uuid4().hex[:8]}"
    found.deploy(pack(flow_file(root)), root=str(root), options={"journals": journals})
    until(found, "counts", JobState.RUNNING)
    return found


def moved(engine: Engines, there: Engine, name: str) -> Engine:
    """Let a new engine take the job; return it when the job runs there."""
    found = engine(name)
    wait_until(lambda: len(there._leases.others()) >= 1)
    there.drain_tasks()
    wait_until(lambda: [one.state for one in there.tasks().moves] == ["moved"])
    until(found, "counts", JobState.RUNNING)
    return found


def test_another_engine_goes_on_with_a_switch_past_its_cut_and_can_go_back(
    engine: Engines, first: Engine, root: Path
) -> None:
    assert first.plan_switch("counts", version(root, more=ORDERS)).plan["possible"]
    first.switch("counts", version(root, more=ORDERS))
    let(root, "cut")
    wait_until(lambda: first.status("counts").switch.cut is not None)  # type: ignore[union-attr]

    second = moved(engine, first, "second")
    assert switched(second, SwitchState.GOING_ON).version == "2"
    with pytest.raises(NoSuchJob, match='job "counts" is not here, but on'):
        first.switch("counts", SwitchRequest())
    wait_until(lambda: {one.source for one in second.status("counts").inboxes} >= {"orders"})
    assert second.send("counts.orders", rows(0, 3)) == 3
    let(root, "drained")
    assert switched(second, DONE).version == "2"
    assert second.status("counts").version == "2"

    third = moved(engine, second, "third")
    assert [(one.version, one.running) for one in third.versions("counts")] == [
        ("1", False),
        ("2", True),
    ]
    assert third.send("counts.orders", rows(3, 5)) == 2
    third.switch("counts", SwitchRequest())
    assert switched(third, DONE).version == "3"
    assert third.versions("counts")[-1].back_to == "1"
    wait_until(lambda: {one.source for one in third.status("counts").inboxes} == {"events"})


def test_another_engine_gives_up_a_switch_before_its_cut_and_can_begin_another(
    engine: Engines, first: Engine, root: Path
) -> None:
    first.switch("counts", version(root))
    switched(first, SwitchState.GOING_ON)
    second = moved(engine, first, "second")
    assert switched(second, GIVEN_UP).why is not None
    assert second.status("counts").version == "1"
    second.switch("counts", version(root, 5))
    let(root, "cut", "drained")
    assert switched(second, DONE).version == "3"
    second.undeploy("counts", force=True)
    second.deploy(pack(root / "flow.py"), root=str(root), options=_options(second))
    wait_until(lambda: any(one.state is JobState.RUNNING for one in second.jobs()))
    assert second.status("counts").version == "3", "its journals have seen that version"


@pytest.mark.soak
def test_another_engine_aborts_ends_a_shadow_and_raises_the_share_of_a_version(
    engine: Engines, first: Engine, root: Path
) -> None:
    first.switch("counts", version(root))
    switched(first, SwitchState.GOING_ON)
    first.abort_switch("counts")
    assert switched(first, GIVEN_UP).why == "it was asked to end"
    shadow = replace(version(root), shadow=True, duration=timedelta(seconds=60))
    first.switch("counts", shadow)
    wait_until(lambda: switched(first, SwitchState.GOING_ON).phase == "shadowing")

    second = moved(engine, first, "second")
    assert switched(second, GIVEN_UP).why is not None, "a driver that ends, ends its shadow"
    second.switch("counts", shadow)
    wait_until(lambda: switched(second, SwitchState.GOING_ON).phase == "shadowing")
    second.abort_switch("counts")
    assert switched(second, SwitchState.COMPARED).shadow is not None
    let(root, "cut", "drained")
    second.switch("counts", SwitchRequest(package=keyed(root, 1)))
    switched(second, DONE)
    second.switch("counts", SwitchRequest(package=keyed(root, 2), share=1000))
    wait_until(lambda: switched(second, SwitchState.GOING_ON).share == 0.1)

    third = moved(engine, second, "third")
    wait_until(lambda: switched(third, SwitchState.GOING_ON).share == 0.1)
    third.switch("counts", SwitchRequest(share=5000))
    wait_until(lambda: switched(third, SwitchState.GOING_ON).share == 0.5)
    with pytest.raises(SwitchRefused, match="share its keys"):
        third.drain("counts", flush=True)
    third.switch("counts", SwitchRequest())
    assert switched(third, GIVEN_UP).why == "the old version has all keys again"


def _options(engine: Engine) -> dict[str, object]:
    return dict(engine._parts.store.job("counts-1").settings.options)  # type: ignore[union-attr]
