"""How the runtimes of a scheme are kept running: pure rules, without processes and clock.

    starting ──answered──▶ running ──silent to 3 pings──▶ replaced: next address and generation;
        ▲                     │                            its upstreams are told to change_out
        └──── it exited ◀─────┘   started again where it was, with its queue; if that happens a few
                                  times in a row, or its queue is damaged, replaced

An upstream gets the order until it has answered, one move at a time. That it refuses is an answer too:
it does not send there, so there is nothing to change. One that is itself started meanwhile is
started with the new address, and need not be told. The generation fences the one that was replaced,
should it only have been cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from millstream.actions.scheme import Scheme

PINGS: Final = 3
PING_EVERY_S: Final = 5.0
START_WITHIN_S: Final = 30.0
EXITS: Final = 5
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Start:
    """An order: start a node at an address, as a generation, sending to `outs`."""

    node: str
    address: str
    generation: int
    outs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """An order: end a life of a node, if it can be reached."""

    node: str
    generation: int


@dataclass(frozen=True, slots=True)
class AskPing:
    """An order: ping a node."""

    node: str


@dataclass(frozen=True, slots=True)
class TellChange:
    """An order: tell a node that a downstream of it has moved."""

    node: str
    old: str
    new: str


Order = Start | Stop | AskPing | TellChange


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a node: where it is, and how it does."""

    address: int = 0
    generation: int = 1
    started_at: float = 0.0
    answered: bool = False
    asked_at: float = 0.0
    unanswered: int = 0
    exits: int = 0


@dataclass(frozen=True, slots=True)
class Supervision:
    """All that a supervisor knows; `changes` not confirmed yet are (upstream, old, new).

    `fixed` says where messages for nodes go that are not runtimes.
    """

    scheme: Scheme
    lives: Mapping[str, Life]
    changes: tuple[tuple[str, str, str], ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)

    def address(self, node: str) -> str:
        """Return where a node is now."""
        if node in self.fixed:
            return self.fixed[node]
        addresses = self.scheme.node(node).addresses
        return addresses[self.lives[node].address % len(addresses)]

    def outs(self, node: str) -> tuple[str, ...]:
        return tuple(self.address(one) for one in self.scheme.downstreams(node))


def begin(
    scheme: Scheme,
    now: float,
    *,
    known: Mapping[str, tuple[int, int]] = _NOTHING,
    ended: Collection[str] = (),
    fixed: Mapping[str, str] = _NOTHING,
) -> tuple[Supervision, list[Order]]:
    """Start all nodes.

    Args:
        scheme: The scheme.
        now: The time.
        known: Which address and generation nodes had before: they go on as these.
        ended: Sources that have ended before, and are not started again.
        fixed: Where messages for nodes go that are not runtimes.
    """
    names = [node.name for node in scheme.nodes if node.addresses and node.name not in ended]
    lives = {name: Life(*known.get(name, (0, 1)), started_at=now, asked_at=now) for name in names}
    state = Supervision(scheme, MappingProxyType(lives), fixed=fixed)
    return state, [_start(state, name) for name in lives]


def gone(state: Supervision, node: str) -> Supervision:
    """Forget a source that has ended, and all of which was taken: it is not missed."""
    lives = {name: life for name, life in state.lives.items() if name != node}
    return replace(_told(state, node), lives=MappingProxyType(lives))


def ticked(state: Supervision, now: float) -> tuple[Supervision, list[Order]]:
    """Ask those whose turn it is, and replace those who stay silent."""
    orders: list[Order] = []
    for name, life in state.lives.items():
        if now < life.asked_at + PING_EVERY_S:
            continue
        if _silent(life, now):
            state, more = _replaced(state, name, now)
        else:
            missed = life.unanswered + 1 if life.answered else 0
            state, more = (
                _with(state, name, replace(life, asked_at=now, unanswered=missed)),
                [AskPing(name)],
            )
        orders += more
    told = [order for order in orders if isinstance(order, TellChange)]
    return state, [*orders, *(order for order in _due(state) if order not in told)]


def _silent(life: Life, now: float) -> bool:
    if life.answered:
        return life.unanswered >= PINGS
    return now >= life.started_at + START_WITHIN_S


def _due(state: Supervision) -> list[TellChange]:
    """Return the first open change of each upstream: a later one makes sense only after it."""
    first: dict[str, TellChange] = {}
    for change in state.changes:
        first.setdefault(change[0], TellChange(*change))
    return list(first.values())


def answered(state: Supervision, node: str, generation: int) -> Supervision:
    """Note that a node has answered a ping, whether its action runs or not: it is not silent."""
    life = state.lives.get(node)
    if life is None or generation != life.generation:
        return state  # of a life that is over
    return _with(state, node, replace(life, answered=True, unanswered=0, exits=0))


def exited(
    state: Supervision, node: str, generation: int, now: float
) -> tuple[Supervision, list[Order]]:
    """Start a node that has ended again, with its queue, unless that happens too often."""
    life = state.lives.get(node)
    if life is None or generation != life.generation:
        return state, []
    if life.exits + 1 >= EXITS and len(state.scheme.node(node).addresses) > 1:
        return _replaced(state, node, now)
    fresh = replace(
        life, started_at=now, asked_at=now, answered=False, unanswered=0, exits=life.exits + 1
    )
    state = _told(_with(state, node, fresh), node)
    return state, [_start(state, node)]


def replaced(
    state: Supervision, node: str, generation: int, now: float
) -> tuple[Supervision, list[Order]]:
    """Let the next life take the place of a node whose queue is lost, if need be where it was."""
    life = state.lives.get(node)
    if life is None or generation != life.generation:
        return state, []
    return _replaced(state, node, now)


def changed(state: Supervision, node: str, old: str, new: str) -> Supervision:
    """Note that an upstream has answered to a change, whatever its answer is."""
    return replace(state, changes=tuple(one for one in state.changes if one != (node, old, new)))


def _replaced(state: Supervision, node: str, now: float) -> tuple[Supervision, list[Order]]:
    life, old = state.lives[node], state.address(node)
    fresh = Life(life.address + 1, life.generation + 1, started_at=now, asked_at=now)
    state = _told(_with(state, node, fresh), node)
    new = state.address(node)
    told = [
        (up, old, new) for up in state.scheme.upstreams(node) if old != new and up in state.lives
    ]
    state = replace(state, changes=(*state.changes, *told))
    due = [order for order in _due(state) if (order.node, order.old, order.new) in told]
    return state, [Stop(node, life.generation), _start(state, node), *due]


def _told(state: Supervision, node: str) -> Supervision:
    """Forget the open changes of a node: it is being started with what holds now."""
    return replace(state, changes=tuple(one for one in state.changes if one[0] != node))


def _start(state: Supervision, node: str) -> Start:
    return Start(node, state.address(node), state.lives[node].generation, state.outs(node))


def _with(state: Supervision, node: str, life: Life) -> Supervision:
    return replace(state, lives=MappingProxyType({**state.lives, node: life}))
