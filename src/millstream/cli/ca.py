"""The option --ca, which all commands have that ask engines: added in one place."""

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
_ASKING: Final = {"token_file", "engine"}
_Ca = Annotated[
    Path | None,
    typer.Option("--ca", help="The certificates to verify engines with; default MILLSTREAM_CA."),
]


def with_ca(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the option --ca, if it asks engines."""
    signature = inspect.signature(command, eval_str=True)
    if not _ASKING & signature.parameters.keys() or "ca" in signature.parameters:
        return command
    added = inspect.Parameter("ca", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Ca)

    @functools.wraps(command)
    def called_with(*arguments: Any, ca: Path | None, **options: Any) -> Any:
        if ca is None:
            return command(*arguments, **options)
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(ca)
        try:
            return command(*arguments, **options)
        finally:
            os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})

    parameters = [*signature.parameters.values(), added]
    # What typer reads: a signature whose annotations are evaluated, and the annotations.
    called_with.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called_with.__annotations__ = {**command.__annotations__, "ca": _Ca}
    return called_with
