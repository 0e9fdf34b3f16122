from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from millstream import __version__
from millstream.engine.http.metrics import Metrics
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.status import GroupStatus
from support.engine import PeerEngine
from support.served import EVENTS, Served

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
NAME = re.compile(r"\b(?:millstream|process)_[a-z_]+\b")


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def names(served: Served) -> set[str]:
    return {name for name, _ in samples(served.http.get("/metrics").text)}


def test_the_numbers_of_jobs_groups_sources_and_inboxes_are_told(served: Served) -> None:
    served.deploy()
    body = b'{"origin": "a", "n": 1, "at": "2026-01-01"}\n'
    served.http.post(EVENTS, content=body, headers={"Content-Type": "application/x-ndjson"})
    found = samples(served.http.get("/metrics").text)
    assert found["millstream_engine", (("node", "0"), ("of", "1"), ("version", __version__))] == 1
    assert found["millstream_jobs", (("state", "running"),)] == 1
    assert found["millstream_jobs", (("state", "failed"),)] == 0
    assert found["millstream_job_state", (("job", "f"), ("state", "running"))] == 1
    assert found["millstream_job_unprocessed_rows", (("job", "f"),)] == 7
    assert found["millstream_job_dead_letters_total", (("job", "f"),)] == 2
    assert found["millstream_job_dead_letters_waiting", (("job", "f"),)] == 3
    group = (("group", "all"), ("job", "f"))
    assert found["millstream_group_rows_in_total", group] == 120
    assert found["millstream_group_lag_seconds", group] == 0.25
    assert found["millstream_group_watermark_timestamp_seconds", group] == 1_767_268_800
    inboxes = [
        found["millstream_inbox_rows_total", (("job", "f"), ("partition", n), ("source", "s"))]
        for n in "01"
    ]
    assert sum(inboxes) == 1
    copy = (("job", "f"), ("partition", "9"), ("source", "s"))
    assert found["millstream_copy_behind_bytes", copy] == 300
    assert (found["millstream_copy_rows", copy], found["millstream_copy_live", copy]) == (4, 1)
    assert found["millstream_journal_rows", (("job", "f"), ("journal", "s"))] == 1
    assert found["millstream_journal_bytes", (("job", "f"), ("journal", "s"))] > 0
    path = "/jobs/{job}/sources/{source}/events"
    assert (
        found[
            "millstream_http_requests_total",
            (("method", "POST"), ("path", path), ("status", "200")),
        ]
        == 1
    )
    assert found["millstream_http_received_bytes_total", (("path", path),)] == len(body)


def test_the_time_of_batches_is_told_by_cause(served: Served) -> None:
    served.engine.groups = (GroupStatus("all", spent={"state": 4.5, "commit": 0.25}),)
    served.deploy()
    found = samples(served.http.get("/metrics").text)
    spent = {
        dict(labels)["cause"]: value
        for (name, labels), value in found.items()
        if name == "millstream_batch_cause_seconds_total"
        and dict(labels)["job"] == "f"
        and dict(labels)["group"] == "all"
    }
    assert spent == {"state": 4.5, "commit": 0.25}


def test_a_job_that_is_gone_leaves_nothing_behind(served: Served) -> None:
    served.deploy()
    assert 'job="f"' in served.http.get("/metrics").text
    served.engine.tell("f", life.Finished())
    served.http.delete("/jobs/f")
    assert 'job="f"' not in served.http.get("/metrics").text


def test_sizes_of_journals_are_looked_at_now_and_then(tmp_path: Path) -> None:
    engine, now, asked = PeerEngine(tmp_path), [0.0], []

    def journals(job: str) -> Any:
        asked.append(job)
        return engine.journals(job)

    try:
        engine.deploy(b"good")
        about: Any = lambda: type("About", (), {"node": 0, "of": 1, "version": "x"})()  # noqa: E731
        metrics = Metrics(about, engine.jobs, journals, clock=lambda: now[0])
        for moment in (0.0, 10.0, 29.0, 31.0):
            now[0] = moment
            assert b"millstream_journal_bytes{" in metrics.text()
        assert asked == ["f", "f"]
    finally:
        engine.close()


def queries() -> list[str]:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return found + [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]


def test_every_query_of_the_dashboard_asks_for_what_there_is(served: Served) -> None:
    served.deploy()
    served.http.post(EVENTS, content=b"", headers={"Content-Type": "application/x-ndjson"})
    known = names(served)
    assert len(queries()) > 20
    for query in queries():
        asked = set(NAME.findall(query))
        assert asked, query
        assert asked <= known, query


def test_every_label_of_the_dashboard_is_one_that_its_metric_has(served: Served) -> None:
    served.deploy()
    served.http.post(EVENTS, content=b"", headers={"Content-Type": "application/x-ndjson"})
    labels: dict[str, set[str]] = {}
    for name, given in samples(served.http.get("/metrics").text):
        labels.setdefault(name, set()).update(label for label, _ in given)
    for query in queries():
        by = re.search(r"by \(([^)]*)\)", query)
        wanted = {label.strip() for label in by[1].split(",")} if by else set()
        for name in NAME.findall(query):
            assert wanted <= labels[name], query


def test_the_page_names_the_metrics_that_there_are_and_no_others(served: Served) -> None:
    served.deploy()
    served.http.post(EVENTS, content=b"", headers={"Content-Type": "application/x-ndjson"})
    text = (DEPLOY / "README.md").read_text().split("## Watching")[1].split("\n## ")[0]
    told = set(NAME.findall(text))
    ours = {name for name in names(served) if name.startswith("millstream_")}
    plain = {
        re.sub(r"_(bucket|count|sum)$", "", name) if "seconds_" in name else name for name in ours
    }
    assert plain <= told
    assert {name for name in told if name not in ours and not name.startswith("process_")} == {
        "millstream_http_request_seconds"
    }
    assert {name for name in told if name.startswith("process_")} <= names(served)
