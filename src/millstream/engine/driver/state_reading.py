"""Reading the state of a job's stages in its driver, beside the batches that it runs."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.clock import iso
from millstream.engine.driver import protocol
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.pattern_status import KeyRuns, PatternRuns
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.errors import NotThere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.patterns.automaton import Automaton
    from millstream.spark.flow_run import FlowRun
    from millstream.spark.inspection.pattern_states import Waiting
    from millstream.spark.inspection.place import JobPlace

#: How many keys with live runs are shown.
_OLDEST: Final = 50


def begin_reading(
    line: protocol.Line,
    spark: SparkSession,
    running: FlowRun,
    storage: str | None,
    asked: protocol.Question,
) -> None:
    """Read what is asked for of a job, on a thread of its own, and report it."""

    def work() -> None:
        line.report(read(spark, running, storage, asked))

    threading.Thread(target=work, name="state", daemon=True).start()


def read(
    spark: SparkSession, running: FlowRun, storage: str | None, asked: protocol.Question
) -> protocol.StateRead:
    """Return what is asked for, or why it cannot be read."""
    from millstream.spark.inspection.place import job_place

    number, folder = asked.number, running.folder
    try:
        place = job_place(folder.parent, folder.name, storage)
        match asked:
            case protocol.ReadPatterns():
                return protocol.StateRead(number=number, patterns=_patterns(spark, place, running))
            case protocol.ReadCheckpoints(verify=None):
                return protocol.StateRead(number=number, checkpoints=_checkpoints(place))
            case protocol.ReadCheckpoints():
                verified = _verified(spark, place, running, asked.verify or "")
                return protocol.StateRead(number=number, verified=verified)
            case protocol.ReadState(stage=None):
                return protocol.StateRead(number=number, stages=_stages(spark, place))
            case protocol.ReadState():
                return protocol.StateRead(number=number, rows=_rows(spark, place, asked))
    except Exception as error:  # noqa: BLE001 (the running flow is not concerned)
        return protocol.StateRead(number=number, failure=protocol.failure(error))


def _stages(spark: SparkSession, place: JobPlace) -> list[StageStatus]:
    from millstream.spark.inspection.stages import listed

    found = listed(place, lambda: spark)
    return [msgspec.convert(one, StageStatus, from_attributes=True) for one in found]


def _rows(spark: SparkSession, place: JobPlace, asked: protocol.ReadState) -> StateRows:
    from millstream.spark.inspection.key_states import read_states
    from millstream.spark.inspection.stages import find_stage

    found, stage = find_stage(place, asked.stage or "")
    states = read_states(spark, found, stage, asked.at)
    return StateRows(
        stage=states.stage,
        kind=states.kind,
        batch=states.batch,
        keys=states.keys,
        rows=states.plain(asked.limit, asked.key),
    )


def _patterns(spark: SparkSession, place: JobPlace, running: FlowRun) -> list[PatternRuns]:
    from millstream.patterns.explain import headline
    from millstream.patterns.sketch import drawn_state, sketch
    from millstream.spark.inspection.live_patterns import live_patterns

    schemas = next((one.analysis.schemas for one in running.queries.values()), {})
    found = []
    for one in live_patterns(spark, place, running.plan, schemas):
        shown = sketch(one.automaton)
        states: Counter[str] = Counter()
        for state, runs in one.states.items():
            states[str(drawn_state(one.automaton, shown, state))] += runs
        oldest = tuple(
            _key_runs(key, waiting, one.automaton) for key, waiting in one.oldest(_OLDEST)
        )
        status = PatternRuns(
            group=one.group.name,
            stage=one.stage.name,
            pattern=one.automaton.name,
            about=headline(one.automaton),
            sketch=shown,
            batch=one.batch,
            runs=states.total(),
            states=dict(states),
            oldest=oldest,
            journal=one.journal,
            by=one.stage.by,
            unknown=one.why,
        )
        found.append(status)
    return found


def _key_runs(key: str, waiting: Waiting, automaton: Automaton) -> KeyRuns:
    names: Counter[str] = Counter()
    for state, runs in sorted(waiting.states.items()):
        names[automaton.states[state].name] += runs
    moments = (iso(waiting.since / 1e6), iso(waiting.last_at / 1e6))
    return KeyRuns(key, waiting.runs, *moments, dict(names))


def _checkpoints(place: JobPlace) -> list[CheckpointStatus]:
    from millstream.spark.inspection.diff import differences
    from millstream.spark.inspection.opened import opened
    from millstream.spark.inspection.report import report

    found = []
    for folder in place.current:
        one = opened(place, folder)
        now = report(one)
        changes: tuple[str, ...] = ()
        if now.batch:
            with contextlib.suppress(NotThere):  # it may be removed meanwhile
                changes = tuple(map(str, differences(report(one, now.batch - 1), now)))
        inputs = {name: tuple(offset.positions) for name, offset in now.inputs.items()}
        plain = {**msgspec.to_builtins(now), "inputs": inputs, "changes": changes}
        found.append(msgspec.convert(plain, CheckpointStatus))
    return found


def _verified(
    spark: SparkSession, place: JobPlace, running: FlowRun, group: str
) -> VerifiedCheckpoint:
    from millstream.spark.inspection.opened import opened
    from millstream.spark.inspection.verify import verify

    root = next((one.root for one in running.queries.values()), running.folder)
    found = verify(opened(place, group), root, lambda: spark)
    return VerifiedCheckpoint(
        faults=tuple(map(str, found.faults)),
        batches=found.batches,
        files=found.files,
        outputs=found.outputs,
        unseen=found.unseen,
    )
