from __future__ import annotations

import random

import pytest

from millstream.actions.scheme import Node, Scheme
from millstream.actions.supervision import (
    EXITS,
    AskPing,
    Order,
    Start,
    Stop,
    Supervision,
    TellChange,
    answered,
    begin,
    changed,
    exited,
    gone,
    replaced,
    ticked,
)

PIPE = Scheme(
    "p",
    (
        Node("a", "./a", ("a:1",)),
        Node("b", "./b", ("b:1", "b:2", "b:3")),
        Node("c", "./c", ("c:1", "c:2")),
    ),
    (("a", "b"), ("b", "c")),
)


def all_answer(state: Supervision) -> Supervision:
    for name, life in state.lives.items():
        state = answered(state, name, life.generation)
    return state


def test_all_are_started_where_they_belong():
    _, orders = begin(PIPE, 0.0)
    assert orders == [
        Start("a", "a:1", 1, ("b:1",)),
        Start("b", "b:1", 1, ("c:1",)),
        Start("c", "c:1", 1, ()),
    ]


def test_a_runtime_that_is_silent_to_three_pings_is_replaced_at_its_spare():
    state, _ = begin(PIPE, 0.0)
    state = all_answer(state)
    asked = 0
    for now in (5.0, 10.0, 15.0):
        state, orders = ticked(state, now)
        asked += orders.count(AskPing("b"))
        for name in ("a", "c"):
            state = answered(state, name, 1)
    assert asked == 3
    assert ticked(state, 19.9)[1] == []
    state, orders = ticked(state, 20.0)
    assert [order for order in orders if not isinstance(order, AskPing)][:3] == [
        Stop("b", 1),
        Start("b", "b:2", 2, ("c:1",)),
        TellChange("a", "b:1", "b:2"),
    ]
    assert answered(state, "b", 1) == state  # the old life, cut off, is heard again


def test_an_upstream_is_told_until_it_has_confirmed():
    state, _ = begin(PIPE, 0.0)
    state = all_answer(state)
    for now in (5.0, 10.0, 15.0, 20.0):
        state, _ = ticked(state, now)
        state = answered(answered(state, "a", 1), "c", 1)
    for now in (21.0, 22.0):
        state, orders = ticked(state, now)
        assert TellChange("a", "b:1", "b:2") in orders
    state = changed(state, "a", "b:1", "b:2")
    assert ticked(state, 23.0)[1] == []


def test_an_upstream_that_is_started_again_is_started_with_the_new_address():
    state, _ = begin(PIPE, 0.0)
    state = all_answer(state)
    for now in (5.0, 10.0, 15.0, 20.0):
        state, _ = ticked(state, now)
        state = answered(answered(state, "a", 1), "c", 1)
    state, orders = exited(state, "a", 1, 21.0)
    assert orders == [Start("a", "a:1", 1, ("b:2",))]
    assert state.changes == ()


def test_a_runtime_that_ends_is_started_where_it_was_and_replaced_if_it_does_so_again_and_again():
    state, _ = begin(PIPE, 0.0)
    for number in range(EXITS - 1):
        state, orders = exited(state, "b", 1, float(number))
        assert orders == [Start("b", "b:1", 1, ("c:1",))]
    state, orders = exited(state, "b", 1, 9.0)
    assert Start("b", "b:2", 2, ("c:1",)) in orders
    assert exited(state, "b", 1, 9.5) == (state, [])


def test_one_that_never_answers_after_its_start_is_replaced():
    state, _ = begin(PIPE, 0.0)
    for now in range(5, 30, 5):
        state, orders = ticked(state, float(now))
        assert not any(isinstance(order, Start) for order in orders)
    _, orders = ticked(state, 30.0)
    assert Start("b", "b:2", 2, ("c:2",)) in orders or Start("b", "b:2", 2, ("c:1",)) in orders


@pytest.mark.parametrize("seed", range(200))
def test_in_the_end_everybody_sends_to_where_everybody_is(seed):
    """Machines come and go, messages get lost; once that is over, all ways lead to the living, and one life of each is left."""
    chance = random.Random(seed)
    world = World(chance)
    for second in range(400):
        world.step(float(second), trouble=second < 200)
    for node in PIPE.nodes:
        life = world.state.lives[node.name]
        assert world.alive[node.name] == (world.state.address(node.name), life.generation)
        assert world.sends[node.name] == list(world.state.outs(node.name))
    assert world.state.changes == ()
    assert all(generation == world.highest[node] for node, (_, generation) in world.alive.items())


class World:
    """Machines that obey orders, unless they are gone."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.gone: dict[str, float] = {}
        self.alive: dict[str, tuple[str, int]] = {}
        self.sends: dict[str, list[str]] = {}
        self.highest: dict[str, int] = {}
        self.state, orders = begin(PIPE, 0.0)
        self.obey(orders, 0.0)

    def step(self, now: float, *, trouble: bool) -> None:
        self.gone = {address: until for address, until in self.gone.items() if until > now}
        if trouble and self.chance.random() < 0.05:
            address = self.chance.choice([a for node in PIPE.nodes for a in node.addresses])
            self.gone[address] = now + self.chance.choice([1.0, 12.0, 60.0])
        if trouble and self.chance.random() < 0.05 and self.alive:
            name = self.chance.choice(list(self.alive))
            generation = self.alive.pop(name)[1]
            self.state, orders = exited(self.state, name, generation, now)
            self.obey(orders, now)
        self.state, orders = ticked(self.state, now)
        self.obey(orders, now)

    def reached(self, name: str) -> bool:
        return name in self.alive and self.alive[name][0] not in self.gone

    def obey(self, orders: list[Order], now: float) -> None:
        for order in orders:
            match order:
                case Start(node, address, generation, outs):
                    assert generation >= self.highest.get(node, 0), (
                        "a life was started that is over"
                    )
                    self.highest[node] = generation
                    if address not in self.gone:
                        self.alive[node], self.sends[node] = (address, generation), list(outs)
                    else:
                        self.alive.pop(node, None)
                case Stop(node, generation):
                    if self.reached(node) and self.alive[node][1] == generation:
                        del self.alive[node]
                case AskPing(node):
                    if self.reached(node):
                        self.state = answered(self.state, node, self.alive[node][1])
                case TellChange(node, old, new):
                    if (
                        self.reached(node) and self.chance.random() < 0.8
                    ):  # else the command is lost
                        self.sends[node] = [new if one == old else one for one in self.sends[node]]
                        if self.chance.random() < 0.7:  # else its answer is
                            self.state = changed(self.state, node, old, new)


def test_an_upstream_is_told_of_one_move_after_the_other():
    state, _ = begin(PIPE, 0.0)
    state = all_answer(state)
    told = []
    for generation in (1, 2):
        for _ in range(EXITS):
            state, orders = exited(state, "b", generation, 1.0)
            told += [order for order in orders if isinstance(order, TellChange)]
    assert told == [TellChange("a", "b:1", "b:2")]
    assert ticked(state, 2.0)[1] == told
    state = changed(state, "a", "b:1", "b:2")
    assert ticked(state, 3.0)[1] == [TellChange("a", "b:2", "b:3")]
    state = changed(state, "a", "b:2", "b:3")
    assert ticked(state, 4.0)[1] == []


def test_nodes_go_on_as_what_they_were_and_ended_sources_stay_away():
    _, orders = begin(PIPE, 0.0, known={"b": (1, 2)}, ended={"a"})
    assert orders == [Start("b", "b:2", 2, ("c:1",)), Start("c", "c:1", 1, ())]


def test_a_node_that_is_no_runtime_is_where_it_is_said_to_be():
    pipe = Scheme("p", (Node("a", "./a", ("a:1",)), Node("s", "./s")), (("a", "s"),))
    _, orders = begin(pipe, 0.0, fixed={"s": "s:9"})
    assert orders == [Start("a", "a:1", 1, ("s:9",))]


def test_a_source_that_is_gone_is_not_missed():
    state, _ = begin(PIPE, 0.0)
    state = gone(all_answer(state), "a")
    assert exited(state, "a", 1, 1.0) == (state, [])
    assert answered(state, "a", 1) == state
    _, orders = ticked(state, 100.0)
    assert [order for order in orders if getattr(order, "node", None) == "a"] == []


def test_a_runtime_whose_queue_is_damaged_is_replaced_also_where_it_was():
    alone = Scheme("one", (Node("a", "p", ()), Node("b", "p", ("127.0.0.1:9",))), (("a", "b"),))
    state, _ = begin(alone, 0.0)
    state = answered(state, "b", 1)
    after, orders = replaced(state, "b", 1, 5.0)
    assert Start("b", "127.0.0.1:9", 2, ()) in orders
    assert after.lives["b"].generation == 2
    assert replaced(after, "b", 1, 6.0) == (after, []), "of a life that is over"
