"""Functions of Spark SQL as Python."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from millstream.patterns.codes import Build

CALLS: Final[dict[type[exp.Expr], Build]] = {}
