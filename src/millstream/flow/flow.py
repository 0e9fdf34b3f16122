"""The flow: a named graph of stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import ceil, lcm
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from millstream.clock import MICROSECOND
from millstream.errors import (
    DuplicateName,
    InvalidDuration,
    InvalidOption,
    NoOutputs,
    NoTime,
    UnknownColumn,
    UnknownJournal,
    UnknownStream,
    UnknownType,
)
from millstream.flow import query as queries
from millstream.flow.durations import duration
from millstream.flow.keys import KeyExpression, read_key
from millstream.flow.schema import Schema
from millstream.flow.site import Site, here
from millstream.flow.sources import SourceSpec
from millstream.flow.spelling import spelled_methods
from millstream.flow.stages import Journal, Reads, Sink, Source, Stage
from millstream.flow.stages.sink import SinkGroup
from millstream.flow.stages.upstream import schema_of
from millstream.flow.stream import Stream

if TYPE_CHECKING:
    from millstream.flow.stages.upstream import Upstream

_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(hours=1)


@spelled_methods
class Flow:
    """A named graph of stages; building it runs nothing.

        flow = Flow("flights", switch_every="1 hour")
        departures = flow.source("departures", ms.inbox("origin string, at timestamp"), time="at")
        hourly = departures.window("hourly", every="1 hour", by="origin", flights="count(*)")
        hourly.sink("hourly", ms.console())

    Args:
        name: The flow's name; its files are found under it.
        switch_every: The switch interval: a switch to a new version is made at a multiple of it,
            one to two of them after the newest event. If it is left out, the shortest at whose end
            all tumbling windows end, from ten seconds to an hour.
        window: Deprecated: the earlier name of `switch_every`.

    Two flows are equal if their stages and sinks are.
    """

    def __init__(
        self,
        name: str,
        switch_every: str | timedelta | None = None,
        *,
        window: str | timedelta | None = None,
    ) -> None:
        self._name = name
        site = self._site(name, "flow")
        if switch_every is not None and window is not None:
            fact = "has two switch intervals, switch_every and window"
            hint = "remove window, the earlier name of switch_every"
            raise site.mistake(InvalidOption, fact, hint=hint)
        given = window if switch_every is None else switch_every
        with site.naming("switch_every" if window is None else "window"):
            self._switch_every = None if given is None else duration(given)
        if self._switch_every is not None and not self._switch_every:
            hint = 'give a time above zero, like "1 hour"'
            raise site.mistake(InvalidDuration, "has a switch interval of no length", hint=hint)
        self._stages: dict[str, Stage] = {}
        self._streams: dict[str, Stream] = {}
        self._sinks: dict[str, Sink] = {}
        self._groups: dict[str, SinkGroup] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def switch_every(self) -> timedelta:
        """The switch interval."""
        return self._switch_every or _switch_interval(self._stages.values())

    @property
    def window(self) -> timedelta:
        """The switch interval, by its earlier name."""
        return self.switch_every

    @property
    def given_switch_every(self) -> timedelta | None:
        """The switch interval, if its user gave one."""
        return self._switch_every

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The sources, transforms and journals by name, each after what it reads."""
        return MappingProxyType(self._stages)

    @property
    def sinks(self) -> Mapping[str, Sink]:
        return MappingProxyType(self._sinks)

    @property
    def groups(self) -> Mapping[str, SinkGroup]:
        """The sinks that `group` has named, by the name of their group."""
        return MappingProxyType(self._groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and _content(self) == _content(other)

    __hash__ = None  # type: ignore[assignment]  # it can grow

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self.stages)} stages, {len(self.sinks)} sinks)"

    def source(
        self,
        name: str,
        spec: SourceSpec,
        *,
        time: str | None = None,
        lateness: str | timedelta = "0 s",
        key: str | None = None,
        ahead: str | timedelta = "1 day",
        idle: str | timedelta = "10 s",
        partitions: int = 1,
        keep_for: str | timedelta | None = None,
        keep_bytes: int | None = None,
        journal: str | None = None,
    ) -> Stream:
        """Return the stream of events from outside.

        Args:
            name: The source's name, and that of its journal.
            spec: Where they come from: ms.inbox(...), ms.files(...), ms.rate(...), ms.replay(...).
            time: The column that says when an event happened.
            lateness: How far an event's time may lie behind the latest in its partition; later ones
                go to the dead letters.
            key: The column that windows and folds group by unless they are given another, and
                by which events find their partition; or an expression, of a source that has one
                partition.
            ahead: How far an event's time may lie ahead of the clock; further ones go to the dead
                letters.
            idle: After how long without events a partition stops holding up the others.
            partitions: In how many parts the journal is written, at least: one that has more keeps
                them.
            keep_for: Keep what all groups have read for so long; permanently if neither this
                nor `keep_bytes` is given.
            keep_bytes: Keep so many bytes, per partition, of what all groups have read.
            journal: Where its journal is kept, "kafka://host:9092/topic"; in the job's folder, or
                where the job's journals are, if it is left out.
        """
        site = self._site(name, "source")
        if not isinstance(spec, SourceSpec):
            hint = "say where from: ms.inbox(...), ms.files(...), ms.rate(...), ms.replay(...)"
            raise site.mistake(InvalidOption, f"is made of {type(spec).__name__}", hint=hint)
        column = _time(site, spec.schema, time)
        late = site.duration(lateness, "lateness")
        if late and column is None:
            hint = 'name its time column: time="at"'
            raise site.mistake(NoTime, "has a lateness and no time", hint=hint)
        routed, keyed_by = _key(site, spec.schema, key, partitions)
        timing = column, late, routed, site.duration(ahead, "ahead"), site.duration(idle, "idle")
        kept = partitions, site.kept(partitions, keep_for, keep_bytes), keep_bytes
        origin = spec.timed_by(column)
        at = site.address(journal)
        stage = Source(name, origin, spec.schema, *timing, *kept, keyed_by, at, site.where)
        return self.keep(stage, Stream(self, name, spec.schema, column, routed, late, keyed_by))

    def _site(self, name: str, kind: str = "stage") -> Site:
        site = Site(self.name, name, kind, here())
        site.check_name()
        return site

    def merge(self, name: str, *streams: Stream) -> Stream:
        """Return the rows of several streams, which have the same columns and time."""
        site = self._site(name)
        if not streams:
            raise site.mistake(InvalidOption, "merges no streams", hint="name at least two")
        Stream(self, self.name, None, None, None, timedelta(0))._check_own(site, streams[0])
        return streams[0].merge(name, *streams[1:])

    def sql(self, name: str, query: str) -> Stream:
        """Return the rows of a query over the stream that it reads FROM, as `Stream.sql` does.

        flow.sql("late", "SELECT * FROM departures WHERE delay > 60")
        """
        site = self._site(name)
        with site.naming("query"):
            read = queries.tables_in(query)
        known = next((table for table in read if table in self._streams), None)
        if known is None:
            fact = "has a query that reads no stream"
            fact = f'reads FROM "{read[0]}", which is not a stream' if read else fact
            hint = f"its streams are {', '.join(self._streams) or 'still to come'}"
            raise site.mistake(UnknownStream, fact, hint=hint)
        return self._streams[known].sql(name, query)

    def group(self, name: str, *sinks: str) -> None:
        """Let sinks share one Spark query; one that is named alone shares none.

            flow.group("copies", "paid", "refused", "large")

        Sinks in files that only choose from the rows of one stream share a query by themselves. This
        lets sinks share whose targets are elsewhere: each then waits for the slowest. Results,
        checkpoints and switches of each stay its own.

        Args:
            name: A name for what they share.
            sinks: The names of sinks of this flow, below stages that choose rows and columns of the
                same stream.
        """
        site = self._site(name, "group")
        _check_unique(site, self._groups, "group")
        if not sinks:
            raise site.mistake(InvalidOption, "names no sinks", hint="name at least one")
        for sink in sinks:
            if sink not in self._sinks:
                hint = f"its sinks are {', '.join(self._sinks) or 'still to come'}"
                raise site.mistake(InvalidOption, f'names "{sink}", which is not a sink', hint=hint)
            other = next((one for one in self._groups.values() if sink in one.sinks), None)
            if other is not None or sinks.count(sink) > 1:
                fact = f'names sink "{sink}", which is in group "{(other or site).name}" already'
                raise site.mistake(InvalidOption, fact, hint="name each sink once")
        self._groups[name] = SinkGroup(name, sinks, site.where)

    def reads(
        self, journal: str, ddl: str | Schema, *, time: str | None = None, name: str | None = None
    ) -> Stream:
        """Return the stream of a journal that this flow writes further down, to build a cycle.

        Its schema must be given, since the stage that writes it is not there yet; the journal is
        checked against it.

        Args:
            journal: The name that `Stream.journal` will be given.
            ddl: Its columns.
            time: Its time column.
            name: The name of this stage; "reads_" and the journal's if it is left out.
        """
        self._site(journal, "journal")
        site = self._site(name or f"reads_{journal}")
        schema = schema_of(site, ddl)
        column = _time(site, schema, time)
        stage = Reads(site.name, journal, schema, column, site.where)
        stream = self.keep(stage, Stream(self, site.name, schema, column, None, timedelta(0)))
        self._check_cycle(stage)
        return stream

    def stream(self, name: str) -> Stream:
        """Return the output of a stage.

        Raises:
            UnknownStream: There is no such stage.
        """
        if name not in self._streams:
            msg = f'flow "{self.name}" has no stage "{name}"'
            hint = f"its stages are {', '.join(self._streams) or 'still to come'}"
            raise UnknownStream(msg, hint=hint, where=here())
        return self._streams[name]

    def check(self) -> None:
        """Refuse a flow that is not finished.

        Raises:
            NoOutputs: It has neither a sink nor a journal.
            UnknownJournal: It reads a journal that it does not write.
        """
        journals = [stage.name for stage in self._journals()]
        for stage in self.stages.values():
            if isinstance(stage, Reads) and stage.journal not in journals:
                site = Site(self.name, stage.name, "stage", stage.where)
                fact = f'reads journal "{stage.journal}", which no stage writes'
                hint = f'write it with .journal("{stage.journal}")'
                hint = f"its journals are {', '.join(journals)}" if journals else hint
                raise site.mistake(UnknownJournal, fact, hint=hint)
        if not self.sinks and not journals:
            msg = f'flow "{self.name}" has no sinks, so nothing would run'
            raise NoOutputs(msg, hint='send a stream somewhere: stream.sink("out", ms.console())')

    def unused(self) -> tuple[str, ...]:
        """Return the stages that no sink and no journal reads, directly or through others."""
        used = {stage.name for stage in self._journals()}
        outputs: list[Sink | Journal] = [*self.sinks.values(), *self._journals()]
        waiting = [one.input for one in outputs]
        while waiting:
            name = waiting.pop()
            if name not in used:
                used.add(name)
                waiting += self.stages[name].inputs
        return tuple(name for name in self.stages if name not in used)

    def _journals(self) -> list[Journal]:
        return [stage for stage in self._stages.values() if isinstance(stage, Journal)]

    def add(self, stage: Stage, *inputs: Upstream) -> Stream:
        """Add a stage that reads these streams, and return its own."""
        # What has one kind's method has them all.
        streams = cast("tuple[Stream, ...]", inputs)
        site = Site(self.name, stage.name, stage.noun, stage.where)
        return self.keep(stage, stage.stream(site, *streams))

    def keep(self, stage: Stage, stream: Upstream) -> Stream:
        """Add a stage whose stream is known."""
        assert isinstance(stream, Stream)
        site = Site(self.name, stage.name, stage.noun, stage.where)
        _check_unique(site, self._stages, "stage")
        if isinstance(stage, Journal):
            _check_unique(site, self._sinks, "sink")
            self._check_readers(stage, stream)
        self._stages[stage.name] = stage
        self._streams[stage.name] = stream
        return stream

    def _add_sink(self, sink: Sink) -> None:
        site = Site(self.name, sink.name, "sink", sink.where)
        _check_unique(site, self._sinks, "sink")
        _check_unique(site, {one.name: one for one in self._journals()}, "journal")
        self._sinks[sink.name] = sink

    def _check_cycle(self, stage: Reads) -> None:
        written = self._streams.get(stage.journal)
        if written is not None and isinstance(self._stages[stage.journal], Journal):
            stage.check_written(Site(self.name, stage.name, "stage", stage.where), written)

    def _check_readers(self, journal: Journal, stream: Stream) -> None:
        for stage in self._stages.values():
            if isinstance(stage, Reads) and stage.journal == journal.name:
                site = Site(self.name, journal.name, "journal", journal.where)
                stage.check_written(site, stream)


def _check_unique(site: Site, others: Mapping[str, Stage | Sink | SinkGroup], kind: str) -> None:
    if site.name not in others:
        return
    where = others[site.name].where
    place = f", in line {where.line}" if where is not None else ""
    fact = f"has the name of another {kind}{place}"
    raise site.mistake(DuplicateName, fact, hint="give one of them another name")


def _content(flow: Flow) -> tuple[object, ...]:
    return flow.name, flow.switch_every, dict(flow.stages), dict(flow.sinks), dict(flow.groups)


def _switch_interval(stages: Iterable[Stage]) -> timedelta:
    """Return the shortest time, of 10 s to an hour, whose multiples cut no result in two."""
    boundaries = [stage.boundary for stage in stages if stage.boundary is not None]
    common = lcm(*(length // MICROSECOND for length in boundaries)) * MICROSECOND
    return min(common * ceil(_SHORTEST / common), _LONGEST)


def _key(
    site: Site, schema: Schema, key: str | None, partitions: int
) -> tuple[str | None, KeyExpression | None]:
    """Return the column that a source is keyed by, or the expression."""
    if key is None:
        return None, None
    computed = read_key(site, schema, key, site.name, "is keyed by")
    if computed is None:
        return site.column(schema, key, site.name, verb="is keyed by"), None
    if partitions > 1:
        fact = f'has {partitions} partitions and is keyed by the expression "{computed.text}"'
        said = f'leave key= out, and say stream.key_by("{computed.text}")'
        hint = f"events find their partition by a column: {said}, or send the key as a column"
        raise site.mistake(InvalidOption, fact, hint=hint)
    return None, computed


def _time(site: Site, schema: Schema, time: str | None) -> str | None:
    site.check_columns(schema)
    if time is None:
        return None
    field = schema.find(time)
    if field is None:
        known = ", ".join(field.name for field in schema if field.type == "timestamp")
        hint = f"its timestamps are {known}" if known else "add a column of type timestamp"
        raise site.mistake(UnknownColumn, f'has no column "{time}" to tell the time', hint=hint)
    if field.type != "timestamp":
        fact = f'has {field.type} as the type of its time column "{time}"'
        raise site.mistake(UnknownType, fact, hint="it must be timestamp")
    return field.name
