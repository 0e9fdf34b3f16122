"""The API of a real engine, as far as that goes without Spark."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millstream.engine.engine import Engine
from millstream.engine.http.server import Server, Serving
from millstream.engine.jobs.package import pack

MISTAKE = """
import millstream as ms

flow = ms.Flow("shop")
sales = flow.source("sales", ms.inbox("shop string, at timestamp"), time="at")
sales.window("hourly", every="1 hour", n="sum(amonut)").sink("hourly", ms.memory())
"""


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    engine = Engine(tmp_path / "engine")
    engine.start()
    try:
        server = Server(engine, tmp_path / "engine", Serving(port=0))
        server.start()
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(
            base_url=server.url, headers=headers, timeout=240, trust_env=False
        ) as client:
            yield client
        server.close()
    finally:
        engine.close()


def deploy(http: httpx.Client, package: bytes) -> httpx.Response:
    return http.post("/jobs", json={"package": base64.b64encode(package).decode()})


def test_an_engine_without_jobs_answers_all_questions(http: httpx.Client) -> None:
    assert http.get("/ready").json() == {"ready": True, "jobs": 0}
    assert http.get("/jobs").json() == []
    assert http.get("/engine").json()["inbox"]["ip"] == "127.0.0.1"
    assert 'millstream_jobs{state="running"} 0.0' in http.get("/metrics").text
    missing = http.get("/jobs/shop")
    assert (missing.status_code, missing.json()["error"]) == (404, "NoSuchJob")
    assert http.post("/stop").status_code == 202
    assert http.get("/ready").status_code == 503


def test_what_is_no_package_is_refused(http: httpx.Client) -> None:
    answer = deploy(http, b"nonsense")
    assert (answer.status_code, answer.json()["error"]) == (422, "BadPackage")
    assert http.get("/jobs").json() == []


def test_a_mistake_in_a_flow_is_told_and_nothing_is_left_of_it(
    http: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "shop_with_a_mistake.py").write_text(MISTAKE)
    answer = deploy(http, pack(tmp_path / "flow" / "shop_with_a_mistake.py"))
    assert (answer.status_code, answer.json()["error"]) == (422, "UnknownColumn")
    assert "amonut" in answer.json()["message"]
    assert http.get("/jobs").json() == []
    assert list((tmp_path / "engine" / "packages").glob("*")) == []


def test_events_for_a_job_that_is_not_there_are_refused(http: httpx.Client) -> None:
    answer = http.post(
        "/jobs/shop/sources/sales/events",
        content=b"{}",
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert (answer.status_code, answer.json()["error"]) == (404, "NoSuchJob")
