"""`action` on Spark: its program and files reach the executors, whose part is `action_work`."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from millstream.actions.program import Program, limits_of
from millstream.actions.worker import Patience
from millstream.errors import InvalidOption
from millstream.flow import binary
from millstream.flow.site import Site
from millstream.flow.stages import Action
from millstream.spark.io.source import PLACE
from millstream.spark.served.borrowed import Letters
from millstream.spark.stages.action_work import ActionWork, Shipped
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import parsed
from millstream.spark.stages.kind import SparkKind
from millstream.spark.task_time import PROGRAMS, TaskReports, Timed


@dataclass(frozen=True, slots=True)
class Shipping:
    """Where the programs and files of a flow come from: its folder, and what its engine keeps."""

    flow: str
    root: Path
    binaries: Mapping[str, Path]


def build(stage: Action, builder: Builder) -> DataFrame:
    shipping = Shipping(builder.flow.name, builder.root, builder.binaries)
    letters = builder.letters(stage)
    return action(builder.frame(stage.input), stage, shipping, letters=letters, tasks=builder.tasks)


KIND = SparkKind(build, ordered=True)


def action(
    frame: DataFrame,
    stage: Action,
    shipping: Shipping,
    *,
    letters: Letters | None,
    tasks: TaskReports | None = None,
) -> DataFrame:
    """Return the rows of `frame` with what the stage's program answers to each.

    Args:
        frame: The input.
        stage: The stage.
        shipping: Where its program and files come from.
        letters: The journal whose dead letters take failed messages; None: a failed message fails
            the batch.
        tasks: What tasks report to: how long the program is at it, and how it is.
    """
    answers = stage.output.names
    gone = {name.lower() for name in answers}
    kept = [field for field in frame.schema.fields if field.name.lower() not in gone]
    added = parsed(stage.output.ddl).fields
    fields = [*kept, *(StructField(field.name, field.dataType) for field in added)]
    columns = stage.columns or tuple(name for name in frame.columns if name != PLACE)
    kept_by_engine = binary.parse(stage.argv[0])
    program = Program(
        stage.argv if kept_by_engine is None else (f"./{kept_by_engine.name}", *stage.argv[1:]),
        stage.contract,
        stage.env,
        limits_of(
            memory_bytes=stage.memory_bytes,
            cpu_seconds=stage.cpu_seconds,
            processes=stage.processes,
            file_bytes=stage.file_bytes,
        ),
        stage.user,
        stage.conn_whitelist,
        stage.sandbox,
    )
    work = ActionWork(
        flow=shipping.flow,
        stage=stage.name,
        program=program,
        format=stage.format,
        columns=columns,
        kept=tuple(field.name for field in kept),
        output=stage.output,
        files=_shipped(frame, stage, shipping),
        patience=Patience(stage.time_limit / timedelta(seconds=1), stage.attempts),
        letters=letters,
        programs=None if tasks is None else tasks.programs,
    )
    task: Any = work if tasks is None else Timed(work, PROGRAMS, tasks.worked)
    return frame.mapInArrow(task, StructType(fields))


def _shipped(frame: DataFrame, stage: Action, shipping: Shipping) -> tuple[Shipped, ...]:
    """Give Spark the program, if it is the flow's or the engine's, and the files beside it."""
    found = []
    for name in stage.contents:
        if (named := binary.parse(name)) is not None:
            # Where a flow is only looked at there is no engine.
            if name in shipping.binaries:
                stored = _given_to_spark(frame, shipping.binaries[name], named.name)
                found.append(Shipped(stored, named.name, executable=True))
            continue
        path = shipping.root / name
        if not path.is_file():
            site = Site(shipping.flow, stage.name, "stage", stage.where)
            hint = f"it is looked for in {shipping.root}"
            raise site.mistake(InvalidOption, f'ships "{name}", which is not there', hint=hint)
        stored = _given_to_spark(frame, path, path.name)
        found.append(Shipped(stored, _beside(name, path), os.access(path, os.X_OK)))
    return tuple(found)


def _given_to_spark(frame: DataFrame, path: Path, name: str) -> str:
    """Let executors get a file; return what it is called there."""
    context = frame.sparkSession.sparkContext
    stored = f"{_hashed(path)}-{name}"
    link = _stage_folder() / stored
    if not link.exists():
        shutil.copy(path, link)
    if (context.applicationId, stored) not in _added:
        context.addFile(str(link))
        _added.add((context.applicationId, stored))
    return stored


def _beside(name: str, path: Path) -> str:
    """Return where a file lies in the program's folder: as the flow says it, if that is within."""
    return path.name if Path(name).is_absolute() or ".." in Path(name).parts else str(Path(name))


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


_folder: list[Path] = []
_added: set[tuple[str, str]] = set()


def _stage_folder() -> Path:
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="millstream-files-")))
        atexit.register(shutil.rmtree, _folder[0], ignore_errors=True)
    return _folder[0]
