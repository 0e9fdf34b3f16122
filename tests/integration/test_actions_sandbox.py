"""Programs that try to reach beyond themselves, and what they leave behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from millstream.actions import launch, sandbox
from millstream.actions.child import Child, check_sandbox
from millstream.actions.program import Limits, Program
from millstream.actions.worker import Patience, Worker
from millstream.errors import NetworkOpen, SandboxOpen
from support.actions import ROOT, SDK, marked, python, running
from support.runtimes import wait_until

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="cannot here: needs root")


@pytest.fixture(autouse=True)
def permitted(tmp_path: Path) -> None:
    """Skip where the system has not all parts of a sandbox."""
    try:
        check_sandbox(Program(("true",), sandbox="strict", limits=Limits(processes=None)))
    except SandboxOpen as error:
        pytest.skip(f"cannot here: {error}")


Ask = Callable[..., list[str]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Give messages to a program, and return its answers as text."""
    workers: list[Worker] = []

    def ask(program: Program, *messages: str) -> list[str]:
        worker = Worker(program, tmp_path, lambda _: None, Patience(120.0, attempts=1))
        workers.append(worker)
        payloads = pa.array([one.encode() for one in messages], pa.binary())
        return [one.decode() for one in worker.answer(payloads).outputs.to_pylist()]

    yield ask
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def escape(tmp_path_factory: pytest.TempPathFactory) -> Program:
    if shutil.which("gcc") is None:
        pytest.skip("cannot here: no C compiler")
    target = tmp_path_factory.mktemp("escape") / "escape"
    target.parent.chmod(0o755)
    source = str(ROOT / "tests" / "support" / "escape.c")
    subprocess.run(["gcc", "-I", str(SDK / "c"), "-o", str(target), source], check=True)
    return Program((str(target),))


WAYS = ("ptrace", "unshare", "clone", "mount", "chroot", "bpf")


def test_system_calls_that_reach_beyond_a_program_are_refused(ask: Ask, escape: Program) -> None:
    assert set(ask(escape, *WAYS)) == {"Operation not permitted"}
    assert ask(escape, "clone3") == ["Function not implemented"]
    if os.getuid() == 0:  # so that this test can fail
        assert ask(replace(escape, sandbox="none"), *WAYS[:2]) == ["done"] * 2


def test_a_closed_network_cannot_be_left(ask: Ask, escape: Program, tmp_path: Path) -> None:
    closed = replace(escape, whitelist=())
    try:
        check_sandbox(closed)
    except NetworkOpen as error:
        pytest.skip(f"cannot here: {error}")
    ours = str(os.getpid())
    assert ask(closed, "setns self") == ["Operation not permitted"]
    assert ask(closed, f"setns {ours}") != ["done"]
    if os.getuid() == 0:
        assert ask(replace(closed, sandbox="none"), f"setns {ours}") == ["done"]


def test_a_program_sees_no_other_processes(ask: Ask, escape: Program, tmp_path: Path) -> None:
    assert ask(escape, f"kill {os.getpid()}") == ["No such process"]
    lists = python(
        tmp_path,
        """
        action.read_message()
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
        action.write_message(" ".join(pids).encode())
        action.read_message()
        """,
    )
    assert ask(lists, "?") == ["1 2"]


def test_a_program_has_no_capabilities_and_cannot_get_any(ask: Ask, tmp_path: Path) -> None:
    status = python(
        tmp_path,
        """
        action.read_message()
        action.write_message(open("/proc/self/status").read().encode())
        action.read_message()
        """,
    )
    (text,) = ask(status, "?")
    found = {line.split(":")[0]: line.split(":")[1].strip() for line in text.splitlines()}
    assert {int(found[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert os.getuid() != 0 or int(found["CapBnd"], 16) == 0


def test_a_fork_bomb_is_bounded_and_gone_with_its_program(ask: Ask, escape: Program) -> None:
    bounded = replace(escape, limits=Limits(processes=350), sandbox="strict")
    try:
        check_sandbox(bounded)
    except SandboxOpen as error:
        pytest.skip(f"cannot here: {error}")
    (made,) = ask(bounded, "fork 2000")
    assert 200 < int(made) < 350


def test_a_file_has_a_longest_length(ask: Ask, tmp_path: Path) -> None:
    writes = python(
        tmp_path,
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        action.read_message()
        with open("large", "wb") as out:
            try:
                out.write(bytes(3 << 20)); out.flush()
                action.write_message(b"written")
            except OSError as error:
                action.write_message(error.strerror.encode())
        action.read_message()
        """,
        limits=Limits(file_bytes=1 << 20),
    )
    assert ask(writes, "?") == ["File too large"]
    assert (tmp_path / "large").stat().st_size <= 1 << 20


# what it leaves behind


def daemon(folder: Path, marker: str) -> Program:
    """Return a program whose grandchild leaves its session, group, signals and pipes."""
    script = folder / "daemon.sh"
    script.write_text(
        f"#!/bin/sh\nsetsid sh -c 'trap \"\" TERM HUP INT; sleep {marker}' </dev/null >/dev/null 2>&1 &\n"
        "echo started >&2\ncat >/dev/null\n"
    )
    script.chmod(0o755)
    return Program((str(script), marker))


@pytest.fixture(params=["namespace", "reaper"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """With PID namespaces, and as if the system had none."""
    if request.param == "reaper":
        (tmp_path / "own").mkdir()
        monkeypatch.setattr(launch, "__file__", str(without_namespaces(tmp_path / "own")))
    return str(request.param)


def without_namespaces(folder: Path) -> Path:
    text = Path(sandbox.__file__).read_text()
    changed = text.replace("wanted = _NEW_PID | _NEW_MOUNTS", "wanted = -1")
    assert changed != text
    (folder / "sandbox.py").write_text(changed)
    return Path(shutil.copy(launch.__file__, folder))


@pytest.mark.parametrize("end", ["finish", "stop"])
def test_nothing_that_a_program_started_outlives_it(tmp_path: Path, kind: str, end: str) -> None:
    marker, log = marked(), list[str]()
    child = Child(daemon(tmp_path, marker), tmp_path, log.append)
    wait_until(lambda: child.pass_on_log() and "started" in log)
    wait_until(lambda: len(running(marker)) >= 2)
    if end == "finish":
        assert child.finish(60.0) == 0
    else:
        child.stop()
    wait_until(lambda: not running(marker))
    assert any("its sandbox lacks a PID namespace" in line for line in log) == (kind == "reaper")


def test_nothing_that_a_program_started_outlives_a_runtime_that_is_killed(
    tmp_path: Path, kind: str
) -> None:
    marker = marked()
    program = daemon(tmp_path, marker)
    code = (
        "import time; from pathlib import Path; from millstream.actions import launch;"
        f"launch.__file__ = {launch.__file__!r};"
        "from millstream.actions.child import Child; from millstream.actions.program import Program;"
        f"Child(Program({program.argv!r}), Path({str(tmp_path)!r}), print); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: len(running(marker)) >= 2)
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(marker))


def test_strict_refuses_to_run_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "__file__", str(without_namespaces(tmp_path)))
    strict = Program(("/bin/cat",), sandbox="strict")
    with pytest.raises(SandboxOpen, match="its sandbox lacks a PID namespace"):
        check_sandbox(strict)
    check_sandbox(replace(strict, sandbox="usual"))
    with pytest.raises(SandboxOpen):
        Worker(strict, tmp_path, print).answer(pa.array([b"a"], pa.binary()))


def test_a_program_ends_in_its_own_way(tmp_path: Path, kind: str) -> None:
    for code, ends in (("exit 7", 7), ("kill -USR1 $$", -10), ("kill -KILL $$", -9)):
        child = Child(Program(("/bin/sh", "-c", code)), tmp_path, print, stdin=False)
        assert child.finish(60.0) == ends
    child = Child(Program(("/bin/sleep", "600")), tmp_path, print, stdin=False)
    wait_until(lambda: "/bin/sleep 600" in _commands_below(child))
    began = time.monotonic()
    assert child.stop(grace_s=60.0) == -15
    assert time.monotonic() - began < 60.0


def _commands_below(child: Child) -> list[str]:
    found = []
    for one in psutil.Process(child.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            found.append(" ".join(one.cmdline()))
    return found


@ROOT_ONLY
def test_who_is_not_root_has_the_same_sandbox(tmp_path: Path, escape: Program) -> None:
    """Of root without capabilities: all is done in a user namespace."""
    if shutil.which("setpriv") is None:
        pytest.skip("cannot here: no setpriv")
    code = (
        "import pyarrow as pa; from pathlib import Path; from millstream.actions.worker import Worker;"
        "from millstream.actions.program import Limits, Program;"
        f"one = Worker(Program({escape.argv!r}), Path({str(tmp_path)!r}), print);"
        "asked = pa.array([b'ptrace', b'unshare', b'kill 7', b'mount'], pa.binary());"
        "print([text.decode() for text in one.answer(asked).outputs.to_pylist()]); one.close()"
    )
    command = [
        "setpriv",
        "--bounding-set",
        "-all,+setfcap",
        "--inh-caps",
        "-all",
        sys.executable,
        "-c",
        code,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    refused = "Operation not permitted"
    assert done.stdout.splitlines()[-1] == str([refused, refused, "No such process", refused])
