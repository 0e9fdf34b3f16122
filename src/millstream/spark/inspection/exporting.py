"""State as a file that anything reads, and that `import` takes back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from millstream.errors import RunError
from millstream.spark.inspection.key_states import KeyStates
from millstream.spark.inspection.table_files import writing
from millstream.storage.private import owner_only

#: The entry of a file's metadata that says whose state it is.
METADATA: Final = b"millstream.state"


class Exported(msgspec.Struct, frozen=True):
    """What was written."""

    stage: str
    batch: int
    keys: int
    file: str


def export_states(found: KeyStates, file: Path, job: str) -> Exported:
    """Write the state of a stage to a file, whole or not at all.

    Raises:
        RunError: The file cannot be written, or cannot hold a column.
    """
    about = {"job": job, "stage": found.stage, "kind": found.kind, "batch": found.batch}
    schema = found.layout.schema.with_metadata({METADATA: json.dumps(about).encode()})
    fresh, keys = file.with_name(f".{file.name}.{os.getpid()}"), 0
    try:
        with (
            open(fresh, "wb", opener=owner_only) as opened,
            writing(file, opened, schema) as write,
        ):
            for table in found.tables():
                write(pa.table(table.columns, schema=schema))
                keys += table.num_rows
        fresh.replace(file)
    except OSError as error:
        msg = f'the file "{file}" cannot be written: {error.strerror or error}'
        raise RunError(msg, hint="give another one: --to FILE") from error
    finally:
        fresh.unlink(missing_ok=True)
    return Exported(found.stage, found.batch, keys, str(file))
