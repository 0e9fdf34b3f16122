"""Real load: an hour of events, kills and switches; what grows, and whether every event was counted once.

    python -m benchmarks.load                                        an hour; writes results and picture
    python -m benchmarks.load --short                                four minutes, for a try
    python -m benchmarks.load --minutes 10 --rate 5000 --kill-every 60 --switch-every 120

Producers, each in a process of its own, send `--rate` events a second in all, each with the moment
of its making as its event time. Rows and sums per key are counted in windows of 5 s. Every five
minutes a process is killed with -9: the driver, the engine, the driver, a producer, in turn; every
ten minutes the job is switched to a version that sums other amounts, also while it recovers. The
journal has a limit (`keep_bytes`), so that its disk stays the same.

- *counted*: the sink is compared with the logs of the producers, window by window and key by key:
  each event once, and each sum that of one version;
- *flat*: what is watched each second (lag; memory, files and threads of each process; the disk
  without the sink's) has not grown from the second third to the last, beyond noise
  (`benchmarks/flat.py`; the limits are in `load_watch.py` and in the results). A run of a few
  minutes says little about that: Java has not got warm yet.

It fails if an event was lost or counted twice, if a switch failed, or, in a run of at least
`--judge` minutes, if something is not flat.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import load_plot
from benchmarks.common import folder, save, show
from benchmarks.load_watch import LIMITS, Watch, thinned
from benchmarks.service import engine, wait_for
from benchmarks.switch_load import NEW, OLD, Sums, whole
from benchmarks.switch_systems import FLOW, free_port, seconds_of

from millstream.engine.jobs.status import JobStatus
from millstream.engine.jobs.switch_record import OVER, SwitchState
from millstream.errors import MillstreamError

WINDOW_S: Final = 5
#: A producer that was killed, or waits for an engine, may be behind the others by so much.
LATENESS_S: Final = 15
#: Of each of the two partitions, once the windows have read it.
KEEP_BYTES: Final = 32 << 20
VICTIMS: Final = ("driver", "engine", "driver", "producer")
#: Nothing is killed or switched near the end, so that all of it is seen to recover.
QUIET: Final = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """How much, and how long."""

    minutes: float = 60.0
    rate: int = 20_000
    producers: int = 5
    kill_every_s: float = 300.0
    switch_every_s: float = 600.0
    warm: int = 1

    @property
    def seconds(self) -> float:
        return self.minutes * 60


SHORT: Final = Settings(
    minutes=4.0, rate=5_000, producers=3, kill_every_s=50.0, switch_every_s=70.0, warm=0
)


@dataclass
class Kill:
    """A process that was killed, and when the job was as before."""

    at: float
    victim: str
    #: The driver before the kill; the one that is back is another, unless a producer was killed.
    driver: int | None = None
    back_s: float | None = None


@dataclass
class Switch:
    """A switch that was asked for, and how it ended."""

    at: float
    version: str = ""
    state: str = "asked"
    seconds: float | None = None
    refusals: list[str] = field(default_factory=list)


class Producer:
    """A process that sends; the next one goes on where it was killed."""

    def __init__(self, place: Path, number: int, rate: int) -> None:
        self.log = place / f"producer-{number}.log"
        self._name, self._rate = f"producer-{number}", rate
        self._said = (place / f"producer-{number}.said").open("ab")

    def start(self, address: str) -> None:
        self._address = address
        words = ["inbox", address, str(self.log), str(self._rate), self._name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.switch_load", *words],
            stdin=subprocess.PIPE,
            stderr=self._said,
            cwd=Path(__file__).parents[1],
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.start(self._address)

    def end(self) -> None:
        """Let it send what it has."""
        self.process.communicate()
        self._said.close()
        if self.process.returncode:
            raise SystemExit(f"error: {self._name} failed\n{Path(self._said.name).read_text()}")


class Service:
    """An engine that may be killed, with the job on it."""

    def __init__(self, place: Path, warm: int) -> None:
        self._place = place
        (place / "tmp").mkdir()
        os.environ["TMPDIR"] = str(place / "tmp")  # whatever is left behind is seen
        self._options = ["--port", str(free_port()), "--warm", str(warm)]
        self._stack = ExitStack()
        self._files = {}
        for name, least in (("flow", OLD), ("flow_2", NEW)):
            text = FLOW.format(window=WINDOW_S, lateness=LATENESS_S, least=least)
            text = text.replace("amount long", "amount long, text string")
            kept = text.replace("partitions=2", f"partitions=2, keep_bytes={KEEP_BYTES}")
            self._files[name] = place / f"{name}.py"
            self._files[name].write_text(kept)
        self._next = itertools.cycle(("flow_2", "flow"))
        self.start()

    def start(self) -> None:
        process, self.cluster = self._stack.enter_context(engine(self._place, *self._options))
        self.process: subprocess.Popen[str] = process

    def deploy(self) -> str:
        """Deploy the job; return where events are sent to."""
        self.cluster.deploy(self._files["flow"])
        wait_for(lambda: self.cluster.status("load").state == "running", 300)
        return str(self.cluster.status("load").inboxes[0].address)

    def status(self) -> JobStatus | None:
        with contextlib.suppress(MillstreamError):
            return self.cluster.status("load")
        return None

    def switch(self, to: str) -> None:
        self.cluster.switch("load", self._files[to])

    def next_version(self) -> str:
        return next(self._next)

    def kill_driver(self) -> None:
        found = self.status()
        if found is not None and found.pid is not None:
            os.kill(found.pid, signal.SIGKILL)

    def kill_engine(self) -> None:
        self.process.kill()
        self._stack.close()
        self.start()

    def finish(self) -> JobStatus:
        """Let the job process all that was sent."""
        self.cluster.drain("load", flush=True)
        return self.cluster.wait("load", 900)

    def close(self) -> None:
        with contextlib.suppress(MillstreamError):
            self.cluster.undeploy("load", force=True)
        self._stack.close()


class Life:
    """The run: what is killed and switched when, and what was seen meanwhile."""

    def __init__(self, place: Path, settings: Settings) -> None:
        self._settings = settings
        self.service = Service(place, settings.warm)
        each = settings.rate // settings.producers
        self.producers = [Producer(place, n, each) for n in range(settings.producers)]
        self.watch = Watch(place)
        self.kills: list[Kill] = []
        self.switches: list[Switch] = []
        self._victims = itertools.cycle(VICTIMS)
        self._killed_producers = itertools.cycle(self.producers)
        self._usual: list[int] = []
        self._switch_at = settings.switch_every_s
        self._driver: int | None = None

    def live(self) -> None:
        """Send, kill and switch for as long as the settings say."""
        address = self.service.deploy()
        for one in self.producers:
            one.start(address)
        end, quiet = self._settings.seconds, self._settings.seconds * (1 - QUIET)
        self.watch = Watch(self.watch.place)
        while (now := self.watch.now) < end:
            status = self.service.status()
            pids = [one.process.pid for one in self.producers]
            self.watch.look(self.service.process.pid, pids, status)
            self._follow(status, now)
            if now < quiet and now >= self._settings.kill_every_s * (len(self.kills) + 1):
                self._kill(now)
            elif now < quiet and now >= self._switch_at and self._switched:
                self._switch_at = now + self._settings.switch_every_s
                self.switches.append(Switch(round(now, 1), self.service.next_version()))
            self._ask(status)
            time.sleep(max(0.0, now + 1.0 - self.watch.now))
        self._await_switch()
        for one in self.producers:
            one.end()

    @property
    def _switched(self) -> bool:
        """Whether no switch is asked for or going on."""
        return not self.switches or self.switches[-1].state not in ("asked", "going on")

    def _kill(self, now: float) -> None:
        victim = next(self._victims)
        self._say(f"kill -9 of the {victim}")
        driver = None if victim == "producer" else self._driver
        self.kills.append(Kill(round(now, 1), victim, driver))
        match victim:
            case "driver":
                self.service.kill_driver()
            case "engine":
                self.service.kill_engine()
            case _:
                next(self._killed_producers).kill()

    def _ask(self, status: JobStatus | None) -> None:
        """Ask for the switch that is next; a job that is just starting refuses."""
        wanted = self.switches[-1] if self.switches else None
        if wanted is None or wanted.state != "asked" or status is None:
            return
        try:
            self.service.switch(wanted.version)
            wanted.state = "going on"
            self._say("a switch begins")
        except MillstreamError as error:
            if str(error) not in wanted.refusals:
                wanted.refusals.append(str(error))
                self._say(f"no switch yet: {error}")

    def _follow(self, status: JobStatus | None, now: float) -> None:
        """Note how the last switch does, and whether the job is as it was before the last kill."""
        if status is None:
            return
        self._driver = status.pid or self._driver
        going_on = self.switches[-1] if self.switches else None
        if going_on is not None and going_on.state == "going on":
            found = status.switch
            if (
                found is not None
                and found.state is SwitchState.ABORTED
                and self._driver_died(found.why)
            ):
                # As the guide says: a driver that dies before the cut ends its switch.
                going_on.state = "asked"
                going_on.refusals.append(str(found.why))
                self._say(f"the switch is asked for again: {found.why}")
            elif found is not None and found.state in OVER:
                going_on.state = str(found.state)
                going_on.seconds = round(now - going_on.at, 1)
                self._say(f"the switch is {found.state}")
                if found.why:
                    going_on.refusals.append(found.why)
        waiting = self.kills[-1] if self.kills else None
        if waiting is None or waiting.back_s is not None:
            self._usual.append(status.unprocessed)
        elif status.state == "running" and status.pid not in (None, waiting.driver):
            usual = statistics.median(self._usual) if self._usual else 0
            if status.unprocessed <= max(2 * usual, self._settings.rate):
                self._say("back to normal")
                for one in self.kills:
                    one.back_s = one.back_s or round(now - one.at, 1)

    @staticmethod
    def _driver_died(why: str | None) -> bool:
        return why is not None and "driver ended" in why

    def _say(self, what: str) -> None:
        print(f"{self.watch.now:6.0f} s  {what}", flush=True)

    def _await_switch(self) -> None:
        deadline = time.monotonic() + 300
        while not self._switched and time.monotonic() < deadline:
            time.sleep(1.0)
            status = self.service.status()
            self._ask(status)
            self._follow(status, self.watch.now)


def run(place: Path, settings: Settings) -> dict[str, Any]:
    """Run under load in a folder, and return what was seen."""
    life = Life(place, settings)
    try:
        life.live()
        done = life.service.finish()
    except BaseException:
        for one in life.producers:
            with contextlib.suppress(AttributeError):
                one.process.kill()
        raise
    finally:
        life.service.close()
    wanted: Counter[Any] = Counter()
    for one in life.producers:
        for window, sums in whole(one.log, settings.rate // settings.producers, WINDOW_S).items():
            wanted[window] = tuple(map(sum, zip(wanted[window] or (0, 0, 0), sums, strict=True)))
    verdicts = life.watch.verdicts()
    return {
        **compared(place / "out", wanted, done.late),
        "kills": [asdict(one) for one in life.kills],
        "switches": [asdict(one) for one in life.switches],
        "not_flat": [name for name, one in verdicts.items() if not one.flat],
        "flat": {name: one.plain() for name, one in verdicts.items()},
        "points": thinned(life.watch.series),
    }


def compared(out: Path, wanted: Mapping[tuple[str, int], Sums], late: int) -> dict[str, Any]:
    """Compare the results with what was sent: each event once, each sum that of one version."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for file in out.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            key = one["k"], seconds_of(one["window_start"])
            found[key].append((one["n"], one["total"]))
    counts = {key: sum(n for n, _ in rows) for key, rows in found.items()}
    lost = sum(max(0, sums[0] - counts.get(key, 0)) for key, sums in wanted.items())
    extra = sum(max(0, n - wanted[key][0] if key in wanted else n) for key, n in counts.items())
    whose: dict[int, set[str]] = defaultdict(set)
    neither = 0
    for key, rows in found.items():
        _, old, new = wanted.get(key, (0, 0, 0))
        for _, total in rows:
            whose[key[1]].add("old" if total == old else "new" if total == new else "neither")
            neither += total not in (old, new)
    windows = Counter("+".join(sorted(one)) for one in whose.values())
    return {
        "sent": sum(sums[0] for sums in wanted.values()),
        "counted": sum(counts.values()),
        "late": late,
        "lost": lost - late,
        "twice": extra,
        "results_twice": sum(len(rows) - 1 for rows in found.values()),
        # A sum without its late rows is that of neither version.
        "sums_of_neither": 0 if late else neither,
        "windows": dict(windows),
    }


def faults(found: Mapping[str, Any]) -> list[str]:
    """Return what must not be, in words; flatness is judged apart."""
    said = [
        f"{found[what]:,} {words}"
        for what, words in (
            ("lost", "events were lost"),
            ("twice", "events were counted twice"),
            ("results_twice", "results were published twice"),
            ("sums_of_neither", "sums are those of neither version"),
        )
        if found[what]
    ]
    mixed = sum(n for kinds, n in found["windows"].items() if kinds == "new+old")
    if mixed:
        said.append(f"{mixed} windows have results of both versions")
    said += [
        f"the switch at {one['at']:.0f} s is {one['state']}: {one['refusals']}"
        for one in found["switches"]
        if one["state"] != SwitchState.DONE
    ]
    said += [
        f"the job was not back after the kill at {one['at']:.0f} s"
        for one in found["kills"]
        if one["back_s"] is None
    ]
    return said


def tell(found: Mapping[str, Any], settings: Settings) -> None:
    what = ("sent", "counted", "late", "lost", "twice", "results_twice", "sums_of_neither")
    show(
        f"{settings.minutes:g} minutes at {settings.rate:,} events/s",
        ["", ""],
        [(name.replace("_", " "), f"{found[name]:,}") for name in what],
    )
    kills = [(f"{one['at']:.0f} s", one["victim"], str(one["back_s"])) for one in found["kills"]]
    show("kills", ["at", "of", "back to normal, s"], kills)
    switches = [
        (f"{one['at']:.0f} s", one["state"], str(one["seconds"]), "; ".join(one["refusals"]))
        for one in found["switches"]
    ]
    show("switches", ["at", "ended", "s", "why"], switches)
    rows = [
        (
            name,
            f"{one['second']:,.1f}",
            f"{one['last']:,.1f}",
            f"{max(one['noise'], one['allowed']):,.1f}",
            "flat" if one["flat"] else "NOT FLAT",
        )
        for name, one in found["flat"].items()
    ]
    show("second third and last third", ["", "second", "last", "may grow by", ""], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="four minutes of less")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=int, help="events a second, of all producers")
    parser.add_argument("--producers", type=int)
    parser.add_argument("--kill-every", type=float, dest="kill_every_s", help="seconds")
    parser.add_argument("--switch-every", type=float, dest="switch_every_s", help="seconds")
    parser.add_argument("--warm", type=int, help="drivers that are kept ready")
    parser.add_argument("--judge", type=float, default=30.0, help="minutes from which on it fails")
    parser.add_argument(
        "--keep", action="store_true", help="keep results and picture; an hour does"
    )
    given = parser.parse_args()
    asked = {name: getattr(given, name) for name in Settings.__slots__}
    settings = replace(
        SHORT if given.short else Settings(),
        **{name: value for name, value in asked.items() if value is not None},
    )
    with folder("load") as place:
        found = run(place, settings)
    tell(found, settings)
    if given.keep or settings.minutes >= 60:
        limits = {name: asdict(one) for name, one in LIMITS.items()}
        save("load", {**asdict(settings), "keep_bytes": KEEP_BYTES, "limits": limits}, found)
        load_plot.draw(found)
    said = faults(found)
    for name in found["not_flat"]:
        print(f"not flat: {name}: {found['flat'][name]}")
        if settings.minutes >= given.judge:
            said.append(f"not flat: {name}")
    if said:
        raise SystemExit("error: " + "; ".join(said))


if __name__ == "__main__":
    main()
