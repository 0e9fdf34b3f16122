"""Where our own small files lie: decisions, records, orders, notes.

The operations are those that object stores have, so that a bucket can stand where a folder does.
Whatever is put is whole, or it is not there; it is durable when `put` returns.

Journals' data, what users' sinks write, and secrets (which need file modes) do not go through here.
"""

from millstream.storage.address import checked_storage, storage_at
from millstream.storage.base import Claim, Storage
from millstream.storage.folder import Folder, StoredFile, put_together
from millstream.storage.s3 import S3

__all__ = [
    "S3",
    "Claim",
    "Folder",
    "Storage",
    "StoredFile",
    "checked_storage",
    "put_together",
    "storage_at",
]
