"""Watchers and the clients and inboxes of flows, over real sockets and journals."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream import ingest
from millstream.connectors.inbox import Inbox as InboxSpec
from millstream.flow.schema import Schema
from millstream.flow.stages import Source
from millstream.journal import journal_at
from millstream.links.host import Host
from millstream.watch.watcher import Watcher

COLUMNS = "sensor string, t double, at timestamp"
HOT = ms.Pattern("hot").begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")
HOT = HOT.emit("sensor, a.t as first, b.t as last")


def reading(t: float, minute: int = 0, sensor: str = "s1") -> dict[str, Any]:
    return {"sensor": sensor, "t": t, "at": f"2026-11-16T09:{minute:02}:00Z"}


# an inbox of the watcher's own


def watching(tmp_path: Path, **options: Any) -> tuple[Watcher, queue.Queue[Any]]:
    found: queue.Queue[Any] = queue.Queue()
    watcher = Watcher(
        HOT,
        key="sensor",
        time="at",
        schema=COLUMNS,
        device="A",
        data=tmp_path / "data",
        inputs=["inbox"],
        on_match=found.put,
        **options,
    )
    return watcher, found


def test_clients_of_flows_send_to_a_watcher(tmp_path: Path) -> None:
    watcher, found = watching(tmp_path)
    with watcher, ms.connect(watcher.inputs[0].address) as client:
        client.send("A.events", [reading(95), reading(96, 1)])
        match = found.get(timeout=30)
    assert (match["sensor"], match["first"], match["last"]) == ("s1", 95.0, 96.0)


def test_events_that_came_while_the_watcher_was_stopping_are_read_at_the_next_start(
    tmp_path: Path,
) -> None:
    watcher, _ = watching(tmp_path)
    with ms.connect(watcher.inputs[0].address) as client:  # nobody reads its journal yet
        client.send("A.events", [reading(95), reading(96, 1)])
    watcher.start()
    watcher.close()
    again, found = watching(tmp_path)
    with again, ms.connect(again.inputs[0].address) as client:
        client.send("A.events", [reading(97, 2), reading(98, 3)])
        while found.get(timeout=30)["last"] < 98:
            pass
    events = watcher.node.counts.events + again.node.counts.events
    assert events == 4  # each once, whichever of the two has read it


def test_an_inbox_needs_the_columns() -> None:
    with pytest.raises(ms.MillstreamError, match="needs the columns"):
        Watcher(HOT, key="sensor", inputs=["inbox"])


# the inbox of a flow


class Flow:
    """The inboxes of a flow, in this process."""

    def __init__(
        self, data: Path, columns: str = "run string, device string, sensor string"
    ) -> None:
        self.data, self.schema = data, Schema.parse(columns)
        self.journal = data / "plant" / "journals" / "found"
        source = Source("found", InboxSpec(self.schema), self.schema, None)
        self._declared = ingest.declare(source, self.journal)
        self.host: Host | None = None

    def start(self) -> None:
        self.host = Host(self.data / "plant", {"found": self._declared})

    def stop(self) -> None:
        assert self.host is not None
        self.host.close()

    @property
    def rows(self) -> list[dict[str, Any]]:
        reader = journal_at(self.journal).reader().partition(0)
        pieces = reader.read(reader.begin, reader.end)
        return [row for one in pieces if one.batch is not None for row in one.batch.to_pylist()]

    @property
    def senders(self) -> set[str | None]:
        reader = journal_at(self.journal).reader().partition(0)
        return {entry.sender for entry in reader.entries(reader.begin, reader.end)}


def sending(flow: Flow, tmp_path: Path, **options: Any) -> Watcher:
    assert flow.host is not None
    out = f"inbox:plant.found@{flow.host.address}"
    return Watcher(HOT, key="sensor", device="A", data=tmp_path / "data", outputs=[out], **options)


def readings(*ts: float) -> list[dict[str, Any]]:
    return [{"sensor": "s1", "t": t} for t in ts]


def test_a_flow_gets_each_complex_event_once_with_its_run(tmp_path: Path) -> None:
    flow = Flow(tmp_path / "flow")
    flow.start()
    with sending(flow, tmp_path) as watcher:
        (match,) = watcher.send(readings(95, 96))
    flow.stop()
    assert flow.rows == [{"run": match.run, "device": "A", "sensor": "s1"}]
    assert flow.senders == {f"A@{watcher.incarnation}"}


def test_what_was_found_while_the_flow_was_away_is_sent_by_the_next_watcher_under_its_old_number(
    tmp_path: Path,
) -> None:
    flow = Flow(tmp_path / "flow")
    flow.start()
    first = sending(flow, tmp_path)
    (sent,) = first.send(readings(95, 96))
    assert first.node.outbox is not None
    assert first.node.outbox.drained(30)
    flow.stop()
    (kept,) = [one for one in first.send(readings(97)) if one["first"] == 96]
    first.close(timeout=0.5)
    flow.start()
    with sending(flow, tmp_path) as second:
        second.send(readings(91, 92))
        assert second.node.outbox is not None
        assert second.node.outbox.drained(30)
    flow.stop()
    runs = [row["run"] for row in flow.rows]
    assert len(runs) == len(set(runs))
    assert {sent.run, kept.run} < set(runs)
    assert flow.senders == {f"A@{one.incarnation}" for one in (first, second)}


def test_a_source_without_a_column_for_the_run_is_refused(tmp_path: Path) -> None:
    flow = Flow(tmp_path / "flow", "sensor string")
    flow.start()
    watcher = sending(flow, tmp_path)
    watcher.send(readings(95, 96))
    (delivery,) = watcher._deliveries
    import time

    until = time.monotonic() + 30
    while delivery.trouble is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert 'no column "run"' in delivery.trouble
    watcher.close(timeout=0.1)
    flow.stop()
