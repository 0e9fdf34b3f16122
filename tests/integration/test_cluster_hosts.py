"""Flows on a Spark cluster whose hosts share no disk, and have neither Millstream nor its packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples.flights import check, prepare

from millstream.testing.kafka import broker
from support.s3 import s3_server, s3a_jars
from support.spark_hosts import BARE, Cluster, cluster, kill_all, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DAYS = 14


#: Packages that executors do not need for a flow without state, patterns and Kafka.
UNNEEDED = ("numba", "sqlglot", "pandas", "confluent-kafka", "fastavro", "obstore")


def packed(file: Path, *without: str) -> Path:
    """Pack what executors need, and return the file."""
    less = [word for name in without for word in ("--without", name)]
    subprocess.run([sys.executable, "-m", "millstream", "pack", str(file), *less], check=True)
    bare = subprocess.run([BARE, "-c", "import millstream"], capture_output=True, check=False)
    assert bare.returncode, "executors could import Millstream without the archive"
    return file


def started(made: Cluster, folder: Path, packages: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "millstream", "run", "flow.py", "--until-end"),
        *("--master", made.url, "--executor-python", str(packages), *more),
    ]
    with (folder.parent / "run.out").open("ab") as output:
        driver = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=output,
            env=made.environment,
            start_new_session=True,
        )
    made.drivers.append(driver)
    return driver


def ended(process: subprocess.Popen[bytes], folder: Path, limit_s: float = 400.0) -> None:
    """Wait for a run, which must end well."""
    status = process.wait(limit_s)
    log = next(iter(folder.glob(".millstream/*/run.log")), None)
    told = (folder.parent / "run.out").read_text()[-3000:]
    assert status == 0, told + ("" if log is None else log.read_text()[-6000:])


PROGRAM = """\
#!/usr/bin/env python3
import json
import millstream_action as action

while (payload := action.read_message()) is not None:
    action.write_message(json.dumps({"again": json.loads(payload)["name"]}).encode())
"""


@pytest.mark.long
def test_a_flow_without_state_needs_no_shared_folder_at_all(tmp_path: Path) -> None:
    packages = packed(tmp_path / "packages.tar.gz", *UNNEEDED)
    folder = tmp_path / "flow"
    folder.mkdir()
    rows = [
        {"k": f"k{i % 3}", "v": i, "at": f"2020-01-01T{i // 60:02}:{i % 60:02}:00Z"}
        for i in range(300)
    ]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "names.csv").write_text("k,name\n" + "".join(f"k{i},name {i}\n" for i in range(3)))
    (folder / "again").write_text(PROGRAM)
    (folder / "again").chmod(0o755)
    shutil.copy(ROOT / "sdk/python/millstream_action.py", folder)
    (folder / "beside.py").write_text("def odd(df):\n    return df.where('v % 2 = 1')\n")
    (folder / "flow.py").write_text(
        """
import beside
import millstream as ms

flow = ms.Flow("spread")
origin = ms.files("events.jsonl", "k string, v long, at timestamp")
events = flow.source("events", origin, time="at", key="k", partitions=2)
odd = events.apply("odd", beside.odd).join("named", ms.table("names.csv"), on="k")
files = ["millstream_action.py"]
named = odd.action("again", ["./again"], input="name", output="again string", files=files)
named.journal("odds", key="k", partitions=2).sink("out", ms.jsonl("out"))
named.sink("tables", ms.parquet("tables"))
"""
    )
    with cluster(tmp_path / "cluster", folder) as made:
        ended(started(made, folder, packages), folder)
        asked = [list(made.folder.glob(f"worker-{number}-*/app-*/*")) for number in range(2)]
        assert all(asked), "each worker ran an executor"
    lines = [
        json.loads(line)
        for file in (folder / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(line["v"] for line in lines) == list(range(1, 300, 2))
    assert {line["name"] for line in lines} == {"name 0", "name 1", "name 2"}
    assert all(line["again"] == line["name"] for line in lines)


@pytest.mark.soak
@pytest.mark.kafka
def test_a_broker_that_is_killed_takes_nothing_from_a_flow_whose_journals_it_keeps(
    tmp_path: Path,
) -> None:
    count, packages = 10_000, packed(tmp_path / "packages.tar.gz", *UNNEEDED)
    folder = tmp_path / "flow"
    folder.mkdir()
    rows = ({"k": f"k{i % 3}", "v": i} for i in range(count))
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "flow.py").write_text(
        """
import millstream as ms

flow = ms.Flow("kept")
events = flow.source("events", ms.files("events.jsonl", "k string, v long"), key="k", partitions=2)
odd = events.sql("odd", "SELECT * FROM events WHERE v % 2 = 1")
odd.journal("odds", key="k", partitions=2).sink("out", ms.jsonl("out"))
"""
    )

    def lines() -> list[str]:
        return [
            line for file in folder.glob("out/*.jsonl") for line in file.read_text().splitlines()
        ]

    with broker(tmp_path / "kafka") as kafka, cluster(tmp_path / "cluster", folder) as made:
        in_kafka = ("--journals", f"kafka://{kafka.servers}", "--rows-per-batch", "500")
        run = started(made, folder, packages, *in_kafka)
        for _ in range(2):
            before = len(lines())
            wait_until(lambda: run.poll() is not None or len(lines()) > before)  # noqa: B023
            assert run.poll() is None, "the flow had ended before the broker was killed"
            kafka.kill()
            kafka.start()
        ended(run, folder)
    assert sorted(json.loads(line)["v"] for line in lines()) == list(range(1, count, 2))


@contextmanager
def checkpoints(kind: str, made: Cluster, folder: Path) -> Iterator[tuple[str, ...]]:
    """Keep checkpoints where all hosts reach them; return the options of drivers for that."""
    if kind == "mounted":
        yield ()
        return
    jars = s3a_jars(folder / "jars")
    with s3_server(folder / "s3", made.network.near_ip) as server:
        made.settings |= {**server.environment, "MILLSTREAM_S3_JARS": str(jars)}
        yield ("--storage", server.new_address())


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["mounted", "s3"])
def test_every_flight_is_counted_once_although_a_worker_and_the_driver_are_killed(
    kind: str, tmp_path: Path
) -> None:
    packages = packed(tmp_path / "packages.tar.gz")
    # This flow has state: its checkpoints alone are where all hosts see them.
    flow = tmp_path / "flow" / "examples" / "flights" / "flow.py"
    _copied(tmp_path / "flow")
    prepare.prepare(flow.parent / "data", DAYS)
    groups = flow.parent / ".millstream" / "flights" / "groups"
    groups.mkdir(parents=True)
    totals = flow.parent / "out" / "totals"

    def published() -> int:
        return len(list(totals.glob("*.parquet")))

    seen = [groups] if kind == "mounted" else []
    with (
        cluster(tmp_path / "cluster", tmp_path / "flow", seen) as made,
        checkpoints(kind, made, tmp_path) as storage,
    ):
        run = started(made, flow.parent, packages, "--rows-per-batch", "1500", *storage)
        wait_until(lambda: run.poll() is not None or published() >= 1)
        made.kill_host(0)
        before = published()
        wait_until(lambda: run.poll() is not None or published() >= before + 2)
        assert run.poll() is None, "the flow had ended before it was killed"
        kill_all(run)
        made.start_worker(0)
        made.await_workers()
        ended(started(made, flow.parent, packages, *storage), flow.parent)
    journals = flow.parent / ".millstream" / "flights" / "journals"
    wanted, found = check.expected(DAYS), check.found(flow, journals)
    promises = check.checks(wanted, found, check.dead(journals))
    assert [one for one in promises if not one.ok] == []


def _copied(root: Path, names: Sequence[str] = ("flow.py", "airline")) -> None:
    for name in (
        *(f"examples/flights/{one}" for one in names),
        "sdk/python/millstream_action.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
