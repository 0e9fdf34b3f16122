"""A sender's name belongs to one client at a time, the newest, whatever dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LinkError, SenderReplaced
from millstream.journal.kinds.files.claims import ClaimsFile
from millstream.links.claims import Claims, Turn, above, turn
from millstream.links.inbox import Inbox
from millstream.links.inbox_store import Capacity
from support.links import batch, declare, stored


def file_of(folder: Path) -> Path:
    return folder / "p0000" / "claims"


def opened(folder: Path) -> Claims:
    file_of(folder).parent.mkdir(exist_ok=True)
    return Claims(ClaimsFile(folder, 0))


_INCARNATIONS = st.integers(0, 1 << 40)


@given(_INCARNATIONS)
def test_a_new_client_may_always_take_over(current: int) -> None:
    assert turn(current, above(current)) is Turn.TAKES_OVER
    assert above(current) > current


@given(_INCARNATIONS, _INCARNATIONS)
def test_of_two_that_differ_one_is_replaced(first: int, second: int) -> None:
    mine, other = above(first, 1), above(second, 2)
    assert {turn(mine, other), turn(other, mine)} == {Turn.TAKES_OVER, Turn.REPLACED}


def test_two_that_count_alike_differ() -> None:
    assert len({above(7) for _ in range(20)}) == 20


def test_numbers_cannot_be_used_up() -> None:
    assert turn(above(0), 1 << 62) is Turn.REPLACED


def test_clients_without_an_incarnation_take_over_once(tmp_path: Path) -> None:
    claims = opened(tmp_path)
    assert claims.turn("a", 0) is Turn.ITS_OWN
    assert not file_of(tmp_path).exists()
    mine = claims.take("a", above(0))
    assert claims.turn("a", 0) is Turn.TAKES_OVER
    claims.take("a", 0)
    assert claims.turn("a", 0) is Turn.ITS_OWN
    with pytest.raises(SenderReplaced):
        claims.turn("a", mine)
    assert claims.turn("a", above(claims.current("a"))) is Turn.TAKES_OVER


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200), st.data())
def test_what_was_taken_is_known_after_a_kill(
    tmp_path_factory: pytest.TempPathFactory, takes: list[tuple[str, bool]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("claims")
    file = file_of(folder)
    claims, known = opened(folder), dict.fromkeys("abc", 0)
    for sender, plain in takes:
        known[sender] = claims.take(sender, 0 if plain else above(claims.current(sender)))
        if data.draw(st.booleans()):
            with file.open("ab") if file.exists() else file.open("wb") as torn:
                torn.write(b'12345678 ["a", 99'[: data.draw(st.integers(0, 17))])
            claims = opened(folder)
    assert {sender: claims.current(sender) for sender in "abc"} == known


def test_the_file_stays_small(tmp_path: Path) -> None:
    claims = opened(tmp_path)
    for _ in range(500):
        claims.take("a", above(claims.current("a")))
    assert len(file_of(tmp_path).read_bytes().splitlines()) < 70
    assert opened(tmp_path).current("a") == claims.current("a")


def test_lines_of_the_version_before_are_read(tmp_path: Path) -> None:
    opened(tmp_path)
    file_of(tmp_path).write_bytes(b'c8aedd95 ["a", 16777221, null]\nae3373e0 ["b", 5]\n')
    claims = opened(tmp_path)
    assert (claims.current("a"), claims.current("b"), claims.key("a")) == (16777221, 5, None)
    claims.bind("a", "till")
    assert file_of(tmp_path).read_bytes().splitlines()[-1] == b'a25bad71 ["a", 16777221, "till"]'


def test_an_older_client_is_refused_even_what_is_there(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    inbox = Inbox(description, 0, settings)
    first, second = above(0), above(above(0))
    inbox.enqueue_nowait("a", range(5), batch(0, 5), incarnation=first).result()
    assert inbox.rights.claim("a", second) == second
    with pytest.raises(SenderReplaced):
        inbox.enqueue_nowait("a", range(5), batch(0, 5), incarnation=first)
    assert inbox.rights.claim("a", first) == second
    taken = inbox.enqueue_nowait("a", range(6), batch(0, 6), incarnation=second).result()
    assert (taken.taken, taken.repeated) == (6, 5)
    inbox.close()
    assert stored(tmp_path) == [[0, 1, 2, 3, 4, 5]]


def test_a_client_of_the_version_before_goes_on(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    inbox = Inbox(description, 0, settings)
    inbox.enqueue("a", range(5), batch(0, 5))
    mine = inbox.rights.claim("a", above(0))
    inbox.enqueue("a", range(5), batch(0, 5))  # what is there changes nothing
    inbox.enqueue_nowait("a", range(5, 6), batch(5, 6), incarnation=mine).result()
    inbox.enqueue("a", range(6, 7), batch(6, 7))
    with pytest.raises(SenderReplaced):
        inbox.enqueue_nowait("a", range(7, 8), batch(7, 8), incarnation=mine)
    inbox.close()
    assert stored(tmp_path) == [list(range(7))]


def test_numbers_do_not_jump_too_far_under_one_incarnation(tmp_path: Path) -> None:
    description, settings = declare(tmp_path)
    inbox = Inbox(description, 0, settings, capacity=Capacity(jump=1000))
    mine, next_ = above(0), above(above(0))
    inbox.enqueue_nowait("a", range(5), batch(0, 5), incarnation=mine).result()
    inbox.enqueue_nowait("a", range(1004, 1005), batch(5, 6), incarnation=mine).result()
    with pytest.raises(LinkError, match=r"has the number 9000, and the one before it has 1004"):
        inbox.enqueue_nowait("a", range(9000, 9001), batch(6, 7), incarnation=mine)
    inbox.enqueue_nowait("a", range(9000, 9001), batch(6, 7), incarnation=next_).result()
    inbox.close()
    assert stored(tmp_path) == [list(range(7))]
