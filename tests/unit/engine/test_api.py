from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from millstream import errors
from millstream.engine.http.refusals import STATUS, status_of
from millstream.engine.jobs import lifecycle as life
from millstream.errors import InternalError, MillstreamError
from support.links import wait_for
from support.served import PACKAGE, Served


def told(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


def test_a_job_is_deployed_looked_at_drained_and_undeployed(served: Served) -> None:
    deployed = served.deploy()
    assert deployed.status_code == 201
    assert (deployed.json()["id"], deployed.json()["state"]) == ("f-1", "running")
    assert [job["name"] for job in served.http.get("/jobs").json()] == ["f"]
    assert served.http.get("/jobs/f-1").json() == served.http.get("/jobs/f").json()
    assert served.http.post("/jobs/f/drain").json()["state"] == "draining"
    served.engine.tell("f", life.Drained())
    assert served.http.post("/jobs/f/resume").json()["state"] == "starting"
    assert served.http.post("/jobs/f/drain?flush=true").json()["flush"] is True
    served.engine.tell("f", life.Finished())
    assert served.http.delete("/jobs/f").json()["state"] == "undeployed"
    assert served.http.get("/jobs").json() == []


def test_what_a_job_has_can_be_seen_from_all_sides(served: Served) -> None:
    served.deploy()
    assert served.http.get("/jobs/f/groups").json()[0]["lag_rows"] == 7
    (journal,) = served.http.get("/jobs/f/journals").json()
    assert (journal["name"], len(journal["partitions"]), journal["columns"]["n"]) == (
        "s",
        2,
        "int64",
    )
    log = served.http.get("/jobs/f/logs?lines=2").json()
    assert log["lines"] == ["f line 18", "f line 19"]
    assert served.http.get("/jobs/f/logs", params={"after": log["next"]}).json() == {
        **log,
        "lines": [],
    }
    assert served.http.get("/jobs/f/history").json()[0]["what"] == "deployed"
    assert served.http.get("/jobs/f/statistics").json() == {"late": 1}


def test_the_engine_says_who_it_is_and_that_it_is_there(served: Served) -> None:
    about = served.http.get("/engine").json()
    assert (about["node"], about["of"], about["url"]) == (0, 1, served.server.url)
    assert about["inbox"]["port"] == served.engine.address.port
    assert served.http.get("/health").json() == {"status": "up"}
    assert served.http.get("/ready").json() == {"ready": True, "jobs": 0}


def test_an_engine_that_stops_is_not_ready(served: Served) -> None:
    served.server.api.stopping = True
    ready = served.http.get("/ready")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)


def test_an_unknown_job_is_told_with_a_hint(served: Served) -> None:
    served.deploy(name="flights")
    answer = served.http.get("/jobs/flihgts")
    assert answer.status_code == 404
    expected = {
        "error": "NoSuchJob",
        "message": 'there is no job "flihgts" here',
        "hint": 'did you mean "flights"?',
    }
    assert answer.json() == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/x/groups"),
        ("GET", "/jobs/x/journals"),
        ("GET", "/jobs/x/statistics"),
        ("GET", "/jobs/x/logs"),
        ("GET", "/jobs/x/history"),
        ("POST", "/jobs/x/drain"),
        ("POST", "/jobs/x/resume"),
        ("POST", "/jobs/x/wait"),
        ("DELETE", "/jobs/x"),
    ],
)
def test_every_question_about_an_unknown_job_is_answered_alike(
    served: Served, method: str, path: str
) -> None:
    assert told(served.http.request(method, path)) == (404, "NoSuchJob")


def test_what_makes_no_sense_now_is_a_conflict(served: Served) -> None:
    served.deploy()
    assert told(served.deploy()) == (409, "JobExists")
    busy = served.http.delete("/jobs/f")
    assert told(busy) == (409, "JobBusy")
    assert busy.json()["message"] == 'job "f" is running; 7 events are not processed yet'
    assert busy.json()["hint"] == "millstream drain f && millstream undeploy f, or --force"
    assert told(served.http.post("/stop")) == (409, "JobsRunning")
    served.http.post("/jobs/f/drain")
    assert told(served.http.post("/jobs/f/resume")) == (409, "InvalidTransition")
    assert served.http.delete("/jobs/f?force=true").status_code == 200


def test_a_mistake_in_a_flow_is_told_as_it_is(served: Served) -> None:
    answer = served.http.post("/jobs", json={"package": "YmFk"})
    assert told(answer) == (422, "InvalidName")


def test_a_wait_ends_when_the_job_does(served: Served) -> None:
    served.deploy()
    threading.Timer(0.3, lambda: served.engine.tell("f", life.Finished())).start()
    began = time.monotonic()
    assert served.http.post("/jobs/f/wait?limit=60").json()["state"] == "finished"
    assert time.monotonic() - began < 50


def test_a_wait_ends_with_its_limit(served: Served) -> None:
    served.deploy()
    assert served.http.post("/jobs/f/wait?limit=0.1").json()["state"] == "running"


def test_those_who_wait_hold_up_nobody_else(served: Served) -> None:
    served.deploy()
    waiting = [
        threading.Thread(
            target=lambda: httpx.post(
                f"{served.server.url}/jobs/f/wait?limit=30",
                headers=dict(served.http.headers),
                timeout=60,
            )
        )
        for _ in range(40)
    ]
    for thread in waiting:
        thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    assert served.http.get("/jobs/f").status_code == 200
    assert time.monotonic() - began < 25
    served.engine.tell("f", life.Finished())
    for thread in waiting:
        thread.join(240)
    assert not any(thread.is_alive() for thread in waiting)


def test_stop_answers_and_then_tells_whoever_runs_the_engine(served: Served) -> None:
    assert served.http.post("/stop").json() == {"stopping": True}
    wait_for(served.server.stopped.is_set)


def test_an_engine_of_several_prepares_and_begins(served: Served) -> None:
    prepared = served.http.post("/prepare", json={"package": PACKAGE, "name": "two"}).json()
    assert sorted(prepared["addresses"]["s"]) == ["0", "1", "2", "3"]
    places = {"s": list(prepared["addresses"]["s"].values())}
    begun = served.http.post("/jobs/two/begin", json={"places": places, "driver": False})
    assert begun.json()["state"] == "running"
    assert served.engine.begun["two"][1] is False


# what is refused before anything is done


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/jobs/f/drain?flush=yes", '"flush" makes no sense'),
        ("/jobs/f/drain?flush=true&flush=false", '"flush" is given 2 times'),
        ("/jobs/f/drain?flsh=true", 'there is no parameter "flsh" here'),
        ("/jobs/f/wait?limit=-1", '"limit" makes no sense'),
        ("/jobs/f/wait?limit=nan", '"limit" makes no sense'),
        ("/jobs/f/wait?limit=61", '"limit" makes no sense'),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(served: Served, path: str, said: str) -> None:
    answer = served.http.post(path)
    assert answer.status_code == 400
    assert said in answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"package": 1}',
        b'{"package": "###"}',
        b'{"package": "", "nam": "x"}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_cannot_be_read_is_refused(served: Served, body: bytes) -> None:
    answer = served.http.post("/jobs", content=body, headers={"Content-Type": "application/json"})
    assert told(answer) == (400, "RequestRefused")
    assert served.http.get("/jobs").json() == []


def test_a_body_of_another_kind_is_refused(served: Served) -> None:
    answer = served.http.post("/jobs", content=b"<flow/>", headers={"Content-Type": "text/xml"})
    assert answer.status_code == 415
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert served.http.post("/jobs", content=b"x", headers=packed).status_code == 415


def test_a_path_that_is_not_there_and_a_method_that_is_not_for_it_are_told_apart(
    served: Served,
) -> None:
    assert told(served.http.get("/jbos")) == (404, "RequestRefused")
    assert served.http.get("/jobs/").status_code == 404
    wrong = served.http.request("PUT", "/jobs")
    assert wrong.status_code == 405
    assert {part.strip() for part in wrong.headers["Allow"].split(",")} == {"GET", "HEAD", "POST"}


def test_a_failure_of_ours_is_told_without_its_inside(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(served.engine, "jobs", fail)
    answer = served.http.get("/jobs")
    assert told(answer) == (500, "InternalError")
    assert "secret" not in answer.text


def test_every_error_of_engines_has_a_status_of_its_own() -> None:
    kinds = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.EngineError)
    ]
    assert kinds
    for kind in kinds:
        assert any(one in STATUS for one in kind.__mro__)
    assert status_of(InternalError("x")) == 500
    assert all(issubclass(kind, MillstreamError) for kind in STATUS)
