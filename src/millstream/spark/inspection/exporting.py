"""State as a Parquet file that anything reads, and that `import` takes back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.errors import RunError
from millstream.spark.inspection.key_states import KeyStates
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
        RunError: The file cannot be written.
    """
    about = {"job": job, "stage": found.stage, "kind": found.kind, "batch": found.batch}
    schema = found.layout.schema.with_metadata({METADATA: json.dumps(about).encode()})
    fresh, keys = file.with_name(f".{file.name}.{os.getpid()}"), 0
    try:
        with (
            open(fresh, "wb", opener=owner_only) as opened,
            pq.ParquetWriter(opened, schema, compression="zstd") as writer,
        ):
            for table in found.tables():
                writer.write_table(pa.table(table.columns, schema=schema))
                keys += table.num_rows
        fresh.replace(file)
    except OSError as error:
        msg = f'the file "{file}" cannot be written: {error.strerror or error}'
        raise RunError(msg, hint="give another one: --to FILE") from error
    finally:
        fresh.unlink(missing_ok=True)
    return Exported(found.stage, found.batch, keys, str(file))
