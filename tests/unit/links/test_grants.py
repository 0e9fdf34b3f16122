"""What a key's file lets its owner do, and which senders' names are its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.links.grants import Grant, may_send_as, owner_of, parse
from millstream.links.quotas import Quota

KEYS = ["till", "till-1", "shop", "x.y"]
_NAMES = st.text("tilshop-1./xy_", min_size=1, max_size=8)


def allowed(key: str, sender: str, grant: Grant | None = None, **known: object) -> bool:
    given = {"stored": False, "bound": None, **known}
    return may_send_as(key, grant or Grant(), sender, KEYS, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sender", "owner"),
    [
        ("till", "till"),
        ("till/7", "till"),
        ("till-1", "till-1"),
        ("till-1:a", "till-1"),
        ("till-2", "till"),
        ("tills", None),
        ("till2", None),
        ("x.y.z", "x.y"),
        ("other", None),
    ],
)
def test_a_name_belongs_to_the_longest_key_that_it_begins_with(
    sender: str, owner: str | None
) -> None:
    assert owner_of(sender, KEYS) == owner
    assert [key for key in KEYS if allowed(key, sender)] == ([owner] if owner else [])


@given(_NAMES, st.lists(_NAMES, unique=True, max_size=5), st.booleans())
def test_no_name_belongs_to_two_keys(sender: str, keys: list[str], stored: bool) -> None:
    bound = keys[0] if keys else None
    may = [
        key for key in keys if may_send_as(key, Grant(), sender, keys, stored=stored, bound=bound)
    ]
    assert len(may) <= 1


def test_a_client_without_a_name_may_send_with_any_key() -> None:
    assert allowed("shop", f"client:{'0' * 32}")
    assert not allowed("shop", "client:7")


def test_the_file_lists_other_names() -> None:
    grant = parse({"senders": "orders/*, old"})
    assert allowed("shop", "orders/hourly/1", grant)
    assert allowed("shop", "old", grant)
    assert not allowed("shop", "older", grant)
    assert not allowed("shop", "till-2", parse({"senders": "till-2"}))  # it is another key's


def test_a_sender_of_the_version_before_belongs_to_who_uses_it_first() -> None:
    assert not allowed("shop", "cash", stored=False)
    assert allowed("shop", "cash", stored=True)
    assert allowed("shop", "cash", stored=True, bound="shop")
    assert not allowed("till", "cash", stored=True, bound="shop")


def test_a_grant_is_written_in_lines() -> None:
    assert parse({}) == Grant()
    found = parse({"may": "rows, end", "sources": "shop.*,bank.in"})
    assert found.may == {"rows", "end"}
    assert [found.reaches(one) for one in ("shop.sales", "bank.in", "bank.out")] == [
        True,
        True,
        False,
    ]
    for wrong in ({"may": "everything"}, {"may": ""}, {"source": "shop.sales"}):
        with pytest.raises(ValueError, match=r"no right|not known"):
            parse(wrong)


def test_a_quota_is_written_in_lines() -> None:
    assert parse({}).quota == Quota()
    lines = {"rows_per_second": "1000", "bytes_per_second": " 5 ", "connections": "4"}
    assert parse(lines).quota == Quota(1000, 5, 4)
    for wrong in ("0", "-1", "many", "1.5", "", "9" * 30):
        with pytest.raises(ValueError, match=r"connections is .* not a number above 0"):
            parse({"connections": wrong})
