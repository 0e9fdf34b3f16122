"""What memos note of senders does not depend on which of them are read again."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from millstream.journal.base import Claim
from millstream.journal.kinds.kafka import noted
from millstream.journal.kinds.kafka.log import IndexRecord, What
from millstream.journal.kinds.kafka.noted import Noted, claim_memo, ended_memo
from millstream.journal.kinds.kafka.records import State, memo, noted_in, pack_snapshot

CLAIMS = st.builds(Claim, st.integers(0, 5), st.none() | st.sampled_from(["till", "desk"]))
MEMOS = st.lists(
    st.builds(claim_memo, st.sampled_from("ab"), CLAIMS)
    | st.builds(ended_memo, st.sampled_from("ab"))
)


def noted_of(memos: list[dict[str, object]]) -> Noted:
    found = Noted()
    for one in memos:
        found.take(one)
    return found


@given(MEMOS, st.integers(0, 20))
def test_memos_may_be_read_again_from_anywhere(memos: list[dict[str, object]], start: int) -> None:
    assert noted_of(memos + memos[start:]) == noted_of(memos)


@given(MEMOS)
def test_a_snapshot_notes_what_its_memos_did(memos: list[dict[str, object]]) -> None:
    found = noted_of(memos)
    record = IndexRecord(What.SNAPSHOT, body=pack_snapshot(State(), [], None, found.memos()))
    assert noted_of(noted_in(record)) == found
    old = IndexRecord(What.SNAPSHOT, body=pack_snapshot(State(), []))
    assert noted_in(old) == []


def test_the_copy_has_each_memo_once(tmp_path: Path) -> None:
    have = Noted()
    memos = [claim_memo("a", Claim(7)), {"description": "x"}, ended_memo("b")]
    for _ in range(2):
        for one in memos:
            noted.add(tmp_path, have, noted_in(memo(**one)))
    assert len(noted.file(tmp_path).read_bytes().splitlines()) == 2
    assert noted.read(tmp_path) == have == Noted({"a": Claim(7)}, ["b"])
    noted.add(tmp_path, have, [claim_memo("a", Claim(8))])
    noted.write(tmp_path, have)
    assert len(noted.file(tmp_path).read_bytes().splitlines()) == 2
    assert noted.read(tmp_path).claims == {"a": Claim(8)}
