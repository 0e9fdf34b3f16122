"""The patterns of a job as they match, as an engine shows them."""

from __future__ import annotations

import msgspec

from millstream.patterns.sketch import Sketch


class KeyRuns(msgspec.Struct, frozen=True):
    """The live runs of a key: since when the oldest waits, and when one took an event last."""

    key: str
    runs: int
    since: str
    last_at: str
    #: By the blocks that they wait for, how many; "" for time to pass.
    waits_for: dict[str, int] = {}


class PatternRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of a stage as of a committed batch: its automaton, and where its live runs are."""

    group: str
    stage: str
    pattern: str
    about: str
    sketch: Sketch
    batch: int | None = None
    runs: int = 0
    #: By state of the automaton, the runs that are in it.
    states: dict[str, int] = {}
    #: The keys whose runs wait longest.
    oldest: tuple[KeyRuns, ...] = ()
    #: The journal with the matches; None if they go to sinks, or to other stages of the group.
    journal: str | None = None
    by: tuple[str, ...] = ()
    #: Why its live runs are not known, if they are not.
    unknown: str | None = None
