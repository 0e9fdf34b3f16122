"""A large message in pieces: pure rules.

What a message says is merged by a join, so its parts can be merged one after the other: each piece
but the last is a SYNC of its own, and the last one is the message itself. Only when the last one is
acknowledged has the receiver merged all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from millstream.watch.choice import Kind
from millstream.watch.messages import Happened, RunId, RunRecord, Say

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class _Part:
    """What is in a piece so far; `places` are where its events were in the whole message."""

    events: list[Happened] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    delivered: list[RunId] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    size: int = 0


def pieces(say: Say, limit: int) -> list[Say]:
    """Return a message in pieces of at most `limit` bytes; one run with its events may be more."""
    if len(_encode(say)) <= limit:
        return [say]
    parts = list(_parts(say, limit))
    found = [
        msgspec.structs.replace(say, events=part.events, runs=part.runs, delivered=part.delivered)
        for part in parts
    ]
    before = [
        msgspec.structs.replace(one, kind=Kind.SYNC, reset=False, position=0) for one in found[:-1]
    ]
    return [*before, found[-1]]


def _parts(say: Say, limit: int) -> Iterator[_Part]:
    sizes = [len(_encode(event)) for event in say.events]
    part = _Part()
    for run in say.runs:
        needed = {place for _, place in run.history}
        own = len(_encode(run))
        more = sum(sizes[place] for place in needed if place not in part.places)
        if part.size and part.size + own + more > limit:
            yield part
            part = _Part()
            more = sum(sizes[place] for place in needed)
        for place in sorted(needed - part.places.keys()):
            part.places[place] = len(part.events)
            part.events.append(say.events[place])
        history = [(block, part.places[place]) for block, place in run.history]
        part.runs.append(msgspec.structs.replace(run, history=history))
        part.size += own + more
    for run_id in say.delivered:
        own = len(_encode(run_id))
        if part.size and part.size + own > limit:
            yield part
            part = _Part()
        part.delivered.append(run_id)
        part.size += own
    yield part
