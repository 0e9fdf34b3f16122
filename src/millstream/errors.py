"""Every error that Millstream raises on purpose.

MillstreamError
├─ FlowError            a mistake in the description of a flow
│  ├─ InvalidName, DuplicateName
│  ├─ UnknownStream, UnknownJournal, ForeignStream, CycleWithoutJournal, NoOutputs
│  ├─ UnknownColumn, DuplicateColumn, UnknownType, InvalidSchema, SchemasDiffer
│  ├─ NoTime, TimeDropped, TimesDiffer, UnboundedJoin
│  ├─ InvalidDuration, InvalidOption, InvalidFunction
│  ├─ InvalidSql, StatefulSql, DistinctAggregate, NotAnAggregate
│  ├─ PatternError      a mistake in a pattern
│  │  └─ ImpossiblePattern, UnknownBlock, InvalidCondition, UnboundedState, UnsupportedSql
│  └─ NotLoadable, UnknownGroup, InvalidScheme
├─ JournalError         a journal cannot be read or written
│  ├─ JournalMissing, UnknownJournalKind, JournalUnreadable, SchemaConflict
│  ├─ AlreadyWriting, WriterClosed, WriterBroken, Ended
│  ├─ NullTime, NullKey, UnplaceableKey
│  ├─ PositionTrimmed, PositionUnwritten
│  └─ CorruptBatch, CorruptIndex, CorruptSenders, CorruptStaging
├─ IngestError          events could not be written into a journal
│  └─ UnsupportedColumn, UnknownFormat, NotThere, FileChanged, SourceFailed
├─ LinkError            an event could not be sent
│  ├─ LinkClosed, LinkBroken, NoAnswer, NotAllowed, BadFrame
│  ├─ InvalidAddress, NoSuchNetwork, OpenNetwork, WrongNodes, LoopbackInCluster
│  ├─ InvalidKey, KeyExists
│  └─ RowsRefused
├─ ActionError          a user's program, or its runtime, failed
│  ├─ BadBytes > FrameTooLarge, FrameTorn
│  ├─ ActionFailed > ActionMissing, ActionDied, ActionHung, TooFewAnswers, TooManyAnswers
│  └─ NetworkOpen, QueueBroken, QueueFull, Fenced
├─ RunError             a flow could not be started or has failed
│  └─ AlreadyRunning, GroupChanged, GroupFailed, ConditionFailed
├─ SwitchError          a running flow cannot be replaced as requested
│  └─ SwitchImpossible, SwitchRefused, ControlBroken
├─ EngineError          an engine or a cluster cannot carry out a request
│  ├─ NoSuchJob, JobExists, JobBusy, InvalidTransition, JobsRunning
│  ├─ BadPackage, DriverFailed, EngineRunning, EngineClosed, StoreBroken, NoRoom
│  ├─ NoSuchAction, ActionInUse, BadBinary
│  └─ EngineAway, EnginesDiffer, TokenRefused, NotPermitted, RequestRefused
└─ InternalError        our own mistake: please report it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class MillstreamError(Exception):
    """The root: a fact, and a hint on what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.__dict__.copy())


def _rebuild(
    kind: type[MillstreamError], message: str, hint: str | None, state: dict[str, object]
) -> MillstreamError:
    error = kind.__new__(kind)
    MillstreamError.__init__(error, message, hint=hint)
    error.__dict__.update({k: v for k, v in state.items() if k != "__notes__"})
    return error


# flow and plan


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


# journal


class JournalError(MillstreamError):
    """A journal cannot be read or written."""


class JournalMissing(JournalError):
    """There is no journal in that folder, or no such partition in it."""


class UnknownJournalKind(JournalError):
    """A journal's address names a kind that cannot be read or written."""


class JournalUnreadable(JournalError):
    """A journal's description is damaged, or of a newer format."""


class SchemaConflict(JournalError):
    """Rows or a declaration do not fit the schema of the journal."""


class AlreadyWriting(JournalError):
    """Another writer holds the partition."""


class WriterClosed(JournalError):
    """You closed this writer."""


class WriterBroken(JournalError):
    """The disk refused a write: open the writer again.

    Rows that were not acknowledged may or may not be stored.
    """


class Ended(JournalError):
    """The partition has ended and accepts no more rows."""


class NullTime(JournalError):
    """A row has no time."""


class NullKey(JournalError):
    """A row has no key, so it has no partition."""


class UnplaceableKey(JournalError):
    """Keys of this type have no text form that is the same in all processes."""


class PositionTrimmed(JournalError):
    """The position was removed by retention."""


class PositionUnwritten(JournalError):
    """The position is after the end."""


class CorruptBatch(JournalError):
    """The bytes of an entry are damaged."""

    def __init__(
        self, message: str, *, file: str, position: int, offset: int, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.position = position
        self.offset = offset


class CorruptIndex(JournalError):
    """The index of a segment is damaged."""

    def __init__(self, message: str, *, file: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.offset = offset


class CorruptSenders(JournalError):
    """It is not known who sent the rows of a partition, so nothing is appended to it."""

    def __init__(self, message: str, *, file: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.offset = offset


class CopyDiffers(JournalError):
    """A copy of a partition has rows that its original does not have: one of them was changed."""


class CorruptStaging(JournalError):
    """A staged file of a committed epoch is damaged or missing."""


# ingest


class IngestError(MillstreamError):
    """Events could not be written into a journal."""


class UnsupportedColumn(IngestError):
    """A format does not support a column of the source's schema."""


class UnknownFormat(IngestError):
    """The format of a file is unknown or not supported."""


class NotThere(IngestError):
    """A file, folder or journal does not exist."""


class FileChanged(IngestError):
    """A recording has changed since its replay began."""


class SourceFailed(IngestError):
    """A source has stopped reading events."""


# links


class LinkError(MillstreamError):
    """An event could not be sent."""


class LinkClosed(LinkError):
    """You closed this client, inbox or listener."""


class LinkBroken(LinkError):
    """The peer refused, or is another one than before.

    Rows that were not acknowledged may or may not be stored.
    """


class NoAnswer(LinkError):
    """There was no response in time; rows that were sent may or may not be stored."""


class NotAllowed(LinkError):
    """The peer does not know this producer's key, or does not permit it to send there."""


class BadFrame(LinkError):
    """Bytes that came over a link do not follow the protocol."""


class InvalidAddress(LinkError):
    """An address or a network cannot be parsed, or its host is unknown."""


class NoSuchNetwork(LinkError):
    """No interface of this host is in the preferred network."""


class OpenNetwork(LinkError):
    """Other hosts could reach the inboxes of this host, and there are no keys."""


class WrongNodes(LinkError):
    """The node numbers of the engines are not 0 to N-1, each once."""


class LoopbackInCluster(LinkError):
    """A loopback address is among the addresses of several hosts."""


class InvalidKey(LinkError):
    """A key file is missing, damaged or readable by others."""


class KeyExists(LinkError):
    """A key with that name exists, and is not overwritten."""


class RowsRefused(LinkError):
    """Rows do not fit the schema of their source; none of them was sent."""


# actions


class ActionError(MillstreamError):
    """A user's program, or its runtime, failed."""


class BadBytes(ActionError):
    """Bytes from a program or a connection do not follow the protocol."""


class FrameTooLarge(BadBytes):
    """The length of a frame is above the limit."""


class FrameTorn(BadBytes):
    """The bytes end within a frame."""


class ActionFailed(ActionError):
    """A program violated its contract; the message has its last lines."""


class ActionMissing(ActionFailed):
    """There is no such program, or it is not executable."""


class ActionDied(ActionFailed):
    """A program ended while it was needed."""


class ActionHung(ActionFailed):
    """A program did not answer in time."""


class TooFewAnswers(ActionFailed):
    """A program ended before it had answered all of its inputs."""


class TooManyAnswers(ActionFailed):
    """A program gave more answers than it had inputs."""


class NetworkOpen(ActionError):
    """The system cannot restrict a program's network, so the program is not started."""


class QueueBroken(ActionError):
    """The queue of a runtime is damaged, or the disk refused a write."""


class QueueFull(ActionError):
    """The disk is full; what was not written is not in the queue."""


class Fenced(ActionError):
    """A runtime was replaced by one of a later generation and can no longer send."""


# spark


class RunError(MillstreamError):
    """A flow could not be started or has failed."""


class AlreadyRunning(RunError):
    """Another process runs this flow on the same data."""


class GroupChanged(RunError):
    """A group has changed since its checkpoint was made."""


class ConditionFailed(RunError):
    """A condition of a pattern that is a Python function raised an error."""


class GroupFailed(RunError):
    """The Spark query of a group died."""


# switch


class SwitchError(MillstreamError):
    """A running flow cannot be replaced as requested."""


class SwitchImpossible(SwitchError):
    """A switch between these two versions is impossible; nothing was changed."""


class SwitchRefused(SwitchError):
    """A switch cannot be started, aborted or changed in its current state."""


class ControlBroken(SwitchError):
    """The decision record of a switch is damaged or could not be written."""


# engine


class EngineError(MillstreamError):
    """An engine or a cluster cannot carry out a request."""


class NoSuchJob(EngineError):
    """An engine has no job with that name or id."""


class JobExists(EngineError):
    """A job with that name is deployed already."""


class JobBusy(EngineError):
    """A job still has unprocessed events, which would be lost."""


class InvalidTransition(EngineError):
    """A job cannot go from its state to the requested one."""


class JobsRunning(EngineError):
    """An engine cannot stop because it still runs jobs."""


class BadPackage(EngineError):
    """A package does not contain a flow, or is too large."""


class DriverFailed(EngineError):
    """The driver of a job did not start or did not respond."""


class EngineRunning(EngineError):
    """Another engine uses the same data folder."""


class EngineClosed(EngineError):
    """The engine is not started, or closing."""


class StoreBroken(EngineError):
    """The engine could not save the next step of a job, so it did not take it."""


class NoRoom(EngineError):
    """The disk of an engine is full; try again when there is space."""


class NoSuchAction(EngineError):
    """An engine has no program with that name, version or content."""


class ActionInUse(EngineError):
    """A program cannot be removed because a job runs it."""


class BadBinary(EngineError):
    """The bytes of a program are too many, or do not match their hash."""


class EngineAway(EngineError):
    """An engine cannot be reached, or did not respond in time.

    The request may or may not have been carried out.
    """


class EnginesDiffer(EngineError):
    """The engines of a cluster do not agree about the cluster, or about a job."""


class TokenRefused(EngineError):
    """A request has no token, or one that is wrong, revoked or expired."""


class NotPermitted(EngineError):
    """A token does not permit what was requested."""


class RequestRefused(EngineError):
    """An HTTP request is too large, too frequent, or cannot be parsed."""


class InternalError(MillstreamError):
    """Our own mistake: please report it."""
