"""Jobs whose journals are in Kafka: deployed on an engine, refused on several, switched."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.errors import InvalidOption
from millstream.journal import journal_at, keep_journals
from millstream.journal.kinds.kafka import KafkaJournal
from support.engines import flow_file, rows, until, without_spark
from support.lives import Life, Switches, compare, outcome
from support.recording import Recording
from support.switched import Build, small, tiny
from support.undisturbed import small_results

pytestmark = pytest.mark.kafka


@pytest.fixture
def address(kafka: str) -> str:
    return f"kafka://{kafka}/site-{uuid.uuid4().hex[:8]}"


def test_an_engine_keeps_the_journals_of_a_job_in_kafka(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    root, folder = tmp_path / "flow", tmp_path / "data" / "jobs" / "counts" / "counts" / "journals"
    engine = Engine(tmp_path / "data")
    engine.start()
    try:
        flow = pack(flow_file(root, partitions=2))
        engine.deploy(flow, root=str(root), options={"journals": address})
        until(engine, "counts", JobState.RUNNING)
        assert engine.send("counts.events", rows(0, 20)) == 20
        journal = journal_at(folder / "events")
        assert isinstance(journal, KafkaJournal)
        assert journal.address == f"{address}.counts.events"
        assert journal.summary().rows == 20
    finally:
        engine.close()
    elsewhere = journal_at(f"{address}.counts.events")
    assert elsewhere.exists()
    assert elsewhere.verify().rows == 20


def test_a_source_in_kafka_is_refused_on_several_engines(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    file = flow_file(tmp_path / "flow", partitions=2)
    file.write_text(file.read_text().replace('time="at"', f'time="at", journal="{address}"'))
    engine = Engine(tmp_path / "data", of=2)
    engine.start()
    try:
        with pytest.raises(InvalidOption, match="on several engines keeps the journals"):
            engine.prepare(pack(file), root=str(file.parent))
        assert engine.jobs() == []
    finally:
        engine.close()


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("build", [tiny, small])
def test_a_switch_changes_no_result(
    spark: SparkSession, address: str, tmp_path: Path, build: Build
) -> None:
    keep_journals(tmp_path / "data" / "switched" / "journals", address, "switched")
    life = Life(tmp_path, build, Recording(5))
    run = life.lived(spark, Switches((1,)))
    assert run.version == "2"
    results = small_results(life.recording, life.turns)
    compare(run, outcome(tmp_path, ["rows"] if build is tiny else [*results]), results)
    assert isinstance(journal_at(run.journal("events")), KafkaJournal)
