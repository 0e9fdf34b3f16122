"""A job's inbox that gets more partitions in a switch: a real engine, files and sockets, and a driver without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.switch_record import SwitchState
from millstream.errors import SwitchRefused
from millstream.links.client import connect
from millstream.switch.request import SwitchRequest
from support.engines import flow_file, rows, until, wait_until, without_spark
from support.ingest import all_rows, rows_of


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_spark(monkeypatch)
    for name in ("cut", "drained"):
        (tmp_path / "flow").mkdir(exist_ok=True)
        (tmp_path / "flow" / name).touch()
    return tmp_path / "flow"


@pytest.fixture
def engine(tmp_path: Path, root: Path) -> Iterator[Engine]:
    one = Engine(tmp_path / "data")
    one.start()
    one.deploy(pack(flow_file(root)), root=str(root))
    until(one, "counts", JobState.RUNNING)
    yield one
    one.close()


def partitions(engine: Engine) -> list[int]:
    return sorted(one.partition for one in engine.status("counts").inboxes)


def switch(engine: Engine, wanted: SwitchRequest, version: str) -> None:
    engine.switch("counts", wanted)
    wait_until(
        lambda: (
            (found := engine.status("counts").switch) is not None
            and found.state is SwitchState.DONE
        )
    )
    assert engine.status("counts").version == version


def test_it_gets_them_when_the_switch_is_done_and_keeps_them(
    engine: Engine, root: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "data" / "jobs" / "counts" / "counts" / "journals" / "events"
    assert engine.send("counts.events", rows(0, 20)) == 20
    more = flow_file(root, partitions=3)
    assert engine.plan_switch("counts", SwitchRequest(package=pack(more))).plan["grown"]
    assert partitions(engine) == [0]
    switch(engine, SwitchRequest(package=pack(more)), "2")
    wait_until(lambda: partitions(engine) == [0, 1, 2])
    with connect(
        str(engine.address), timeout=240
    ) as client:  # the engine's own knows what was there before
        assert client.send("counts.events", rows(20, 60)) == 40
    assert all(rows_of(journal, number) for number in range(3))
    # A version that had fewer comes back, for another reason, and finds what there is.
    with pytest.raises(SwitchRefused, match="means the same"):
        engine.switch("counts", SwitchRequest())
    filtered = flow_file(root)
    filtered.write_text(
        filtered.read_text().replace(
            '.sink("rows"', '.sql("some", "SELECT * FROM events").sink("rows"'
        )
    )
    switch(engine, SwitchRequest(package=pack(filtered)), "3")
    assert engine.send("counts.events", rows(60, 80)) == 20
    engine.close()
    again = Engine(tmp_path / "data")
    again.start()
    try:
        until(again, "counts", JobState.RUNNING)
        assert partitions(again) == [0, 1, 2]
    finally:
        again.close()
    assert sorted(row["n"] for row in all_rows(journal)) == list(range(80))
