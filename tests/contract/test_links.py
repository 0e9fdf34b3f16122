"""Rows get to an inbox by plain call, IPC and TCP, the last with keys or without: with the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.check_links import Bench, InstructionChecks, LinkChecks, all_of
from millstream.links.client import Client, connect
from millstream.links.keys import new_keys
from support.links import TARGET, declare, rows
from support.links_service import Other, Service


class LinksBench:
    transport = "local"
    keys = False

    def __init__(self, data: Path, service: Service | Other) -> None:
        self.data = data
        self._service = service
        self._address = ""

    def open(self, **named: Any) -> None:
        self._address = self._service.open(str(self.data), **named)

    def close(self) -> None:
        self._service.close()

    def statistics(self) -> list[dict[str, Any]]:
        return self._service.statistics()

    def connect(self, **named: Any) -> Client:
        return connect(self._address, **{"timeout": 20.0, **named})


class IpcBench(LinksBench):
    transport = "ipc"

    def connect(self, **named: Any) -> Client:
        return connect(self.data, **{"timeout": 20.0, **named})


class TcpBench(LinksBench):
    transport = "tcp"

    def open(self, **named: Any) -> None:
        super().open(without_ipc=True, **named)


class CurveBench(TcpBench):
    keys = True

    def __init__(self, data: Path, service: Other) -> None:
        super().__init__(data, service)
        self._engine = new_keys(data / "keys", "engine")
        self._till = new_keys(data / "keys" / "producers", "till")
        with self._till.public.open("a") as file:
            file.write('may = "rows, end, watermark"\nsenders = "file:*"\n')

    def open(self, **named: Any) -> None:
        super().open(
            keys=str(self._engine.secret), producers=str(self._till.public.parent), **named
        )

    def connect(self, **named: Any) -> Client:
        return super().connect(key=self._till.secret, server=self._engine.public, **named)


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.end()


def closing(bench: LinksBench) -> Iterator[Bench]:
    yield bench
    bench.close()


class TestLocal(LinkChecks, InstructionChecks):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        yield from closing(LinksBench(tmp_path, Service()))


class TestIpc(LinkChecks, InstructionChecks):
    @pytest.fixture
    def bench(self, tmp_path: Path, other: Other) -> Iterator[Bench]:
        yield from closing(IpcBench(tmp_path, other))

    def test_a_host_that_comes_back_is_found(self, bench: Bench) -> None:
        """Or one need not come back: a client that knows the data folder opens the inboxes itself."""
        declare(bench.data, partitions=2)
        bench.open()
        with bench.connect() as client:
            client.send(TARGET, rows(0, 10))
            bench.close()
            assert client.send(TARGET, rows(10, 20)) == 10
        bench.open()
        with bench.connect() as client:
            assert client.send(TARGET, rows(20, 30)) == 10
        assert all_of(bench.data) == list(range(30))


class TestTcp(LinkChecks):
    @pytest.fixture
    def bench(self, tmp_path: Path, other: Other) -> Iterator[Bench]:
        yield from closing(TcpBench(tmp_path, other))


class TestCurve(LinkChecks, InstructionChecks):
    @pytest.fixture
    def bench(self, tmp_path: Path, other: Other) -> Iterator[Bench]:
        yield from closing(CurveBench(tmp_path, other))
