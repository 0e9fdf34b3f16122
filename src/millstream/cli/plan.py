"""`millstream plan`: how a flow will run, and its mistakes."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from millstream.flow.load import load
from millstream.plan import draw
from millstream.plan.groups import plan as plan_flow
from millstream.plan.objections import check_new
from millstream.terminal.console import Console


def plan(
    flow: Annotated[Path, typer.Argument(metavar="FLOW", help="The flow: a .py or .yaml file.")],
    svg: Annotated[Path | None, typer.Option(help="Draw the graph into this file.")] = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="Also show what a switch of each group would cost.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the plan for machines.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not start Spark to check expressions and functions.")
    ] = False,
) -> None:
    """Show the groups of a flow and find its mistakes."""
    planned = plan_flow(load(flow))
    check_new(planned)
    if not quick:
        # Spark takes seconds to start, so it is only asked here, after our own checks.
        from millstream.spark.session.session import session
        from millstream.spark.stages.analyse import analyse

        with Console(stderr=True).status("asking Spark"):
            spark = session(
                planned.flow.name,
                master="local[1]",
                log=Path(".millstream") / planned.flow.name / "plan.log",
            )
            analyse(spark, planned, flow.resolve().parent)
    if svg is not None:
        svg.write_text(draw.svg(planned))
    if json:
        print(jsonlib.dumps(draw.to_json(planned), indent=2))
    else:
        print(draw.tree(planned, switch=switch))
