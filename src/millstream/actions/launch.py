"""Started for each program, as a script: takes on its sandbox, limits and user, then becomes it.

Between a fork and an exec hardly anything may be done in a process with threads, so it is done
here, in a process that has none. It imports nothing of ours.
"""

import ctypes
import json
import os
import pwd
import resource
import runpy
import signal
import socket
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path

_NEW_NET = 0x40000000
_NOT_PERMITTED, _NOT_FOUND = 126, 127
_SANDBOX = str(Path(__file__).with_name("sandbox.py"))
_DOORS = str(Path(__file__).with_name("doors.py"))


def main() -> None:
    """Become the program that the arguments describe."""
    wanted = json.loads(sys.argv[1])
    argv = sys.argv[2:]
    user: str | None = wanted["user"]
    box = None if wanted["sandbox"] == "none" else _sandbox()
    missing: list[str] = []
    try:
        # Doors have no limits of the program's.
        if wanted["whitelist"] is not None:
            _close_network(wanted["whitelist"], user)
        if box is not None:
            uid = os.getuid() if user is None else pwd.getpwnam(user).pw_uid
            box["fork_alone"](wanted["processes"], uid, missing)
        _limit(wanted)
        if user is not None:
            become(user)
        if box is not None:
            box["drop_privileges"](missing)
            box["filter_calls"](missing)
        if missing:
            _confess(missing, strict=wanted["sandbox"] == "strict")
    except (OSError, ValueError, KeyError) as error:
        _give_up(f"cannot be given its limits, network or user: {error}", _NOT_PERMITTED)
    # Python ignores these, and what is ignored stays so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 (no shell, on purpose)
    except OSError as error:
        _give_up(f'cannot start "{argv[0]}": {error.strerror}', _NOT_FOUND)


def _sandbox() -> dict[str, Callable[..., None]]:
    """Return what is in the script beside us; compiled once, unlike by `runpy`."""
    loader = SourceFileLoader("sandbox", _SANDBOX)
    code = loader.get_code("sandbox")
    names: dict[str, Callable[..., None]] = {}
    assert code is not None
    exec(code, names)  # noqa: S102 (a file of ours)
    return names


def _limit(wanted: dict[str, int | None]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for key, what, more in (
        ("memory_bytes", resource.RLIMIT_AS, 0),
        (
            "cpu_seconds",
            resource.RLIMIT_CPU,
            1,
        ),  # a signal that can be caught, then one that cannot
        ("open_files", resource.RLIMIT_NOFILE, 0),
        ("file_bytes", resource.RLIMIT_FSIZE, 0),
    ):
        value = wanted[key]
        if value is not None:
            hard = resource.getrlimit(what)[1]
            most = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
            resource.setrlimit(what, (min(value, most), most))


def become(name: str) -> None:
    """Take on a user's rights, and lose our own."""
    user = pwd.getpwnam(name)
    if user.pw_uid == os.getuid():
        return
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _close_network(whitelist: list[str], user: str | None) -> None:
    """Move to a network of our own, from which only the listed addresses can be reached."""
    if not whitelist:
        _unshare()
        return
    way, far = socket.socketpair()
    _start_doors(far, user)
    _unshare()
    doors = runpy.run_path(_DOORS)
    doors["hand_over"](way, doors["listeners"](whitelist), whitelist)


def _start_doors(far: socket.socket, user: str | None) -> None:
    """Start the process that lets the program through, in the network that we are leaving."""
    if (first := os.fork()) != 0:
        os.waitpid(first, 0)
        return
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.set_inheritable(far.fileno(), True)
        os.execv(  # noqa: S606
            sys.executable, [sys.executable, "-I", "-S", _DOORS, str(far.fileno()), user or ""]
        )
    os._exit(0)


def _unshare() -> None:
    if ctypes.CDLL(None).unshare(_NEW_NET) == 0:
        return
    try:
        _sandbox()["new_user"](_NEW_NET)
    except OSError as error:
        raise OSError(error.errno, "this system does not let us close the network") from error


def _confess(missing: list[str], *, strict: bool) -> None:
    """Say what this system does not permit."""
    words = f"its sandbox lacks {', '.join(missing)}"
    if strict:
        _give_up(words, _NOT_PERMITTED)
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _give_up(why: str, code: int) -> None:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
