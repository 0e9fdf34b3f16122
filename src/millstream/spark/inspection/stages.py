"""The stages of a job that keep state, found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import NotThere
from millstream.spark.inspection.key_states import KINDS, read_states
from millstream.spark.inspection.opened import Opened, opened
from millstream.spark.inspection.place import JobPlace
from millstream.spark.inspection.state_files import states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A stage with state: as of which batch, and how large its files are."""

    group: str
    stage: str
    kind: str
    batch: int
    bytes: int
    #: How many keys it has, and their columns; None if it cannot be read by key.
    keys: int | None = None
    columns: dict[str, str] | None = None


def summaries(place: JobPlace) -> list[StageSummary]:
    """Return the stages with state of the version that runs; without what takes Spark to know."""
    found: dict[tuple[str, str], StageSummary] = {}
    for folder in place.current:
        one = opened(place, folder)
        committed = one.checkpoint.committed()
        for state in states(one, None if committed is None else committed.batch):
            if state.stage is None or state.kind is None or committed is None:
                continue
            summary = StageSummary(
                group=folder,
                stage=state.stage,
                kind=state.kind,
                batch=committed.batch,
                bytes=state.bytes,
            )
            found.setdefault((folder, state.stage), summary)
    return list(found.values())


def listed(place: JobPlace, spark: Callable[[], SparkSession]) -> list[StageSummary]:
    """Return the stages with state of the version that runs, with their keys.

    Raises:
        NotThere: There is no such job.
    """
    known = summaries(place)
    if not known and not place.groups:
        raise _no_job(place)
    return [_counted(place, one, spark) if one.kind in KINDS else one for one in known]


def _counted(place: JobPlace, one: StageSummary, spark: Callable[[], SparkSession]) -> StageSummary:
    try:
        read = read_states(spark(), opened(place, one.group), one.stage, one.batch)
    except NotThere:  # an earlier release has stored it, in a way that does not tell
        return one
    columns = {field.name: str(field.type) for field in read.layout.schema}
    return msgspec.structs.replace(one, keys=read.keys, columns=columns)


def _no_job(place: JobPlace) -> NotThere:
    msg = f'there is no job "{place.name}" in {place.address or place.folder.parent}'
    return NotThere(msg, hint="run the flow first, or give --data")


def find_stage(place: JobPlace, name: str) -> tuple[Opened, str]:
    """Return the checkpoint with the state of a stage, STAGE or GROUP.STAGE, and the stage.

    Raises:
        NotThere: There is no such stage, or several groups have one.
    """
    known = [(one.group, one.stage) for one in summaries(place)]
    known = known or _expected(place)
    fits = [(group, stage) for group, stage in known if name in (stage, f"{group}.{stage}")]
    if len(fits) == 1:
        return opened(place, fits[0][0]), fits[0][1]
    if fits:
        names = ", ".join(f"{group}.{stage}" for group, stage in fits)
        raise NotThere(f'several groups have a stage "{name}"', hint=f"name one: {names}")
    names = ", ".join(dict.fromkeys(stage for _, stage in known))
    if not place.groups:
        raise _no_job(place)
    msg = f'job "{place.name}" has no stage "{name}" with state'
    raise NotThere(msg, hint=f"stages with state: {names}" if names else "none has any yet")


def _expected(place: JobPlace) -> list[tuple[str, str]]:
    """Return the stages that will keep a value per key, of groups that have not committed a batch."""
    return [
        (folder, stage)
        for folder in place.current
        for stage, meaning in opened(place, folder).checkpoint.description["stages"].items()
        if meaning.get("kind") in KINDS
    ]
