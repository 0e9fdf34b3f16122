import json
from html import unescape
from xml.etree import ElementTree

import pytest

from millstream.web.plots import Mark, Plot, Series, bars, heat, lines


def drawn(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def hover(plot: Plot) -> dict:
    return json.loads(unescape(drawn(plot).attrib["data-hover"]))


def path(plot: Plot, kind: str) -> str:
    return next(e.attrib["d"] for e in drawn(plot).iter("path") if kind in e.attrib["class"])


def test_a_line_has_a_point_for_every_value():
    plot = lines([Series("a", [(0, 1.0), (1, 2.0), (2, 1.5)])])
    assert path(plot, "line").count("L") == 2


def test_a_line_is_broken_where_a_value_is_missing():
    plot = lines([Series("a", [(0, 1.0), (1, 2.0), (1, None), (5, 1.0), (6, 2.0)])])
    assert path(plot, "line").count("M") == 2


def test_what_lies_under_the_pointer_is_written_in_full_with_its_unit():
    said = hover(lines([Series("a", [(0, 336_776.0), (1, 12.25)])], unit="rows"))
    assert said["series"][0]["text"] == ["336,776 rows", "12.2 rows"]


def test_a_value_beside_a_gap_is_still_said():
    said = hover(lines([Series("a", [(0, 1.0), (1, 2.0), (1, None), (5, 1.0)])]))
    assert said["series"][0]["text"] == ["1", "2", "1"]


def test_series_with_different_moments_share_one_axis():
    said = hover(lines([Series("a", [(0, 1.0)]), Series("b", [(1, 2.0)], 2)]))
    assert [one["text"] for one in said["series"]] == [["1", None], [None, "2"]]


def test_only_a_plot_of_several_lines_has_a_legend():
    one = Series("a", [(0, 1.0), (1, 2.0)])
    assert lines([one]).legend == ()
    assert lines([one, Series("b", one.points, 2)]).legend == (("a", 1), ("b", 2))


def test_a_mark_is_inside_the_picture_and_says_its_label():
    plot = lines(
        [Series("a", [(0, 1.0), (10, 2.0)])], marks=[Mark(4, "kill -9 <now>", until=6)], width=500
    )
    (group,) = (e for e in drawn(plot).iter("g") if e.attrib["class"] == "mark")
    assert group.findtext("text") == "kill -9 <now>"
    assert 0 < float(group.find("line").attrib["x1"]) < 500
    assert float(group.find("rect").attrib["width"]) > 0


@pytest.mark.parametrize(
    "points", [[], [(0, None)], [(3, 0.0)], [(0, -5.0), (1, 5.0)], [(0, 0.0), (1, 0.0)]]
)
def test_odd_data_is_drawn_all_the_same(points):
    drawn(lines([Series("a", points)], filled=True))


def test_bars_are_as_long_as_their_values():
    lengths = [
        float(e.attrib["d"].partition("h")[2].partition("q")[0])
        for e in drawn(bars([("a", 10.0, ""), ("b", 5.0, "of 3")])).iter("path")
    ]
    # The round end has the same size on every bar.
    assert (lengths[0] + 4) == pytest.approx(2 * (lengths[1] + 4), abs=0.2)


def test_no_bars_are_an_empty_picture():
    drawn(bars([]))


def test_cells_are_darker_the_higher_and_blank_where_there_is_nothing():
    plot = heat(
        [[0.0, 50.0, None], [99.0, 1000.0, -7.0]],
        ["a", "b"],
        ["x", "", "z"],
        low=0,
        high=100,
        said=said,
    )
    shades = [e.attrib["class"] for e in drawn(plot).iter("rect")]
    assert shades == ["cell h0", "cell h4", "cell h7", "cell h7", "cell h0"]


def said(row: int, column: int, value: float) -> str:
    return f"{row} {column} {value} <min>"


def test_a_cell_says_what_it_is():
    plot = heat([[3.0]], ["a"], ["x"], low=0, high=9, said=said)
    assert drawn(plot).find("rect/title").text == "0 0 3.0 <min>"


def test_names_of_columns_that_have_no_room_are_left_out():
    plot = heat([[1.0] * 200], ["a"], ["name"] * 200, low=0, high=9, said=said, width=400)
    assert 3 <= len([e for e in drawn(plot).iter("text") if e.text == "name"]) < 20
