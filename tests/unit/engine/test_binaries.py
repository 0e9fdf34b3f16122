"""Programs that an engine keeps: bytes by their hash, names and versions, and who uses them."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.engine.jobs import store as stores
from millstream.engine.jobs.store import Store
from millstream.engine.programs import contents as module
from millstream.engine.programs.binaries import Binaries
from millstream.engine.programs.contents import Content, Contents
from millstream.errors import ActionInUse, BadBinary, NoSuchAction, StoreBroken

BYTES = bytes(range(256)) * 40
HASH = hashlib.sha256(BYTES).hexdigest()


def sent(contents: Contents, data: bytes) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    contents.receive(sha256, data, offset=0, total=len(data))
    return sha256


def kept(folder: Path) -> Binaries:
    return Binaries(folder / "actions", Store(folder / "jobs.sqlite"), SystemClock())


def unused() -> dict[str, list[str]]:
    return {}


# bytes


def test_bytes_come_in_pieces_and_are_there_when_all_are(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    first = contents.receive(HASH, BYTES[:6000], offset=0, total=len(BYTES))
    assert first == Content(HASH, 6000, whole=False)
    with pytest.raises(NoSuchAction, match="in part"):
        contents.path(HASH)
    assert contents.receive(HASH, BYTES[6000:], offset=6000, total=len(BYTES)) == Content(
        HASH, len(BYTES), whole=True
    )
    path = contents.path(HASH)
    assert path.read_bytes() == BYTES
    assert os.access(path, os.X_OK)
    assert contents.read(HASH, 10_000, 1_000) == BYTES[10_000:]


def test_a_piece_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    for offset, end in (
        (0, 100),
        (0, 100),
        (50, 200),
        (0, 300),
        (300, len(BYTES)),
        (300, len(BYTES)),
    ):
        contents.receive(HASH, BYTES[offset:end], offset=offset, total=len(BYTES))
    assert contents.path(HASH).read_bytes() == BYTES


def test_a_gap_is_refused(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    contents.receive(HASH, BYTES[:10], offset=0, total=len(BYTES))
    with pytest.raises(BadBinary, match="bytes 10 to 20 of a program are missing"):
        contents.receive(HASH, BYTES[20:], offset=20, total=len(BYTES))
    assert contents.status(HASH).bytes == 10


@pytest.mark.parametrize("wrong", [BYTES[:-1] + b"?", BYTES + b"?"])
def test_other_bytes_than_were_said_are_thrown_away(tmp_path: Path, wrong: bytes) -> None:
    contents = Contents(tmp_path)
    with pytest.raises(BadBinary, match="and not 10,240 with"):
        contents.receive(HASH, wrong, offset=0, total=len(BYTES))
    with pytest.raises(NoSuchAction):
        contents.status(HASH)
    assert sent(contents, BYTES) == HASH


@pytest.mark.parametrize("total", [0, module.MOST_BYTES + 1])
def test_too_much_and_nothing_are_refused(tmp_path: Path, total: int) -> None:
    with pytest.raises(BadBinary, match="is not accepted"):
        Contents(tmp_path).receive(HASH, b"", offset=0, total=total)


@pytest.mark.parametrize("name", ["../jobs.sqlite", HASH.upper(), HASH[1:], ""])
def test_what_is_no_hash_leads_nowhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSuchAction, match="not a SHA-256"):
        Contents(tmp_path).path(name)


def test_damaged_bytes_are_not_run(tmp_path: Path) -> None:
    sent(Contents(tmp_path), BYTES)
    contents = Contents(tmp_path)
    assert not contents.checked(HASH)
    path = contents.path(HASH)
    assert contents.checked(HASH)
    path.chmod(0o755)
    path.write_bytes(BYTES[:-1] + b"?")
    assert not contents.checked(HASH)
    with pytest.raises(StoreBroken, match="damaged"):
        contents.path(HASH)


def test_what_was_on_its_way_is_gone_after_a_restart_and_does_not_pile_up(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    for number in range(module.MOST_PARTS + 5):
        contents.receive(f"{number:064x}", b"half", offset=0, total=8)
    assert len(list(tmp_path.iterdir())) == module.MOST_PARTS
    sent(contents, BYTES)
    Contents(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [HASH]


# names


def test_versions_are_numbered_and_the_newest_is_not_added_again(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    one, two = sent(binaries.contents, b"one"), sent(binaries.contents, b"two")
    assert [str(binaries.add("score", sha256)) for sha256 in (one, one, two, one)] == [
        "score@1",
        "score@1",
        "score@2",
        "score@3",
    ]
    assert binaries.find("score@2").sha256 == two
    assert binaries.find("score@latest").sha256 == one
    assert binaries.path(binaries.find("score@2").sha256).read_bytes() == b"two"
    again = kept(tmp_path)
    assert again.all() == binaries.all()


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    binaries.add("score", sent(binaries.contents, b"one"))
    with pytest.raises(NoSuchAction, match='no action "scroe"') as close:
        binaries.find("scroe@1")
    assert close.value.hint == 'did you mean "score"?'
    with pytest.raises(NoSuchAction, match='no version 7 of action "score"') as version:
        binaries.find("score@7")
    assert version.value.hint == "versions that are there: 1"
    with pytest.raises(NoSuchAction, match=HASH):
        binaries.add("score", HASH)


def test_a_number_is_not_given_again(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    one = sent(binaries.contents, b"one")
    binaries.add("score", one)
    binaries.remove("score", None, unused)
    with pytest.raises(NoSuchAction):
        binaries.path(one)
    assert str(binaries.add("score", sent(binaries.contents, b"one"))) == "score@2"


def test_a_version_that_a_job_runs_stays_and_so_do_the_others(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    one, two = sent(binaries.contents, b"one"), sent(binaries.contents, b"two")
    for sha256 in (one, two):
        binaries.add("score", sha256)
    for version in (1, None):
        with pytest.raises(
            ActionInUse, match='version 1 of action "score" is in use by job "shop"'
        ) as error:
            binaries.remove("score", version, lambda: {one: ["shop"]})
        assert "millstream undeploy shop" in str(error.value.hint)
    assert len(binaries.all()) == 2
    assert [str(gone) for gone in binaries.remove("score", 2, lambda: {one: ["shop"]})] == [
        "score@2"
    ]


def test_bytes_with_another_name_stay(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    one = sent(binaries.contents, b"one")
    for name in ("score", "rank"):
        binaries.add(name, one)
    binaries.remove("score", None, unused)
    binaries.drop(one, unused)
    assert binaries.path(one).read_bytes() == b"one"
    with pytest.raises(ActionInUse, match='in use by jobs "a", "b"'):
        binaries.drop(one, lambda: {one: ["a", "b"]})


def test_what_a_flow_names_is_pinned(tmp_path: Path) -> None:
    binaries = kept(tmp_path)
    one, two = sent(binaries.contents, b"one"), sent(binaries.contents, b"two")
    binaries.add("score", one)
    binaries.add("score", two)
    named = ("score@1", "score@latest", "./other", "python3")
    assert binaries.pinned(named) == {"score@1": one, "score@latest": two}
    # Another engine has the names: its word counts, and the bytes have to be here.
    assert binaries.pinned(["rank@9"], {"rank@9": one}) == {"rank@9": one}
    with pytest.raises(NoSuchAction):
        binaries.pinned(["rank@9"], {"rank@9": HASH})


def test_a_store_of_an_earlier_version_gets_what_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    before = sqlite3.connect(file)
    before.executescript(
        f"{stores._JOBS} PRAGMA user_version = 1; INSERT INTO facts VALUES ('node', '0 of 1');"
    )
    before.close()
    store = Store(file)
    assert store.fact("node", "1 of 2") == "0 of 1"
    assert str(store.add_binary("score", HASH, 3, 1.0)) == "score@1"
    assert [str(one) for one in store.binaries()] == ["score@1"]
