"""The client: how a program sends events.

    with ms.connect("tcp://host:port") as c:
        c.send("flights.departures", rows)

`send` returns when the rows are in the journal. `send_nowait` gathers what it is given, for a few
milliseconds, into batches, and returns a future. Rows are numbered in the order in which they are
handed over; whatever is lost, late or repeated on the way, each is in the journal once, and rows
with the same key are in order.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import is_dataclass
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any, Final

import pyarrow as pa

from millstream.clock import micros
from millstream.errors import (
    AlreadyWriting,
    InvalidKey,
    LinkBroken,
    LinkClosed,
    LinkError,
    NoAnswer,
    WriterBroken,
    WriterClosed,
)
from millstream.ingest import Refused
from millstream.journal import Kind
from millstream.journal.base import PASSING
from millstream.links import envelope, window
from millstream.links.admission import Numbers
from millstream.links.directory import ASK_S, Directory, result
from millstream.links.earlier import timeout_by_its_earlier_name
from millstream.links.keys import KeyPair, read_key, read_public
from millstream.links.link import Instruction, Route
from millstream.links.network import Address
from millstream.links.outbox import Outbox, OutboxStatistics, Ticket
from millstream.links.router import Event, Router
from millstream.links.routing import Policy
from millstream.links.target import Room, Target, fitting
from millstream.links.transport import Loop

_LONGEST_S: Final = 60.0
_BUSY_S: Final = 0.1
#: Errors that say nothing about the next try.
_PASSING: Final = (NoAnswer, LinkBroken, WriterBroken, WriterClosed, AlreadyWriting)


class Client:
    """A connection to a flow's inboxes. Any thread may send."""

    def __init__(
        self,
        where: str | PathLike[str] | Address,
        *,
        sender: str | None = None,
        key: KeyPair | None = None,
        server: bytes | None = None,
        linger_s: float = 0.005,
        timeout: float = 60.0,
        policy: Policy | None = None,
        limits: window.Limits | None = None,
        alone: bool = False,
        reads: bool = False,
    ) -> None:
        """Connect; `alone` it replaces a client of its name; one that `reads` is an engine's own."""
        self.sender = sender or f"{PASSING}{uuid.uuid4().hex}"
        self._named = sender is not None
        self._alone = alone
        self._linger_s, self.timeout = linger_s, timeout
        self._policy = policy
        self._limits = limits or window.Limits()
        self._room = Room()
        self._loop = Loop("client")
        self._loop.turn = self._turn
        self._directory = Directory(self._loop, where, key, server, timeout, reads=reads)
        self._targets: dict[str, Target] = {}
        self._guard = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._loop.start()

    # sending

    @timeout_by_its_earlier_name
    def send(
        self,
        target: str,
        rows: Any,
        *,
        numbers: Numbers | None = None,
        timeout: float | None = None,
    ) -> int:
        """Send rows, and return how many once they are in the journal.

        Args:
            target: "flow.source".
            rows: A dict or a dataclass instance, any number of them, a DataFrame, or Arrow data.
            numbers: Their places where they come from, rising from call to call. A client with a
                name needs them: what it sends again under the same numbers is not stored twice,
                wherever it begins.
            timeout: How long to wait.

        Raises:
            RowsRefused: They do not fit the source's columns; none was sent.
            SenderReplaced: Another client has connected under this sender's name since.
            NoAnswer: It took too long; the rows may still arrive, once, while this client is open.
        """
        found = self._target(target)
        deadline = self._deadline(timeout)
        batches = _batches(fitting(rows, found.schema, target))
        ticket = Ticket(sum(batch.num_rows for batch in batches), waiting=True)
        _check_numbered(numbers, self._named, self.sender)
        found.put(batches, ticket, deadline, numbers)
        result(ticket.future, deadline, target, found.no_room)
        return ticket.rows

    def send_nowait(self, target: str, rows: Any, *, numbers: Numbers | None = None) -> Future[int]:
        """Hand rows over, and return a future that resolves when they are in the journal.

        It waits only while there is no room. Single rows are gathered into batches; if one of them
        does not fit, its future says so, and the others are sent. `numbers` are those of `send`.
        """
        found = self._target(target)
        _check_numbered(numbers, self._named, self.sender)
        if numbers is None and (isinstance(rows, dict) or _instance(rows)):
            return found.gather(rows, self._deadline(None))
        batches = _batches(fitting(rows, found.schema, target))
        ticket = Ticket(sum(batch.num_rows for batch in batches))
        found.put(batches, ticket, self._deadline(None), numbers)
        return ticket.future

    @timeout_by_its_earlier_name
    def end(self, target: str, *, timeout: float | None = None) -> None:
        """End the source: nothing more comes to any of its inboxes after what was sent."""
        self._instruct(target, Instruction(Kind.END_OF_STREAM), timeout)

    @timeout_by_its_earlier_name
    def watermark(
        self, target: str, moment: datetime | str, *, timeout: float | None = None
    ) -> None:
        """Say that nothing before `moment` will come: what does is late."""
        self._instruct(target, Instruction(Kind.WATERMARK, micros(moment)), timeout)

    def _instruct(self, target: str, instruction: Instruction, timeout: float | None) -> None:
        found, ticket, deadline = (
            self._target(target),
            Ticket(1, waiting=True),
            self._deadline(timeout),
        )
        found.put([instruction], ticket, deadline)
        result(ticket.future, deadline, target, found.no_room)

    def refuse(self, target: str, refused: Iterable[Refused]) -> int:
        """Keep records that are no rows as dead letters, each once; return how many were new."""
        letters = [(one.number, one.reason, one.record) for one in refused]
        mine = self._target(target).incarnation
        answer = self.ask(
            target, 0, lambda n: envelope.PutDeadLetter(n, target, 0, self.sender, letters, mine)
        )
        return answer.rows if isinstance(answer, envelope.Done) else 0

    def ask(
        self,
        target: str,
        partition: int,
        make: Callable[[int], envelope.Request],
        *bodies: Any,
        timeout: float | None = None,
    ) -> envelope.Answer:
        """Ask an inbox for something that may be done twice; it is asked again until it answers.

        Raises:
            NoAnswer: It took too long; what was asked for may have been done.
        """
        deadline, patience = self._deadline(timeout), ASK_S
        place = self.info(target).inboxes[partition]
        while True:
            link = self._directory.link(place, target)
            try:
                until = min(deadline, time.monotonic() + patience)
                answer: envelope.Answer = result(link.call(make, *bodies), until, target)
                return answer
            except _PASSING as error:
                if time.monotonic() + _BUSY_S >= deadline:
                    raise self._directory.no_answer() from error
            self._loop.soon(link.renew)
            time.sleep(_BUSY_S)
            # A large batch on a slow line, or a busy disk, may need longer than a peer that is gone
            # is worth.
            patience = min(2 * patience, _LONGEST_S)

    @timeout_by_its_earlier_name
    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until all that was handed over is in the journal.

        Raises:
            NoAnswer: It took too long.
            MillstreamError: An inbox has refused rows since the last flush, permanently, as their
                futures say.
        """
        deadline = self._deadline(timeout)
        for target in list(self._targets.values()):
            target.flush(deadline)
            with self._room:
                while not all(outbox.empty for outbox in target.router.outboxes):
                    if not self._room.wait(max(0.0, deadline - time.monotonic())):
                        raise target.no_room()
        failures = [
            outbox.failure()
            for target in self._targets.values()
            for outbox in target.router.outboxes
        ]
        for failure in failures:
            if failure is not None:
                raise failure

    def ended(self, target: str) -> bool:
        """Tell whether a source had ended when this client first asked for it."""
        return self.info(target).ended

    def info(self, target: str) -> envelope.SourceInfo:
        """Return what a source holds, and where its inboxes are."""
        return self._target(target).info

    @property
    def hosting(self) -> bool:
        """Whether nobody else had the inboxes, and this client has opened them."""
        return self._directory.hosting

    def schema(self, target: str) -> pa.Schema:
        """Return the columns of a source."""
        return self._target(target).schema

    def no_room(self, target: str) -> NoAnswer:
        """Return what to say of inboxes that take nothing, with the reason if they gave one."""
        return self._target(target).no_room()

    @property
    def waiting(self) -> int:
        """How many rows are on their way, not acknowledged."""
        return sum(one.waiting for one in self.statistics())

    def statistics(self) -> tuple[OutboxStatistics, ...]:
        """Return what each outbox is doing, and over which transport."""
        targets = list(self._targets.values())  # another thread may open one meanwhile
        return tuple(outbox.statistics() for target in targets for outbox in target.router.outboxes)

    # targets

    def _target(self, name: str) -> Target:
        if self._closed:
            raise LinkClosed("the client is closed")
        if self._process != os.getpid():  # its thread has stayed behind: rows would wait for nobody
            hint = "connect in each process"
            raise LinkError("this client belongs to the process that has forked", hint=hint)
        found = self._targets.get(name)
        if found is not None:
            return found
        with self._guard:
            if self._closed:
                raise LinkClosed("the client is closed")
            if name not in self._targets:
                self._targets[name] = self._open(name)
            return self._targets[name]

    def _open(self, name: str) -> Target:
        info = self._directory.find(name)
        incarnation = self._directory.claim(info, self.sender) if self._alone else 0
        outboxes = []
        for partition, place in enumerate([*info.inboxes, *info.later]):
            link = self._directory.link(place, info.source)
            route = Route(name, partition, self.sender, info.version, incarnation)
            outboxes.append(Outbox(link, route, self._limits, self._room))
        policy = self._policy or (Policy.KEY if info.key is not None else Policy.IN_TURN)
        if self._named and len(info.inboxes) > 1 and policy in (Policy.LEAST_LOADED, Policy.LOCAL):
            msg = (
                f'a named sender cannot send to "{name}" with policy "{policy}": '
                "repeated rows may go elsewhere"
            )
            raise LinkError(msg, hint='leave out the name, or the policy (by key, or "in turn")')
        spread = len(info.inboxes) if self._named else len(outboxes)
        return Target(
            info,
            Router(outboxes, policy, info.key, spread=spread),
            self._linger_s,
            self._room,
            self._ring,
            incarnation,
        )

    # waiting

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    def _ring(self) -> None:
        """Wake the loop: there is something to send."""
        self._loop.soon(_nothing)

    def _turn(self, now: float) -> float | None:
        moments = []
        for target in list(self._targets.values()):
            moments.append(target.flush_if_due(now))
            moments += [outbox.step(now) for outbox in target.router.outboxes]
        return min((moment for moment in moments if moment is not None), default=None)

    # closing

    def close(self) -> None:
        """Wait until all that was handed over is in the journal, then close, also if this raises.

        Raises:
            NoAnswer: It took too long; what is not acknowledged may or may not be there.
            MillstreamError: An inbox has refused rows, see `flush`.
        """
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self.abort()

    def abort(self) -> None:
        """Close at once; what is not acknowledged may or may not be there."""
        self._closed = True
        closed = LinkClosed("the client was closed before this was acknowledged")
        with self._guard:
            targets = list(self._targets.values())
            links, hosts = self._directory.links, self._directory.hosts
        for outbox in [outbox for target in targets for outbox in target.router.outboxes]:
            self._loop.soon(partial(outbox.close, closed))
        for link in links:
            self._loop.soon(link.close)
        self._loop.stop()
        for target in targets:
            target.abandon(closed)
        for host in hosts:
            host.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


@timeout_by_its_earlier_name
def connect(
    where: str | PathLike[str] = ".millstream",
    *,
    sender: str | None = None,
    key: str | PathLike[str] | None = None,
    server: str | PathLike[str] | None = None,
    linger_s: float = 0.005,
    timeout: float = 60.0,
    policy: Policy | str | None = None,
) -> Client:
    """Connect to where events are taken: a running flow or an engine.

    Args:
        where: "tcp://host:port", an engine's "http://host:port", or the data folder of a flow on
            this host; if nobody runs it, its inboxes are opened for as long as the client is.
        sender: The name under which rows are numbered. A program that sends rows again under the
            same name and numbers adds nothing, and replaces a program that still sends under that
            name; without a name every connection is a sender of its own, and numbers its rows
            itself.
        key: The file of our own key, if the other side wants keys.
        server: The file of the other side's public key.
        linger_s: How long single rows wait for others, in seconds: the batching delay.
        timeout: How long to wait for room or for an answer before giving up.
        policy: How rows find their inbox if not by the source's key: "in turn", "least loaded" or
            "local".

    Raises:
        InvalidKey: A key cannot be read, or only one of the two is given: rows would travel for all
            to read.
    """
    if (key is None) != (server is None):
        given, other = ("server", "key") if key is None else ("key", "server")
        hint = "our own key and the other side's go together"
        raise InvalidKey(f"{given} is given, and {other} is not", hint=hint)
    return Client(
        where,
        sender=sender,
        key=None if key is None else read_key(str(key)),
        server=None if server is None else read_public(str(server)).public,
        linger_s=linger_s,
        timeout=timeout,
        policy=None if policy is None else Policy(policy),
        alone=sender is not None,
    )


def _check_numbered(numbers: Numbers | None, named: bool, sender: str) -> None:
    """Refuse a named sender without numbers: counted from 0 again, new rows would look old."""
    if numbers is None and named:
        fact = f'sender "{sender}" has a name, and its rows have no numbers'
        places = "give numbers=, the rows' places where they come from"
        raise LinkError(fact, hint=f"{places}, or connect without sender=")


def _batches(batch: pa.RecordBatch) -> list[Event]:
    return [batch] if batch.num_rows else []


def _instance(rows: Any) -> bool:
    return is_dataclass(rows) and not isinstance(rows, type)


def _nothing() -> None:
    """Wakes a loop."""
