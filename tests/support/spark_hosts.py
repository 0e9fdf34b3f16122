"""A Spark standalone cluster whose workers are hosts of their own: no disk of the driver's, no packages.

Each worker runs in a network namespace, and in a mount namespace in which the flow's folder, the
virtual environment and our sources are empty. What they have is Java, Spark and a bare Python.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

import millstream
from millstream.spark.session.session import class_archive, home
from support.namespaces import Host, Network, hosts, without

DEPLOY = "org.apache.spark.deploy"
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
#: What somebody may have installed for it.
INSTALLED = BARE.parents[1] / "lib" / BARE.name / "site-packages"
QUICK = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UseSerialGC"


@dataclass
class Cluster:
    """A master here, workers elsewhere; `hidden` folders are empty there, but for `shared` ones."""

    folder: Path
    network: Network
    hidden: Path
    shared: Sequence[Path] = ()
    url: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: More of the environment of drivers.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of drivers of this cluster."""
        near = {"SPARK_LOCAL_IP": self.network.near_ip, "PYSPARK_PYTHON": str(BARE)}
        return {**os.environ, **near, **_quickly(), **self.settings}

    def start_master(self) -> subprocess.Popen[bytes]:
        log = self.folder / "master.log"
        address = ("--host", self.network.near_ip, "--port", "0", "--webui-port", "0")
        command = [*_spark_class(), f"{DEPLOY}.master.Master", *address]
        master = _started(command, log, self._daemons() | _quickly())
        self.url = said(log, r"(spark://[\d.]+:\d+)")
        return master

    def start_worker(self, number: int) -> None:
        """Start a worker, also in place of one that was killed."""
        host = self.network.hosts[number]
        name = f"worker-{number}-{len(self.workers)}"
        spark, log = self.folder / f"{name}-spark", self.folder / f"{name}.log"
        spark.mkdir()
        command = [
            *(str(spark / "bin" / "spark-class"), f"{DEPLOY}.worker.Worker"),
            *("--cores", "1", "--memory", "1g", "--host", host.ip, "--webui-port", "0"),
            *("--work-dir", str(self.folder / name), self.url),
        ]
        real = Path(pyspark.__file__).resolve().parent
        hidden = (Path(sys.prefix), Path(millstream.__file__).parent, INSTALLED)
        folders = {self.hidden: self.shared, **dict.fromkeys(hidden, ())}
        spare = self.folder / f"{name}-kept"
        inside = [*host.prefix, *_bound(real, spark, without(folders, command, spare))]
        daemons = self._daemons() | {"SPARK_HOME": str(spark), "SPARK_LOCAL_IP": host.ip}
        self.workers.append(_started(inside, log, daemons))

    def await_workers(self) -> None:
        """Wait until all workers that were started are known to the master."""
        for log in self.folder.glob("worker-*.log"):
            said(log, r"(registered with master)")

    def kill_host(self, number: int) -> None:
        """Kill everything on a host at once, with kill -9."""
        host = self.network.hosts[number]
        for process in _on(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _daemons(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON")
        }
        return kept | {"SPARK_DAEMON_MEMORY": "256m", "JDK_JAVA_OPTIONS": QUICK}


@contextmanager
def cluster(folder: Path, hidden: Path, shared: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Run a cluster of two workers."""
    folder.mkdir()
    with hosts(2) as network:
        made = Cluster(folder, network, hidden, shared)
        master = made.start_master()
        try:
            for number in range(2):
                made.start_worker(number)
            made.await_workers()
            yield made
        finally:
            for driver in made.drivers:
                kill_all(driver)
            for number in range(2):
                made.kill_host(number)
            for process in (*made.workers, master):
                process.kill()
                process.wait()


def said(log: Path, pattern: str, limit_s: float = 120.0) -> str:
    """Wait until a log says something, and return it."""
    until = time.monotonic() + limit_s
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.1)
    return found[1]


def wait_until(condition: Callable[[], bool], limit_s: float = 240.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, with kill -9."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _quickly() -> dict[str, str]:
    """Return the environment in which Java starts quickly, where all that is kept for it is seen."""
    place, options = home.light(), QUICK
    if place is None:
        return {"JDK_JAVA_OPTIONS": options}
    if home.usable(archive := class_archive(place)):
        options += f" -XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    return {"JDK_JAVA_OPTIONS": options, "SPARK_HOME": str(place)}


def _spark_class() -> list[str]:
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]


def _bound(real: Path, place: Path, command: Sequence[str]) -> list[str]:
    """Return a command that finds Spark in a place of its own: its usual one will be empty."""
    script = f"mount --bind '{real}' '{place}' && exec \"$@\""
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *command]


def _started(
    command: Sequence[str], log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def _on(host: Host) -> list[psutil.Process]:
    found = subprocess.run(
        ["ip", "netns", "pids", host.prefix[-1]], capture_output=True, text=True, check=False
    )
    return [psutil.Process(int(pid)) for pid in found.stdout.split() if psutil.pid_exists(int(pid))]
