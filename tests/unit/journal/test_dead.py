from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millstream.errors import AlreadyWriting
from millstream.journal.base import DeadLetter
from millstream.journal.kinds.files.dead import DeadLetters, dead_counts, dead_waiting
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.repair import repair
from millstream.journal.kinds.files.verify import verify


def letters(journal: Path) -> list[tuple[str, int, int, str]]:
    reader = Reader(dead_folder(journal)).partition(0)
    rows = [row for part in reader.read(reader.begin, reader.end) for row in part.batch.to_pylist()]  # type: ignore[union-attr]
    return [(row["origin"], row["partition"], row["position"], row["reason"]) for row in rows]


def test_a_letter_is_stored_once(journal: Path) -> None:
    with DeadLetters.open(journal) as dead:
        assert dead.put("source", 5, "late", {"a": 1})
        assert not dead.put("source", 5, "late", {"a": 1})
        assert dead.put("source", 5, "late", {"a": 1}, partition=1)
        assert dead.put("other", 5, "no time", "{}")
    assert letters(journal) == [
        ("source", 0, 5, "late"),
        ("source", 1, 5, "late"),
        ("other", 0, 5, "no time"),
    ]


def test_positions_may_come_in_any_order_and_twice_in_one_call(journal: Path) -> None:
    with DeadLetters.open(journal) as dead:
        assert dead.put_all([DeadLetter("s", n, "late", "{}") for n in (9, 3, 9, 7)]) == 3
        assert dead.put_all([DeadLetter("s", n, "late", "{}") for n in (1, 3, 8)]) == 2


def test_one_process_after_the_other_adds_nothing_twice(journal: Path) -> None:
    code = (
        "import sys; from millstream.journal.base import DeadLetter\n"
        "from millstream.journal.kinds.files.dead import DeadLetters\n"
        f"with DeadLetters.open({str(journal)!r}) as dead:\n"
        "    print(dead.put_all([DeadLetter('s', n, 'late', '{}') for n in range(int(sys.argv[1]))]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(count)], stdout=subprocess.PIPE, text=True
        )
        for count in (30, 20)
    ]
    assert sum(int(process.communicate()[0]) for process in processes) == 30
    assert sorted(letters(journal)) == [("s", 0, n, "late") for n in range(30)]


def test_another_process_waits_for_its_turn(journal: Path) -> None:
    first = DeadLetters.open(journal)
    with pytest.raises(AlreadyWriting):
        DeadLetters.open(journal, timeout=0)
    threading.Timer(0.1, first.close).start()
    DeadLetters.open(journal).close()


@pytest.mark.parametrize("harm", ["gone", "rubbish", "behind"])
def test_the_table_is_made_again_from_the_journal(journal: Path, harm: str) -> None:
    table = dead_folder(journal) / "seen.sqlite"
    with DeadLetters.open(journal) as dead:
        dead.put("s", 1, "late", "{}")
    before = table.read_bytes()
    with DeadLetters.open(journal) as dead:
        dead.put("s", 2, "late", "{}")
    if harm == "gone":
        table.unlink()
    else:
        table.write_bytes(before if harm == "behind" else b"rubbish" * 1000)
    assert dead_counts(journal) == {"late": 2}
    with DeadLetters.open(journal) as dead:
        assert not dead.put("s", 2, "late", "{}")
        assert dead.put("s", 3, "late", "{}")
    assert dead_counts(journal) == {"late": 3}


def test_letters_are_counted_by_reason(journal: Path) -> None:
    assert dead_counts(journal) == {}
    with DeadLetters.open(journal) as dead:
        dead.put_all([DeadLetter("s", n, "late" if n % 3 else "no time", "{}") for n in range(9)])
        assert dead_counts(journal) == {"late": 6, "no time": 3}


def test_one_flipped_bit_in_the_table_neither_doubles_nor_loses_a_letter(journal: Path) -> None:
    table = dead_folder(journal) / "seen.sqlite"
    known = [DeadLetter("source", n, "late" if n % 2 else "no time", "{}") for n in range(40)]
    with DeadLetters.open(journal) as dead:
        assert dead.put_all(known) == 40
    sound = table.read_bytes()
    check = (dead_folder(journal) / "seen.check").read_bytes()
    text = sound.index(b"source")
    for place in [*range(text, text + 60), *range(0, len(sound), 499)]:
        flipped = bytearray(sound)
        flipped[place] ^= 1 << place % 8
        table.write_bytes(flipped)
        (dead_folder(journal) / "seen.check").write_bytes(check)
        assert dead_counts(journal) == {"late": 20, "no time": 20}, place
        with DeadLetters.open(journal) as dead:
            assert dead.put_all(known) == 0, place
        assert dead_counts(journal) == {"late": 20, "no time": 20}, place
    assert len(letters(journal)) == 40


def test_damage_of_the_table_is_named_by_verify_and_gone_after_a_repair(journal: Path) -> None:
    with DeadLetters.open(journal) as dead:
        dead.put("s", 1, "late", "{}")
    table = dead_folder(journal) / "seen.sqlite"
    raw = bytearray(table.read_bytes())
    raw[-1] ^= 1
    table.write_bytes(raw)
    (damage,) = verify(dead_folder(journal)).damages
    assert "is not as it was closed" in str(damage)
    assert str(table) in str(damage)
    repair(dead_folder(journal))
    assert verify(dead_folder(journal)).damages == ()


def test_a_table_that_was_not_closed_is_made_again(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        "import os; from millstream.journal.kinds.files.dead import DeadLetters\n"
        f"dead = DeadLetters.open({str(journal)!r})\n"
        "dead.put('s', 1, 'late', '{}')\n"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert dead_counts(journal) == {"late": 1}
    with DeadLetters.open(journal) as dead:
        assert not dead.put("s", 1, "late", "{}")
    assert "seen.sqlite was not closed, or is damaged" in caplog.text
    caplog.clear()
    DeadLetters.open(journal).close()
    assert caplog.text == ""


def test_the_oldest_letters_go_when_there_are_too_many_bytes_and_wait_no_more(
    journal: Path,
) -> None:
    dead = DeadLetters(journal, keep_bytes=20_000)
    for n in range(40):
        dead.put("s", n, "no row", "x" * 1000)
    dead.close()
    kept = [position for _, _, position, _ in letters(journal)]
    assert 4 <= len(kept) <= 20
    assert kept == list(range(40 - len(kept), 40))
    assert dead_counts(journal) == {"no row": 40}
    assert dead_waiting(journal) == {"no row": len(kept)}
    with DeadLetters.open(journal) as dead:
        assert not dead.put("s", 0, "no row", "x"), "it is known that it was there"
