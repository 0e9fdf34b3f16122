"""The end of a flow: a group ends once all its inputs have; groups in a cycle end together."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.plan.cycles import cycle
from millstream.plan.groups import Plan
from millstream.spark.run.query import GroupQuery


def notice_ends(plan: Plan, queries: Mapping[str, GroupQuery]) -> None:
    """End the queries that have nothing left to read, except those that a switch is about."""
    for query in queries.values():
        if query.finished or query.paired:
            continue
        if query.ended():
            query.finish()
            continue
        ring = [queries[name] for name in cycle(plan, query.group.name)]
        if ring and _ended(ring):
            # All of them stop before the first is finished: the end goes round too.
            for member in ring:
                member.halt()
            for member in ring:
                member.finish()


def _ended(ring: list[GroupQuery]) -> bool:
    """Tell whether a cycle has ended: the way in has, and nothing goes round any more."""
    written = {member.group.journal for member in ring}
    for member in ring:
        outside = [journal for journal in member.sink.inputs if journal not in written]
        if not member.inputs_ended(outside) or not member.caught_up():
            return False
    return True
