"""Where the driver's service is, and the key with which executors come.

The driver makes two keys when the service starts, one for itself and one for all executors of the
run; they are written to no executor's disk and end with the run. The executors' key travels inside
tasks, where the flow's own functions and rows travel too, and never in the options of a source,
which Spark shows in plans and logs. So it is as well protected as the flow is: with Spark's
`spark.authenticate` and `spark.network.crypto.enabled`, nobody in between reads it.

The process that plans batches beside the driver finds it in a file that only this user can read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True)
class ServedPlace:
    """The address of a service, its public key, and the pair of keys of those who may come."""

    host: str
    port: int
    server: bytes
    public: bytes
    secret: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def write_place(file: Path, place: ServedPlace) -> None:
    """Write a place where only this user can read it."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "wb") as out:
        out.write(msgspec.json.encode(place))


def read_place(file: Path | str) -> ServedPlace:
    """Return the place in a file."""
    return msgspec.json.decode(Path(file).read_bytes(), type=ServedPlace)
