"""Started for each program, as a script: takes on its limits and user, then becomes it.

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
from pathlib import Path

_NEW_NET, _NEW_USER = 0x40000000, 0x10000000
_NOT_PERMITTED, _NOT_FOUND = 126, 127
_DOORS = str(Path(__file__).with_name("doors.py"))


def main() -> None:
    """Become the program that the arguments describe."""
    wanted = json.loads(sys.argv[1])
    argv = sys.argv[2:]
    try:
        # Doors have no limits of the program's.
        if wanted["whitelist"] is not None:
            _close_network(wanted["whitelist"], wanted["user"])
        _limit(wanted)
        if wanted["user"] is not None:
            become(wanted["user"])
    except (OSError, ValueError, KeyError) as error:
        _give_up(f"cannot be given its limits, network or user: {error}", _NOT_PERMITTED)
    # Python ignores these, and what is ignored stays so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 (no shell, on purpose)
    except OSError as error:
        _give_up(f'cannot start "{argv[0]}": {error.strerror}', _NOT_FOUND)


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
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_NEW_NET) == 0:
        return
    if libc.unshare(_NEW_NET | _NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "this system does not let us close the network")
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path("/proc/self", file).write_text(text, encoding="ascii")


def _give_up(why: str, code: int) -> None:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
