"""The commands, and where each lives.

Only the command that is called is loaded: loading takes most of the time of a short command, and
asking for the state of a job does not need what `run` needs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from millstream import __version__
from millstream.cli.ca import with_ca

NAME: Final = "millstream"

#: The command's file, which has a function of the command's name.
COMMANDS: Final = {
    "plan": "plan",
    "run": "run",
    "send": "send",
    "engine": "engine",
    "deploy": "jobs",
    "jobs": "jobs",
    "status": "jobs",
    "logs": "jobs",
    "wait": "jobs",
    "switch": "switch",
    "drain": "jobs",
    "resume": "jobs",
    "undeploy": "jobs",
    "stop": "jobs",
    "audit": "audit",
    "tasks": "tasks",
    "runtime": "runtime",
    "new": "new",
    "pack": "pack",
}
#: Commands that have commands of their own, in `app` of the file of that name.
GROUPS: Final = {
    "watch": "Look for patterns in events on this device, without Spark.",
    "actions": "Store programs on an engine.",
    "scheme": "Check schemes of runtimes.",
    "journal": "Look into journals, and repair them.",
    "dead": "Show, replay and discard dead letters.",
    "checkpoint": "Show, compare and verify the checkpoints of groups.",
    "state": "Look at what stages keep for each key, and replace it.",
    "keys": "Create and show keys.",
    "token": "Create, list and revoke the tokens of an engine.",
}


def called(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line with the command that the arguments name, or with all commands."""
    name = (arguments or completed(os.environ) or [""])[0]
    return commands({name} if name in COMMANDS or name in GROUPS else {*COMMANDS, *GROUPS})


def completed(environment: Mapping[str, str]) -> list[str]:
    """Return the words before the one that a shell wants to complete, without our own name."""
    if f"_{NAME.upper()}_COMPLETE" not in environment:
        return []
    # bash, or zsh and fish: all of the line, which begins with our name.
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS", "")
    words, ends = line.split(), line[-1:].isspace()
    return words[1:] if ends else words[1:-1]


def commands(names: Collection[str]) -> typer.Typer:
    """Return the command line with some of its commands."""
    app = typer.Typer(
        name=NAME,
        help="Run event flows on Apache Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name, file in COMMANDS.items():
        if name in names:
            app.command(name)(with_ca(getattr(_loaded(file), name)))
    for name, about in GROUPS.items():
        if name in names:
            group = _loaded(name).app
            for one in group.registered_commands:
                one.callback = with_ca(one.callback)
            app.add_typer(group, name=name, help=about)
    return app


def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    # Typer needs a callback to keep the name of a single command.
    return


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{NAME} {__version__}")
        raise typer.Exit


def _loaded(file: str) -> Any:
    return import_module(f"millstream.cli.{file}")


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    return _whole()


@cache
def _whole() -> typer.Typer:
    return commands({*COMMANDS, *GROUPS})
