"""Values of all types are the same on every device, and after a restart."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from millstream.errors import DeviceRefused
from millstream.flow.schema import Schema
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.patterns.typed import coerced
from millstream.watch.device import Device, Sharing
from millstream.watch.messages import Records, Say

SCHEMA = Schema.parse(
    "day date, price decimal(8,2), local timestamp_ntz, kind string, at timestamp"
)
RISING = (
    Pattern("rising")
    .begin("a", "kind = 'a' and price > 1.5")
    .followed_by("b", "kind = 'b' and price > a.price and local > a.local")
    .within("1 hour")
    .emit("day, a.price as low, b.price as high, b.price - a.price as up, a.local as began")
)
EDGE = EdgePattern.of(RISING, schema=SCHEMA, time="at", key=["day"])
AT = 1_794_830_400_000_000


def event(kind: str, price: str, minute: int) -> dict[str, Any]:
    local = f"2026-11-16T12:{minute:02}:00"
    given = {"day": "2026-11-16", "price": price, "local": local, "kind": kind, "at": local}
    return coerced(given, SCHEMA)


FOUND = {
    "day": date(2026, 11, 16),
    "low": Decimal("2.50"),
    "high": Decimal("10.25"),
    "up": Decimal("7.75"),
    "began": datetime(2026, 11, 16, 12, 0),  # noqa: DTZ001
    "at": datetime(2026, 11, 16, 12, 5, tzinfo=UTC),
}


def test_a_run_of_another_device_goes_on_with_its_decimals_and_dates() -> None:
    one, two = (Device([EDGE], name, name + "1", [peer], Sharing()) for name, peer in ("AB", "BA"))
    assert one.event(("s", 1), AT, event("a", "2.50", 0)) == []
    for peer, say in one.due(0):
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(say), type=Say)
        ack, _ = two.receive("A", sent, 0)
        one.acknowledged(peer, ack, 0)
    (complete,) = two.event(("s", 2), AT + 300_000_000, event("b", "10.25", 5))
    assert dict(complete.event) == FOUND


def test_a_run_goes_on_after_a_restart_with_its_decimals_and_dates() -> None:
    device = Device([EDGE], "A", "A1")
    device.event(("s", 1), AT, event("a", "2.50", 0))
    records = msgspec.msgpack.encode(device.records())
    again = Device([EDGE], "A", "A2")
    again.restore(msgspec.msgpack.decode(records, type=Records))
    (complete,) = again.event(("s", 2), AT + 300_000_000, event("b", "10.25", 5))
    assert dict(complete.event) == FOUND


def test_a_row_of_a_peer_that_its_columns_cannot_hold_is_refused() -> None:
    one, two = (Device([EDGE], name, name + "1", [peer], Sharing()) for name, peer in ("AB", "BA"))
    one.event(("s", 1), AT, event("a", "2.50", 0))
    ((_, say),) = one.due(0)
    say.events[0].row["price"] = "much"
    with pytest.raises(DeviceRefused, match='event s:1 cannot be read: column "price"'):
        two.receive("A", say, 0)
