"""Which engine an address belongs to."""

from __future__ import annotations

import pytest

from millstream.actions.scheme import Node, Scheme
from millstream.engine.jobs.status import Peer
from millstream.engine.schemes.elsewhere import owners_of
from millstream.errors import InvalidScheme

TWO = [Peer("http://127.0.0.1:8340", "10.0.0.5"), Peer("https://127.0.0.2:8340", "10.0.0.6")]


def scheme(*addresses: str) -> Scheme:
    return Scheme("s", (Node("a", "./a", addresses), Node("stage", "./s")), (("a", "stage"),))


def test_one_engine_has_all_addresses() -> None:
    assert owners_of(scheme("192.0.2.1:1", "localhost:2"), []) == {
        "192.0.2.1:1": 0,
        "localhost:2": 0,
    }
    assert owners_of(scheme("192.0.2.1:1"), TWO[:1]) == {"192.0.2.1:1": 0}


def test_an_address_belongs_to_the_engine_that_is_asked_or_has_inboxes_there() -> None:
    found = owners_of(scheme("10.0.0.6:1", "127.0.0.1:2", "127.0.0.2:3", "10.0.0.5:4"), TWO)
    assert found == {"10.0.0.6:1": 1, "127.0.0.1:2": 0, "127.0.0.2:3": 1, "10.0.0.5:4": 0}


def test_an_address_of_no_engine_is_refused() -> None:
    with pytest.raises(InvalidScheme, match=r'no engine is at "10\.0\.0\.7:1"'):
        owners_of(scheme("10.0.0.7:1"), TWO)
