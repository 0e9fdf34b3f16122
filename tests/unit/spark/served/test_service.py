"""Executors that borrow the driver's host: a real service, real sockets, no Spark."""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import NoAnswer, PositionUnwritten, RunError
from millstream.journal import DeadLetter, Journal, Kind, journal_at
from millstream.spark.served import client, messages, runs, serving
from millstream.spark.served.borrowed import PutLetters, ServedLetters, put_letters
from millstream.spark.served.client import Link, run_at, schema_at, slices_at
from millstream.spark.served.place import ServedPlace, read_place, write_place
from millstream.spark.served.service import Service

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("text", pa.string())])


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service("127.0.0.1", "127.0.0.1")
    yield made
    made.close()
    _hang_up()


def _hang_up() -> None:
    for link in client._links.values():
        link.close()
    client._links.clear()


def rows(start: int, count: int, text: str = "") -> pa.RecordBatch:
    numbers = np.arange(start, start + count)
    arrays = [
        pa.array(numbers, SCHEMA.field("at").type),
        pa.array(numbers),
        pa.array([text] * count),
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = journal_at(tmp_path / "orders")
    made.create(SCHEMA, partitions=2, time="at")
    with made.writer(1) as writer:
        writer.append("a", 0, rows(0, 1000, "x" * 100))
        writer.instruct(Kind.WATERMARK, 500)
        writer.append("a", 1000, rows(400, 3000, "y" * 3000))
        writer.append("b", 0, rows(10, 5))
        writer.instruct(Kind.END_OF_STREAM)
    return made


def numbered(slices: Any) -> list[Any]:
    """Return the rows of slices with their positions, however they are cut."""
    return [
        row
        for one in slices
        if one.batch is not None
        for row in zip(range(one.position, one.stop), one.batch.to_pylist(), strict=True)
    ]


class TestReading:
    def test_rows_are_those_of_a_local_reader_in_any_range(
        self, service: Service, journal: Journal
    ) -> None:
        path = str(journal.describe().path)
        service.allow(path)
        local = journal.reader().partition(1)
        for start, stop in ((0, local.end), (17, 2345), (1000, 1001), (3999, local.end), (5, 5)):
            got = list(slices_at(service.place, path, 1, start, stop, ["v", "at"]))
            want = list(local.read(start, stop, ["v", "at"]))
            assert numbered(got) == numbered(want)
            ends = [(one.stop, one.floor_after, one.ended) for one in want]
            assert [e for e in ends if e[0] in {g.stop for g in got}] == ends, "no end is lost"
            lags = [g.max_lag for g in got if g.batch is not None]
            assert max((lag or 0 for lag in lags), default=0) >= max(
                (w.max_lag or 0 for w in want if w.batch is not None), default=0
            )
        assert schema_at(service.place, path) == SCHEMA

    def test_a_piece_is_bounded_whatever_an_entry_holds(
        self, service: Service, journal: Journal
    ) -> None:
        slices = list(messages.bounded(journal.reader().partition(1).read(0, 4001), 100_000))
        assert sum(one.batch.nbytes for one in slices if one.batch) <= 2 * 100_000
        assert slices[-1].stop < 4001
        assert not slices[-1].ended

    @pytest.mark.parametrize(("size", "fits"), [(63 << 20, True), (65 << 20, False)])
    def test_a_row_that_no_message_holds_is_refused_at_once(
        self, service: Service, tmp_path: Path, size: int, fits: bool
    ) -> None:
        path = str(tmp_path / "large")
        made = journal_at(path)
        made.create(SCHEMA, time="at")
        with made.writer(0) as writer:
            writer.append("a", 0, rows(0, 10, "x" * 100_000))
            writer.append("a", 10, rows(10, 1, "x" * size))
        service.allow(path)
        work = Gathering()
        if fits:
            got = list(slices_at(service.place, path, 0, 0, 11, ["v", "text"]))
            assert [row["v"] for _, row in numbered(got)] == list(range(11))
            assert len(got) == 2, "the large row has a message of its own"
            with service.offered(work) as name:
                list(run_at(service.place, name, [rows(10, 1, "x" * size)]))
            assert work.seen == [10]
            return
        with pytest.raises(RunError, match="on the driver's host: a row of 65 MB is too large"):
            list(slices_at(service.place, path, 0, 0, 11, ["v", "text"]))
        with (
            service.offered(work) as name,
            pytest.raises(RunError, match="a row of 65 MB is too large"),
        ):
            list(run_at(service.place, name, [rows(10, 1, "x" * size)]))
        assert work.runs == 0

    def test_a_journal_that_was_not_offered_is_refused(
        self, service: Service, journal: Journal
    ) -> None:
        path = str(journal.describe().path)
        with pytest.raises(PositionUnwritten, match="not offered"):
            list(slices_at(service.place, path, 1, 0, 10, ["v"]))

    def test_rows_that_are_not_there_are_an_error(self, service: Service, journal: Journal) -> None:
        path = str(journal.describe().path)
        service.allow(path)
        with pytest.raises(PositionUnwritten, match="ends at 4007, and 5000 was asked for"):
            list(slices_at(service.place, path, 1, 0, 5000, ["v"]))

    def test_a_partition_that_a_journal_has_got_since_is_read(
        self, service: Service, journal: Journal
    ) -> None:
        path = str(journal.describe().path)
        service.allow(path)
        fresh = journal_at(Path(path).parent / "growing")
        fresh.create(SCHEMA, partitions=1, time="at")
        grown = str(fresh.describe().path)
        service.allow(grown)
        for _ in range(8):  # each of the service's threads knows it
            assert list(slices_at(service.place, grown, 0, 0, 0, ["v"])) == []
        fresh.grow(2)
        with fresh.writer(1) as writer:
            at = writer.end
            writer.append("a", 0, rows(0, 10))
        got = list(slices_at(service.place, grown, 1, at, at + 10, ["v"]))
        assert sum(one.batch.num_rows for one in got if one.batch) == 10


@dataclass
class Gathering:
    """Keeps what it is given, and answers with the sum."""

    seen: list[int] = field(default_factory=list)
    runs: int = 0
    gate: threading.Event | None = None
    error: BaseException | None = None
    answer: str | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.runs += 1
        mine: list[int] = []
        try:
            for batch in batches:
                if self.gate is not None:
                    self.gate.wait(20)
                mine += batch.column("v").to_pylist()
        except BaseException as error:
            self.error = error
            raise
        self.seen += mine
        yield pa.record_batch([pa.array([self.answer or sum(mine)])], names=["sum"])


class TestRunning:
    def test_work_is_done_on_the_other_side_and_answers_come_back(self, service: Service) -> None:
        work = Gathering()
        batches = [rows(0, 5000, "z" * 2000), rows(5000, 10), rows(5010, 0)]
        with service.offered(work) as name:
            (answer,) = run_at(service.place, name, batches)
        assert answer.column(0).to_pylist() == [sum(range(5010))]
        assert work.seen == list(range(5010))
        assert work.runs == 1

    def test_without_rows_nothing_is_run(self, service: Service) -> None:
        work = Gathering()
        with service.offered(work) as name:
            assert list(run_at(service.place, name, [rows(0, 0)])) == []
        assert work.runs == 0

    def test_work_that_fails_fails_the_task(self, service: Service, tmp_path: Path) -> None:
        with (
            service.offered(PutLetters(str(tmp_path / "none"))) as name,
            pytest.raises(RunError, match="on the driver's host: TypeError: DeadLetter"),
        ):
            list(run_at(service.place, name, [rows(0, 10)] * 9))

    def test_work_that_is_withdrawn_is_refused(self, service: Service) -> None:
        with service.offered(Gathering()) as name:
            pass
        with pytest.raises(RunError, match="does not know this run"):
            list(run_at(service.place, name, [rows(0, 1)]))

    def test_a_sender_waits_for_slow_work_instead_of_filling_memory(self, service: Service) -> None:
        work, sent = Gathering(gate=threading.Event()), []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(20):
                sent.append(number)
                yield rows(number, 1)

        with service.offered(work) as name:
            task = threading.Thread(target=lambda: list(run_at(service.place, name, batches())))
            task.start()
            _until(lambda: len(sent) >= 4)
            time.sleep(0.3)  # it must not go on
            assert len(sent) <= 3 + runs.QUEUED + client._UNDER_WAY
            assert work.gate is not None
            work.gate.set()
            task.join(20)
        assert work.seen == list(range(20))

    def test_messages_that_are_sent_again_repeat_nothing(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "AGAIN_S", 0.02)
        work = Gathering(gate=threading.Event())
        threading.Timer(0.5, work.gate.set).start()  # type: ignore[union-attr]
        with service.offered(work) as name:
            (answer,) = run_at(service.place, name, (rows(n, 1) for n in range(50)))
        assert answer.column(0).to_pylist() == [sum(range(50))]
        assert (work.seen, work.runs) == (list(range(50)), 1)

    def test_a_connection_that_breaks_in_the_middle_repeats_nothing(self, service: Service) -> None:
        work = Gathering()

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(60):
                if number % 10 == 5:
                    link = client.link_to(service.place)
                    link._loop.soon(lambda link=link: link._wire.renew())  # type: ignore[misc]
                    link._loop.soon(link._again)
                yield rows(number, 1)

        with service.offered(work) as name:
            assert len(list(run_at(service.place, name, batches()))) == 1
        assert (work.seen, work.runs) == (list(range(60)), 1)

    def test_a_run_whose_executor_vanishes_ends(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "SILENT_S", 0.5)
        work = Gathering()
        name = service.offer(work)
        link = Link(service.place)
        data = messages.to_arrow(SCHEMA, [rows(0, 1)])
        link.ask(lambda n: messages.Put(n, name, "run", 0), data).result(10)
        link.close()
        _until(lambda: work.error is not None)
        assert "nothing comes" in str(work.error)
        assert work.seen == []

    def test_a_run_goes_on_while_its_executor_computes(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "SILENT_S", 0.6)
        monkeypatch.setattr(client, "PING_S", 0.1)
        work = Gathering()

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows(0, 1)
            time.sleep(1.5)
            yield rows(1, 1)

        with service.offered(work) as name:
            list(run_at(service.place, name, batches()))
        assert work.seen == [0, 1]

    def test_an_answer_that_no_message_holds_is_refused(self, service: Service) -> None:
        work = Gathering(answer="x" * (65 << 20))
        with (
            service.offered(work) as name,
            pytest.raises(RunError, match="an answer of 65 MB is too large"),
        ):
            list(run_at(service.place, name, [rows(0, 1)]))


class TestPorts:
    def test_a_port_that_others_have_leads_to_the_next(self) -> None:
        first = serving.listening("127.0.0.1", "127.0.0.1", 0)
        port = first.place.port
        second = serving.listening("127.0.0.1", "127.0.0.1", port)
        try:
            assert port < second.place.port <= port + serving.MORE_PORTS
        finally:
            first.close()
            second.close()

    def test_without_a_free_port_there_is_no_service(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serving, "MORE_PORTS", 0)
        first = serving.listening("127.0.0.1", "127.0.0.1", 0)
        try:
            with pytest.raises(OSError, match="are taken"):
                serving.listening("127.0.0.1", "127.0.0.1", first.place.port)
        finally:
            first.close()


class TestLetters:
    def test_letters_reach_the_journal_once(
        self, service: Service, journal: Journal, tmp_path: Path
    ) -> None:
        path = str(journal.describe().path)
        letters = [DeadLetter("fold:x", n, "fold failed", '{"v": 1}', 1) for n in range(3)]
        where = ServedLetters(service.place, service.offer(PutLetters(path)))
        put_letters(where, letters)
        put_letters(where, letters[1:])
        put_letters(where, [])
        assert sum(journal.dead_counts().values()) == 3


class TestWhoMayCome:
    def test_without_the_key_of_the_run_there_is_no_answer(
        self, service: Service, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from millstream.links.keys import passing_keys

        monkeypatch.setattr(client, "AWAY_S", 1.0)
        path = str(journal.describe().path)
        service.allow(path)
        other = passing_keys("executors")
        stranger = replace(service.place, public=other.public, secret=other.secret)
        with pytest.raises(NoAnswer, match="no response from the driver's service"):
            schema_at(stranger, path)
        assert schema_at(service.place, path) == SCHEMA

    def test_the_secret_is_in_no_text_and_its_file_is_for_its_owner(
        self, service: Service, tmp_path: Path
    ) -> None:
        assert service.place.secret.decode() not in repr(service.place) + str(service.place)
        file = tmp_path / "place.json"
        write_place(file, service.place)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert read_place(file) == service.place


def test_a_service_that_starts_again_is_waited_for(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(journal.describe().path)
    first = Service("127.0.0.1", "127.0.0.1")
    first.allow(path)
    place = first.place
    got = slices_at(place, path, 1, 0, 4001, ["v", "text"])
    seen = [next(got)]
    first.close()
    again: list[Service] = []
    monkeypatch.setattr(
        "millstream.spark.served.service.passing_keys", lambda name: _keys_of(place, first, name)
    )
    threading.Timer(
        1.0, lambda: again.append(_allowed(Service("127.0.0.1", "127.0.0.1", place.port), path))
    ).start()
    try:
        seen += got
        assert [position for position, _ in numbered(seen)] == list(range(1000)) + list(
            range(1001, 4001)
        )
    finally:
        again[0].close()
        _hang_up()


def _keys_of(place: ServedPlace, service: Service, name: str) -> Any:
    from millstream.links.keys import KeyPair

    theirs = KeyPair("executors", place.public, place.secret)
    return service._socket._keys if name == "driver" else theirs


def _allowed(service: Service, path: str) -> Service:
    service.allow(path)
    return service


def _until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
