"""The options --ca and --open-without-tls, which all commands have that ask engines: added here.

Both are passed on in the environment, where libraries find them.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

#: As in `engine.access.trust`, which commands that ask no engine need not load.
VARIABLE: Final = "MILLSTREAM_CA"
#: As in `links.network`.
OPEN: Final = "MILLSTREAM_OPEN_WITHOUT_TLS"
_ASKING: Final = {"token_file", "engine"}
_Ca = Annotated[
    Path | None,
    typer.Option("--ca", help="The certificates to verify engines with; default MILLSTREAM_CA."),
]
_Open = Annotated[
    bool,
    typer.Option(
        "--open-without-tls",
        help=f"Send the token to http:// URLs of other hosts; default {OPEN}.",
    ),
]


def with_ca(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options --ca and --open-without-tls, if it asks engines."""
    signature = inspect.signature(command, eval_str=True)
    if not _ASKING & signature.parameters.keys() or "ca" in signature.parameters:
        return command
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter("ca", keyword, default=None, annotation=_Ca),
        inspect.Parameter("open_without_tls", keyword, default=False, annotation=_Open),
    ]

    @functools.wraps(command)
    def called_with(
        *arguments: Any, ca: Path | None, open_without_tls: bool, **options: Any
    ) -> Any:
        given = {VARIABLE: None if ca is None else str(ca), OPEN: "1" if open_without_tls else None}
        before = dict(os.environ)
        os.environ.update({name: text for name, text in given.items() if text is not None})
        try:
            return command(*arguments, **options)
        finally:
            for name in given:
                os.environ.pop(name, None)
            os.environ.update({name: before[name] for name in given if name in before})

    parameters = [*signature.parameters.values(), *added]
    # What typer reads: a signature whose annotations are evaluated, and the annotations.
    called_with.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called_with.__annotations__ = {
        **command.__annotations__,
        "ca": _Ca,
        "open_without_tls": _Open,
    }
    return called_with
