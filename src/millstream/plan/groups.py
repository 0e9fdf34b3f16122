"""Groups: the parts of a flow that run as one Spark query each.

A group is one output (the sinks of one stream, or a journal) with the stages above it, up to the
journals that they read: those of sources, and those that the flow itself names. Stages that two
outputs share are in both groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from millstream.errors import UnknownGroup
from millstream.flow.flow import Flow
from millstream.flow.stages.stage import ZERO, EntryPoint, Stage, Written
from millstream.plan.horizon import chain_reach

if TYPE_CHECKING:
    from millstream.plan.sharing import Shared


@dataclass(frozen=True, slots=True)
class Group:
    """One output with the stages above it; it runs as one query with a checkpoint of its own.

    `stages` are in topological order and begin with the entry points: Source, Reads, or a Journal
    that is read. The output journal and the sinks are not among them. `output` is the stage whose
    rows go to `sinks` or to `journal`. `inputs` are the journals that are read, in the order of the
    entry points. `horizon` and `look_back` are None if they are open-ended; the state of the stages
    in `handed_over` is moved by name instead.
    """

    name: str
    stages: tuple[str, ...]
    output: str
    inputs: tuple[str, ...]
    sinks: tuple[str, ...]
    journal: str | None
    stateful: bool
    timed: bool
    horizon: timedelta | None
    look_back: timedelta | None
    handed_over: tuple[str, ...]
    behind: timedelta
    lateness: timedelta

    @property
    def overlap(self) -> timedelta | None:
        """How long both versions would run side by side in a switch, in event time."""
        return None if self.horizon is None else self.horizon + self.lateness


@dataclass(frozen=True, slots=True)
class JournalUse:
    """A journal, who writes it and which groups read it."""

    name: str
    kind: Literal["source", "group"]
    writer: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A flow as groups, each after those whose journals it reads where there is no cycle."""

    flow: Flow
    groups: tuple[Group, ...]
    warnings: tuple[str, ...] = ()
    #: Which of them share a query.
    shared: tuple[Shared, ...] = ()

    def group(self, name: str) -> Group:
        """Return the group of that name.

        Raises:
            UnknownGroup: There is none.
        """
        found = next((group for group in self.groups if group.name == name), None)
        if found is None:
            msg = f'flow "{self.flow.name}" has no group "{name}"'
            hint = f"its groups are {', '.join(group.name for group in self.groups)}"
            raise UnknownGroup(msg, hint=hint)
        return found

    @property
    def journals(self) -> Mapping[str, JournalUse]:
        """The journals by name: those of sources first, then those that groups write."""
        return {use.name: use for use in self._uses()}

    def _uses(self) -> Iterator[JournalUse]:
        for name, stage in self.flow.stages.items():
            if isinstance(stage, Written) and stage.writer == "source":
                yield JournalUse(name, "source", name, self._readers(name))
        for group in self.groups:
            if group.journal is not None:
                yield JournalUse(group.journal, "group", group.name, self._readers(group.journal))

    def _readers(self, journal: str) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups if journal in group.inputs)


def plan(flow: Flow) -> Plan:
    """Return the groups of a flow.

    Raises:
        FlowError: The flow is not finished: it has no outputs, or reads a journal that nobody
            writes.
    """
    flow.check()
    groups = [_sink_group(flow, output, sinks) for output, sinks in _outputs(flow).items()]
    groups += [
        _group(flow, stage.name, stage.inputs[0], (), stage.name)
        for stage in flow.stages.values()
        if isinstance(stage, Written) and stage.writer == "group"
    ]
    found = Plan(flow, _ordered(groups), tuple(_warnings(flow)))
    from millstream.plan.sharing import shared_queries

    warnings = (*found.warnings, *_standing(found))
    return replace(found, warnings=warnings, shared=shared_queries(found))


def _outputs(flow: Flow) -> dict[str, list[str]]:
    """Return the streams that have sinks, each with their names."""
    outputs: dict[str, list[str]] = {}
    for sink in flow.sinks.values():
        outputs.setdefault(sink.input, []).append(sink.name)
    return outputs


def _sink_group(flow: Flow, output: str, sinks: list[str]) -> Group:
    return _group(flow, sinks[0], output, tuple(sinks), None)


def _group(
    flow: Flow, name: str, output: str, sinks: tuple[str, ...], journal: str | None
) -> Group:
    stages = tuple(_above(flow, output))
    members = [flow.stages[stage] for stage in stages]
    entries = [stage for stage in members if isinstance(stage, EntryPoint)]
    reach = chain_reach(flow, stages, output)
    return Group(
        name=name,
        stages=stages,
        output=output,
        inputs=tuple(dict.fromkeys(stage.journal_name for stage in entries)),
        sinks=sinks,
        journal=journal,
        stateful=any(stage.state for stage in members),
        timed=flow.stream(output).time is not None,
        horizon=reach.horizon,
        look_back=reach.look_back,
        handed_over=tuple(
            stage.name for stage in members if stage.reach(flow.switch_every).handed_over
        ),
        behind=reach.behind,
        lateness=max((flow.stream(stage.name).lateness for stage in entries), default=ZERO),
    )


def entry_above(flow: Flow, name: str) -> Stage:
    """Return the entry point from which the rows of a stage come, or the first of them."""
    stage = flow.stages[name]
    while not isinstance(stage, EntryPoint):
        stage = flow.stages[stage.inputs[0]]
    return stage


def journal_read(stage: Stage) -> str:
    """Return the name of the journal that an entry point reads."""
    assert isinstance(stage, EntryPoint)
    return stage.journal_name


def _above(flow: Flow, output: str) -> list[str]:
    """Return `output` and the stages above it up to the entry points.

    The entry points come first, and each stage after what it reads.
    """
    found: set[str] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            stage = flow.stages[name]
            waiting += () if isinstance(stage, EntryPoint) else stage.inputs
    # A flow keeps its stages in the order in which they were built, which is a topological one.
    ordered = [name for name in flow.stages if name in found]
    return sorted(ordered, key=lambda name: not isinstance(flow.stages[name], EntryPoint))


def _ordered(groups: list[Group]) -> tuple[Group, ...]:
    """Return the groups, each after those whose journals it reads.

    In a cycle the one that was built first goes ahead.
    """
    ordered: list[Group] = []
    waiting = list(groups)
    while waiting:
        above = {group.name: _upstream(group, waiting) for group in waiting}
        # Ready: all that it waits for waits for it as well, so that they form a cycle.
        ready = next(
            one for one in waiting if all(one.name in above[name] for name in above[one.name])
        )
        waiting.remove(ready)
        ordered.append(ready)
    return tuple(ordered)


def _upstream(group: Group, groups: list[Group]) -> set[str]:
    """Return the names of the groups that write what a group reads, directly or through others."""
    writers = {one.journal: one for one in groups if one.journal is not None}
    found: set[str] = set()
    waiting = list(group.inputs)
    while waiting:
        writer = writers.get(waiting.pop())
        if writer is not None and writer.name not in found:
            found.add(writer.name)
            waiting += writer.inputs
    return found


def _standing(plan: Plan) -> Iterator[str]:
    """Yield a warning for each group whose event time moves only when the flow ends."""
    from millstream.plan.cycles import behind_a_cycle

    for group in plan.groups:
        if group.timed and group.stateful and behind_a_cycle(plan, group.name):
            yield (
                f'group "{group.name}" reads what goes round in a cycle: '
                "its results come when the sources end"
            )


def _warnings(flow: Flow) -> Iterator[str]:
    for stage in flow.stages.values():
        yield from (f'stage "{stage.name}": {warning}' for warning in stage.warnings)
    for name in flow.unused():
        stage, where = flow.stages[name], flow.stages[name].where
        place = f" ({where.file.rsplit('/', 1)[-1]}:{where.line})" if where is not None else ""
        yield f'no sink or journal reads {stage.noun} "{name}"{place}: it will not run'
