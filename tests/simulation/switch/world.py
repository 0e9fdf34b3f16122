"""A job that switches versions, in one process, without Spark, threads, disks or time.

    journal (partitions) ──▶ version "v0": log offsets, publish, commit ──▶ sink
                         └─▶ version "v1": ...                          ──▶
                driver: the machine, its instructions one by one, the record

The rules are the real ones (`millstream.switch`: machine, cut, record; `journal.align` for floors),
and how far versions reach is what the plans of real flows say. What is modelled is what they stand
between: a version logs an offset before it uses it, with the ownership that it knows; it looks at
the driver's question only between batches; a batch that was published and not committed is
published again. The driver can die between any two steps: journals, offsets, commits, epochs and
the record stay.

Checked at every step:

    repeatable   a batch that is run again gives the same results
    gap          no version stands still for a switch longer than the switch may take

and at the end, when all has arrived and every wish is met:

    once         what was published is what each version owns of its results over the whole journal, each once
    jam          nothing is left to do
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from random import Random
from typing import Any

from millstream.errors import SwitchRefused
from millstream.journal import align
from millstream.journal.align import FOREVER_US
from millstream.switch import cut as cuts
from millstream.switch import events, instructions, machine
from millstream.switch.cut import Owners
from millstream.switch.machine import Step
from millstream.switch.phases import Overlapping, State, WithDeadline
from millstream.switch.record import Phase, Record, decode, encode
from millstream.switch.request import SwitchRequest
from simulation.switch.scenario import Arrival, Crash, Scenario, Trouble, Wish
from simulation.switch.shapes import Reach, Result, Row, Shape, reach

MOST_STEPS = 12_000
UNIT = "g"
RESTING = (Phase.RUNNING, Phase.SHARING, Phase.SHADOWING)


class Violation(Exception):
    """A promise is broken: which one, and how."""

    def __init__(self, promise: str, fact: str) -> None:
        super().__init__(f"{promise}: {fact}")
        self.promise = promise


@dataclass(frozen=True, slots=True)
class Known:
    """What a partition knows at a position."""

    running_max: int | None = None
    floor: int | None = None
    ended: bool = False


class Log:
    """A partition; `end` grows as events arrive."""

    begin = 0

    def __init__(self, arrivals: list[Arrival], lateness: int) -> None:
        self.rows: list[Row | None] = []
        self.late: list[bool] = []
        self.states = [Known()]
        for one in arrivals:
            self._add(one, lateness)
        last = self.states[-1]
        self.rows.append(None)
        self.late.append(False)
        self.states.append(Known(last.running_max, last.floor, ended=True))
        self.end = 0

    def _add(self, one: Arrival, lateness: int) -> None:
        before = self.states[-1]
        self.rows.append(one.row)
        if one.row is None:
            floor = one.floor if before.floor is None else max(before.floor, one.floor or 0)
            self.late.append(False)
            self.states.append(Known(before.running_max, floor))
            return
        lowest = align.floor_of(before, lateness)
        self.late.append(lowest is not None and one.row.time < lowest)
        highest = (
            one.row.time if before.running_max is None else max(before.running_max, one.row.time)
        )
        self.states.append(Known(highest, before.floor))

    def state_at(self, position: int) -> Known:
        return self.states[position]

    def first_above(self, moment: int, start: int, end: int) -> int:
        for position in range(start, end):
            highest = self.states[position + 1].running_max
            if highest is not None and highest > moment:
                return position
        return end

    def on_time(self, start: int, stop: int) -> list[Row]:
        return [
            row
            for row, late in zip(self.rows[start:stop], self.late[start:stop], strict=True)
            if row and not late
        ]


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a batch ends, with the floor after it and the ownership that the version knew."""

    positions: tuple[int, ...]
    floor: int | None
    owners: Owners


@dataclass
class Checkpoint:
    """What is durable of a version that runs."""

    shape: Shape
    id: int = 0
    first: tuple[int, ...] | None = None
    offsets: list[Offset] = field(default_factory=list)
    commits: int = 0

    @property
    def committed(self) -> Offset | None:
        return self.offsets[self.commits - 1] if self.commits else None


@dataclass
class Run:
    """What is in memory of a version that runs."""

    version: str
    live: bool = False
    shadow: bool = False
    owners: Owners = field(default_factory=lambda: Owners(""))
    promised: int | None = None
    stopped: bool = False
    answered: object = None
    ignores: object = None
    close_at: int | None = None
    blocked_since: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that a world runs by; tests put broken ones in."""

    advance: Callable[[State, events.Event, int], Step] = machine.advance
    recover: Callable[[Record, int], Step] = machine.recover
    reads_from: Callable[[int, int | None], int] = cuts.reads_from
    beyond: Callable[[int | None, int, int, int], bool] = cuts.beyond
    drained: Callable[[int | None, int, int], bool] = cuts.drained
    passed: Callable[[int | None, int | None], bool] = cuts.passed
    owns: Callable[[Owners, str, Result], bool] = lambda owners, version, one: (
        owners.owner(one.start, one.key) == version
    )
    handed_out: Callable[[int | None, int | None, int], int | None] = cuts.handed_out
    promised_floor: Callable[[int | None, int], int | None] = cuts.promised_floor
    promises: bool = True
    reach: Callable[[Shape, Shape, int], Reach] = reach


OURS = Rules()


class World:
    """One job, from its first event to its last."""

    def __init__(self, scenario: Scenario, rules: Rules = OURS) -> None:
        self.scenario, self.rules = scenario, rules
        self.chance = Random(scenario.seed)
        self.now = 0
        self.lines: list[str] = []
        arrivals = [
            [one for one in scenario.arrivals if one.partition == p]
            for p in range(scenario.partitions)
        ]
        self.logs = [Log(part, scenario.lateness) for part in arrivals]
        self.everything = [row for log in self.logs for row in log.on_time(0, len(log.rows))]
        self.coming = deque(scenario.arrivals)
        self.ended = False
        self.wishes = deque(scenario.wishes)
        self.troubles = {one.number: one for one in scenario.faults if isinstance(one, Trouble)}
        self.crashes = deque(one.at for one in scenario.faults if isinstance(one, Crash))
        # durable
        self.shapes = {"v0": self.fitted(scenario.first)}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.published: dict[tuple[str, int, int], list[Result]] = {}
        self.record = encode(machine.record_of(machine.begun("v0")))
        self.history = Owners("v0")
        self.made = 0
        # in memory
        self.deaths = 0
        self.boot()

    def fitted(self, shape: Shape) -> Shape:
        """Return the shape; sessions with the length of the longest that there is."""
        if shape.kind != "sessions":
            return shape
        found = [
            one.complete - one.start
            for one in shape.results(self.everything)
            if one.complete is not None
        ]
        return Shape(shape.kind, max(found, default=shape.every), shape.every, shape.skip)

    def tell(self, text: str) -> None:
        self.lines.append(f"{self.now:5d}  {text}")

    # the driver

    def boot(self) -> None:
        """Begin, or begin again, with what is durable."""
        self.runs: dict[str, Run] = {}
        self.todo: deque[instructions.Instruction] = deque()
        self.inbox: list[events.Event] = []
        self.starting: list[tuple[int, events.Event]] = []
        self.board: Any = None
        self.follow(self.rules.recover(decode(self.record), self.now))

    def follow(self, step: Step) -> None:
        self.state = step.state
        self.todo.extend(step.instructions)
        for entry in step.entries:
            self.tell(f"{entry.phase}: {entry.text}")

    def crash(self) -> None:
        self.deaths += 1
        self.tell("the driver dies")
        self.boot()

    def ask(self, event: events.Event) -> None:
        try:
            self.follow(self.rules.advance(self.state, event, self.now))
        except SwitchRefused as refused:
            self.tell(f"refused: {refused}")

    def do(self, instruction: instructions.Instruction) -> None:
        self.tell(f"does {type(instruction).__name__} {getattr(instruction, 'version', '')}")
        match instruction:
            case instructions.Write():
                self.record = encode(instruction.record)
                fresh = [
                    one
                    for one in instruction.record.owners.stretches
                    if one not in self.history.stretches
                ]
                self.history = reduce(Owners.after, fresh, self.history)
            case instructions.StartHeld():
                self.start(instruction.version)
            case instructions.RunShadow():
                run = self.runs[instruction.version]
                run.live = run.shadow = True
                self.checkpoints[run.version].first = tuple(0 for _ in self.logs)
            case instructions.AskWindows() | instructions.AskConfirm() | instructions.LetGo():
                self.put_up(instruction)
            case instructions.FindFirst():
                self.inbox.append(
                    events.FirstFound(instruction.round, self.first(instruction.cut_us))
                )
            case instructions.Release():
                self.release(instruction.version)
            case instructions.Close():
                run = self.runs[instruction.version]
                run.close_at = self.cut + self.reach(instruction.version).horizon
            case instructions.Retire() | instructions.Remove():
                self.runs.pop(instruction.version, None)
                self.checkpoints.pop(instruction.version, None)
                self.inbox.append(
                    events.Retired()
                    if isinstance(instruction, instructions.Retire)
                    else events.Removed()
                )

    def put_up(
        self, question: instructions.AskWindows | instructions.AskConfirm | instructions.LetGo
    ) -> None:
        """Show a question where versions look between batches."""
        match question:
            case instructions.AskWindows():
                self.board = ("ask", question.round, question.stop, question.step_us)
            case instructions.AskConfirm():
                self.board = (
                    "confirm",
                    question.round,
                    question.bound,
                    question.step_us,
                    question.cut_us,
                )
            case instructions.LetGo():
                self.board = None
                for run in self.runs.values():
                    run.promised, run.stopped = None, False

    def start(self, version: str) -> None:
        self.checkpoints[version] = self.fresh(version)
        self.runs[version] = Run(version)
        trouble = self.troubles.get(self.state.number)
        voters = frozenset(
            f"{run.version}/{p}"
            for run in self.runs.values()
            if run.live
            for p in range(len(self.logs))
        )
        ready: events.Event = events.Held(voters)
        if trouble is not None and trouble.kind == "does not start":
            ready = events.Failed(version, "it did not start")
        if trouble is None or trouble.kind != "hangs":
            late = trouble.by if trouble is not None and trouble.kind == "starts after" else 3
            self.starting.append((self.now + late, ready))

    def fresh(self, version: str) -> Checkpoint:
        self.made += 1
        return Checkpoint(self.shapes[version], self.made)

    def release(self, version: str) -> None:
        record = decode(self.record)
        run = self.runs.setdefault(version, Run(version))
        run.live, run.shadow, run.owners = True, False, record.owners
        run.promised, run.stopped, run.ignores = None, False, self.board
        point = self.checkpoints.setdefault(version, self.fresh(version))
        known = record.firsts.get(version, {}).get(UNIT, {}).get("j")
        if not point.offsets:
            point.first = known or tuple(0 for _ in self.logs)

    def first(self, cut: int) -> events.First:
        """Return where the new version begins; nothing if it runs already."""
        assert self.state.next is not None
        if self.runs[self.state.next].live:
            return {}
        moment = self.rules.reads_from(cut, self.reach(self.state.current).look_back)
        return {UNIT: {"j": cuts.first_positions(self.logs, moment)}}

    def reach(self, leaving: str) -> Reach:
        """Return how far versions reach when one leaves and the other stays."""
        other = self.state.next if leaving == self.state.current else self.state.current
        assert other is not None
        return self.rules.reach(self.shapes[leaving], self.shapes[other], self.scenario.window)

    @property
    def cut(self) -> int:
        return self.state.owners.stretches[-1].from_us

    # versions

    def act(self, run: Run) -> None:
        """Take the next step of a version: log, publish or commit."""
        point = self.checkpoints[run.version]
        if len(point.offsets) == point.commits:
            self.log(run, point)
        elif (
            run.version,
            point.id,
            point.commits,
        ) not in self.published or self.chance.random() < 0.1:
            self.publish(run, point)
        else:
            point.commits += 1

    def log(self, run: Run, point: Checkpoint) -> None:
        assert point.first is not None
        start = point.offsets[-1].positions if point.offsets else point.first
        self.answer(run, start)
        stops = [self.stop_of(run, log, at) for log, at in zip(self.logs, start, strict=True)]
        blocked = any(
            at == stop < log.end for log, at, stop in zip(self.logs, start, stops, strict=True)
        )
        self.blocked(run, blocked)
        most = self.scenario.most
        positions = tuple(
            self.chance.randint(at, min(stop, at + most))
            for at, stop in zip(start, stops, strict=True)
        )
        floor = align.floor_at(self.logs, positions, self.scenario.lateness)
        if run.promised is not None:
            floor = self.rules.promised_floor(floor, run.promised)
        before = point.offsets[-1].floor if point.offsets else None
        known = [one for one in (floor, before, run.close_at) if one is not None]
        offset = Offset(positions, max(known, default=None), run.owners)
        if not point.offsets or offset != point.offsets[-1]:
            point.offsets.append(offset)

    def blocked(self, run: Run, blocked: bool) -> None:
        if not blocked:
            run.blocked_since = None
            return
        run.blocked_since = self.now if run.blocked_since is None else run.blocked_since
        if self.now - run.blocked_since > 500:
            raise Violation("gap", f"{run.version} stands still since {run.blocked_since}")

    def stop_of(self, run: Run, log: Log, start: int) -> int:
        if run.stopped:
            return start
        return (
            log.end if run.promised is None else log.first_above(run.promised - 1, start, log.end)
        )

    def answer(self, run: Run, logged: tuple[int, ...]) -> None:
        """Look at the driver's question, and answer it once."""
        board = self.board
        if board is None or run.shadow or board in (run.answered, run.ignores):
            return
        run.answered = board
        offsets = self.checkpoints[run.version].offsets
        floor = offsets[-1].floor if offsets else None
        highest = [log.state_at(at).running_max for log, at in zip(self.logs, logged, strict=True)]
        numbers = [self.rules.handed_out(one, floor, board[3]) for one in highest]
        names = [f"{run.version}/{partition}" for partition in range(len(numbers))]
        if board[0] == "ask":
            run.stopped = run.stopped or board[2]
            self.inbox += [
                events.Reported(board[1], name, number)
                for name, number in zip(names, numbers, strict=True)
            ]
        elif any(self.rules.passed(number, board[2]) for number in numbers):
            self.inbox += [events.Passed(board[1], name) for name in names]
        else:
            run.promised = board[4] if self.rules.promises else None
            self.inbox += [events.Confirmed(board[1], name) for name in names]

    def publish(self, run: Run, point: Checkpoint) -> None:
        batch = point.commits
        found = [] if run.shadow else self.results(run.version, point, batch)
        known = self.published.get((run.version, point.id, batch))
        if known is not None and sorted(known) != sorted(found):
            raise Violation(
                "repeatable", f"batch {batch} of {run.version} gives {found}, and gave {known}"
            )
        self.published[run.version, point.id, batch] = found

    def results(self, version: str, point: Checkpoint, batch: int) -> list[Result]:
        """Return what a batch completes, of what its version owns."""
        offset = point.offsets[batch]
        before = point.offsets[batch - 1] if batch else None
        assert point.first is not None
        rows = self.read(point.first, offset.positions)
        found = point.shape.results(rows)
        done = {one for one in found if one.complete is not None and _over(one, offset.floor)}
        if before is not None:
            done = {one for one in done if not _over(one, before.floor)}
        at_once = {one for one in found if one.complete is None}
        if before is not None:
            earlier = point.shape.results(self.read(point.first, before.positions))
            at_once -= {one for one in earlier if one.complete is None}
        return sorted(one for one in done | at_once if self.rules.owns(offset.owners, version, one))

    def read(self, start: tuple[int, ...], stop: tuple[int, ...]) -> list[Row]:
        return [
            row
            for log, a, z in zip(self.logs, start, stop, strict=True)
            for row in log.on_time(a, z)
        ]

    # what the driver notices

    def notice(self) -> None:
        self.inbox += [event for at, event in self.starting if at <= self.now]
        self.starting = [one for one in self.starting if one[0] > self.now]
        if isinstance(self.state, WithDeadline) and self.now >= self.state.deadline_us:
            self.hear(events.Tick())
        if isinstance(self.state, Overlapping) and self.state.leaving in self.runs:
            self.notice_drain(self.state.leaving)
        trouble = self.troubles.get(self.state.number)
        if (
            trouble is not None
            and trouble.kind == "is unhealthy after"
            and self.now > trouble.by + 100
        ):
            self.go_back(trouble.number)

    def go_back(self, number: int) -> None:
        """Switch back, as an engine does that finds a version unwell, once that is the current one."""
        if self.state.phase is Phase.RUNNING:
            self.troubles.pop(number)
            if self.state.current == f"v{number}":
                self.tell(f"goes back from v{number}")
                self.wishes.appendleft(Wish(self.now, "switch", self.shapes[f"v{number - 1}"]))

    def hear(self, event: events.Event) -> None:
        """Tell the machine what was noticed, once."""
        if event not in self.inbox:
            self.inbox.append(event)

    def notice_drain(self, leaving: str) -> None:
        point, horizon, late = (
            self.checkpoints[leaving],
            self.reach(leaving).horizon,
            self.scenario.lateness,
        )
        committed = point.committed
        if committed is None or self.cut not in [one.from_us for one in committed.owners.stretches]:
            return
        reached = [
            align.progress(log.state_at(at), late)
            for log, at in zip(self.logs, committed.positions, strict=True)
        ]
        if UNIT not in self.state.closed and all(
            self.rules.beyond(one, self.cut, horizon, late) for one in reached
        ):
            self.hear(events.Beyond(UNIT))
        if self.rules.drained(committed.floor, self.cut, horizon):
            self.hear(events.Drained(UNIT))

    def wish(self) -> None:
        """Let the next user have what he wants, if it is time."""
        wish = self.wishes[0]
        if wish.at > self.now or self.todo:
            return
        if wish.kind in ("switch", "share", "shadow") and self.state.phase is not Phase.RUNNING:
            if self.state.phase in (Phase.SHARING, Phase.SHADOWING):
                self.wishes.popleft()  # nobody will end these any more
            return
        if wish.kind == "raise" and self.state.phase not in RESTING:
            return
        self.wishes.popleft()
        match wish.kind:
            case "abort":
                self.ask(events.AbortRequested())
            case "raise":
                voters = frozenset(
                    f"{version}/{p}" for version in self.runs for p in range(len(self.logs))
                )
                self.ask(events.ShareRequested(asked(wish, share=wish.share or None), voters))
            case _:
                self.request(wish)

    def request(self, wish: Wish) -> None:
        assert wish.shape is not None
        version = f"v{self.state.number + 1}"
        self.shapes[version] = self.fitted(wish.shape)
        found = self.rules.reach(
            self.shapes[self.state.current], self.shapes[version], self.scenario.window
        )
        share = wish.share if wish.kind == "share" else None
        request = asked(wish, share=share, shadow=wish.kind == "shadow")
        self.ask(events.SwitchRequested(version, request, (UNIT,), found.step))

    # running

    def run(self) -> None:
        while not self.over():
            self.now += 1
            if self.now > MOST_STEPS:
                raise Violation("jam", f"still {self.state.phase} after {MOST_STEPS} steps")
            if self.crashes and self.now >= self.crashes[0]:
                self.crashes.popleft()
                self.crash()
            self.step()
        self.check()

    def step(self) -> None:
        if not self.ended:
            self.arrive()
        runs = [run for run in self.runs.values() if run.live]
        choice = self.chance.randrange(3 + 2 * len(runs))
        if choice == 0:
            self.notice()
        elif choice <= 2:
            self.drive()
        else:
            self.let(runs[(choice - 3) % len(runs)])
        if self.wishes:
            self.wish()

    def arrive(self) -> None:
        while self.coming and self.coming[0].at <= self.now:
            self.logs[self.coming.popleft().partition].end += 1
        if not self.coming and (not self.wishes or self.now > self.scenario.ends):
            self.ended = True
            for log in self.logs:
                log.end = len(log.rows)

    def let(self, run: Run) -> None:
        trouble = self.troubles.get(int(run.version[1:]))
        slow = trouble is not None and trouble.kind == "is slow"
        if not slow or self.chance.random() < 0.15:
            self.act(run)

    def drive(self) -> None:
        if self.todo:
            self.do(self.todo.popleft())
        elif self.inbox:
            self.ask(self.inbox.pop(self.chance.randrange(len(self.inbox))))

    def over(self) -> bool:
        quiet = not (self.coming or self.wishes or self.todo or self.inbox or self.starting)
        return (
            quiet
            and self.state.phase in RESTING
            and all(self.caught_up(run) for run in self.runs.values())
        )

    def caught_up(self, run: Run) -> bool:
        point = self.checkpoints[run.version]
        done = point.committed
        return done is not None and len(point.offsets) == point.commits and done.floor == FOREVER_US

    def check(self) -> None:
        expected: Counter[tuple[Any, ...]] = Counter()
        for version, shape in self.shapes.items():
            mine = [
                one
                for one in shape.results(self.everything)
                if self.history.owner(one.start, one.key) == version
            ]
            expected.update(one[:3] for one in mine)
        found = Counter(one[:3] for part in self.published.values() for one in part)
        if found != expected:
            fact = f"missing {sorted((expected - found).elements())}, too many {sorted((found - expected).elements())}"
            raise Violation("once", fact)


def asked(wish: Wish, **more: Any) -> SwitchRequest:
    return SwitchRequest(timeout=timedelta(microseconds=wish.limit), **more)


def _over(one: Result, floor: int | None) -> bool:
    return floor is not None and one.complete is not None and one.complete <= floor


def violation(scenario: Scenario, rules: Rules = OURS) -> Violation | None:
    """Run a scenario; return the promise that it breaks, if it breaks one."""
    try:
        World(scenario, rules).run()
    except Violation as found:
        return found
    return None


def story(scenario: Scenario, rules: Rules = OURS) -> list[str]:
    """Return a scenario and all that happens in it, a line for each event."""
    world = World(scenario, rules)
    try:
        world.run()
    except Violation as found:
        return [*scenario.lines(), *world.lines, f"BROKEN {found}"]
    return [*scenario.lines(), *world.lines]
