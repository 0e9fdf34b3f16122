"""A topic read by the engines of a cluster: each Kafka partition by one, whoever is killed, each record once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from millstream.cluster import Cluster
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.tokens import token_of
from millstream.errors import NotAllowed, SwitchImpossible
from millstream.journal import journal_at
from millstream.links.client import connect
from support.kafka import new_topic, produce
from support.kafka_source import event, until

pytestmark = [pytest.mark.kafka, pytest.mark.process]

FLOW = """
import millstream as ms

flow = ms.Flow("shop")
orders = flow.source(
    "orders", ms.kafka("{topic}", "n long, at timestamp", servers="{servers}"), time="at", lateness="1 day", {more}
)
orders.sink("rows", ms.jsonl("out"))
"""


class Node:
    """An engine in a process of its own, whose drivers run no Spark unless they shall."""

    def __init__(self, folder: Path, number: int, *, spark: bool = False) -> None:
        self.data = folder / f"engine{number}"
        program = ["-m", "millstream"]
        if not spark:
            program = [str(Path(__file__).parent.parent / "support" / "sparkless_engine.py")]
        self._command = [sys.executable, *program, "engine", "--node", str(number), "--of", "2"]
        self._command += ["--data", str(self.data), "--port", "0", "--json"]
        self._log = (folder / f"engine{number}.log").open("ab")
        self.process: subprocess.Popen[str] | None = None
        self.url = self.inbox = ""

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        with self.process.stdout as told:
            said = told.readline()
        assert said, Path(self._log.name).read_text()
        found = json.loads(said)
        self.url, self.inbox = found["url"], found["inbox"]

    def kill(self) -> None:
        """End it as a loss of power would."""
        if self.process is None:
            return
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        self.process = None
        psutil.wait_procs(children, timeout=60)

    def close(self) -> None:
        self.kill()
        self._log.close()

    @property
    def journal(self) -> Path:
        return self.data / "jobs" / "shop" / "shop" / "journals" / "orders"


@contextmanager
def engines(folder: Path, *, spark: bool = False) -> Iterator[tuple[Node, Node]]:
    nodes = Node(folder, 0, spark=spark), Node(folder, 1, spark=spark)
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.close()


def clustered(near: Node, far: Node) -> Cluster:
    return Cluster(
        [near.url, far.url], {near.url: token_of(near.data), far.url: token_of(far.data)}
    )


def numbers(path: Path, partition: int) -> list[int]:
    found = journal_at(path).reader().partition(partition)
    batches = [one.batch for one in found.read(found.begin, found.end, ["n"])]
    return [n for one in batches if one is not None for n in one["n"].to_pylist()]


def read(node: Node) -> list[int]:
    return [n for partition in (0, 1) for n in numbers(node.journal, partition)]


def senders(node: Node, partition: int) -> set[int]:
    """The Kafka partitions whose records are in a partition."""
    known = journal_at(node.journal).summary().partitions[partition].highest
    return {int(name.rpartition("/")[2]) for name in known if name.rpartition("/")[2].isdigit()}


class Producing(threading.Thread):
    """Puts records into four partitions of a topic until it is enough."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = servers, topic
        self._enough = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._enough.is_set():
            for number in range(4):
                some = range(self.count, self.count + 25)
                produce(self._servers, self._topic, [event(n) for n in some], partition=number)
                self.count += 25

    def finish(self) -> int:
        self._enough.set()
        self.join(60)
        return self.count


def flow_file(folder: Path, servers: str, topic: str, more: str = "partitions=2") -> Path:
    file = folder / "flow.py"
    file.write_text(FLOW.format(topic=topic, servers=servers, more=more))
    return file


@pytest.mark.parametrize(
    "more", ["partitions=2", pytest.param('partitions=2, key="n"', marks=pytest.mark.soak)]
)
def test_killed_engines_lose_and_repeat_nothing(kafka: str, tmp_path: Path, more: str) -> None:
    topic = new_topic(kafka, 4)
    producing = Producing(kafka, topic)
    producing.start()
    with engines(tmp_path) as (near, far):
        with closing(clustered(near, far)) as cluster:
            status = cluster.deploy(flow_file(tmp_path, kafka, topic, more))
            assert {one.source for one in cluster.status("shop").inboxes} == {"orders"}, status
            grows(near)
            far.kill()
            if "key" not in more:  # its partition of the journal is away, the other one is read
                grows(near, 0)
            far.start()
            grows(near)
            near.kill()
            if "key" not in more:
                grows(far, 1)
            near.start()
            grows(near)
        count = producing.finish()
        until(lambda: len(read(near)) >= count, "all records")
        assert sorted(read(near)) == list(range(count))
        assert numbers(far.journal, 0) == []
        if "key" not in more:
            assert (senders(near, 0), senders(near, 1)) == ({0, 2}, {1, 3})


def grows(node: Node, partition: int | None = None) -> None:
    """Wait until more rows have come, into every partition or into one."""
    watched = (0, 1) if partition is None else (partition,)

    def ends() -> list[int]:
        return [len(numbers(node.journal, one)) for one in watched]

    before = ends()
    until(lambda: all(a > b for a, b in zip(ends(), before, strict=True)), "more rows")


def test_a_job_whose_engines_read_is_drained_refused_and_switched(
    kafka: str, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 4)
    for number in range(4):
        records = [event(n) for n in range(number * 50, number * 50 + 50)]
        produce(kafka, topic, [*records, b"{"], partition=number)
    with engines(tmp_path) as (near, far), closing(clustered(near, far)) as cluster:
        file = flow_file(tmp_path, kafka, topic)
        cluster.deploy(file)
        until(lambda: sorted(read(near)) == list(range(200)), "all records")
        until(lambda: cluster.status("shop").sources["orders"].refused == 4, "the dead letters")
        with (
            connect(near.inbox, timeout=10) as client,
            pytest.raises(NotAllowed, match="takes no events from outside"),
        ):
            client.send("shop.orders", [{"n": 1, "at": None}])
        file.write_text(file.read_text().replace('lateness="1 day"', 'lateness="2 days"'))
        other = file.read_text().replace(f'"{topic}"', '"another"')
        with pytest.raises(SwitchImpossible, match="several engines read"):
            cluster.switch("shop", flow_file_of(tmp_path / "other", other))
        cluster.drain("shop")
        assert cluster.wait("shop", 60).state is JobState.DRAINED
        produce(kafka, topic, [event(n) for n in range(200, 230)], partition=1)
        cluster.resume("shop")
        until(lambda: sorted(read(near)) == list(range(230)), "what came meanwhile")
        cluster.drain("shop", flush=True)
        assert cluster.wait("shop", 60).state is JobState.FINISHED


def flow_file_of(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "flow.py").write_text(text)
    return folder / "flow.py"


@pytest.mark.soak
@pytest.mark.spark
def test_results_of_a_job_whose_engines_read_are_complete(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 4)
    producing = Producing(kafka, topic)
    producing.start()
    with engines(tmp_path, spark=True) as (near, far):
        with closing(clustered(near, far)) as cluster:
            cluster.deploy(flow_file(tmp_path, kafka, topic))
            grows(near)
            far.kill()
            grows(near, 0)
            far.start()
        with closing(clustered(near, far)) as cluster:
            count = producing.finish()
            until(lambda: len(read(near)) >= count, "all records")
            cluster.drain("shop", flush=True)
            assert cluster.wait("shop", 120).state is JobState.FINISHED
    lines = [
        line for file in tmp_path.glob("out/*.jsonl") for line in file.read_text().splitlines()
    ]
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(count))
