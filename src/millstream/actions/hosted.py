"""A runtime as its supervisor starts it: `python -m millstream.actions.hosted SETTINGS` (JSON).

It is what `millstream runtime` is, without the command line, which takes longer to load than all
the rest; and it does not outlive the process that has started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.actions.parent import end_with_parent
from millstream.actions.program import Program
from millstream.actions.runtime import Runtime, stop_on_signals
from millstream.actions.scheme import Scheme
from millstream.actions.settings import RuntimeSettings
from millstream.actions.supervision import Start
from millstream.errors import MillstreamError, QueueDamaged

#: How a runtime ends whose source was ordered to end, and had not done so by itself.
CUT_SHORT: Final = 6
#: How a runtime ends whose queue is damaged.
DAMAGED: Final = 7


class Hosted(msgspec.Struct, frozen=True):
    """What to host, and the process to end with."""

    parent: int
    settings: RuntimeSettings


def settings_of(
    scheme: Scheme,
    order: Start,
    *,
    folder: Path,
    root: Path,
    service: Path,
    program: Path | None,
    secret: Path | None = None,
) -> RuntimeSettings:
    """Return the settings of a node's runtime.

    Args:
        scheme: The scheme.
        order: Which node, where, in which of its lives, and whom it sends to.
        folder: Where runtimes keep their queues.
        root: What the paths of programs count from.
        service: Where its commands come in.
        program: The file of its program, if that is not where its action says.
        secret: The file of the secret that the scheme's runtimes have.
    """
    node, whole = scheme.node(order.node), f"{scheme.name}_{order.node}"
    path = str(program or (root / node.action if "/" in node.action else node.action))
    return RuntimeSettings(
        whole,
        Program(
            (path, *node.args),
            node.contract,
            node.env,
            whitelist=node.conn_whitelist,
            sandbox=node.sandbox,
        ),
        # A queue belongs to a place: a spare has a disk of its own.
        folder / whole / order.address.replace(":", "-"),
        order.address if scheme.upstreams(order.node) else None,
        order.outs,
        str(service),
        order.generation,
        secret=secret,
        nodes=tuple(f"{scheme.name}_{one}" for one in scheme.upstreams(order.node)),
    )


def command(settings: RuntimeSettings) -> list[str]:
    """Return what starts a runtime that ends with this process."""
    text = msgspec.json.encode(Hosted(os.getpid(), settings), enc_hook=str).decode()
    return [sys.executable, "-m", "millstream.actions.hosted", text]


def _decoded(kind: Any, value: Any) -> Any:
    return kind(value)  # a path


def main() -> int:
    """Host what the argument says; return the exit code."""
    given = msgspec.json.decode(sys.argv[1], type=Hosted, dec_hook=_decoded)
    end_with_parent(given.parent)
    name = given.settings.name

    def log(line: str) -> None:
        sys.stderr.write(f"{name}: {line}\n")
        sys.stderr.flush()

    try:
        one = Runtime(given.settings, log)
        stop_on_signals(one)
        one.run()
    except MillstreamError as error:
        log(f"error: {error}" + (f" ({error.hint})" if error.hint else ""))
        return DAMAGED if isinstance(error, QueueDamaged) else 1
    return CUT_SHORT if one.cut_short else 0


if __name__ == "__main__":
    sys.exit(main())
