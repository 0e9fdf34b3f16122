"""Letting a version go: one that has emitted all that it owns, or one that is aborted."""

from __future__ import annotations

from millstream.spark.failpoints import passing
from millstream.spark.io.journal_target import JournalTarget
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.version import remove_unless
from millstream.spark.switching import reprocess
from millstream.spark.switching.pair import VersionPair
from millstream.switch.phases import Retiring
from millstream.switch.record import Homes


def retire(pair: VersionPair, name: str) -> None:
    """Stop a version that has emitted all that it owns, and remove what only it has."""
    assert isinstance(pair.state, Retiring)
    homes = pair.state.job.homes
    if pair.next is not None:
        leaving, staying = pair.leaving, pair.staying
        for group, query in leaving.queries.items():
            if group in pair.parted:
                _stop(query)
            else:
                staying.queries[group] = query
        passing("switch-stopped")
        pair.current, pair.next = staying, None
    _remove(pair, homes[name], homes[pair.state.staying], new=False)
    _forget(pair)


def remove(pair: VersionPair, name: str) -> None:
    """Remove the next version, before it owned anything; its queries are stopped already."""
    homes = pair.state.job.homes
    pair.next = None
    passing("switch-stopped")
    _remove(pair, homes[name], homes[pair.state.current], new=True)
    _forget(pair)


def _remove(pair: VersionPair, gone: Homes, stays: Homes, *, new: bool) -> None:
    ground = pair.current.ground
    remove_unless(ground.folder, gone, stays, new=new, address=ground.address)


def _forget(pair: VersionPair) -> None:
    pair.register()
    passing("switch-forgotten")
    pair.forget()


def stop_new(pair: VersionPair) -> None:
    """Stop the queries of the next version."""
    for query in () if pair.next is None else pair.next.queries.values():
        _stop(query)


def withdraw(pair: VersionPair, since_us: int) -> None:
    """Stop the parted groups of the current version, and take back results since a moment."""
    for name in sorted(pair.parted & pair.current.queries.keys()):
        query = pair.current.queries.pop(name)
        _stop(query)
        query.sink.shut()
    passing("switch-shut")
    assert pair.plan is not None
    reprocess.withdraw(pair.current, pair.plan, since_us)


def _stop(query: GroupQuery) -> None:
    for target in query.sink.targets:
        if isinstance(target, JournalTarget):
            target.dismiss(query.checkpoint.sender(query.flow.name))
    query.stop()
