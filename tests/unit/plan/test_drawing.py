from __future__ import annotations

import re
from pathlib import Path

import millstream as ms
from millstream.flow.load import load
from millstream.plan.drawing import Drawing, drawing
from millstream.plan.groups import plan
from millstream.plan.picture import svg

FLIGHTS = Path(__file__).parents[3] / "examples" / "flights" / "flow.py"


def shop() -> Drawing:
    flow = ms.Flow("shop")
    orders = flow.source(
        "orders", ms.inbox("shop string, amount double, at timestamp"), time="at", key="shop"
    )
    hours = orders.window("hours", by="shop", every="1 hour", total="sum(amount)")
    hours.sink("out", ms.jsonl("out"))
    return drawing(plan(flow), {"hours": {"shop": "string", "total": "double"}})


def test_a_graph_has_journals_groups_stages_and_sinks() -> None:
    found = shop()
    nodes = {one.id: one for one in found.nodes}
    assert set(nodes) == {"group out", "stage out/hours", "journal orders", "sink out"}
    stage = nodes["stage out/hours"]
    assert (stage.kind, stage.group, stage.state) == ("stage", "out", True)
    assert "sum(amount)" in (stage.text or "")
    assert stage.columns == {"shop": "string", "total": "double"}
    assert found.published == ("out",)
    box = nodes["group out"]
    assert box.x < stage.x
    assert stage.x + stage.width < box.x + box.width
    assert ("journal orders", "group out") in {(one.source, one.target) for one in found.arrows}


def test_a_graph_is_laid_out_as_the_picture_is() -> None:
    flow = plan(load(FLIGHTS))
    picture, found = svg(flow), drawing(flow)
    for node in found.nodes:
        if node.kind != "journal":
            assert f'x="{node.x:.1f}" y="{node.y:.1f}" width="{node.width:.1f}"' in picture, node
    for arrow in found.arrows:
        assert f'd="{arrow.path}"' in picture
    assert len(found.arrows) == len(re.findall(r'class="edge"', picture))
    for node in found.nodes:
        assert 0 <= node.x <= node.x + node.width <= found.width
        assert 0 <= node.y <= node.y + node.height <= found.height


def test_a_stage_that_calls_a_function_has_no_text() -> None:
    nodes = {one.id: one for one in drawing(plan(load(FLIGHTS))).nodes}
    assert nodes["stage totals/total"].text is None
