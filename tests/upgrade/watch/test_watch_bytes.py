"""What devices of a release send and store, later ones read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from millstream.watch import session
from millstream.watch.choice import Kind
from millstream.watch.disk import Recovered, Store
from millstream.watch.messages import (
    Ack,
    Fork,
    Happened,
    Hello,
    Records,
    Refused,
    RunId,
    RunRecord,
    Say,
    Welcome,
)
from millstream.watch.replicator import Stored
from millstream.watch.session import Answer, Letter

RUN_ID: Final = RunId("rising", ("oven", 7), ("s", 1), (Fork(("s", 2), 1, 1), Fork(None, 0, 2)))
EVENT: Final = Happened(
    "s", 1, 1_767_225_600_000_000, {"heat": 90.5, "on": True, "note": None, "name": "é"}
)
RUN: Final = RunRecord(RUN_ID, 0, [(0, 0)], [1, 2], 3, "A", 5)
SAY: Final = Say(Kind.RESYNC, 9, True, 12, [EVENT], [RUN], [RUN_ID], 99, "a1")
RECORDS: Final = Records([EVENT], [RUN], [RUN_ID], [("rising", ("oven", 7), 0)], 8)

# Written by 0.2.0. Never edited: a later version adds its own beside them.
BYTES: Final = {
    "hello": ("4d53573195a548656c6c6fa141a26131a2306605"),
    "letter": (
        "4d53573196a64c6574746572a26131a2623104c39aa3536179a6726573796e6309c30c9194a17301cf000647"
        "484620400084a468656174cb4056a00000000000a26f6ec3a46e6f7465c0a46e616d65a2c3a9919794a67269"
        "73696e6792a46f76656e0792a17301929392a17302010193c00002009192000092010203a141059194a67269"
        "73696e6792a46f76656e0792a17301929392a17302010193c0000263a26131"
    ),
    "welcome": ("4d53573194a757656c636f6d65a142a2623106"),
    "answer": ("4d53573193a6416e737765720494a341636b09c207"),
    "refused": ("4d53573192a752656675736564a26e6f"),
    "snapshot": (
        "4d53574154434831f2e007c992a23066959194a17301cf000647484620400084a468656174cb4056a0000000"
        "0000a26f6ec3a46e6f7465c0a46e616d65a2c3a9919794a6726973696e6792a46f76656e0792a17301929392"
        "a17302010193c00002009192000092010203a141059194a6726973696e6792a46f76656e0792a17301929392"
        "a17302010193c000029193a6726973696e6792a46f76656e070008"
    ),
    "log": (
        "4d53574c4f4730314142434445464748812359d041424344454647488f0000008f48f8d0959194a17301cf00"
        "0647484620400084a468656174cb4056a00000000000a26f6ec3a46e6f7465c0a46e616d65a2c3a9919794a6"
        "726973696e6792a46f76656e0792a17301929392a17302010193c00002009192000092010203a141059194a6"
        "726973696e6792a46f76656e0792a17301929392a17302010193c000029193a6726973696e6792a46f76656e"
        "07000841424344454647480600000074f246607365636f6e64"
    ),
    # With notes of what is synced.
    "noted_log": (
        "4d53574c4f4730314142434445464748812359d041424344454647488f0000008f48f8d0959194a17301cf00"
        "0647484620400084a468656174cb4056a00000000000a26f6ec3a46e6f7465c0a46e616d65a2c3a9919794a6"
        "726973696e6792a46f76656e0792a17301929392a17302010193c00002009192000092010203a141059194a6"
        "726973696e6792a46f76656e0792a17301929392a17302010193c000029193a6726973696e6792a46f76656e"
        "07000841424344454647480000000098938b0b41424344454647480600000074f246607365636f6e64414243"
        "44454647480000000098938b0b"
    ),
}
MESSAGES: Final = {
    "hello": Hello("A", "a1", "0f", 5),
    "letter": Letter("a1", "b1", 4, True, SAY),
    "welcome": Welcome("B", "b1", 6),
    "answer": Answer(4, Ack(9, False, 7)),
    "refused": Refused("no"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_of_0_2_0_are_read_and_written_as_they_were(name: str) -> None:
    frame = bytes.fromhex(BYTES[name])
    read = session.request if name in {"hello", "letter"} else session.reply
    assert read(frame) == MESSAGES[name]
    assert session.encode(MESSAGES[name]) == frame


@pytest.mark.parametrize("log", ["log", "noted_log"])
def test_a_state_that_0_2_0_stored_is_read(log: str, tmp_path: Path) -> None:
    for name, stored in (("snapshot", "snapshot"), ("log", log)):
        (tmp_path / f"1.{name}").write_bytes(bytes.fromhex(BYTES[stored]))
    store = Store(tmp_path, limit=1_000_000)
    found = store.recover()
    store.close()
    assert found == Recovered(found.snapshot, (found.records[0], b"second"), 0)
    assert msgspec.msgpack.decode(found.snapshot or b"", type=Stored) == Stored("0f", RECORDS)
    assert msgspec.msgpack.decode(found.records[0], type=Records) == RECORDS
