"""The supervisor of a scheme: the rules of `actions.supervision` with processes, pings and a clock.

    exits, answers ─▶ queue ─▶ rules ─▶ orders: start, stop, ping, change_out
    moments         ─┘            └──▶ memory: which life each node lives, on disk before it begins

It belongs to one thread, which calls `step` whenever it was woken or its time has come. Commands
are given to runtimes by others, so that one that is silent holds up nobody.

Sources end first: when nothing of what they made is left in their queues, all that was made of it
has arrived, because a runtime acknowledges an input only when all downstreams have what came of it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from millstream.actions import supervision as rules
from millstream.actions import wire
from millstream.actions.hosted import CUT_SHORT, DAMAGED
from millstream.actions.scheme import Scheme
from millstream.actions.supervision import AskPing, Start, Stop, TellChange
from millstream.engine.jobs.status import RuntimeStatus
from millstream.engine.schemes.runtimes import RuntimeHost
from millstream.errors import DriverFailed
from millstream.storage import Folder

_HURRY_S: Final = 0.25
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_CALM_S: Final = 60.0
_ASKING: Final = 8


class Memory(msgspec.Struct, frozen=True):
    """What a supervisor remembers: the address (its index) and generation of nodes; ended sources.

    `places` are the addresses of nodes that have none of their own.
    """

    lives: dict[str, tuple[int, int]] = {}
    ended: list[str] = []
    places: dict[str, str] = {}


def remembered(file: Path) -> Memory:
    """Return what was kept in a file, nothing if there is none."""
    found = Folder(file.parent).read(file.name)
    return Memory() if found is None else msgspec.json.decode(found, type=Memory)


def keep(file: Path, memory: Memory) -> None:
    """Write down a memory; it is on disk when this returns."""
    Folder(file.parent).put(file.name, msgspec.json.encode(memory))


@dataclass(slots=True)
class _Health:
    """What is known of a node beside the rules."""

    restarts: int = 0
    pause_s: float = 0.0
    started_at: float = 0.0
    asking: bool = False
    asked_at: float = 0.0
    oldest: int = 0
    running: bool = False
    set_aside: int = 0


class SchemeSupervisor:
    """Keeps the runtimes of a scheme running."""

    def __init__(
        self, scheme: Scheme, memory: Path, wake: Callable[[], None], fixed: Mapping[str, str]
    ) -> None:
        """Look after the nodes of `scheme` that have addresses; `begin` starts them.

        Args:
            scheme: The scheme.
            memory: The file of what must not be forgotten.
            wake: Called from other threads when there is something to do.
            fixed: Where messages for nodes go that are not runtimes.
        """
        self._scheme, self._file, self._wake, self._fixed = scheme, memory, wake, dict(fixed)
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._memory = remembered(memory)
        self._ended = set(self._memory.ended)
        self._health = {node.name: _Health() for node in scheme.nodes if node.addresses}
        self._waiting: dict[str, tuple[float, Start]] = {}
        self._changing: set[TellChange] = set()
        self._draining = False
        self._pool = ThreadPoolExecutor(_ASKING, thread_name_prefix="asking")
        self._host: RuntimeHost | None = None
        self._state = rules.Supervision(scheme, {}, fixed=self._fixed)

    def begin(self, host: RuntimeHost) -> None:
        """Start all nodes on `host` that have not ended."""
        self._host = host
        now, known = time.monotonic(), self._memory.lives
        self._state, orders = rules.begin(
            self._scheme, now, known=known, ended=self._ended, fixed=self._fixed
        )
        self._obey(orders)

    # events

    def exited(self, node: str, generation: int, code: int) -> None:
        """Note, from any thread, that a runtime is gone."""
        self._soon(partial(self._gone, node, generation, code))

    def _soon(self, event: Callable[[], None]) -> None:
        self._events.put(event)
        self._wake()

    # state

    @property
    def ready(self) -> bool:
        """Whether all runtimes have answered."""
        return all(life.answered for life in self._state.lives.values())

    @property
    def done(self) -> bool:
        """Whether no source is left: all that was made has arrived."""
        return not any(self._scheme.role(name) == "source" for name in self._state.lives)

    @property
    def ended(self) -> bool:
        """Whether all sources have ended by themselves."""
        sources = [name for name in self._health if self._scheme.role(name) == "source"]
        return all(name in self._ended for name in sources)

    def has_ended(self, node: str) -> bool:
        """Tell whether a source has ended by itself, and all of it was taken."""
        return node in self._ended

    def gone(self, node: str) -> bool:
        """Tell whether a source is not there any more: all that it had made by then was taken."""
        return node not in self._state.lives

    def outs(self, node: str) -> tuple[str, ...]:
        """Return where the runtimes are now that a node sends to."""
        there = [one for one in self._scheme.downstreams(node) if one in self._state.lives]
        return tuple(self._state.address(one) for one in there)

    def status(self) -> tuple[RuntimeStatus, ...]:
        """Return how each runtime is doing."""
        return tuple(self._status(name) for name in self._health)

    def _status(self, name: str) -> RuntimeStatus:
        life, health = self._state.lives.get(name), self._health[name]
        role = self._scheme.role(name)
        if life is None or self._host is None:
            return RuntimeStatus(node=name, role=role, state="ended", restarts=health.restarts)
        if not life.answered:
            state = "starting"
        elif life.unanswered > 1:
            state = "silent"
        else:
            state = "running" if health.running else "waiting"
        return RuntimeStatus(
            node=name,
            role=role,
            state=state,
            address=self._state.address(name),
            generation=life.generation,
            restarts=health.restarts,
            oldest=health.oldest,
            pid=self._host.pid(name),
            set_aside=health.set_aside,
        )

    # the thread

    def step(self) -> float:
        """Do what is due; return how many seconds there is nothing to do.

        Raises:
            DriverFailed: A node ends time and again, and has no other address.
        """
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                break
            event()
        now = time.monotonic()
        for node, (at, order) in list(self._waiting.items()):
            if now >= at:
                del self._waiting[node]
                self._start(order)
        self._state, orders = rules.ticked(self._state, now)
        self._obey(orders)
        self._hurry(now)
        return self._pause(time.monotonic())

    def _pause(self, now: float) -> float:
        moments = [life.asked_at + rules.PING_EVERY_S for life in self._state.lives.values()]
        moments += [at for at, _ in self._waiting.values()]
        if not self.ready:
            moments.append(now + _HURRY_S)
        return max(0.0, min(moments, default=now + 1.0) - now)

    def _hurry(self, now: float) -> None:
        """Ask those that have just been started more often, to know when they are there."""
        for name, life in self._state.lives.items():
            due = now >= self._health[name].asked_at + _HURRY_S
            if due and not life.answered and name not in self._waiting:
                self._ask(name)

    def _changed(self, order: TellChange) -> None:
        self._changing.discard(order)
        self._state = rules.changed(self._state, order.node, order.old, order.new)

    def _answered(self, node: str, generation: int, answer: bytes | None) -> None:
        health = self._health[node]
        health.asking = False
        if answer is None:
            return
        health.running = answer[:1] == wire.DONE
        health.oldest = int.from_bytes(answer[1:5], "big")
        self._state = rules.answered(self._state, node, generation)
        if self._draining:
            self._drain(node)

    def _gone(self, node: str, generation: int, code: int) -> None:
        life = self._state.lives.get(node)
        if life is None or life.generation != generation:
            return
        if self._scheme.role(node) == "source" and code in (0, CUT_SHORT):
            if code == 0:
                self._ended.add(node)
                self._remember()
            self._state = rules.gone(self._state, node)
            return
        if code == DAMAGED:
            self._damaged(node, generation)
            return
        alone = len(self._scheme.node(node).addresses) == 1
        if alone and life.exits + 1 >= rules.EXITS:
            ended = f'the runtime of "{node}" has ended {rules.EXITS} times in a row'
            hint = "its last output is in the job's log"
            raise DriverFailed(f"{ended}, the last time with {code}", hint=hint)
        self._health[node].restarts += 1
        self._state, orders = rules.exited(self._state, node, generation, time.monotonic())
        self._obey(orders)

    def _damaged(self, node: str, generation: int) -> None:
        """Replace a runtime whose queue is damaged: its upstreams send again."""
        health = self._health[node]
        health.set_aside += 1
        if self._scheme.role(node) == "source":
            hint = "the job's log has the place; move the file away to continue without them"
            fact = f'the queue of "{node}" is damaged, and nobody else has its messages'
            raise DriverFailed(fact, hint=hint)
        health.restarts += 1
        self._state, orders = rules.replaced(self._state, node, generation, time.monotonic())
        self._obey(orders)

    # draining

    def drain(self) -> None:
        """Let the sources end: `done` is true when all that they have made has arrived."""
        self._draining = True
        for name, life in list(self._state.lives.items()):
            if life.answered:
                self._drain(name)

    def _drain(self, name: str) -> None:
        if self._scheme.role(name) == "source" and self._host is not None:
            self._host.drain(name)

    # orders

    def _obey(self, orders: list[rules.Order]) -> None:
        self._remember()
        for order in orders:
            match order:
                case Start():
                    self._start_soon(order)
                case Stop(node, _):
                    self._waiting.pop(node, None)
                    self._hosting.kill(node)
                case AskPing(node):
                    self._ask(node)
                case TellChange():
                    self._send_change(order)

    @property
    def _hosting(self) -> RuntimeHost:
        assert self._host is not None
        return self._host

    def _start_soon(self, order: Start) -> None:
        """Start a node, after a pause that grows if it ends again and again."""
        health, now = self._health[order.node], time.monotonic()
        if now - health.started_at > _CALM_S or health.started_at == 0.0:
            health.pause_s = 0.0
        if health.pause_s:
            self._waiting[order.node] = (now + health.pause_s, order)
        else:
            self._start(order)
        health.pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * health.pause_s))

    def _start(self, order: Start) -> None:
        health = self._health[order.node]
        health.started_at, health.running, health.asked_at = time.monotonic(), False, 0.0
        life = self._state.lives.get(order.node)
        if life is None or life.generation != order.generation:
            return
        # Others may have moved since the order was given.
        self._hosting.start(replace(order, outs=self._state.outs(order.node)), drain=self._draining)

    def _ask(self, node: str) -> None:
        health, generation = self._health[node], self._state.lives[node].generation
        if health.asking or node in self._waiting:
            return
        health.asking, health.asked_at = True, time.monotonic()
        self._pool.submit(self._asked, node, generation)

    def _asked(self, node: str, generation: int) -> None:
        answer = self._hosting.ask(node, wire.ping())
        self._soon(partial(self._answered, node, generation, answer))

    def _send_change(self, order: TellChange) -> None:
        if order not in self._changing:
            self._changing.add(order)
            self._pool.submit(self._sent, order)

    def _sent(self, order: TellChange) -> None:
        if self._hosting.ask(order.node, wire.change_out(order.old, order.new)) is not None:
            self._soon(partial(self._changed, order))
        else:
            self._changing.discard(order)

    def _remember(self) -> None:
        lives = {name: (life.address, life.generation) for name, life in self._state.lives.items()}
        memory = Memory({**self._memory.lives, **lives}, sorted(self._ended), self._memory.places)
        if memory != self._memory:
            keep(self._file, memory)
            self._memory = memory

    def close(self) -> None:
        """End all runtimes."""
        if self._host is not None:
            self._host.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
