"""What keeps a program from reaching beyond itself; loaded by `launch`, in the process that becomes it.

    launcher ── init, number 1 of a PID namespace ── program, and all that it starts
       waits         reaps, passes SIGTERM on            ends with init, whatever session it is in

Where there are no PID namespaces the launcher itself reaps what is orphaned, and ends it. Then
the program loses all capabilities, can gain none, and is refused the system calls that reach into
other processes, namespaces and the kernel. It imports nothing of ours.
"""

import contextlib
import ctypes
import errno
import os
import resource
import signal
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_PID, _NEW_MOUNTS, _NEW_USER = 0x20000000, 0x00020000, 0x10000000
_REC, _SLAVE, _NO_SUID_DEV_EXEC = 0x4000, 1 << 19, 0x2 | 0x4 | 0x8
_DEATH_SIGNAL, _SECCOMP, _DROP_BOUND, _SECURE_BITS = 1, 22, 24, 28
_SUBREAPER, _NO_NEW_PRIVILEGES, _AMBIENT = 36, 38, 47
_NO_ROOT_LOCKED = 0x3  # that it is root gives it no capabilities
_CAP_VERSION = 0x20080522
#: Since when each PID namespace has a highest number of its own, and its least value.
_OWN_PID_MAX, _LEAST_PID_MAX = (6, 14), 301

# system calls that are refused

#: By machine: how the kernel calls it, the number of clone, and those of what is refused.
_CALLS = {
    "x86_64": (
        0xC000003E,
        56,
        (
            *(101, 310, 311, 312, 438),  # ptrace, process_vm_readv, _writev, kcmp, pidfd_getfd
            *(272, 308, 155, 161),  # unshare, setns, pivot_root, chroot
            *(165, 166, 428, 429, 430, 431, 432, 433, 442),  # mount, umount2, and the newer ones
            *(175, 176, 313, 246, 320, 169),  # modules, kexec, reboot
            *(248, 249, 250, 321, 298, 323),  # keys, bpf, perf_event_open, userfaultfd
            *(304, 425, 426, 427, 172, 173),  # open_by_handle_at, io_uring, iopl, ioperm
        ),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        (
            *(117, 270, 271, 272, 438, 97, 268, 41, 51),
            *(40, 39, 428, 429, 430, 431, 432, 433, 442),
            *(105, 106, 273, 104, 294, 142, 217, 218, 219, 280, 241, 282, 265, 425, 426, 427),
        ),
    ),
}
_CLONE3, _NEW_ANYTHING, _X32 = 435, 0x7E020000, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def program_filter(machine: str) -> bytes:
    """Return the filter of system calls, as the kernel's BPF; empty if the machine is not known."""
    if machine not in _CALLS:
        return b""
    arch, clone, calls = _CALLS[machine]
    refused = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    steps = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), refused, (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), refused]
    for number in calls:
        steps += [(_EQUAL, 0, 1, number), refused]
    # Its flags lie in memory, where a filter cannot look; without it, libraries use clone.
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    steps += [(_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_ANYTHING), refused]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


# processes


def fork_alone(processes: int | None, uid: int, missing: list[str]) -> None:
    """Return in a process that ends with all that it starts; this one becomes its launcher.

    It may start so many processes, as the user `uid`. What the system does not permit is added to
    `missing`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    fresh_user = _unshared(missing)
    if fresh_user is None:
        _prctl(_SUBREAPER, 1)
        _fork_program(before, alone=False)
    else:
        told, tell = os.pipe()
        if (init := os.fork()) != 0:
            _quiet()
            os.close(tell)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # init gets it too
            os.waitpid(init, 0)
            _end_as(int.from_bytes(os.read(told, 4) or b"\0\0\0\x09", "big"))
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        bounded = _own_proc(processes, missing)
        _fork_program(before, alone=True, tell=tell)
        processes = None if bounded else processes
    if processes is not None:
        _limit_processes(processes, uid, missing, fresh_user=bool(fresh_user))


def _unshared(missing: list[str]) -> bool | None:
    """Enter a PID namespace with the next fork; tell whether that took a user namespace, or None."""
    wanted = _NEW_PID | _NEW_MOUNTS
    if _LIBC.unshare(wanted) == 0:
        return False
    why = os.strerror(ctypes.get_errno())
    # First in a process that may fail amid it: there is no way back.
    if (trying := os.fork()) == 0:
        with contextlib.suppress(OSError):
            new_user(wanted)
            os._exit(0)
        os._exit(1)
    if os.waitpid(trying, 0)[1] != 0:
        missing.append(f"a PID namespace ({why})")
        return None
    new_user(wanted)
    return True


def new_user(flags: int) -> None:
    """Enter a user namespace with the same user and group, and with it the namespaces in `flags`."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | flags) != 0:
        raise OSError(ctypes.get_errno(), "no user namespace")
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path("/proc/self", file).write_text(text, encoding="ascii")


def _own_proc(processes: int | None, missing: list[str]) -> bool:
    """Show the program its own processes alone, and bound them; tell whether that could be done."""
    _LIBC.mount(None, b"/", None, _REC | _SLAVE, None)
    if _LIBC.mount(b"proc", b"/proc", b"proc", _NO_SUID_DEV_EXEC, None) != 0:
        missing.append(f"its own /proc ({os.strerror(ctypes.get_errno())})")
        return False
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if processes is None or version < _OWN_PID_MAX:
        return False
    try:
        most = max(_LEAST_PID_MAX, processes)
        Path("/proc/sys/kernel/pid_max").write_text(str(most), encoding="ascii")
    except OSError:
        return False
    return True


def _limit_processes(most: int, uid: int, missing: list[str], *, fresh_user: bool) -> None:
    """Bound the processes of a user: in a user namespace of its own, else beyond those of now."""
    if uid == 0:
        missing.append("a limit of processes (it is root, and Linux before 6.14 has none for root)")
        return
    most += 0 if fresh_user else _tasks_of(uid)
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _tasks_of(uid: int) -> int:
    found = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found += sum(1 for _ in Path(entry.path, "task").iterdir())
    return found


def _fork_program(before: set[int | signal.Signals], *, alone: bool, tell: int = -1) -> None:
    """Return in the program's process; this one waits for it, reaps, and ends as it did."""
    if (program := os.fork()) == 0:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    with contextlib.suppress(OSError):
        os.setpgid(program, program)
    _quiet()
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(program))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    found = 0
    while found != program:
        found, status = os.wait()
    if alone:  # the kernel ends the rest with us
        os.write(tell, status.to_bytes(4, "big"))
        os._exit(0)
    _end_orphans()
    _end_as(status)


def _pass_on(program: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program, signal.SIGTERM)


def _end_orphans() -> None:
    """End all that the program has left; what that has started becomes ours in turn."""
    while True:
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _end_as(status: int) -> None:
    """End in the way that the program has."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _quiet() -> None:
    """Hold none of the program's pipes: their ends are its own."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


# privileges


def drop_privileges(missing: list[str]) -> None:
    """Give up all capabilities, and the means to get any."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    bound = all(_prctl(_DROP_BOUND, cap) for cap in range(last + 1))
    rooted = _prctl(_SECURE_BITS, _NO_ROOT_LOCKED)
    _prctl(_AMBIENT, 4)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0)
    cleared = _LIBC.capset(header, (ctypes.c_uint32 * 6)()) == 0
    # Who is no root, and has none, gets none by an exec either.
    if not cleared or (os.getuid() == 0 and not (bound and rooted)):
        missing.append("to lose its capabilities")
    if not _prctl(_NO_NEW_PRIVILEGES, 1):
        missing.append("no_new_privs")


def filter_calls(missing: list[str]) -> None:
    """Refuse system calls that a program needs only to reach beyond itself."""
    code = program_filter(os.uname().machine)
    steps = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    given = Program(len(code) // 8, ctypes.addressof(steps))
    if not code or not _prctl(_SECCOMP, 2, ctypes.addressof(given)):
        missing.append("a filter of system calls")


def _prctl(option: int, value: int, third: int = 0) -> bool:
    longs = [ctypes.c_ulong(one) for one in (value, third, 0, 0)]
    return bool(_LIBC.prctl(option, *longs) == 0)
