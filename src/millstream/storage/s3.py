"""A bucket as a storage: s3://bucket/prefix, on Amazon's S3 or a server that speaks its protocol.

Where the server is and who asks is not part of the address:

    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL   the server, if it is not Amazon's
    AWS_REGION, AWS_DEFAULT_REGION          the region; "us-east-1" if there is none
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
                                            the keys; else the secrets "aws-access-key-id" and
                                            "aws-secret-access-key"; else the machine's role

A put is one request, so a content is whole or not there. `put_if_absent` sends If-None-Match: the
server compares and writes in one step, or it is unfit (`probe`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    BucketMissing,
    InternalError,
    InvalidStorage,
    SecretMissing,
    StorageAway,
    StorageError,
    StorageForbidden,
    StorageUnsafe,
)
from millstream.extras import need
from millstream.secrets import secret, value_of

if TYPE_CHECKING:
    from obstore.store import S3Store

    from millstream.storage.base import Claim

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS: Final = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
#: Whoever has one of these gets keys from its platform.
_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_GIVE_UP: Final = timedelta(seconds=20)
_RACES: Final = 4
_RACERS: Final = 4
_KEYS_HINT: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the secrets aws-access-key-id and "
    "aws-secret-access-key"
)


@dataclass(frozen=True, slots=True)
class S3:
    """The objects of a bucket whose keys begin with a prefix; every process has its own client."""

    bucket: str
    prefix: str = ""
    #: Region, endpoint and keys for processes that have none of their own.
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def with_keys(self) -> S3:
        """Return the same with all that is known here, for processes of other hosts."""
        return replace(self, given=tuple(sorted(self.settings.items())))

    @property
    def address(self) -> str:
        """What `storage_at` takes."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def settings(self) -> dict[str, str]:
        """Region, endpoint and keys, as far as they are known; a role's keys are not."""
        return dict(self.given) or _settings(self.address)

    def read(self, name: str) -> bytes | None:
        with self._translated():
            try:
                return bytes(self._store.get(self._key(name)).bytes())
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def put(self, name: str, content: bytes) -> None:
        with self._translated():
            self._store.put(self._key(name), content, use_multipart=False)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._translated():
            try:
                self._store.put(self._key(name), content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def list(self, folder: str = "") -> list[str]:
        prefix = f"{self._key(folder)}/" if folder else f"{self.prefix}/" if self.prefix else ""
        with self._translated():
            found = self._store.list_with_delimiter(prefix or None)
        begin = len(self.prefix) + 1 if self.prefix else 0
        names = [one["path"][begin:] for one in found["objects"]]
        return sorted(name for name in names if not PurePosixPath(name).name.startswith("."))

    def sizes(self, folder: str = "") -> dict[str, int]:
        prefix = f"{self._key(folder)}/" if folder else f"{self.prefix}/" if self.prefix else ""
        with self._translated():
            found = [one for part in self._store.list(prefix or None) for one in part]
        begin = len(self.prefix) + 1 if self.prefix else 0
        names = {one["path"][begin:]: one["size"] for one in found}
        return {
            name: size
            for name, size in sorted(names.items())
            if not any(part.startswith(".") for part in PurePosixPath(name).parts)
        }

    def delete(self, name: str) -> None:
        with self._translated():
            try:
                self._store.delete(self._key(name))
            except FileNotFoundError as error:
                self._check_bucket(error)

    def delete_all(self, folder: str) -> None:
        with self._translated():
            for found in self._store.list(f"{self._key(folder)}/"):
                self._store.delete([one["path"] for one in found])

    def version(self, name: str) -> str | None:
        with self._translated():
            try:
                found = self._store.head(self._key(name))
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None
        return f"{found['e_tag']}-{found['last_modified'].timestamp()}"

    def claim(self, name: str, *, timeout: float = 0.0) -> Claim | None:  # noqa: ARG002
        # Nothing tells a bucket that a process has died.
        msg = f'"{name}" in {self.address} cannot be held by a process'
        raise InvalidStorage(msg, hint="in a bucket a job is claimed in its numbered log")

    def probe(self) -> None:
        """Check that it answers, and that of several puts-if-absent at once one alone succeeds.

        Raises:
            StorageError: It does not, or not so.
        """
        name = f"probe/{uuid.uuid4().hex}"
        puts = [self.put_if_absent(name, b"") for _ in range(2)]
        for race in range(_RACES if puts == [True, False] else 0):
            # Some servers look first and write then.
            with ThreadPoolExecutor(_RACERS) as racers:
                raced = [f"{name}-{race}"] * _RACERS
                won = list(racers.map(self.put_if_absent, raced, [b""] * _RACERS))
            self.delete(raced[0])
            puts += sorted(won, reverse=True)[:2]
        if puts != [True, False] * (_RACES + 1):
            msg = f"the server of {self.address} lets several callers put one name if absent"
            hint = "use one whose PutObject heeds If-None-Match, as Amazon's S3 does"
            raise StorageUnsafe(msg, hint=hint)
        self.delete(name)

    @property
    def _store(self) -> S3Store:
        return _client(self.bucket, tuple(sorted(self.settings.items())), os.getpid())

    def _key(self, name: str) -> str:
        parts = PurePosixPath(name).parts
        if not parts or any(part.startswith((".", "/")) for part in parts):
            raise InternalError(f'"{name}" cannot be the name of a stored file')
        return "/".join((self.prefix, *parts) if self.prefix else parts)

    def _check_bucket(self, error: FileNotFoundError) -> None:
        if "NoSuchBucket" in str(error):
            raise _missing(self.bucket) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        need("s3", self.address)
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise _translated(error, self.bucket, self.address) from error


def _missing(bucket: str) -> BucketMissing:
    hint = "make it, or correct the address; Millstream makes no buckets"
    return BucketMissing(f'there is no bucket "{bucket}" at {_place()}', hint=hint)


def _place() -> str:
    return _first(_ENDPOINTS) or f"Amazon's S3 in {_first(_REGIONS) or 'us-east-1'}"


def _translated(error: Exception, bucket: str, address: str) -> StorageError:
    text = str(error)
    if "NoSuchBucket" in text:
        return _missing(bucket)
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        hint = f"{_KEYS_HINT}; and they must be allowed to get, put, list and delete in it"
        return StorageForbidden(f"{_place()} refuses the keys for {address}", hint=hint)
    if "credential" in text.lower() or "169.254." in text:
        return StorageForbidden(f"there are no keys for {address}", hint=_KEYS_HINT)
    last = text.partition("\n")[0]
    hint = f"is it running and in reach, and is AWS_ENDPOINT_URL right? The client has: {last}"
    return StorageAway(f"{_place()} does not answer for {address}", hint=hint)


def _first(names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := os.environ.get(name))), None)


def _settings(address: str) -> dict[str, str]:
    """Return what a client needs to know, by obstore's names.

    Raises:
        StorageForbidden: There are no keys.
    """
    found = {"region": _first(_REGIONS) or "us-east-1"}
    if endpoint := _first(_ENDPOINTS):
        found["endpoint"] = endpoint.rstrip("/")
    if token := os.environ.get("AWS_SESSION_TOKEN"):
        found["token"] = token
    try:
        for setting, variable in _KEYS.items():
            named = secret(variable.lower().replace("_", "-"))
            found[setting] = os.environ.get(variable) or value_of(named)
    except SecretMissing as error:
        if endpoint and not _first(_ROLES):  # on Amazon's machines, a role has them
            raise StorageForbidden(f"there are no keys for {address}", hint=_KEYS_HINT) from error
        found = {name: value for name, value in found.items() if name not in _KEYS}
    return found


@lru_cache(maxsize=8)
def _client(bucket: str, settings: tuple[tuple[str, str], ...], _process: int) -> S3Store:
    # By process: its threads do not survive a fork.
    from obstore.store import S3Store

    config = dict(settings)
    http = config.get("endpoint", "").startswith("http://")
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={"allow_http": http, "timeout": _GIVE_UP},
        retry_config={"max_retries": 5, "retry_timeout": _GIVE_UP},
    )
