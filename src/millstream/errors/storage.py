"""Errors of the storage that holds a job's small files."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class StorageError(MillstreamError):
    """A storage could not do what was asked of it."""


class InvalidStorage(StorageError):
    """An address names no storage, or one without what is needed."""


class StorageAway(StorageError):
    """A storage does not answer; whether it has carried out the last request is not known."""


class BucketMissing(StorageError):
    """There is no such bucket."""


class StorageForbidden(StorageError):
    """A storage refuses the keys, or there are none."""


class StorageUnsafe(StorageError):
    """A storage lets two callers put the same name, each as if it were the first."""


class LogDamaged(StorageError):
    """The entries of a job's log do not follow each other."""
