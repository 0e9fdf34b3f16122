"""The demo of watchers: three devices, killed and cut off in turn, and a flow that counts.

    PYTHONPATH=. python examples/edge/demo.py [--machines 40] [--rounds 3]

Sensors of three kinds are at three devices, so that no device sees all of a match. In turn, each
device is killed with kill -9 and started again, and cut off from the others and from the flow.
Sensors whose device does not answer send to the next one. At the end the flow has counted every
match once: as many as one device finds that sees all readings.

Ends with "demo: ok", or with "demo: failed: ..." and exit status 1; draws out/edge.svg.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from examples.edge import hosts as places
from examples.edge.picture import Story, svg

import millstream as ms
from millstream.journal import journal_at
from millstream.links.keys import new_keys

HERE = Path(__file__).parent
DEVICES = ("A", "B", "C")
KINDS = {"heat": "A", "vibration": "B", "smoke": "C"}
TOKEN = "a token of the demo"
PATIENCE_S = 300.0


class DemoFailed(Exception):
    """A promise of the demo was not kept."""


# readings


@dataclass
class Plant:
    """The machines, and what their sensors read: some of them burn."""

    machines: int
    seed: int = 7
    number: int = 0
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def round(self) -> Iterator[dict[str, Any]]:
        """Yield the readings of all machines, in order, mixed."""
        waiting = [list(self._machine(f"m{one}")) for one in range(self.machines)]
        while waiting:
            some = self._random.choice(waiting)
            yield self._reading(*some.pop(0))
            waiting = [one for one in waiting if one]

    def _machine(self, name: str) -> Iterator[tuple[str, str, float]]:
        heat = self._random.choice([60.0, 85.0, 90.0, 95.0])
        yield name, "heat", heat
        yield name, "vibration", self._random.choice([1.0, 6.0, 7.0])
        yield name, "smoke", self._random.choice([0.1, 0.9, 1.5])

    def _reading(self, machine: str, kind: str, value: float) -> dict[str, Any]:
        self.number += 1
        at = datetime.now(UTC).isoformat()
        row = {"reading": self.number, "machine": machine, "kind": kind, "value": value, "at": at}
        self.sent.append(row)
        return row


def expected(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return how many matches of each machine one device finds that sees all readings."""
    with ms.Watcher(HERE / "patterns.py", id="reading") as alone:
        found = alone.send(sorted(rows, key=lambda row: (row["at"], row["reading"])))
    return Counter(one["machine"] for one in found)


# devices


@dataclass
class Devices:
    """The processes of the watchers."""

    hosts: places.Hosts
    folder: Path
    flow: int
    story: Story
    began: float = field(default_factory=time.monotonic)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _away: dict[str, tuple[str, float]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the keys of the devices, and the settings of each."""
        for device in DEVICES:
            new_keys(self.folder / "keys", device)
        for device in DEVICES:
            listed = "\n".join(
                f"  {one}: {{address: '{self._address(device, one)}'}}" for one in DEVICES
            )
            periods = "{ping: 3 s, resync: 6 s, stash_again: 1 s, ping_again: 1 s, "
            periods += "resync_again: 2 s, limit: 1 s}"
            text = f"devices:\n{listed}\nkeys: keys\nperiods: {periods}\nrecall: 10 minutes\n"
            (self.folder / f"peers-{device}.yaml").write_text(text)
        (self.folder / "token").write_text(TOKEN)

    def _address(self, device: str, other: str) -> str:
        if device == other:
            return self.hosts.listen(device)
        return self.hosts.address(device, other)

    def start(self, device: str) -> None:
        """Start a watcher, and wait until it answers its sensors."""
        with (self.folder / f"{device}.log").open("ab") as log:
            self.processes[device] = subprocess.Popen(
                [
                    *self.hosts.prefix(device),
                    sys.executable,
                    *("-m", "millstream", "watch", str(HERE / "patterns.py"), "--device", device),
                    *("--peers", str(self.folder / f"peers-{device}.yaml")),
                    *("--in", f"http://{self.hosts.http(device)}", "--id", "reading"),
                    *("--out", f"inbox:plant.alarms@{self.hosts.flow(device, self.flow)}"),
                    *("--token-file", str(self.folder / "token")),
                    *("--data", str(self.folder / device)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: asked(self.hosts.http(device), "GET", "/healthz") is not None, device)
        self._back(device)

    def kill(self, device: str) -> None:
        process = self.processes.pop(device)
        process.kill()
        process.wait()
        self._gone(device, "killed")

    def cut(self, device: str) -> None:
        self.hosts.cut(device)
        self._gone(device, "cut off")

    def join(self, device: str) -> None:
        self.hosts.join(device)
        self._back(device)

    def _gone(self, device: str, what: str) -> None:
        self._away[device] = what, self.now()

    def _back(self, device: str) -> None:
        if device in self._away:
            what, since = self._away.pop(device)
            self.story.away.append((device, what, since, self.now()))

    def now(self) -> float:
        return time.monotonic() - self.began

    def send(self, row: dict[str, Any], pause: float) -> None:
        """Send a reading to the device of its sensor, or to the next one that accepts it."""
        time.sleep(pause)  # readings come at some pace
        first = DEVICES.index(KINDS[row["kind"]])
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for device in (*DEVICES[first:], *DEVICES[:first]):
                if asked(self.hosts.http(device), "POST", "/events", row) is not None:
                    return
            time.sleep(0.05)
        raise DemoFailed("no device accepts readings")

    def status(self, device: str) -> dict[str, Any]:
        return asked(self.hosts.http(device), "GET", "/status") or {}

    def settled(self) -> bool:
        """Tell whether all devices know the same, and the flow has all that they found."""
        states = [self.status(device) for device in DEVICES]
        return all(
            state
            and not any(out["waiting"] for out in state["outputs"])
            and not any(peer["away"] or peer["stash"] or peer["resync"] for peer in state["peers"])
            for state in states
        )

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def asked(address: str, method: str, path: str, row: Any = None) -> dict[str, Any] | None:
    """Ask a device; None if it does not answer, or refuses."""
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=3)
    try:
        body = None if row is None else json.dumps(row)
        connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        content = answer.read()
        return json.loads(content) if answer.status < 300 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise DemoFailed(f"waited {patience:.0f} s for {what}")
        time.sleep(0.1)


# the flow


@contextmanager
def running(folder: Path, hosts: places.Hosts, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the flow; its source takes what watchers send."""
    shutil.copy(HERE / "flow.py", folder / "flow.py")
    network = [] if hosts.flow_ip == "127.0.0.1" else ["--network", f"{places.PLANT}."]
    with (folder / "flow.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "millstream", "run", "flow.py", "--json", "--until-end"),
                *("--port", str(port), *network, "--open-without-keys"),
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        note = folder / ".millstream/plant/inboxes.json"
        until(lambda: note.exists() or process.poll() is not None, "the flow")
        if process.poll() is not None:
            raise DemoFailed(f"the flow has ended: {(folder / 'flow.log').read_text()[-2000:]}")
        yield process
    finally:
        process.terminate()
        process.wait(120)


def ended(folder: Path, process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """End the source, wait until the flow has counted all, and return what it has counted."""
    with ms.connect(folder / ".millstream") as client:
        client.end("plant.alarms")
    until(lambda: process.poll() is not None, "the flow to end")
    files = sorted((folder / "out/alarms").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class Watching(threading.Thread):
    """Notes when devices find matches, and when these reach the flow."""

    def __init__(self, folder: Path, devices: Devices) -> None:
        super().__init__(daemon=True)
        self._journal = journal_at(folder / ".millstream/plant/journals/alarms")
        self._devices = devices
        self.over = threading.Event()

    def run(self) -> None:
        counts = dict.fromkeys(DEVICES, 0)
        story = self._devices.story
        while not self.over.wait(0.2):
            now = self._devices.now()
            rows = self._journal.reader().partition(0).end
            story.reached += [now] * (rows - len(story.reached))
            for device in DEVICES:
                state = self._devices.status(device)
                found = sum(one["found"] for one in state.get("patterns", ()))
                # A watcher that was started again counts from 0.
                story.found += [(device, now)] * max(0, found - counts[device])
                counts[device] = found if state else counts[device]
                if device not in self._devices.processes:
                    counts[device] = 0


# the demo


def trouble(devices: Devices, plant: Plant, rounds: int, pause: float) -> None:
    """Send readings while each device is killed and cut off in turn."""
    for number in range(rounds):
        device = DEVICES[number % len(DEVICES)]
        rows = list(plant.round())
        third = len(rows) // 3
        for row in rows[:third]:
            devices.send(row, pause)
        if number % 2:
            devices.kill(device)
        else:
            devices.cut(device)
        print(f"{devices.now():5.1f} s  {device} is {devices._away[device][0]}", flush=True)
        for row in rows[third : 2 * third]:
            devices.send(row, pause)
        if number % 2:
            devices.start(device)
        else:
            devices.join(device)
        print(f"{devices.now():5.1f} s  {device} is back", flush=True)
        for row in rows[2 * third :]:
            devices.send(row, pause)


def demo(folder: Path, options: argparse.Namespace) -> None:
    plant, story = Plant(options.machines), Story(DEVICES)
    with places.opened(DEVICES, processes=options.processes) as hosts:
        print(f"three devices in {hosts.kind}", flush=True)
        port = places.free_port()
        with running(folder, hosts, port) as flow:
            devices = Devices(hosts, folder, port, story)
            devices.prepare()
            try:
                for device in DEVICES:
                    devices.start(device)
                devices.began = time.monotonic()
                watching = Watching(folder, devices)
                watching.start()
                trouble(devices, plant, options.rounds, options.pause)
                until(devices.settled, "devices to know the same")
                story.seconds = devices.now() + 1.0
                watching.over.wait(1.0)
                watching.over.set()
                watching.join()
            finally:
                devices.stop()
            rows = ended(folder, flow)
    wanted = expected(plant.sent)
    story.expected, story.counted = wanted.total(), len(rows)
    picture = options.out / "edge.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg(story))
    sent = len(story.reached)
    print(
        f"{len(plant.sent)} readings, {wanted.total()} matches, {sent} sent to the flow; {picture}"
    )
    check(wanted, rows)


def check(wanted: Counter[str], rows: list[dict[str, Any]]) -> None:
    """Compare what the flow counted with what one device finds that sees all readings."""
    runs = [row["run"] for row in rows]
    if len(runs) != len(set(runs)):
        raise DemoFailed(f"{len(runs) - len(set(runs))} runs were counted twice")
    found = Counter(row["machine"] for row in rows)
    if found != wanted:
        missing, more = wanted - found, found - wanted
        raise DemoFailed(f"missing {dict(missing)}, too many {dict(more)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.04, help="seconds between readings")
    parser.add_argument("--processes", action="store_true", help="no network namespaces")
    parser.add_argument("--data", type=Path, default=HERE / "out" / "data")
    parser.add_argument("--out", type=Path, default=HERE / "out")
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    options.data.mkdir(parents=True)
    try:
        demo(options.data.resolve(), options)
    except DemoFailed as failed:
        print(f"demo: failed: {failed}")
        sys.exit(1)
    print("demo: ok")


if __name__ == "__main__":
    main()
