"""`millstream runtime`: a program between upstreams and downstreams, outside Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from millstream.actions.program import CONTRACTS, SANDBOXES, Limits, Program
from millstream.errors import ActionError
from millstream.flow.stages.action import whitelisted

Word = TypeVar("Word", bound=str)


_Args = Annotated[list[str] | None, typer.Argument(help="The arguments of the program, after --.")]
_Listens = Annotated[
    str | None,
    typer.Option("--in", help="The address for upstreams, host:port; none for a source."),
]
_Outs = Annotated[
    list[str] | None,
    typer.Option("--out", help="A downstream, host:port; can be repeated; none for a sink."),
]
_Service = Annotated[
    str | None,
    typer.Option(
        "--service-sock", help="The socket for commands: a path with a slash, or host:port."
    ),
]
_Name = Annotated[
    str | None,
    typer.Option(help="The name of this node: SCHEME_NODE; by default, that of the program."),
]
_Queue = Annotated[
    Path | None,
    typer.Option(help="The folder of the queue; by default .millstream/runtimes/NAME."),
]
_Generation = Annotated[
    int | None,
    typer.Option(min=1, help="The number of this node's life; set by its supervisor."),
]
_Secret = Annotated[
    Path | None,
    typer.Option(help="The file of the secret that this runtime and its neighbours have."),
]
_Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="NODE", help="A node that may send here; can be repeated; else any."
    ),
]
_OpenWithoutSecret = Annotated[
    bool,
    typer.Option("--open-without-secret", help="Accept messages from everybody in that network."),
]
_Contract = Annotated[
    str, typer.Option(help="one: an answer for each input; stream: several, then an empty one.")
]
_Env = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE in the program's environment, which is empty otherwise."),
]
_NoNetwork = Annotated[bool, typer.Option("--no-network", help="Give the program no network.")]
_ConnWhitelist = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IP:PORT",
        help="The only address that the program may connect to; can be repeated.",
    ),
]
_Memory = Annotated[
    int | None, typer.Option(help="The limit of the program's address space, in bytes.")
]
_Cpu = Annotated[int | None, typer.Option(help="The limit of the program's CPU time, in seconds.")]
_Processes = Annotated[
    int, typer.Option(help="How many processes and threads the program may have.")
]
_FileBytes = Annotated[
    int, typer.Option(help="The longest file that the program may write, in bytes.")
]
_Sandbox = Annotated[
    str,
    typer.Option(
        help="usual: what the system permits; strict: all, or do not start; none: no sandbox."
    ),
]
_Attempts = Annotated[
    int,
    typer.Option(min=1, help="How often a message is tried before it becomes a dead letter."),
]
_Once = Annotated[
    bool, typer.Option("--once", help="End when a source has ended and all was acknowledged.")
]
_Drain = Annotated[
    bool,
    typer.Option(
        "--drain", help="Start no program; end when the queue of a source was acknowledged."
    ),
]


_QueueBytes = Annotated[int, typer.Option(help="Upstreams wait while the queue is larger.")]


def runtime(
    action: Annotated[str, typer.Option(help="The program: a path, or a name on PATH.")],
    args: _Args = None,
    listens: _Listens = None,
    outs: _Outs = None,
    service: _Service = None,
    name: _Name = None,
    queue: _Queue = None,
    generation: _Generation = None,
    secret: _Secret = None,
    nodes: _Nodes = None,
    open_without_secret: _OpenWithoutSecret = False,
    contract: _Contract = "one",
    env: _Env = None,
    user: Annotated[str | None, typer.Option(help="The user to run the program as.")] = None,
    no_network: _NoNetwork = False,
    conn_whitelist: _ConnWhitelist = None,
    memory: _Memory = None,
    cpu: _Cpu = None,
    processes: _Processes = 1024,
    file_bytes: _FileBytes = 64 << 30,
    sandbox: _Sandbox = "usual",
    files: Annotated[int, typer.Option(help="How many files the program may open.")] = 1024,
    frame: Annotated[int, typer.Option(help="The longest message, in bytes.")] = 64 << 20,
    time_limit: Annotated[float, typer.Option(help="How many seconds an answer may take.")] = 60.0,
    attempts: _Attempts = 3,
    queue_bytes: _QueueBytes = 1 << 30,
    once: _Once = False,
    drain: _Drain = False,
) -> None:
    """Host a program that reads and writes frames.

    Its answers are on disk before they are sent. Its inputs are acknowledged when all downstreams
    have acknowledged the answers. Delivery is at least once, in order.
    """
    from millstream.actions.hosted import CUT_SHORT
    from millstream.actions.runtime import Runtime, stop_on_signals
    from millstream.actions.settings import RuntimeSettings

    limits = Limits(
        memory_bytes=memory,
        cpu_seconds=cpu,
        open_files=files,
        processes=processes,
        file_bytes=file_bytes,
        frame_bytes=frame,
    )
    path = str(Path(action).resolve()) if "/" in action else action
    whitelist = _whitelist(conn_whitelist or [], none=no_network)
    argv, closed = (path, *(args or ())), _one_of(SANDBOXES, sandbox, "a sandbox")
    answers = _one_of(CONTRACTS, contract, "a contract")
    program = Program(argv, answers, _pairs(env or []), limits, user, whitelist, closed)
    name = name or Path(action).name
    folder = queue or Path(".millstream") / "runtimes" / name
    settings = RuntimeSettings(
        name,
        program,
        folder,
        listens,
        tuple(outs or ()),
        service,
        generation,
        once,
        drain,
        time_limit,
        attempts,
        queue_bytes,
        secret,
        tuple(nodes) if nodes else None,
        open_without_secret,
    )
    one = Runtime(settings, lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True))
    stop_on_signals(one)
    one.run()
    if one.cut_short:
        raise typer.Exit(CUT_SHORT)


def _one_of(known: Sequence[Word], name: str, what: str) -> Word:
    for one in known:
        if one == name:
            return one
    raise ActionError(f'"{name}" is not {what}', hint=f"expected {' or '.join(known)}")


def _whitelist(addresses: list[str], *, none: bool) -> tuple[str, ...] | None:
    for address in addresses:
        if not whitelisted(address):
            hint = "expected IP:port, like 10.0.0.5:5432"
            raise ActionError(f'"{address}" is not an address to connect to', hint=hint)
    return tuple(addresses) if none or addresses else None


def _pairs(env: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = [one.partition("=") for one in env]
    for key, equals, _ in pairs:
        if not key or not equals:
            hint = "expected NAME=VALUE"
            raise ActionError(f'"{key}" is not an environment variable with a value', hint=hint)
    return tuple((key, value) for key, _, value in pairs)
