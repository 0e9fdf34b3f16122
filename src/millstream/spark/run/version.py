"""One version of a flow on Spark: where its checkpoints and journals are, and its queries.

    groups/<group>                a group of the first version
    groups/<group>@<version>      one that a later version made, or changed
    journals/<journal>@<version>  a journal between two changed groups: each version has its own

A version that takes the place of another keeps the queries of groups that mean the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType
from rich.console import Console

from millstream.clock import MICROSECOND
from millstream.errors import InvalidOption
from millstream.flow.flow import Flow
from millstream.flow.site import Site
from millstream.flow.stages import Source, Written
from millstream.joblog import JobLog, Renewal
from millstream.journal import journal_at, journal_kept
from millstream.plan import fingerprint
from millstream.plan.groups import Group, entry_above, journal_read, plan
from millstream.spark.failpoints import passing
from millstream.spark.io.checkpoint import RECORD, Checkpoint
from millstream.spark.io.journal_target import JournalTarget
from millstream.spark.io.schemas import arrow_schema
from millstream.spark.io.sink import GroupSink
from millstream.spark.io.source import PLACE
from millstream.spark.io.targets import Readable, SinkContext, Target, open_target
from millstream.spark.run.query import GroupQuery, inputs_of
from millstream.spark.run.snapshot import snapshot
from millstream.spark.stages.analyse import Analysis, analyse
from millstream.storage import storage_at
from millstream.switch.changes import Version
from millstream.switch.keys import key_of
from millstream.switch.record import Homes
from millstream.switch.starts import start_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class RunContext:
    """What all versions of a run share: Spark, the folder, and targets that two of them write."""

    spark: SparkSession
    folder: Path
    root: Path
    rows_per_batch: int
    state: str | None = None
    terminal: Console | None = None
    binaries: Mapping[str, Path] = field(default_factory=dict)
    #: Where checkpoints are, if several hosts may run the job, and its log from the start on.
    address: str | None = None
    log: JobLog | None = None
    #: Whether an engine lets others have the job, and not this run.
    leased: bool = False
    #: Renews the lease while the run goes on, if it has one.
    renewal: Renewal | None = None
    memory: dict[str, Readable] = field(default_factory=dict)
    _journals: dict[Path, JournalTarget] = field(default_factory=dict)
    _sinks: dict[tuple[str, str], Target] = field(default_factory=dict)

    def journal_target(self, path: Path, key: str | None) -> JournalTarget:
        """Return who writes a journal: there can be only one."""
        known = self._journals.get(path)
        if known is not None and not known.closed:
            return known.share()
        self._journals[path] = JournalTarget(path, key=key, log=self.log)
        return self._journals[path]

    def sink_target(self, flow: Flow, name: str, folder: Path, letters: Path) -> Target:
        """Return who writes a sink; versions with equal sinks share it if it can be shared."""
        spec = flow.sinks[name].target
        known = self._sinks.get((name, repr(spec)))
        if known is not None:
            return known
        context = SinkContext(flow.name, name, self.root, folder, self.terminal, letters, self.log)
        target = open_target(spec, context)
        if target.shared:
            self._sinks[name, repr(spec)] = target
        if isinstance(target, Readable):
            self.memory[name] = target
        return target


@dataclass(frozen=True, slots=True)
class Aside:
    """A version in the shadow of another: its groups without targets, and where letters go."""

    groups: frozenset[str]
    letters: Path


@dataclass
class FlowVersion:
    """A version of a flow; its queries exist once they are made, and run once they are started."""

    ground: RunContext
    name: str
    flow: Flow
    homes: Homes = field(default_factory=Homes)
    aside: Aside | None = None
    queries: dict[str, GroupQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = plan(self.flow)

    # what it means

    @cached_property
    def analysis(self) -> Analysis:
        """What Spark says about the flow.

        Raises:
            FlowError: It has a mistake that only Spark can see.
        """
        return analyse(self.ground.spark, self.plan, self.ground.root)

    @property
    def meanings(self) -> Version:
        """What each group means, to compare it with other versions."""
        return Version(self.plan, self._meanings, frozenset(self.homes.by_time))

    @cached_property
    def _meanings(self) -> dict[str, dict[str, Any]]:  # JSON
        return {group.name: self._meaning(group) for group in self.plan.groups}

    def _meaning(self, group: Group) -> dict[str, Any]:  # JSON
        description = fingerprint.fingerprint(self.plan, group.name, self._snapshots)
        for name, stage in description["stages"].items():
            needed = self.analysis.columns.get((group.name, name))
            if needed is not None and stage.get("schema"):
                # A column that a group does not use may come and go.
                stage["schema"] = [column for column in stage["schema"] if column[0] in needed]
        return description

    @cached_property
    def _snapshots(self) -> dict[str, str]:
        stages = self.flow.stages.values()
        found = {name: self.ground.root / name for stage in stages for name in stage.contents}
        return {name: snapshot(path) for name, path in {**found, **self.ground.binaries}.items()}

    def check_binaries(self) -> None:
        """Refuse a version whose programs are not here.

        Raises:
            InvalidOption: One is not.
        """
        for stage in self.flow.stages.values():
            if stage.program is not None and stage.program not in self.ground.binaries:
                site = Site(self.flow.name, stage.name, "stage", stage.where)
                hint = (
                    "millstream actions add brings it to an engine, "
                    "millstream deploy runs the flow there"
                )
                fact = f'runs "{stage.program}", which is not here'
                raise site.mistake(InvalidOption, fact, hint=hint)

    @property
    def lateness(self) -> dict[str, int]:
        """The lateness of each source, in microseconds."""
        stages = self.flow.stages.items()
        sources = {name: stage for name, stage in stages if isinstance(stage, Source)}
        return {name: stage.lateness // MICROSECOND for name, stage in sources.items()}

    # where it is

    def group_folder(self, group: str) -> Path:
        """Return the folder of a group's checkpoint."""
        return self.ground.folder.resolve() / "groups" / placed(group, self.homes.groups)

    def group_address(self, group: str) -> str | None:
        """Return where a group's checkpoint is, if it is not in the folder."""
        base = self.ground.address
        return None if base is None else f"{base}/groups/{placed(group, self.homes.groups)}"

    def journal(self, name: str) -> Path:
        """Return the folder of a journal."""
        return self.ground.folder.resolve() / "journals" / placed(name, self.homes.journals)

    def reader(self, group: str) -> str:
        """Return the name under which a group reads journals."""
        return f"{self.flow.name}.{self.group_folder(group).name}"

    @property
    def readers(self) -> set[tuple[Path, str]]:
        """Who reads which journal."""
        uses = self.plan.journals.items()
        return {
            (self.journal(name), self.reader(group)) for name, use in uses for group in use.readers
        }

    # setting up

    def checkpoints(self, groups: Iterable[str]) -> dict[str, Checkpoint]:
        """Return the checkpoints of groups; nothing is written.

        Raises:
            GroupChanged: A group means something else than when its checkpoint was made.
        """
        meanings = self.meanings.meanings
        return {
            name: Checkpoint.open(
                self.group_folder(name), name, meanings[name], self.group_address(name)
            )
            for name in groups
        }

    def make_journals(self) -> None:
        """Make the journals that are not there, and widen those that are."""
        for name, stage in self.flow.stages.items():
            if self.aside is not None and self.homes.journals.get(name) != self.name:
                continue  # in a shadow, what others use stays as it is
            if not isinstance(stage, Written):
                continue
            journal_kept(self.journal(name), stage.address).create(
                arrow_schema(self.analysis.schemas[name])
                if stage.declared is None
                else stage.declared.arrow(),
                partitions=stage.partitions,
                time=self.flow.stream(name).time,
                written_by="group" if stage.writer == "group" else "inbox",
            )

    def register(self) -> None:
        """Let every journal know who reads it before anything may be removed."""
        for path, reader in sorted(self.readers):
            read = journal_at(path)
            if reader not in {one.reader for one in read.committed()}:
                opened = read.reader()
                views = [opened.partition(n) for n in range(opened.description.partitions)]
                read.commit(reader, [view.begin for view in views])

    def make(self, group: str, checkpoint: Checkpoint) -> GroupQuery:
        """Make the query of a group; it does not run yet."""
        found = self.plan.group(group)
        start = self.meanings.start(found)
        by_time = group in self.homes.by_time
        before = start_before(self.flow, found.stages, found.output, by_time=by_time)
        sink = GroupSink(
            job=self.flow.name,
            checkpoint=checkpoint.begin(),
            targets=self._targets(found),
            inputs=inputs_of(self.flow, found, self.journal),
            stateful=found.stateful,
            behind=found.behind,
            start=None if start is None else start.column,
            start_before=None if before is None else before.column,
            key=key_of(self.flow, found.output),
            shadow=self.aside is not None,
            log=self.ground.log,
        )
        query = GroupQuery(
            spark=self.ground.spark,
            flow=self.flow,
            group=found,
            analysis=self.analysis,
            checkpoint=checkpoint,
            sink=sink,
            root=self.ground.root,
            written=None if found.journal is None else self.journal(found.journal),
            limit=self.ground.rows_per_batch,
            state=self.ground.state,
            binaries=self.ground.binaries,
            letters=None if self.aside is None else self.aside.letters,
        )
        self.queries[group] = query
        return query

    def _targets(self, group: Group) -> Sequence[Target]:
        if self.aside is not None and group.name in self.aside.groups:
            return []
        if group.journal is not None:
            stage = self.flow.stages[group.journal]
            assert isinstance(stage, Written)
            return [self.ground.journal_target(self.journal(group.journal), stage.key)]
        targets = []
        for name in group.sinks:
            target = self.sink_target(group, name)
            schema = self.analysis.schemas[self.flow.sinks[name].input]
            target.prepare(StructType([field for field in schema if field.name != PLACE]))
            targets.append(target)
        return targets

    def sink_target(self, group: Group, name: str) -> Target:
        """Return who writes a sink of a group."""
        entry = entry_above(self.flow, self.flow.sinks[name].input)
        letters, folder = self.journal(journal_read(entry)), self.group_folder(group.name)
        return self.ground.sink_target(self.flow, name, folder, letters)

    # while it runs

    def trim(self) -> None:
        """Remove what all groups have read and nobody wants to keep."""
        for name, use in self.plan.journals.items():
            stage = self.flow.stages[name]
            assert isinstance(stage, Written)
            if not stage.kept_whole:
                backs = [
                    self.plan.group(reader).look_back or timedelta(0) for reader in use.readers
                ]
                back = max(backs, default=timedelta(0))
                journal_at(self.journal(name)).trim(
                    keep_for=stage.keep_for, keep_bytes=stage.keep_bytes, look_back=back
                )


def up_to_date(query: GroupQuery) -> bool:
    """Tell whether a query has read all that is there, or may not read it yet.

    One that waits for its state goes on when the version that has it is done with its rows.
    """
    return query.caught_up() or query.control.orders().held


def at_rest(query: GroupQuery) -> bool:
    """Tell whether no batch of a query runs, and none is about to for what is known now."""
    if query.finished or query.query is None:
        return True
    committed = query.checkpoint.last("offsets") == query.checkpoint.last("commits")
    return committed and not query.query.status["isDataAvailable"]


def found_nothing(query: GroupQuery) -> bool:
    """Tell whether Spark just found nothing to do: no rows, and no watermark that has moved.

    It says so for a moment between two looks only; ask again. Right after a batch `at_rest` may be
    true and the next batch begin.
    """
    return query.query is not None and query.query.status["message"] == "Waiting for data to arrive"


def placed(name: str, homes: Mapping[str, str]) -> str:
    """Return the name of the folder of a group or a journal."""
    home = homes.get(name, "")
    return f"{name}@{home}" if home else name


def forget_readers(paths: Iterable[Path], flow: str, known: set[tuple[Path, str]]) -> None:
    """Let journals know which groups of a flow do not read them any more."""
    for path in paths:
        read = journal_at(path)
        for one in read.committed() if path.exists() else ():
            if one.reader.startswith(f"{flow}.") and (path, one.reader) not in known:
                read.forget(one.reader)


def remove_unless(
    folder: Path, gone: Homes, stays: Homes, *, new: bool, address: str | None = None
) -> None:
    """Remove checkpoints and journals of a version that another one lacks; may be repeated.

    Named journals that the other version has no use for stay, unless a `new` version made them and
    never ran.
    """
    for name, home in gone.groups.items():
        if stays.groups.get(name) != home:
            place = f"groups/{placed(name, gone.groups)}"
            shutil.rmtree(folder / place, ignore_errors=True)
            if address is not None:
                storage_at(address).delete_all(place)
            passing("switch-removed-group")
    for name, home in gone.journals.items():
        if stays.journals.get(name, None if new else home) != home:
            shutil.rmtree(folder / "journals" / placed(name, gone.journals), ignore_errors=True)
            passing("switch-removed-journal")


def remove_leftovers(folder: Path, kept: Collection[str]) -> None:
    """Remove what came back of groups that are gone; may be repeated.

    RocksDB may write a snapshot for a query that is stopped, and make the removed folder again for
    it. Such a folder lacks the record that every checkpoint begins with. Those that are `kept`
    stay: they may be about to begin.
    """
    for place in (folder / "groups").glob("*/"):
        if place.name not in kept and not (place / RECORD).exists():
            shutil.rmtree(place, ignore_errors=True)
