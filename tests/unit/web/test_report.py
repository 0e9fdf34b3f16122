import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from millstream.web import Check, Figure, Number, Report, Section, Series, html, lines, write

AT = datetime(2013, 3, 8, 14, 30, tzinfo=UTC)
VOID = {"meta", "link", "img", "br"}


def full_report(**changes) -> Report:
    figure = Figure(
        "Lag",
        lines([Series("a", [(0, 1.0), (1, 2.0)]), Series("b", [(0, 2.0)], 2)]),
        "in rows",
        "half",
    )
    values = {
        "title": "A run of <flights> & more",
        "text": 'it said "hello"',
        "made_at": AT,
        "numbers": [Number("flights", "336,776", "counted")],
        "checks": [Check("every flight was counted once", "all equal", ok=True)],
        "graph": '<svg xmlns="http://www.w3.org/2000/svg"><text>graph</text></svg>',
        "sections": [Section("The run", "what it did", [figure])],
        "facts": [("Spark", "4.3.0")],
    }
    return Report(**(values | changes))


class Balance(HTMLParser):
    """Fails on an element that is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.links += [
            value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")
        ]
        if (
            tag not in VOID
            and f"<{tag}" in self.get_starttag_text()
            and not self.get_starttag_text().endswith("/>")
        ):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(report: Report) -> Balance:
    found = Balance()
    found.feed(html(report))
    assert found.open == []
    return found


def test_a_page_is_well_formed_and_loads_nothing():
    page = read(full_report())
    assert all(link.startswith("data:") for link in page.links)
    text = html(full_report())
    # The names of XML are not addresses: nothing is fetched from there.
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", text)
    assert "http://" not in text
    assert "https://" not in text


def test_text_is_escaped():
    text = html(full_report())
    assert "<h1>A run of &lt;flights&gt; &amp; more</h1>" in text
    assert "<flights>" not in text


def test_the_verdict_counts_the_promises_that_were_kept():
    checks = [Check("one", "yes", ok=True), Check("two", "3 missing", ok=False)]
    text = html(full_report(checks=checks))
    assert '<p class="verdict bad"><b>✗</b> 1 of 2 promises kept</p>' in text
    assert not full_report(checks=checks).ok
    assert full_report().ok


def test_a_legend_names_the_lines():
    assert (
        '<ul class="legend"><li><i class="c1"></i>a</li><li><i class="c2"></i>b</li></ul>'
        in html(full_report())
    )


@pytest.mark.parametrize("empty", ["numbers", "checks", "sections", "facts"])
def test_a_part_that_is_empty_leaves_no_trace(empty):
    read(full_report(**{empty: ()}))


def test_a_report_without_a_graph_has_none():
    assert "<img" not in html(full_report(graph=None))


def test_a_report_is_written_whole_and_its_folder_made(tmp_path):
    path = tmp_path / "out" / "report.html"
    write(full_report(), path)
    assert path.read_text() == html(full_report())
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("count", "row"), [(1, 1), (6, 6), (7, 4), (8, 4), (9, 5)])
def test_no_number_stands_alone_in_a_second_row(count, row):
    numbers = [Number(f"n{one}", "1") for one in range(count)]
    assert f'<dl class="numbers" style="--row: {row}">' in html(full_report(numbers=numbers))
