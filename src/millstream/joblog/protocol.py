"""The rules of the log, without I/O: each is a generator that yields requests and gets answers.

    Put(number, content)   True: it is there now; False: something is there
    Read(number)           the content of a slot, or None
    Numbers()              the numbers of all slots that are taken
    Remove(number)         free a slot

An answer may be lost: then StorageAway is thrown into the generator, and the put may have been
carried out, or be carried out later. (Any in the types: an answer depends on its request.)

Which slots can be freed. Everything before the last summary is never read again. Yet a slot that
somebody may still try to fill must stay taken:

    the driver of generation g, asleep, tries the slot after its last entry: that is the next claim
    the same, after a lost answer, tries its last entry again: that is the slot before that claim

So claims and the slots before them stay, and nothing else has to. A *claimer* that slept may find a
freed slot: it looks after its put whether there are later entries, and its claim then is void.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millstream.errors import LogDamaged, StorageAway, TakenOver
from millstream.joblog.entries import (
    AnyEntry,
    Claim,
    Decided,
    Decision,
    Release,
    Settled,
    State,
    Summary,
    after,
    decode,
    encode,
)

#: How often a put without an answer is repeated, and a listing with gaps.
ATTEMPTS: Final = 5
_BY_HAND: Final = "was something removed by hand, or does anything else write there?"
#: After how many entries they are summed up.
SUMMARY_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class Put:
    """Store a content in a slot, unless it is taken."""

    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Return the content of a slot."""

    number: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """Return the numbers of all slots that are taken."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Free a slot."""

    number: int


Request = Put | Read | Numbers | Remove


@dataclass(frozen=True, slots=True)
class Log:
    """The log as a driver knows it: what it amounts to, and the next slot."""

    state: State = field(default_factory=State)
    end: int = 0
    #: Where the last summary lies.
    summary: int = -1


#: Says of a log whether the job may be claimed.
Allowed = Callable[[Log], bool]


def glance(known: Log) -> Generator[Request, Any, Log]:
    """Return where the log ends, and who has the job; cheaper than `load`: decisions are not read.

    If the last entry is of the generation that is known, nobody has claimed the job since.
    """
    end = max((yield Numbers()), default=-1) + 1
    if end == known.end:
        return known
    content = None if known.state.released else (yield Read(end - 1))
    last = None if content is None else decode(content)
    if last is None or isinstance(last, Claim | Release | Settled):
        return (yield from load())
    if last.generation != known.state.generation or known.state.settled is not None:
        return (yield from load())
    return replace(known, end=end)


def load() -> Generator[Request, Any, Log]:
    """Read the log from its last summary on.

    Raises:
        LogDamaged: Entries are missing.
    """
    for _ in range(ATTEMPTS):
        numbers = sorted((yield Numbers()))
        found: list[tuple[int, AnyEntry]] = []
        for number in reversed(numbers):
            content = yield Read(number)
            if content is None:  # summed up and removed meanwhile
                break
            found.insert(0, (number, decode(content)))
            if isinstance(found[0][1], Summary):
                break
        # Reading takes a while: what was freed meanwhile, or filled again, does not fit together.
        if _joined(found, numbers):
            with suppress(LogDamaged):
                return _folded(found)
    raise LogDamaged("entries of the job's log are missing, or foreign", hint=_BY_HAND)


def _joined(found: list[tuple[int, AnyEntry]], numbers: list[int]) -> bool:
    if not found:
        return not numbers
    first, entry = found[0]
    begins = first == 0 or isinstance(entry, Summary)
    return begins and [number for number, _ in found] == list(range(first, first + len(found)))


def _folded(found: list[tuple[int, AnyEntry]]) -> Log:
    log = Log()
    for number, entry in found:
        log = _extended(replace(log, end=number), entry)
    return log


def _extended(log: Log, entry: AnyEntry) -> Log:
    if isinstance(entry, Summary):
        return Log(entry.state, log.end + 1, log.end)
    return replace(log, state=after(log.state, log.end, entry), end=log.end + 1)


def take(number: int, content: bytes) -> Generator[Request, Any, bytes]:
    """Put an entry into a slot, and return what is in it then: this one, or another.

    Raises:
        StorageAway: No answer comes; whether the entry is there, or will be, is not known.
    """
    for attempt in range(ATTEMPTS):
        try:
            if (yield Put(number, content)):
                return content
            # It may be ours: the answer to an earlier attempt was lost.
            found = yield Read(number)
        except StorageAway:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if found is not None:
            return bytes(found)
    raise LogDamaged(f"entry {number} of the job's log can be neither put nor read")


def always(log: Log) -> bool:  # noqa: ARG001
    """Let anybody claim."""
    return True


def of_generation(log: Log, generation: int) -> bool:
    """Tell whether a claim is the last one: whoever was given it may go on with the job."""
    return log.state.generation == generation


def claim(entry: Claim, allowed: Allowed = always) -> Generator[Request, Any, Log]:
    """Take the job, from whoever has it; the generation is that of the log's state.

    It is put right behind a log that is `allowed`, or not at all: what was true when somebody
    decided to claim is true when the claim counts.

    Raises:
        TakenOver: Another driver has taken it since, or the log is not allowed.
    """
    content = encode(entry)
    while True:
        log = yield from load()
        if not allowed(log):
            raise TakenOver(f"{log.state.holder or 'somebody'} has the job")
        if (yield from take(log.end, content)) == content:
            break
    if any(number > log.end for number in (yield Numbers())):
        raise TakenOver("another driver has claimed the job meanwhile")
    return _extended(log, entry)


def step(log: Log, entry: AnyEntry) -> Generator[Request, Any, tuple[Log, bool]]:
    """Put an entry into the next slot; return the log with what is there, and whether it is this.

    If it is another one, it is an earlier entry of the same driver, whose answer was lost.

    Raises:
        TakenOver: It is the claim of another driver.
    """
    content = encode(entry)
    found = yield from take(log.end, content)
    there = decode(found)
    if isinstance(there, Claim):
        raise TakenOver(f"{there.holder} has taken over the job")
    return _extended(log, there), found == content


def append(log: Log, entry: AnyEntry) -> Generator[Request, Any, Log]:
    """Put the next entry of the driver that has the job.

    Raises:
        TakenOver: Another driver has taken the job.
    """
    done = False
    while not done:
        log, done = yield from step(log, entry)
    return log


def decide(log: Log, key: str, decided: Decided) -> Generator[Request, Any, Log]:
    """Let an epoch exist, unless it does: then what was decided before stands.

    Raises:
        TakenOver: Another driver has taken the job: publish nothing.
    """
    while not _exists(log.state, key, decided.epoch):
        entry = Decision(generation=log.state.generation, key=key, decided=decided)
        log, _ = yield from step(log, entry)
    return log


def _exists(state: State, key: str, epoch: int) -> bool:
    known = state.decided.get(key)
    return known is not None and known.epoch >= epoch


def sum_up(log: Log) -> Generator[Request, Any, Log]:
    """Sum up everything so far, and free the slots that nobody needs."""
    summed, done = log, False
    while not done:  # an entry of ours that comes first belongs into the summary
        summary = Summary(generation=log.state.generation, state=summed.state)
        summed, done = yield from step(summed, summary)
    try:
        for number in removable((yield Numbers()), summed.state.claims, summed.summary):
            yield Remove(number)
    except StorageAway:
        pass  # the next one frees them
    return summed


def removable(numbers: Iterable[int], claims: Collection[int], summary: int) -> list[int]:
    """Return the slots that can be freed."""
    kept = {*claims, *(number - 1 for number in claims)}
    return sorted(number for number in numbers if number < summary and number not in kept)


def due(log: Log) -> bool:
    """Return whether it is time to sum up."""
    return log.end - log.summary > SUMMARY_EVERY
