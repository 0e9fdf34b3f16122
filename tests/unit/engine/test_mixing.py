"""Schemes with stages in Spark, as flows."""

from __future__ import annotations

import pytest

from millstream.actions.scheme import Node, Scheme
from millstream.connectors.inbox import Inbox
from millstream.engine.schemes.egress import position_of, serial_of
from millstream.engine.schemes.mixing import flow_of, sending, stages
from millstream.errors import FlowError
from millstream.flow.stages import Action, Journal, Merge, Source
from millstream.plan.groups import plan

AT = ("127.0.0.1:1",)


def scheme(*edges: tuple[str, str], runtimes: str = "") -> Scheme:
    names = dict.fromkeys(name for edge in edges for name in edge)
    nodes = tuple(
        Node(name, f"./{name}", AT if name in runtimes else (), ("-v",)) for name in names
    )
    return Scheme("s", nodes, edges)


def test_a_scheme_of_runtimes_alone_is_no_flow() -> None:
    assert flow_of(scheme(("a", "b"), ("b", "c"), runtimes="abc")) is None
    # Sources and sinks are runtimes, also without an address.
    assert flow_of(scheme(("a", "b"))) is None


def test_processors_without_an_address_are_stages() -> None:
    found = flow_of(scheme(("a", "b"), ("b", "c"), ("c", "d")))
    assert found is not None
    stage, source, journal = found.stages["b"], found.stages["b_in"], found.stages["c_out"]
    assert isinstance(stage, Action)
    assert (stage.argv, stage.format) == (("./b", "-v"), "raw")
    assert isinstance(source, Source)
    assert isinstance(source.origin, Inbox)
    assert source.origin.runtimes == ":0"
    assert isinstance(journal, Journal)
    assert "b_out" not in found.stages  # only what runtimes get is cut
    assert [group.name for group in plan(found).groups] == ["c_out"]


def test_a_stage_with_several_upstreams_merges_them() -> None:
    mixed = scheme(("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("b", "d"))
    found = flow_of(mixed)
    assert found is not None
    assert isinstance(found.stages["c_all"], Merge)
    assert (stages(mixed), sending(mixed)) == (("b", "c"), ("b", "c"))
    plan(found)


def test_a_runtime_between_stages_stays_one() -> None:
    mixed = scheme(("a", "b"), ("b", "r"), ("r", "c"), ("c", "d"), runtimes="r")
    found = flow_of(mixed)
    assert found is not None
    assert {"b_in", "b_out", "c_in", "c_out"} <= found.stages.keys()
    assert stages(mixed) == ("b", "c")


def test_a_node_whose_name_no_stage_can_have_is_refused() -> None:
    with pytest.raises(FlowError):
        flow_of(scheme(("a", "b.1"), ("b.1", "c")))


@pytest.mark.parametrize(
    "position", [0, 1, 2**32 - 3, 2**32 - 2, 2**32 - 1, 2**32, 2**33, 2**33 - 2]
)
def test_positions_are_serials_whose_id_is_never_0(position: int) -> None:
    assert position_of(serial_of(position)) == position
    assert serial_of(position) % 2**32
    assert serial_of(position) > serial_of(position - 1) if position else True
