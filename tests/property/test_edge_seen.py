"""An event at the edge meets the tests that it meets in a batch, with the same values."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given, settings

from millstream.errors import FlowError
from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.edge import EdgePattern
from property.patterns_random import patterns, streams, table

SCHEMA = Schema.parse("at timestamp_ntz, x bigint")


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["typed", "as they come"])
@settings(max_examples=150)
@given(pattern=patterns(), rows=streams())
def test_an_event_is_seen_as_it_is_in_a_batch(schema, pattern, rows):
    try:
        edge = EdgePattern.of(pattern, schema=schema, time="at", key=())
    except FlowError:
        assume(False)
    whole = table(rows)
    quiet, found = edge.automaton.quiet, events.events(edge.automaton, whole, "at")
    for event in found:
        seen = edge.seen(("s", event.number), event.at, event.row)
        if event.met == 0 and quiet:
            assert seen is None
        else:
            assert (seen.met, seen.values) == (event.met, event.values)
            sent = msgspec.msgpack.decode(msgspec.msgpack.encode(seen.row))
            assert edge.received(seen.id, seen.at, sent) == seen
