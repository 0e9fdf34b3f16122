"""Real programs, good and bad, behind real pipes."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from millstream.actions import child, launch, sandbox
from millstream.actions.child import Child, check_sandbox
from millstream.actions.program import Limits, Program
from millstream.actions.worker import Patience, Worker
from millstream.errors import ActionFailed, ActionMissing, NetworkOpen
from support.actions import c_program, marked, python, running, sdk_program
from support.namespaces import second_host

USUAL = Patience()
QUICK = Patience(time_limit_s=60.0, attempts=2)


@pytest.fixture
def run(tmp_path):
    """Answer payloads with a program, and see to it that it is gone in the end."""
    workers: list[Worker] = []

    def run(program: Program, values, patience: Patience = USUAL):
        worker = Worker(program, tmp_path, run.log.append, patience)
        workers.append(worker)
        run.worker = worker
        return worker.answer(pa.array(values, pa.binary()))

    run.log = []
    yield run
    for worker in workers:
        worker.close()


def pairs(answered):
    return list(zip(answered.inputs.tolist(), answered.outputs.to_pylist(), strict=True))


def numbers(count: int) -> list[bytes]:
    return [i.to_bytes(4, "big") for i in range(count)]


def wait_until(true, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_echo_filter_and_split(run, tmp_path):
    assert pairs(run(sdk_program("echo"), [b"a", b"", b"c"])) == [(0, b"a"), (2, b"c")]
    assert pairs(run(sdk_program("filter", "3"), numbers(7))) == [
        (i, i.to_bytes(4, "big")) for i in (0, 3, 6)
    ]
    split = sdk_program("split", contract="stream")
    assert pairs(run(split, [b"a,b", b"", b",c"])) == [(0, b"a"), (0, b"b"), (2, b"c")]


def test_a_program_is_kept_between_batches(run):
    program = sdk_program("echo")
    run(program, [b"a"])
    for _ in range(20):
        run.worker.answer(pa.array([b"b"] * 100))
    assert run.worker.starts == 1
    assert run.worker.finish() == 0


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_both_sides_may_buffer_as_much_as_they_like(run, tmp_path, size):
    # It writes everything only when it has read everything, or reads in tiny pieces while it
    # writes.
    hoard = python(
        tmp_path,
        """
        held = []
        for _ in range(int(sys.argv[1])):
            held.append(action.read_message())
        for one in held:
            action.write_message(one)
        action.flush()
        action.read_message()
        """,
        "20",
    )
    values = [bytes([i + 1]) * size for i in range(20)]
    assert run(hoard, values).outputs.to_pylist() == values


def test_a_bulk_of_messages_through_c(run, tmp_path):
    values = [os.urandom(i % 300) + b"x" for i in range(50_000)]
    answered = run(Program((str(c_program(tmp_path)), "echo")), values)
    assert answered.outputs.to_pylist() == values
    assert answered.inputs.tolist() == list(range(len(values)))


def test_a_message_that_kills_the_program_fails_alone(run, tmp_path):
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            if m == b"13":
                sys.stderr.write("unlucky\\n")
                os._exit(3)
            action.write_message(m)
        """,
    )
    values = [str(i).encode() for i in range(200)]
    answered = run(program, values, QUICK)
    assert answered.outputs.to_pylist() == [v for v in values if v != b"13"]
    assert [f.index for f in answered.failed] == [13]
    assert "ended with code 3" in answered.failed[0].reason
    assert "unlucky" in answered.failed[0].reason


def test_a_program_that_dies_once_loses_nothing(run, tmp_path):
    program = python(
        tmp_path,
        """
        once = not os.path.exists("died")
        open("died", "w").close()
        count = 0
        while (m := action.read_message()) is not None:
            count += 1
            if once and count == 50:
                os.kill(os.getpid(), signal.SIGKILL)
            action.write_message(m)
        """,
    )
    values = [str(i).encode() for i in range(200)]
    answered = run(program, values)
    assert answered.outputs.to_pylist() == values
    assert answered.failed == ()
    assert run.worker.starts == 2


def test_a_message_that_hangs_fails_alone_though_sigterm_is_ignored(run, tmp_path):
    program = python(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while (m := action.read_message()) is not None:
            if m == b"hang":
                time.sleep(600)
            action.write_message(m)
        """,
    )
    answered = run(program, [b"a", b"hang", b"b"], Patience(time_limit_s=3.0, attempts=2))
    assert answered.outputs.to_pylist() == [b"a", b"b"]
    assert [(f.index, "did not answer in time" in f.reason) for f in answered.failed] == [(1, True)]


def test_a_flood_of_output_without_reading_fails(run, tmp_path):
    program = python(
        tmp_path,
        """
        while True:
            os.write(1, b"\\0\\0\\0\\1x" * 10000)
        """,
    )
    with pytest.raises(ActionFailed, match="more often than it was asked"):
        run(program, [b"a"] * 10, QUICK)


def test_answering_too_often_is_found_out_message_by_message(run, tmp_path):
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            action.write_message(m)
            if m == b"twice":
                action.write_message(m)
        """,
    )
    answered = run(program, [b"a", b"twice", b"b", b"c"], QUICK)
    assert answered.outputs.to_pylist() == [b"a", b"b", b"c"]
    assert [f.index for f in answered.failed] == [1]
    assert "more often than it was asked" in answered.failed[0].reason


def test_answering_too_little_fails(run, tmp_path):
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            if m != b"mute":
                action.write_message(m)
            else:
                action.flush(); sys.exit(0)
        """,
    )
    answered = run(program, [b"a", b"mute", b"b"], QUICK)
    assert answered.outputs.to_pylist() == [b"a", b"b"]
    assert "ended with code 0" in answered.failed[0].reason


def test_half_a_frame_fails(run, tmp_path):
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            if m == b"half":
                action.flush(); os.write(1, b"\\0\\0\\0\\7abc"); sys.exit(0)
            action.write_message(m)
        """,
    )
    answered = run(program, [b"a", b"half", b"b"], QUICK)
    assert answered.outputs.to_pylist() == [b"a", b"b"]
    assert len(answered.failed) == 1


def test_text_instead_of_frames_is_said(run, tmp_path):
    with pytest.raises(ActionFailed, match=r"a frame of .* bytes, more than the limit"):
        run(python(tmp_path, "print('hello, world', flush=True); time.sleep(9)"), [b"a"] * 3, QUICK)


def test_a_program_that_never_works_fails_the_batch(run, tmp_path):
    with pytest.raises(ActionFailed, match="no such module"):
        run(python(tmp_path, "sys.exit('no such module')"), [b"a"] * 1000, QUICK)
    assert run.worker.starts < 10


def test_a_program_that_is_not_there(run, tmp_path):
    with pytest.raises(ActionMissing, match="is not there"):
        run(Program(("./nothing",)), [b"a"])
    (tmp_path / "plain").write_text("x")
    with pytest.raises(ActionMissing, match="may not be run"):
        run(Program(("./plain",)), [b"a"])


def test_a_hundred_megabytes_of_log_cost_neither_memory_nor_progress(run, tmp_path):
    program = python(
        tmp_path,
        """
        line = b"x" * 99 + b"\\n"
        while (m := action.read_message()) is not None:
            for _ in range(100):
                os.write(2, line * 10000)
            action.write_message(m)
        """,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answered = run(program, [b"a"])
    assert answered.outputs.to_pylist() == [b"a"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    assert len(run.log) < 3000


def test_only_the_declared_environment_and_its_own_folder_and_group(run, tmp_path):
    program = python(
        tmp_path,
        """
        action.read_message()
        env = {k: v for k, v in os.environ.items() if k != "LC_CTYPE"}
        action.write_message(repr((sorted(env.items()), os.getcwd(), os.getpgid(0) == os.getpid())).encode())
        action.read_message()
        """,
        MODEL="m; rm -rf $HOME",
    )
    (said,) = run(program, [b"?"]).outputs.to_pylist()
    assert said.decode() == repr(([("MODEL", "m; rm -rf $HOME")], str(tmp_path), True))


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(memory_bytes=400 << 20), "x = bytearray(600 << 20)"),
        (Limits(cpu_seconds=1), "while True: pass"),
        (Limits(open_files=20), "kept = [open('/dev/null') for _ in range(30)]"),
    ],
    ids=["memory", "cpu", "files"],
)
def test_limits_hold(run, tmp_path, limits, code):
    program = python(
        tmp_path, f"action.read_message()\n{code}\naction.write_message(b'went on')", limits=limits
    )
    with pytest.raises(ActionFailed, match=r"MemoryError|SIGXCPU|Too many open files"):
        run(program, [b"a", b"b", b"c"], Patience(time_limit_s=120, attempts=1))


@pytest.mark.skipif(os.getuid() != 0, reason="cannot here: only root may run programs as others")
def test_it_runs_as_another_user(run, tmp_path):
    tmp_path.chmod(0o755)
    program = Program(
        ("/bin/sh", "-c", 'head -c 5 >/dev/null; printf "\\000\\000\\000\\005%5s" "$(id -u)"; cat'),
        user="nobody",
    )
    (said,) = run(program, [b"a"]).outputs.to_pylist()
    assert int(said) == pwd.getpwnam("nobody").pw_uid
    assert tmp_path.stat().st_uid == pwd.getpwnam("nobody").pw_uid  # it may write where it works


CONNECTS = """
    import socket
    while (m := action.read_message()) is not None:
        host, port = m.decode().split()
        try:
            with socket.create_connection((host, int(port)), 20) as there:
                there.sendall(b"ping")
                there.shutdown(socket.SHUT_WR)
                action.write_message(b"".join(iter(lambda: there.recv(100), b"")))
        except OSError as error:
            action.write_message(type(error).__name__.encode() + str(error.errno).encode())
"""


@pytest.fixture
def closing():
    """Skip where no network can be closed."""
    try:
        check_sandbox(Program(("true",), whitelist=()))
    except NetworkOpen as error:
        pytest.skip(f"cannot here: {error}")


@pytest.fixture
def server():
    """Listen at a port of this host's, answer whoever connects with what it said, doubled, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    there, _ = listener.accept()
                    with there:
                        said = b"".join(iter(lambda: there.recv(100), b""))  # noqa: B023 (called at once)
                        there.sendall(2 * said)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()


@pytest.mark.usefixtures("closing")
def test_a_closed_network_has_nobody_in_it(run, tmp_path, server):
    program = python(tmp_path, CONNECTS)
    asked = [f"127.0.0.1 {server[1]}".encode()]
    assert run(program, asked).outputs.to_pylist() == [b"pingping"]
    closed = replace(program, whitelist=())
    assert run(closed, asked).outputs.to_pylist() == [b"OSError101"]  # unreachable


@pytest.mark.usefixtures("closing")
def test_a_program_reaches_those_on_its_whitelist_and_nobody_else(run, tmp_path, server):
    port = server[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        listed = replace(
            python(tmp_path, CONNECTS), whitelist=(f"127.0.0.1:{port}", f"10.1.2.3:{port}")
        )
        asked = [
            f"127.0.0.1 {port}",
            f"127.0.0.1 {other.getsockname()[1]}",
            f"10.1.2.4 {port}",
            f"127.0.0.1 {port}",
        ]
        answers = run(listed, [one.encode() for one in asked]).outputs.to_pylist()
    assert answers == [b"pingping", b"ConnectionRefusedError111", b"OSError101", b"pingping"]
    # Who lets it through ends with it.
    group = os.getpgid(run.worker._child.pid)
    run.worker.close()
    wait_until(lambda: not [one for one in psutil.process_iter() if group_of(one) == group])


@pytest.mark.usefixtures("closing")
@pytest.mark.skipif(os.getuid() != 0, reason="cannot here: only root may run programs as others")
def test_who_lets_a_program_through_is_its_user(run, tmp_path, server):
    address = f"127.0.0.1:{server[1]}"
    program = Program(("/bin/cat",), user="nobody", whitelist=(address,))
    run(program, [b"x"])
    group = run.worker._child.pid
    (doors,) = [
        one
        for one in psutil.process_iter()
        if group_of(one) == group and "doors.py" in " ".join(one.cmdline())
    ]
    wait_until(lambda: doors.uids().real == pwd.getpwnam("nobody").pw_uid)


@pytest.mark.usefixtures("closing")
def test_an_address_elsewhere_is_let_through(run, tmp_path):
    with second_host() as host:
        echo = "import socket; s = socket.create_server(('%s', 5432)); print(flush=True); c, _ = s.accept(); c.sendall(c.recv(9))"
        command = [*host.prefix, sys.executable, "-c", echo % host.far_ip]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as there:
            there.stdout.readline()
            listed = replace(python(tmp_path, CONNECTS), whitelist=(f"{host.far_ip}:5432",))
            assert run(listed, [f"{host.far_ip} 5432".encode()]).outputs.to_pylist() == [b"ping"]
            there.kill()


def test_where_no_network_can_be_closed_a_program_is_not_started(run, tmp_path, monkeypatch):
    broken = tmp_path / "launch.py"
    shutil.copy(sandbox.__file__, tmp_path)
    never = "raise OSError(1, 'this system does not let us close the network')"
    broken.write_text(
        Path(launch.__file__)
        .read_text()
        .replace("def _unshare() -> None:", f"def _unshare() -> None:\n    {never}")
    )
    monkeypatch.setattr(launch, "__file__", str(broken))
    for whitelist in ((), ("10.0.0.5:5432",)):
        with pytest.raises(NetworkOpen, match="does not let us close the network"):
            run(replace(python(tmp_path, CONNECTS), whitelist=whitelist), [b"?"])
    assert run.worker.starts == 0


@pytest.mark.usefixtures("closing")
def test_nobody_stays_behind_who_has_only_looked(monkeypatch):
    groups = []

    class Seen(Child):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            groups.append(self.pid)

    monkeypatch.setattr(child, "Child", Seen)
    check_sandbox(Program(("true",), whitelist=("10.0.0.5:5432",)))
    wait_until(lambda: groups[0] not in [group_of(one) for one in psutil.process_iter()])


def group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def test_what_a_program_started_ends_with_it(tmp_path):
    program = python(
        tmp_path,
        """
        import subprocess
        subprocess.Popen(["/bin/sleep", sys.argv[1]])
        os.write(2, b"started\\n")
        action.read_message()
        """,
        marker := marked(),
    )
    log: list[str] = []
    child = Child(program, tmp_path, log.append)
    wait_until(lambda: child.pass_on_log() and log)
    assert running(marker)
    assert child.finish(5.0) == 0
    wait_until(lambda: not running(marker))


def test_a_child_never_outlives_its_parent(tmp_path):
    stubborn = python(
        tmp_path,
        """
        import subprocess
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        subprocess.Popen(["/bin/sleep", sys.argv[1]])
        open("started", "w").close()
        time.sleep(600)
        """,
        marker := marked(),
    )
    code = (
        "import sys, time; from pathlib import Path; from millstream.actions.child import Child;"
        "from millstream.actions.program import Program;"
        f"Child(Program({stubborn.argv!r}), Path({str(tmp_path)!r}), print); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until((tmp_path / "started").exists)
    assert len(running(marker)) >= 2
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(marker))


def test_a_child_that_writes_between_batches_is_started_again(run, tmp_path):
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            action.write_message(m); action.flush()
            if m == b"late":
                time.sleep(0.2); os.write(1, b"\\0\\0\\0\\1x")
        """,
    )
    run(program, [b"late"])
    time.sleep(0.6)
    assert run.worker.answer(pa.array([b"b"])).outputs.to_pylist() == [b"b"]
    assert run.worker.starts == 2
    assert any("between two batches" in line for line in run.log)


def test_signals_that_python_ignores_work_in_the_program(run, tmp_path):
    script = tmp_path / "yes.sh"
    script.write_text("#!/bin/sh\ntrap - PIPE\nyes | head -1 >/dev/null\nexit 7\n")
    script.chmod(0o755)
    with pytest.raises(ActionFailed, match="ended with code 7"):
        run(Program(("./yes.sh",)), [b"a"] * 3, QUICK)
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN


def test_programs_that_are_started_at_once_have_one_guard(tmp_path):
    code = """
import threading
from millstream.actions.child import _Guard
found = []
start = threading.Barrier(8)
def look():
    start.wait()
    found.append(_Guard.of_this_process())
threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(set(map(id, found))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
