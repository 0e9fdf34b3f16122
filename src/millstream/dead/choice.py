"""Which letters are meant: by journal, stage, reason, time, id, or a condition on their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import LetterMissing
from millstream.journal import Journal
from millstream.journal.letters import Letter, State, read_log
from millstream.patterns.scalar.function import scalar

WAITING: Final = (State.WAITING, State.REPLAYING)


@dataclass(frozen=True, slots=True)
class Choice:
    """What letters must have in common; None: anything. Moments are microseconds since 1970."""

    journal: str | None = None
    stage: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    where: str | None = None
    ids: tuple[str, ...] = ()
    states: tuple[State, ...] = WAITING

    @property
    def everything(self) -> bool:
        """Whether it leaves out nothing but letters that are done with."""
        limits = (self.journal, self.stage, self.reason, self.since, self.until, self.where)
        return not self.ids and all(one is None for one in limits)


def letters_of(journals: dict[str, Journal]) -> list[Letter]:
    """Return the dead letters of journals, oldest first, each with its state."""
    found = [one for name, journal in journals.items() for one in read_log(name, journal).settled()]
    return sorted(found, key=lambda one: one.at)


def choose(letters: Iterable[Letter], choice: Choice) -> list[Letter]:
    """Return the letters that are meant.

    Raises:
        LetterMissing: There is none with such an id, or more than one.
        InvalidCondition: The condition uses what only Spark computes.
    """
    known = list(letters)
    if choice.ids:
        whole = {one.id: one for one in known}
        known = [whole.get(id_) or _named(whole, id_) for id_ in dict.fromkeys(choice.ids)]
        states: tuple[State, ...] = tuple(State)
    else:
        states = choice.states
    meets = _condition(choice.where)
    return [
        one
        for one in known
        if one.state in states
        and choice.journal in (None, one.journal)
        and choice.stage in (None, one.stage)
        and (choice.reason is None or choice.reason.lower() in one.letter.reason.lower())
        and (choice.since is None or one.at >= choice.since)
        and (choice.until is None or one.at < choice.until)
        and meets(one)
    ]


def _named(letters: Mapping[str, Letter], id_: str) -> Letter:
    found = [one for one in letters if one.startswith(id_)]
    if len(found) == 1:
        return letters[found[0]]
    if found:
        hint = f"give more of it: {', '.join(found[:3])}"
        raise LetterMissing(
            f'{len(found)} dead letters have ids that begin with "{id_}"', hint=hint
        )
    hint = "millstream dead ls JOB --all shows those that are there"
    raise LetterMissing(f'there is no dead letter "{id_}"', hint=hint)


def _condition(where: str | None) -> Callable[[Letter], bool]:
    """Return whether a letter's row meets a condition; one that cannot be computed does not."""
    if where is None:
        return lambda _: True
    function = scalar(where)

    def meets(letter: Letter) -> bool:
        row: dict[str, Any] = letter.row or {}
        try:
            return function(row) is True
        except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
            return False

    return meets
