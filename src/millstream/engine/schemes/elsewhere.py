"""Runtimes on the hosts of other engines, as a supervisor orders them.

    supervisor ──start, kill, drain──▶ a thread for each engine ──HTTP──▶ engine ──▶ runtime
               ──ask────────────────────────────────────────────HTTP──▶

An engine that is away is not waited for: a start is tried once, and the supervisor notices that
there is no response. An order to end a runtime is tried until the engine is back, so that one that
was only cut off does not stay.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from millstream.actions.peers import split
from millstream.actions.scheme import Scheme
from millstream.actions.supervision import Start
from millstream.engine.access.trust import trusted
from millstream.engine.jobs.status import Peer
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.engine.schemes.runtimes import Exited, RuntimeHost, Runtimes
from millstream.errors import InvalidScheme, TokenRefused

_ASK_S: Final = 4.5
_ORDER_S: Final = 20.0
_AGAIN_S: Final = 2.0
_KILLED: Final = -9


class Elsewhere:
    """The runtimes of a job on another engine."""

    def __init__(
        self, url: str, token: Callable[[], str], job: str, secret: bytes, on_exit: Exited
    ) -> None:
        """Order the engine at `url`; `secret` is what the job's runtimes prove to each other."""
        self._token, self._job, self._on_exit = token, job, on_exit
        self._secret = secret.decode()
        self._http = httpx.Client(base_url=url, timeout=_ORDER_S, verify=trusted())
        self._wanted: dict[str, int] = {}
        self._started: dict[str, int] = {}
        self._pids: dict[str, int | None] = {}
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"orders to {url}", daemon=True)
        self._thread.start()

    def start(self, order: Start, *, drain: bool = False) -> None:
        """Have a node started there; once."""
        self._wanted[order.node] = order.generation
        self._started.pop(order.node, None)
        self._orders.put(partial(self._start, order, drain=drain))

    def _start(self, order: Start, *, drain: bool) -> None:
        if self._wanted.get(order.node) != order.generation:
            return
        asked = GuestOrder(
            "start", order.address, order.generation, list(order.outs), drain, self._secret
        )
        if self._post(order.node, asked, _ORDER_S) is not None:
            self._started[order.node] = order.generation

    def kill(self, node: str) -> None:
        """Have a node ended there, as soon as the engine answers."""
        if self._wanted.pop(node, None) is not None:
            self._started.pop(node, None)
            self._pids.pop(node, None)
            self._orders.put(partial(self._kill, node))

    def _kill(self, node: str) -> None:
        while self._post(node, GuestOrder("kill"), _ORDER_S) is None:
            if self._closing.wait(_AGAIN_S):
                return

    def drain(self, node: str) -> None:
        self._orders.put(partial(self._post, node, GuestOrder("drain"), _ORDER_S))

    def ask(self, node: str, command: bytes) -> bytes | None:
        """Give a runtime a command and return its answer; one that is not there has ended."""
        generation = self._started.get(node)
        if generation is None:
            return None
        found = self._post(node, GuestOrder("ask", command=command), _ASK_S)
        if found is None:
            return None
        self._pids[node] = found.pid
        if found.pid is None and self._started.get(node) == generation:
            del self._started[node]
            code = found.code if found.generation == generation else None
            self._on_exit(node, generation, _KILLED if code is None else code)
        return found.answer

    def pid(self, node: str) -> int | None:
        return self._pids.get(node)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            order()

    def _post(self, node: str, order: GuestOrder, timeout: float) -> GuestStatus | None:
        """Return the engine's answer; None if it does not answer, or refuses."""
        path = f"/jobs/{quote(self._job, safe='')}/runtimes/{quote(node, safe='')}"
        try:
            answer = self._http.post(
                path,
                content=msgspec.json.encode(order),
                # Read each time: it may have been rotated.
                headers={
                    "Content-Type": "application/json",
                    "Authorization": f"Bearer {self._token()}",
                },
                timeout=httpx.Timeout(timeout, connect=min(2.0, timeout)),
            )
            if answer.is_success:
                return msgspec.json.decode(answer.content, type=GuestStatus)
        except (httpx.HTTPError, msgspec.MsgspecError, TokenRefused):
            return None
        return None

    def close(self) -> None:
        """End all runtimes there, if the engine answers."""
        self._closing.set()
        for node in list(self._wanted):
            self._orders.put(partial(self._post, node, GuestOrder("kill"), _ORDER_S))
        self._orders.put(None)
        self._thread.join(_ORDER_S)
        with contextlib.suppress(RuntimeError):
            self._http.close()


class Places:
    """Runtimes on this host and on those of other engines, by their address."""

    def __init__(
        self, here: Runtimes, others: Mapping[int, Elsewhere], owners: Mapping[str, int]
    ) -> None:
        """Start runtimes on the engines in `owners`, by their address; 0 is here."""
        self._hosts: dict[int, RuntimeHost] = {**others, 0: here}
        self._owners = owners
        self._at: dict[str, RuntimeHost] = {}

    def start(self, order: Start, *, drain: bool = False) -> None:
        host = self._at[order.node] = self._hosts[self._owners[order.address]]
        host.start(order, drain=drain)

    def kill(self, node: str) -> None:
        if node in self._at:
            self._at[node].kill(node)

    def drain(self, node: str) -> None:
        if node in self._at:
            self._at[node].drain(node)

    def ask(self, node: str, command: bytes) -> bytes | None:
        return self._at[node].ask(node, command) if node in self._at else None

    def pid(self, node: str) -> int | None:
        return self._at[node].pid(node) if node in self._at else None

    def close(self) -> None:
        with ThreadPoolExecutor(len(self._hosts)) as closing:
            for host in self._hosts.values():
                closing.submit(host.close)


def owners_of(scheme: Scheme, engines: Sequence[Peer]) -> dict[str, int]:
    """Return the node of the engine that each address of a scheme belongs to.

    Raises:
        InvalidScheme: One belongs to none of them.
    """
    addresses = [address for one in scheme.nodes for address in one.addresses]
    if len(engines) < 2:
        return dict.fromkeys(addresses, 0)
    hosts = [frozenset({_ip(urlsplit(one.url).hostname or ""), one.ip}) for one in engines]
    found = {address: _owner(address, hosts) for address in addresses}
    for address, owner in found.items():
        if owner is None:
            there = ", ".join(sorted({ip for ips in hosts for ip in ips}))
            hint = f"the engines of the cluster are at {there}"
            raise InvalidScheme(f'no engine is at "{address}"', hint=hint)
    return {address: owner for address, owner in found.items() if owner is not None}


def _owner(address: str, hosts: Sequence[frozenset[str]]) -> int | None:
    ip = _ip(split(address)[0])
    return next((number for number, ips in enumerate(hosts) if ip in ips), None)


def _ip(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return host
