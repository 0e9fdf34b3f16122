"""What a pattern keeps for each key, for people: how many runs wait, and since when."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from millstream.clock import moment_of
from millstream.errors import NotThere
from millstream.patterns import partition, plain, shard
from millstream.patterns.kernel import layout
from millstream.patterns.pieces import keys_and_runs
from millstream.patterns.streams import Schemas
from millstream.spark.stages.match_pieces import OUTLINE, Outline
from millstream.spark.stages.match_state import KEPT, MANIFEST, opened_piece
from millstream.state.files import StateFiles
from millstream.state.manifest import joined
from millstream.state.reading import entries

_FIRST: Final = np.iinfo(np.int64).max


@dataclass(slots=True)
class Waiting:
    """The live runs of a key: how many, and when they took their first and last events."""

    runs: int = 0
    since: int = int(_FIRST)
    last_at: int = -int(_FIRST)
    #: By state of the automaton.
    states: Counter[int] = field(default_factory=Counter)

    def add(self, since: int, last_at: int, state: int) -> None:
        self.runs += 1
        self.states[state] += 1
        self.since, self.last_at = min(self.since, since), max(self.last_at, last_at)

    def merge(self, other: Waiting) -> None:
        self.runs += other.runs
        self.states += other.states
        self.since, self.last_at = min(self.since, other.since), max(self.last_at, other.last_at)

    def shown(self) -> dict[str, Any]:
        if not self.runs:
            return {"runs": 0, "since": None, "last_at": None}
        return {
            "runs": self.runs,
            "since": moment_of(self.since),
            "last_at": moment_of(self.last_at),
        }


def manifest_of(pieces: Sequence[bytes]) -> bytes:
    """Return the manifest among the pieces of a shard's state.

    Raises:
        NotThere: An earlier release has stored it.
    """
    marked = [opened_piece(piece) for piece in pieces]
    if any(mark == KEPT for mark, _, _ in marked):
        msg = "an earlier release has stored what the pattern keeps"
        raise NotThere(msg, hint="ask again after the next batch with events of the pattern")
    return joined(content for mark, _, content in marked if mark == MANIFEST)


def key_rows(
    data: bytes, files: StateFiles, by: Sequence[str]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield each key of a shard with what is shown of it."""
    for found in _pieces(data, files):
        whole: dict[str, Waiting] = {}
        for one in found:
            for text, waiting in one.items():
                whole.setdefault(text, Waiting()).merge(waiting)
        for text, waiting in whole.items():
            yield _key(text, by), waiting.shown()


def runs_of(data: bytes, files: StateFiles, pattern: int) -> Iterator[tuple[str, Waiting]]:
    """Yield the live runs of each key of a shard that one of the patterns has."""
    for found in _pieces(data, files):
        yield from ((key, waiting) for key, waiting in found[pattern].items() if waiting.runs)


def _pieces(data: bytes, files: StateFiles) -> Iterator[list[dict[str, Waiting]]]:
    """Yield for each piece of a shard what each pattern keeps of its keys."""
    pieces = {key: value for key, value, _ in entries(data, files.open)}
    outline = msgspec.convert(pieces.pop(OUTLINE, []), Outline)
    schemas = Schemas(list(outline.schemas))
    for parts in pieces.values():
        patterns: list[dict[str, Waiting]] = [{} for _ in parts]
        for part, width, found in zip(parts, outline.widths, patterns, strict=True):
            if part is not None:
                _count(part[1], width, schemas, found)
        yield patterns


def _key(text: str, by: Sequence[str]) -> list[Any]:
    if len(by) == 1:
        return [text]
    return list(json.loads(text).values()) if by else []


def _count(content: Any, width: int, schemas: Schemas, found: dict[str, Waiting]) -> None:
    """Add the runs of a piece, whichever matcher has made it."""
    match content:
        case bytes() if content[:4] == plain.MARK:
            for key, kept in plain.load(content).keys.items():
                waiting = found.setdefault(key, Waiting())
                for run in kept.runs:
                    waiting.add(run.started_at, run.last_at, run.state)
        case bytes() if content[:4] == partition.MARK:
            inside = msgspec.msgpack.decode(content[6:])
            _count(inside["inner"], width, schemas, found)
            _known(inside["counts"], found)
        case bytes():
            whole = shard.loaded(width, content)
            _add(whole.keys.to_pylist(), whole.runs, found)
        case [bytes() as inner]:
            _count(inner, width, schemas, found)
        case [inner, memory, dict() as counts]:
            if inner is not None:
                _count(inner, width, schemas, found)
            if memory is not None:
                _known(partition.keys_of(memory, schemas), found)
            _known(counts, found)
        case _:
            keys, runs = keys_and_runs(content, width, schemas)
            _add(keys.to_pylist(), runs, found)


def _known(keys: Any, found: dict[str, Waiting]) -> None:
    for key in keys:
        found.setdefault(key, Waiting())


def _add(keys: list[str], runs: Any, found: dict[str, Waiting]) -> None:
    _known(keys, found)
    wanted = (layout.KEY, layout.STARTED_AT, layout.LAST_AT, layout.STATE)
    for key, since, last_at, state in runs[:, wanted].tolist():
        found[keys[key]].add(since, last_at, state)
