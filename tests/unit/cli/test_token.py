"""`millstream token` and `millstream audit`."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from millstream.cli.app import app
from millstream.errors import InvalidDuration, MillstreamError, TokenRefused
from support.served import Served, serving


def invoke(*words: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, words)))
    if isinstance(result.exception, MillstreamError):
        raise result.exception
    return result


def said(*words: object, code: int = 0) -> str:
    result = invoke(*words)
    assert result.exit_code == code, result.output
    return result.stdout


def asked(served: Served, token: str, path: str = "/jobs/f/drain") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token.strip()}"}
    return httpx.post(f"{served.server.url}{path}", headers=headers)


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "engine") as found:
        found.deploy()
        yield found


def test_a_token_is_created_used_rotated_and_revoked(served: Served) -> None:
    data = ("--data", served.data)
    first = said("token", "create", "ops", "--may", "operate", "--job", "f", *data)
    assert asked(served, first).status_code == 200
    assert asked(served, first, "/stop").status_code == 403
    second = said("token", "rotate", "ops", "--overlap", "1h", *data)
    assert asked(served, first).status_code == asked(served, second).status_code == 200
    third = said("token", "rotate", "ops", *data)
    assert asked(served, second).status_code == 401
    assert asked(served, third).status_code == 200
    assert said("token", "revoke", "ops", *data) == "revoked ops\n"
    assert asked(served, third).status_code == 401


def test_tokens_are_listed_without_secrets(served: Served) -> None:
    data = ("--data", served.data)
    secret = said("token", "create", "ci", "--may", "look", "--may", "send", *data)
    said("token", "create", "old", "--may", "look", "--expires", "0 s", *data)
    listed = said("token", "ls", *data)
    rows = [line.split() for line in listed.splitlines()]
    assert rows[1] == ["owner", "everything", "all", "never"]
    assert rows[2] == ["ci", "look,", "send", "all", "never"]
    assert rows[3][-1] == "(expired)"
    found = json.loads(said("token", "ls", "--json", *data))
    assert [(one["name"], one["expired"]) for one in found] == [("ci", False), ("old", True)]
    assert secret.strip() not in listed + json.dumps(found)


def test_a_token_is_written_to_a_file_that_commands_take(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "ci.token"
    data = ("--data", served.data)
    assert (
        said("token", "create", "ci", "--may", "deploy", "--to", file, *data) == f"wrote {file}\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    url = served.server.url
    assert said("drain", "f", "--engine", url, "--token-file", file, "--timeout", 0, code=4)
    with pytest.raises(TokenRefused, match="could not be written"):
        said("token", "create", "other", "--may", "look", "--to", file, *data)


def test_what_cannot_be_is_refused(served: Served, tmp_path: Path) -> None:
    with pytest.raises(TokenRefused, match="is not the data folder"):
        said("token", "ls", "--data", tmp_path / "nowhere")
    with pytest.raises(InvalidDuration):
        said("token", "create", "x", "--may", "look", "--expires", "soon", "--data", served.data)
    assert invoke("token", "create", "x", "--may", "rule", "--data", served.data).exit_code == 2
    assert invoke("token", "create", "x", "--data", served.data).exit_code == 2


def test_the_audit_log_is_shown_by_the_engine_and_from_its_folder(served: Served) -> None:
    secret = said("token", "create", "ops", "--may", "operate", "--data", served.data)
    asked(served, secret)
    asked(served, "ms-wrong")
    url = ("--engine", served.server.url)
    shown = said("audit", *url)
    assert said("audit", "--data", served.data) == shown
    for words in ("token create ops", "POST /jobs/f/drain", "127.0.0.1", "refused: this needs a"):
        assert words in shown, shown
    assert secret.strip() not in shown
    found = [
        json.loads(line) for line in said("audit", "--json", "--who", "ops", *url).splitlines()
    ]
    assert [(one["what"], one["job"], one["from"]) for one in found] == [
        ("drain", "f", "127.0.0.1")
    ]
    assert said("audit", "--job", "g", *url) == "there are no entries\n"
    assert "drain" in said("audit", "--since", "1 hour ago", "-n", 1_000, *url)


def test_what_strangers_write_does_not_reach_the_terminal(served: Served) -> None:
    said(
        "token", "create", "look", "--may", "look", "--to", served.data / "t", "--data", served.data
    )
    asked(served, (served.data / "t").read_text(), "/jobs/%1b%5b31mred/drain")
    shown = said("audit", "--data", served.data)
    assert "red/drain" in shown
    assert "\x1b[31mred" not in shown
