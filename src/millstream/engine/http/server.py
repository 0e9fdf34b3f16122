"""The HTTP server of an engine: one thread beside it.

By default it listens on this host alone. `guard` refuses an address that others can reach unless
there is TLS or the user trusts the network, since tokens would travel there in the clear.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream import __version__
from millstream.engine import tokens
from millstream.engine.access.audit import AuditLog
from millstream.engine.access.token_book import TokenBook
from millstream.engine.http.api import Api, Served
from millstream.engine.http.limits import RequestLimits
from millstream.engine.http.requests import application
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.status import EngineStatus, Place
from millstream.errors import EngineError, InvalidAddress, OpenNetwork
from millstream.links.keys import KeyPair

PORT: Final = 8340
LOOPBACK: Final = "127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_GRACE_S: Final = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """Where an engine listens, and for whom."""

    host: str = LOOPBACK
    port: int = PORT
    certificate: Path | None = None
    private_key: Path | None = None
    #: Tokens may travel in the clear: the network is trusted, or a proxy on this host does the TLS.
    open_without_tls: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    #: Where watchers serve their status.
    watchers: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        return bool(_ip(self.host).is_loopback)


def guard(serving: Serving) -> None:
    """Let other hosts reach an engine only over TLS, or if the user trusts the network.

    Raises:
        OpenNetwork: The token could be read on its way.
        InvalidAddress: The host is no IP address.
        EngineError: The certificate or its key does not exist.
    """
    for file in (serving.certificate, serving.private_key):
        if file is not None and not file.is_file():
            hint = "--tls-cert and --tls-key name files"
            raise EngineError(f'there is no file "{file}" for TLS', hint=hint)
    if serving.loopback or serving.open_without_tls or serving.certificate is not None:
        return
    msg = f"other hosts can reach {serving.host}, and tokens would travel there in the clear"
    hint = "give --tls-cert and --tls-key, or trust the network: --open-without-tls"
    raise OpenNetwork(msg, hint=hint)


def _ip(host: str) -> Any:
    try:
        return ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError as exc:
        hint = "give one of this host's, or 0.0.0.0 for all of them"
        raise InvalidAddress(f'"{host}" is not an IP address', hint=hint) from exc


class Server:
    """An engine's API, served by a thread of this process."""

    def __init__(
        self,
        engine: Served,
        data: Path,
        serving: Serving | None = None,
        *,
        keys: KeyPair | None = None,
        single: bool = False,
    ) -> None:
        """Bind the port; `start` answers.

        Args:
            engine: What answers.
            data: Its folder, where the token is.
            serving: Where to listen.
            keys: Those of the inboxes, which all engines of a cluster share.
            single: Whether it is no engine, but the run of one flow.

        Raises:
            OpenNetwork: Others could reach it, without TLS.
            EngineError: The port is taken.
        """
        self._serving = serving or Serving()
        guard(self._serving)
        self._engine = engine
        self._data = data
        self._single = single
        self._started_at = datetime.now(UTC)
        self.stopped = threading.Event()
        """Set when the engine was asked to stop."""
        self._socket = _bound(self._serving)
        self._port = int(self._socket.getsockname()[1])
        self._book = TokenBook(data)
        self.audit = AuditLog(Folders(data).audit)
        self.api = Api(
            engine,
            self._about,
            limits=self._serving.limits,
            stop=self._stop_soon,
            audit=self.audit,
            keys=keys,
            watchers=self._serving.watchers,
        )
        self._uvicorn = uvicorn.Server(self._config())
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def _config(self) -> uvicorn.Config:
        how, limits = self._serving, self._serving.limits
        app = application(
            self.api,
            self._book,
            hosts=_LOCAL_NAMES | {how.host} if how.loopback else None,
            reads_open=how.loopback,
        )
        return uvicorn.Config(
            app,
            http=_impatient(limits.header_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_certfile=how.certificate,
            ssl_keyfile=how.private_key,
        )

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # noqa: BLE001 (it is logged in full, and the engine stops)
            _log.exception("the HTTP server has ended")
            self.stopped.set()

    async def _serve(self) -> None:
        live = asyncio.create_task(self.api.live.run())
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            live.cancel()

    @property
    def token(self) -> str:
        """The owner's token."""
        return self._book.owner

    @property
    def url(self) -> str:
        host = f"[{self._serving.host}]" if ":" in self._serving.host else self._serving.host
        scheme = "http" if self._serving.certificate is None else "https"
        return f"{scheme}://{host}:{self._port}"

    def start(self) -> None:
        """Begin to answer; the engine has to be started."""
        self._thread.start()
        while not self._uvicorn.started and self._thread.is_alive():
            time.sleep(0.005)
        if not self._thread.is_alive():
            hint = "details are in the engine's log"
            raise EngineError(f"the HTTP server at {self.url} did not start", hint=hint)
        tokens.note(self._data, self.url)

    def close(self) -> None:
        """Answer what is on its way, and end."""
        tokens.forget(self._data)
        self.api.stopping = True
        self.api.live.end()
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self.audit.close()
        self._socket.close()

    def _stop_soon(self) -> None:
        self.stopped.set()

    def _about(self, jobs: int, rows_in: float) -> EngineStatus:
        at, disk = self._engine.address, shutil.disk_usage(self._data)
        return EngineStatus(
            node=self._engine.node,
            of=self._engine.of,
            version=__version__,
            url=self.url,
            inbox=Place(at.ip, at.port, at.node, at.folder),
            data=str(self._data.resolve()),
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            jobs=jobs,
            warm=self._engine.warm,
            shares=self._engine.shares,
            single=self._single,
            load=round(os.getloadavg()[0], 2),
            cores=os.cpu_count() or 1,
            disk_free=disk.free,
            disk_size=disk.total,
            rows_in=rows_in,
        )


def _bound(serving: Serving) -> socket.socket:
    family = socket.AF_INET6 if _ip(serving.host).version == 6 else socket.AF_INET
    # Named as TCP: only then asyncio sends small answers at once, and not after the 40 ms of a
    # delayed acknowledgement.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((serving.host, serving.port))
    except OSError as exc:
        opened.close()
        msg = f"cannot listen on {serving.host}:{serving.port}: {exc.strerror or exc}"
        hint = "another engine may have the port: choose another with --port (0: any)"
        raise EngineError(msg, hint=hint) from exc
    return opened


def _impatient(seconds: float) -> type[H11Protocol]:
    """Return the protocol for connections that must send their request in time."""

    class Impatient(H11Protocol):
        _giving_up: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:
                self._calm()

        def on_response_complete(self) -> None:
            before = self.cycle
            super().on_response_complete()
            if self.cycle is before:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._calm()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._calm()
            self._giving_up = self.loop.call_later(seconds, self._give_up)

        def _calm(self) -> None:
            if self._giving_up is not None:
                self._giving_up.cancel()
                self._giving_up = None

        def _give_up(self) -> None:
            _log.warning("closed a connection without a request for %g s: %s", seconds, self.client)
            self.transport.abort()

    return Impatient
