"""A flow on a real Spark standalone cluster: a master and two workers on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from millstream.spark.session.session import class_archive, home

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

FLOW = """
import millstream as ms

def counted(state, row):
    return state + 1, {"k": row["k"], "at": row["at"], "n": state + 1}

flow = ms.Flow("spread")
events = flow.source("events", ms.files("events.jsonl", "k string, v long, at timestamp"), time="at", key="k")
hours = events.apply("odd", lambda df: df.where("v % 2 = 1")).window("hours", every="1 hour", n="count(*)", total="sum(v)")
hours.journal("hourly", key="k", partitions=2).sink("out", ms.jsonl("out"))
events.fold("counts", counted, initial=0, output="k string, at timestamp, n long").sink("counts", ms.parquet("counts"))
"""


def environment() -> dict[str, str]:
    """The environment of all that belongs to the cluster: six Javas, each of which is to start quickly."""
    place, quick = home.light(), "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"
    if place is not None and home.usable(archive := class_archive(place)):
        quick += f" -XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    return {
        **os.environ,
        "SPARK_HOME": str(place or Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": quick,
    }


@contextmanager
def daemon(folder: Path, *arguments: str) -> Iterator[Path]:
    """Run a daemon of Spark's; its log is the value."""
    log, cluster = (
        folder / f"{arguments[0].rsplit('.', 1)[-1]}-{time.monotonic_ns()}.log",
        environment(),
    )
    command = [f"{cluster['SPARK_HOME']}/bin/spark-class", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=cluster)
    try:
        yield log
    finally:
        process.kill()
        process.wait()


def said(log: Path, pattern: str) -> str:
    until = time.monotonic() + 400
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.1)
    return found[1]


@pytest.mark.soak
def test_a_flow_runs_on_a_standalone_cluster_of_two_workers(tmp_path: Path) -> None:
    rows = [
        {"k": f"k{i % 3}", "v": i, "at": f"2020-01-01T{i // 60:02}:{i % 60:02}:00Z"}
        for i in range(300)
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "flow.py").write_text(FLOW)
    deploy = "org.apache.spark.deploy"
    master_args = (
        f"{deploy}.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--webui-port",
        "0",
    )
    with daemon(tmp_path, *master_args) as log:
        url = said(log, r"(spark://127\.0\.0\.1:\d+)")
        worker = (
            f"{deploy}.worker.Worker",
            "--cores",
            "1",
            "--memory",
            "1g",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
        )
        with (
            daemon(tmp_path, *worker, "--work-dir", str(tmp_path / "one"), url) as one,
            daemon(tmp_path, *worker, "--work-dir", str(tmp_path / "two"), url) as two,
        ):
            said(one, r"(registered with master)")
            said(two, r"(registered with master)")
            command = [
                sys.executable,
                "-m",
                "millstream",
                "run",
                "flow.py",
                "--until-end",
                "--master",
                url,
            ]
            done = subprocess.run(
                command,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                env=environment(),
            )
            assert done.returncode == 0, done.stdout + done.stderr + log.read_text()[-2000:]
            both = [list((tmp_path / name).glob("app-*/*")) for name in ("one", "two")]
            assert all(both), "each worker ran an executor"
    lines = [
        json.loads(line)
        for path in (tmp_path / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sum(line["n"] for line in lines) == 150
    assert sum(line["total"] for line in lines) == sum(range(1, 300, 2))
