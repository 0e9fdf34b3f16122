"""Replaying letters into the sources of a flow: each once, where that is sound."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.dead.choice import Choice, choose, letters_of
from millstream.dead.editing import as_lines, read_lines
from millstream.dead.replay import Order, Replayed, Replayer
from millstream.dead.ways import AsWriter, ThroughInboxes, Way
from millstream.errors import Ended, LetterMissing, LetterRefused, NotThere
from millstream.journal import DeadLetter, journal_at, journals_in
from millstream.journal.letters import Letter, Row, State
from millstream.links.client import Client
from support.links import NOON, declare, journal, row, stored

ALL = Choice(states=tuple(State))


def record(n: int, **more: Any) -> str:
    return json.dumps({**row(n), **more}, default=str)


def put(data: Path, *letters: DeadLetter, source: str = "s") -> None:
    with journal_at(journal(data, source)).dead_letters() as dead:
        dead.put_all(letters)


def refused(n: int, text: str | None = None) -> DeadLetter:
    return DeadLetter("producer", n, "malformed record", text or record(n))


def letters(data: Path, **choice: Any) -> list[Letter]:
    found = letters_of(journals_in(data / "f" / "journals"))
    return choose(found, Choice(states=tuple(State), **choice))


def states(data: Path) -> list[str]:
    return [str(one.state) for one in letters(data)]


def replayer(data: Path, way: Way | None = None) -> Replayer:
    return Replayer(data / "f", way or AsWriter(data / "f"))


def replay(data: Path, way: Way | None = None, **order: Any) -> Replayed:
    return replayer(data, way).replay(letters(data), Order(**order))


def flat(data: Path, source: str = "s") -> list[int]:
    return sorted(n for part in stored(data, source) for n in part)


class Once:
    """A way that fails once, before or after it has sent."""

    def __init__(self, way: Way, *, after: bool) -> None:
        self.way, self.after, self.failed = way, after, False

    def send(self, source: str, sender: str, rows: Sequence[Row]) -> None:
        if self.after or self.failed:
            self.way.send(source, sender, rows)
        if not self.failed:
            self.failed = True
            raise OSError("the power is gone")


def test_a_letter_of_a_source_is_sent_there_again_and_kept_as_replayed(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, refused(1), refused(2), refused(3, "rubbish"))
    done = replay(tmp_path)
    assert len(done.replayed) == 2
    assert "malformed record" in next(iter(done.refused.values()))
    assert flat(tmp_path) == [1, 2]
    assert states(tmp_path) == ["replayed", "replayed", "waiting"]
    assert sum(journal_at(journal(tmp_path)).dead_waiting().values()) == 1
    assert sum(journal_at(journal(tmp_path)).dead_counts().values()) == 3
    assert replay(tmp_path).replayed == ()
    assert flat(tmp_path) == [1, 2]


def test_letters_are_replayed_in_any_order(tmp_path: Path) -> None:
    declare(tmp_path, partitions=3)
    put(tmp_path, *(refused(n) for n in range(9)))
    found = letters(tmp_path)
    for at in (7, 2, 8, 0):
        replayer(tmp_path).replay([found[at]], Order(late=True))
    replay(tmp_path, late=True)
    assert flat(tmp_path) == list(range(9))


@pytest.mark.parametrize("after", [False, True])
def test_a_replay_that_was_interrupted_is_finished_by_the_next(tmp_path: Path, after: bool) -> None:
    declare(tmp_path, partitions=2)
    put(tmp_path, refused(1), refused(2))
    with pytest.raises(OSError, match="the power is gone"):
        replay(tmp_path, Once(AsWriter(tmp_path / "f"), after=after))
    assert states(tmp_path) == ["replaying", "replaying"]
    put(tmp_path, refused(3))
    replayer(tmp_path).replay(letters(tmp_path)[2:], Order())
    assert flat(tmp_path) == [1, 2, 3]
    assert states(tmp_path) == ["replayed"] * 3


def test_two_replays_at_once_add_each_row_once(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    put(tmp_path, *(refused(n) for n in range(20)))
    found = letters(tmp_path)
    threads = [
        threading.Thread(
            target=lambda: Replayer(tmp_path / "f", AsWriter(tmp_path / "f", timeout=30)).replay(
                found, Order()
            )
        )
        for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert flat(tmp_path) == list(range(20))
    assert set(states(tmp_path)) == {"replayed"}


def test_rows_go_through_the_inboxes_of_a_flow(tmp_path: Path) -> None:
    declare(tmp_path, partitions=2)
    put(tmp_path, *(refused(n) for n in range(5)))

    def connect(sender: str) -> Client:
        return Client(tmp_path, sender=sender, timeout=20)

    way = ThroughInboxes("f", connect)
    with pytest.raises(OSError, match="the power is gone"):
        replay(tmp_path, Once(way, after=True))
    replay(tmp_path, way)
    replayer(tmp_path, way).finish("s")
    assert flat(tmp_path) == list(range(5))
    with Client(tmp_path, timeout=20) as client:
        client.end("f.s")
    put(tmp_path, refused(9))
    with pytest.raises(Ended):
        replay(tmp_path, way)


def test_an_edited_row_is_checked_before_anything_is_sent(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, refused(1, "rubbish"), refused(2))
    first, second = (json.loads(line) for line in as_lines(letters(tmp_path)).splitlines())
    assert (first["row"], first["record"]) == (None, "rubbish")
    assert second["row"]["n"] == 2
    lines = [{**first, "row": json.loads(record(5))}, {**second, "row": {**second["row"], "m": 1}}]
    edited = read_lines("\n".join(json.dumps(one) for one in lines))
    with pytest.raises(LetterRefused, match='unknown field "m"'):
        replay(tmp_path, edited=edited, whole=True)
    assert flat(tmp_path) == []
    assert states(tmp_path) == ["waiting", "waiting"]
    edited[second["id"]] = record(6)
    replay(tmp_path, edited=edited, whole=True)
    assert flat(tmp_path) == [5, 6]


@pytest.mark.parametrize(
    ("line", "why"),
    [("{", "not JSON"), ('{"row": {}}', "no id"), ('{"id": "a"}', "no row"), ("[]", "no id")],
)
def test_a_line_that_is_no_letter_is_refused(line: str, why: str) -> None:
    with pytest.raises(LetterRefused, match=f"line 2 .*{why}"):
        read_lines(f"\n{line}")
    with pytest.raises(LetterRefused, match="so has a line before it"):
        read_lines('{"id": "a", "row": {}}\n' * 2)


def test_the_row_of_a_stage_goes_to_a_source_of_its_own_alone(tmp_path: Path) -> None:
    declare(tmp_path)
    declare(tmp_path, source="retry")
    put(tmp_path, DeadLetter("fold:visits", 4, 'fold "visits" failed: KeyError', record(4)))
    (why,) = replay(tmp_path).refused.values()
    assert 'fold "visits" refused it after it was in the journal' in why
    assert "--to SOURCE" in why
    with pytest.raises(NotThere, match='no source "retyr"'):
        replay(tmp_path, to="retyr")
    replay(tmp_path, to="retry")
    replay(tmp_path, to="retry")
    assert (flat(tmp_path), flat(tmp_path, "retry")) == ([], [4])


def test_what_a_group_writes_is_not_replayed_there(tmp_path: Path) -> None:
    description, _ = declare(tmp_path)
    hours = journal_at(journal(tmp_path, "hours"))
    hours.create(description.schema, time="at", written_by="group")
    put(tmp_path, DeadLetter("group:hourly", 1, "too large", record(1)), source="hours")
    with pytest.raises(LetterRefused, match="written by a group"):
        replay(tmp_path)


def test_a_row_behind_the_floor_waits_unless_it_may_be_late(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, refused(1), refused(3600))
    replayer(tmp_path).replay(letters(tmp_path)[1:], Order())
    why = replay(tmp_path).refused[letters(tmp_path)[0].id]
    assert "rows before 2026-01-01 13:00:00 are late" in why
    replay(tmp_path, late=True)
    assert flat(tmp_path) == [1, 3600]


def test_a_late_row_is_in_the_journal_and_replayed_only_if_you_say_so(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, DeadLetter("late:s", 1, "late", record(1)))
    (why,) = replay(tmp_path).refused.values()
    assert "switch with --from" in why
    replay(tmp_path, late=True)
    assert flat(tmp_path) == [1]


def test_discarded_letters_are_not_replayed(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, refused(1), refused(2))
    assert replayer(tmp_path).discard(letters(tmp_path)[:1]) == 1
    assert replayer(tmp_path).discard(letters(tmp_path)[:1]) == 0
    assert next(iter(replay(tmp_path).refused.values())) == "it is discarded"
    assert flat(tmp_path) == [2]
    assert journal_at(journal(tmp_path)).dead_waiting() == {}


def test_letters_are_chosen_by_stage_reason_time_row_and_id(tmp_path: Path) -> None:
    declare(tmp_path)
    put(tmp_path, refused(1), refused(2, "rubbish"))
    put(tmp_path, DeadLetter("match:fraud", 7, "the event has no origin", record(7, origin=None)))
    one, two, three = letters(tmp_path)
    assert letters(tmp_path, stage="fraud") == [three]
    assert letters(tmp_path, journal="s", stage="s") == [one, two]
    assert letters(tmp_path, reason="NO ORIGIN") == [three]
    assert letters(tmp_path, where="n > 1 AND origin IS NULL") == [three]
    assert letters(tmp_path, where="origin = 'k1'") == [one]
    assert letters(tmp_path, since=three.at + 1) == []
    assert letters(tmp_path, until=one.at) == []
    assert letters(tmp_path, ids=(two.id, two.id[:8])) == [two, two]
    assert len({one.id, two.id, three.id}) == 3
    with pytest.raises(LetterMissing, match='no dead letter "nix"'):
        letters(tmp_path, ids=("nix",))
    with pytest.raises(LetterMissing, match="3 dead letters have ids"):
        letters(tmp_path, ids=("",))


def test_a_sender_cannot_pass_for_a_mark(tmp_path: Path) -> None:
    declare(tmp_path)
    forged = json.dumps({"discard": ["producer", 0, 1]})
    put(tmp_path, refused(1), DeadLetter("mark:", 0, "malformed record", forged))
    assert states(tmp_path) == ["waiting", "waiting"]
    assert letters(tmp_path)[1].letter.origin == "sender mark:"


def test_an_id_is_the_same_for_ever(tmp_path: Path) -> None:
    one = Letter("orders", DeadLetter("producer", 3, "late", "{}"), 0)
    assert one.id == Letter("orders", DeadLetter("producer", 3, "other", ""), 9).id
    assert one.id == "62e92e97768406fc"


def test_times_of_letters_are_those_at_which_they_were_put(tmp_path: Path) -> None:
    declare(tmp_path)
    before = int((NOON + timedelta(days=1)).timestamp() * 1e6)
    put(tmp_path, refused(1))
    assert letters(tmp_path)[0].at > before
