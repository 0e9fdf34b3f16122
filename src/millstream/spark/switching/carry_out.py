"""Carrying out a switch: the machine's instructions in order, and what is noticed on the way.

The machine's record is durable before anything follows from it (`switch_log.py`), so a driver that
dies goes on where the record says. The queries of a next version start one in each poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.spark.failpoints import passing
from millstream.spark.io.control import Orders
from millstream.spark.run.query import GroupQuery
from millstream.spark.switching import handover, reprocess, retire, vote
from millstream.spark.switching.pair import VersionPair, start
from millstream.spark.switching.shadow_run import ShadowRun
from millstream.spark.switching.switch_log import SwitchLog
from millstream.switch import instructions, machine, phases
from millstream.switch.events import Event, Failed, FirstFound, Held, Removed, Retired, Tick
from millstream.switch.machine import Entry

_Following = (
    instructions.Release
    | instructions.MakeReady
    | instructions.Close
    | instructions.Withdraw
    | instructions.Retire
    | instructions.Remove
)
Failure = Callable[[GroupQuery], MillstreamError | None]


class CarryOut:
    """What is still to be done, and who does it."""

    def __init__(
        self, pair: VersionPair, shadow: ShadowRun, log: SwitchLog, failure: Failure, clock: Clock
    ) -> None:
        self._pair, self._shadow, self._log = pair, shadow, log
        self._failure, self._clock = failure, clock
        self._todo: deque[instructions.Instruction | Entry] = deque()
        self._starting: Iterator[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether one version is replacing another."""
        return not isinstance(self._pair.state, phases.Running) or bool(self._todo)

    def advance(self, event: Event) -> None:
        """Pass an event to the machine, and note what is to be done.

        Raises:
            SwitchRefused: A user asked for something that cannot be done now.
        """
        self.take(machine.advance(self._pair.state, event, self._clock.now_us()))

    def take(self, step: machine.Step) -> None:
        """Note what is to be done: history is written after the record that decides it."""
        self._pair.state = step.state
        if isinstance(step.state, phases.Aborting):
            self._starting = None
        first = (
            1 if step.instructions and isinstance(step.instructions[0], instructions.Write) else 0
        )
        self._todo += [*step.instructions[:first], *step.entries, *step.instructions[first:]]

    def poll(self) -> None:
        """Do what is to be done, and notice what has happened."""
        if not self.under_way:
            return
        self.work()
        for event in list(self._noticed()):
            self.advance(event)
        self._remark()
        self.work()

    def _remark(self) -> None:
        """Write what is to be said into the history."""
        while self._pair.remarks:
            state, text = self._pair.state, self._pair.remarks.pop(0)
            self._log.note(Entry(self._clock.now_us(), state.number, state.phase, text))

    def work(self) -> None:
        """Do what is to be done, as far as that goes now."""
        while self._todo and self._starting is None:
            instruction = self._todo.popleft()
            point = _point(instruction)
            passing(f"before-{point}")
            self._do(instruction)
            passing(point)

    def _do(self, instruction: instructions.Instruction | Entry) -> None:
        pair = self._pair
        match instruction:
            case Entry():
                self._log.note(instruction)
            case instructions.Write(record):
                self._log.write(record)
            case instructions.StartHeld():
                self._starting = self._start_held()
            case instructions.RunShadow():
                failed = self._shadow.begin(self._clock.now_us())
                if failed is not None:
                    self.advance(failed)
            case instructions.AskWindows() | instructions.AskConfirm() | instructions.LetGo():
                vote.ask(pair, instruction)
            case instructions.FindFirst(number, cut_us):
                self.advance(FirstFound(number, vote.first_positions(pair, cut_us)))
            case _:
                self._follow(pair, instruction)

    def _follow(self, pair: VersionPair, instruction: _Following) -> None:
        """Do what follows from a cut, or from aborting."""
        match instruction:
            case instructions.Release(version):
                handover.release(pair, version)
            case instructions.MakeReady(version):
                handover.release(pair, version, held=True)
            case instructions.Close(_, unit):
                handover.close(pair, next(one for one in pair.units if one.name == unit))
            case instructions.Withdraw(_, since_us):
                retire.withdraw(pair, since_us)
            case instructions.Retire(version):
                retire.retire(pair, version)
                self.advance(Retired())
            case instructions.Remove(version):
                self._remove(version)

    def _remove(self, version: str) -> None:
        self._starting = None
        retire.stop_new(self._pair)
        self._shadow.end()
        retire.remove(self._pair, version)
        self.advance(Removed())

    def _start_held(self) -> Iterator[None]:
        """Start the queries of the next version, one in each poll.

        Each runs an empty batch, so that all is warm at the cut.
        """
        from millstream.spark.switching import carry  # few runs need it: it loads pandas

        pair, new = self._pair, self._pair.new
        new.make_journals()
        passing("switch-journals")
        new.register()
        passing("switch-registered")
        if pair.plan is not None and pair.plan.since is not None:
            # From here on nothing is removed that it needs.
            trimmed = tuple(reprocess.trimmed(pair.current, new, pair.plan))
            replace(pair.plan, obstacles=trimmed).check()
        yield from carry.rehearse(pair)
        for name, checkpoint in new.checkpoints(pair.own(new)).items():
            query = new.make(name, checkpoint)
            query.paired = True
            if self._shadow.shadow is not None:
                self._shadow.shadow.record("new", query)
            query.control.order(Orders(held=True, owns=None if name in pair.inner else ()))
            passing("switch-ordered")
            carry.promise_states(pair, query)
            start(query)
            passing("switch-started")
            yield

    # what is noticed

    def _noticed(self) -> Iterator[Event]:
        yield Tick()
        state = self._pair.state
        match state:
            case phases.Preparing():
                yield from self._prepared()
            case phases.Asking() | phases.Confirming():
                yield from self._failed()
                yield from vote.answers(self._pair, state)
            case phases.Shadowing():
                failed = next(self._failed(), None)
                yield from self._shadow.notice(self._clock.now_us(), failed)
            case phases.Overlapping():
                yield from handover.progress(self._pair)

    def _prepared(self) -> Iterator[Event]:
        """Start one query more; once all are warm, the next version is held."""
        new = self._pair.new
        try:
            if self._starting is not None:
                next(self._starting)
        except StopIteration:
            self._starting = None
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            self._starting = None
            yield Failed(new.name, str(error))
            return
        yield from self._failed()
        if self._starting is None and all(map(_warm, new.queries.values())):
            yield Held(frozenset(voter.name for voter in vote.voters(self._pair)))

    def _failed(self) -> Iterator[Failed]:
        """Yield why queries of the next version have died."""
        new = self._pair.new
        for query in new.queries.values():
            failure = self._failure(query)
            if failure is not None:
                yield Failed(new.name, str(failure))


def _warm(query: GroupQuery) -> bool:
    return query.checkpoint.last("commits") is not None


def _point(instruction: instructions.Instruction | Entry) -> str:
    """Return the name of the failpoint after an instruction."""
    if isinstance(instruction, instructions.Write):
        return f"switch-write-{instruction.record.phase}"
    return f"switch-{type(instruction).__name__.lower()}"
