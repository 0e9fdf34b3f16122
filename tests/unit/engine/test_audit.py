from __future__ import annotations

import json
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.clock import SystemClock
from millstream.engine.access import audit, token_book
from millstream.engine.access.audit import AuditEntry, AuditLog, AuditQuery, Repeats
from millstream.engine.access.permissions import May
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs.status import Place
from millstream.errors import NotAllowed
from millstream.links.host import Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.listener import Security
from millstream.links.registered import REGISTERED
from support.links import TARGET, declare, rows
from support.served import EVENTS, PACKAGE, Served


def entry(who: str = "ci", job: str | None = "f", **more: Any) -> AuditEntry:
    return AuditEntry(who=who, address="10.0.0.1", what="drain", outcome="done", job=job, **more)


def entries(served: Served, **query: str) -> list[dict[str, Any]]:
    served.server.audit.close()
    answer = served.http.get("/audit", params=query)
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()
    return found


def shown(found: list[dict[str, Any]]) -> list[tuple[str, str, str | None, str]]:
    return [(one["who"], one["what"], one.get("job"), one["outcome"]) for one in found]


# over HTTP


def test_what_changes_something_is_logged_with_who_where_what_and_outcome(served: Served) -> None:
    ci = token_book.create(served.data, "ci", [May.DEPLOY], now=0.0)
    with httpx.Client(
        base_url=served.server.url, headers={"Authorization": f"Bearer {ci}"}
    ) as http:
        http.post("/jobs", json={"package": PACKAGE})
        http.get("/jobs/f")
        http.post("/jobs/f/wait?limit=0")
        http.post("/jobs/f/drain")
        http.delete("/jobs/f?purge=true")
    served.http.delete("/jobs/f?force=true")
    found = entries(served)
    assert shown(found) == [
        ("ci", "deploy", "f", "done"),
        ("ci", "drain", "f", "done"),
        ("ci", "undeploy", "f", "refused"),
        ("owner", "undeploy", "f", "done"),
    ]
    assert found[2]["request"] == "DELETE /jobs/f?purge=true"
    assert found[2]["reason"].startswith('job "f" is draining')
    assert found[3]["from"] == "127.0.0.1"
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)


def test_refusals_are_logged_once_a_minute_and_counted(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    look = token_book.create(served.data, "look", [May.LOOK], now=0.0)
    for number in range(30):
        headers = {"Authorization": f"Bearer wrong-{number}"}
        httpx.post(f"{served.server.url}/jobs/job-{number}/drain", headers=headers)
    httpx.post(f"{served.server.url}/stop", headers={"Authorization": f"Bearer {look}"})
    found = entries(served)
    assert shown(found) == [
        ("nobody", "drain", None, "refused"),
        ("look", "stop", None, "refused"),
        ("nobody", "drain", None, "refused"),
    ]
    assert [one.get("times", 1) for one in found] == [1, 1, 29]
    refused = [one for one in caplog.messages if one.startswith("refused")]
    assert len(refused) == 2
    assert 'token "look" from 127.0.0.1: POST /stop' in refused[1]
    # Neither what a stranger wrote nor a token is in it.
    assert "job-7" not in json.dumps(found)
    assert "wrong-" not in json.dumps(found) + caplog.text
    assert look not in json.dumps(found) + caplog.text


def test_sending_many_events_makes_few_entries(served: Served) -> None:
    till = token_book.create(served.data, "till", [May.SEND], now=0.0, job="f")
    served.deploy()
    kind = {"Content-Type": "application/x-ndjson", "Authorization": f"Bearer {till}"}
    for _ in range(20):
        line = b'{"origin": "a", "n": 1, "at": "2026-01-01"}\n'
        assert httpx.post(f"{served.server.url}{EVENTS}", content=line, headers=kind).is_success
    sent = [one for one in entries(served) if one["what"] == "send"]
    assert [(one["who"], one.get("times", 1)) for one in sent] == [("till", 1), ("till", 19)]


def test_entries_are_found_by_job_name_and_time(served: Served) -> None:
    served.deploy()
    served.deploy(name="g")
    served.http.post("/jobs/f/drain")
    served.http.post("/jobs/g/drain")
    assert [one["request"] for one in entries(served, job="g")] == [
        "POST /jobs",
        "POST /jobs/g/drain",
    ]
    assert entries(served, who="somebody") == []
    _, last = entries(served, job="f")
    assert len(entries(served, who="owner", since=last["at"])) == 2
    assert len(entries(served, since=last["at"][:19] + "Z")) >= 2
    assert entries(served, since="2999-01-01T00:00:00Z") == []
    assert [one["job"] for one in entries(served, limit="1")] == ["g"]


# producers


def test_producers_are_logged_by_the_names_of_their_keys(tmp_path: Path) -> None:
    for name in ("till", "desk"):
        new_keys(tmp_path / "keys", name)
    public = tmp_path / "keys" / "desk.pub"
    public.write_text(f'{public.read_text()}may = "rows, end"\n')
    own = read_key(new_keys(tmp_path / "own", "engine").secret)
    declare(tmp_path)
    listening = Listening(security=Security.read(own, tmp_path / "keys"))
    inboxes = Inboxes(tmp_path / "engine", listening, node=0, of=1, clock=SystemClock())
    # Over TCP, as if it were on another host.
    place = Place(inboxes.address.ip, inboxes.address.port)
    inboxes.open("f", tmp_path / "f", {"s": [place]})
    inboxes.start()
    REGISTERED.pop(place.port)
    at = f"tcp://{place.ip}:{place.port}"
    try:
        for name in ("till", "desk"):
            file = tmp_path / "keys" / f"{name}.key"
            with ms.connect(at, key=file, server=tmp_path / "own/engine.pub") as client:
                client.send(TARGET, rows(0, 3))
                with suppress(NotAllowed):
                    client.end(TARGET)
    finally:
        inboxes.close()
    found = audit.read(tmp_path / "engine" / "audit", AuditQuery(job="f"))
    assert {(one.who, one.what, one.outcome) for one in found} == {
        ("till", "connect", "done"),
        ("till", "end", "refused"),
        ("desk", "connect", "done"),
        ("desk", "end", "done"),
    }
    assert {one.reason for one in found} == {None, 'producer "till" may not end "f.s"'}
    # Rows are not entries.
    assert len(found) <= 8


# the file


def test_the_log_is_appended_to_and_for_its_owner_alone(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    log.write(entry(), 1.0)
    log.write(entry("other"), 2.0)
    file = tmp_path / "audit" / "audit.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    first = file.read_bytes()
    AuditLog(tmp_path / "audit").write(entry("third"), 3.0)
    assert file.read_bytes().startswith(first)
    found = audit.read(tmp_path / "audit", AuditQuery())
    assert [one.who for one in found] == ["ci", "other", "third"]


def test_a_log_that_is_large_is_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, most_bytes=1_000, files=3)
    for number in range(60):
        log.write(entry(f"who-{number}"), float(number))
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(file.stat().st_size <= 1_000 for file in tmp_path.iterdir())
    found = [one.who for one in audit.read(tmp_path, AuditQuery())]
    assert found == [f"who-{number}" for number in range(60 - len(found), 60)]
    assert len(found) > 10


def test_a_line_that_a_crash_has_cut_hides_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.write(entry("a"), 1.0)
    with (tmp_path / "audit.jsonl").open("ab") as opened:
        opened.write(b'{"at": "20\n')
    log.write(entry("b"), 2.0)
    assert [one.who for one in audit.read(tmp_path, AuditQuery())] == ["a", "b"]


def test_a_log_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("in the way")
    assert AuditLog(tmp_path / "audit").write(entry(), 1.0)
    assert "the audit log cannot be written" in caplog.text


# repeats

events = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 50)), max_size=40)


@given(events, st.integers(1, 3))
def test_nothing_is_lost_by_counting(steps: list[tuple[str, float]], most: int) -> None:
    repeats, now, written = Repeats(60.0, most), 0.0, dict.fromkeys("abc", 0)
    for who, pause in steps:
        now += pause
        for one in repeats.over(now):
            written[one.who] += one.times
        written[who] += repeats.new(entry(who), now)
    for one in repeats.over(now + 1_000):
        written[one.who] += one.times
    assert written == {who: sum(one == who for one, _ in steps) for who in "abc"}
