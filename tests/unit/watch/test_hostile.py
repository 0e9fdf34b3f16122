"""What a watcher does with events, options and disks that nobody would want."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.clock import ManualClock
from millstream.errors import (
    EventRefused,
    InvalidKey,
    InvalidOption,
    InvalidSettings,
    LinkBroken,
    StateNotWritten,
)
from millstream.links.keys import new_keys
from millstream.watch import kinds
from millstream.watch.disk import Store
from millstream.watch.inputs import stdin
from millstream.watch.rows import events_of
from millstream.watch.settings import read
from millstream.watch.wire import own_key

SECOND = 1_000_000
AB = ms.Pattern("ab").begin("a", "t > 0").followed_by("b", "t > 0").within("1 hour")
WRONG_COLUMNS = AB.emit("1 / (b.t - 7) as q")


# rows


def test_of_a_line_that_is_too_long_nothing_is_an_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdin, "_LONGEST", 100)
    monkeypatch.setattr(stdin, "_CHUNK", 64)
    reading, writing = os.pipe()
    os.write(writing, b'{"t": 1}\n' + b"x" * 1000 + b'{"t": 2}\n{"t": 3}\n' + b"y" * 300)
    os.close(writing)
    with ms.Watcher(AB) as watcher:
        stdin.StdinInput(reading).run(watcher)
        os.close(reading)
        assert (watcher.node.counts.events, watcher.rejected) == (2, 2)
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "line 2 has more than 100 bytes",
        "line 4 has more than 100 bytes",
    ]


def test_json_that_is_nested_without_end_is_no_event() -> None:
    deep = b"[" * 200_000
    assert events_of(deep) == [deep]
    assert events_of(deep + b"\n" + deep) == [deep, deep]
    with ms.Watcher(AB) as watcher:
        (bad,) = watcher.take([deep], source="mqtt")
        assert bad.reason.startswith("an event is not JSON")


@pytest.mark.parametrize(
    "row",
    [
        {"t": 1 << 70},
        {"t": 1, "s": "a\ud800"},
        {"t": 1, "s": Ellipsis},
        {"t": 1, 5: "x"},
        {"t": 1, "s": json.loads("[" * 20 + "]" * 20)},
        {"t": 1, "at": "0001-01-01T00:00:00+14:00"},
        5,
        None,
        "text",
    ],
    ids=str,
)
@pytest.mark.parametrize("time", [None, "at"])
def test_what_cannot_be_kept_is_refused_and_harms_nothing(
    row: Any, time: str | None, tmp_path: Path
) -> None:
    good: dict[str, Any] = {"t": 2} if time is None else {"t": 2, "at": "2026-01-01T00:00:00Z"}
    with ms.Watcher(AB, data=tmp_path, time=time) as watcher:
        watcher.send(good)
        if not (time is None and isinstance(row, dict) and "at" in row):
            with pytest.raises(EventRefused):
                watcher.send([row])
    with ms.Watcher(AB, data=tmp_path, time=time) as watcher:
        (found,) = watcher.send(good)
    assert found["b"]["t"] == 2


def test_text_of_a_column_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with ms.Watcher(AB, data=tmp_path, schema="t bigint, s string") as watcher:
        with pytest.raises(EventRefused, match="cannot be kept"):
            watcher.send({"t": 1, "s": "a\ud800"})
        assert watcher.send({"t": 1, "s": "für"}) == []


def test_an_event_that_one_pattern_cannot_compute_is_seen_by_the_others(tmp_path: Path) -> None:
    def fails(row: Any) -> bool:
        return bool(row["missing"])

    odd = ms.Pattern("odd").begin("x", fails)
    with ms.Watcher([odd, AB], data=tmp_path, outputs=[]) as watcher:
        bad = watcher.take([b'{"t": 1}', b'{"t": 2}'], source="test")
        assert [(one.place, "missing" in one.reason) for one in bad] == [(0, True), (1, True)]
        assert watcher.status().patterns[1].found == 1


def test_a_predicate_that_fails_for_a_run_does_not_hold_for_it() -> None:
    def fails(row: Any, past: Any) -> bool:
        return bool(row["t"] > past["a"][0]["limit"])

    pattern = ms.Pattern("p").begin("a", "t > 0").followed_by("b", fails).within("1 hour")
    with ms.Watcher(pattern) as watcher:
        watcher.send({"t": 1})
        with pytest.raises(EventRefused, match="limit"):
            watcher.send({"t": 2, "limit": 5})
        with pytest.raises(EventRefused, match="limit"):  # for the first run
            watcher.send({"t": 9, "limit": 100})
        assert watcher.status().patterns[0].found == 1


def test_a_match_whose_columns_cannot_be_computed_is_put_aside(tmp_path: Path) -> None:
    columns = {"schema": "t double", "data": tmp_path}
    with ms.Watcher(WRONG_COLUMNS, **columns) as watcher:
        assert [watcher.send({"t": t}) for t in (1, 7)] == [[], []]
    aside = json.loads((tmp_path / "aside" / "failed.jsonl").read_text())
    assert "division by zero" in aside["reason"]
    assert json.loads(aside["record"])["pattern"] == "ab"
    assert aside["run"]
    with ms.Watcher(WRONG_COLUMNS, **columns) as watcher:  # it starts again
        assert [one["q"] for one in watcher.send({"t": 9})] == [0.5]
    assert len((tmp_path / "aside" / "failed.jsonl").read_text().splitlines()) == 1


def test_an_event_far_ahead_of_the_clock_does_not_end_other_runs() -> None:
    clock = ManualClock(int(datetime(2026, 5, 4, 9, tzinfo=UTC).timestamp()) * SECOND)
    with ms.Watcher(AB, key="s", time="at", clock=clock) as watcher:
        watcher.send({"s": "x", "t": 1, "at": "2026-05-04T09:00:00Z"})
        watcher.send({"s": "y", "t": 1, "at": "9999-12-31T23:59:59Z"})
        watcher.node.tick()
        assert watcher.status().patterns[0].live == 2
        assert watcher.send({"s": "x", "t": 2, "at": "2026-05-04T09:10:00Z"})
        clock.advance_us(2 * 3600 * SECOND)
        watcher.node.tick()
        assert watcher.status().patterns[0].live == 1


def test_a_watcher_that_keeps_nothing_takes_any_value() -> None:
    pattern = ms.Pattern("p").begin("a", lambda row: row["x"].real > 0)
    with ms.Watcher(pattern) as watcher:
        assert watcher.send({"x": 1 + 2j})


def test_what_is_to_be_done_first_is_done_before_any_input_runs() -> None:
    order: list[str] = []

    class Eager:
        name = "eager"

        def run(self, _feed: Any) -> None:
            order.append("input")

        def stop(self) -> None:
            """It ends by itself."""

    watcher = ms.Watcher(AB, inputs=[Eager()])
    watcher.start(lambda: order.append("greeting"))
    watcher.close()
    assert order == ["greeting", "input"]


# options


def test_without_standard_input_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidOption, match="standard input is closed"):
        ms.Watcher(AB, inputs=["stdin"])


def test_an_output_is_named_once() -> None:
    with pytest.raises(InvalidOption, match='output "stdout" is there twice'):
        ms.Watcher(AB, outputs=["stdout", "stdout"])


@pytest.mark.parametrize(
    ("side", "address"),
    [
        ("inputs", "http://127.0.0.1:99999"),
        ("inputs", "http://127.0.0.1:x"),
        ("outputs", "https://host:99999/"),
        ("outputs", "mqtt://host:99999/x"),
        ("outputs", 'program:./alarm "'),
    ],
)
def test_an_address_that_is_none_is_named(side: Any, address: str) -> None:
    with pytest.raises(InvalidOption, match="is not an address"):
        kinds.make(side, address, device="A", data=Path(), aside=lambda _: None)


def test_a_port_that_is_taken_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    with ms.Watcher(AB, inputs=["http://127.0.0.1:0"]) as first:
        port = first.inputs[0].port
        for _ in range(2):
            with pytest.raises(LinkBroken, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
                ms.Watcher(AB, data=tmp_path, inputs=[f"http://127.0.0.1:{port}"])
    ms.Watcher(AB, data=tmp_path, inputs=[f"http://127.0.0.1:{port}"]).close()


def peers(folder: Path, *, listen: str = "tcp://127.0.0.1:9") -> Path:
    file = folder / "peers.yaml"
    file.write_text(
        f"devices:\n  A: {{address: 'tcp://127.0.0.1:1', listen: '{listen}'}}\n"
        "  B: {address: 'tcp://127.0.0.1:2'}\nkeys: keys\n"
    )
    return file


def test_a_device_with_the_key_of_another_does_not_start(tmp_path: Path) -> None:
    for name in "AB":
        new_keys(tmp_path / "keys", name)
    keys = tmp_path / "keys"
    (keys / "A.key").write_bytes((keys / "B.key").read_bytes())
    with pytest.raises(InvalidKey, match='the others know device "A" by'):
        own_key(read(peers(tmp_path), "A"))


def test_a_watcher_that_cannot_start_leaves_its_folder(tmp_path: Path) -> None:
    for name in "AB":
        new_keys(tmp_path / "keys", name)
    settings = peers(tmp_path, listen="tcp://192.0.2.1:7400")  # an address of nobody
    for _ in range(2):
        with (
            pytest.raises(LinkBroken, match=r"cannot listen on tcp://192\.0\.2\.1"),
            ms.Watcher(AB, device="A", data=tmp_path / "data", peers=settings),
        ):
            pass


def test_an_empty_file_of_peers_is_named(tmp_path: Path) -> None:
    (tmp_path / "peers.yaml").write_text("")
    with pytest.raises(InvalidSettings, match='is empty where "devices" should be'):
        read(tmp_path / "peers.yaml", "A")


# disks


def test_while_the_disk_is_full_the_status_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full, refused = threading.Event(), threading.Event()

    def limited(write: Any) -> Any:
        def written(store: Store, content: bytes) -> None:
            if full.is_set():
                refused.set()
                raise StateNotWritten("no space left on device")
            write(store, content)

        return written

    for name in ("append", "begin"):
        monkeypatch.setattr(Store, name, limited(getattr(Store, name)))
    with ms.Watcher(AB, data=tmp_path) as watcher:
        watcher.send({"t": 1})
        full.set()
        sending = threading.Thread(target=watcher.send, args=({"t": 2},))
        sending.start()
        assert refused.wait(30)
        told: list[Any] = []
        asking = threading.Thread(target=lambda: told.append(watcher.status()), daemon=True)
        asking.start()
        asking.join(30)
        full.clear()
        sending.join(30)
        (status,) = told
        assert status.unwritten == "no space left on device"
        assert watcher.status().unwritten is None
        assert watcher.status().patterns[0].found == 1
