"""HTML: the report of a run, in one file that needs nothing else."""

from millstream.web.history import Sample, lags, rates
from millstream.web.plots import Mark, Plot, Series, bars, heat, lines
from millstream.web.report import Check, Figure, Number, Report, Section, html, write

__all__ = [
    "Check",
    "Figure",
    "Mark",
    "Number",
    "Plot",
    "Report",
    "Sample",
    "Section",
    "Series",
    "bars",
    "heat",
    "html",
    "lags",
    "lines",
    "rates",
    "write",
]
