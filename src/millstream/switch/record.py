"""The control record: what is durable about a switch, and decides.

One small file per job. It is written whole, synced, or not at all (written beside, synced, renamed,
the folder synced: the border does that), and it is what a driver finds after a crash. The versions'
offsets copy the cut from it. Its first line names the format and holds a checksum of the rest,
which is JSON:

    millstream switch 1 8f3b0c6e21d4a907
    {"number": 3, "phase": "overlapping", "current": "v3", "next": "v4", ...}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
import xxhash

from millstream.errors import ControlBroken
from millstream.switch.cut import Owners

_HEAD: Final = "millstream switch 1 "


class Phase(StrEnum):
    """Where a job stands; the drawing is in `machine`."""

    RUNNING = "running"
    PREPARING = "preparing"
    SHADOWING = "shadowing"
    ASKING = "asking"
    CONFIRMING = "confirming"
    CUTTING = "cutting"
    SHARING = "sharing"
    OVERLAPPING = "overlapping"
    RETIRING = "retiring"
    ABORTING = "aborting"


class Homes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the groups and journals of a version are: under the name of the version that made them.

    What is not named is where the first version made it.
    """

    groups: dict[str, str] = {}
    journals: dict[str, str] = {}
    #: Groups whose results are owned by their time, not by their start: see `starts`.
    by_time: tuple[str, ...] = ()
    #: By which column the results of a group are owned at the cuts of a switch: see `starts`.
    starts: dict[str, str] = {}


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must outlive a crash.

    `phase` is one of running, preparing, shadowing, sharing, overlapping and retiring: the others
    are on the way between two of these and leave nothing behind. `firsts` holds, by version, group
    and journal, where a version began to read: Spark does not log a query's first offsets. `homes`
    says by version where its checkpoints and journals are. `since_us` is a cut in the past, until
    the switch is done; `latest_us` is the latest cut before one of these. `consent` is what the
    user has agreed to, and `states` are the new names of states.
    """

    number: int
    phase: Phase
    current: str
    owners: Owners
    next: str | None = None
    units: tuple[str, ...] = ()
    step_us: int = 0
    share: int = 0
    leaving: str | None = None
    firsts: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {}
    homes: dict[str, Homes] = {}
    since_us: int | None = None
    latest_us: int | None = None
    consent: tuple[str, ...] = ()
    states: dict[str, str] = {}


def encode(record: Record) -> bytes:
    """Return the file's content."""
    body = msgspec.json.format(msgspec.json.encode(record), indent=1)
    return f"{_HEAD}{xxhash.xxh64_hexdigest(body)}\n".encode() + body


def decode(content: bytes) -> Record:
    """Read the file's content.

    Raises:
        ControlBroken: It is not what was written.
    """
    head, _, body = content.partition(b"\n")
    if head.decode(errors="replace") != f"{_HEAD}{xxhash.xxh64_hexdigest(body)}":
        msg = "the record of a switch is damaged, or of a later version of Millstream"
        hint = "restore the file switch/record from a backup of the job's folder"
        raise ControlBroken(msg, hint=hint)
    try:
        return msgspec.json.decode(body, type=Record)
    except msgspec.ValidationError as error:
        msg = f"the record of a switch is not valid: {error}"
        raise ControlBroken(msg, hint="was it written by a later version of Millstream?") from error
