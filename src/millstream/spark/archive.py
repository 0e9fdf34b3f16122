"""Make Java's archive of the classes that Spark loads, once per machine, Spark and Java.

    python -m millstream.spark.archive            if there is none yet
    python -m millstream.spark.archive --again    in any case

Loading some 15,000 classes from 280 files is most of what a start of Spark
does. Java can keep them in one file, ready to be mapped, as they were at the
end of a run (`-XX:ArchiveClassesAtExit`): here, of a small flow with the usual
stages. A start then takes about half of its time. Without the archive, or with
one that does not fit, everything works as well, only slower.
"""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

import millstream as ms
from millstream.errors import MillstreamError
from millstream.flow.flow import Flow
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session import home
from millstream.spark.session.session import class_archive, session

#: How long the flow and the writing of the archive may take on a slow machine.
PATIENCE_S: Final = 600.0


def main() -> None:
    """Make the archive; what goes wrong is said and changes nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m millstream.spark.archive", description="Make starts of Spark quick."
    )
    parser.add_argument("--again", action="store_true", help="also if there is an archive")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(arguments.train)
        return
    try:
        said = make(again=arguments.again)
    except (MillstreamError, OSError, subprocess.TimeoutExpired) as error:
        said = f"no class archive was made, Spark will start more slowly: {error}"
    if said:
        print(said)  # noqa: T201 (a command)


def make(*, again: bool = False) -> str | None:
    """Make the archive if it is missing; return what there is to say about it."""
    place = home.light()
    if place is None:
        return "no class archive: Spark is not the one of the package pyspark, or the cache cannot be written"
    path = class_archive(place)
    with _alone(path):
        if home.usable(path) and not again:
            return None
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".spark-", dir=path.parent) as folder:
            fresh = Path(folder) / "classes.jsa"
            tail = _trained(fresh)
            if not fresh.exists():
                return f"no class archive was made, Spark will start more slowly: {tail}"
            home.seal(fresh, path)
    return (
        f"class archive made in {time.monotonic() - began:.0f} s ({path.stat().st_size >> 20} MB)"
    )


def _trained(fresh: Path) -> str:
    """Let a process of its own run the flow and write the archive; return the last that it said."""
    command = [sys.executable, "-m", "millstream.spark.archive", "--train", str(fresh)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return next(
        (line for line in reversed(done.stdout.splitlines()) if line.strip()), "it said nothing"
    )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process makes an archive."""
    with (path.parent / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# In the process that is archived


def train(fresh: Path) -> None:
    """Run a flow and leave the classes that it took in `fresh`."""
    options = f"-XX:+UseParallelGC -XX:ArchiveClassesAtExit={fresh} -Xlog:cds*=off"
    spark = session("archive", conf={"spark.driver.extraJavaOptions": options})
    with tempfile.TemporaryDirectory() as folder:
        run = FlowRun(spark, example(), Options(Path(folder), Path(folder)))
        run.start()
        run.wait(timeout=PATIENCE_S / 2)
        run.stop()
    # Java writes the archive when it ends, which it does when nobody holds its standard input.
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=PATIENCE_S / 2)


def example() -> Flow:
    """Return a flow with the stages and sinks that most flows have."""
    flow = Flow("archive")
    ticks = flow.source("ticks", ms.rate(5_000, rows=5_000), time="at")
    named = ticks.sql("named", "SELECT cast(value % 10 AS string) AS name, value, at FROM ticks")
    named.window("counted", every="1 second", by="name", rows="count(*)", mean="avg(value)").sink(
        "counted", ms.parquet("counted")
    )
    output = "name string, rows long, at timestamp"
    named.fold("running", running, by="name", initial=0, output=output).sink(
        "running", ms.jsonl("running")
    )
    return flow


def running(count: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Count the rows of a name."""
    return count + 1, {"name": row["name"], "rows": count + 1, "at": row["at"]}


if __name__ == "__main__":
    main()
