"""A journal's description: made once, widened by nullable columns, grown by partitions."""

from __future__ import annotations

import base64
import json
from dataclasses import replace as changed
from pathlib import Path

import pyarrow as pa

from millstream.errors import JournalMissing, JournalUnreadable, SchemaConflict
from millstream.journal.base import Description, EarlierPartitions
from millstream.journal.kinds.files.layout import FORMAT, GROWN, description_file, partition_folder
from millstream.journal.kinds.files.lines import checked, with_checksum
from millstream.journal.rows import check_schema
from millstream.storage.disk import REAL, Disk, make_folder, write_whole
from millstream.storage.lock import Lock

_PATIENCE_S = 10.0


def create(
    path: Path | str,
    schema: pa.Schema,
    *,
    partitions: int = 1,
    time: str | None = None,
    written_by: str = "inbox",
    disk: Disk = REAL,
) -> Description:
    """Make a journal, or return the one that is there; nullable columns are added.

    Who wants the columns that it had before some were added gets it as it is.
    One that inboxes write keeps the partitions that it has: `growth.grow` gives it more.

    Raises:
        SchemaConflict: One is there, and it is declared differently.
    """
    path = Path(path)
    schema = check_schema(schema, time)
    make_folder(disk, path)
    lock = Lock(path / "create.lock", disk, what=f'journal "{path}"', timeout=_PATIENCE_S)
    try:
        wanted = Description(path, schema, partitions, time, written_by, (schema,))
        description = (
            _evolved(describe(path), wanted) if description_file(path).exists() else wanted
        )
        for partition in range(description.partitions):
            make_folder(disk, partition_folder(path, partition))
        _save(description, disk)
        return description
    finally:
        lock.release()


def describe(path: Path | str) -> Description:
    """Return what the journal at `path` is declared to hold.

    Raises:
        JournalMissing: There is none.
        JournalUnreadable: Its description is damaged, or of a newer format.
    """
    path = Path(path)
    file = description_file(path)
    try:
        raw = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as exc:
        msg = f'there is no journal at "{path}"'
        raise JournalMissing(msg, hint="millstream journal ls shows those that are there") from exc
    try:
        return _parse(path, json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as exc:
        msg = f'the description of journal "{path}" is damaged, in "{file}"'
        hint = "restore the file from a backup; or correct it, and remove its checksum"
        raise JournalUnreadable(msg, hint=hint) from exc


def adopt(path: Path | str, raw: bytes, *, disk: Disk = REAL) -> Description:
    """Make or widen a journal as it is described on another host.

    Raises:
        SchemaConflict: The two are declared differently, or were widened by different columns.
    """
    path = Path(path)
    theirs = parsed(path, raw)
    make_folder(disk, path)
    lock = Lock(path / "create.lock", disk, what=f'journal "{path}"', timeout=_PATIENCE_S)
    try:
        ours = describe(path) if description_file(path).exists() else theirs
        _check_same(ours, theirs)
        wider = max(ours, theirs, key=lambda one: one.version)
        for partition in range(wider.partitions):
            make_folder(disk, partition_folder(path, partition))
        _save(wider, disk)
        return wider
    finally:
        lock.release()


def parsed(path: Path, raw: bytes) -> Description:
    """Return the description that some bytes are."""
    return _parse(path, json.loads(raw))


def lay_out(
    path: Path, partitions: int, earlier: tuple[EarlierPartitions, ...], *, disk: Disk = REAL
) -> Description:
    """Let a journal have other partitions, whose folders exist; a crash leaves all or nothing."""
    lock = Lock(path / "create.lock", disk, what=f'journal "{path}"', timeout=_PATIENCE_S)
    try:
        description = changed(describe(path), partitions=partitions, earlier=earlier)
        _save(description, disk)
        return description
    finally:
        lock.release()


def schema_count(raw: bytes) -> int:
    """Return how many schemas a description names."""
    return len(json.loads(raw)["schemas"])


def _check_same(ours: Description, theirs: Description) -> None:
    """Check that one of two descriptions is the other, widened."""
    _check_kept(ours, theirs, "partitions")
    _evolved(ours, changed(theirs, schema=ours.schema))
    for one, other in zip(ours.schemas, theirs.schemas, strict=False):
        if not one.equals(other):
            msg = f'journal "{ours.path}" was widened otherwise on another host: by {other.names}, not {one.names}'
            raise SchemaConflict(msg, hint="deploy the same flow on all engines")


def _parse(path: Path, body: dict[str, object]) -> Description:
    if body["format"] not in (FORMAT, GROWN):
        msg = f'journal "{path}" has format {body["format"]}, this program reads formats {FORMAT} and {GROWN}'
        raise JournalUnreadable(msg, hint="use a newer Millstream")
    listed = _listed(checked(body)["schemas"])
    schemas = tuple(
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(str(item["arrow"])))) for item in listed
    )
    time = body["time"]
    return Description(
        path=path,
        schema=schemas[-1],
        partitions=int(str(body["partitions"])),
        time=None if time is None else str(time),
        written_by=str(body["written_by"]),
        schemas=schemas,
        earlier=tuple(_parse_layout(one) for one in _listed(body.get("earlier", []))),
    )


def _listed(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _parse_layout(body: dict[str, object]) -> EarlierPartitions:
    until = body["until"]
    if not isinstance(until, dict):
        raise TypeError(until)
    return EarlierPartitions(
        int(str(body["partitions"])), {str(sender): int(number) for sender, number in until.items()}
    )


def _save(description: Description, disk: Disk) -> None:
    body: dict[str, object] = {
        "format": GROWN if description.earlier else FORMAT,
        "written_by": description.written_by,
        "partitions": description.partitions,
        "time": description.time,
        "schemas": [
            {
                "columns": {field.name: str(field.type) for field in schema},
                "arrow": base64.b64encode(schema.serialize()).decode(),
            }
            for schema in description.schemas
        ],
    }
    if description.earlier:
        earlier = [
            {"partitions": one.partitions, "until": dict(one.until)} for one in description.earlier
        ]
        body["earlier"] = earlier
    content = json.dumps(with_checksum(body), indent=1).encode()
    file = description_file(description.path)
    if not file.exists() or file.read_bytes() != content:
        write_whole(disk, file, content)
    else:
        disk.sync_folder(file.parent)  # its maker may have been killed before it did


def _evolved(old: Description, wanted: Description) -> Description:
    _check_kept(old, wanted, "time", "written_by")
    if old.written_by != "inbox":
        _check_kept(old, wanted, "partitions")
    # An earlier one, too: in a switch, or after it was aborted, a version without the new columns
    # opens what the other one has widened.
    if any(one.equals(wanted.schema) for one in old.schemas):
        return old
    _check_added(old, wanted.schema)
    return changed(old, schema=wanted.schema, schemas=(*old.schemas, wanted.schema))


def _check_kept(old: Description, wanted: Description, *facts: str) -> None:
    for what in facts:
        before, after = getattr(old, what), getattr(wanted, what)
        if before != after:
            msg = f'journal "{old.path}" has {what.replace("_", " ")} {before}, not {after}'
            raise SchemaConflict(msg, hint="give the new journal another name")


def _check_added(old: Description, schema: pa.Schema) -> None:
    """Check that the new schema is the old one with nullable columns added."""
    for field in old.schema:
        number = schema.get_field_index(field.name)
        if number < 0 or not schema.field(number).equals(field):
            now = "gone" if number < 0 else f"now {schema.field(number).type}"
            msg = f'column "{field.name}" of journal "{old.path}" is {field.type} and {now}'
            hint = "only nullable columns can be added; give a changed journal another name"
            raise SchemaConflict(msg, hint=hint)
    for field in schema:
        if field.name not in old.schema.names and not field.nullable:
            msg = f'column "{field.name}" is added to journal "{old.path}" but is not nullable'
            raise SchemaConflict(msg, hint="the rows already there have no value for it")
