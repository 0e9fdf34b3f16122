"""The outbox: complex events on disk, with a cursor for each output."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.watch.complex_event import ComplexEvent
from millstream.watch.outbox import Outbox


def found(number: int) -> ComplexEvent:
    return ComplexEvent(f"run{number}", "hot", "A", number, {"n": number})


def opened(folder: Path, *outputs: str, sender: str = "A@1") -> Outbox:
    return Outbox(folder, sender, outputs or ("one",))


def runs(outbox: Outbox, output: str = "one") -> list[str]:
    return [entry.run for entry in outbox.read(output, timeout=0)]


def test_an_entry_leaves_after_it_is_released(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.append([found(1)])
    assert runs(outbox) == []
    outbox.release()
    assert runs(outbox) == ["run1"]
    outbox.close()


def test_what_is_not_done_is_there_again_after_a_restart_with_its_sender_and_number(
    tmp_path: Path,
) -> None:
    outbox = opened(tmp_path)
    outbox.append([found(1), found(2), found(3)])
    outbox.release()
    first, *_ = outbox.read("one", timeout=0)
    outbox.done("one", first.number)
    outbox.close()
    again = opened(tmp_path, sender="A@2")
    assert runs(again) == ["run2", "run3"]
    again.append([found(4)])
    again.release()
    entries = again.read("one", timeout=0)
    assert entries  # what was read ahead comes first
    again.done("one", entries[-1].number)
    last = again.read("one", timeout=0)
    senders = {entry.run: entry.sender for entry in (*entries, *last)}
    assert senders == {"run2": "A@1", "run3": "A@1", "run4": "A@2"}
    numbers = [entry.number for entry in (*entries, *last)]
    assert numbers == sorted(set(numbers))
    again.close()


def test_an_output_that_is_behind_keeps_entries_that_another_has(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "quick", "slow")
    outbox.append([found(1), found(2)])
    outbox.release()
    outbox.done("quick", outbox.read("quick", timeout=0)[-1].number)
    assert outbox.waiting() == {"quick": 0, "slow": 2}
    outbox.close()
    again = opened(tmp_path, "quick", "slow")
    assert (runs(again, "quick"), runs(again, "slow")) == ([], ["run1", "run2"])
    again.close()


def test_a_new_output_begins_with_what_is_found_next(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "one")
    outbox.append([found(1)])
    outbox.close()
    again = opened(tmp_path, "one", "new")
    again.append([found(2)])
    again.release()
    assert runs(again, "new") == ["run2"]
    again.close()


def test_a_run_that_was_found_before_a_crash_is_not_added_again(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.append([found(1)])  # and the crash comes before the event is acknowledged
    outbox.close()
    again = opened(tmp_path, sender="A@2")
    again.append([found(1), found(2)])
    again.release()
    first = again.read("one", timeout=0)
    again.done("one", first[-1].number)
    assert [entry.run for entry in (*first, *again.read("one", timeout=0))] == ["run1", "run2"]
    again.close()


@pytest.mark.parametrize("count", [1, 5000])
def test_all_entries_come_in_order(tmp_path: Path, count: int) -> None:
    outbox = opened(tmp_path)
    outbox.append([found(number) for number in range(count)])
    outbox.release()
    seen: list[str] = []
    while entries := outbox.read("one", timeout=0):
        seen += [entry.run for entry in entries]
        outbox.done("one", entries[-1].number)
    assert seen == [f"run{number}" for number in range(count)]
    assert outbox.drained(0)
    outbox.close()
