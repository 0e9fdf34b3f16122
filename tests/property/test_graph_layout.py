"""Pictures of any flow and any pattern: nothing lies over anything else."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.errors import ImpossiblePattern
from millstream.graph.layout import Box, Size, layers, place
from millstream.patterns.compile import compile_pattern
from millstream.patterns.picture import MATCH, START
from millstream.patterns.picture import Picture as _Automaton
from millstream.plan.groups import plan as plan_of
from millstream.plan.picture import Picture as _Picture
from property.patterns_random import patterns
from property.plan_flows import flows


def apart(one: Box, other: Box, gap: float = 0.0) -> bool:
    beside = one.right + gap <= other.x + 0.01 or other.right + gap <= one.x + 0.01
    return beside or one.bottom + gap <= other.y + 0.01 or other.bottom + gap <= one.y + 0.01


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 30))
    nodes = [f"n{at}" for at in range(count)]
    edges = set()
    for at in range(1, count):
        for source in draw(st.sets(st.integers(0, at - 1), max_size=3)):
            edges.add((nodes[source], nodes[at]))
    sizes = {
        node: Size(draw(st.integers(20, 200)), 40.0, draw(st.sampled_from([10.0, 20.0, 35.0])))
        for node in nodes
    }
    return nodes, sorted(edges), sizes


@settings(max_examples=40)
@given(graphs())
def test_nodes_and_lanes_keep_apart(graph):
    nodes, edges, sizes = graph
    layout = place(sizes, edges, layers(nodes, edges), gap=12, between=40)
    boxes = list(layout.boxes.values()) + [
        lane for lanes in layout.lanes.values() for lane in lanes
    ]
    assert all(apart(one, other, 11.9) for one, other in combinations(boxes, 2))
    assert all(box.x >= 0 and box.y >= -0.01 for box in boxes)
    assert all(
        box.right <= layout.width + 0.01 and box.bottom <= layout.height + 0.01 for box in boxes
    )


@settings(max_examples=40)
@given(graphs())
def test_edges_lead_from_left_to_right_and_bend_between_layers_only(graph):
    nodes, edges, sizes = graph
    layout = place(sizes, edges, layers(nodes, edges), gap=12, between=40)
    for edge in edges:
        stops = [layout.boxes[edge[0]], *layout.lanes[edge], layout.boxes[edge[1]]]
        assert all(before.right_end + 39.9 <= after.left for before, after in pairwise(stops))


@settings(max_examples=40)
@given(flows(most=20))
def test_the_boxes_of_a_picture_keep_apart_and_inside(flow):
    picture = _Picture(plan_of(flow))
    boxes = list(picture.layout.boxes.values())
    assert all(apart(one, other, 9.9) for one, other in combinations(boxes, 2))
    for inside in picture.inside.values():
        inner = [inside.layout.boxes[name] for name in inside.cards]
        assert all(apart(one, other, 9.9) for one, other in combinations(inner, 2))
        assert all(box.right <= inside.size.width + 0.01 for box in inner)


@settings(max_examples=40)
@given(flows(most=20))
def test_every_number_of_a_picture_is_finite_and_on_the_page(flow):
    text = _Picture(plan_of(flow)).text()
    assert "nan" not in text
    assert "inf" not in re.sub(r"<text[^>]*>[^<]*</text>", "", text)
    width, height = (
        float(number) for number in re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups()
    )
    for found in re.finditer(
        r'<rect class="\w+" x="([\d.-]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)"', text
    ):
        x, y, w, h = map(float, found.groups())
        assert x >= 0
        assert x + w <= width
        assert y + h <= height


@settings(max_examples=40)
@given(patterns())
def test_the_words_and_boxes_of_an_automaton_keep_apart(pattern):
    try:
        automaton = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
    picture = _Automaton(automaton, "")
    boxes = list(picture.layout.boxes.values())
    assert all(apart(one, other) for one, other in combinations(boxes, 2))
    assert len(boxes) == len(picture.cards) + len(picture.forward)
    assert {MATCH, START} <= set(picture.cards)
    ElementTree.fromstring("".join(picture.parts()))
