"""`millstream actions`, over HTTP, with an engine and with two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from millstream.cli.app import app
from millstream.cluster import Cluster
from millstream.engine.programs.contents import MOST_BYTES
from millstream.errors import ActionInUse, BadBinary, EngineAway, NoSuchAction
from support.served import Served, serving

PROGRAM = bytes(range(256)) * 100
HASH = hashlib.sha256(PROGRAM).hexdigest()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        monkeypatch.setenv("MILLSTREAM_ENGINE", found.server.url)
        monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
        yield found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Served]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(tmp_path / f"node{node}", node=node, of=2))
            for node in range(2)
        ]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "score"
    file.write_bytes(PROGRAM)
    return file


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow_of_actions" / "f_of_actions.py"
    file.parent.mkdir()
    file.write_text("import millstream as ms\nflow = ms.Flow('f')\n")
    return file


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert not app(["actions", *words], standalone_mode=False)
    return capsys.readouterr().out


def test_a_program_is_added_listed_shown_and_removed(
    served: Served, program: Path, flow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "ls") == "there are no actions\n"
    assert run(capsys, "add", "score", str(program)) == f"added score@1   26 kB   sha256 {HASH}\n"
    program.write_bytes(b"better")
    assert json.loads(run(capsys, "add", "score", str(program), "--json"))["version"] == 2
    served.engine.named = ("score@1",)
    with Cluster([served.server.url]) as cluster:
        cluster.deploy(flow)
    assert "score@2" in run(capsys, "ls")
    shown = run(capsys, "show", "score").splitlines()
    assert [line.split()[0] for line in shown] == ["action", "score@1", "score@2"]
    assert shown[1].split()[-1] == "f"
    assert [one["jobs"] for one in json.loads(run(capsys, "show", "score", "--json"))] == [
        ["f"],
        [],
    ]
    with pytest.raises(ActionInUse, match='version 1 of action "score" is in use by job "f"'):
        run(capsys, "rm", "score")
    assert run(capsys, "rm", "score@2") == "removed score@2\n"
    assert [one["version"] for one in json.loads(run(capsys, "ls", "--json"))] == [1]


@pytest.mark.parametrize("name", ["score@latest", "score@", "score@0", "sc/ore", ""])
def test_what_is_no_version_is_not_removed(
    served: Served, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoSuchAction, match="is not"):
        run(capsys, "rm", name)


def test_a_file_that_is_none_empty_or_too_large_is_not_sent(served: Served, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with Cluster([served.server.url]) as cluster:
        for name, fact in (
            ("none", "cannot be read"),
            ("empty", "has 0 bytes"),
            ("large", "has 536,870,913 bytes"),
        ):
            with pytest.raises(BadBinary, match=fact):
                cluster.add_action("score", tmp_path / name)
        assert cluster.actions() == []


def test_it_is_sent_in_pieces_and_goes_on_where_it_stopped(
    served: Served, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.cluster.client.PIECE", 10_000)
    contents = served.engine.binaries.contents
    contents.receive(HASH, PROGRAM[:7_000], offset=0, total=len(PROGRAM))
    told: list[tuple[int, int]] = []
    with Cluster([served.server.url]) as cluster:
        assert (
            cluster.add_action(
                "score", program, progress=lambda at, all_: told.append((at, all_))
            ).sha256
            == HASH
        )
    assert told == [(17_000, 25_600), (25_600, 25_600)]
    assert contents.path(HASH).read_bytes() == PROGRAM


def test_bytes_that_change_on_the_way_are_refused(served: Served) -> None:
    bad = served.http.post(
        f"/contents/{HASH}?bytes=3",
        content=b"abc",
        headers={"Content-Type": "application/octet-stream"},
    )
    assert (bad.status_code, bad.json()["error"]) == (409, "BadBinary")
    assert served.http.get(f"/contents/{HASH}").status_code == 404
    assert (
        served.http.post("/actions/score", json={"sha256": HASH}).json()["error"] == "NoSuchAction"
    )


def test_nobody_reads_a_program_without_the_token(served: Served, program: Path) -> None:
    with Cluster([served.server.url]) as cluster:
        cluster.add_action("score", program)
    path = f"{served.server.url}/contents/{HASH}/bytes"
    assert httpx.get(path, trust_env=False).status_code == 401
    assert served.http.get(path, params={"offset": 25_500}).content == PROGRAM[25_500:]


def test_an_engine_without_the_names_gets_the_bytes_when_a_flow_needs_them(
    two: list[Served], program: Path, flow: Path
) -> None:
    for one in two:
        one.engine.named = ("score@latest",)
    with Cluster([one.server.url for one in two]) as cluster:
        with pytest.raises(NoSuchAction, match='no action "score"'):
            cluster.deploy(flow)
        assert [one.engine.jobs() for one in two] == [[], []]
        cluster.add_action("score", program)
        assert two[1].engine.binaries.all() == []
        cluster.deploy(flow)
        assert two[1].engine.binaries.path(HASH).read_bytes() == PROGRAM
        assert [one.engine.pinned["f"] for one in two] == [{"score@latest": HASH}] * 2
        program.write_bytes(b"better")
        cluster.add_action("score", program)
        with pytest.raises(ActionInUse, match="version 1"):
            cluster.remove_action("score", 1)
        cluster.undeploy("f", force=True)
        assert [one.version for one in cluster.remove_action("score")] == [1, 2]
    for one in two:
        with pytest.raises(NoSuchAction):
            one.engine.binaries.path(HASH)


def test_nothing_is_removed_while_an_engine_is_away(two: list[Served], program: Path) -> None:
    with Cluster([two[0].server.url, "http://127.0.0.1:9"]) as cluster:
        cluster.add_action("score", program)
        with pytest.raises(EngineAway):
            cluster.remove_action("score")
        assert [str(one) for one in two[0].engine.binaries.all()] == ["score@1"]
