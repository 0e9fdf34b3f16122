from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from millstream.engine.http.limits import RequestLimits
from millstream.journal.kinds.files.summary import summary
from millstream.links.client import connect
from support.links import batch, letters, stored
from support.served import EVENTS, Served, serving

NDJSON, JSON, ARROW = (
    "application/x-ndjson",
    "application/json",
    "application/vnd.apache.arrow.stream",
)


def row(n: int) -> dict[str, Any]:
    return {"origin": f"k{n % 7}", "n": n, "at": f"2026-01-01 12:00:{n % 60:02}"}


def lines(numbers: Sequence[int]) -> bytes:
    return "".join(f"{json.dumps(row(n))}\n" for n in numbers).encode()


def arrow(*batches: pa.RecordBatch) -> bytes:
    found = io.BytesIO()
    with pa.ipc.new_stream(found, batches[0].schema) as stream:
        for one in batches:
            stream.write_batch(one)
    return found.getvalue()


def send(
    served: Served,
    body: bytes,
    kind: str = NDJSON,
    *,
    sender: str | None = None,
    first: int | None = None,
) -> httpx.Response:
    headers = {"Content-Type": kind}
    if sender is not None:
        headers["Millstream-Sender"] = sender
    if first is not None:
        headers["Millstream-First-Number"] = str(first)
    return served.http.post(EVENTS, content=body, headers=headers)


def counts(answer: httpx.Response) -> tuple[int, int, int]:
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return found["taken"], found["repeated"], found["refused"]


def there(served: Served) -> list[int]:
    return sorted(n for part in stored(served.data) for n in part)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (NDJSON, lines(range(20))),
        (NDJSON, lines(range(20)).replace(b"\n", b"\r\n").rstrip()),
        (JSON, json.dumps([row(n) for n in range(20)]).encode()),
        (JSON, json.dumps([row(n) for n in range(20)], indent=2).encode()),
        (ARROW, arrow(batch(0, 12), batch(12, 20))),
        (f"{NDJSON}; charset=utf-8", lines(range(20))),
    ],
)
def test_events_of_all_kinds_are_in_the_journal_when_it_is_answered(
    served: Served, kind: str, body: bytes
) -> None:
    assert counts(send(served, body, kind)) == (20, 0, 0)
    assert there(served) == list(range(20))


def test_rows_of_a_key_stay_in_order(served: Served) -> None:
    for begin in range(0, 300, 100):
        send(served, lines(range(begin, begin + 100)))
    for part in stored(served.data):
        for key in range(7):
            found = [n for n in part if n % 7 == key]
            assert found == sorted(found)
    assert there(served) == list(range(300))


def test_a_named_sender_may_repeat_a_request(served: Served) -> None:
    assert counts(send(served, lines(range(10)), sender="till", first=0)) == (10, 0, 0)
    assert counts(send(served, lines(range(10)), sender="till", first=0)) == (0, 10, 0)
    again = send(served, lines(range(5, 15)), sender="till", first=5)
    assert counts(again) == (5, 5, 0)
    assert (again.json()["sender"], again.json()["next"]) == ("till", 15)
    assert there(served) == list(range(15))


def test_requests_without_a_name_are_new_each_time(served: Served) -> None:
    for _ in range(3):
        assert counts(send(served, lines(range(4)))) == (4, 0, 0)
    assert there(served) == sorted(list(range(4)) * 3)


def test_lines_that_are_no_rows_are_dead_letters_and_stop_no_others(served: Served) -> None:
    body = (
        lines([1])
        + b'{"n": "x"}\n'
        + b"nonsense\n"
        + b"\n"
        + b'{"origin": null, "n": 5, "at": "2026-01-01"}\n'
        + lines([2])
    )
    assert counts(send(served, body, sender="a", first=100)) == (2, 0, 3)
    assert there(served) == [1, 2]
    assert sorted(number for number, _ in letters(served.data)) == [101, 102, 104]
    assert counts(send(served, body, sender="a", first=100)) == (0, 5, 0)
    assert len(letters(served.data)) == 3


def test_elements_that_are_no_rows_are_dead_letters_too(served: Served) -> None:
    assert counts(send(served, json.dumps([row(1), 7, "x", row(2)]).encode(), JSON)) == (2, 0, 2)
    assert there(served) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (JSON, b'{"origin": "a"}', 400),
        (JSON, b"[1, 2", 400),
        (JSON, b"", 400),
        (ARROW, b"", 400),
        (ARROW, b"nonsense", 400),
        (ARROW, arrow(batch(0, 10))[:-40], 400),
        (ARROW, arrow(pa.record_batch({"other": [1]})), 422),
        (ARROW, arrow(pa.record_batch({"n": ["x"]})), 422),
        ("text/csv", b"a,b", 415),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused_whole(
    served: Served, kind: str, body: bytes, status: int
) -> None:
    answer = send(served, body, kind)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "message", "hint"}
    assert there(served) == []


def test_a_damaged_arrow_stream_harms_nobody(served: Served) -> None:
    whole = bytearray(arrow(batch(0, 50)))
    for at in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        assert send(served, bytes(damaged), ARROW).status_code in (200, 400, 422)
    assert counts(send(served, bytes(whole), ARROW, sender="good", first=0)) == (50, 0, 0)


def test_a_sender_has_a_name_and_a_number_or_neither(served: Served) -> None:
    assert send(served, lines([1]), sender="a").status_code == 400
    assert send(served, lines([1]), first=1).status_code == 400
    assert send(served, lines([1]), sender="a", first=-1).status_code == 400
    assert send(served, lines([1]), sender="a" * 300, first=1).status_code == 400
    assert there(served) == []


def test_an_empty_body_is_nothing_to_do(served: Served) -> None:
    assert counts(send(served, b"")) == (0, 0, 0)
    assert counts(send(served, b"[]", JSON)) == (0, 0, 0)
    assert counts(send(served, arrow(batch(0, 0)), ARROW)) == (0, 0, 0)


def test_the_id_of_a_job_stands_for_its_name(served: Served) -> None:
    served.deploy()
    answer = served.http.post(
        "/jobs/f-1/sources/s/events", content=lines([1]), headers={"Content-Type": NDJSON}
    )
    assert counts(answer) == (1, 0, 0)


def test_a_source_or_a_job_that_is_not_there_is_told(served: Served) -> None:
    served.deploy()
    kind = {"Content-Type": NDJSON}
    no_source = served.http.post("/jobs/f/sources/t/events", content=lines([1]), headers=kind)
    assert (no_source.status_code, no_source.json()["error"]) == (404, "NotThere")
    no_job = served.http.post("/jobs/g/sources/s/events", content=lines([1]), headers=kind)
    assert (no_job.status_code, no_job.json()["error"]) == (404, "NoSuchJob")


def test_a_source_that_has_ended_takes_nothing(served: Served) -> None:
    with connect(str(served.engine.address)) as client:
        client.end("f.s")
    answer = send(served, lines([1]))
    assert (answer.status_code, answer.json()["error"]) == (409, "Ended")


def test_inboxes_without_room_put_the_sender_off(tmp_path: Path) -> None:
    with serving(tmp_path, limits=RequestLimits(room_seconds=0.3)) as served:
        for number in range(2):
            served.engine.inbox(number).pause()
        answer = send(served, lines(range(4)), sender="a", first=0)
        assert (answer.status_code, answer.json()["error"]) == (503, "NoAnswer")
        assert answer.headers["Retry-After"] == "1"
        for number in range(2):
            served.engine.inbox(number).resume()
        assert sum(counts(send(served, lines(range(4)), sender="a", first=0))) == 4
        assert there(served) == list(range(4))


def test_many_send_at_once_and_every_row_is_there_once(served: Served) -> None:
    def work(who: int) -> None:
        with httpx.Client(
            base_url=served.server.url, headers=dict(served.http.headers), timeout=240
        ) as http:
            for part in range(5):
                first = who * 100 + part * 20
                body = lines(range(first, first + 20))
                name = (
                    {"Millstream-Sender": f"w{who}", "Millstream-First-Number": str(part * 20)}
                    if who % 2
                    else {}
                )
                answer = http.post(EVENTS, content=body, headers={"Content-Type": NDJSON, **name})
                assert counts(answer) == (20, 0, 0)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert there(served) == list(range(2000))
    # However many requests come without a name, a journal gets to know few senders by them.
    known = {
        name
        for part in summary(served.data / "f" / "journals" / "s").partitions
        for name in part.highest
    }
    assert sum(name.startswith("http:") for name in known) <= 16


def test_a_line_that_is_nested_deeply_is_a_dead_letter(served: Served) -> None:
    deep = b'{"n":' + b"[" * 3000 + b"]" * 3000 + b"}\n"
    not_text = b'{"n": 7, "origin": "\xff"}\n'
    assert counts(send(served, lines([1]) + deep + not_text + lines([2]))) == (2, 0, 2)
    assert there(served) == [1, 2]
    assert sorted(reason for _, reason in letters(served.data)) == [
        "malformed record: it is nested more than 200 deep",
        "malformed record: not UTF-8 at byte 21",
    ]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused(served: Served, codec: str) -> None:
    zeros = pa.record_batch([pa.array(["k" * 1000] * 50_000)], names=["origin"])
    found = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(found, zeros.schema, options=options) as stream:
        stream.write_batch(zeros)
    answer = send(served, found.getvalue(), ARROW)
    assert (answer.status_code, answer.json()["message"]) == (400, "the Arrow stream is compressed")
    assert there(served) == []


def test_a_text_that_is_written_once_for_many_rows_is_refused(served: Served) -> None:
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * 50_000, pa.int32()), pa.array(["k" * 100_000])
    )
    answer = send(served, arrow(pa.record_batch([texts], names=["origin"])), ARROW)
    assert answer.status_code == 400
    assert "dictionary" in answer.json()["message"]
    assert there(served) == []


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/f/sources/%00/events",
        "/jobs/%FF/sources/s/events",
        f"/jobs/f/sources/{'x' * 5000}/events",
    ],
)
def test_a_name_that_cannot_be_is_not_found(served: Served, path: str) -> None:
    assert EVENTS.count("/") == path.count("/"), EVENTS
    answer = served.http.post(path, content=lines([1]), headers={"Content-Type": NDJSON})
    assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize("sender", ["x" * 513, "a\tb", "", "\x80"])
def test_a_sender_has_a_name_that_can_be_printed(served: Served, sender: str) -> None:
    headers = {"Content-Type": NDJSON, "Millstream-First-Number": "0"}
    answer = served.http.post(
        EVENTS,
        content=lines([1]) + b"nonsense\n",
        headers=[*headers.items(), ("Millstream-Sender", sender.encode("latin-1"))],  # type: ignore[arg-type]
    )
    assert answer.status_code == 400, answer.text
