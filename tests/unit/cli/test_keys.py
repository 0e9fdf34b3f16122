"""`millstream keys`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.cli.app import app
from millstream.errors import InvalidKey, KeyExists, MillstreamError
from millstream.links.keys import new_keys, read_key, read_public
from millstream.links.quotas import Quota


def invoke(*words: object) -> Result:
    result = CliRunner().invoke(app, ["keys", *map(str, words)])
    if isinstance(result.exception, MillstreamError):
        raise result.exception
    return result


def said(*words: object, code: int = 0) -> str:
    result = invoke(*words)
    assert result.exit_code == code, result.output
    return result.output


def test_a_key_is_made_and_the_user_is_told_which_file_goes_where(tmp_path: Path) -> None:
    lines = said("new", "till", "--folder", tmp_path / "keys").splitlines()
    assert (
        lines[0] == f'made {tmp_path}/keys/till.key  both halves: keep it secret, with "till" only'
    )
    assert lines[1].startswith(f"made {tmp_path}/keys/till.pub  the public half")
    assert "--producers folder" in lines[2]
    assert read_key(tmp_path / "keys/till.key").name == "till"


def test_keys_go_to_the_folder_keys_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said("new", "till")
    assert sorted(path.name for path in Path("keys").iterdir()) == ["till.key", "till.pub"]
    assert said("ls").startswith("till  ")


def test_what_was_made_is_told_to_machines(tmp_path: Path) -> None:
    found = json.loads(said("new", "till", "--folder", tmp_path, "--json"))
    public = read_key(tmp_path / "till.key").public.decode()
    assert found == {
        "name": "till",
        "key": str(tmp_path / "till.key"),
        "pub": str(tmp_path / "till.pub"),
        "public": public,
    }


def test_a_key_is_not_written_over(tmp_path: Path) -> None:
    said("new", "till", "--folder", tmp_path)
    before = (tmp_path / "till.key").read_text()
    with pytest.raises(KeyExists):
        invoke("new", "till", "--folder", tmp_path)
    assert (tmp_path / "till.key").read_text() == before


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidKey, match="is not a name for a key"):
        invoke("new", "a/b", "--folder", tmp_path)


def test_keys_are_listed_once_with_the_halves_that_are_here(tmp_path: Path) -> None:
    for name in ("till", "oven"):
        new_keys(tmp_path, name)
    (tmp_path / "till.key").unlink()
    oven, till = said("ls", "--folder", tmp_path).splitlines()
    assert oven.split() == [
        "oven",
        read_key(tmp_path / "oven.key").public.decode(),
        "both",
        "halves",
    ]
    assert till.endswith("public half")
    found = json.loads(said("ls", "--folder", tmp_path, "--json"))
    assert [(key["name"], key["secret"]) for key in found["keys"]] == [
        ("oven", True),
        ("till", False),
    ]
    assert found["damaged"] == {}


def test_a_damaged_key_does_not_hide_the_others_and_is_told_by_the_status(tmp_path: Path) -> None:
    new_keys(tmp_path, "till")
    new_keys(tmp_path, "oven").public.write_text("?")
    (tmp_path / "oven.key").unlink()
    output = said("ls", "--folder", tmp_path, code=1)
    assert "till  " in output
    assert "damaged: oven.pub: key file" in output
    found = json.loads(said("ls", "--folder", tmp_path, "--json", code=1))
    assert list(found["damaged"]) == ["oven.pub"]


def test_a_secret_that_others_can_read_is_told_by_the_list(tmp_path: Path) -> None:
    new_keys(tmp_path, "till").secret.chmod(0o644)
    assert "can be read by others" in said("ls", "--folder", tmp_path, code=1)


def test_an_empty_folder_has_no_keys_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert said("ls", "--folder", tmp_path) == f"there are no keys in {tmp_path}\n"
    with pytest.raises(InvalidKey, match="there is no folder") as caught:
        invoke("ls", "--folder", tmp_path / "none")
    assert caught.value.hint


@pytest.mark.parametrize("suffix", ["key", "pub"])
def test_a_key_file_is_shown_without_its_secret(tmp_path: Path, suffix: str) -> None:
    pair = read_key(new_keys(tmp_path, "till").secret)
    output = said("show", tmp_path / f"till.{suffix}")
    assert output.split()[:2] == ["till", pair.public.decode()]
    assert pair.secret.decode() not in output
    found = json.loads(said("show", tmp_path / f"till.{suffix}", "--json"))
    assert (found["public"], found["secret"]) == (pair.public.decode(), suffix == "key")
    assert pair.secret.decode() not in json.dumps(found)


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.pub").write_bytes(content)
    with pytest.raises(InvalidKey):
        invoke("show", tmp_path / "x.pub")


@pytest.mark.parametrize("words", [["new"], ["show"], ["nothing"], ["ls", "--what"]])
def test_wrong_arguments_end_with_2(words: list[str]) -> None:
    assert invoke(*words).exit_code == 2


def test_what_a_producer_may_do_is_written_beside_its_key(tmp_path: Path) -> None:
    quota = ("--rows-per-second", 500, "--bytes-per-second", 10_000, "--connections", 2)
    said("new", "till", "--folder", tmp_path, "--may", "rows, end", *quota)
    grant = read_public(tmp_path / "till.pub").grant
    assert grant.may == {"rows", "end"}
    assert grant.quota == Quota(500, 10_000, 2)
    assert "500" not in (tmp_path / "till.key").read_text()
    with pytest.raises(InvalidKey, match='there is no right "everything"'):
        said("new", "other", "--folder", tmp_path, "--may", "everything")
    assert not (tmp_path / "other.key").exists()
    assert said("show", tmp_path / "till.pub").startswith("till  ")
