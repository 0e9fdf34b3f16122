"""HTML: the report of a run in one file, and the timeline of matches."""

from millstream.web.history import Sample, lags, rates
from millstream.web.matches import plot
from millstream.web.plots import Mark, Plot, Series, bars, heat, lines
from millstream.web.report import Check, Figure, Number, Report, Section, html, write
from millstream.web.timeline import Dot, Span, Timeline, timeline

__all__ = [
    "Check",
    "Dot",
    "Figure",
    "Mark",
    "Number",
    "Plot",
    "Report",
    "Sample",
    "Section",
    "Series",
    "Span",
    "Timeline",
    "bars",
    "heat",
    "html",
    "lags",
    "lines",
    "plot",
    "rates",
    "timeline",
    "write",
]
