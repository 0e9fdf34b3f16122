"""Errors of journals, and of what writes events into them."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


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


class LetterMissing(JournalError):
    """There is no such dead letter, or more than one."""


class LetterRefused(JournalError):
    """A dead letter cannot be replayed as it is, or there."""


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
