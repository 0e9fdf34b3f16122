"""The change log: against a log that keeps everything."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from millstream.watch.changes import ChangeLog

PEERS = ("B", "C")
Entry = tuple[str, int]


def log(limit: int = 1000) -> ChangeLog[Entry]:
    return ChangeLog(PEERS, lambda entry: entry[0], limit=limit)


def reached(limit: int = 1000) -> ChangeLog[Entry]:
    """Return a log whose peers have acknowledged their first RESYNC."""
    found = log(limit)
    for peer in PEERS:
        found.passed(peer, found.resync(peer))
    return found


def test_a_peer_needs_a_resync_until_one_was_acknowledged() -> None:
    changes = log()
    assert changes.trimmed("B")
    position = changes.resync("B")
    changes.append(("r1", 1))
    assert changes.trimmed("B")
    changes.passed("B", position)
    assert not changes.trimmed("B")
    assert changes.changes("B") == (1, [("r1", 1)])


def test_the_stash_is_what_is_behind_the_cursor() -> None:
    changes = reached()
    for number in range(3):
        changes.append((f"r{number}", number))
    changes.passed("B", 2)
    assert changes.changes("B") == (3, [("r2", 2)])
    assert changes.stash("C") == 3
    assert len(changes) == 3
    changes.passed("C", 3)
    assert len(changes) == 1  # B has not got it


def test_the_newest_entry_about_a_run_takes_the_place_of_the_older_ones() -> None:
    changes = reached()
    for entry in (("r1", 1), ("r2", 1), ("r1", 2)):
        changes.append(entry)
    assert changes.changes("B") == (3, [("r2", 1), ("r1", 2)])


def test_what_a_peer_has_sent_does_not_go_back_to_it() -> None:
    changes = reached()
    changes.append(("r1", 1), known_to="B")
    assert not changes.waiting("B")
    assert changes.changes("C") == (1, [("r1", 1)])
    changes.append(("r2", 1))
    changes.append(("r3", 1), known_to="B")
    assert changes.changes("B") == (3, [("r2", 1)])
    changes.append(("r3", 2))
    assert changes.changes("B") == (4, [("r2", 1), ("r3", 2)])


def test_a_log_over_its_limit_drops_the_oldest_and_the_peer_behind_needs_a_resync() -> None:
    changes = reached(limit=2)
    changes.append(("r1", 1))
    changes.passed("C", 1)
    for number in range(2, 4):
        changes.append((f"r{number}", 1))
    assert len(changes) == 2
    assert changes.trimmed("B")
    assert not changes.trimmed("C")
    changes.passed("B", 0)  # an acknowledgement from before
    assert changes.trimmed("B")


def test_a_wiped_stash_waits_for_a_resync_and_keeps_what_comes_after_it() -> None:
    changes = reached()
    changes.append(("r1", 1))
    changes.wipe("B")
    changes.passed("C", 1)
    assert (changes.trimmed("B"), changes.stash("B"), len(changes)) == (True, 0, 0)
    position = changes.resync("B")
    changes.append(("r1", 2))
    changes.wipe("B")  # the resync period goes on while the RESYNC is on its way
    changes.passed("B", position)
    assert not changes.trimmed("B")
    assert changes.changes("B") == (2, [("r1", 2)])


@dataclass
class Model:
    """Keeps everything; a peer's knowledge is what it was sent and has acknowledged."""

    entries: list[Entry] = field(default_factory=list)

    def state(self, position: int) -> dict[str, int]:
        return dict(self.entries[:position])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("pqrs"), st.sampled_from(["B", "C", None])),
        st.tuples(
            st.sampled_from(["send", "ack", "lose", "wipe"]), st.sampled_from(PEERS), st.none()
        ),
    ),
    max_size=80,
)


@given(steps=steps, limit=st.integers(1, 6))
def test_a_peer_that_acknowledges_has_all_that_the_log_covers(
    steps: list[tuple[str, str, str | None]], limit: int
) -> None:
    changes, model = log(limit), Model()
    knows: dict[str, dict[str, int]] = {peer: {} for peer in PEERS}
    way: dict[str, tuple[int, dict[str, int]]] = {}
    for what, who, other in steps:
        if what == "append":
            entry = (who, len(model.entries) + 1)  # rises, as states of a run do
            model.entries.append(entry)
            changes.append(entry, known_to=other)
            if other is not None:
                knows[other][who] = entry[1]
        elif what == "send" and changes.trimmed(who):
            position = changes.resync(who)
            way[who] = (position, model.state(position))
        elif what == "send":
            position, entries = changes.changes(who)
            assert len({about for about, _ in entries}) == len(entries)
            assert [number for _, number in entries] == sorted(number for _, number in entries)
            way[who] = (position, dict(entries))
        elif what == "lose":
            way.pop(who, None)
        elif what == "wipe":
            changes.wipe(who)
        elif who in way:
            position, content = way.pop(who)
            for about, number in content.items():
                knows[who][about] = max(number, knows[who].get(about, 0))
            changes.passed(who, position)
        check(changes, model, knows, limit)


def check(
    changes: ChangeLog[Entry], model: Model, knows: dict[str, dict[str, int]], limit: int
) -> None:
    assert len(changes) <= limit
    assert changes.end == len(model.entries)
    now = model.state(changes.end)
    for peer in PEERS:
        assert changes.waiting(peer) == (changes.stash(peer) > 0)
        if not changes.trimmed(peer):
            missing = dict(changes.changes(peer)[1])
            assert {**knows[peer], **missing} == now
