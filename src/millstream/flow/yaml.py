"""Flows in YAML: the same stages, for those that need no Python.

    name: flights
    switch_every: 1 hour              # the switch interval; by default, what the windows need

    sources:
      departures:
        inbox: flight string, origin string, delay double, at timestamp
        time: at
        lateness: 30 minutes
        key: origin                   # also: ahead, idle, partitions, keep_for, keep_bytes,
                                      # journal (kafka://host:9092/topic)
      weather:
        files: data/weather/*.csv     # with schema; also: format, follow, options
        schema: origin string, temp double, at timestamp
        time: at
      ticks:
        rate: 100                     # rows a second; also: rows
      recorded:
        replay: flights.parquet       # with schema; also: speed, format
        schema: flight string, at timestamp
        time: at
      again:
        reads: kept                   # a journal that a stage below writes (a cycle)
        schema: flight string, origin string, delay double, at timestamp
        time: at

    stages:                           # in any order
      late:
        from: departures
        sql: SELECT * FROM departures WHERE delay > 60
      hourly:
        from: departures
        window: 1 hour                # how often one starts; also: size, for longer ones
        by: origin                    # a column, a list, or name: expression
        aggregates:
          flights: count(*)
          delay: avg(delay)
      visits:
        from: departures
        session: 30 minutes           # the gap; also: longest
        aggregates: {flights: count(*)}
      all:
        merge: [departures, late, again]
      paired:
        join: [departures, weather]   # left and right
        on: origin                    # a column or a list
        within: 1 hour
        how: left                     # inner, left, right, full or semi; inner if left out
      named:
        from: hourly
        lookup: airports.csv          # a static table; also: schema, format, how
        on: origin
      once:
        from: all
        distinct: flight              # a column or a list
        within: 1 day
      scored:
        from: departures
        action: [./score, -v]         # a program and its arguments; also: input, contract, format,
                                      # env, files, time_limit, attempts, memory_bytes,
                                      # cpu_seconds, user, conn_whitelist, processes,
                                      # file_bytes, sandbox
        output: score double
      rising:
        from: departures
        sql: >                        # a query with MATCH_RECOGNIZE is a pattern
          SELECT * FROM departures MATCH_RECOGNIZE (PARTITION BY origin ORDER BY at
            PATTERN (strt up{2,}) WITHIN INTERVAL '1' HOUR DEFINE up AS delay > PREV(delay))
      slow:
        from: departures
        match:                        # blocks in order: begin, next, followed_by, followed_by_any,
                                      # not_next, not_followed_by
          - {begin: first, where: delay > 60}
          - {followed_by: worse, where: delay > first.delay, times: 3}
                                      # also: at_least, optional, greedy, until, ...
        within: 2 hours               # also: by, skip, singleton, precondition, halt, timeouts,
                                      # strict, shards
        emit: origin, first.at as began, count(worse.*) as n
      change:
        from: departures
        phenomenon:                   # several patterns by name, each with what a match has
          up:
            match: [{begin: a, where: delay > 60}, {next: b, where: delay > 90}]
            within: 1 hour
          down: {match: [{begin: a, where: delay > 60}, {next: b, where: delay <= 0}]}
        emit: origin, b.delay as delay
      kept:
        journal: once                 # the stream that gets a journal; also: partitions, key,
                                      # keep_for, keep_bytes, at (kafka://host:9092/topic)

    sinks:
      hourly:
        from: hourly
        parquet: out/hourly           # or jsonl, csv, console (rows), memory, postgres (address)
                                      # with table, outbox (address or data folder) with source;
                                      # also: key, end, server

    groups:                           # sinks that share a query, or one that shares none
      apart: [hourly]

Every mistake is reported with file, line and column. Stages that call functions (`apply`, `fold`)
are written in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from pathlib import Path

from millstream.errors import CycleWithoutJournal, FlowError, NotLoadable, UnknownStream
from millstream.flow import connector, document, stages
from millstream.flow.document import Entry
from millstream.flow.flow import Flow
from millstream.flow.site import placed
from millstream.flow.sources import SourceSpec
from millstream.flow.stages import EntryPoint, Stage
from millstream.flow.stream import Stream
from millstream.flow.targets import TargetSpec

_OPTIONS = ("time", "lateness", "key", "ahead", "idle", "keep_for", "journal")


def load(path: str | PathLike[str]) -> Flow:
    """Return the flow in a YAML file.

    Raises:
        NotLoadable: The file is not what the description above says.
        FlowError: The flow has a mistake.
    """
    file = Path(path)
    top = document.read(file)
    name, every = top.needed("name", "the flow's name"), top.text("switch_every")
    window = top.text("window")  # deprecated: the earlier name
    sources, stages, sinks = (top.entries(f"{one}s", one) for one in ("source", "stage", "sink"))
    groups = top.lists("groups")
    top.finish()
    with _at(top):
        flow = Flow(name, every, window=window)
    _Builder(flow, sources, stages, sinks, []).build()
    for group, together in groups.items():
        with _at(top):
            flow.group(group, *together)
    return flow


@contextmanager
def _at(entry: Entry) -> Iterator[None]:
    """Give what is built here, and its mistakes, the place of an entry."""
    with placed(entry.where):
        try:
            yield
        except FlowError as error:
            if error.where is not None:
                raise
            msg = f"{entry.title} is wrong: {error.message}"
            raise type(error)(msg, hint=error.hint, where=entry.where) from None


@dataclass
class _Builder:
    """Builds the stages in the order in which they read each other."""

    flow: Flow
    sources: dict[str, Entry]
    stages: dict[str, Entry]
    sinks: dict[str, Entry]
    path: list[str]

    def build(self) -> None:
        for name, entry in self.sources.items():
            with _at(entry):
                _source(self.flow, name, entry)
        for name, entry in self.stages.items():
            if name in self.sources:
                msg = f'stage "{name}" has the name of a source'
                raise NotLoadable(msg, hint="expected another name", where=entry.where)
        for name in self.stages:
            self.stage(name)
        for name, entry in self.sinks.items():
            stream = self.read(entry, entry.needed("from", "a stream"))
            with _at(entry):
                stream.sink(name, _target(entry))
            entry.finish()

    def read(self, entry: Entry, name: str) -> Stream:
        """Return the stream of that name, building it if need be."""
        known = [*self.sources, *self.stages]
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"its streams are {', '.join(known)}"
            who = f'{entry.title} of flow "{self.flow.name}"'
            msg = f'{who} reads stream "{name}", which is not there'
            raise UnknownStream(msg, hint=hint, where=entry.where)
        return self.stage(name) if name in self.stages else self.flow.stream(name)

    def stage(self, name: str) -> Stream:
        if name in self.flow.stages:
            return self.flow.stream(name)
        entry = self.stages[name]
        if name in self.path:
            raise self.cycle(name, entry)
        self.path.append(name)
        kind = self.kind(entry)
        inputs = [self.read(entry, source) for source in kind.yaml_inputs(entry)]
        self.path.pop()
        with _at(entry):
            stream = kind.from_yaml(name, entry, inputs)
        entry.finish()
        return stream

    def kind(self, entry: Entry) -> type[Stage]:
        """Return the kind of stage that an entry describes."""
        known = stages.kinds().values()
        words = {word: kind for kind in known for word in kind.yaml_words}
        unwritten = [kind.kind for kind in known if not kind.yaml_words]
        return words[entry.one_of(tuple(words), in_python=unwritten)]

    def cycle(self, name: str, entry: Entry) -> FlowError:
        around = self.path[self.path.index(name) :]
        entries = ((stage, self.kind(self.stages[stage])) for stage in around)
        journal = next((stage for stage, kind in entries if issubclass(kind, EntryPoint)), None)
        hint = 'give one of them a journal, and read that with "reads" and its schema in sources'
        if journal is not None:
            source = f'a source with "reads: {journal}" and its schema'
            hint = f"read the journal where the cycle begins: {source}"
        path = " -> ".join(f'"{stage}"' for stage in (*around, name))
        msg = f'{entry.title} of flow "{self.flow.name}" reads its own output: {path}'
        return CycleWithoutJournal(msg, hint=hint, where=entry.where)


def _source(flow: Flow, name: str, entry: Entry) -> None:
    known = connector.sources()
    kind = entry.one_of((*known, "reads"))
    if kind == "reads":
        journal, schema = entry.needed("reads", "a journal"), entry.needed("schema", "columns")
        flow.reads(journal, schema, time=entry.text("time"), name=name)
    else:
        spec = known[kind].from_yaml(entry)
        flow.source(name, spec, **entry.given(text=_OPTIONS, whole=("partitions", "keep_bytes")))
    entry.finish()


def load_source(text: str) -> SourceSpec:
    """Return what a source reads, of the YAML of `dump.dump_source`."""
    known = connector.sources()
    entry = document.parse(text, Path("source.yaml"))
    return known[entry.one_of(tuple(known))].from_yaml(entry)


def _target(entry: Entry) -> TargetSpec:
    known = connector.targets()
    return known[entry.one_of(tuple(known))].from_yaml(entry)
