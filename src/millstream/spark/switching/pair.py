"""The version that runs, the one that is to replace it, and where the switch between them stands.

Everything here is looked up; what changes them is `carry_out`, `handover` and `retire`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace as changed

from millstream.clock import MICROSECOND
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.control import Question
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.version import FlowVersion, forget_readers
from millstream.switch import machine
from millstream.switch.phases import Overlapping, Retiring, Running, State
from millstream.switch.plan import SwitchPlan
from millstream.switch.units import Unit

#: How many queries open their sources at a time.
AT_ONCE: Final = 2


class VersionPair:
    """One version, or two while one replaces the other."""

    def __init__(self, current: FlowVersion) -> None:
        self.current = current
        self.next: FlowVersion | None = None
        self.plan: SwitchPlan | None = None
        self.state: State = machine.begun(current.name)
        #: State that is being carried over, by group, and what is to be said of it.
        self.carrying: dict[str, Iterator[None]] = {}
        self.remarks: list[str] = []

    # versions

    @property
    def new(self) -> FlowVersion:
        """The next version, where there must be one."""
        assert self.next is not None
        return self.next

    @property
    def released(self) -> FlowVersion | None:
        """The next version, once it owns results."""
        return self.next if self.state.is_cut else None

    @property
    def flows(self) -> list[FlowVersion]:
        """The versions whose journals and sources count."""
        return [self.current] if self.released is None else [self.current, self.released]

    @property
    def leaving(self) -> FlowVersion:
        """The version that goes: the old one, unless it is given its keys back."""
        assert isinstance(self.state, Overlapping | Retiring)
        return self.new if self.state.leaving == self.state.next else self.current

    @property
    def staying(self) -> FlowVersion:
        return self.current if self.leaving is self.next else self.new

    def version(self, name: str) -> FlowVersion | None:
        versions = (self.current, self.next)
        return next((one for one in versions if one is not None and one.name == name), None)

    # queries

    @property
    def queries(self) -> dict[str, GroupQuery]:
        """The queries of the current version and, from the cut on, of the next one."""
        found = dict(self.current.queries)
        if self.released is not None:
            found |= {
                query.checkpoint.folder.name: query for query in self.released.queries.values()
            }
        return found

    @property
    def everything(self) -> list[GroupQuery]:
        """All queries, also those that are held."""
        new = () if self.next is None else self.next.queries.values()
        # While a version leaves, those that it kept are both versions'.
        return list({id(query): query for query in (*self.current.queries.values(), *new)}.values())

    def own(self, version: FlowVersion) -> list[str]:
        """Return the groups whose queries a version makes.

        The next one does not remake those it keeps.
        """
        names = [group.name for group in version.plan.groups]
        handed = self._handed_over
        if version is self.current:
            return [name for name in names if name not in handed]
        homes = self.current.homes.groups
        return [
            name
            for name in names
            if version.homes.groups.get(name) != homes.get(name, "") or name in handed
        ]

    @property
    def _handed_over(self) -> set[str]:
        """The groups with which the next version has gone on where the current one had stopped."""
        if self.released is None:
            return set()
        meanings = self.released.meanings.meanings
        return {
            name
            for name in self.moved & meanings.keys()
            if Checkpoint.belongs(
                self.released.group_address(name) or self.released.group_folder(name),
                meanings[name],
            )
        }

    # groups

    @property
    def units(self) -> tuple[Unit, ...]:
        return () if self.plan is None else self.plan.units

    @property
    def parted(self) -> set[str]:
        """The groups of which each version has its own."""
        return {name for unit in self.units if not unit.moved for name in unit.groups}

    @property
    def moved(self) -> set[str]:
        """The groups with which the next version goes on where the current one stops."""
        return {name for unit in self.units if unit.moved for name in unit.groups}

    @property
    def carried(self) -> set[str]:
        """The parted groups whose new version begins with the old one's state at the cut."""
        return {name for unit in self.units if unit.carried for name in unit.groups}

    @property
    def inner(self) -> set[str]:
        """The parted groups that write a private journal, where ownership does not apply."""
        plans = [version.plan for version in (self.current, self.next) if version is not None]
        private = {name for unit in self.units for name in unit.private}
        return {
            group.name
            for plan in plans
            for group in plan.groups
            if group.name in self.parted and group.journal in private
        }

    @property
    def relaxed(self) -> dict[str, tuple[int, int]]:
        """The sources that get another lateness: the old one and the new one."""
        old, new = self.current.lateness, self.new.lateness
        both = {name: (old[name], new[name]) for name in old if name in new}
        return {name: (before, after) for name, (before, after) in both.items() if before != after}

    # the cut

    @property
    def cut_us(self) -> int:
        return self.state.owners.stretches[-1].from_us

    @property
    def began_us(self) -> int:
        """The cut from which on the next version owns anything."""
        stretches = self.state.owners.stretches
        return next(one.from_us for one in stretches if one.second == self.state.next)

    def reach_us(self, unit: Unit) -> int:
        """Return how far past the cut the version that leaves has to read."""
        horizon = unit.horizon if self.leaving is self.current else unit.returns
        assert horizon is not None
        return horizon // MICROSECOND

    @property
    def standstill(self) -> Question:
        """What makes the sources of a group read nothing more, and confirm it."""
        assert not isinstance(self.state, Running)
        return Question("report", -self.state.number, self.state.new.step_us, stop=True)

    # what both have in common

    def register(self) -> None:
        """Register the readers of all journals, and forget those that are gone."""
        known = set().union(*(version.readers for version in self.flows))
        for version in self.flows:
            version.register()
        journals = {
            version.journal(name) for version in self.flows for name in version.plan.journals
        }
        forget_readers(sorted(journals), self.current.flow.name, known)

    def mark(self) -> None:
        """Mark the queries that a switch is about."""
        for query in self.everything:
            query.paired = query.group.name in self.parted | self.moved

    def forget(self) -> None:
        """Forget a switch that is over."""
        self.plan = None
        self.carrying.clear()
        for query in self.everything:
            query.paired, query.sink.turns = False, None


def settle(query: GroupQuery) -> None:
    """Take back what was asked of a query before a stop."""
    orders = query.control.orders()
    if orders.held or orders.question is not None:
        query.control.order(changed(orders, held=False, question=None))


def start(*queries: GroupQuery) -> None:
    """Start queries, two at a time, and wait until their sources are open."""
    opening: deque[GroupQuery] = deque()
    for query in queries:
        # While the sources of one open, the next is planned. Not more: each starts Python processes
        # of its own, and Spark gives them ten seconds, which is little when all start at once.
        if len(opening) == AT_ONCE:
            opening.popleft().wait_for_sources()
        query.start()
        opening.append(query)
    for query in opening:
        query.wait_for_sources()
