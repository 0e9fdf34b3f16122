"""The runtimes of a job on this host, as processes that never outlive the one that starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Final, Protocol

from millstream.actions import hosted, wire
from millstream.actions.hosted import settings_of
from millstream.actions.scheme import Scheme
from millstream.actions.supervision import Start

#: How long a runtime may take to end: its program may finish what it was given.
STOP_S: Final = 15.0
_ANSWER_S: Final = 4.0
#: What the path of a socket may be long, in bytes.
_PATH_BYTES: Final = 100

Exited = Callable[[str, int, int], None]
"""Called with a node, its generation and its exit code when a runtime is gone."""


class RuntimeHost(Protocol):
    """Where runtimes can be started; what takes long, `ask`, may be called from any thread."""

    def start(self, order: Start, *, drain: bool = False) -> None: ...
    def kill(self, node: str) -> None: ...
    def drain(self, node: str) -> None: ...
    def ask(self, node: str, command: bytes) -> bytes | None: ...
    def pid(self, node: str) -> int | None: ...
    def close(self) -> None: ...


class Runtimes:
    """Runtimes on this host. Call from one thread that never ends: the kernel ends them with it."""

    def __init__(
        self,
        scheme: Scheme,
        *,
        folder: Path,
        root: Path,
        on_exit: Exited,
        programs: Mapping[str, Path] | None = None,
        log: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        secret: Path | None = None,
    ) -> None:
        """Host the nodes of a scheme.

        Args:
            scheme: The scheme.
            folder: Where their queues are kept.
            root: What the paths of programs count from.
            on_exit: Called, from another thread, when a runtime is gone that nobody has ended here.
            programs: The files of programs that an engine keeps, by the name that the scheme has
                for them.
            log: Where they and their programs say what they have to; None: where this process does.
            env: Their environment; None: that of this process. Programs have their own.
            secret: The file of the secret that they prove to each other.
        """
        self._scheme, self._folder, self._root = scheme, folder.resolve(), root.resolve()
        self._on_exit, self._programs = on_exit, dict(programs or {})
        self._log, self._env, self._secret = log, env, secret
        self._processes: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}
        self._folder.mkdir(parents=True, exist_ok=True)
        self._place = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)

    def start(self, order: Start, *, drain: bool = False) -> None:
        """Start a node; with `drain`, a source only to empty its queue."""
        self.kill(order.node)
        settings = settings_of(
            self._scheme,
            order,
            folder=self._folder,
            root=self._root,
            service=self._service(order.node),
            program=self._programs.get(self._scheme.node(order.node).action),
            secret=self._secret,
        )
        source = self._scheme.role(order.node) == "source"
        command = hosted.command(replace(settings, once=source, drain=source and drain))
        process = subprocess.Popen(
            command, cwd=self._root, stdin=subprocess.DEVNULL, stderr=self._log, env=self._env
        )
        self._processes[order.node] = (order.generation, process)
        threading.Thread(
            target=self._await,
            args=(order.node, order.generation, process),
            name=f"runtime {order.node}",
            daemon=True,
        ).start()

    def _service(self, node: str) -> Path:
        path = self._folder / f"{self._scheme.name}_{node}.sock"
        if len(os.fsencode(path)) <= _PATH_BYTES:
            return path
        # A socket's path is short; that of an open folder always is.
        return Path(f"/proc/{os.getpid()}/fd/{self._place}") / path.name

    def _await(self, node: str, generation: int, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if self._processes.get(node) == (generation, process):
            self._on_exit(node, generation, code)

    def pid(self, node: str) -> int | None:
        """Return the process of a node, if it has one."""
        found = self._processes.get(node)
        return None if found is None or found[1].poll() is not None else found[1].pid

    def ask(self, node: str, command: bytes) -> bytes | None:
        """Give a runtime a command; return its answer, None after a while. From any thread."""
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.settimeout(_ANSWER_S)
            sock.connect(str(self._service(node)))
            sock.sendall(command)
            answer = sock.recv(16)
            # The id of a ping's answer may come apart from the word before it.
            while answer == wire.DONE and command == wire.ping() and (more := sock.recv(16)):
                answer += more
            return answer or None
        return None

    def drain(self, node: str) -> None:
        """Let a source end, once all that it has made was taken."""
        self._signal(node, signal.SIGUSR1)

    def kill(self, node: str) -> None:
        """End a runtime at once; its queue stays."""
        found = self._processes.pop(node, None)
        if found is not None:
            found[1].kill()
            found[1].wait()

    def _signal(self, node: str, number: int) -> None:
        found = self._processes.get(node)
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                found[1].send_signal(number)

    def close(self, grace_s: float = STOP_S) -> None:
        """End all of them: for a moment, programs may finish what they were given."""
        processes, self._processes = dict(self._processes), {}
        for _, process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        until = time.monotonic() + grace_s
        for _, process in processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            process.kill()
            process.wait()
        for file in self._folder.glob("*.sock"):
            file.unlink(missing_ok=True)
        os.close(self._place)
