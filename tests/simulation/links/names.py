"""Clients that send under one name at once, in one process, without threads, sockets, disks or time.

    client 0 ──┬── claim, then rows ══ network ══▶ turn, admission ── journal (synced | not synced)
    client 1 ──┘    (0 ... rows)    ◀═ answers ═══ when durable                       i0 ... iM

The rules are the real ones (`millstream.links`: claims, admission). Each client takes the name over
where it is answered, as `Directory.claim` does, and numbers its rows from 0. The network delays and
loses; an inbox dies with what was not synced, and keeps the claims, which are synced at once.

Checked at every step:

    own       who hears that a row is stored has stored it, or took the name over from whom has
    order     the numbers of the name rise in every journal

and at the end, a bounded time after the last fault:

    jam       the newest client has heard of all its rows, and all others know that they are replaced
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random

from millstream.links import claims
from millstream.links.admission import NOTHING, Admission, admit
from millstream.links.claims import Turn

_CALM, _END, _TRAVEL, _PATIENCE, _PIECE = 60.0, 400.0, 1.5, 4.0, 3


class Violation(Exception):
    """A promise is broken: which one, and how."""

    def __init__(self, promise: str, fact: str) -> None:
        super().__init__(f"{promise}: {fact}")
        self.promise = promise


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides; a test replaces one of them."""

    turn: Callable[[int, int], Turn] = claims.turn
    again: Callable[[int, list[int], int], int | None] = claims.again
    #: Whether a name is taken over with the first new rows, where the claim was lost.
    with_rows: bool = True
    durable: bool = True


@dataclass(slots=True)
class Inbox:
    """Takes rows of whose turn it is; `journal` has the numbers, each with its client."""

    number: int
    current: int = 0
    journal: list[tuple[int, int]] = field(default_factory=list)
    synced: int = 0
    waiting: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    @property
    def highest(self) -> int:
        return self.journal[-1][0] if self.journal else NOTHING


@dataclass(slots=True)
class Client:
    """Sends its rows to all inboxes in turn by number, a request at a time to each."""

    number: int
    mine: int = 0
    claimed: bool = False
    replaced: bool = False
    heard: dict[int, int] = field(default_factory=dict)


class World:
    """One seed: what happens when, and whether a promise is broken."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now = Random(seed), rules, 0.0
        self.rows = self.chance.randint(4, 30)
        self.inboxes = [Inbox(n) for n in range(self.chance.randint(1, 3))]
        self.clients = [Client(n) for n in range(self.chance.randint(2, 4))]
        self.loss = self.chance.choice([0.0, 0.1, 0.4])
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0
        for client in self.clients:
            begun = claims.above(0, self.luck())
            self.after(self.chance.random() * 20, partial(self.claim, client, begun))
        for _ in range(self.chance.randint(0, 4)):
            inbox = self.chance.choice(self.inboxes)
            self.after(self.chance.random() * _CALM, partial(self.die, inbox))

    def after(self, delay: float, what: Callable[[], None]) -> None:
        self._turn += 1
        heappush(self._queue, (self.now + delay, self._turn, what))

    def carry(self, what: Callable[[], None]) -> None:
        """Bring a message, late or never."""
        if self.now > _CALM or self.chance.random() >= self.loss:
            self.after(self.chance.random() * _TRAVEL, what)

    def run(self) -> None:
        while self._queue and self.now < _END:
            self.now, _, what = heappop(self._queue)
            what()
        newest = max(self.clients, key=lambda one: one.mine)
        for client in self.clients:
            done = all(self.numbers(client, n, True) == [] for n in range(len(self.inboxes)))
            if client is newest and not (client.claimed and done):
                raise Violation("jam", f"c{client.number} has not heard of all its rows")
            if client is not newest and not client.replaced and not done:
                raise Violation("jam", f"c{client.number} does not know that it is replaced")

    # clients

    def luck(self) -> int:
        return self.chance.randrange(1, 1 << 24)

    def claim(self, client: Client, mine: int) -> None:
        client.mine = mine
        found: list[int] = []
        for inbox in self.inboxes:
            self.carry(partial(self.asked, inbox, client.mine, found))
        self.after(_PATIENCE, partial(self.answered, client, found))

    def asked(self, inbox: Inbox, mine: int, found: list[int]) -> None:
        if self.rules.turn(inbox.current, mine) is Turn.TAKES_OVER:
            inbox.current = mine
        self.carry(partial(found.append, inbox.current))

    def answered(self, client: Client, found: list[int]) -> None:
        higher = self.rules.again(client.mine, found, self.luck())
        if higher is not None:
            self.claim(client, higher)
            return
        client.claimed = True
        for inbox in self.inboxes:
            self.send(client, inbox)

    def numbers(self, client: Client, inbox: int, left: bool = False) -> list[int]:
        """Return the numbers of the rows for an inbox, or those that are `left`."""
        heard = client.heard.get(inbox, NOTHING) if left else NOTHING
        return [n for n in range(self.rows) if n % len(self.inboxes) == inbox and n > heard]

    def send(self, client: Client, inbox: Inbox) -> None:
        left = self.numbers(client, inbox.number, True)[: self.chance.randint(1, _PIECE)]
        if left and not client.replaced:
            self.carry(partial(self.receive, inbox, client, client.mine, left))
            self.after(_PATIENCE, partial(self.send, client, inbox))

    def hear(self, client: Client, inbox: Inbox, last: int) -> None:
        """Take an acknowledgement: all of its rows up to `last` are stored there."""
        stored = dict(inbox.journal[: inbox.synced])
        for n in self.numbers(client, inbox.number):
            if n > last:
                break
            owner = stored.get(n)
            if owner is None:
                raise Violation("own", f"c{client.number} hears of {n}, which is not on disk")
            if owner != client.number and self.clients[owner].mine >= client.mine:
                raise Violation("own", f"c{client.number} hears of {n}, which c{owner} has stored")
        client.heard[inbox.number] = max(last, client.heard.get(inbox.number, NOTHING))

    def refuse(self, client: Client) -> None:
        client.replaced = True

    # inboxes

    def receive(self, inbox: Inbox, client: Client, mine: int, numbers: list[int]) -> None:
        turn = self.rules.turn(inbox.current, mine)
        if turn is Turn.REPLACED:
            self.carry(partial(self.refuse, client))
            return
        # One request at a time: all before it are acknowledged.
        found: Admission = admit(inbox.highest, NOTHING, numbers, self.chance.randint(0, _PIECE))
        if turn is Turn.TAKES_OVER and found.fresh and self.rules.with_rows:
            inbox.current = mine
        for n in numbers[found.repeated : found.taken]:
            if n <= inbox.highest:
                raise Violation("order", f"{n} comes to i{inbox.number} after {inbox.highest}")
            inbox.journal.append((n, client.number))
        if found.taken:
            last = numbers[found.taken - 1]
            inbox.waiting.append((last, partial(self.acknowledge, client, inbox, last)))
            self.after(self.chance.random() * 2, partial(self.sync, inbox, len(inbox.journal)))

    def acknowledge(self, client: Client, inbox: Inbox, last: int) -> None:
        self.carry(partial(self.hear, client, inbox, last))

    def sync(self, inbox: Inbox, upto: int) -> None:
        inbox.synced = max(inbox.synced, min(upto, len(inbox.journal)))
        durable = inbox.journal[inbox.synced - 1][0] if inbox.synced else NOTHING
        due = [tell for last, tell in inbox.waiting if last <= durable]
        inbox.waiting = [one for one in inbox.waiting if one[0] > durable]
        for tell in due:
            tell()

    def die(self, inbox: Inbox) -> None:
        del inbox.journal[inbox.synced :]
        inbox.waiting.clear()
        if not self.rules.durable:
            inbox.current = 0


def violation(seed: int, rules: Rules | None = None) -> Violation | None:
    """Return the promise that a seed breaks, if it does."""
    try:
        World(seed, rules or Rules()).run()
    except Violation as found:
        return found
    return None
