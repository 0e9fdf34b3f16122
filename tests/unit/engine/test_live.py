from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from millstream.engine.access.token_book import create
from millstream.engine.http import live
from millstream.engine.jobs import lifecycle as life
from support.served import Served, serving


def events(response: httpx.Response) -> Any:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_the_first_event_has_all_jobs_and_their_rates(served: Served) -> None:
    served.deploy()
    answer = httpx.get(f"{served.server.url}/live?once=true")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.headers["Cache-Control"] == "no-store"
    (beat,) = events(answer)
    assert beat["whole"] is True
    assert beat["engine"]["node"] == 0
    assert [one["job"]["name"] for one in beat["jobs"]] == ["f"]
    assert beat["jobs"][0]["rates"]["rows_in"] == 0.0


def test_later_events_have_what_has_changed(served: Served) -> None:
    served.deploy()
    served.deploy(name="other")
    with httpx.stream("GET", f"{served.server.url}/live", timeout=30) as answer:
        following = events(answer)
        assert {one["job"]["name"] for one in next(following)["jobs"]} == {"f", "other"}
        served.engine.tell("f", life.DrainAsked())
        beat = next(following)
        assert "whole" not in beat
        assert [(one["job"]["name"], one["job"]["state"]) for one in beat["jobs"]] == [
            ("f", "draining")
        ]
        served.engine.undeploy("other", force=True)
        assert next(following)["gone"] == ["other"]


def test_one_look_at_the_engine_serves_all_pages(served: Served) -> None:
    served.deploy()
    looks = []
    jobs = served.engine.jobs
    served.server.api.live._jobs = lambda: looks.append(time.monotonic()) or jobs()
    ready = threading.Barrier(21)

    def page() -> None:
        with httpx.stream("GET", f"{served.server.url}/live", timeout=30) as answer:
            following = events(answer)
            next(following)
            ready.wait()
            next(following)

    pages = [threading.Thread(target=page) for _ in range(20)]
    for one in pages:
        one.start()
    ready.wait()
    looks.clear()
    began = time.monotonic()
    served.engine.tell("f", life.DrainAsked())
    for one in pages:
        one.join()
    assert len(looks) <= 2 + (time.monotonic() - began)


def test_a_token_for_one_job_sees_that_one(served: Served) -> None:
    served.deploy()
    served.deploy(name="other")
    secret = create(served.data, "screen", ["look"], now=time.time(), job="other")
    headers = {"Authorization": f"Bearer {secret}"}
    (beat,) = events(httpx.get(f"{served.server.url}/live?once=true", headers=headers))
    assert [one["job"]["name"] for one in beat["jobs"]] == ["other"]
    assert list(httpx.get(f"{served.server.url}/lines", headers=headers).json()) == ["other"]


def test_a_stream_in_which_nothing_changes_says_that_it_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SILENCE_S", 0.1)
    with httpx.stream("GET", f"{served.server.url}/live", timeout=30) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert next(lines).startswith("data: ")
        assert next(lines) == ": still here"


def test_an_engine_that_stops_ends_its_streams(tmp_path: Any) -> None:
    with serving(tmp_path) as served:
        served.deploy()
        ended = threading.Event()

        def follow() -> None:
            with httpx.stream("GET", f"{served.server.url}/live", timeout=30) as answer:
                begun.set()
                for _ in answer.iter_lines():
                    pass
            ended.set()

        begun = threading.Event()
        threading.Thread(target=follow, daemon=True).start()
        assert begun.wait(10)
        began = time.monotonic()
    assert ended.wait(10)
    assert time.monotonic() - began < 4  # no page is waited for


def test_a_graph_and_the_last_hour_can_be_had_by_any_program(served: Served) -> None:
    served.deploy()
    graph = httpx.get(f"{served.server.url}/jobs/f/graph").json()
    assert [one["id"] for one in graph["nodes"]] == ["group all", "journal s", "sink all"]
    assert [(one["source"], one["target"]) for one in graph["arrows"]][:2] == [
        ("journal s", "group all"),
        ("group all", "sink all"),
    ]
    httpx.get(f"{served.server.url}/live?once=true")
    series = httpx.get(f"{served.server.url}/jobs/f/series").json()
    assert len(series["at"]) >= 1
    assert series["groups"]["all"]["lag_rows"][0] == 7
    lines = httpx.get(f"{served.server.url}/lines?points=1").json()
    assert lines["f"]["lag_rows"] == [7]
