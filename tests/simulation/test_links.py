"""Links under every trouble that seeds can draw; and with a rule broken, which must be noticed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from millstream.links import admission, window
from millstream.links.admission import NOTHING, Admission
from millstream.links.routing import Policy
from millstream.links.window import Answer, Limits, Piece, Send, Window
from simulation.links.scenario import InboxCrash, ProducerCrash, Scenario, Sends, Takes, drawn
from simulation.links.shrink import shrunk
from simulation.links.world import OURS, Inbox, Producer, Rules, Violation, World, story, violation

SEEDS = 10_000


@pytest.mark.slow
def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        found = violation(drawn(seed))
        if found is not None:
            told = "\n".join(story(shrunk(drawn(seed))))
            pytest.fail(f"seed {seed}: {found}; make sim SEED={seed}\n{told}", pytrace=False)


def test_the_same_seed_is_the_same_story() -> None:
    for seed in range(20):
        assert story(drawn(seed)) == story(drawn(seed))


# what the seeds cover


class Counting(Producer):
    """Counts the troubles that a producer gets into."""

    seen: dict[str, int]

    def overdue(self, inbox: int) -> None:
        self.seen["overdue"] += 1

    def receive(self, life: int, inbox: int, answer: Answer) -> None:
        if life == self.life and not self.down:
            flight = next(
                (one for one in self.windows[inbox].flights if one.request == answer.request), None
            )
            self.seen["late"] += flight is None
            self.seen["short"] += flight is not None and answer.taken < flight.rows
            self.seen["full"] += answer.free == 0
        super().receive(life, inbox, answer)

    def die(self, back: float) -> None:
        self.seen["deaths"] += 1
        super().die(back)

    def lost(self, life: int, inbox: int) -> None:
        self.seen["links lost"] += life == self.life
        super().lost(life, inbox)


class Losing(Inbox):
    """Counts what crashes cost, and what comes twice."""

    seen: dict[str, int]

    def cut_to(self, end: int) -> None:
        self.seen["rows lost"] += len(self.journal) - end
        self.seen["rows kept"] += end - self.synced
        super().cut_to(end)

    def reply(self, producer: Producer, life: int, order: Send, found: Admission) -> None:
        self.seen["repeated"] += found.repeated
        self.seen["gaps"] += order.after > self.highest.get(producer.name, NOTHING)
        super().reply(producer, life, order, found)


def test_the_seeds_reach_every_trouble_often() -> None:
    kinds = (
        "overdue",
        "late",
        "short",
        "full",
        "deaths",
        "links lost",
        "rows lost",
        "rows kept",
        "repeated",
        "gaps",
    )
    seen = dict.fromkeys(kinds, 0)
    producer, inbox = type("P", (Counting,), {"seen": seen}), type("I", (Losing,), {"seen": seen})
    rules = replace(OURS, producer=producer, inbox=inbox)
    for seed in range(300):
        assert violation(drawn(seed), rules) is None
    assert {kind: count for kind, count in seen.items() if count < 15} == {}


# stories that once failed


def world(sends: Sends, *faults: object, takes: tuple[Takes, ...] = (Takes(4, 1.0),)) -> Scenario:
    limits = Limits(requests=2, timeout=10.0, pause_s=0.25, longest_pause_s=4.0)
    return Scenario(0, limits, (sends,), takes, faults)  # type: ignore[arg-type]


def test_a_sender_may_begin_again_from_before_what_its_inbox_has() -> None:
    sends = Sends(Policy.KEY, rows=4, batch=3, outbox=3)
    assert violation(world(sends, ProducerCrash(6.0, 15.0, 0, back=0.5))) is None


def test_a_window_that_waits_for_room_does_not_ask_to_be_woken_at_once() -> None:
    sends = Sends(Policy.KEY, rows=8, batch=2, outbox=8)
    assert violation(world(sends, takes=(Takes(1, 3.0),))) is None


# broken rules


class RepeatsUncounted(Inbox):
    """Answers for the fresh rows of a request alone: repeats are neither counted nor acknowledged."""

    def reply(self, producer: Producer, life: int, order: Send, found: Admission) -> None:
        if found.fresh:
            super().reply(producer, life, order, Admission(0, found.fresh))
        else:
            self.answer(producer, life, order.request, 0, NOTHING)


def after_unchecked(highest: int, after: int, numbers: admission.Numbers, room: int) -> Admission:
    return admission.admit(highest, NOTHING, numbers, room)


def repeats_stored(highest: int, after: int, numbers: admission.Numbers, room: int) -> Admission:
    return admission.admit(NOTHING if after == NOTHING else highest, after, numbers, room)


def room_ignored(highest: int, after: int, numbers: admission.Numbers, room: int) -> Admission:
    return admission.admit(highest, after, numbers, 1 << 30)


class Hasty(Inbox):
    """Answers before the rows are synced."""

    def reply(self, producer: Producer, life: int, order: Send, found: Admission) -> None:
        self.answer(
            producer, life, order.request, found.taken, self.highest.get(producer.name, NOTHING)
        )


class NumbersKept(Inbox):
    """Remembers numbers whose rows a crash has taken."""

    def cut_to(self, end: int) -> None:
        highest = dict(self.highest)
        super().cut_to(end)
        self.highest.update(highest)


class EndsNotedAtOnce(Inbox):
    """Writes down who has ended before that sender's rows are synced."""

    def cut_to(self, end: int) -> None:
        ended = self.ends.ended
        super().cut_to(end)
        for sender in ended:
            self.ends = self.ends.after(sender)


class SentElsewhere(Producer):
    """Sends what was not answered in time to the next inbox, which may have room."""

    def overdue(self, inbox: int) -> None:
        other = (inbox + 1) % len(self.windows)
        rows = [
            n
            for piece in self.windows[inbox].pieces
            for n in piece.numbers
            if not self.everywhere(n)
        ]
        if other != inbox and rows and rows[0] > self.windows[other].last:
            self.windows[other] = window.offer(self.windows[other], Piece(rows, rows))


class EndToOne(Producer):
    """Sends an instruction where a row would go."""

    def instruct(self, number: int) -> int:
        return self.route(number, 1)


class PlacesByBatch(Producer):
    """Chooses an outbox in turn by the place in a batch, not by the number."""

    def places(self, numbers: range) -> np.ndarray:
        if self.plan.policy is Policy.IN_TURN:
            return np.arange(len(numbers)) % len(self.windows)
        return super().places(numbers)


def late_answer_disables(one: Window, answer: Answer, now: float, limits: Limits) -> Window:
    known = any(flight.request == answer.request for flight in one.flights)
    found = window.answered(one, answer, now, limits)
    return found if known else replace(found, not_before=math.inf)


def shortage_forgotten(one: Window, answer: Answer, now: float, limits: Limits) -> Window:
    return window.answered(one, replace(answer, taken=1 << 30), now, limits)


def taken_is_acknowledged(one: Window, answer: Answer, now: float, limits: Limits) -> Window:
    """Counts what was taken from the front of what is open, whichever request it belonged to."""
    numbers = [n for piece in one.pieces for n in piece.numbers]
    highest = numbers[answer.taken - 1] if 0 < answer.taken <= len(numbers) else NOTHING
    return window.answered(one, replace(answer, highest=max(highest, answer.highest)), now, limits)


def silence_forgotten(one: Window, now: float, limits: Limits) -> tuple[Window, bool]:
    kept = tuple(flight for flight in one.flights if flight.deadline > now)
    return replace(one, flights=kept), len(kept) < len(one.flights)


def nothing_before(one: Window, now: float, limits: Limits) -> tuple[Window, list[Send]]:
    found, orders = window.send(one, now, limits)
    return found, [replace(order, after=NOTHING) for order in orders]


def pause_remembered(one: Window, now: float, limits: Limits) -> tuple[Window, list[Send]]:
    found, orders = window.send(one, now, limits)
    return replace(found, not_before=one.not_before), orders


BROKEN = [
    (Rules(inbox=RepeatsUncounted), {"jam"}),
    (Rules(admit=after_unchecked), {"acknowledged", "jam", "ended"}),
    (Rules(admit=repeats_stored), {"order", "once"}),
    (Rules(admit=room_ignored), {"room"}),
    (Rules(inbox=Hasty), {"acknowledged"}),
    (Rules(inbox=NumbersKept), {"acknowledged", "jam", "ended"}),
    (Rules(inbox=EndsNotedAtOnce), {"ended"}),
    (Rules(producer=SentElsewhere), {"once"}),
    (Rules(producer=EndToOne), {"ended", "jam"}),
    (Rules(producer=PlacesByBatch), {"once", "jam", "ended"}),
    (Rules(answered=late_answer_disables), {"jam"}),
    (Rules(answered=shortage_forgotten), {"jam"}),
    (Rules(answered=taken_is_acknowledged), {"acknowledged"}),
    (Rules(expired=silence_forgotten), {"jam"}),
    (Rules(send=nothing_before), {"acknowledged", "jam", "ended"}),
    (Rules(send=pause_remembered), {"spin"}),
]


def named(rules: Rules) -> str:
    return next(
        value.__name__
        for name in Rules.__slots__
        if (value := getattr(rules, name)) is not getattr(OURS, name)
    )


@pytest.mark.parametrize(
    ("rules", "promises"), [pytest.param(*one, id=named(one[0])) for one in BROKEN]
)
def test_a_broken_rule_is_noticed(rules: Rules, promises: set[str]) -> None:
    found = next(
        ((seed, one) for seed in range(500) if (one := violation(drawn(seed), rules)) is not None),
        None,
    )
    assert found is not None, "500 seeds notice nothing"
    assert found[1].promise in promises, found


def test_a_failing_seed_is_shrunk_to_a_story_that_fails_for_the_same_reason() -> None:
    rules = Rules(inbox=Hasty)
    seed = next(seed for seed in range(500) if violation(drawn(seed), rules) is not None)
    large, small = drawn(seed), shrunk(drawn(seed), rules)
    assert len(small.producers) == 1
    assert small.events <= large.events
    assert len(small.faults) <= len(large.faults)
    told = story(small, rules)
    assert told[-1].partition("BROKEN ")[2].startswith("acknowledged: ")
    assert len(told) < 25


def test_nothing_in_a_shrunk_scenario_can_be_left_out() -> None:
    rules = Rules(admit=after_unchecked)
    seed = next(seed for seed in range(500) if violation(drawn(seed), rules) is not None)
    small = shrunk(drawn(seed), rules)
    assert shrunk(small, rules) == small
    for n in range(len(small.faults)):
        fewer = replace(small, faults=small.faults[:n] + small.faults[n + 1 :])
        found = violation(fewer, rules)
        assert found is None or found.promise != violation(small, rules).promise  # type: ignore[union-attr]


def test_a_world_that_runs_for_ever_is_a_jam() -> None:
    one = World(
        world(Sends(Policy.KEY, 1, 1, 1), InboxCrash(0.0, 1.0, 0, 0.0, told=False, alive=False))
    )

    def again() -> None:
        one.after(0.0, again, ())

    one.at(5.0, again, ())
    with pytest.raises(Violation, match="jam"):
        one.run()
