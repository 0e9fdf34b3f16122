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
│  ├─ JournalMissing, JournalUnreadable, SchemaConflict
│  ├─ AlreadyWriting, WriterClosed, WriterBroken, Ended
│  ├─ NullTime, NullKey, UnplaceableKey
│  ├─ PositionTrimmed, PositionUnwritten
│  └─ CorruptBatch, CorruptIndex, CorruptStaging
├─ IngestError          events could not be brought into a journal
│  └─ UnsupportedColumn, UnknownFormat, NotThere, FileChanged, SourceFailed
├─ LinkError            an event could not be handed on
│  ├─ LinkClosed, LinkBroken, NoAnswer, NotAllowed, BadFrame
│  ├─ InvalidAddress, NoSuchNetwork, OpenNetwork, WrongNodes, LoopbackInCluster
│  ├─ InvalidKey, KeyExists
│  └─ RowsRefused
├─ ActionError          a user's program, or what it runs in, cannot do its work
│  ├─ BadBytes > FrameTooLarge, FrameTorn
│  ├─ ActionFailed > ActionMissing, ActionDied, ActionHung, TooFewAnswers, TooManyAnswers
│  └─ NetworkOpen, QueueBroken, QueueFull, Fenced
├─ RunError             a flow could not be started or has failed
│  └─ AlreadyRunning, GroupChanged, GroupFailed, ConditionFailed
├─ SwitchError          a running flow cannot be replaced as was asked
│  └─ SwitchImpossible, SwitchRefused, ControlBroken
├─ EngineError          an engine or a cluster cannot do what was asked
│  ├─ NoSuchJob, JobExists, JobBusy, InvalidTransition, JobsRunning
│  ├─ BadPackage, DriverFailed, EngineRunning, EngineClosed, StoreBroken, NoRoom
│  ├─ NoSuchAction, ActionInUse, BadBinary
│  └─ EngineAway, EnginesDiffer, TokenRefused, RequestRefused
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
        place = f"{_shown(self.file)}:{self.line}" + (
            "" if self.column is None else f":{self.column}"
        )
        return f"  {place}   {self.code}".rstrip()


def _shown(file: str) -> str:
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


class FlowError(MillstreamError):
    """A mistake in the description of a flow, with the place where it was made."""

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
    """Two stages, or two outputs, have one name."""


class UnknownStream(FlowError):
    """A stage reads a stream that no stage writes."""


class UnknownJournal(FlowError):
    """A stage reads a journal that no stage writes."""


class ForeignStream(FlowError):
    """Streams of two flows meet in one stage."""


class CycleWithoutJournal(FlowError):
    """A stage reads its own output, and no journal lies between."""


class NoOutputs(FlowError):
    """A flow has neither a sink nor a journal."""


class UnknownColumn(FlowError):
    """A column is used that the stream does not have."""


class DuplicateColumn(FlowError):
    """A stage would put out two columns of one name."""


class UnknownType(FlowError):
    """A type is not one of Spark's, or not one that a journal can hold."""


class InvalidSchema(FlowError):
    """A schema cannot be read."""


class SchemasDiffer(FlowError):
    """Streams that must have the same columns have not."""


class TimesDiffer(FlowError):
    """Streams that must have the same time column have not."""


class NoTime(FlowError):
    """A stage needs event time and the stream has none."""


class TimeDropped(FlowError):
    """A stage would lose the time column."""


class InvalidDuration(FlowError):
    """A length of time cannot be read or makes no sense."""


class InvalidOption(FlowError):
    """An argument of a stage, source or sink makes no sense."""


class InvalidFunction(FlowError):
    """A function cannot do what the stage asks of it."""


class InvalidSql(FlowError):
    """An expression or a query cannot be read as Spark SQL."""


class StatefulSql(FlowError):
    """A query needs state, which belongs into a stage of its own."""


class DistinctAggregate(FlowError):
    """An aggregate has DISTINCT, which Spark refuses on streams."""


class NotAnAggregate(FlowError):
    """A window's output is not an aggregate of its rows."""


class UnboundedJoin(FlowError):
    """Two streams are joined without a bound in time."""


class NotLoadable(FlowError):
    """A file does not hold exactly one flow that can be read."""


class PatternError(FlowError):
    """A mistake in a pattern."""


class ImpossiblePattern(PatternError):
    """A pattern can never match, or its parts do not go together."""


class UnknownBlock(PatternError):
    """A pattern names a block that it does not have, or not yet."""


class InvalidCondition(PatternError):
    """A condition cannot be tested as it is written."""


class UnboundedState(PatternError):
    """The runs of a pattern may live for ever."""


class UnsupportedSql(PatternError):
    """A MATCH_RECOGNIZE clause asks for what a stream cannot do, or we do not."""


class UnknownGroup(FlowError):
    """A plan has no group of that name."""


class InvalidScheme(FlowError):
    """A mistake in a scheme of runtimes, with its line and column."""


# journal


class JournalError(MillstreamError):
    """A journal cannot be read or written."""


class JournalMissing(JournalError):
    """There is no journal at that place, or no such partition in it."""


class JournalUnreadable(JournalError):
    """A journal's description is damaged, or of a newer format."""


class SchemaConflict(JournalError):
    """Rows or a declaration do not fit what the journal is declared to hold."""


class AlreadyWriting(JournalError):
    """Another writer holds the partition."""


class WriterClosed(JournalError):
    """You closed this writer."""


class WriterBroken(JournalError):
    """The disk refused a write; what was not acknowledged may or may not be there: open the writer again."""


class Ended(JournalError):
    """The partition has ended and takes no more rows."""


class NullTime(JournalError):
    """A row has no time."""


class NullKey(JournalError):
    """A row has no key, so it has no partition."""


class UnplaceableKey(JournalError):
    """Keys of this type have no text that all processes agree on."""


class PositionTrimmed(JournalError):
    """The position was removed by retention."""


class PositionUnwritten(JournalError):
    """The position lies after the end."""


class CorruptBatch(JournalError):
    """The bytes of an entry are not those that were written."""

    def __init__(
        self, message: str, *, file: str, position: int, offset: int, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.position = position
        self.offset = offset


class CorruptIndex(JournalError):
    """The index of a segment is not what was written."""

    def __init__(self, message: str, *, file: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.offset = offset


class CopyDiffers(JournalError):
    """A copy of a partition holds what its original does not: one of them is not what it was."""


class CorruptStaging(JournalError):
    """A decided epoch's staged file is damaged or gone."""


# ingest


class IngestError(MillstreamError):
    """Events could not be brought into a journal."""


class UnsupportedColumn(IngestError):
    """A format cannot hold a column of the source's schema."""


class UnknownFormat(IngestError):
    """A file is not of a format that can be read, and nothing says of which it is."""


class NotThere(IngestError):
    """A file, folder or journal that events come from or go to does not exist."""


class FileChanged(IngestError):
    """A recording is not what it was when its replay began."""


class SourceFailed(IngestError):
    """A source has stopped bringing in events."""


# links


class LinkError(MillstreamError):
    """An event could not be handed on."""


class LinkClosed(LinkError):
    """You closed this client, inbox or listener."""


class LinkBroken(LinkError):
    """The other side refused, or is not what it was; what was not acknowledged may or may not be there."""


class NoAnswer(LinkError):
    """Nobody answered in time; what was sent may or may not be there."""


class NotAllowed(LinkError):
    """The other side does not know this producer's key, or does not let it send there."""


class BadFrame(LinkError):
    """Bytes that came over a link are not what this program speaks."""


class InvalidAddress(LinkError):
    """An address or a network cannot be read, or its host is not known."""


class NoSuchNetwork(LinkError):
    """No interface of this host is in the preferred network."""


class OpenNetwork(LinkError):
    """Others could reach this host's inboxes, and no keys say who may."""


class WrongNodes(LinkError):
    """The engines' node numbers are not 0 to N-1, each once."""


class LoopbackInCluster(LinkError):
    """An address that every host takes for its own is among those of several hosts."""


class InvalidKey(LinkError):
    """A key file is missing, damaged or open to others."""


class KeyExists(LinkError):
    """There is a key of that name already, and it is not written over."""


class RowsRefused(LinkError):
    """Rows do not fit what their source is declared to hold; none of them was sent."""


# actions


class ActionError(MillstreamError):
    """A user's program, or what it runs in, cannot do its work."""


class BadBytes(ActionError):
    """Bytes from a program or a connection are not what was agreed."""


class FrameTooLarge(BadBytes):
    """A frame says that it is longer than the limit."""


class FrameTorn(BadBytes):
    """The bytes end within a frame."""


class ActionFailed(ActionError):
    """A program did not do what its contract says; its last lines are in the message."""


class ActionMissing(ActionFailed):
    """There is no such program, or it may not be run."""


class ActionDied(ActionFailed):
    """A program ended while it was needed."""


class ActionHung(ActionFailed):
    """A program did not answer in time."""


class TooFewAnswers(ActionFailed):
    """A program ended as if all were done, and had not answered all that it was given."""


class TooManyAnswers(ActionFailed):
    """A program answered more often than it was asked."""


class NetworkOpen(ActionError):
    """The system does not permit to close a program's network, so the program is not started."""


class QueueBroken(ActionError):
    """The queue of a runtime is damaged, or the disk refused a write."""


class QueueFull(ActionError):
    """The disk has no room for more; what was not written is not in the queue."""


class Fenced(ActionError):
    """A runtime was replaced by one of a later generation and may not send any more."""


# spark


class RunError(MillstreamError):
    """A flow could not be started or has failed."""


class AlreadyRunning(RunError):
    """Another process runs this flow on the same data."""


class GroupChanged(RunError):
    """A group means something else than when its checkpoint was made."""


class ConditionFailed(RunError):
    """A condition of a pattern, a function of the user's, raised an error."""


class GroupFailed(RunError):
    """The Spark query of a group died."""


# switch


class SwitchError(MillstreamError):
    """A running flow cannot be replaced as was asked."""


class SwitchImpossible(SwitchError):
    """What the two versions are does not allow a switch from one to the other; nothing was touched."""


class SwitchRefused(SwitchError):
    """A switch cannot be begun, aborted or changed in the state that it is in."""


class ControlBroken(SwitchError):
    """The record that decides about a switch is damaged or could not be written."""


# engine


class EngineError(MillstreamError):
    """An engine or a cluster cannot do what was asked."""


class NoSuchJob(EngineError):
    """An engine has no job of that name or id."""


class JobExists(EngineError):
    """A job of that name is deployed already."""


class JobBusy(EngineError):
    """A job still has work to do, which would be lost."""


class InvalidTransition(EngineError):
    """A job cannot go from its state to the one that was asked for."""


class JobsRunning(EngineError):
    """An engine still runs jobs, and stays for them."""


class BadPackage(EngineError):
    """What was deployed is not a flow's package, or is too large."""


class DriverFailed(EngineError):
    """The process that runs a job's flow did not start or did not answer."""


class EngineRunning(EngineError):
    """Another engine has the same data folder."""


class EngineClosed(EngineError):
    """The engine is not started, or closing."""


class StoreBroken(EngineError):
    """The engine could not write down what it was about to do, so it did not."""


class NoRoom(EngineError):
    """The disk of an engine is full; what was to be done may work when there is room."""


class NoSuchAction(EngineError):
    """An engine keeps no program of that name, version or content."""


class ActionInUse(EngineError):
    """A job runs the version of a program that was to be removed."""


class BadBinary(EngineError):
    """The bytes of a program are too many, or not those that were announced."""


class EngineAway(EngineError):
    """An engine cannot be reached, or did not answer in time; what was asked may or may not be done."""


class EnginesDiffer(EngineError):
    """The engines of a cluster do not agree about what they are, or about a job."""


class TokenRefused(EngineError):
    """A request that changes something came without the engine's token, or with another one."""


class RequestRefused(EngineError):
    """A request over HTTP is too large, too frequent, or cannot be read."""


class InternalError(MillstreamError):
    """Our own mistake: please report it."""
