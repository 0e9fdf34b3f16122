"""Name the tests that take long while they run, and end those that hang.

A run that is cut off from outside says nothing about the test that it waited for. So the process
that collects results prints a line for each test that has been running for two minutes, and again
every two minutes. A test that exceeds its time fails (`timeout` in pyproject.toml); should it not
even end then, because it waits in compiled code, its process prints all its stacks and exits.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

PATIENCE_S = 120.0
"""How long a test runs before its name is printed."""
GRACE_S = 120.0
"""How long a test may take to end after it has exceeded its time."""


class Overdue:
    """What runs now, in all workers, and for how long: a line each for what takes long."""

    def __init__(self, config: pytest.Config, patience_s: float = PATIENCE_S) -> None:
        self._config = config
        self._patience_s = patience_s
        self._started: dict[str, float] = {}
        self._named: dict[str, int] = {}
        self._over = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._watch, daemon=True, name="overdue tests").start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started[nodeid] = time.monotonic()
        self._named.pop(nodeid, None)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._started.pop(nodeid, None)

    def lines(self, now: float) -> list[str]:
        """What is to be printed at `now` and has not been printed yet."""
        lines = []
        for name, started in list(self._started.items()):
            times = int((now - started) // self._patience_s)
            if times > self._named.get(name, 0):
                self._named[name] = times
                lines.append(f"running for {now - started:.0f} s: {name}")
        return lines

    def _watch(self) -> None:
        while not self._over.wait(self._patience_s / 12):
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            for line in self.lines(time.monotonic()):
                terminal.ensure_newline()
                terminal.write_line(line)


class Backstop:
    """End this process where a test goes on although it has exceeded its time."""

    def __init__(self, config: pytest.Config) -> None:
        self._timeout_s = float(config.getoption("timeout") or config.getini("timeout"))
        self._config = config

    def _guarded(self, item: pytest.Item) -> Generator[None]:
        marker = item.get_closest_marker("timeout")
        timeout_s = float(marker.args[0]) if marker else self._timeout_s
        stderr = self._config.stash[fault_handler_stderr_fd_key]  # the real one, not the captured
        faulthandler.dump_traceback_later(timeout_s + GRACE_S, exit=True, file=stderr)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)
