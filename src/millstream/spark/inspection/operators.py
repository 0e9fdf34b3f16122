"""Which of Spark's stateful operators is which stage of a group, and where its files are.

Spark numbers them from the end of a plan to its beginning, an operator before its inputs and the
left input before the right one. A stage that two others read is there twice. Names are compared
too: where they do not fit, the operators stay without a stage.

    state/<operator>/_metadata/...                     its name and its stores
    state/<operator>/<partition>/[<store>/]<version>...  its content
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

# JSON
Data = Any
_WITH_STATE: Final = "transformWithStateInPandasExec"
_NAMES: Final = {
    "fold": _WITH_STATE,
    "distinct": _WITH_STATE,
    "match": _WITH_STATE,
    "join": "symmetricHashJoin",
    "window": "stateStoreSave",
}
_SESSIONS: Final = "sessionWindowStateStoreSaveExec"
#: The store that an operator with one store has, in no folder of its own.
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Store:
    """One of an operator's stores."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator: its number, what Spark calls it, the stage that it is, its stores."""

    id: int
    name: str
    stage: str | None
    kind: str | None
    stores: tuple[Store, ...]


def stateful(description: Mapping[str, Data]) -> list[tuple[str, str]]:
    """Return the stages with state of a group, as Spark numbers them, each with its operator."""
    stages = description["stages"]

    def visit(name: str) -> Iterator[tuple[str, str]]:
        stage = stages.get(name, {})
        expected = _NAMES.get(stage.get("kind", ""))
        if stage.get("kind") == "window" and stage.get("shape") == "session":
            expected = _SESSIONS
        if expected is not None:
            yield name, expected
        for above in _inputs(stage):
            yield from visit(above)

    return list(visit(description["output"]["stage"]))


def _inputs(stage: Mapping[str, Data]) -> Iterable[str]:
    if "inputs" in stage:
        return list(stage["inputs"])
    return [stage[name] for name in ("input", "left", "right") if name in stage]


def operators(description: Mapping[str, Data], metadata: Mapping[int, str]) -> list[Operator]:
    """Return the operators of a checkpoint, given the metadata that Spark has for each."""
    read = [_read(number, text) for number, text in sorted(metadata.items())]
    expected = stateful(description)
    if [name for _, name in expected] != [one.name for one in read]:
        return read
    kinds = {name: stage["kind"] for name, stage in description["stages"].items()}
    return [
        Operator(one.id, one.name, stage, kinds[stage], one.stores)
        for one, (stage, _) in zip(read, expected, strict=True)
    ]


def _read(number: int, text: str) -> Operator:
    found = json.loads(text.partition("\n")[2])
    stores = tuple(Store(one["storeName"], one["numPartitions"]) for one in found["stateStoreInfo"])
    return Operator(number, found["operatorInfo"]["operatorName"], None, None, stores)


def metadata_files(names: Iterable[str]) -> dict[int, str]:
    """Return, by operator, the newest file with its metadata, of all names below `state/`."""
    found: dict[int, tuple[int, str]] = {}
    for name in names:
        match name.split("/"):
            case [number, "_metadata", "metadata"] if number.isdigit():
                found.setdefault(int(number), (-1, name))
            case [number, "_metadata", "v2", batch] if number.isdigit() and batch.isdigit():
                before = found.get(int(number), (-2, ""))
                found[int(number)] = max(before, (int(batch), name))
    return {number: name for number, (_, name) in found.items()}


def folder_of(operator: Operator, store: Store, partition: int) -> str:
    """Return where a store keeps a partition, below `state/`."""
    place = f"{operator.id}/{partition}"
    return place if store.name == DEFAULT else f"{place}/{store.name}"


@dataclass(frozen=True, slots=True)
class Needed:
    """The files that hold a version of a store, below its folder, and the first that is not there."""

    files: tuple[str, ...] = ()
    missing: str | None = None


#: Returns the versions that a changelog continues, each with the text that its name carries.
Lineage = Callable[[str], Iterable[tuple[int, str]]]


def needed(
    names: Iterable[str],
    version: int,
    unique: Collection[str] = (),
    lineage: Lineage = lambda _: (),
) -> Needed:
    """Return which files of a store's folder hold a version.

    A version is a snapshot, or a snapshot before it and every change since: `.snapshot` and
    `.delta`, or `.zip` and `.changelog`. In a checkpoint that several hosts may write, names carry
    a text of their own, which only the commit names, and for versions before it the changelog.
    """
    known = set(names)
    if unique:
        return _named(known, version, sorted(unique), lineage)
    rocks = any(name.endswith((".zip", ".changelog")) for name in known)
    whole, change = ("zip", "changelog") if rocks else ("snapshot", "delta")
    files: tuple[str, ...] = ()
    for number in range(version, 0, -1):
        if f"{number}.{whole}" in known:
            return Needed((*files, f"{number}.{whole}"))
        if f"{number}.{change}" not in known:
            fits = rocks and not any(name.endswith(change) for name in known)
            return Needed(files, f"{number}.{whole if fits else change}")
        files = (*files, f"{number}.{change}")
    return Needed(files)


def _named(known: set[str], version: int, unique: list[str], lineage: Lineage) -> Needed:
    """Return the files of a version that a commit has given a text: one of several stores'."""
    own = next((one for one in unique if f"{version}_{one}.changelog" in known), None)
    whole = next((one for one in unique if f"{version}_{one}.zip" in known), None)
    if whole is not None or own is None:
        name = f"{version}_{whole or unique[0]}.zip"
        return Needed((name,)) if whole else Needed((), name)
    files: tuple[str, ...] = ()
    number = version
    for number, one in sorted({(version, own), *lineage(f"{version}_{own}.changelog")})[::-1]:
        if f"{number}_{one}.zip" in known:
            return Needed((*files, f"{number}_{one}.zip"))
        if f"{number}_{one}.changelog" not in known:
            return Needed(files, f"{number}_{one}.changelog")
        files = (*files, f"{number}_{one}.changelog")
    return Needed(files, None if number == 1 else f"{number - 1}_*.zip")
