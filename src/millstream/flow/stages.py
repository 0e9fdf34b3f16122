"""The stages of a flow: frozen data, linked by name.

A stage holds what its user said, with every default filled in, so that nothing further down needs
to know where a value came from. `where` is the user's line and plays no part in comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from millstream.errors import Where
from millstream.flow.matching import Matchable
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.targets import Table, TargetSpec

__all__ = [
    "Action",
    "Apply",
    "Distinct",
    "Fold",
    "Join",
    "Journal",
    "Lookup",
    "Match",
    "Merge",
    "Named",
    "Reads",
    "Sink",
    "Source",
    "Sql",
    "Stage",
    "Where",
    "Window",
]

Named = tuple[tuple[str, str], ...]
#: Over how many parts the keys of a pattern are spread, unless its user says otherwise.
SHARDS: Final = 16
"""Output names, each with its SQL expression."""

# A user's function over DataFrames or over a state and a row: only its user knows the types.
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Events from outside, through the journal of the source's name."""

    name: str
    origin: SourceSpec
    schema: Schema
    time: str | None
    lateness: timedelta
    key: str | None
    ahead: timedelta
    idle: timedelta
    partitions: int
    keep_for: timedelta | None = None
    keep_bytes: int | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Reads:
    """A stream that reads a journal of this flow which is written further down: the way to build a cycle."""

    name: str
    journal: str
    schema: Schema
    time: str | None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Apply:
    """A function from DataFrame to DataFrame; stateless, and it keeps the time column."""

    name: str
    input: str
    function: Function
    schema: Schema | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Sql:
    """A stateless query that reads FROM the stage `input`."""

    name: str
    input: str
    query: str
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Window:
    """Aggregates over windows of event time, aligned to 1970 in UTC.

    tumbling: `size` == `every`; sliding: `size` > `every`; session: `gap`, and how long one lasts at most by the user's word.
    Its columns are those of `by`, window_start, window_end, window_time (the last microsecond: the stream's time), the aggregates.
    """

    name: str
    input: str
    kind: Literal["tumbling", "sliding", "session"]
    size: timedelta | None
    every: timedelta | None
    gap: timedelta | None
    longest: timedelta | None
    by: Named
    aggregates: Named
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Merge:
    """The rows of several streams of one schema."""

    name: str
    inputs: tuple[str, ...]
    where: Where | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows of two streams, equal in the `on` columns and at most `within` apart in time.

    Its columns are the left's, then the right's without `on` and without the right's time column if
    that has the left's name. Its time is the left's; the right's where an outer join has no left
    row.
    """

    name: str
    left: str
    right: str
    on: tuple[str, ...]
    within: timedelta
    how: Literal["inner", "left", "right", "full", "semi"] = "inner"
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A stream joined with a static table: the stream's columns, then the table's without `on`."""

    name: str
    input: str
    table: Table
    on: tuple[str, ...]
    how: Literal["inner", "left"] = "inner"
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Distinct:
    """The first row, in event time, of each value of the `by` columns within a time."""

    name: str
    input: str
    by: tuple[str, ...]
    within: timedelta
    shards: int = 64
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Fold:
    """A user's state per value of the `by` columns: step(state, row) -> (state, output row or None)."""

    name: str
    input: str
    by: tuple[str, ...]
    step: Function
    initial: Any
    output: Schema
    order: Literal["time", "arrival"] = "time"
    shards: int = 64
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Match:
    """The matches of a pattern among the rows of each value of the `by` columns, in event time.

    Its columns are those that it emits, then the input's time column: the moment at which a match
    is certain.
    """

    name: str
    input: str
    pattern: Matchable
    by: tuple[str, ...]
    emit: str | None = None
    shards: int = SHARDS
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Action:
    """A program in any language: it reads `columns` of a row and answers with the columns of `output`, which are added.

    With the contract "one" a row has one answer or none; with "stream" any number.
    """

    name: str
    input: str
    argv: tuple[str, ...]
    columns: tuple[str, ...]
    output: Schema
    contract: Literal["one", "stream"] = "one"
    format: Literal["json", "msgpack", "arrow", "raw"] = "json"
    env: Named = ()
    files: tuple[str, ...] = ()
    time_limit: timedelta = timedelta(minutes=1)
    attempts: int = 3
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    user: str | None = None
    #: The addresses that it may connect to; empty: none; None: any.
    conn_whitelist: tuple[str, ...] | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Journal:
    """A stream with a name on disk: what is above it and what is below it run in groups of their own."""

    name: str
    input: str
    partitions: int = 1
    key: str | None = None
    keep_for: timedelta | None = None
    keep_bytes: int | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Sink:
    """The way out: the rows of a stream go to a target."""

    name: str
    input: str
    target: TargetSpec
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


Stage = (
    Source
    | Reads
    | Apply
    | Sql
    | Window
    | Merge
    | Join
    | Lookup
    | Distinct
    | Fold
    | Match
    | Action
    | Journal
)
"""What has a stream; a Sink has none and is kept apart."""
