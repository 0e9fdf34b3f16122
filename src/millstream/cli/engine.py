"""`millstream engine`: an engine, alone or as a node of a cluster."""

from __future__ import annotations

import json as jsonlib
import logging
import os
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli.environment import secrets_beside
from millstream.cli.options import (
    Coordination,
    ExecutorPython,
    InboxPort,
    Key,
    LeaseSeconds,
    Master,
    Network,
    OpenWithoutKeys,
    Producers,
    Serve,
    ServePort,
    Warm,
    Watchers,
)
from millstream.cli.output import interrupted
from millstream.cli.run import listening_at
from millstream.errors import WrongNodes
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.http.server import Server

DATA: Final = Path(".millstream-engine")
#: How long drivers may process what was taken before they stop.
_DRAIN_S: Final = 10.0


def engine(
    node: Annotated[
        int, typer.Option(min=0, help="The number of this engine in the cluster, from 0.")
    ] = 0,
    of: Annotated[int, typer.Option(min=1, help="The number of engines in the cluster.")] = 1,
    data: Annotated[
        Path, typer.Option(help="The folder of jobs, journals, checkpoints and the token.")
    ] = DATA,
    host: Annotated[str, typer.Option(help="The IP address of the HTTP interface.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The port of the HTTP interface; 0 is any free port."),
    ] = 8340,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate for HTTPS.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The private key of the certificate.")
    ] = None,
    open_without_tls: Annotated[
        bool,
        typer.Option("--open-without-tls", help="Allow tokens to be sent to --host unencrypted."),
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(help="The certificates to verify other engines with; default MILLSTREAM_CA."),
    ] = None,
    inbox_port: InboxPort = 0,
    network: Network = None,
    key: Key = None,
    producers: Producers = Path("keys"),
    open_without_keys: OpenWithoutKeys = False,
    master: Master = None,
    executor_python: ExecutorPython = None,
    serve: Serve = "auto",
    serve_port: ServePort = 0,
    warm: Warm = 0,
    coordination: Coordination = None,
    lease: LeaseSeconds = None,
    watcher: Watchers = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print its addresses as a line of JSON.")
    ] = False,
) -> None:
    """Run an engine; its jobs continue at the next start.

    It hosts the inboxes of its jobs, keeps their list, and runs a driver for each, which it starts
    again after a crash.
    """
    _check_node(node, of)
    listening = listening_at(
        inbox_port, network, key, producers, open_without_keys=open_without_keys
    )
    _for_drivers(serve, serve_port, executor_python)
    from millstream.engine.access.trust import trust
    from millstream.engine.engine import Engine
    from millstream.engine.http.server import Server, Serving, guard
    from millstream.patterns.kernel_cache import begin

    given = (host, port, tls_cert, tls_key, open_without_tls)
    serving = Serving(*given, watchers=tuple(watcher or ()))
    guard(serving)
    trust(ca)
    _log_to_stderr()
    begin()  # so that the first job with a pattern need not wait for its kernel
    secrets_beside(data)
    made = partial(Engine, data, node=node, of=of, listening=listening, master=master, warm=warm)
    running = made(coordination=coordination, lease_s=lease)
    with interrupted(twice=True) as seen:
        running.start()
        try:
            keys = None if listening.security is None else listening.security.keys
            with closing(Server(running, data, serving, keys=keys)) as server:
                server.start()
                _say(running, server, data, json=json)
                _until_stopped(server, seen)
        finally:
            with Console(stderr=True).status("stopping"):
                running.close(drain_s=_DRAIN_S)
    if not json:
        print("stopped; jobs that ran continue when the engine is started again")


def _check_node(node: int, of: int) -> None:
    if node >= of:
        hint = f"nodes are numbered from 0 to {of - 1}"
        raise WrongNodes(f"there is no node {node} of {of}", hint=hint)


def _until_stopped(server: Server, seen: threading.Event) -> None:
    """Wait for a signal, or a request to stop."""
    while not seen.wait(0.2) and not server.stopped.is_set():
        pass


def _for_drivers(serve: str, port: int, packages: Path | None) -> None:
    """Let the drivers of this engine have what concerns their executors: it is in their environment."""
    from millstream.spark.served import serving
    from millstream.spark.session.packing import PACKAGES

    if serve not in serving.MODES:
        modes = ", ".join(serving.MODES)
        raise typer.BadParameter(f"expected one of {modes}", param_hint="--serve")
    os.environ |= {serving.SERVE: serve, serving.PORT: str(port)}
    if packages is not None:
        if not packages.is_file():
            raise typer.BadParameter(f"there is no file {packages}", param_hint="--executor-python")
        os.environ[PACKAGES] = str(packages.resolve())


def _say(engine: Engine, server: Server, data: Path, *, json: bool) -> None:
    engine.announce(server.url, server.api.live.measured)
    if json:
        place: dict[str, object] = {"url": server.url, "inbox": str(engine.address)}
        place |= {"node": engine.node, "of": engine.of, "data": str(data.resolve())}
        print(jsonlib.dumps(place), flush=True)
        return
    nodes = "" if engine.of == 1 else f"node {engine.node} of {engine.of}   "
    print(f"engine  {nodes}{server.url}   inboxes {engine.address}   data {data}", flush=True)


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
