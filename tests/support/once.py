"""What a process of tests makes once, and a process of users makes once as well.

A command builds its command line, and reads which authorities the machine trusts: a tenth of a
second each. Tests run hundreds of commands and of clients in one process, and would do so for each.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import certifi
import typer
import typer.testing


def share() -> None:
    """Keep command lines, and the context of clients that verify with what the machine trusts."""
    built = cache(typer.main.get_command)
    typer.main.get_command = built
    typer.testing._get_command = built  # type: ignore[attr-defined]
    _share_trust({certifi.where(), os.environ.get("SSL_CERT_FILE", "")})


def _share_trust(machine: set[str]) -> None:
    make = ssl.create_default_context
    shared = cache(lambda file: make(cafile=file))

    def made(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if not arguments and options.keys() == {"cafile"} and options["cafile"] in machine:
            return shared(options["cafile"])
        return make(*arguments, **options)

    ssl.create_default_context = made
