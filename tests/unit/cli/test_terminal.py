"""Text of others never controls the terminal of who looks at it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import millstream.cli
from millstream.journal.kinds.files import FilesJournal
from millstream.terminal import guarded, neutral
from millstream.terminal.console import Console

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\rfake\u202e"
SAFE = r"\x1b]0;owned\x07\x1b[2J\x9b31m\x0dfake\u202e"
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), (f"name{EVIL}", pa.string())])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A journal in which all that others choose has escape sequences."""
    journal = FilesJournal(tmp_path / "shop" / "journals" / "sent")
    journal.create(SCHEMA, time="at")
    with journal.writer() as writer:
        row = pa.record_batch([pa.array([1], SCHEMA.field(0).type), [EVIL]], schema=SCHEMA)
        writer.append(f"till{EVIL}[/]", 0, row)
    with journal.dead_letters() as dead:
        dead.put("x", 0, f"bad{EVIL}", EVIL)
    journal.commit(f"group{EVIL}", [0])
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "millstream", *words]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "240", "TERM": "xterm"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).decode()


def harmless(shown: str) -> bool:
    """Return whether all that controls the terminal are colours of our own."""
    return neutral(re.sub(r"\x1b\[[0-9;]*m", "", shown)) == re.sub(r"\x1b\[[0-9;]*m", "", shown)


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [("ls",), ("show", "shop.sent"), ("cat", "shop.sent"), ("cat", "shop.sent.dead")],
    ids=lambda words: " ".join(words),
)
def test_what_is_in_a_journal_does_not_control_the_terminal(
    data: Path, words: tuple[str, ...]
) -> None:
    shown = run("journal", *words, "--data", str(data))
    assert harmless(shown)
    assert "\x1b]" not in shown
    assert "\x9b" not in shown
    if words[0] == "show":
        for name in ("till", "group", "bad"):
            assert rf"{name}\x1b]0;owned" in shown
        assert r"\u202e[/]" in shown


@pytest.mark.process
def test_errors_do_not_control_the_terminal(data: Path) -> None:
    shown = run("journal", "cat", f"shop.{EVIL}", "--data", str(data), code=1)
    assert harmless(shown)
    assert SAFE in shown


def test_what_is_printed_is_neutral(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print(EVIL, "a\tb")
        print(EVIL, file=sys.stderr)
        Console(force_terminal=True, color_system="standard").print("own", style="red")
    found = capsys.readouterr()
    assert found.out.startswith(f"{SAFE} a\tb\n")
    assert "\x1b[31mown" in found.out, "colours of our own pass"
    assert found.err == f"{SAFE}\n"
    print("\x07", end="")
    assert capsys.readouterr().out == "\x07", "only meanwhile"


def test_tables_and_texts_are_neutral_and_have_no_markup() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200)
    table = Table(box=None)
    table.add_column("name")
    table.add_row(f"[/bold]{EVIL}")
    console.print(table)
    console.print(Text(EVIL), f"[link=x]{EVIL}", style="red")
    assert harmless(out.getvalue())
    assert "[/bold]" in out.getvalue()
    assert "[link=x]" in out.getvalue()


@given(st.text(st.characters(codec=None)))
def test_neutral_text_can_be_printed_and_controls_nothing(text: str) -> None:
    shown = neutral(text)
    shown.encode()
    assert all(letter.isprintable() or ord(letter) > 0x9F or letter in "\n\t" for letter in shown)
    assert neutral(shown) == shown


def test_the_commands_have_no_other_console() -> None:
    folder = Path(millstream.cli.__file__).parent
    users = [
        file.name
        for file in folder.glob("*.py")
        if re.search(r"rich\.console import.*Console", file.read_text())
    ]
    assert users == []
