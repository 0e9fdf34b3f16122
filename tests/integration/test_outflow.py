"""A group's results get into the inboxes of another flow, each once, whoever is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

import millstream as ms
from millstream.connectors.outbox.target import InboxTarget, routed
from millstream.errors import LinkClosed, SchemaConflict
from millstream.journal.kinds.files.layout import staged_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.links.host import Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.listener import Security
from millstream.spark.io.targets import Epoch, SinkContext
from support.frozen import killed_at
from support.links import NOON, TARGET, declare, entries, hosted, journal, letters, stored

pytestmark = pytest.mark.spark


def epoch(batch: int) -> Epoch:
    return Epoch("a", "out", "c1", batch, None)


def frame(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Rows whose times fall, in several tasks."""
    rows = [(f"k{n % 7}", n, NOON + timedelta(seconds=1000 - n)) for n in range(begin, end)]
    return spark.createDataFrame(rows, "origin string, n long, at timestamp").repartition(3)


def target(folder: Path, where: str | Path, **options: Any) -> InboxTarget:
    context = SinkContext("a", "out", folder, folder / "groups" / "out")
    made = InboxTarget(ms.outbox(where, TARGET, **options), context)
    made.recover()
    return made


def staged(data: Path) -> list[Path]:
    folder = staged_folder(journal(data))
    return list(folder.iterdir()) if folder.exists() else []


def numbers(data: Path) -> list[int]:
    return sorted(n for part in stored(data) for n in part)


def test_an_epoch_is_in_all_partitions_once_and_in_the_order_of_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    declare(tmp_path, partitions=3)
    with closing(hosted(tmp_path)) as host, closing(target(tmp_path, str(host.address))) as out:
        assert out.write(frame(spark, 0, 90), epoch(0)) == 90
        assert out.write(frame(spark, 0, 90), epoch(0)) == 0
        assert staged(tmp_path) == [], "a repeated epoch stages nothing"
        assert out.write(frame(spark, 0, 0), epoch(1)) == 0
        assert out.write(frame(spark, 90, 100), epoch(2)) == 10
    assert numbers(tmp_path) == list(range(100))
    found = stored(tmp_path)
    assert all(found), "every partition has rows"
    assert all(
        part
        == sorted((n for n in part if n < 90), reverse=True)
        + sorted((n for n in part if n >= 90), reverse=True)
        for part in found
    )
    assert all(sender == "a/out/c1/out" for _, _, sender in entries(tmp_path))
    reader = Reader(journal(tmp_path))
    first = [next(reader.partition(number).entries(0, 1)) for number in range(3)]
    assert all(entry.max_lag is None or entry.max_lag <= 0 for entry in first)


def test_rows_that_the_source_does_not_take_are_its_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    declare(tmp_path, partitions=2)
    rows = [
        ("k1", 1, NOON),
        (None, 2, NOON),
        ("k2", 3, None),
        ("k3", 4, NOON + timedelta(days=9000)),
    ]
    bad = spark.createDataFrame(rows, "origin string, n int, at timestamp")
    with closing(
        target(tmp_path, tmp_path)
    ) as out:  # nobody hosts it: this process does, for as long as it takes
        assert out.write(bad, epoch(0)) == 1
        with closing(hosted(tmp_path)):
            assert numbers(tmp_path) == [1]
        with pytest.raises(SchemaConflict, match='"more"'):
            out.write(bad.selectExpr("*", "1 AS more"), epoch(1))
        with pytest.raises(SchemaConflict, match='no column "at"'):
            out.write(bad.drop("at"), epoch(1))
    assert sorted(reason.split(" is ")[0] for _, reason in letters(tmp_path)) == [
        'key "origin"',
        'time "at"',
        'time "at"',
    ]


def test_what_was_decided_is_published_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, partitions=2)
    first = hosted(tmp_path)
    out = target(tmp_path, str(first.address))

    def away(point: str) -> None:
        if point == "decided":
            first.close()
            threading.Thread(target=out.interrupt).start()

    monkeypatch.setattr("millstream.connectors.outbox.target.passing", away)
    with pytest.raises(LinkClosed):
        out.write(frame(spark, 0, 20), epoch(0))
    out.close()
    assert numbers(tmp_path) == []
    again = hosted(tmp_path, Listening(port=first.address.port))
    with closing(again), closing(target(tmp_path, str(again.address))) as next_run:
        assert numbers(tmp_path) == list(range(20))
        assert next_run.write(frame(spark, 50, 60), epoch(0)) == 0, "what was decided stands"
    assert numbers(tmp_path) == list(range(20))


@pytest.mark.parametrize("point", ["before", "staging", "staged", "decided"])
def test_a_host_that_is_away_for_a_while_stops_nothing_for_good(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    declare(tmp_path, partitions=2)
    hosts = [hosted(tmp_path)]
    port = hosts[0].address.port

    def come_back() -> None:
        time.sleep(1.5)
        hosts.append(hosted(tmp_path, Listening(port=port)))

    back = threading.Thread(target=come_back)

    def away(passed: str) -> None:
        if passed == point:
            hosts[0].close()
            back.start()

    def gone(*found: Any) -> DataFrame:
        if not back.ident:
            away("staging")
        return routed(*found)

    monkeypatch.setattr("millstream.connectors.outbox.target.passing", away)
    monkeypatch.setattr("millstream.connectors.outbox.target.routed", gone)
    monkeypatch.setattr("millstream.connectors.outbox.target.TASK_S", 0.5)
    with closing(target(tmp_path, str(hosts[0].address))) as out:
        away("before")
        assert out.write(frame(spark, 0, 20), epoch(0)) == 20
    back.join()
    hosts[1].close()
    assert numbers(tmp_path) == list(range(20))
    assert staged(tmp_path) == []


def test_keys_let_a_group_in_and_keep_others_out(spark: SparkSession, tmp_path: Path) -> None:
    declare(tmp_path, producers=["flights"])
    ours, theirs, nobody = (
        new_keys(tmp_path / name, name) for name in ("flights", "alarms", "nobody")
    )
    security = Security.read(read_key(theirs.secret), tmp_path / "flights")
    with closing(hosted(tmp_path, Listening(security=security))) as host:
        with closing(
            target(tmp_path, str(host.address), key=ours.secret, server=theirs.public)
        ) as out:
            assert out.write(frame(spark, 0, 9), epoch(0)) == 9
        stranger = target(
            tmp_path / "other", str(host.address), key=nobody.secret, server=theirs.public
        )
        # The driver is in the host's own process here and needs no key: it is the tasks that are
        # turned away.
        with closing(stranger), pytest.raises(PythonException, match="NotAllowed"):
            stranger.write(frame(spark, 9, 18), epoch(0))
    assert numbers(tmp_path) == list(range(9))


def test_a_source_ends_when_the_results_do(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    with closing(hosted(tmp_path)) as host:
        for _ in range(2):
            with closing(target(tmp_path, str(host.address), end=True)) as out:
                out.end("a/out/c1/end", 0)
        with closing(target(tmp_path, str(host.address))) as other:
            other.end("b/out/c1/end", 0)
    reader = Reader(journal(tmp_path))
    for number in range(2):
        part = reader.partition(number)
        assert part.state_at(part.end).ended
        assert len(list(part.entries(0, part.end))) == 1


# kill -9

HERE = Path(__file__).parent
START = datetime(2020, 1, 1, tzinfo=UTC)
RESULTS = "k string, window_start timestamp, window_end timestamp, window_time timestamp, n long"
FLOW = """
import millstream as ms

flow = ms.Flow("a")
rows = flow.source("rows", ms.files("rows.jsonl", "k string, at timestamp"), time="at", key="k", partitions=2)
minutes = rows.window("minutes", every="10 minutes", by="k", n="count(*)")
minutes.sink("out", ms.outbox("ADDRESS", "f.s", end=True))
"""


class Hosting(threading.Thread):
    """The other side: a process that is killed every now and then, and is back a moment later."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._enough = threading.Event()
        self.kills = 0
        self.address = self._begin(0)

    def _begin(self, port: int) -> str:
        command = [sys.executable, str(HERE / "outflow_host.py"), str(self._folder), str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self) -> None:
        # Ever more seldom: on a slow machine, too, an epoch gets through at last.
        while not self._enough.wait(min(0.7 * 1.3**self.kills, 20.0)):
            self._end()
            self.kills += 1
            time.sleep(0.3)
            assert self._begin(int(self.address.rpartition(":")[2])) == self.address

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> None:
        self._enough.set()
        self.join()
        self._end()


@pytest.mark.long
def test_kills_of_both_sides_leave_every_result_there_once(tmp_path: Path) -> None:
    rows = [(f"k{n % 7}", START + timedelta(seconds=9 * n)) for n in range(2_400)]
    flow = tmp_path / "flow"
    flow.mkdir()
    (flow / "rows.jsonl").write_text(
        "".join(f'{{"k": "{k}", "at": "{at.isoformat()}"}}\n' for k, at in rows)
    )
    other = tmp_path / "other"
    declare(other, RESULTS, partitions=3, key="k", time="window_time")
    hosting = Hosting(other / "f")
    (flow / "flow.py").write_text(FLOW.replace("ADDRESS", hosting.address))
    hosting.start()
    try:
        points = [("staged", 2), ("decided", 1), ("published", 2)]
        killed_at(flow, points, rows=400)
    finally:
        hosting.stop()
    assert hosting.kills > 3
    expected = Counter((k, at.replace(minute=at.minute // 10 * 10, second=0)) for k, at in rows)
    reader = Reader(journal(other))
    found = []
    for number in range(3):
        part = reader.partition(number)
        assert part.state_at(part.end).ended
        entries = list(part.entries(0, part.end))
        assert len(entries) > 2
        assert all(entry.max_lag is None or entry.max_lag <= 0 for entry in entries), (
            "no result is late"
        )
        found += [
            row
            for one in part.read(0, part.end)
            if one.batch is not None
            for row in one.batch.to_pylist()
        ]
    assert sorted((row["k"], row["window_start"], row["n"]) for row in found) == sorted(
        (*key, n) for key, n in expected.items()
    )
