"""The state of a group's stages, as files: their versions, their sizes, and what lacks."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from millstream.errors import NotThere
from millstream.spark.inspection.changelog import lineage
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.operators import (
    Needed,
    Operator,
    folder_of,
    metadata_files,
    needed,
    operators,
)

_SSTS: Final = "SSTs"


class StateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stage: its version, and the files that hold it.

    Files beside Spark's count whole: which of them a version names is in its manifests.
    """

    stage: str | None
    kind: str | None
    operator: int
    name: str
    version: int
    partitions: int
    files: int
    bytes: int
    #: Files that the version needs and that are not there, below the checkpoint's folder.
    missing: tuple[str, ...] = ()


def states(found: Opened, batch: int | None) -> Iterator[StateReport]:
    """Yield the state of each stage, as of a committed batch."""
    if batch is None:
        return
    root = f"{found.checkpoint.id}/state/"
    sizes = {k.removeprefix(root): v for k, v in found.storage.sizes(root.rstrip("/")).items()}
    for operator in _operators(found, sizes):
        parts = list(_parts(found, operator, sizes, batch))
        files = [name for part in parts for name in part.files]
        beside = found.files.sizes(f"keys/{operator.stage}") if operator.stage else {}
        yield StateReport(
            stage=operator.stage,
            kind=operator.kind,
            operator=operator.id,
            name=operator.name,
            version=batch + 1,
            partitions=max(store.partitions for store in operator.stores),
            files=len(files) + len(beside),
            bytes=sum(sizes[name] for name in files) + sum(beside.values()),
            missing=tuple(f"state/{part.missing}" for part in parts if part.missing is not None),
        )


def _operators(found: Opened, names: Collection[str]) -> list[Operator]:
    root = f"{found.checkpoint.id}/state"
    texts = {
        number: (found.storage.read(f"{root}/{name}") or b"").decode()
        for number, name in metadata_files(names).items()
    }
    return operators(found.checkpoint.description, texts)


def _parts(
    found: Opened, operator: Operator, sizes: Mapping[str, int], batch: int
) -> Iterator[Needed]:
    """Yield the files of all partitions of an operator's stores, below `state/`."""
    unique = found.commit(batch).get("stateUniqueIds", {}).get(str(operator.id), [])
    for store in operator.stores:
        for partition in range(store.partitions):
            ids = unique[partition] if partition < len(unique) else ()
            yield _part(found, folder_of(operator, store, partition), sizes, batch + 1, ids)


def _part(
    found: Opened, folder: str, sizes: Mapping[str, int], version: int, ids: Collection[str]
) -> Needed:
    inside = f"{folder}/"
    names = [one.removeprefix(inside) for one in sizes if one.startswith(inside)]

    def read(name: str) -> bytes:
        return found.storage.read(f"{found.checkpoint.id}/state/{folder}/{name}") or b""

    try:
        part = needed(names, version, ids, lambda name: lineage(read(name)))
    except ValueError as error:
        return Needed((), f"{inside}(a changelog of version {version}: {error})")
    zipped = [name for name in part.files if name.endswith(".zip")]
    tables = [table for name in zipped for table in _tables(read(name))]
    files = (*part.files, *(table for table in tables if table in names))
    missing = part.missing or next((one for one in tables if one not in names), None)
    return Needed(
        tuple(f"{inside}{name}" for name in files),
        None if missing is None else f"{inside}{missing}",
    )


def _tables(archive: bytes) -> list[str]:
    """Return the files beside an archive of RocksDB that belong to it."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            text = opened.read("metadata").decode()
        found = json.loads(text.partition("\n")[2])
    except (zipfile.BadZipFile, KeyError, ValueError):
        return ["(an archive that cannot be read)"]
    return [f"{_SSTS}/{one['dfsSstFileName']}" for one in found.get("sstFiles", [])]


def stage_operator(found: Opened, stage: str) -> Operator:
    """Return the operator that a stage of the group is.

    Raises:
        NotThere: It has no state, or its operator cannot be told from others.
    """
    root = f"{found.checkpoint.id}/state/"
    names = [name.removeprefix(root) for name in found.storage.sizes(root.rstrip("/"))]
    known = _operators(found, names)
    operator = next((one for one in known if one.stage == stage), None)
    if operator is None:
        stages = ", ".join(dict.fromkeys(one.stage for one in known if one.stage)) or "none"
        msg = f'stage "{stage}" of group "{found.checkpoint.group}" has no state'
        raise NotThere(msg, hint=f"stages with state: {stages}")
    return operator
