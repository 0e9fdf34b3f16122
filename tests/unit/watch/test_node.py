"""When peers learn that a match has reached its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from millstream.clock import SystemClock
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.device import Device
from millstream.watch.disk import Store
from millstream.watch.node import Node
from millstream.watch.outbox import Outbox
from millstream.watch.settings import Settings

AB = Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").within("1 hour")
SETTINGS = Settings("A", "tcp://127.0.0.1:1", ("A", "B"), (), None)


@contextmanager
def opened(folder: Path, incarnation: str = "1") -> Iterator[Node]:
    """A device with a peer that it has not reached yet, and two outputs."""
    edge = EdgePattern.of(AB, schema=None, time="at", key=())
    device = Device([edge], "A", incarnation, ["B"])
    outbox = Outbox(folder / "outbox", f"A@{incarnation}", ["quick", "slow"])
    store = Store(folder / "state", limit=1_000_000)
    node = Node(device, SETTINGS, SystemClock(), store=store, outbox=outbox)
    with closing(store), closing(node):
        yield node


def find(node: Node) -> None:
    for number, kind in enumerate("ab"):
        node.take([(("s", number), number, {"kind": kind}, None)])


def delivered(node: Node) -> int:
    return len(node.device.snapshot().delivered)


def test_a_match_is_delivered_when_every_output_has_it(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        find(node)
        assert node.outbox is not None
        (entry,) = node.outbox.read("quick", timeout=0)
        assert delivered(node) == 0
        node.outbox.done("quick", entry.number)
        assert delivered(node) == 0
        node.outbox.done("slow", entry.number)
        assert delivered(node) == 1


def test_after_a_crash_before_its_delivery_it_is_in_the_outbox_once(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        find(node)  # a close writes nothing that was not there before
    with opened(tmp_path, "2") as again:
        assert again.outbox is not None
        (entry,) = again.outbox.read("slow", timeout=0)
        assert (entry.sender, delivered(again)) == ("A@1", 0)
        for output in ("quick", "slow"):
            again.outbox.done(output, entry.number)
        assert delivered(again) == 1
    with opened(tmp_path, "3") as third:
        assert delivered(third) == 1
        assert third.device.undelivered == []


def test_it_is_marked_before_the_cursor_moves(tmp_path: Path) -> None:
    """A crash between the two repeats a delivery with the number that it had."""
    with opened(tmp_path) as node:
        find(node)
        assert node.outbox is not None
        outbox, waiting = node.outbox, []
        mark = outbox.on_delivered

        def noted(runs):
            mark(runs)
            waiting.append(outbox.waiting()["slow"])

        outbox.on_delivered = noted
        (entry,) = outbox.read("slow", timeout=0)
        for output in ("quick", "slow"):
            outbox.done(output, entry.number)
        assert waiting == [1]


def test_runs_that_a_peer_does_not_know_are_named_as_outputs_name_them(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        find(node)
        assert node.outbox is not None
        (entry,) = node.outbox.read("quick", timeout=0)
        assert node.unknown()[entry.run] == ["B"]
