"""The vote: where the cut is, by all partitions that have a say, and where the next version begins.

Sources are asked by files (`control.py`), which hold for the next batch, and answer the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace as changed

from millstream.clock import MICROSECOND
from millstream.journal import journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.control import Question
from millstream.spark.run.query import GroupQuery
from millstream.spark.switching.pair import VersionPair
from millstream.spark.switching.reading import views
from millstream.switch import cut as cuts
from millstream.switch.events import Confirmed, Event, First, Passed, Reported
from millstream.switch.instructions import AskConfirm, AskWindows, LetGo
from millstream.switch.phases import Asking, Confirming


class Voter(NamedTuple):
    """A partition that is asked how far it has got."""

    name: str
    query: GroupQuery
    journal: str
    partition: int


def voters(pair: VersionPair) -> Iterator[Voter]:
    """Yield the partitions that have a say in where the cut is."""
    for query in _asked(pair):
        for journal, source in query.sink.inputs.items():
            reader = journal_at(source.path).cached_reader()
            for partition in range(reader.description.partitions):
                name = f"{query.checkpoint.folder.name}/{journal}/{partition}"
                yield Voter(name, query, journal, partition)


def _asked(pair: VersionPair) -> list[GroupQuery]:
    """Return the queries that have a say, also of the next version if it has a share already."""
    groups = asked_groups(pair)
    found = [query for name, query in pair.current.queries.items() if name in groups]
    return found if pair.released is None else [*found, *pair.released.queries.values()]


def asked_groups(pair: VersionPair) -> set[str]:
    """Return the groups of the current version that have a say."""
    queries, new = pair.current.queries, pair.new
    mine = pair.parted & queries.keys()
    # Where a lateness changes at the cut, nobody may have read past it.
    mine |= {
        name
        for name in pair.moved & queries.keys()
        if pair.relaxed.keys() & queries[name].sink.inputs
    }
    read = {name for group in mine for name in queries[group].sink.inputs}
    wanted = {name for group in pair.own(new) for name in new.plan.group(group).inputs} - read
    # What only new groups read is cut above what others have read of it.
    others = {name: query for name, query in queries.items() if not query.finished}
    return mine | {name for name, query in others.items() if wanted & query.sink.inputs.keys()}


def ask(pair: VersionPair, instruction: AskWindows | AskConfirm | LetGo) -> None:
    """Put a question to those who have a say, or take all questions back."""
    question = _question(instruction)
    names = set() if question is None else {one.checkpoint.folder.name for one in _asked(pair)}
    for query in pair.everything:
        asked = question if query.checkpoint.folder.name in names else None
        orders = query.control.orders()
        if orders.question != asked:
            query.control.order(changed(orders, question=asked))
            passing("switch-asked")


def _question(instruction: AskWindows | AskConfirm | LetGo) -> Question | None:
    match instruction:
        case AskWindows(number, step_us, stop):
            return Question("report", number, step_us, stop=stop)
        case AskConfirm(number, step_us, bound, cut_us):
            return Question("confirm", number, step_us, bound, cut_us)
    return None


def answers(pair: VersionPair, state: Asking | Confirming) -> Iterator[Event]:
    """Yield what the partitions have answered to the question of this round."""
    kind = "report" if isinstance(state, Asking) else "confirm"
    for voter in voters(pair):
        answer = voter.query.control.answered(voter.journal)
        if answer is None or answer.round != state.round or answer.kind != kind:
            continue
        if kind == "report":
            yield Reported(answer.round, voter.name, answer.highest[voter.partition])
        else:
            yield (Passed if answer.passed else Confirmed)(answer.round, voter.name)


def first_positions(pair: VersionPair, cut_us: int) -> First:
    """Return where the queries of the next version begin; journals of its own are read whole."""
    found: First = {}
    if pair.state.is_cut:
        return found  # it runs already, and goes on where it is
    for unit in pair.units:
        back = None if unit.look_back is None else unit.look_back // MICROSECOND
        start = cuts.reads_from(cut_us, back)
        for group in unit.groups:
            query = pair.new.queries.get(group)
            if query is not None:
                found[group] = {
                    name: cuts.first_positions(
                        views(query, name), cuts.EARLIEST if name in unit.private else start
                    )
                    for name in query.sink.inputs
                }
    return found
