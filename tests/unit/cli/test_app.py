"""Which commands there are, and what calling one loads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from millstream.cli.app import COMMANDS, GROUPS, called

ALL = {*COMMANDS, *GROUPS}


def names(app: typer.Typer) -> set[str]:
    group: Any = typer.main.get_command(app)
    return set(group.commands)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["nonsense", "status"]])
def test_without_a_command_all_are_there(arguments: list[str]) -> None:
    assert names(called(arguments)) == ALL


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_command_is_there_alone_and_still_called_by_its_name(name: str) -> None:
    assert names(called([name, "--help"])) == {name}


def test_asking_for_a_state_loads_neither_arrow_nor_links() -> None:
    code = "import sys; from millstream.cli.app import called; called(['status']); print({'pyarrow', 'zmq', 'sqlglot'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
