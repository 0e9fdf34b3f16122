"""What every storage promises: the same checks run on all of them.

A storage brings a fixture `storage`, empty at first. It pickles, so other processes can use it too.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import Any

import pytest

from millstream.errors import InternalError
from millstream.storage import Storage

_SPAWN = multiprocessing.get_context("spawn")
_LARGE = 1 << 20
_ROUNDS = 40


def _elsewhere(work: Callable[..., None], *arguments: Any) -> Any:
    process = _SPAWN.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def _compete(storage: Storage, me: int, wins: Queue[tuple[int, int]]) -> None:
    for round_ in range(_ROUNDS):
        if storage.put_if_absent(f"decided/{round_}", str(me).encode()):
            wins.put((round_, me))
    wins.put((-1, me))


def _rewrite(storage: Storage) -> None:
    for number in range(_ROUNDS):
        storage.put("whole", bytes([number]) * _LARGE)
    storage.put("done", b"")


def _hold(storage: Storage, held: Queue[bool]) -> None:
    claim = storage.claim("lock")
    held.put(claim is not None)
    multiprocessing.Event().wait()  # until it is killed


class StorageChecks:
    """Subclass it and give a fixture `storage`."""

    def test_what_is_put_is_read_and_replaced(self, storage: Storage) -> None:
        assert storage.read("a/b") is None
        storage.put("a/b", b"one")
        assert storage.read("a/b") == b"one"
        storage.put("a/b", b"")
        assert storage.read("a/b") == b""

    def test_of_two_puts_if_absent_the_first_counts(self, storage: Storage) -> None:
        assert storage.put_if_absent("a", b"one")
        assert not storage.put_if_absent("a", b"two")
        assert storage.read("a") == b"one"
        storage.delete("a")
        assert storage.put_if_absent("a", b"three")

    def test_put_if_absent_has_one_winner_among_processes(self, storage: Storage) -> None:
        wins: Queue[tuple[int, int]] = _SPAWN.Queue()
        processes = [_elsewhere(_compete, storage, me, wins) for me in range(3)]
        found: dict[int, int] = {}
        ended = 0
        while ended < len(processes):
            round_, winner = wins.get(timeout=60)
            ended += round_ < 0
            if round_ >= 0:
                assert round_ not in found
                found[round_] = winner
        assert sorted(found) == list(range(_ROUNDS))
        for round_, winner in found.items():
            assert storage.read(f"decided/{round_}") == str(winner).encode()

    def test_a_reader_never_finds_half(self, storage: Storage) -> None:
        storage.put("whole", bytes(_LARGE))
        process = _elsewhere(_rewrite, storage)
        seen = set()
        while storage.read("done") is None:
            content = storage.read("whole")
            assert content is not None
            assert content == content[:1] * _LARGE
            seen.add(content[0])
            assert process.is_alive() or storage.read("done") is not None
        process.join(60)
        assert len(seen) > 1

    def test_a_list_has_what_was_put_and_nothing_else(self, storage: Storage) -> None:
        assert storage.list() == storage.list("some") == []
        for name in ("some/b", "some/a", "some/deep/er", "top"):
            storage.put(name, b"x")
        assert storage.list() == ["top"]
        assert storage.list("some") == ["some/a", "some/b"]
        storage.delete("some/a")
        assert storage.list("some") == ["some/b"]

    def test_sizes_are_of_all_that_is_in_a_folder_and_below_it(self, storage: Storage) -> None:
        assert storage.sizes() == storage.sizes("some") == {}
        for name, size in (("some/b", 3), ("some/deep/er/a", 0), ("some@2/a", 1), ("top", 2)):
            storage.put(name, bytes(size))
        assert storage.sizes("some") == {"some/b": 3, "some/deep/er/a": 0}
        assert storage.sizes() == {"some/b": 3, "some/deep/er/a": 0, "some@2/a": 1, "top": 2}

    def test_what_is_deleted_twice_is_gone(self, storage: Storage) -> None:
        storage.put("a", b"one")
        storage.delete("a")
        storage.delete("a")
        storage.delete("never/there")
        assert storage.read("a") is None
        assert storage.version("a") is None

    def test_a_folder_is_deleted_with_all_that_is_in_it_and_nothing_else(
        self, storage: Storage
    ) -> None:
        inside = [f"some/{number}" for number in range(60)] + ["some/deep/er/still"]
        for name in (*inside, "some@2/a", "top"):
            storage.put(name, b"x")
        for _ in range(2):
            storage.delete_all("some")
            assert [name for name in inside if storage.read(name) is not None] == []
            assert storage.list("some@2") == ["some@2/a"]
            assert storage.list() == ["top"]

    def test_a_version_changes_with_the_content_and_only_then(self, storage: Storage) -> None:
        assert storage.version("a") is None
        seen = set()
        for number in range(20):
            storage.put("a", str(number).encode())
            seen.add(storage.version("a"))
            assert storage.version("a") in seen
        assert len(seen) > 1

    @pytest.mark.parametrize("name", ["", ".", "..", "../a", "/a", "a/../b", ".hidden", "a/.b"])
    def test_names_stay_inside(self, storage: Storage, name: str) -> None:
        with pytest.raises(InternalError):
            storage.put(name, b"x")

    def test_a_storage_pickles(self, storage: Storage) -> None:
        storage.put("a", b"one")
        assert pickle.loads(pickle.dumps(storage)).read("a") == b"one"


class ClaimChecks:
    """For those storages that know when a process ends; subclass it as well."""

    def test_a_claim_is_held_by_one_process_until_it_ends(self, storage: Storage) -> None:
        held: Queue[bool] = _SPAWN.Queue()
        other = _elsewhere(_hold, storage, held)
        assert held.get(timeout=60)
        assert storage.claim("lock") is None
        assert storage.read("lock") == str(other.pid).encode()
        other.kill()
        claim = storage.claim("lock", timeout=60)
        assert claim is not None
        claim.release()
        claim.release()
        again = storage.claim("lock")
        assert again is not None
        again.release()
