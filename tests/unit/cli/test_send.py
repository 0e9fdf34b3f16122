from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

import pytest
import typer

import millstream as ms
from millstream import ingest
from millstream.cli import send as sending
from millstream.cli.send import send
from millstream.errors import AlreadyWriting, Ended, InvalidAddress, NoAnswer, NotThere
from millstream.journal import Kind
from millstream.journal.kinds.files.writer import Writer
from millstream.links.client import Client, connect
from millstream.links.host import Host, declared_inboxes
from support.ingest import all_rows, kinds_of, letters_of, source
from support.served import serving

DDL = "origin string, delay double, at timestamp"
FLOW = f"""
import millstream as ms

flow = ms.Flow("flights")
events = flow.source("departures", ms.inbox("{DDL}"), time="at", key="origin", partitions=2)
events.sink("all", ms.memory())
"""

Feed = Callable[[str], None]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """Put a text where the command reads its events."""
    opened: list[TextIO] = []

    def feed(text: str) -> None:
        reading, writing = os.pipe()
        threading.Thread(
            target=lambda: (os.write(writing, text.encode()), os.close(writing))
        ).start()
        opened.append(os.fdopen(reading, "r"))
        monkeypatch.setattr("sys.stdin", opened[-1])

    yield feed
    for file in opened:
        file.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / ".millstream"


@pytest.fixture
def journal(data: Path) -> Path:
    folder = data / "flights" / "journals" / "departures"
    ingest.declare(source(ms.inbox(DDL), key="origin", partitions=2), folder)
    return folder


def event(origin: str | None, minute: int) -> str:
    return json.dumps({"origin": origin, "delay": 1.5, "at": f"2013-03-08 12:{minute:02}"}) + "\n"


def test_what_an_engine_refuses_is_to_be_found_where_it_keeps_it(
    stdin: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin('{"origin": "JFK", "n": 1, "at": "2013-03-08"}\n{\n')
    with serving(tmp_path / "engine") as served:
        send("f.s", engine=served.server.url)
    shown = (
        f"(1 refused, see millstream journal cat f.s.dead --data {tmp_path / 'engine'}/jobs/f)\n"
    )
    assert capsys.readouterr().out.endswith(shown)


def test_events_are_sent_and_bad_ones_refused(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(event("JFK", 1) + "{\n" + event(None, 2) + event("LGA", 3).rstrip())
    send("flights.departures", data=data)
    said = capsys.readouterr().out
    assert said.startswith("sent 2 events in ")
    assert said.endswith("s (2 refused, see millstream journal cat flights.departures.dead)\n")
    assert {row["origin"] for row in all_rows(journal)} == {"JFK", "LGA"}
    assert [one["reason"] for one in letters_of(journal)][1] == 'key "origin" is null'


def test_each_call_is_a_sender_of_its_own(stdin: Feed, data: Path, journal: Path) -> None:
    for _ in range(2):
        stdin(event("JFK", 1))
        send("flights.departures", data=data)
    assert len(all_rows(journal)) == 2


def test_a_named_sender_may_send_the_same_again(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(event("JFK", 1) + event("LGA", 2))
    send("flights.departures", data=data, sender="me")
    stdin(event("JFK", 1) + event("LGA", 2) + event("EWR", 3))
    send("flights.departures", data=data, sender="me", json=True)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["sent"], result["repeated"], result["sender"]) == (1, 2, "me")
    assert len(all_rows(journal)) == 3


def test_a_stream_can_be_ended_and_then_takes_no_more(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(event("JFK", 1))
    send("flights.departures", data=data, end=True)
    assert capsys.readouterr().out.endswith("ended flights.departures\n")
    assert [kinds_of(journal, number)[-1] for number in range(2)] == [Kind.END_OF_STREAM] * 2
    with pytest.raises(Ended, match="has ended"):
        send("flights.departures", data=data)


def test_without_a_journal_the_hint_says_how_to_get_one(data: Path) -> None:
    with pytest.raises(NotThere, match="no inbox of") as caught:
        send("flights.departures", data=data)
    assert "--flow FILE" in str(caught.value.hint)


def test_the_hint_names_the_journals_that_are_there(data: Path, journal: Path) -> None:
    with pytest.raises(NotThere) as caught:
        send("flights.departure", data=data)
    assert "flights.departures" in str(caught.value.hint)
    with pytest.raises(NotThere, match='"departures" does not name a source'):
        send("departures", data=data)


def test_the_file_of_the_flow_makes_the_journal(stdin: Feed, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "flights_to_send.py"
    file.write_text(FLOW)
    stdin(event("JFK", 1))
    send("flights.departures", data=data, flow=file)
    assert len(all_rows(data / "flights" / "journals" / "departures")) == 1
    with pytest.raises(NotThere, match='holds flow "flights", not "trains"'):
        send("trains.departures", data=data, flow=file)
    with pytest.raises(NotThere, match='has no inbox "arrivals"'):
        send("flights.arrivals", data=data, flow=file)


def test_whoever_has_the_journal_and_does_not_listen_is_waited_for(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Writer.open(journal, 1)
    with pytest.raises(AlreadyWriting):
        send("flights.departures", data=data, time_limit=0.0)
    threading.Timer(0.3, other.close).start()
    stdin(event("JFK", 1))
    send("flights.departures", data=data)
    assert capsys.readouterr().out.startswith("sent 1 event in")


def test_two_send_at_once_and_neither_waits_for_the_other_to_end(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(data) as first:
        first.send("flights.departures", {"origin": "LGA", "delay": 1.0, "at": "2013-03-08 12:00"})
        stdin(event("JFK", 1))
        send("flights.departures", data=data)
        first.send("flights.departures", {"origin": "EWR", "delay": 1.0, "at": "2013-03-08 12:02"})
    assert sorted(row["origin"] for row in all_rows(journal)) == ["EWR", "JFK", "LGA"]


def test_a_long_wait_is_not_silent(
    data: Path, journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sending, "_QUIET_S", 0.1)
    with pytest.raises(NoAnswer):
        send("flights.departures", to="tcp://127.0.0.1:9", time_limit=0.5)
    said = capsys.readouterr().err
    assert said.startswith('waiting: no response from "tcp://127.0.0.1:9"')
    assert len(said.splitlines()) == 1


def test_who_gives_up_is_told_what_is_not_acknowledged(
    stdin: Feed,
    data: Path,
    journal: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = data / "flights"
    flush = Client.flush

    def interrupted(client: Client) -> None:
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        flush(client)

    monkeypatch.setattr(Client, "flush", interrupted)
    with closing(Host(folder, declared_inboxes(folder))) as host:
        for partition in range(2):
            host.inbox("departures", partition).pause()
        stdin(event("JFK", 1) + event("LGA", 2))
        main = threading.main_thread().ident
        assert main is not None
        with pytest.raises(typer.Exit) as left:
            send("flights.departures", data=data)
    assert left.value.exit_code == 130
    assert "2 events are not acknowledged" in capsys.readouterr().err


def test_a_line_that_is_nested_deeply_is_refused_alone(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(event("JFK", 1) + '{"delay":' + "[" * 3000 + "]" * 3000 + "}\n" + event("LGA", 3))
    send("flights.departures", data=data)
    assert capsys.readouterr().out.startswith("sent 2 events in ")
    (letter,) = letters_of(journal)
    assert letter["reason"] == "malformed record: it is nested more than 200 deep"


def test_a_misspelt_column_is_refused_and_not_taken_for_null(
    stdin: Feed, data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = event("JFK", 2).replace("delay", "dealy")
    stdin(event("JFK", 1) + wrong + event("JFK", 3))
    send("flights.departures", data=data)
    assert "(1 refused" in capsys.readouterr().out
    assert [row["delay"] for row in all_rows(journal)] == [1.5, 1.5]
    (letter,) = letters_of(journal)
    assert letter["reason"].startswith('unknown field "dealy": did you mean "delay"?')
    stdin(wrong)
    send("flights.departures", data=data, allow_unknown=True)
    assert sorted(str(row["delay"]) for row in all_rows(journal)) == ["1.5", "1.5", "None"]


def test_the_engine_at_the_usual_port_is_found(
    stdin: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "engine") as served:
        monkeypatch.setattr("millstream.cluster.DEFAULT", served.server.url)
        stdin('{"origin": "JFK", "n": 1, "at": "2013-03-08"}\n')
        send("f.s")
        assert capsys.readouterr().out.startswith("sent 1 event in ")


def test_a_client_connects_to_the_url_of_an_engine(tmp_path: Path) -> None:
    with serving(tmp_path / "engine") as served:
        with connect(served.server.url) as client:
            assert client.send("f.s", {"origin": "JFK", "n": 1, "at": "2013-03-08"}) == 1
        with (
            connect(f"{served.server.url}/nowhere") as client,
            pytest.raises(InvalidAddress, match="answers with status 404"),
        ):
            client.schema("f.s")
