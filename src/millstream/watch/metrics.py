"""The numbers of a watcher for Prometheus, as text: no library is loaded for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from millstream.watch.status import WatcherStatus

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def exposition(status: WatcherStatus) -> str:
    """Return the status as Prometheus reads it."""
    return "".join(line + "\n" for line in _lines(status))


def _lines(status: WatcherStatus) -> Iterator[str]:
    one: Labels = {}
    yield from _metric("events_total", "counter", "Events that were taken.", [(one, status.events)])
    rejected = "Rows that are no events, and were put aside."
    yield from _metric("rejected_total", "counter", rejected, [(one, status.rejected)])
    others = "Events of sensors that another device takes."
    yield from _metric("elsewhere_total", "counter", others, [(one, status.elsewhere)])
    found = [({"pattern": each.name}, each.found) for each in status.patterns]
    yield from _metric("found_total", "counter", "Complex events that were published.", found)
    live = [({"pattern": each.name}, each.live) for each in status.patterns]
    yield from _metric("live_runs", "gauge", "Runs that may still complete.", live)
    away = [({"peer": each.name}, int(each.away)) for each in status.peers]
    yield from _metric("peer_away", "gauge", "Whether a peer is away.", away)
    stash = [({"peer": each.name}, each.stash) for each in status.peers]
    yield from _metric("peer_stash", "gauge", "Changes that a peer does not know.", stash)
    contact = [
        ({"peer": each.name}, each.heard_s) for each in status.peers if each.heard_s is not None
    ]
    yield from _metric("peer_contact_seconds", "gauge", "Time since the last contact.", contact)
    refused = [({"peer": each.name}, each.refused[0]) for each in status.peers if each.refused]
    why = "Messages of a peer that were refused here."
    yield from _metric("peer_refused_total", "counter", why, refused)
    waiting = [({"output": each.name}, each.waiting) for each in status.outputs]
    yield from _metric("output_waiting", "gauge", "Complex events to be delivered.", waiting)
    delivered = [({"output": each.name}, each.delivered) for each in status.outputs]
    yield from _metric("delivered_total", "counter", "Complex events delivered.", delivered)
    memory = [(one, status.memory_bytes)]
    yield from _metric("memory_bytes", "gauge", "Memory of the process.", memory)
    uptime = [(one, status.uptime_seconds)]
    yield from _metric("uptime_seconds", "gauge", "Time since the start.", uptime)


def _metric(
    name: str, kind: Literal["counter", "gauge"], about: str, samples: Iterable[Sample]
) -> Iterator[str]:
    listed = list(samples)
    if not listed:
        return
    full = f"millstream_watch_{name}"
    yield f"# HELP {full} {about}"
    yield f"# TYPE {full} {kind}"
    for labels, value in listed:
        text = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
        yield f"{full}{{{text}}} {value}" if text else f"{full} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
