"""A driver for switches in one process: it carries out the machine's instructions on running groups.

It keeps the record in memory: what a crash leaves behind is the business of other tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import replace as changed

from millstream.journal import Reader, align
from millstream.plan import fingerprint
from millstream.plan.groups import Group
from millstream.spark.analyse import Analysis
from millstream.spark.checkpoint import Checkpoint, Logged
from millstream.spark.control import Control, Orders, Question
from millstream.spark.query import GroupQuery
from millstream.spark.run import FlowRun
from millstream.switch import cut as cuts
from millstream.switch import events as e
from millstream.switch import instructions as i
from millstream.switch import machine
from millstream.switch.changes import Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.record import Phase, decode, encode
from millstream.switch.starts import start_of

MICROSECOND = timedelta(microseconds=1)


class Steered(FlowRun):
    """A version whose sources look for orders; one with a name beside the first has checkpoints of its own."""

    version = ""
    held = False

    def _checkpoint(self, group: Group, analysis: Analysis) -> Checkpoint:
        description = fingerprint.fingerprint(self.plan, group.name)
        folder = self.folder.resolve() / "groups" / f"{group.name}{self.version}"
        return Checkpoint.open(folder, group.name, description)

    def _query(self, group: Group, analysis: Analysis, checkpoint: Checkpoint) -> GroupQuery:
        query = super()._query(group, analysis, checkpoint)
        start = start_of(self.flow, group.stages, group.output)
        assert start is not None
        query.sink.start, query.sink.key = start.column, self.flow.stream(group.output).key
        query.control = checkpoint.location
        Control(checkpoint.location).order(Orders(held=self.held))
        return query

    def _start_sources(self) -> None:
        """Events are written by the test."""

    def control(self, group: str) -> Control:
        return Control(self.queries[group].checkpoint.location)


@dataclass
class Switching:
    """A switch from a version that runs to one that does not yet."""

    old: Steered
    new: Steered
    plan: SwitchPlan = field(init=False)
    state: machine.State = field(init=False)
    record: bytes = b""
    history: list[str] = field(default_factory=list)
    todo: list[i.Instruction] = field(default_factory=list)
    orders: dict[tuple[str, str], Orders] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = switch_plan(Version.of(self.old.plan), Version.of(self.new.plan))
        self.plan.check()
        self.state = machine.begun("a")
        units = tuple(unit.name for unit in self.plan.units)
        self.hear(e.SwitchRequested("b", units, self.plan.step // MICROSECOND, limit_us=60_000_000))

    @property
    def done(self) -> bool:
        return self.state.phase is Phase.RUNNING and not self.todo

    @property
    def cut_us(self) -> int:
        return self.state.owners.stretches[-1].from_us

    def run(self, version: str) -> Steered:
        return self.old if version == "a" else self.new

    def hear(self, event: e.Event) -> None:
        step = machine.advance(self.state, event, time.time_ns() // 1000)
        self.state = step.state
        self.todo += step.instructions
        self.history += [f"{entry.phase}: {entry.text}" for entry in step.entries]

    def poll(self) -> None:
        """Do what is to be done, and notice what has happened."""
        while self.todo:
            self.do(self.todo.pop(0))
        for event in list(self.noticed()):
            self.hear(event)

    def tell(self, version: str, **changes: Any) -> None:
        for group in self.run(version).queries:
            orders = changed(self.orders.get((version, group), Orders()), **changes)
            self.orders[version, group] = orders
            self.run(version).control(group).order(orders)

    def do(self, instruction: i.Instruction) -> None:
        match instruction:
            case i.Write():
                self.record = encode(instruction.record)
            case i.StartHeld():
                self.new.start()
                self.hear(e.Held(frozenset(name for name, *_ in self.voters())))
            case i.AskWindows():
                question = Question("report", instruction.round, instruction.step_us, stop=instruction.stop)
                self.tell("a", question=question)
            case i.AskConfirm():
                asked = instruction.round, instruction.step_us, instruction.bound, instruction.cut_us
                self.tell("a", question=Question("confirm", *asked))
            case i.LetGo():
                self.tell("a", question=None)
            case i.FindFirst():
                self.hear(e.FirstFound(instruction.round, self.first(instruction.cut_us)))
            case i.Release():
                self.release(instruction.version)
            case i.Close():
                unit = next(one for one in self.plan.units if one.name == instruction.unit)
                assert unit.horizon is not None
                # A millisecond more: the watermark of some groups stays that much below the floor.
                close = self.cut_us + unit.horizon // MICROSECOND + 1000
                for group in unit.groups:
                    orders = changed(self.orders["a", group], close_us=close)
                    self.orders["a", group] = orders
                    self.old.control(group).order(orders)
            case i.Retire():
                for query in self.old.queries.values():
                    query.stop()
                self.old.queries.clear()
                self.hear(e.Retired())

    def release(self, version: str) -> None:
        record = decode(self.record)
        for group in self.run(version).queries:
            first = record.firsts.get(version, {}).get(group, {})
            orders = Orders(first=first, owns=record.owners.parts(version))
            self.orders[version, group] = orders
            self.run(version).control(group).order(orders)

    def first(self, cut_us: int) -> e.First:
        found: e.First = {}
        for unit in self.plan.units:
            back = None if unit.look_back is None else unit.look_back // MICROSECOND
            moment = cuts.reads_from(cut_us, back)
            for group in unit.groups:
                inputs = self.new.queries[group].sink.inputs
                found[group] = {name: cuts.first_positions(views(self.new, name), moment) for name in inputs}
        return found

    def voters(self) -> Iterator[tuple[str, str, str, int]]:
        for group, query in self.old.queries.items():
            for journal in query.sink.inputs:
                for partition in range(len(views(self.old, journal))):
                    yield f"{group}/{journal}/{partition}", group, journal, partition

    def noticed(self) -> Iterator[e.Event]:
        if self.state.phase in (Phase.ASKING, Phase.CONFIRMING):
            yield from self.answers()
        if self.state.phase is Phase.OVERLAPPING:
            for unit in self.plan.units:
                yield from self.progress(unit.name, unit.groups, unit.horizon)

    def answers(self) -> Iterator[e.Event]:
        kind = "report" if self.state.phase is Phase.ASKING else "confirm"
        for name, group, journal, partition in self.voters():
            answer = self.old.control(group).answered(journal)
            if answer is None or answer.round != self.state.ballot.round or answer.kind != kind:
                continue
            if kind == "report":
                yield e.Reported(answer.round, name, answer.highest[partition])
            else:
                yield e.Passed(answer.round, name) if answer.passed else e.Confirmed(answer.round, name)

    def progress(self, unit: str, groups: tuple[str, ...], horizon: timedelta | None) -> Iterator[e.Event]:
        assert horizon is not None
        reach = horizon // MICROSECOND
        logged = [(self.old.queries[group], self.old.queries[group].checkpoint.committed()) for group in groups]
        if any(one is None or not _knows(one) for _, one in logged):
            return
        if all(self.beyond(query, one, reach) for query, one in logged if one is not None):
            yield e.Beyond(unit)
        if all(cuts.drained(reached(query, one), self.cut_us, reach) for query, one in logged if one is not None):
            yield e.Drained(unit)

    def beyond(self, query: GroupQuery, logged: Logged, horizon: int) -> bool:
        return all(
            cuts.beyond(
                align.progress(view.state_at(at), query.sink.inputs[name].lateness),
                self.cut_us,
                horizon,
                query.sink.inputs[name].lateness,
            )
            for name, offset in logged.offsets.items()
            for view, at in zip(views(self.old, name), offset.positions, strict=True)
        )


def _knows(logged: Logged) -> bool:
    return all(offset.owns is not None for offset in logged.offsets.values())


def reached(query: GroupQuery, logged: Logged) -> int | None:
    """Return up to where a group has put out all that it will."""
    if query.group.stateful:
        return logged.watermark_ms * 1000 if logged.watermark_ms > 0 else None
    return query.sink.floor(logged)


def views(run: FlowRun, journal: str) -> list[Any]:
    reader = Reader.cached(run.journal(journal))
    return [reader.partition(number) for number in range(reader.description.partitions)]
