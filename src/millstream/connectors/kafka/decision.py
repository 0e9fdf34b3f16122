"""What a sink has decided to publish, and how much of it a topic holds: pure, no client needed.

    decided     {"epoch": 7, "parts": [[file, file], [file]]}      on the disk of the driver
    published   {"epoch": 7, "part": 0, "of": 2, "writer": ...}    in the topic of epochs

A part is published in one transaction, together with the record that counts it. So what that topic
says is true, whoever died when.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

#: How much one transaction holds: a reader waits for all of it, and it must end in time.
PART_BYTES: Final = 32 << 20
#: A record's number is its epoch times this, and its place in the epoch.
EPOCH_ROWS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of records that a task has staged."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The files of an epoch, in the order and in the parts in which they are published."""

    sender: str
    epoch: int
    parts: tuple[tuple[StagedFile, ...], ...]

    @classmethod
    def of(cls, sender: str, epoch: int, files: Sequence[StagedFile]) -> Decision:
        """Decide on files, in their order: a key's rows keep theirs."""
        return cls(sender, epoch, divided(files, PART_BYTES))

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        tree = json.loads(text)
        parts = tuple(tuple(StagedFile(**file) for file in part) for part in tree["parts"])
        return cls(tree["sender"], tree["epoch"], parts)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def files(self) -> list[StagedFile]:
        return [file for part in self.parts for file in part]

    def number(self, part: int) -> int:
        """Return the number of a part's first record: numbers rise, and are the same each time."""
        before = (file.rows for one in self.parts[:part] for file in one)
        return self.epoch * EPOCH_ROWS + sum(before)


def divided(files: Sequence[StagedFile], limit: int) -> tuple[tuple[StagedFile, ...], ...]:
    """Divide files into parts, each as large as the limit allows, and no part empty."""
    parts: list[list[StagedFile]] = []
    size = 0
    for file in files:
        if not parts or size + file.bytes > limit:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.bytes
    return tuple(map(tuple, parts))


@dataclass(frozen=True, slots=True)
class Published:
    """How far the records of a sender are in their topic, and which process wrote the last."""

    epoch: int = -1
    part: int = 0
    of: int = 1
    writer: str = ""

    @classmethod
    def from_json(cls, text: bytes) -> Published:
        tree = json.loads(text)
        return cls(tree["epoch"], tree["part"], tree["of"], tree["writer"])

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def holds(self, epoch: int, part: int) -> bool:
        """Tell whether a part of an epoch is in."""
        return (epoch, part) <= (self.epoch, self.part)

    def whole(self, epoch: int) -> bool:
        """Tell whether an epoch is in, and nothing of it is missing."""
        return self.holds(epoch, self.of - 1 if epoch == self.epoch else 0)

    def partly(self, epoch: int) -> bool:
        """Tell whether some parts of an epoch are in, and others are missing."""
        return self.epoch == epoch and not self.whole(epoch)
