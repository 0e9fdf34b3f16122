from __future__ import annotations

import random

import pytest

from millstream.actions.deliveries import Inputs, Outs
from millstream.actions.wire import Hello
from millstream.errors import Fenced

WRAP = 2**32


def test_what_comes_again_is_known():
    inputs = Inputs({})
    sender = inputs.greet(Hello("s_a", 1), 1)
    assert [inputs.arrived(sender, i) for i in (1, 2, 3)] == [1, 2, 3]
    again = inputs.greet(Hello("s_a", 1), 2)
    assert [inputs.arrived(again, i) for i in (2, 3, 4)] == [None, None, 4]


def test_a_spare_that_starts_again_at_one_is_not_a_repetition():
    inputs = Inputs({})
    old = inputs.greet(Hello("s_a", 1), 1)
    assert inputs.arrived(old, 1) == 1
    new = inputs.greet(Hello("s_a", 2), 2)
    assert inputs.arrived(new, 1) == 1
    assert inputs.replaced("s_a") == [old]


def test_a_replaced_life_is_fenced():
    inputs = Inputs({"s_a": 2})
    with pytest.raises(Fenced, match='"s_a#1" was replaced by generation 2'):
        inputs.greet(Hello("s_a", 1), 1)
    assert inputs.greet(Hello("s_a", 2), 2) == "s_a#2"
    assert inputs.greet(Hello("s_b", 1), 3) == "s_b#1"


def test_of_a_sender_without_generation_nothing_is_known_on_the_next_connection():
    inputs = Inputs({})
    first = inputs.greet(Hello("s_a"), 1)
    assert [inputs.arrived(first, i) for i in (1, 2, 2)] == [1, 2, None]
    second = inputs.greet(Hello("s_a"), 2)
    assert inputs.arrived(second, 1) == 1


def test_ids_wrap_without_being_repetitions():
    inputs = Inputs({})
    sender = inputs.greet(Hello("s_a", 1), 1)
    assert inputs.arrived(sender, WRAP - 2) == WRAP - 2
    assert [inputs.arrived(sender, i) for i in (WRAP - 1, 1, 2, WRAP - 1, 3)] == [
        WRAP - 1,
        WRAP + 1,
        WRAP + 2,
        None,
        WRAP + 3,
    ]


def test_inputs_without_output_are_done_with_what_is_before_them():
    inputs = Inputs({})
    a, b = inputs.greet(Hello("s_a", 1), 1), inputs.greet(Hello("s_b", 1), 2)
    inputs.blank(a, 1, 0)
    assert inputs.trimmed(0, {}) == {a: 1}
    # a2 -> output 1, a3 and b1 nothing, b2 -> output 2, a4 nothing
    inputs.blank(a, 3, 1)
    inputs.blank(b, 1, 1)
    inputs.blank(a, 4, 2)
    assert inputs.trimmed(0, {}) == {}
    assert inputs.trimmed(1, {a: 2}) == {a: 3, b: 1}
    assert inputs.trimmed(2, {b: 2}) == {b: 2, a: 4}
    assert (inputs.done(a), inputs.done(b), inputs.done("nobody")) == (4, 2, 0)


def test_many_inputs_without_output_take_no_room():
    inputs = Inputs({})
    a = inputs.greet(Hello("s_a", 1), 1)
    for number in range(1, 100_000):
        inputs.blank(a, number, 5)
    assert len(inputs._blanks) == 1
    assert inputs.trimmed(5, {}) == {a: 99_999}


def test_outputs_are_everywhere_when_the_slowest_has_them():
    outs = Outs(["x", "y"], 0)
    outs.acknowledged("x", 5, sent=9)
    assert outs.everywhere(9) == 0
    outs.acknowledged("y", 3, sent=9)
    assert outs.everywhere(9) == 3
    assert Outs([], 0).everywhere(9) == 9


def test_acknowledgements_that_make_no_sense_change_nothing():
    outs = Outs(["x"], 10)
    for id_ in (0, 3, 10, 21, WRAP - 1):
        outs.acknowledged("x", id_, sent=20)
        assert outs.acked("x") == 10
    outs.acknowledged("x", 20, sent=20)
    outs.acknowledged("x", 15, sent=20)
    assert outs.acked("x") == 20


def test_acknowledgements_around_the_wrap():
    outs = Outs(["x"], WRAP - 3)
    outs.acknowledged("x", WRAP - 2, sent=WRAP + 4)
    assert outs.acked("x") == WRAP - 2
    outs.acknowledged("x", 2, sent=WRAP + 4)
    assert outs.acked("x") == WRAP + 2
    outs.acknowledged("x", WRAP - 1, sent=WRAP + 4)
    outs.acknowledged("x", 5, sent=WRAP + 4)
    assert outs.acked("x") == WRAP + 2


def test_a_new_downstream_gets_what_the_old_one_has_not_acknowledged():
    outs = Outs(["x", "y"], 0)
    outs.acknowledged("x", 4, sent=9)
    assert outs.change("x", "z")
    assert outs.addresses == ("z", "y")
    assert outs.acked("z") == 4
    assert outs.change("x", "z")  # asked again
    assert not outs.change("q", "r")
    assert not outs.change("y", "z")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_acknowledged_before_all_that_was_made_of_it(seed):
    """A model keeps for every input the last output made of it, and compares."""
    chance = random.Random(seed)
    inputs = Inputs({})
    senders = [inputs.greet(Hello(f"s_{n}", 1), n) for n in range(3)]
    came = dict.fromkeys(senders, 0)
    needs: dict[tuple[str, int], int] = {}
    outputs: list[tuple[str, int]] = []
    trimmed, acked = 0, dict.fromkeys(senders, 0)
    for _ in range(200):
        if chance.random() < 0.6:
            sender = chance.choice(senders)
            came[sender] += 1
            made = chance.choice([0, 0, 1, 2])
            outputs += [(sender, came[sender])] * made
            needs[sender, came[sender]] = len(outputs)
            if not made:
                inputs.blank(sender, came[sender], len(outputs))
        else:
            upto = chance.randint(trimmed, len(outputs))
            part = outputs[trimmed:upto]
            whole = [one for one in part if needs[one] <= upto]
            trimmed = upto
            acked |= inputs.trimmed(trimmed, dict(whole))
        for sender in senders:
            due = [n for n in range(1, came[sender] + 1) if needs[sender, n] > trimmed]
            assert acked[sender] < min(due, default=came[sender] + 1)
    acked |= inputs.trimmed(len(outputs), dict(outputs[trimmed:]))
    assert acked == came
