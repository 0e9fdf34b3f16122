"""The page of a run without an engine: what it answers, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.engine.single_run import SingleRun, page_of
from millstream.spark.flow_run import FlowRun, Options
from support.engines import wait_until

pytestmark = pytest.mark.spark


def test_a_run_without_an_engine_answers_about_its_flow_and_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = ms.Flow("beats")
    ticks = flow.source("ticks", ms.rate(500), time="at")
    ticks.distinct("once", by="value", within="1 hour").sink("seen", ms.jsonl("seen"))
    pattern = ms.Pattern("pairs").begin("a", "value % 10 = 0").followed_by("b", "value % 10 = 5")
    pattern = pattern.followed_by("c", "value < 0").within("1 hour")
    ticks.match("pairs", pattern, by=[]).journal("found")
    running = FlowRun(spark, flow, Options(tmp_path / "data", tmp_path))
    running.start()
    shown = SingleRun(running, spark, tmp_path / "run.log")
    server = page_of(shown, 0)
    server.start()

    def committed() -> bool:
        running.poll()
        shown.update(running.statistics(), ended=False)
        groups = running.statistics().groups
        return all(one.batch >= 1 for one in groups)

    try:
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
            wait_until(committed, what="a batch of each group")
            assert http.get("/engine").json()["single"]
            (job,) = http.get("/jobs").json()
            assert (job["name"], job["state"]) == ("beats", "running")
            assert http.get("/jobs/beats/graph").json()["published"] == ["seen"]
            rows = http.get("/jobs/beats/journals/ticks/rows?limit=3").json()["rows"]
            assert [one["row"]["value"] for one in rows] == [0, 1, 2]
            stages = http.get("/jobs/beats/state").json()
            assert {one["stage"] for one in stages} == {"once", "pairs"}
            assert http.get("/jobs/beats/state/never/rows").status_code == 404
            (found,) = http.get("/jobs/beats/patterns").json()
            assert (found["pattern"], found["journal"], found["unknown"]) == (
                *("pairs", "found"),
                None,
            )
            boxes = {str(one["state"]) for one in found["sketch"]["boxes"]}
            assert found["runs"] > 0
            assert found["runs"] == sum(found["states"].values()) == found["oldest"][0]["runs"]
            assert found["states"].keys() <= boxes
            (oldest, *_) = found["oldest"]
            assert sum(oldest["waits_for"].values()) == oldest["runs"]
            assert oldest["waits_for"].keys() <= {"b", "c"}
            known = {one["group"]: one for one in http.get("/jobs/beats/checkpoints").json()}
            assert known["seen"]["inputs"]["ticks"][0] > 0
            assert any(one.startswith("batch: ") for one in known["seen"]["changes"])
            verified = http.post("/jobs/beats/checkpoints/seen/verify").json()
            assert (verified["faults"], verified["batches"] > 0) == ([], True)
            assert http.post("/jobs/beats/checkpoints/never/verify").status_code == 404
            assert http.get("/jobs/other").status_code == 404
            for path in ("/jobs/beats/drain", "/stop", "/tasks/drain"):
                answer = http.post(path)
                assert answer.status_code == 409, path
                assert "runs without an engine" in answer.json()["message"]
            shown.update(running.statistics(), ended=True)
            assert http.get("/jobs/beats").json()["state"] == "finished"
            assert [one["what"] for one in http.get("/jobs/beats/history").json()] == [
                *("running", "finished")
            ]
    finally:
        server.close()
        running.stop()
