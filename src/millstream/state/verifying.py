"""Whether the files that a shard's manifest names are there, whole and its own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from millstream.errors import InternalError
from millstream.state.files import StateFiles, hash_in, hash_of, imported_name
from millstream.state.importing import Imported
from millstream.state.manifest import Run, load
from millstream.state.run_file import RunFile


def shard_faults(files: StateFiles, shard: int, data: bytes) -> Iterator[str]:
    """Yield what is wrong with the manifest of a shard and the files that it names."""
    try:
        manifest = load(data)
    except (msgspec.MsgspecError, InternalError) as error:
        yield f"the manifest of shard {shard} cannot be read: {error}"
        return
    for run in manifest.runs:
        if not run.name.startswith(f"{files.folder(shard)}/"):
            yield f"shard {shard} names {run.name}, a file of another job or stage"
        elif (fault := _file_fault(files, run)) is not None:
            yield f"shard {shard} needs {run.name}, {fault}"


def _file_fault(files: StateFiles, run: Run) -> str | None:
    content = files.storage.read(run.name)
    if content is None:
        return "which is gone"
    if len(content) != run.size:
        return f"which has {len(content):,} bytes and should have {run.size:,}"
    known = hash_in(run.name)
    if known is not None and known != hash_of(content):
        return "which is damaged: its hash is another one"
    try:
        rows = len(RunFile.load(pa.py_buffer(content)))
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        return f"which cannot be read: {error}"
    return None if rows == run.rows else f"which has {rows:,} keys and should have {run.rows:,}"


def import_faults(files: StateFiles, decision: Imported) -> Iterator[str]:
    """Yield the manifests of an import that are gone."""
    for shard in decision.shards:
        name = imported_name(files.stage, decision.token, shard)
        if files.storage.read(name) is None:
            yield f"shard {shard} takes over the import {name}, which is gone"
