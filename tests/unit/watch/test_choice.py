"""Which message goes to which peer: the periods of the seed, and the rules under random events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidSettings
from millstream.watch import choice
from millstream.watch.choice import Choice, Contact, Kind, Periods

S = 1_000_000
DEFAULT = Periods()
NEW = Contact(since=0)
REACHED = Contact(since=0, succeeded_at=0, attempted_at=0, reset=False)


def chosen(contact: Contact, at: float, *, stash: bool = False, trimmed: bool = False) -> str:
    found = choice.choose(contact, DEFAULT, int(at * S), stash=stash, trimmed=trimmed)
    return "" if found is None else str(found.kind)


# the seed's own scenario: cannot send data to another instance


def test_cannot_send_stash() -> None:
    """What could not be sent is tried again every 5 seconds, as a SYNC."""
    contact = choice.failed(choice.attempted(REACHED, Kind.SYNC, 10 * S))
    assert chosen(contact, 14.9, stash=True) == ""
    assert chosen(contact, 15, stash=True) == "sync"


def test_cannot_send_ping_period() -> None:
    """A SYNC is still sent if there is anything to say; a PING if there is not."""
    assert chosen(REACHED, 29.9) == ""
    assert chosen(REACHED, 30) == "ping"
    assert chosen(REACHED, 30, stash=True) == "sync"
    contact = choice.failed(choice.attempted(REACHED, Kind.PING, 30 * S))
    assert [chosen(contact, at) for at in (34.9, 35)] == ["", "ping"]
    assert chosen(contact, 35, stash=True) == "sync"


def test_cannot_send_resync_period() -> None:
    """The stash is wiped, and the whole state is sent, every 10 seconds."""
    contact = choice.failed(choice.attempted(REACHED, Kind.SYNC, 58 * S))
    assert not choice.wiped(contact, DEFAULT, 60 * S - 1)
    assert choice.wiped(contact, DEFAULT, 60 * S)
    assert choice.away(contact, DEFAULT, 60 * S)
    assert [chosen(contact, at, stash=True) for at in (59, 63, 67.9, 68)] == ["", "", "", "resync"]
    again = choice.succeeded(choice.attempted(contact, Kind.RESYNC, 68 * S), 69 * S)
    assert not choice.wiped(again, DEFAULT, 70 * S)
    assert not choice.away(again, DEFAULT, 70 * S)
    assert chosen(again, 70, stash=True) == "sync"


# the other rules


def test_a_peer_never_reached_gets_resync_with_reset_at_once() -> None:
    contact = Contact(since=5 * S)
    assert choice.choose(contact, DEFAULT, 5 * S, stash=False) == Choice(Kind.RESYNC, reset=True)
    assert not choice.away(contact, DEFAULT, 6 * S)
    assert choice.away(contact, DEFAULT, 65 * S)


def test_reset_stays_on_every_message_until_a_resync_was_merged() -> None:
    contact = choice.succeeded(choice.attempted(Contact(since=0), Kind.RESYNC, 0), S)
    sync = choice.choose(contact, DEFAULT, 2 * S, stash=True)
    assert sync == Choice(Kind.SYNC, reset=True)
    contact = choice.heard(contact, 3 * S, asks=False)
    assert choice.choose(contact, DEFAULT, 4 * S, stash=True) == sync
    contact = choice.heard(contact, 4 * S, asks=False, resync=True)
    assert choice.choose(contact, DEFAULT, 4 * S, stash=True) == Choice(Kind.SYNC, reset=False)


def test_a_peer_that_asks_gets_one_resync_and_one_more_if_it_asks_meanwhile() -> None:
    contact = choice.heard(REACHED, S, asks=True)
    assert chosen(contact, 1) == "resync"
    contact = choice.attempted(contact, Kind.RESYNC, 2 * S)
    assert chosen(choice.succeeded(contact, 3 * S), 3) == ""
    assert chosen(choice.succeeded(contact, 3 * S, asks=True), 3) == "resync"
    restarted = choice.heard(contact, 2 * S + 1, asks=True)
    assert chosen(choice.succeeded(restarted, 3 * S), 3) == "resync"


def test_an_acknowledged_sync_does_not_answer_a_peer_that_asks() -> None:
    contact = choice.heard(choice.attempted(REACHED, Kind.SYNC, 2 * S), S, asks=True)
    assert chosen(choice.succeeded(contact, 3 * S), 3) == "resync"


def test_a_peer_that_was_found_gets_its_message_at_once() -> None:
    contact = choice.failed(choice.attempted(REACHED, Kind.PING, 61 * S))
    greeting = choice.attempted(contact, Kind.PING, 80 * S)
    assert chosen(greeting, 80) == ""
    assert chosen(choice.failed(greeting), 89.9) == ""
    assert chosen(choice.greeted(greeting), 80) == "resync"


def test_a_peer_behind_the_trimmed_log_gets_a_resync() -> None:
    assert chosen(REACHED, 1, stash=True, trimmed=True) == "resync"


def test_a_peer_that_is_heard_of_is_not_away_even_if_it_cannot_be_reached() -> None:
    contact = choice.heard(REACHED, 55 * S, asks=False)
    assert chosen(contact, 60) == "resync"
    assert not choice.away(contact, DEFAULT, 60 * S)
    assert choice.away(contact, DEFAULT, 115 * S)


@pytest.mark.parametrize("name", ["ping", "resync", "stash_again", "ping_again", "limit"])
def test_a_period_has_a_length(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f'"{name}" has no length'):
        replace(DEFAULT, **{name: 0})


def test_the_ping_period_begins_before_the_resync_period() -> None:
    with pytest.raises(InvalidSettings, match=r'"ping" \(1 min\) is not below "resync"') as caught:
        Periods(ping=60 * S)
    assert caught.value.hint == '"resync" is 1 min: a peer is pinged before it counts as away'


# random lives of a peer

periods = st.builds(
    lambda ping, more, **other: Periods(ping=ping, resync=ping + more, **other),
    ping=st.integers(1, 40),
    more=st.integers(1, 40),
    stash_again=st.integers(1, 10),
    ping_again=st.integers(1, 10),
    resync_again=st.integers(1, 20),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["wait", "change", "ack", "fail", "trim", "asks", "heard", "resync"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@dataclass
class Life:
    """A peer, driven as a device does it."""

    periods: Periods
    contact: Contact = NEW
    now: int = 0
    stash: bool = False
    trimmed: bool = False
    sent: list[tuple[int, Choice, Contact, bool]] = field(default_factory=list)

    def step(self, what: str, pause: int) -> None:
        self.now += pause
        pending = self.contact.on_its_way
        if what == "change":
            self.stash = True
        elif what == "trim" and self.stash:
            self.trimmed = True
        elif what == "ack" and pending is not None:
            self.stash = self.stash and pending is Kind.PING
            self.trimmed = self.trimmed and pending is not Kind.RESYNC
            self.contact = choice.succeeded(self.contact, self.now)
        elif what == "fail" and pending is not None:
            self.contact = choice.failed(self.contact)
        elif what in {"asks", "heard", "resync"}:
            self.contact = choice.heard(
                self.contact, self.now, asks=what == "asks", resync=what == "resync"
            )
        self.send()

    def send(self) -> None:
        found = choice.choose(
            self.contact, self.periods, self.now, stash=self.stash, trimmed=self.trimmed
        )
        if found is not None:
            self.sent.append((self.now, found, self.contact, self.stash))
            self.contact = choice.attempted(self.contact, found.kind, self.now)


@given(periods=periods, steps=steps)
def test_no_attempt_is_repeated_within_its_period_nor_beside_another(
    periods: Periods, steps: list[tuple[str, int]]
) -> None:
    life = Life(periods)
    for step in steps:
        life.step(*step)
    for (before, _, _, _), (at, found, contact, _) in zip(life.sent, life.sent[1:], strict=False):
        assert contact.on_its_way is None
        assert not contact.failed or at - before >= periods.again(found.kind)


@given(periods=periods, steps=steps)
def test_every_message_is_the_one_of_its_period(
    periods: Periods, steps: list[tuple[str, int]]
) -> None:
    life = Life(periods)
    for step in steps:
        life.step(*step)
    for at, found, contact, stash in life.sent:
        if contact.succeeded_at is None or choice.wiped(contact, periods, at):
            assert found.kind is Kind.RESYNC
        if found.kind is Kind.PING:
            assert not stash
            assert contact.succeeded_at is not None
            assert at - contact.succeeded_at >= periods.ping
        assert found.reset == contact.reset
    assert life.sent[:1] == [] or life.sent[0][1] == Choice(Kind.RESYNC, life.sent[0][2].reset)


@given(periods=periods, steps=steps)
def test_something_is_always_sent_in_the_end_and_due_at_names_the_moment(
    periods: Periods, steps: list[tuple[str, int]]
) -> None:
    life = Life(periods)
    for step in steps:
        life.step(*step)
    if life.contact.on_its_way is not None:
        assert due(life) is None
        life.contact = choice.failed(life.contact)
    at = due(life)
    assert at is not None
    assert at <= life.now + periods.ping + periods.resync_again + periods.stash_again
    count = len(life.sent)
    if at > life.now:
        life.now = at - 1
        life.send()
        assert len(life.sent) == count
    life.now = at
    life.send()
    assert len(life.sent) == count + 1


def due(life: Life) -> int | None:
    return choice.due_at(
        life.contact, life.periods, life.now, stash=life.stash, trimmed=life.trimmed
    )


@given(periods=periods, at=st.integers(0, 200), steps=steps)
def test_a_stash_that_is_wiped_is_always_followed_by_a_resync(
    periods: Periods, at: int, steps: list[tuple[str, int]]
) -> None:
    life = Life(periods)
    for step in steps:
        life.step(*step)
    life.now += at
    if choice.wiped(life.contact, periods, life.now) and life.contact.on_its_way is None:
        life.stash = False
        while not life.sent or life.sent[-1][0] < life.now:
            life.now = due(life) or life.now
            life.send()
        assert life.sent[-1][1].kind is Kind.RESYNC
