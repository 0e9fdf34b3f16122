"""An engine's HTTP API on a port of its own, and a client that has its token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from millstream.engine.http.limits import RequestLimits
from millstream.engine.http.server import Server, Serving
from support.engine import PeerEngine

PACKAGE = base64.b64encode(b"good").decode()
EVENTS = "/jobs/f/sources/s/events"


@dataclass
class Served:
    engine: PeerEngine
    server: Server
    http: httpx.Client

    @property
    def data(self) -> Path:
        return self.engine.data

    def deploy(self, **more: Any) -> httpx.Response:
        return self.http.post("/jobs", json={"package": PACKAGE, **more})


@contextmanager
def serving(
    data: Path, *, node: int = 0, of: int = 1, limits: RequestLimits | None = None
) -> Iterator[Served]:
    engine = PeerEngine(data, node=node, of=of)
    server = Server(engine, data, Serving(port=0, limits=limits or RequestLimits()))
    server.start()
    try:
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(
            base_url=server.url, headers=headers, timeout=120, trust_env=False
        ) as http:
            yield Served(engine, server, http)
    finally:
        server.close()
        engine.close()
