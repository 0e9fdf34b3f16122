"""Checks that a target publishes each epoch once, whatever is repeated and wherever it dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

from millstream.clock import EPOCH, micros
from millstream.spark import failpoints
from millstream.spark.io.targets import Epoch, Target, Withdrawing
from millstream.testing.connectors.hostile import COLUMNS, NAMES, check_same, hostile_rows, spoilt

NOON: Final = EPOCH + timedelta(days=18_000, hours=12)
#: What has confused writers before.
ODD_TEXTS: Final = (
    None,
    'a "quoted" text',
    "commas, tabs\t and; more",
    "two\nlines\r\nor three",
    "ä, 漢字 and 🐳",
    "a\\backslash, or two\\\\",
    " spaces around ",
    "null",
    "{}",
)

#: n, text, at, and the other columns of `COLUMNS`, or as many of them as there are.
_Row = tuple[Any, ...]


class TargetPlace(Protocol):
    """An empty place of the system, made for one check."""

    def open(self) -> Target:
        """Open it, as a process does that has just started."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """Return what a reader finds in it: all columns, or at least "n"."""
        ...


@runtime_checkable
class WithLetters(Protocol):
    """A place whose target keeps rows that it cannot write as dead letters."""

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters of the journal in `SinkContext.letters`."""
        ...


class Died(BaseException):
    """Where a process would have died. No `except Exception` catches it."""


#: Makes an empty place, another one each time.
Make = Callable[[], TargetPlace]


@dataclass
class Trial:
    """One place under check. `spark` is the session; its types are Spark's own business."""

    make: Make
    spark: Any
    #: A crash may repeat rows: the target promises no more than that none is missing.
    at_least_once: bool = False
    huge_bytes: int = 10 << 20

    def __post_init__(self) -> None:
        self._begin()

    def renew(self) -> None:
        """Go on in another place, which is empty."""
        self.target.close()
        self._begin()

    def _begin(self) -> None:
        self.place = self.make()
        self.target = self._opened()

    def restart(self) -> None:
        """Go on as the process does that follows one that has died."""
        self.target.close()
        self.target = self._opened()

    def _opened(self) -> Target:
        target = self.place.open()
        target.prepare(self.frame([]).schema)
        target.recover()
        return target

    def frame(self, rows: Sequence[_Row]) -> Any:
        whole = [(*row, *[None] * (len(NAMES) - len(row))) for row in rows]
        frame = self.spark.createDataFrame(whole, COLUMNS)
        return frame.repartition(2) if len(rows) > 1 else frame

    def write(self, batch: int, rows: Sequence[_Row], checkpoint: str = "c1") -> int:
        return self.write_frame(batch, self.frame(rows), checkpoint)

    def write_frame(self, batch: int, frame: Any, checkpoint: str = "c1") -> int:
        return self.target.write(frame, Epoch("job", "group", checkpoint, batch, None))

    def expect(self, *wanted: Sequence[_Row]) -> None:
        """Check that the place holds these rows, each once."""
        numbers = Counter(row[0] for rows in wanted for row in rows)
        found = self.numbers()
        if self.at_least_once:
            assert found.keys() == numbers.keys(), f"expected {numbers}, found {found}"
        else:
            assert found == numbers, f"expected {numbers}, found {found}"

    def numbers(self) -> Counter[int]:
        return Counter(int(row["n"]) for row in self.place.rows())

    def dead(self) -> dict[int, list[str]]:
        """Return the reasons of dead letters, by the numbers of their rows."""
        found: dict[int, list[str]] = {}
        for letter in self.place.dead_letters() if isinstance(self.place, WithLetters) else ():
            found.setdefault(int(json.loads(letter["record"])["n"]), []).append(letter["reason"])
        return found

    def dies(self, at: int, work: Callable[[], object]) -> bool:
        """Do something and die at the so-many-th failpoint; tell whether there was one."""
        passed = 0

        def seen(_: str) -> None:
            nonlocal passed
            passed += 1
            if passed == at:
                raise Died

        try:
            with failpoints.watched(seen):
                work()
        except Died:
            self.restart()
            return True
        return False


def some(first: int, count: int = 3) -> list[_Row]:
    """Return rows a minute apart, from a number on."""
    return [(n, f"text {n}", NOON + timedelta(minutes=n)) for n in range(first, first + count)]


# The checks


def an_epoch_is_published_once(trial: Trial) -> None:
    first, second = some(0), some(10)
    assert trial.write(0, first) == 3, "write returns how many rows it has published"
    trial.expect(first)
    trial.write(0, first[::-1])
    trial.expect(first)
    trial.restart()
    trial.write(0, first)
    trial.write(1, second)
    trial.restart()
    trial.write(1, second)
    trial.expect(first, second)


def an_empty_epoch_publishes_nothing(trial: Trial) -> None:
    rows = some(0)
    for _ in range(2):
        assert trial.write(0, []) == 0
        trial.expect()
    trial.write(1, rows)
    trial.write(2, [])
    trial.restart()
    trial.write(2, [])
    trial.expect(rows)


def to_recover_twice_changes_nothing(trial: Trial) -> None:
    rows = some(0)
    trial.target.recover()
    trial.write(0, rows)
    for _ in range(2):
        trial.target.recover()
        trial.expect(rows)
    trial.restart()
    trial.target.recover()
    trial.expect(rows)


def versions_with_the_same_batch_numbers_are_told_apart(trial: Trial) -> None:
    old, new = some(0), some(10)
    trial.write(0, old, "c1")
    trial.write(0, new, "c2")
    trial.expect(old, new)


def a_process_that_dies_at_any_point_is_followed_by_one_that_finishes(trial: Trial) -> None:
    first, second, third = some(0), some(10), some(20)
    at, deaths = 1, True
    while deaths:
        trial.write(0, first)
        deaths = trial.dies(at, lambda: trial.write(1, second))
        found = trial.numbers()
        whole = {row[0] for row in first + second}
        assert found.keys() in ({row[0] for row in first}, whole), f"a part of an epoch: {found}"
        # And once more at the same point, while it makes up for the first time.
        trial.dies(at, lambda: trial.write(1, second))
        trial.write(1, second)
        trial.write(2, third)
        trial.expect(first, second, third)
        at += 1
        trial.renew()


def odd_values_arrive_as_they_are(trial: Trial) -> None:
    rows: list[_Row] = [(n, text, NOON) for n, text in enumerate(ODD_TEXTS)]
    trial.write(0, rows)
    trial.expect(rows)
    for row in trial.place.rows():
        if "text" in row:
            wanted = ODD_TEXTS[int(row["n"])]
            assert row["text"] == wanted, f"wrote {wanted!r}, found {row['text']!r}"


def huge_rows_and_many_of_them_arrive(trial: Trial) -> None:
    many = some(1, 3000)
    trial.write(0, [(0, "x" * trial.huge_bytes, NOON)])
    trial.write(1, many)
    trial.expect([(0, None, None)], many)
    for row in trial.place.rows():
        if "text" in row and int(row["n"]) == 0:
            assert len(row["text"]) == trial.huge_bytes


def hostile_values_arrive_or_become_dead_letters(trial: Trial) -> None:
    rows, usual = hostile_rows(), some(1000, 50)
    frame = spoilt(trial.frame([*rows, *usual]))
    at, deaths = 1, True
    while deaths:
        deaths = trial.dies(at, lambda: trial.write_frame(0, frame))
        trial.dies(at, lambda: trial.write_frame(0, frame))
        trial.write_frame(0, frame)
        trial.write(1, some(2000))
        found, dead = trial.numbers(), trial.dead()
        assert not found.keys() & dead.keys(), "a row is there and a dead letter"
        expected = [row for row in rows if row[0] not in dead]
        trial.expect(expected, usual, some(2000))
        for number, reasons in dead.items():
            assert number < len(rows), f"row {number}, which is an ordinary one, is a dead letter"
            assert len(reasons) == 1, f"row {number} is a dead letter more than once"
            named = [name for name in NAMES if f'column "{name}"' in reasons[0]]
            assert named, f"the reason names no column: {reasons[0]}"
        for row in trial.place.rows():
            if int(row["n"]) < len(rows):
                check_same(rows[int(row["n"])], row)
        at += 1
        trial.renew()


def what_is_withdrawn_is_gone_and_may_come_again(trial: Trial) -> None:
    if not isinstance(trial.target, Withdrawing):
        return
    timeless: list[_Row] = [(99, "no time", None)]
    rows, since_us = some(0, 6), micros(NOON + timedelta(minutes=3))
    at, deaths = 1, True
    while deaths:
        trial.write(0, rows)
        trial.write(1, timeless)
        deaths = trial.dies(at, lambda: _withdraw(trial, since_us))
        for _ in range(2):
            _withdraw(trial, since_us)
            trial.expect(rows[:3], timeless)
        trial.write(0, rows[3:], "c2")
        trial.expect(rows, timeless)
        _withdraw(trial, since_us)
        trial.write(0, rows[3:5], "c3")
        trial.expect(rows[:5], timeless)
        at += 1
        trial.renew()


def _withdraw(trial: Trial, since_us: int) -> None:
    assert isinstance(trial.target, Withdrawing)
    trial.target.withdraw("at", since_us)


TARGET_CHECKS: Final[tuple[Callable[[Trial], None], ...]] = (
    an_epoch_is_published_once,
    an_empty_epoch_publishes_nothing,
    to_recover_twice_changes_nothing,
    versions_with_the_same_batch_numbers_are_told_apart,
    a_process_that_dies_at_any_point_is_followed_by_one_that_finishes,
    odd_values_arrive_as_they_are,
    huge_rows_and_many_of_them_arrive,
    hostile_values_arrive_or_become_dead_letters,
    what_is_withdrawn_is_gone_and_may_come_again,
)


@contextmanager
def trial(
    make: Make, spark: Any, *, at_least_once: bool = False, huge_bytes: int = 10 << 20
) -> Iterator[Trial]:
    """Lend what one of `TARGET_CHECKS` takes."""
    found = Trial(make, spark, at_least_once, huge_bytes)
    try:
        yield found
    finally:
        found.target.close()


def check_target(
    make: Make, spark: Any, *, at_least_once: bool = False, huge_bytes: int = 10 << 20
) -> None:
    """Check a target.

    Args:
        make: Makes an empty place, another one each time.
        spark: The Spark session.
        at_least_once: The target does not promise more, as a terminal does not.
        huge_bytes: How large a single text may be.

    Raises:
        AssertionError: The target does not keep to what a flow relies on.
    """
    for check in TARGET_CHECKS:
        with trial(make, spark, at_least_once=at_least_once, huge_bytes=huge_bytes) as one:
            check(one)
