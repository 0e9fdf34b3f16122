"""What a client is promised, whichever way its rows go: the same checks run over all of them.

A way brings a `Bench`: it opens and closes the host of a flow's inboxes, and connects to it.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from millstream.errors import Ended, NotAllowed, NotThere, RowsRefused, SenderReplaced
from millstream.ingest import Refused
from millstream.journal import Kind
from millstream.journal.kinds.files.description import create, describe
from millstream.links.client import Client
from support.links import NOON, TARGET, batch, declare, entries, journal, letters, row, rows, stored


class Bench(Protocol):
    """A host of the inboxes of flow "f", and the way to it."""

    data: Path
    transport: str
    keys: bool

    def open(self, **named: Any) -> None:
        """Open the inboxes; `rows` is their capacity, `slow_s` how long a commit takes at least."""
        ...

    def close(self) -> None: ...
    def statistics(self) -> list[dict[str, Any]]: ...
    def connect(self, **named: Any) -> Client: ...


def by_key(data: Path) -> dict[str, list[int]]:
    """The numbers of each key, in the order of its partition."""
    found: dict[str, list[int]] = {}
    for keys, numbers in zip(stored(data, column="origin"), stored(data), strict=True):
        for key, number in zip(keys, numbers, strict=True):
            found.setdefault(key, []).append(number)
    return found


def all_of(data: Path) -> list[int]:
    return sorted(n for part in stored(data) for n in part)


class LinkChecks:
    """Subclass it and give a fixture `bench`."""

    def test_the_way_is_told(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        with bench.connect() as client:
            client.send(TARGET, rows(0, 20))
            told = client.statistics()
        assert [one.transport for one in told] == [bench.transport] * 2
        assert [one.inbox for one in told] == ["f.s/0", "f.s/1"]
        assert sum(one.acknowledged for one in told) == 20
        assert sum(one["rows"] for one in bench.statistics()) == 20

    def test_rows_of_a_key_are_in_order(self, bench: Bench) -> None:
        declare(bench.data, partitions=3)
        bench.open()
        with bench.connect() as client:
            for n in range(0, 2000, 40):
                client.send_nowait(TARGET, batch(n, n + 30))
                for one in range(n + 30, n + 40):
                    client.send_nowait(TARGET, row(one))
        assert by_key(bench.data) == {f"k{k}": list(range(k, 2000, 7)) for k in range(7)}

    def test_airports_find_their_partitions(self, bench: Bench) -> None:
        declare(bench.data, partitions=3)
        bench.open()
        with bench.connect() as client:
            client.send(TARGET, [row(0, "JFK"), row(1, "LGA"), row(2, "EWR")])
        assert stored(bench.data, column="origin") == [[], ["LGA"], ["JFK", "EWR"]]

    def test_rows_without_a_key_go_in_turn(self, bench: Bench) -> None:
        declare(bench.data, partitions=3, key=None)
        bench.open()
        for _ in range(2):
            with bench.connect(sender="till") as client:
                client.send(TARGET, rows(0, 100), numbers=range(100))
                client.send(TARGET, rows(100, 200), numbers=range(100, 200))
        assert stored(bench.data) == [list(range(k, 200, 3)) for k in range(3)]

    @pytest.mark.parametrize("policy", ["least loaded", "in turn"])
    def test_a_policy_loses_and_doubles_nothing(self, bench: Bench, policy: str) -> None:
        declare(bench.data, partitions=3)
        bench.open(rows=50, slow_s=0.002)
        with bench.connect(policy=policy) as client:
            for n in range(0, 600, 20):
                client.send_nowait(TARGET, batch(n, n + 20))
        assert all_of(bench.data) == list(range(600))

    def test_what_is_sent_again_is_there_once(self, bench: Bench) -> None:
        declare(bench.data, partitions=3)
        bench.open()
        for end in (70, 120, 120):
            with bench.connect(sender="till") as client:
                for n in range(0, end, 10):
                    client.send(TARGET, rows(n, n + 10), numbers=range(n, n + 10))
        assert all_of(bench.data) == list(range(120))
        with bench.connect(sender="till") as client:
            client.send(TARGET, rows(0, 120), numbers=range(120))
            told = client.statistics()
        assert sum(one.repeated for one in told) == 120
        assert by_key(bench.data) == {f"k{k}": list(range(k, 120, 7)) for k in range(7)}

    def test_numbers_of_the_senders_own_are_kept(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        for begin in (0, 30, 50):
            with bench.connect(sender="file:1") as client:
                client.send_nowait(TARGET, batch(begin, 100), numbers=range(3 * begin, 300, 3))
        assert all_of(bench.data) == list(range(100))

    def test_a_small_inbox_takes_all_in_parts(self, bench: Bench) -> None:
        """100 integers, room for 32, a slow disk."""
        declare(bench.data)
        bench.open(rows=32, slow_s=0.02)
        with bench.connect() as client:
            client.send(TARGET, batch(0, 100))
            assert client.statistics()[0].acknowledged == 100
        assert stored(bench.data) == [list(range(100))]

    def test_a_slow_disk_holds_senders_back(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open(rows=10, slow_s=0.01)
        most = 0
        with bench.connect() as one, bench.connect() as two:
            waiting = [
                c.send_nowait(TARGET, batch(n, n + 40))
                for n in range(0, 200, 40)
                for c in (one, two)
            ]
            while not all(future.done() for future in waiting):
                (told,) = bench.statistics()
                most = max(most, told["waiting"])
                time.sleep(0.002)
        assert 0 < most <= 10
        assert all_of(bench.data) == sorted([*range(200)] * 2)

    def test_rows_that_break_a_rule_are_dead_letters(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        far = datetime.now(UTC) + timedelta(days=30)
        given = [
            row(0),
            {**row(1), "at": None},
            {**row(2), "origin": None},
            {**row(3), "at": far},
            row(4),
        ]
        for _ in range(2):
            with bench.connect(sender="till") as client:
                assert client.send(TARGET, given, numbers=range(5)) == 5
                assert client.send(TARGET, row(5), numbers=[5]) == 1
                refused = sum(one.refused for one in client.statistics())
        assert refused == 0  # the second time they are known
        assert all_of(bench.data) == [0, 4, 5]
        assert sorted(number for number, _ in letters(bench.data)) == [1, 2, 3]

    def test_columns_may_be_added_while_a_client_is_connected(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open()
        with bench.connect() as old:
            old.send(TARGET, rows(0, 2))
            wider = describe(journal(bench.data)).schema.append(pa.field("note", pa.string()))
            create(journal(bench.data), wider, time="at")
            with bench.connect() as new:
                new.send(TARGET, {**row(2), "note": "x"})
            old.send(TARGET, rows(3, 5))
            with pytest.raises(RowsRefused):
                old.send(TARGET, {**row(5), "note": "y"})
        assert stored(bench.data, column="note") == [[None, None, "x", None, None]]

    def test_an_unknown_source_is_refused_with_those_that_are_there(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open()
        with bench.connect() as client:
            with pytest.raises(NotThere) as found:
                client.send("f.other", row(0))
            assert "f.s" in str(found.value.hint)
            assert client.send(TARGET, row(0)) == 1

    def test_of_two_clients_under_one_name_the_older_is_told(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        with bench.connect(sender="till") as first, bench.connect(sender="till") as second:
            assert first.send(TARGET, rows(0, 10), numbers=range(10)) == 10
            assert second.send(TARGET, rows(100, 110), numbers=range(10, 20)) == 10
            for begin in (20, 30):
                with pytest.raises(SenderReplaced, match='another client sends as "till"') as found:
                    first.send(TARGET, rows(0, 10), numbers=range(begin, begin + 10))
                assert found.value.hint
            assert second.send(TARGET, rows(110, 120), numbers=range(20, 30)) == 10
        assert all_of(bench.data) == [*range(10), *range(100, 120)]

    def test_clients_that_race_under_one_name_are_told_what_is_stored(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        errors: list[SenderReplaced] = []
        both = threading.Barrier(2)

        def race(base: int) -> None:
            try:
                with bench.connect(sender="till") as client:
                    client.info(TARGET)
                    both.wait(120)
                    for n in range(0, 500, 25):
                        given = batch(base + n, base + n + 25)
                        client.send(TARGET, given, numbers=range(n, n + 25))
            except SenderReplaced as error:
                errors.append(error)

        threads = [threading.Thread(target=race, args=(base,)) for base in (0, 100_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The one that is left may send rows again that the other has sent before it; no more.
        assert len(errors) == 1
        assert len(all_of(bench.data)) == 500

    def test_a_client_that_is_started_again_goes_on_under_its_name(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        for life in range(3):
            bench.open()
            with bench.connect(sender="till") as client:
                sent = client.send(TARGET, rows(0, 10 + life), numbers=range(10 + life))
                assert sent == 10 + life
            bench.close()
        bench.open()
        assert all_of(bench.data) == list(range(12))

    def test_a_host_that_comes_back_knows_whose_the_name_is(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open()
        with bench.connect(sender="till") as first, bench.connect(sender="till") as second:
            first.send(TARGET, rows(0, 5), numbers=range(5))
            second.send(TARGET, rows(5, 10), numbers=range(5, 10))
            bench.close()
            if bench.transport != "ipc":  # there a client opens them itself
                bench.open()
            with pytest.raises(SenderReplaced):
                first.send(TARGET, rows(10, 15), numbers=range(10, 15))
            assert second.send(TARGET, rows(20, 25), numbers=range(10, 15)) == 5
        assert all_of(bench.data) == [*range(10), *range(20, 25)]

    def test_a_list_of_producers_counts_where_there_are_keys(self, bench: Bench) -> None:
        declare(bench.data, producers=["somebody"])
        declare(bench.data, source="mine", producers=["till"])
        bench.open()
        with bench.connect() as client:
            if bench.keys:
                with pytest.raises(NotAllowed, match='producer "till" may not send') as found:
                    client.send(TARGET, row(0))
                assert found.value.hint
            else:
                assert client.send(TARGET, row(0)) == 1
            assert client.send("f.mine", row(0)) == 1

    def test_large_rows_pass(self, bench: Bench) -> None:
        declare(bench.data, "origin string, n long, at timestamp, body string")
        bench.open()
        sizes = [10, 3_000_000, 10, 9_000_000, 40_000_000, 5]
        given = [{**row(n), "body": "x" * size} for n, size in enumerate(sizes)]
        with bench.connect() as client:
            assert client.send(TARGET, given) == len(sizes)
        assert stored(bench.data) == [list(range(len(sizes)))]

    def test_a_host_that_comes_back_is_found(self, bench: Bench) -> None:
        declare(bench.data, partitions=2)
        bench.open()
        with bench.connect() as client:
            client.send(TARGET, rows(0, 10))
            bench.close()
            waiting = client.send_nowait(TARGET, rows(10, 20))
            bench.open()
            assert waiting.result(120) == 10
            assert client.send(TARGET, rows(20, 30)) == 10
        assert all_of(bench.data) == list(range(30))


class InstructionChecks:
    """What a client is promised that may do more than send rows."""

    def test_instructions_go_to_every_partition(self, bench: Bench) -> None:
        declare(bench.data, partitions=3)
        bench.open()
        with bench.connect() as client:
            for n in range(30):
                client.send_nowait(TARGET, row(n))
            client.watermark(TARGET, NOON + timedelta(seconds=10))
            client.send(TARGET, rows(30, 40))
            client.end(TARGET)
            client.end(TARGET)
        kinds = [kind for kind, _, _ in entries(bench.data)]
        assert kinds.count(Kind.WATERMARK) == kinds.count(Kind.END_OF_STREAM) == 3
        assert all_of(bench.data) == list(range(40))

    def test_an_instruction_passes_a_full_inbox_after_the_rows_before_it(
        self, bench: Bench
    ) -> None:
        declare(bench.data, partitions=2)
        bench.open(rows=5, slow_s=0.01)
        with bench.connect() as client:
            client.send_nowait(TARGET, batch(0, 60))
            client.end(TARGET)
        assert all_of(bench.data) == list(range(60))
        assert [kind for kind, _, _ in entries(bench.data)].count(Kind.END_OF_STREAM) == 2

    def test_an_ended_source_takes_no_more(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open()
        with bench.connect(sender="till") as client:
            client.send(TARGET, rows(0, 3), numbers=range(3))
            assert not client.ended(TARGET)
            client.end(TARGET)
            with pytest.raises(Ended) as found:
                client.send(TARGET, rows(3, 5), numbers=range(4, 6))
            assert found.value.hint
        with bench.connect(sender="till") as client:
            assert client.ended(TARGET)
            assert client.send(TARGET, rows(0, 3), numbers=range(3)) == 3  # what is there is there
        with bench.connect() as client, pytest.raises(Ended):
            client.send(TARGET, row(9))
        assert stored(bench.data) == [[0, 1, 2]]

    def test_records_that_are_no_rows_are_kept_once(self, bench: Bench) -> None:
        declare(bench.data)
        bench.open()
        with bench.connect(sender="till") as client:
            assert (
                client.refuse(
                    TARGET, [Refused(1, "no JSON", "{"), Refused(2, "no JSON", "x" * 5000)]
                )
                == 2
            )
            assert client.refuse(TARGET, [Refused(1, "no JSON", "{")]) == 0
        assert letters(bench.data) == [(1, "no JSON"), (2, "no JSON")]
