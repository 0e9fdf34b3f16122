"""The systems as processes that stay up and answer one query after the other, with what each took."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from benchmarks import peers
from benchmarks.common import cpu_seconds
from benchmarks.nexmark import flink_sql, queries
from benchmarks.nexmark.generator import Config

from millstream.testing.jars import jars

ROOT: Final = Path(__file__).parents[2]
PARQUET: Final = "org.apache.flink:flink-sql-parquet:2.3.0"
#: What is measured, by name: the title in tables.
SYSTEMS: Final = {
    "millstream": "Millstream",
    "files": "Millstream, from files",
    "pyspark": "PySpark by hand",
    "flink": "Flink SQL",
}


@dataclass(frozen=True, slots=True)
class Events:
    """Events in all forms that systems read."""

    place: Path
    count: int
    config: Config
    rows_per_batch: int

    @property
    def side_input(self) -> Path:
        return self.place / "side_input.csv"

    @property
    def files(self) -> Path:
        return self.place / "files"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query took, without the start of its process: memory is that of the whole process."""

    seconds: float
    cpu_seconds: float
    peak_mb: int


class Failed(Exception):
    """A query that a system did not take."""


class Worker:
    """A system that is up."""

    def __init__(self, system: str, place: Path) -> None:
        """Start it, and wait until it takes queries."""
        self.system = system
        self._place = place
        place.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        self._began = began
        with (place / "said").open("wb") as said:
            self._process = subprocess.Popen(
                _command(system, place),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=ROOT,
            )
        self._answer()
        self.start_s = time.perf_counter() - began

    def run(self, query: str, events: Events, out: Path, *, kept: bool = False) -> Cost:
        """Run a query over events; its results are in `out/out`, if they are `kept` or files.

        Raises:
            Failed: The query did.
        """
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        assert self._process.stdin is not None
        whole = psutil.Process(self._process.pid)
        before = cpu_seconds(whole)
        with _Peak(whole) as peak:
            self._process.stdin.write(json.dumps(self._ask(query, events, out, kept)) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
            used = cpu_seconds(whole) - before
        if "error" in answer:
            raise Failed(answer["error"][:2000])
        (out / "progress.json").write_text(json.dumps(answer.get("progress", [])))
        return Cost(round(answer["seconds"], 3), round(used, 2), peak.bytes >> 20)

    def stop(self) -> float:
        """End it, and return the seconds that it lived."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        return time.perf_counter() - self._began

    def _ask(self, query: str, events: Events, out: Path, kept: bool) -> dict[str, Any]:
        if self.system == "flink":
            lateness = int(queries.LATENESS.split()[0])
            lanes, table = events.place / "lanes", events.place / "side_input_bare.csv"
            tables = flink_sql.tables(str(lanes), str(table), lateness)
            return {"statements": [*tables, flink_sql.job(query, str(out / "out"), kept=kept)]}
        read = "journal" if self.system == "millstream" else "files"
        return {
            "query": query,
            "config": asdict(events.config),
            read: str(events.place / read),
            "side_input": str(events.side_input),
            "place": str(out),
            "rows_per_batch": events.rows_per_batch,
        }

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                return dict(json.loads(line[1:]))
        tail = (self._place / "said").read_text(errors="replace")[-3000:]
        raise SystemExit(f"error: {self.system} ended with {self._process.wait()}\n{tail}")


def _command(system: str, place: Path) -> list[str]:
    if system == "flink":
        job = Path(__file__).with_name("flink_job.py")
        return [str(peers.flink()), str(job), str(_flink_jars(place / "lib"))]
    kind = "pyspark" if system == "pyspark" else "millstream"
    log = str(place / "spark.log")
    return [sys.executable, "-m", "benchmarks.nexmark.spark_job", kind, log]


def _flink_jars(folder: Path) -> Path:
    """Return a folder with Flink's Parquet, and with Hadoop, which it needs and PySpark has."""
    folder.mkdir(exist_ok=True)
    parquet = jars(f"flink-parquet-{PARQUET.rpartition(':')[2]}", [PARQUET], alone=True)
    hadoop = Path(pyspark.__file__).parent / "jars"
    for path in [*parquet.glob("*.jar"), *hadoop.glob("hadoop-client-*.jar")]:
        (folder / path.name).symlink_to(path)
    return folder


class _Peak:
    """The most memory that processes had at once while this was open; what they share is counted once."""

    def __init__(self, whole: psutil.Process) -> None:
        self.bytes = 0
        self._whole = whole
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            total = 0
            for process in [self._whole, *self._whole.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_full_info().pss
            self.bytes = max(self.bytes, total)
            if self._ended.wait(0.5):
                return
