"""A client: what it accepts, how it gathers, and what becomes of what was handed over when it closes."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from millstream.errors import (
    Ended,
    InvalidAddress,
    InvalidKey,
    LinkClosed,
    LinkError,
    NoAnswer,
    NotThere,
    RowsRefused,
)
from millstream.ingest import Refused
from millstream.journal import Kind
from millstream.links import outbox
from millstream.links.async_client import connect_async
from millstream.links.client import Client, connect
from millstream.links.host import Host
from millstream.links.inbox import Inbox
from millstream.links.keys import new_keys
from support.links import NOON, TARGET, batch, declare, entries, hosted, letters, row, rows, stored


@dataclass
class Reading:
    origin: str
    n: int
    at: datetime


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    declare(tmp_path)
    with closing(hosted(tmp_path)) as host:
        yield host


@pytest.fixture
def client(tmp_path: Path, host: Host) -> Iterator[Client]:
    with connect(tmp_path, timeout=120.0) as client:
        yield client


class Slow:
    """An inbox whose answers are held back."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_answer = threading.Event()
        take = Inbox.enqueue_nowait

        def held(inbox: Inbox, *args: Any, **named: Any) -> Any:
            found = take(inbox, *args, **named)
            answer: Any = type(found)()
            threading.Thread(
                target=lambda: (self.may_answer.wait(20), answer.set_result(found.result()))
            ).start()
            return answer

        monkeypatch.setattr(Inbox, "enqueue_nowait", held)


@pytest.fixture
def slow(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow(host, monkeypatch)
    yield slow
    slow.may_answer.set()


# what it accepts


@pytest.mark.parametrize(
    "given",
    [
        row(0),
        [row(0)],
        Reading("k0", 0, NOON),
        [Reading("k0", 0, NOON)],
        pd.DataFrame([row(0)]),
        batch(0, 1),
        pa.Table.from_batches([batch(0, 1)]),
    ],
    ids=["dict", "dicts", "dataclass", "dataclasses", "pandas", "batch", "table"],
)
def test_rows_come_in_many_shapes(client: Client, tmp_path: Path, given: Any) -> None:
    assert client.send(TARGET, given) == 1
    assert client.send_nowait(TARGET, given).result(120) == 1
    assert stored(tmp_path) == [[0, 0]]
    assert stored(tmp_path, column="at") == [[NOON, NOON]]


def test_rows_that_do_not_fit_are_refused_whole(client: Client, tmp_path: Path) -> None:
    with pytest.raises(RowsRefused):
        client.send(TARGET, [row(0), {"origin": "x", "n": "many", "at": NOON}])
    with pytest.raises(RowsRefused):
        client.send_nowait(TARGET, [{"origin": "x", "m": 1}])
    assert stored(tmp_path) == [[]]


def test_a_row_that_no_frame_can_hold_is_refused_and_holds_up_nothing(tmp_path: Path) -> None:
    declare(tmp_path, "origin string, n long, at timestamp, body string")
    with closing(hosted(tmp_path)), connect(tmp_path) as client:
        large = {**row(0), "body": "x" * (64 << 20)}
        with pytest.raises(RowsRefused, match=r"row 1 .* is larger than the 64 MB"):
            client.send(TARGET, [row(0), large])
        futures = [client.send_nowait(TARGET, one) for one in (row(1), large, row(2))]
        client.flush()
        assert [future.exception() is None for future in futures] == [True, False, True]
    assert stored(tmp_path) == [[1, 2]]


def test_no_rows_are_sent_at_once(client: Client) -> None:
    assert client.send(TARGET, []) == 0
    assert client.send_nowait(TARGET, []).result(120) == 0


def test_programs_of_0_1_0_name_the_timeout_as_they_did(host: Host, tmp_path: Path) -> None:
    with connect(tmp_path, time_limit_s=30.0) as client:  # type: ignore[call-arg]
        assert client.timeout == 30.0
        client.flush(time_limit_s=30.0)  # type: ignore[call-arg]


def test_the_columns_are_told(client: Client) -> None:
    assert client.schema(TARGET).names == ["origin", "n", "at"]
    assert not client.ended(TARGET)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([12, 11, 10], "row 1 has the number 11, and the row before it has 12"),
        ([20, 20, 21], "row 1 has the number 20, and the row before it has 20"),
        ([10, 13, 12], "row 2 has the number 12, and the row before it has 13"),
        ([30, 29, 32], "row 1 has the number 29"),  # as many as from 30 to 32
        (range(12, 9, -1), "row 1 has the number 11"),
        ([0, 1, 2**63], "row 2 has the number 9223372036854775808"),
        (range(2**63, 2**63 + 3), "row 0 has the number 9223372036854775808"),
        (np.array([1, 2, 2**62 + 1]), "row 2 has the number"),
        (np.array([1, 2, 2**63], dtype=np.uint64), "row 2 has the number"),
        ([-1, 0, 1], "row 0 has the number -1"),
        ([0, 1.5, 2], "row 1 has the number 1.5"),
        (["a", "b", "c"], "row 0 has the number 'a'"),
        ([1, 2], "3 rows have 2 numbers"),
    ],
)
def test_wrong_numbers_are_refused_before_anything_is_sent(
    client: Client, tmp_path: Path, numbers: Any, said: str
) -> None:
    for call in (client.send, client.send_nowait):
        with pytest.raises(LinkError, match=re.escape(said)) as found:
            call(TARGET, batch(0, 3), numbers=numbers)
        assert found.value.hint
    assert client.send(TARGET, batch(0, 3), numbers=[0, 2**61, 2**62]) == 3
    assert stored(tmp_path) == [[0, 1, 2]]


def test_numbers_only_rise(client: Client, tmp_path: Path) -> None:
    client.send_nowait(TARGET, batch(0, 3), numbers=[4, 7, 9]).result(120)
    with pytest.raises(LinkError, match="a row numbered 9 comes after 9"):
        client.send_nowait(TARGET, batch(3, 4), numbers=[9])
    with pytest.raises(LinkError, match="1 rows have 2 numbers"):
        client.send_nowait(TARGET, batch(3, 4), numbers=[10, 11])
    assert client.send(TARGET, batch(3, 4)) == 1
    assert stored(tmp_path) == [[0, 1, 2, 3]]


def test_records_that_are_no_rows_are_kept_once(client: Client, tmp_path: Path) -> None:
    assert client.refuse(TARGET, [Refused(3, "no JSON", "{"), Refused(5, "no JSON", "[")]) == 2
    assert client.refuse(TARGET, [Refused(5, "no JSON", "[")]) == 0
    assert letters(tmp_path) == [(3, "no JSON"), (5, "no JSON")]


@pytest.mark.parametrize(
    "where", ["ftp://127.0.0.1:80", "tcp://", "tcp://127.0.0.1", "localhost:7000"]
)
def test_an_address_is_checked(where: str) -> None:
    with connect(where) as client, pytest.raises(InvalidAddress):
        client.send(TARGET, row(0))


def test_a_folder_without_the_flow_is_not_there(tmp_path: Path) -> None:
    with connect(tmp_path) as client, pytest.raises(NotThere) as found:
        client.send("other.s", row(0))
    assert found.value.hint


def test_nobody_at_an_address_is_said_in_time() -> None:
    begun = time.monotonic()
    with (
        connect("tcp://127.0.0.1:9", timeout=0.5) as client,
        pytest.raises(NoAnswer, match="no response from") as it,
    ):
        client.send(TARGET, row(0))
    assert "running" in str(it.value.hint)
    assert time.monotonic() - begun < 60


# gathering


def test_single_rows_make_few_entries(client: Client, tmp_path: Path) -> None:
    futures = [client.send_nowait(TARGET, row(n)) for n in range(1000)]
    client.flush()
    assert all(future.done() for future in futures)
    assert sum(future.result() for future in futures) == 1000
    assert stored(tmp_path) == [list(range(1000))]
    assert len(entries(tmp_path)) < 100


def test_a_single_row_does_not_wait_for_others(client: Client, tmp_path: Path) -> None:
    assert client.send_nowait(TARGET, row(0)).result(120) == 1
    assert stored(tmp_path) == [[0]]


def test_a_bad_row_fails_its_own_future(client: Client, tmp_path: Path) -> None:
    futures = [client.send_nowait(TARGET, {**row(n), "n": "x" if n == 3 else n}) for n in range(6)]
    client.flush()
    assert [future.exception() is None for future in futures] == [
        True,
        True,
        True,
        False,
        True,
        True,
    ]
    assert isinstance(futures[3].exception(), RowsRefused)
    assert stored(tmp_path) == [[0, 1, 2, 4, 5]]


def test_only_bad_rows_hold_up_nothing(client: Client, tmp_path: Path) -> None:
    bad = client.send_nowait(TARGET, {"origin": 3})
    client.flush()
    assert isinstance(bad.exception(10), RowsRefused)
    assert client.send(TARGET, row(1)) == 1
    assert stored(tmp_path) == [[1]]


def test_rows_keep_the_order_of_the_calls(client: Client, tmp_path: Path) -> None:
    for n in range(0, 300, 3):
        client.send_nowait(TARGET, row(n))
        client.send_nowait(TARGET, batch(n + 1, n + 2))
        client.send_nowait(TARGET, Reading("x", n + 2, NOON))
    client.flush()
    assert stored(tmp_path) == [list(range(300))]


def test_many_threads_send(client: Client, tmp_path: Path) -> None:
    def send(base: int) -> None:
        for n in range(100):
            client.send_nowait(TARGET, row(base + n))

    threads = [threading.Thread(target=send, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.flush()
    (found,) = stored(tmp_path)
    assert sorted(found) == [1000 * k + n for k in range(4) for n in range(100)]
    for k in range(4):
        assert [n for n in found if n // 1000 == k] == [1000 * k + n for n in range(100)]


def test_there_is_room_again_when_something_was_let_go(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News between the look for room and the wait must not be missed: it may be the last."""
    monkeypatch.setattr(outbox, "ROWS", 10)
    enqueue = type(client._target(TARGET).router).enqueue

    def late(router: Any, *args: Any) -> int:
        count = enqueue(router, *args)
        if count == 0:
            time.sleep(0.05)  # meanwhile everything is acknowledged, and nothing more will be
        return count

    monkeypatch.setattr(type(client._target(TARGET).router), "enqueue", late)
    begun = time.monotonic()
    for n in range(0, 50, 5):
        client.send_nowait(TARGET, batch(n, n + 5))
    client.flush()
    assert time.monotonic() - begun < 60
    assert stored(tmp_path) == [list(range(50))]


def test_rows_that_find_no_room_in_time_are_told(
    client: Client, slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ROWS", 10)
    client.send_nowait(TARGET, batch(0, 10))
    gathered = client.send_nowait(TARGET, row(10))
    with pytest.raises(NoAnswer, match="have taken nothing for too long"):
        client.send(TARGET, batch(11, 12), timeout=0.2)
    with pytest.raises(NoAnswer):
        gathered.result(120)
    slow.may_answer.set()
    client.flush()
    assert stored(tmp_path) == [list(range(10))]


# closing


def test_closing_flushes(host: Host, tmp_path: Path) -> None:
    client = connect(tmp_path)
    futures = [client.send_nowait(TARGET, row(n)) for n in range(10)]
    client.close()
    assert [future.result(0) for future in futures] == [1] * 10
    assert stored(tmp_path) == [list(range(10))]
    client.close()


def test_aborting_tells_those_who_wait(host: Host, slow: Slow, tmp_path: Path) -> None:
    client = connect(tmp_path, linger_s=60.0)
    sent, gathered = client.send_nowait(TARGET, batch(0, 3)), client.send_nowait(TARGET, row(3))
    client.abort()
    for future in (sent, gathered):
        with pytest.raises(LinkClosed):
            future.result(120)


def test_an_error_inside_aborts(host: Host, slow: Slow, tmp_path: Path) -> None:
    sent = []

    def fail() -> None:
        with connect(tmp_path) as client:
            sent.append(client.send_nowait(TARGET, batch(0, 3)))
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(LinkClosed):
        sent[0].result(120)


def test_a_closed_client_says_so(client: Client) -> None:
    client.send(TARGET, row(0))
    client.close()
    for call in (client.send, client.send_nowait):
        with pytest.raises(LinkClosed):
            call(TARGET, row(1))
    with pytest.raises(LinkClosed):
        client.end(TARGET)


def test_closing_gives_up_after_its_time(host: Host, slow: Slow, tmp_path: Path) -> None:
    client = connect(tmp_path, timeout=0.2)
    sent = client.send_nowait(TARGET, batch(0, 3))
    with pytest.raises(NoAnswer):
        client.close()
    with pytest.raises(LinkClosed):
        sent.result(120)


# instructions


def test_an_end_follows_all_rows_before_it(tmp_path: Path) -> None:
    declare(tmp_path, partitions=3)
    with closing(hosted(tmp_path)), connect(tmp_path) as client:
        for n in range(20):
            client.send_nowait(TARGET, row(n))
        client.watermark(TARGET, NOON)
        client.end(TARGET)
        client.end(TARGET)
    found = [kind for kind, _, _ in entries(tmp_path)]
    assert found.count(Kind.WATERMARK) == found.count(Kind.END_OF_STREAM) == 3
    assert sorted(n for part in stored(tmp_path) for n in part) == list(range(20))


# asyncio


def test_asyncio(host: Host, tmp_path: Path) -> None:
    async def send() -> None:
        async with connect_async(tmp_path) as client:
            assert await client.send(TARGET, rows(0, 5)) == 5
            waiting = [await client.send_nowait(TARGET, row(n)) for n in range(5, 100)]
            assert sum([await one for one in waiting]) == 95
            with pytest.raises(RowsRefused):
                await client.send(TARGET, {"n": "x"})
            await client.flush()
            await client.watermark(TARGET, NOON)
            await client.end(TARGET)

    asyncio.run(send())
    assert stored(tmp_path) == [list(range(100))]


def test_a_named_coroutine_numbers_its_rows_too(host: Host, tmp_path: Path) -> None:
    async def main(begin: int) -> None:
        async with connect_async(tmp_path, sender="till") as client:
            await (await client.send_nowait(TARGET, rows(begin, 6), numbers=range(begin, 6)))

    asyncio.run(main(0))
    asyncio.run(main(3))
    assert stored(tmp_path) == [[0, 1, 2, 3, 4, 5]]


def test_hundreds_of_coroutines_send_at_once(host: Host, tmp_path: Path) -> None:
    async def send() -> None:
        async with connect_async(tmp_path) as client:
            sent = await asyncio.gather(*(client.send(TARGET, row(n)) for n in range(500)))
            assert sent == [1] * 500

    asyncio.run(send())
    assert sorted(stored(tmp_path)[0]) == list(range(500))
    assert len(entries(tmp_path)) < 200


def test_a_coroutine_that_waits_too_long_is_told(host: Host, slow: Slow, tmp_path: Path) -> None:
    async def send() -> None:
        client = connect_async(tmp_path)
        with pytest.raises(NoAnswer):
            await client.send(TARGET, row(0), timeout=0.1)
        slow.may_answer.set()
        await client.close()

    asyncio.run(send())
    assert stored(tmp_path) == [[0]]


# senders


def test_a_named_sender_adds_nothing_twice(host: Host, tmp_path: Path) -> None:
    for _ in range(2):
        with connect(tmp_path, sender="till") as client:
            for n in range(0, 30, 10):  # in several steps: the first answer knows of all of them
                assert client.send(TARGET, rows(n, n + 10), numbers=range(n, n + 10)) == 10
    assert stored(tmp_path) == [list(range(30))]
    with connect(tmp_path, sender="till") as client:
        client.send(TARGET, rows(0, 35), numbers=range(35))
        (outbox,) = client.statistics()
    assert (outbox.acknowledged, outbox.repeated) == (35, 30)
    assert stored(tmp_path) == [list(range(35))]


def test_a_named_sender_without_numbers_is_refused(host: Host, tmp_path: Path) -> None:
    """Counted from 0 again after a restart, new rows would be taken for old ones, and lost."""
    with connect(tmp_path, sender="till") as client:
        for send in (client.send, client.send_nowait):
            with pytest.raises(LinkError, match="no numbers") as found:
                send(TARGET, row(0))
            assert "numbers=" in str(found.value.hint)
    assert stored(tmp_path) == [[]]


@pytest.mark.parametrize("policy", ["least loaded", "local"])
def test_a_named_sender_needs_a_policy_that_repeats_itself(tmp_path: Path, policy: str) -> None:
    """Rows that are sent again would go to another inbox, which does not know them."""
    declare(tmp_path, partitions=2)
    with closing(hosted(tmp_path)), connect(tmp_path, sender="till", policy=policy) as client:
        with pytest.raises(LinkError, match="a named sender") as found:
            client.send(TARGET, row(0))
        assert "in turn" in str(found.value.hint)
    with closing(hosted(tmp_path)), connect(tmp_path, policy=policy) as client:
        assert client.send(TARGET, rows(0, 10)) == 10


def test_a_client_without_a_name_is_a_sender_of_its_own(host: Host, tmp_path: Path) -> None:
    for _ in range(2):
        with connect(tmp_path) as client:
            client.send(TARGET, row(0))
    assert stored(tmp_path) == [[0, 0]]


def test_a_refusal_fails_what_waits_and_the_client_goes_on(
    client: Client, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Inbox.enqueue_nowait
    calls = iter([NotThere("not now")])

    def refuse(inbox: Inbox, *args: Any, **named: Any) -> Any:
        error = next(calls, None)
        if error is not None:
            raise error
        return take(inbox, *args, **named)

    monkeypatch.setattr(Inbox, "enqueue_nowait", refuse)
    with pytest.raises(NotThere, match="not now"):
        client.send(TARGET, row(0))
    assert client.send(TARGET, row(1)) == 1
    assert stored(tmp_path) == [[1]]


def test_rows_that_were_refused_are_told_by_who_flushes(host: Host, tmp_path: Path) -> None:
    with connect(tmp_path) as one, connect(tmp_path) as two:
        one.send(TARGET, row(0))
        two.end(TARGET)
        one.send_nowait(TARGET, rows(1, 5))  # whose future nobody looks at
        with pytest.raises(Ended):
            one.flush()
        one.flush()  # it was told
        with pytest.raises(Ended):
            one.send(TARGET, row(5))
        one.flush()  # so was this
    with pytest.raises(Ended), connect(tmp_path) as client:
        client.send_nowait(TARGET, row(6))
    with pytest.raises(LinkClosed):
        client.send(TARGET, row(7))


def test_who_flushes_while_another_thread_aborts_is_told(
    host: Host, slow: Slow, tmp_path: Path
) -> None:
    client = connect(tmp_path)
    client.send_nowait(TARGET, rows(0, 5))
    threading.Timer(0.1, client.abort).start()
    with pytest.raises(LinkClosed):
        client.flush()


def test_a_host_that_has_moved_is_asked_where_it_is(tmp_path: Path) -> None:
    declare(tmp_path)
    first = hosted(tmp_path)
    with connect(tmp_path, timeout=120.0) as client:
        assert client.send(TARGET, row(0)) == 1
        first.close()
        with socket.socket() as taken:  # by somebody else: the next host has another port
            taken.bind((first.address.ip, first.address.port))
            taken.listen()
            with closing(hosted(tmp_path)) as second:
                assert second.address.port != first.address.port
                assert client.refuse(TARGET, [Refused(3, "no JSON", "{")]) == 1
                assert client.send(TARGET, row(1)) == 1
    assert stored(tmp_path) == [[0, 1]]


def test_a_forked_process_is_told_to_connect_itself(client: Client, tmp_path: Path) -> None:
    assert client.send(TARGET, row(0)) == 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.send(TARGET, row(1))
        except LinkError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        assert b"forked" in said.read()
    os.waitpid(child, 0)
    assert client.send(TARGET, row(2)) == 1
    assert stored(tmp_path) == [[0, 2]]


def test_rows_that_do_not_linger_and_find_no_room_cost_no_time(
    host: Host, slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ROWS", 8)
    with connect(tmp_path, linger_s=0.0) as client:
        turns, turn = [0], client._turn

        def counted(now: float) -> float | None:
            turns[0] += 1
            return turn(now)

        client._loop.turn = counted
        futures = [client.send_nowait(TARGET, row(0))]
        time.sleep(0.05)
        futures += [client.send_nowait(TARGET, row(n)) for n in range(1, 9)]
        before = turns[0]
        time.sleep(0.2)
        assert turns[0] - before < 100
        slow.may_answer.set()
        assert [future.result(120) for future in futures] == [1] * 9


@pytest.mark.parametrize("given", ["key", "server"])
def test_one_key_alone_is_refused(tmp_path: Path, given: str) -> None:
    files = new_keys(tmp_path, "till")
    with pytest.raises(InvalidKey, match=f"^{given} is given"):
        connect("tcp://127.0.0.1:9", **{given: files.secret if given == "key" else files.public})  # type: ignore[arg-type]
