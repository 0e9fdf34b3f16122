"""How Spark runs a kind of stage: what the kind's module in this room names `KIND`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millstream.errors import InternalError

if TYPE_CHECKING:  # not wanted in executors, which import what has a kind
    from millstream.flow.flow import Flow
    from millstream.flow.stages import Stage
    from millstream.flow.stages.state_fit import StateFit
    from millstream.spark.stages.build import Builder
    from millstream.spark.stages.sql_tests import Chosen
    from millstream.state import StateFiles


class ShardCarry(Protocol):
    """Makes the state of a changed stage's shards of what the stage before has kept."""

    def shard(self, old: StateFiles, new: StateFiles, token: str, shard: int, data: bytes) -> None:
        """Put down what a shard goes on with, under the token, given its manifest."""

    @property
    def remark(self) -> str:
        """What became of it, for the history; empty if there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A stage of both versions, as state is carried from one to the other."""

    #: Of the kind that has the function: see `SparkKind.build`.
    stages: tuple[Any, Any]
    builders: tuple[Builder, Builder]
    fit: StateFit
    cut_us: int


@dataclass(frozen=True, slots=True)
class SparkKind:
    """What Spark must know of a kind.

    Args:
        build: Returns the rows of a stage; `builder.frame` has those of its inputs. Its stage is of
            the kind that its module belongs to, so any type will do here.
        results: The same for a stage with which nothing more is done, if that differs.
        packed: The same for a stage whose results only tasks look at, which open them: packed.
        check: Refuses a frame that the stage must not return, while the flow is planned.
        ordered: It takes rows in an order of their own, so they must know their place.
        own_state: It keeps state in `transformWithState`, for which Spark has no store but RocksDB.
        whole_rows: It keeps whole rows, for which RocksDB is the better store unless they leave soon.
        sifts: It can leave out rows on which its expressions fail (`builder.sifted`).
        refuses: Tells whether rows may become its dead letters, in which no column is missing.
        chooses: Returns which rows a stage lets through, and which of their columns, if it does nothing
            else and Arrow can do that.
        carry: Returns what carries state over at a cut, where that is not a value per key.
    """

    build: Callable[[Any, Builder], DataFrame]
    results: Callable[[Any, Builder], DataFrame] | None = None
    packed: Callable[[Any, Builder], DataFrame] | None = None
    check: Callable[[Any, Flow, Any], None] | None = None
    ordered: bool = False
    own_state: bool = False
    whole_rows: bool = False
    sifts: bool = False
    refuses: Callable[[Any, Flow], bool] | None = None
    chooses: Callable[[Any, StructType], Chosen | None] | None = None
    carry: Callable[[Versions], ShardCarry] | None = None

    @property
    def slack_ms(self) -> int:
        """How far the watermark must stay behind the rows that may still come."""
        return 1 if self.own_state or self.whole_rows else 0


def kind_of(stage: Stage) -> SparkKind:
    """Return how Spark runs a stage."""
    # By its name: a flow's description never imports pyspark, nor a match numba before it is used.
    module = import_module(stage.spark or f"millstream.spark.stages.{stage.kind}")
    kind = getattr(module, "KIND", None)
    if not isinstance(kind, SparkKind):
        raise InternalError(f'module "{module.__name__}" has no KIND for the stages "{stage.kind}"')
    return kind
