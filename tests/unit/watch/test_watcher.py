"""The watcher as a library."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.clock import ManualClock
from millstream.errors import AlreadyRunning, EventRefused, InvalidSettings, UnknownColumn
from millstream.watch.complex_event import ComplexEvent

HOT = ms.Pattern("hot").begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")
HOT = HOT.emit("sensor, a.t as first, b.t as last")


def reading(t: float, sensor: str = "s1", **more: Any) -> dict[str, Any]:
    return {"sensor": sensor, "t": t, **more}


def firsts(found: list[ComplexEvent]) -> list[tuple[float, float]]:
    return [(one["first"], one["last"]) for one in found]


def test_events_go_in_and_complex_events_come_out() -> None:
    with ms.Watcher(HOT, key="sensor") as watcher:
        assert watcher.send(reading(95)) == []
        assert watcher.send(reading(99, "s2")) == []
        (match,) = watcher.send(reading(97))
    assert (match["sensor"], match["first"], match["last"]) == ("s1", 95, 97)
    assert (match.pattern, match.device) == ("hot", "device")


def test_several_events_at_once_and_a_callback() -> None:
    seen: list[ComplexEvent] = []
    with ms.Watcher(HOT, key="sensor", on_match=seen.append) as watcher:
        found = watcher.send([reading(91), reading(92), reading(93)])
    assert firsts(found) == firsts(seen) == [(91, 92), (92, 93)]
    assert len({one.run for one in found}) == 2


def test_whoever_iterates_gets_what_others_send() -> None:
    with ms.Watcher(HOT, key="sensor") as watcher:
        matches = watcher.matches()
        got: list[ComplexEvent] = []
        ready = threading.Event()

        def take() -> None:
            ready.set()
            got.append(next(matches))

        thread = threading.Thread(target=take)
        thread.start()
        ready.wait(30)
        while not got:
            watcher.send([reading(91), reading(92)])
            thread.join(0.01)
    assert firsts(got) == [(91, 92)]


def test_a_watcher_in_asyncio() -> None:
    async def main() -> tuple[list[ComplexEvent], ComplexEvent]:
        async with ms.Watcher(HOT, key="sensor") as watcher:
            taking = asyncio.ensure_future(anext(aiter(watcher)))
            await asyncio.sleep(0)
            found = await watcher.send([reading(91), reading(92)])
            return found, await asyncio.wait_for(taking, 30)

    found, taken = asyncio.run(main())
    assert found == [taken]


def test_the_end_of_a_watcher_ends_those_who_iterate() -> None:
    watcher = ms.Watcher(HOT, key="sensor")
    got: list[ComplexEvent] = []
    thread = threading.Thread(target=lambda: got.extend(watcher.matches()))
    thread.start()
    while not watcher.takers.waiting:
        thread.join(0.01)
    watcher.send([reading(91), reading(92)])
    watcher.close()
    thread.join(30)
    assert not thread.is_alive()
    assert firsts(got) == [(91, 92)]


def test_a_row_that_is_no_event_is_refused_and_nothing_of_the_call_is_taken() -> None:
    schema = "sensor string, t double"
    with ms.Watcher(HOT, key="sensor", schema=schema) as watcher:
        with pytest.raises(EventRefused, match=r'row 1: column "t"'):
            watcher.send([reading(91), {"sensor": "s1", "t": "hot"}])
        assert watcher.send(reading(92)) == []
        assert watcher.status().events == 1


def test_a_pattern_that_does_not_fit_the_columns_is_refused_at_the_start() -> None:
    with pytest.raises(UnknownColumn):
        ms.Watcher(HOT, schema="sensor string, heat double")


def test_absence_is_found_when_time_passes_without_events() -> None:
    silent = ms.Pattern("silent").begin("a", "t > 90").not_followed_by("b", "t < 50")
    clock = ManualClock(1_000_000_000)
    found: list[ComplexEvent] = []
    watcher = ms.Watcher(silent.within("10 s"), key="sensor", clock=clock, on_match=found.append)
    with watcher:
        watcher.send(reading(95))
        clock.advance_us(9_000_000)
        watcher.node.tick()
        assert found == []
        clock.advance_us(2_000_000)
        watcher.node.tick()
        assert [one.pattern for one in found] == ["silent"]


# restarts


def test_runs_that_are_live_go_on_after_a_restart(tmp_path: Path) -> None:
    with ms.Watcher(HOT, key="sensor", data=tmp_path) as first:
        first.send([reading(91), reading(95, "s2")])
    with ms.Watcher(HOT, key="sensor", data=tmp_path) as second:
        assert firsts(second.send(reading(92))) == [(91, 92)]
        assert firsts(second.send(reading(93))) == [(92, 93)]
    with ms.Watcher(HOT, key="sensor", data=tmp_path) as third:
        assert firsts(third.send(reading(96, "s2"))) == [(95, 96)]
        assert firsts(third.send(reading(94))) == [(93, 94)]


def test_a_data_folder_has_one_watcher_at_a_time(tmp_path: Path) -> None:
    with ms.Watcher(HOT, key="sensor", data=tmp_path), pytest.raises(AlreadyRunning):
        ms.Watcher(HOT, key="sensor", data=tmp_path)
    ms.Watcher(HOT, key="sensor", data=tmp_path).close()


# status


def test_the_status_has_runs_inputs_and_outputs(tmp_path: Path) -> None:
    from millstream.watch.outputs.stdout import StdoutOutput

    output = StdoutOutput(io.StringIO())
    with ms.Watcher(HOT, key="sensor", device="A", data=tmp_path, outputs=[output]) as watcher:
        watcher.send([reading(91), reading(92), reading(95, "s2")])
        assert watcher.node.outbox is not None
        assert watcher.node.outbox.drained(30)
        status, text = watcher.status(), watcher.metrics()
    assert (status.device, status.events) == ("A", 3)
    (pattern,) = status.patterns
    assert (pattern.name, pattern.live, pattern.found) == ("hot", 2, 1)
    (out,) = status.outputs
    assert (out.name, out.waiting, out.delivered) == ("stdout", 0, 1)
    assert 'millstream_watch_live_runs{pattern="hot"} 2\n' in text
    assert 'millstream_watch_output_waiting{output="stdout"} 0\n' in text
    from prometheus_client.parser import text_string_to_metric_families

    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"millstream_watch_events", "millstream_watch_memory_bytes"} <= names


# small


def test_a_watcher_loads_nothing_large_and_takes_less_than_60_megabytes(tmp_path: Path) -> None:
    code = f"""
import sys
import millstream as ms
from millstream.watch.status import memory_bytes
hot = ms.Pattern("hot").begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")
inputs, outputs = ["http://127.0.0.1:0"], ["stdout"]
with ms.Watcher(hot, key="sensor", data={str(tmp_path)!r}, inputs=inputs, outputs=outputs) as w:
    w.send([{{"sensor": "s1", "t": 91}}, {{"sensor": "s1", "t": 92}}])
    assert w.status().memory_bytes < 60_000_000, w.status().memory_bytes
large = {{"pyarrow", "numpy", "pandas", "pyspark", "numba", "rich", "httpx"}}
assert not large & set(sys.modules), large & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert '"first"' in done.stdout or '"a":' in done.stdout


# settings

PEERS = """
devices:
  A: {address: "tcp://127.0.0.1:7401", inputs: {own: "http://127.0.0.1:0"}}
outputs: {out: stdout}
"""


def test_inputs_and_outputs_can_stand_in_the_settings_of_all_devices(tmp_path: Path) -> None:
    file = tmp_path / "peers.yaml"
    file.write_text(PEERS)
    with ms.Watcher(HOT, key="sensor", device="A", peers=file) as watcher:
        status = watcher.status()
        assert [one.name.split()[0] for one in status.inputs] == ["http"]
        assert [one.name for one in status.outputs] == ["stdout"]
    file.write_text(PEERS.replace("out: stdout", "out: [stdout]"))
    with pytest.raises(InvalidSettings, match='"out" of "outputs"'):
        ms.Watcher(HOT, key="sensor", device="A", peers=file)


def test_events_of_sensors_of_another_device_are_left_to_it_while_it_is_present(
    tmp_path: Path,
) -> None:
    from millstream.links.keys import new_keys

    for name in ("A", "B"):
        new_keys(tmp_path / "keys", name)
    (tmp_path / "peers.yaml").write_text(
        "devices:\n"
        "  A: {address: 'tcp://127.0.0.1:7402'}\n"
        "  B: {address: 'tcp://127.0.0.1:7403'}\n"
        "keys: keys\nsensors: {A: ['north*'], B: ['south*']}\n"
    )
    clock = ManualClock(1_000_000_000_000)
    watcher = ms.Watcher(HOT, key="sensor", device="A", peers=tmp_path / "peers.yaml", clock=clock)
    watcher.send([reading(91, "north1"), reading(91, "south1")])
    assert (watcher.status().events, watcher.status().elsewhere) == (1, 1)
    clock.advance_us(3_600_000_000)  # B was not heard of for an hour
    watcher.send([reading(92, "south1")])
    assert (watcher.status().events, watcher.status().elsewhere) == (2, 1)
    watcher.close()
