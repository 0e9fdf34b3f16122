"""The state of a job's stages over HTTP, and on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from millstream.cli.app import commands
from support.served import Served

STATE = "/jobs/f/state"


def test_stages_and_their_state_are_shown(served: Served) -> None:
    served.deploy()
    (stage,) = served.http.get(STATE).json()
    assert (stage["stage"], stage["kind"], stage["keys"]) == ("counted", "fold", 1)
    found = served.http.get(f"{STATE}/counted/rows").json()
    assert (found["batch"], found["rows"]) == (7, [{"k": "a", "n": 3}])
    earlier = served.http.get(f"{STATE}/counted/rows", params={"key": "b", "at": 3}).json()
    assert (earlier["batch"], earlier["rows"]) == (3, [])


def test_rows_need_a_token_even_here_and_numbers_do_not(served: Served) -> None:
    served.deploy()
    served.http.headers.pop("authorization")
    assert served.http.get(STATE).status_code == 200
    assert served.http.get(f"{STATE}/counted/rows").status_code == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{STATE}/x/rows", 404),
        ("/jobs/g/state", 404),
        (f"{STATE}/counted/rows?limit=0", 400),
        (f"{STATE}/counted/rows?at=-1", 400),
    ],
)
def test_what_is_not_there_is_refused(served: Served, path: str, status: int) -> None:
    served.deploy()
    assert served.http.get(path).status_code == status


def test_the_command_asks_an_engine(served: Served, monkeypatch: Any) -> None:
    served.deploy()
    monkeypatch.setenv("MILLSTREAM_TOKEN", str(served.server.token))

    def invoke(*words: str) -> str:
        arguments = ["state", *words, "--engine", served.server.url]
        result = CliRunner().invoke(commands({"state"}), arguments)
        assert result.exit_code == 0, result.output
        return result.output

    assert "counted  fold  k, n" in invoke("ls", "f")
    assert invoke("show", "f", "counted", "--json") == '{"k": "a", "n": 3}\n'
    assert "1 keys of f.counted, batch 7" in invoke("show", "f", "counted")
