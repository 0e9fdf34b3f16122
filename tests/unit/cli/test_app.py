"""Which commands there are, and what calling one loads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from millstream import __version__, cli
from millstream.cli.app import COMMANDS, GROUPS, called, completed

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


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from millstream.cli import main; main()", *arguments]
    clean = {name: value for name, value in os.environ.items() if "COMPLETE" not in name}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**clean, **environment}
    )


def test_the_version_is_shown() -> None:
    done = run("--version")
    assert (done.stdout, done.returncode) == (f"millstream {__version__}\n", 0)


def test_help_shows_booleans_as_flags_and_whole_summaries() -> None:
    assert "<bool>" not in run("run", "--help").stdout
    assert "..." not in run("--help").stdout.partition("Commands:")[2]


def complete(line: str) -> list[str]:
    """Return what bash offers at the end of a line."""
    words = line.split(" ")
    number = str(len(words) - 1)
    # prog_name is the name of the script; here it is given.
    code = "import sys; sys.argv[0] = 'millstream'; from millstream.cli import main; main()"
    environment = {**os.environ, "_MILLSTREAM_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": number}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout.split()


def test_a_shell_completes_commands_and_options() -> None:
    assert complete("millstream sw") == ["switch"]
    assert set(complete("millstream ")) == ALL
    assert "--until-end" in complete("millstream run --un")
    assert complete("millstream journal ver") == ["verify"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("millstream sw", []),
        ("millstream ", []),
        ("millstream switch ", ["switch"]),
        ("millstream switch --sh", ["switch"]),
        ("millstream journal ver", ["journal"]),
    ],
)
def test_completion_loads_only_the_command_on_the_line(line: str, words: list[str]) -> None:
    for shell in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        assert completed({"_MILLSTREAM_COMPLETE": "complete_x", shell: line}) == words
    assert completed({"COMP_WORDS": line}) == []


def options(command: Any, name: str = "millstream") -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        yield f"{name} {parameter.name}", parameter
    for child, inner in getattr(command, "commands", {}).items():
        yield from options(inner, f"{name} {child}")


def test_no_flag_has_a_twin_that_says_no() -> None:
    found = list(options(typer.main.get_command(called([]))))
    assert len(found) > 100
    assert [name for name, parameter in found if parameter.secondary_opts] == []


def test_a_process_that_calls_a_command_is_not_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher takes the place of the command's process, and of no other."""
    monkeypatch.setattr(sys, "argv", ["millstream", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert not cli.is_command()
    for command in (["-m", "millstream"], [str(Path(sys.executable).parent / "millstream")]):
        ours = subprocess.run(
            [sys.executable, *command, "watch", "nowhere.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "nowhere.py" in ours.stderr
