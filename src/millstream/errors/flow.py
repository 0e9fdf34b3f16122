"""Mistakes in the description of a flow, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.errors.root import MillstreamError


@dataclass(frozen=True, slots=True)
class Where:
    """The place in the user's file that a stage or a mistake comes from."""

    file: str
    line: int
    code: str = ""
    column: int | None = None

    def __str__(self) -> str:
        place = f"{_relative(self.file)}:{self.line}" + (
            "" if self.column is None else f":{self.column}"
        )
        return f"  {place}   {self.code}".rstrip()


def _relative(file: str) -> str:
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


class FlowError(MillstreamError):
    """A mistake in the description of a flow, with its place."""

    def __init__(
        self, message: str, *, hint: str | None = None, where: Where | None = None
    ) -> None:
        self.where = where
        if where is not None:
            self.add_note(str(where))
        super().__init__(message, hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_flow_error, (type(self), self.message, self.hint, self.where)


def _rebuild_flow_error(
    kind: type[FlowError], message: str, hint: str | None, where: Where | None
) -> FlowError:
    return kind(message, hint=hint, where=where)


class InvalidName(FlowError):
    """A name is missing, malformed or reserved."""


class DuplicateName(FlowError):
    """Two stages, or two outputs, have the same name."""


class UnknownName(FlowError, AttributeError):
    """Millstream, a flow, a stream or a pattern has nothing of that name."""


class UnknownArgument(FlowError, TypeError):
    """A function was called with an argument that it lacks, or without one that it needs."""


class UnknownStream(FlowError):
    """A stage reads a stream that no stage writes."""


class UnknownJournal(FlowError):
    """A stage reads a journal that no stage writes."""


class ForeignStream(FlowError):
    """A stage reads streams of two flows."""


class CycleWithoutJournal(FlowError):
    """A stage reads its own output without a journal in between."""


class NoOutputs(FlowError):
    """A flow has no sink and no journal."""


class UnknownColumn(FlowError):
    """A stage uses a column that the stream does not have."""


class DuplicateColumn(FlowError):
    """A stage would emit two columns with the same name."""


class UnknownType(FlowError):
    """A type is unknown to Spark, or cannot be stored in a journal."""


class InvalidSchema(FlowError):
    """A schema cannot be parsed."""


class SchemasDiffer(FlowError):
    """Streams that must have the same columns do not."""


class TimesDiffer(FlowError):
    """Streams that must have the same time column do not."""


class NoTime(FlowError):
    """A stage needs event time, and the stream has none."""


class TimeDropped(FlowError):
    """A stage would drop the time column."""


class InvalidDuration(FlowError):
    """A duration cannot be parsed or is invalid."""


class InvalidOption(FlowError):
    """An argument of a stage, source or sink is invalid."""


class InvalidFunction(FlowError):
    """A function does not fit its stage."""


class InvalidSql(FlowError):
    """An expression or a query cannot be parsed as Spark SQL."""


class StatefulSql(FlowError):
    """A query needs state, which must be a stage of its own."""


class DistinctAggregate(FlowError):
    """An aggregate has DISTINCT, which Spark refuses on streams."""


class NotAnAggregate(FlowError):
    """A window's output is not an aggregate of its rows."""


class UnboundedJoin(FlowError):
    """Two streams are joined without a bound in time."""


class NotLoadable(FlowError):
    """A file does not contain exactly one flow that can be loaded."""


class PatternError(FlowError):
    """A mistake in a pattern."""


class ImpossiblePattern(PatternError):
    """A pattern can never match, or its parts contradict each other."""


class UnknownBlock(PatternError):
    """A pattern refers to a block that it does not have, or that comes later."""


class InvalidCondition(PatternError):
    """A condition cannot be evaluated as it is written."""


class UnboundedState(PatternError):
    """The runs of a pattern may live forever."""


class UnsupportedSql(PatternError):
    """A MATCH_RECOGNIZE clause needs what is impossible in a stream, or not supported."""


class UnknownGroup(FlowError):
    """A plan has no group with that name."""


class InvalidScheme(FlowError):
    """A mistake in a scheme of runtimes, with its line and column."""


class SecretMissing(FlowError):
    """A secret that a flow names has no value where it is needed."""
