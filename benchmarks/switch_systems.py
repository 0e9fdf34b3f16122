"""Three systems that count the same load, and how each is brought to another version while the load goes on.

- *Millstream*: `millstream switch` of a job on an engine; events come through its inbox.
- *PySpark* by hand: the process is stopped and one with the changed query started on the same checkpoint. Spark allows that, as only
  an expression changes and the state stays what it was; a changed aggregate would need a new
  checkpoint, that is, an empty state.
- *Flink*: `flink stop` with a savepoint, and the changed job started from it, on a cluster that stays up: one JobManager and one
  TaskManager. A changed aggregate could not be started from it either.

The two read CSV files from a folder. Flink's source takes the files that it finds at once in any
order, so those that gathered while the job was away are given to it as one; a log such as Kafka
would keep their order.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import httpx
import yaml
from benchmarks import peers
from benchmarks.service import engine, wait_for
from benchmarks.switch_load import NEW, OLD, TICK_S

FLOW = """
import millstream as ms

flow = ms.Flow("load", window="{window} seconds")
events = flow.source(
    "events", ms.inbox("k string, amount long, at timestamp"), time="at", key="k", partitions=2, lateness="{lateness} seconds"
)
big = events.sql("big", "SELECT k, at, if(amount >= {least}, amount, 0) AS big FROM events")
counted = big.window("counted", every="{window} seconds", by="k", n="count(*)", total="sum(big)")
counted.sink("counted", ms.jsonl("out"))
"""
#: Key, start of the window, rows, sum.
Row = tuple[str, int, int, int]


class System(Protocol):
    """Something that counts, in a folder of its own."""

    def start(self) -> list[str]:
        """Begin; return what the load's process is told."""

    def switch(self) -> dict[str, Any]:
        """Bring in the new version; return when it has taken over, with what is worth telling."""

    def visible(self) -> Iterator[str]:
        """Return the names of what a reader of the results sees now."""

    def rows(self, name: str) -> list[Row]:
        """Return the results that one of them holds, or shows first."""

    def roots(self) -> list[int]:
        """Return the processes that, with their children, do the work."""

    def close(self) -> None:
        """End all of it."""


class Ours:
    """A job on an engine."""

    def __init__(self, folder: Path, window_s: int, lateness_s: int) -> None:
        self._folder, self._window, self._lateness = folder, window_s, lateness_s
        self._stack = ExitStack()
        self._pid = 0

    def start(self) -> list[str]:
        for name, least in (("flow", OLD), ("flow_2", NEW)):
            text = FLOW.format(window=self._window, lateness=self._lateness, least=least)
            (self._folder / f"{name}.py").write_text(text)
        process, self.cluster = self._stack.enter_context(engine(self._folder))
        self._pid = process.pid
        self.cluster.deploy(self._folder / "flow.py")
        wait_for(lambda: self.cluster.status("load").state == "running")
        return ["inbox", self.cluster.status("load").inboxes[0].address]

    def switch(self) -> dict[str, Any]:
        began = time.time()
        batch_s = self.cluster.status("load").groups[0].batch_seconds
        self.cluster.switch("load", self._folder / "flow_2.py")
        done = self.cluster.wait_switch("load", 240)
        if done.version != "2" or done.switch is None:
            raise SystemExit(f"error: the switch was not done: {done.switch}")
        moments = [
            (datetime.fromisoformat(step.at).timestamp() - began, step.what)
            for step in done.switch.steps
        ]
        return {"micro_batch_s": batch_s, "steps": [(round(at, 2), text) for at, text in moments]}

    def visible(self) -> Iterator[str]:
        return (name for name in _names(self._folder / "out") if name.endswith(".jsonl"))

    def rows(self, name: str) -> list[Row]:
        lines = [
            json.loads(line) for line in (self._folder / "out" / name).read_text().splitlines()
        ]
        return [
            (one["k"], seconds_of(one["window_start"]), one["n"], one["total"]) for one in lines
        ]

    def roots(self) -> list[int]:
        return [self._pid]

    def close(self) -> None:
        if self._pid:
            self.cluster.undeploy("load", force=True)
        self._stack.close()


class PySpark:
    """A query in a process, as one writes it by hand."""

    def __init__(self, folder: Path, window_s: int, lateness_s: int) -> None:
        self._folder, self._numbers = folder, [str(window_s), str(lateness_s)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> list[str]:
        (self._folder / "in").mkdir()
        self._begin(OLD)
        return ["files", str(self._folder / "in")]

    def _begin(self, least: int) -> None:
        job = Path(__file__).with_name("switch_pyspark.py")
        command = [sys.executable, str(job), str(self._folder), str(least), *self._numbers]
        with (self._folder / f"pyspark-{least}.said").open("w") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "started\n":
            raise SystemExit(f"error: PySpark did not start\n{Path(said.name).read_text()[-3000:]}")

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.communicate("\n")

    def switch(self) -> dict[str, Any]:
        began = time.time()
        self._end()
        stopped = time.time()
        self._begin(NEW)
        return {
            "steps": [
                (round(stopped - began, 2), "stopped"),
                (round(time.time() - began, 2), "started"),
            ]
        }

    def visible(self) -> Iterator[str]:
        # What Spark's own readers go by: a file that the log does not name may be of a batch that
        # failed.
        return (
            name
            for name in _names(self._folder / "out" / "_spark_metadata")
            if not name.startswith(".")
        )

    def rows(self, name: str) -> list[Row]:
        _, *entries = (self._folder / "out" / "_spark_metadata" / name).read_text().splitlines()
        files = [Path(json.loads(entry)["path"].removeprefix("file://")) for entry in entries]
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [(one["k"], one["start"], one["n"], one["total"]) for one in lines]

    def roots(self) -> list[int]:
        return [] if self._process is None else [self._process.pid]

    def close(self) -> None:
        self._end()


class Flink:
    """A job on a cluster of one JobManager and one TaskManager, which stay up."""

    def __init__(self, folder: Path, window_s: int, lateness_s: int) -> None:
        self._folder, self._numbers = folder, [str(window_s), str(lateness_s)]
        self._python = peers.flink()
        self._home = next(self._python.parents[1].glob("lib/python*/site-packages/pyflink"))
        self._port = free_port()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._clients: list[int] = []
        self._gate = Gate(folder / "made", folder / "in")
        self._job = ""

    def start(self) -> list[str]:
        for name in ("conf", "log", "made", "in", "out", "savepoints"):
            (self._folder / name).mkdir()
        self._configure()
        for script in ("jobmanager.sh", "taskmanager.sh"):
            with (self._folder / f"{script}.said").open("w") as said:
                command = [str(self._home / "bin" / script), "start-foreground"]
                self._daemons.append(
                    subprocess.Popen(
                        command,
                        stdout=said,
                        stderr=said,
                        env=self._environment,
                        start_new_session=True,
                    )
                )
        wait_for(lambda: self._ask("overview").get("slots-available", 0) > 0)
        self._begin(OLD)
        self._gate.start()
        return ["files", str(self._folder / "made")]

    @property
    def _environment(self) -> dict[str, str]:
        places = {
            "FLINK_HOME": self._home,
            "FLINK_CONF_DIR": self._folder / "conf",
            "FLINK_LOG_DIR": self._folder / "log",
        }
        return {**os.environ, **{name: str(place) for name, place in places.items()}}

    def _configure(self) -> None:
        given = yaml.safe_load((self._home / "conf" / "config.yaml").read_text())
        settings = {
            "env.java.opts.all": given["env"]["java"]["opts"]["all"],
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": free_port(),
            "jobmanager.memory.process.size": "1200m",
            "taskmanager.memory.process.size": "1728m",
            "taskmanager.numberOfTaskSlots": 1,
            "rest.address": "localhost",
            "rest.port": self._port,
            "execution.checkpointing.dir": f"file://{self._folder}/checkpoints",
        }
        lines = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
        (self._folder / "conf" / "config.yaml").write_text("\n".join(lines) + "\n")
        for file in (self._home / "conf").glob("log4j*.properties"):
            (self._folder / "conf" / file.name).write_bytes(file.read_bytes())

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            return dict(httpx.get(f"http://localhost:{self._port}/{path}").json())
        except (httpx.HTTPError, ValueError):
            return {}

    def _run(self, command: list[str]) -> str:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        self._clients = [process.pid]
        said, _ = process.communicate(timeout=120)
        self._clients = []
        if process.returncode:
            raise SystemExit(
                f"error: {' '.join(command[:3])} ... ended with {process.returncode}\n{said[-3000:]}"
            )
        return said

    def _begin(self, least: int, *savepoint: str) -> None:
        job = str(Path(__file__).with_name("switch_flink.py"))
        numbers = [str(least), *self._numbers, str(self._port)]
        said = self._run([str(self._python), job, str(self._folder), *numbers, *savepoint])
        self._job = re.findall(r"^job (\w+)$", said, flags=re.MULTILINE)[-1]
        wait_for(self._running)

    def _running(self) -> bool:
        vertices = self._ask(f"jobs/{self._job}").get("vertices", [])
        return bool(vertices) and all(one["status"] == "RUNNING" for one in vertices)

    def switch(self) -> dict[str, Any]:
        began = time.time()
        command = [
            str(self._home / "bin" / "flink"),
            "stop",
            "--savepointPath",
            str(self._folder / "savepoints"),
            self._job,
        ]
        threading.Thread(target=self._hold_when_stopped, daemon=True).start()
        said = self._run(command)
        stopped = time.time()
        savepoint = re.findall(r"Savepoint completed. Path: (\S+)", said)[-1]
        self._begin(NEW, savepoint)
        self._gate.release()
        return {
            "steps": [
                (round(stopped - began, 2), "stopped"),
                (round(time.time() - began, 2), "started"),
            ]
        }

    def _hold_when_stopped(self) -> None:
        while self._running():
            time.sleep(0.05)
        self._gate.hold()

    def visible(self) -> Iterator[str]:
        return (name for name in _names(self._folder / "out") if name.startswith("part-"))

    def rows(self, name: str) -> list[Row]:
        with (self._folder / "out" / name).open() as file:
            return [
                (one[0], seconds_of(f"{one[1]}+00:00"), int(one[2]), int(one[3]))
                for one in csv.reader(file)
            ]

    def roots(self) -> list[int]:
        return [*(one.pid for one in self._daemons), *self._clients]

    def close(self) -> None:
        self._gate.end()
        for process in self._daemons:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Gate(threading.Thread):
    """Gives a reader the files in the order in which they were made; those that have gathered as one file."""

    def __init__(self, made: Path, given: Path) -> None:
        super().__init__(daemon=True)
        self._made, self._given = made, given
        self._open, self._ended = threading.Event(), threading.Event()
        self._open.set()

    def run(self) -> None:
        while not self._ended.is_set():
            waiting = (
                sorted(name for name in _names(self._made) if name.endswith(".csv"))
                if self._open.is_set()
                else []
            )
            if waiting:
                self._give(waiting)
            # Time to read it, before there is more to choose from.
            self._ended.wait(0.02 if len(waiting) < 2 else len(waiting) * TICK_S / 10)

    def _give(self, names: list[str]) -> None:
        if len(names) > 1:
            whole = self._made / f".{names[0]}.part"
            whole.write_bytes(b"".join((self._made / name).read_bytes() for name in names))
            for name in names:
                (self._made / name).unlink()
            whole.rename(self._made / names[0])
        (self._made / names[0]).rename(self._given / names[0])

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


def _names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()] if folder.exists() else []


def seconds_of(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
