"""What becomes of a run that devices know differently: the scenarios of distributed BoboCEP.

The names of the devices, the run and the scenarios are those of its documentation.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from millstream.errors import DeviceRefused, ImpossiblePattern
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.choice import Kind
from millstream.watch.device import Complete, Device, Sharing
from millstream.watch.messages import COMPLETED, HALTED, LIVE, Ack, RunId, Say
from millstream.watch.runs import Run

SECOND = 1_000_000
ABCD = (
    Pattern("p")
    .begin("a", "kind = 'a'")
    .followed_by("b", "kind = 'b'")
    .followed_by("c", "kind = 'c'")
    .followed_by("d", "kind = 'd'")
    .within("1 hour")
)
STRICT = Pattern("p").begin("a", "kind = 'a'").next("b", "kind = 'b'").next("c", "kind = 'c'")
STRICT = STRICT.within("1 hour")


class Network:
    """Devices that are wired by hand: nothing is sent unless a test does it."""

    def __init__(self, pattern: Pattern = ABCD, names: str = "ABC", **sharing: Any) -> None:
        edge = EdgePattern.of(pattern, schema=None, time="at", key=())
        self.now = 0
        self.devices = {
            name: Device(
                [edge], name, name + "1", [n for n in names if n != name], Sharing(**sharing)
            )
            for name in names
        }
        self.completed: dict[str, list[Complete]] = {name: [] for name in names}
        self.cut: set[str] = set()

    def event(self, name: str, kind: str, number: int, at: int | None = None) -> None:
        seconds = number if at is None else at
        row = {"kind": kind, "number": number}
        self.completed[name] += self.devices[name].event((kind, number), seconds * SECOND, row)

    def due(self, name: str) -> list[tuple[str, Say]]:
        return self.devices[name].due(self.now)

    def deliver(self, sender: str, receiver: str, say: Say) -> None:
        ack, found = self.devices[receiver].receive(sender, say, self.now)
        self.completed[receiver] += found
        self.devices[sender].acknowledged(receiver, ack, self.now)

    def talk(self, seconds: int = 0) -> None:
        """Let all messages come and go that are due; those of a device that is cut off fail."""
        self.now += seconds * SECOND
        for _ in range(10):
            for name in self.devices:
                for peer, say in self.due(name):
                    if self.cut & {name, peer}:
                        self.devices[name].failed(peer, say.number)
                    else:
                        self.deliver(name, peer, say)

    def runs(self, name: str) -> dict[RunId, Run]:
        return {run.id: run for run in self.devices[name].matchers["p"]}

    def run(self, name: str) -> tuple[int, str]:
        """Return the status of the only run, and what it has taken."""
        (run,) = self.runs(name).values()
        return run.status, "".join(f"{seen.id[0]}{seen.id[1]}" for _, seen in run.link.history)


def kinds(messages: list[tuple[str, Say]]) -> dict[str, str]:
    return {peer: str(say.kind) for peer, say in messages}


# Communication failure: cannot send data to another instance


def test_cannot_send_the_stash_is_kept_and_sent_later() -> None:
    net = Network()
    net.talk()
    net.cut = {"B"}
    net.event("A", "a", 1)
    net.talk()
    assert net.run("C") == (LIVE, "a1")
    assert net.runs("B") == {}
    net.event("A", "b", 2)
    net.talk(seconds=5)
    assert net.devices["A"].log.stash("B") == 1, "the newest state of a run says all"
    net.cut = set()
    net.talk(seconds=5)
    assert net.run("B") == (LIVE, "a1b2")
    assert net.devices["A"].log.stash("B") == 0


def test_in_the_ping_period_changes_are_still_sent() -> None:
    net = Network(names="AB")
    net.talk()
    net.now += 31 * SECOND
    assert kinds(net.due("A")) == {"B": "ping"}
    net.devices["A"].failed("B", 2)
    net.event("A", "a", 1)
    net.now += 5 * SECOND
    assert kinds(net.due("A")) == {"B": "sync"}


def test_in_the_resync_period_the_stash_is_wiped_and_the_whole_state_is_sent() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.talk()
    net.event("A", "b", 2)
    net.now += 61 * SECOND
    ((_, say),) = net.due("A")
    assert say.kind is Kind.RESYNC
    assert len(say.runs) == 1
    assert net.devices["A"].log.stash("B") == 0
    net.deliver("A", "B", say)
    assert net.run("B") == (LIVE, "a1b2")


def test_finished_runs_are_part_of_a_resync() -> None:
    net = Network(names="AB")
    net.cut = {"B"}
    for number, kind in enumerate("abcd", 1):
        net.event("A", kind, number)
    net.talk(seconds=61)
    net.cut = set()
    net.talk(seconds=11)
    assert net.run("B") == (COMPLETED, "a1b2c3d4")
    assert [one.by for one in net.completed["B"]] == ["A"]


# Run complete: multiple instances complete the same run with different events


def test_completed_with_different_events_both_histories_were_published_and_it_completes_once() -> (
    None
):
    net = Network(names="AB")
    for number, kind in enumerate("abc", 1):
        net.event("A", kind, number)
    net.talk()
    net.event("A", "d", 4)
    net.event("B", "d", 5)
    assert [len(net.completed[name]) for name in "AB"] == [1, 1]
    assert net.completed["A"][0].id == net.completed["B"][0].id
    assert net.completed["A"][0].event != net.completed["B"][0].event
    net.talk()
    assert [len(net.completed[name]) for name in "AB"] == [1, 1], "nobody publishes it again"
    assert net.run("A") == net.run("B") == (COMPLETED, "a1b2c3d4")


# Run halt: one instance completes the run, another halts it


def halted_and_completed() -> tuple[Say, Say]:
    """Return what B and C say of a run that B completes and C halts."""
    net = Network(STRICT, key_owner=True)
    net.event("B", "a", 1)
    net.talk()
    net.event("C", "x", 2)
    net.event("B", "b", 3)
    net.event("B", "c", 4)
    return dict(net.due("C"))["A"], dict(net.due("B"))["A"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 0)])
def test_complete_takes_precedence_over_halt(order: tuple[int, ...]) -> None:
    says = halted_and_completed()
    net = Network(STRICT, key_owner=True)
    for place in order:
        net.deliver("CB"[place], "A", says[place])
    assert net.run("A") == (COMPLETED, "a1b3c4")
    assert len(net.completed["A"]) == 1, "however often it is said"


# Run update


def test_an_update_several_blocks_ahead_pushes_the_run_forward() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.talk()
    net.cut = {"B"}
    net.event("B", "b", 2)
    net.event("B", "c", 3)
    assert net.run("A") == (LIVE, "a1")
    net.cut = set()
    net.talk()
    assert net.run("A") == (LIVE, "a1b2c3"), "with the history of the update"
    net.event("A", "d", 4)
    assert len(net.completed["A"]) == 1


def test_an_update_behind_is_ignored() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    ((_, behind),) = net.due("A")
    net.deliver("A", "B", behind)
    net.event("B", "b", 2)
    net.deliver("A", "B", behind)
    assert net.run("B") == (LIVE, "a1b2")


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_halt_takes_precedence_over_update(order: tuple[int, ...]) -> None:
    net = Network(STRICT, key_owner=True)
    net.event("B", "a", 1)
    net.talk()
    net.event("B", "b", 2)
    net.event("C", "x", 3)
    says = dict(net.due("B"))["A"], dict(net.due("C"))["A"]
    for place in order:
        net.deliver("BC"[place], "A", says[place])
    assert net.run("A")[0] == HALTED


def test_a_message_with_a_halt_and_an_older_update_of_the_run_halts_it() -> None:
    net = Network(STRICT, names="AB", key_owner=True)
    net.event("B", "a", 1)
    ((_, update),) = net.due("B")
    net.devices["B"].failed("A", update.number)
    net.event("B", "x", 2)
    net.now += 10 * SECOND
    ((_, halt),) = net.due("B")
    for runs in ([*update.runs, *halt.runs], [*halt.runs, *update.runs]):
        fresh = Network(STRICT, names="AB", key_owner=True)
        both = Say(Kind.SYNC, 9, False, 2, update.events, runs)
        fresh.devices["A"].receive("B", both, 0)
        assert fresh.run("A")[0] == HALTED


# A crash


def test_after_a_crash_reset_asks_for_the_whole_state() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.event("B", "b", 2)
    net.talk()
    net.devices["B"] = Device(
        [net.devices["A"].matchers["p"].pattern], "B", "B2", ["A"], elapsed=net.now
    )
    ((_, say),) = net.due("B")
    assert say.reset
    net.deliver("B", "A", say)
    ((_, answer),) = net.due("A")
    assert answer.kind is Kind.RESYNC
    assert len(answer.runs) == 1
    net.deliver("A", "B", answer)
    assert net.run("B") == (LIVE, "a1b2")
    net.now += 31 * SECOND
    assert not dict(net.due("B"))["A"].reset, "it has what it asked for"


def test_after_a_crash_a_device_knows_what_was_on_its_disk() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.event("A", "b", 2)
    records = net.devices["A"].records()
    assert records is not None
    edge = net.devices["A"].matchers["p"].pattern
    again = Device([edge], "A", "A2", ["B"])
    again.restore(records)
    assert again.event(("c", 3), 3 * SECOND, {"kind": "c"}) == []
    (found,) = again.event(("d", 4), 4 * SECOND, {"kind": "d"})
    assert found.by == "A"
    assert [one.id for one in again.undelivered] == [found.id]
    again.delivered(found.id)
    assert again.undelivered == []


# Faults of the original


def test_a_late_update_revives_no_finished_run() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    ((_, update),) = net.due("A")
    net.deliver("A", "B", update)
    for number, kind in enumerate("bcd", 2):
        net.event("B", kind, number)
    net.deliver("A", "B", update)
    assert net.run("B")[0] == COMPLETED
    net.event("B", "d", 9)
    assert len(net.completed["B"]) == 1


def test_the_same_complete_three_times_is_one_complex_event() -> None:
    net = Network(names="AB")
    for number, kind in enumerate("abcd", 1):
        net.event("A", kind, number)
    ((_, say),) = net.due("A")
    for _ in range(3):
        net.deliver("A", "B", say)
    assert len(net.completed["B"]) == 1


def test_events_that_a_loop_took_are_shared() -> None:
    loop = Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").times(3)
    net = Network(loop.within("1 hour"), names="AB")
    net.event("A", "a", 1)
    net.event("A", "b", 2)
    net.event("A", "b", 3)
    net.talk()
    net.event("B", "b", 4)
    (found,) = net.completed["B"]
    assert [one["number"] for one in found.event["b"]] == [2, 3, 4]


def test_a_forgotten_run_does_not_come_back() -> None:
    net = Network(names="AB", recall=60 * SECOND)
    net.event("A", "a", 1)
    ((_, update),) = net.due("A")
    net.deliver("A", "B", update)
    for number, kind in enumerate("bcd", 2):
        net.event("B", kind, number)
    net.event("B", "x", 10, at=2 * 3600)
    net.event("B", "a", 11, at=2 * 3600)
    assert len(net.runs("B")) == 1, "the finished one is forgotten"
    net.deliver("A", "B", update)
    assert len(net.runs("B")) == 1


# What a device learns


def test_an_event_that_came_before_the_run_was_known_is_recalled() -> None:
    net = Network(names="AB")
    net.event("B", "b", 2)
    net.event("B", "c", 3)
    net.event("A", "a", 1)
    net.talk()
    assert net.run("B") == (LIVE, "a1b2c3")


def test_with_two_devices_cut_off_from_each_other_the_third_passes_on_what_it_learns() -> None:
    net = Network()
    net.talk()
    net.event("A", "a", 1)
    ((_, to_b),) = [one for one in net.due("A") if one[0] == "B"]
    net.deliver("A", "B", to_b)
    ((_, to_c),) = [one for one in net.due("B") if one[0] == "C"]
    net.deliver("B", "C", to_c)
    assert net.run("C") == (LIVE, "a1")


def test_what_is_complete_elsewhere_is_published_here_only_if_that_device_is_away() -> None:
    net = Network()
    for number, kind in enumerate("abcd", 1):
        net.event("C", kind, number)
    net.talk()
    assert [one.orphans(net.now) for one in net.devices.values()] == [[], [], []]
    net.cut = {"C"}
    for _ in range(3):
        net.talk(seconds=30)
    assert len(net.devices["A"].orphans(net.now)) == 1
    assert net.devices["A"].orphans(net.now) == []
    assert net.devices["B"].orphans(net.now) == [], "the first that is present does it"


def test_what_a_device_that_is_away_has_not_delivered_is_known_after_a_restart() -> None:
    net = Network(names="AB")
    for number, kind in enumerate("abcd", 1):
        net.event("B", kind, number)
    net.talk()
    edge = net.devices["A"].matchers["p"].pattern
    for records in (net.devices["A"].snapshot(), net.devices["A"].records()):
        assert records is not None
        again = Device([edge], "A", "A2", ["B"])
        again.restore(records)
        assert again.orphans(0) == []
        assert len(again.orphans(61 * SECOND)) == 1
    net.devices["B"].delivered(net.completed["B"][0].id)
    net.talk()
    again = Device([edge], "A", "A3", ["B"])
    again.restore(net.devices["A"].snapshot())
    assert again.orphans(61 * SECOND) == []


def test_what_is_delivered_is_not_published_for_a_device_that_is_away() -> None:
    net = Network()
    for number, kind in enumerate("abcd", 1):
        net.event("C", kind, number)
    net.devices["C"].delivered(net.completed["C"][0].id)
    net.talk()
    net.cut = {"C"}
    for _ in range(3):
        net.talk(seconds=30)
    assert net.devices["A"].orphans(net.now) == []


# What is refused


def test_a_pattern_that_is_not_sound_across_devices_is_refused() -> None:
    with pytest.raises(ImpossiblePattern, match="not sound across devices") as caught:
        Network(STRICT)
    assert "key_owner" in str(caught.value.hint)
    Network(STRICT, key_owner=True)
    Network(STRICT, across="seed")


def test_matches_of_the_seeds_rule_are_unconfirmed() -> None:
    net = Network(STRICT, across="seed")
    for number, kind in enumerate("abc", 1):
        net.event("A", kind, number)
    assert [one.unconfirmed for one in net.completed["A"]] == [True]


def test_a_pattern_without_a_time_limit_is_refused() -> None:
    with pytest.raises(ImpossiblePattern, match="no time limit"):
        Network(Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'"))


def test_a_device_that_is_no_peer_is_refused() -> None:
    with pytest.raises(DeviceRefused, match="not a peer"):
        Network().devices["A"].receive("D", Say(Kind.PING, 1, False, 0), 0)


def test_a_history_that_the_pattern_does_not_allow_is_refused() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.event("A", "b", 2)
    ((_, say),) = net.due("A")
    (record,) = say.runs
    history = [*record.history[::-1]]
    forged = Say(Kind.SYNC, 9, False, 1, say.events, [type(record)(record.id, LIVE, history)])
    with pytest.raises(DeviceRefused):
        net.devices["B"].receive("A", forged, 0)
    assert net.runs("B") == {}


def test_an_acknowledgement_of_another_message_counts_for_nothing() -> None:
    net = Network(names="AB")
    net.event("A", "a", 1)
    net.due("A")
    net.devices["A"].acknowledged("B", Ack(77, False), 0)
    assert net.devices["A"].log.stash("B") + net.devices["A"].log.trimmed("B") > 0
