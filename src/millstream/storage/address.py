"""Which storage an address names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from millstream.errors import InvalidStorage
from millstream.storage.base import Storage
from millstream.storage.folder import Folder
from millstream.storage.s3 import S3


def storage_at(address: str | Path) -> Storage:
    """Return the storage that an address names: a folder, or s3://bucket/prefix.

    Raises:
        InvalidStorage: It names none.
    """
    scheme, place, path, query, fragment = urlsplit(str(address))
    if scheme == "s3":
        if not place or query or fragment or "@" in place:
            hint = "write s3://bucket/prefix; keys and endpoint come from the AWS variables"
            raise InvalidStorage(f'"{address}" does not name a bucket', hint=hint)
        return S3(place, path.strip("/"))
    if scheme and "://" in str(address):
        hint = "a folder, or s3://bucket/prefix"
        raise InvalidStorage(f'"{address}" is not a storage that is known here', hint=hint)
    return Folder(Path(address))


def checked_storage(address: str) -> Storage:
    """Return a storage that several hosts may use, once it is known that it refuses second puts.

    Raises:
        StorageError: It does not answer, or two callers can put the same name if absent.
    """
    storage = storage_at(address)
    if isinstance(storage, S3):
        storage.probe()
    return storage
