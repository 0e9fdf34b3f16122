"""The patterns of a flow that runs: their automata, and how many runs wait in each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.flow.flow import Flow
from millstream.flow.stages import Match
from millstream.patterns.automaton import Automaton
from millstream.plan.groups import Group, Plan
from millstream.spark.inspection.key_states import read_states
from millstream.spark.inspection.opened import opened
from millstream.spark.inspection.pattern_states import Waiting, runs_of
from millstream.spark.inspection.place import JobPlace
from millstream.spark.stages.match import recipe_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class LivePattern:
    """A pattern of a stage; `runs` are those of each key, None if they are not known (`why`)."""

    group: Group
    stage: Match
    automaton: Automaton
    #: The journal with its matches, if they go there as they are.
    journal: str | None
    batch: int | None = None
    runs: dict[str, Waiting] | None = None
    why: str | None = None

    @property
    def states(self) -> Counter[int]:
        """The runs in each state."""
        return sum((one.states for one in (self.runs or {}).values()), Counter())

    def oldest(self, most: int) -> list[tuple[str, Waiting]]:
        """Return the keys whose runs wait longest."""
        return sorted((self.runs or {}).items(), key=lambda one: one[1].since)[:most]


def live_patterns(
    spark: SparkSession, place: JobPlace, plan: Plan, schemas: Mapping[str, StructType]
) -> Iterator[LivePattern]:
    """Yield all patterns of a flow, with their live runs as of the last committed batches."""
    for group in plan.groups:
        for name in group.stages:
            stage = plan.flow.stages[name]
            if isinstance(stage, Match):
                yield from _of_stage(spark, place, plan.flow, group, stage, schemas)


def _of_stage(
    spark: SparkSession,
    place: JobPlace,
    flow: Flow,
    group: Group,
    stage: Match,
    schemas: Mapping[str, StructType],
) -> Iterator[LivePattern]:
    recipe = recipe_of(stage, schemas[stage.input], flow.stream(stage.input).time or "")
    journal = group.journal if group.output == stage.name else None
    batch, why = None, None
    found: list[dict[str, Waiting]] | None = None
    try:
        folder = next(one for one in place.current if one.partition("@")[0] == group.name)
        states = read_states(spark, opened(place, folder), stage.name)
        batch = states.batch
        found = [
            {
                key: waiting
                for data in states.shards.values()
                for key, waiting in runs_of(data, states.files, number)
            }
            for number in range(len(recipe.plans))
        ]
    except StopIteration:
        why = "no batch is committed yet"
    except MillstreamError as error:
        why = error.message
    for number, one in enumerate(recipe.plans):
        runs = None if found is None else found[number]
        yield LivePattern(group, stage, one.automaton, journal, batch, runs, why)
