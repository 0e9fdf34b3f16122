"""From the cut on: each version learns what it owns, and one reads what is left, and leaves.

A unit whose state moves has one version at a time: the old one stands still between two batches,
then the new one goes on with its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace as changed

from millstream.journal import Steps
from millstream.spark.failpoints import passing
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.control import Orders
from millstream.spark.io.journal_target import JournalTarget
from millstream.spark.io.sink_order import SinkOrder
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.version import found_nothing
from millstream.spark.switching.pair import VersionPair, settle, start
from millstream.spark.switching.reading import ahead
from millstream.switch import cut as cuts
from millstream.switch.events import Beyond, Drained, Event
from millstream.switch.phases import Overlapping
from millstream.switch.units import Unit

#: The watermark of some groups stays this much below the floor: see `source.watermark_ms`.
SLACK_US = 1000


def release(pair: VersionPair, name: str, *, held: bool = False) -> None:
    """Let the queries of a version run by the record, or keep them `held` with what it says."""
    version = pair.version(name)
    if version is None:
        return
    _order_sinks(pair)
    state, is_cut, parted, inner = pair.state, pair.state.is_cut, pair.parted, pair.inner
    for group, query in version.queries.items():
        before = query.control.orders()
        orders = changed(before, held=held, question=None)
        if is_cut and group in pair.moved and version is pair.current:
            orders = changed(orders, question=pair.standstill)
        if is_cut and group in parted:
            first = state.job.firsts.get(name, {}).get(group, {})
            orders = changed(orders, first=first or before.first)
        if is_cut and group in parted | pair.moved:
            orders = changed(orders, lateness=_lateness(pair, group))
        if is_cut and group in pair.carried:
            orders = _apart(pair, orders, query, newer=name == state.next)
        if is_cut and group in parted - inner:
            stretch = state.owners.stretches[-1]
            orders = changed(
                orders,
                owns=cuts.owned_after(before.owns, stretch, name),
                starts=cuts.owned_by(
                    before.starts, stretch.from_us, state.job.homes[name].starts.get(group)
                ),
            )
            _expect(query, pair.began_us if name == state.next else None)
        if orders != before:
            query.control.order(orders)
            passing("switch-ordered")


def _apart(pair: VersionPair, orders: Orders, query: GroupQuery, *, newer: bool) -> Orders:
    """Let the old version have the rows before the cut, and the new one the others, and its state."""
    if not newer:
        return changed(orders, until_us=pair.cut_us)
    from millstream.spark.switching import carry

    return changed(orders, since_us=pair.cut_us, held=orders.held or carry.waits(pair, query))


def _lateness(pair: VersionPair, group: str) -> dict[str, Steps]:
    """Return the lateness of sources that changed, in this switch or before, for both versions."""
    old = pair.current.queries.get(group)
    known = {} if old is None else old.control.orders().lateness
    changing = {
        name: cuts.stepped(known.get(name, ((None, before),)), pair.cut_us, after)
        for name, (before, after) in pair.relaxed.items()
    }
    return known | changing


def _order_sinks(pair: VersionPair) -> None:
    """Let both versions of a group that writes to sinks publish in order."""
    after = {} if pair.released is None else pair.released.queries
    for name in pair.parted:
        old, new = pair.current.queries.get(name), after.get(name)
        if old is None or new is None or old.written is not None:
            continue
        if old.sink.turns is None:
            turns = SinkOrder(name, old.checkpoint.id, new.checkpoint.id, pair.cut_us)
            old.sink.turns = new.sink.turns = turns
        old.sink.turns.cut_at(pair.cut_us)


def _expect(query: GroupQuery, at_least: int | None) -> None:
    for target in query.sink.targets:
        if isinstance(target, JournalTarget):
            target.expect(query.checkpoint.sender(query.flow.name), at_least)


def close(pair: VersionPair, unit: Unit) -> None:
    """Let the version that leaves read to the end of what it owns in a unit, and no further."""
    if unit.moved:
        return  # the next version has its queries already, and nobody may know how far the old one would have read
    close_us = pair.cut_us + pair.reach_us(unit) + SLACK_US
    for name in unit.groups:
        query = pair.leaving.queries.get(name)
        if query is not None:
            query.control.order(changed(query.control.orders(), close_us=close_us))
            passing("switch-closed")


def progress(pair: VersionPair) -> Iterator[Event]:
    """Yield the units that have been read, and emitted, as far as the version that leaves goes."""
    for unit in pair.units:
        if unit.moved:
            yield from _moved_over(pair, unit)
        elif unit.carried:
            yield from _carried_over(pair, unit)
        else:
            yield from _read_out(pair, unit)


def _read_out(pair: VersionPair, unit: Unit) -> Iterator[Event]:
    reach, queries = pair.reach_us(unit), pair.leaving.queries
    leaving = [queries[name] for name in unit.groups if name in queries]
    pairs = [(query, query.checkpoint.committed()) for query in leaving]
    logged = [
        (query, one) for query, one in pairs if one is not None and _knows_the_cut(pair, query, one)
    ]
    if len(logged) < len(leaving):
        return
    if all(ahead(query, one, pair.cut_us + reach) <= 0 for query, one in logged):
        yield Beyond(unit.name)
    if all(cuts.drained(query.sink.reached(one), pair.cut_us, reach) for query, one in logged):
        yield Drained(unit.name)


def _knows_the_cut(pair: VersionPair, query: GroupQuery, logged: Logged) -> bool:
    if query.group.name in pair.inner:
        return True
    return all(cuts.knows(offset.owns, pair.cut_us) for offset in logged.offsets.values())


def left_s(pair: VersionPair) -> float | None:
    """Return how many seconds of events the version that leaves has yet to read, if known."""
    if not isinstance(pair.state, Overlapping):
        return None
    most, queries = 0.0, pair.leaving.queries
    for unit in [unit for unit in pair.units if not unit.moved]:
        for query in (queries[name] for name in unit.groups if name in queries):
            logged = query.checkpoint.committed()
            if logged is None:
                return None
            most = max(most, ahead(query, logged, pair.cut_us + pair.reach_us(unit)))
    return None if most == float("inf") else most / 1e6


# state that moves


def _carried_over(pair: VersionPair, unit: Unit) -> Iterator[Event]:
    """Let the new version of a group go on once the old one has emitted all, and its state is there."""
    from millstream.spark.switching import carry

    for event in list(_read_out(pair, unit)):
        if not isinstance(event, Drained):
            yield event
        elif all(carry.advance(pair, name) for name in unit.groups):
            for query in (pair.current.queries.get(name) for name in unit.groups):
                if query is not None and query.sink.turns is not None:
                    query.sink.turns.end()  # it has nothing more to emit
            release(pair, pair.new.name)
            yield event


def _moved_over(pair: VersionPair, unit: Unit) -> Iterator[Event]:
    """Let the new version of a group go on once the old one stands still between two batches."""
    (name,) = unit.groups
    query = pair.current.queries.get(name)
    if query is not None and query.query is not None and _still(pair, query):
        query.query.stop()
        if query.checkpoint.last("offsets") == query.checkpoint.last("commits"):
            _take_over(pair, query)
        else:
            start(query)  # it had begun another batch, which is for the old version to finish
    if name not in pair.current.queries:
        yield Beyond(unit.name)
        yield Drained(unit.name)


def _still(pair: VersionPair, query: GroupQuery) -> bool:
    """Tell whether the sources of a query read nothing more, and Spark has nothing left to do."""
    answers = [query.control.answered(name) for name in query.sink.inputs]
    stopped = all(one is not None and one.round == pair.standstill.round for one in answers)
    return stopped and found_nothing(query)


def _take_over(pair: VersionPair, old: GroupQuery) -> None:
    name, new = old.group.name, pair.new
    old.stop()
    del pair.current.queries[name]  # whatever happens now, it is not stopped again
    passing("switch-still")
    if name in new.homes.groups:
        checkpoint = old.checkpoint.handed_to(new.meanings.meanings[name])
        passing("switch-handed-over")
        query = new.make(name, checkpoint)
        query.paired = True
        settle(query)
        passing("switch-settled")
        start(query)
