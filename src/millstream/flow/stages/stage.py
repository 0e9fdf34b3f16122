"""What every kind of stage answers: plan, YAML, switch and Spark ask it, and know none by name.

A kind is two files: `flow/stages/<kind>.py`, with a frozen dataclass that derives from `Stage`, and
`spark/stages/<kind>.py`, which builds it on Spark. `docs/contributing/adding_a_stage.md` adds one.

A stage holds what its user wrote, with every default filled in, so that nothing further down needs
to know where a value came from. `where` is the user's line and plays no part in comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from millstream.errors import FlowError, InvalidFunction, Where
from millstream.flow.site import Site
from millstream.flow.stages.state_fit import StateFit

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.schema import Schema
    from millstream.flow.stream import Stream

ZERO: Final = timedelta(0)
# JSON or YAML values, whose types Python cannot express briefly.
Tree = dict[str, Any]
#: Output names, each with its SQL expression.
Named = tuple[tuple[str, str], ...]
# A user's function over DataFrames or over a state and a row: only its user knows the types.
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the results of a stage, or of a chain of them, reach; None is open-ended."""

    horizon: timedelta | None = ZERO
    look_back: timedelta | None = ZERO
    handed_over: bool = False
    behind: timedelta = ZERO


class FunctionTable(Protocol):
    """Writes functions and values into a fingerprint."""

    def stage_function(self, function: Function) -> Any: ...
    def value(self, value: object) -> Any: ...


@dataclass(frozen=True)
class Stage:
    """A stage of a flow. A kind derives a frozen dataclass from it and overrides what differs.

    Methods of a `slots=True` dataclass cannot call `super()` without arguments; name the base.
    """

    __slots__ = ()

    #: The kind's word in descriptions and fingerprints, which are stored: it never changes.
    kind: ClassVar[str]
    #: What errors call it.
    noun: ClassVar[str] = "stage"
    #: The keys of which one makes an entry of a YAML file a stage of this kind.
    yaml_words: ClassVar[tuple[str, ...]] = ()
    #: The module that builds it on Spark; `millstream.spark.stages.<kind>` if it is left empty.
    spark: ClassVar[str] = ""
    #: Whether it does something besides answering, which two versions would do twice.
    acts: ClassVar[bool] = False
    #: Whether its results were owned by the stream's time at cuts that do not name their column.
    older_cuts_by_time: ClassVar[bool] = False

    if TYPE_CHECKING:
        # Every kind has these fields; as properties of this class they would become defaults.
        @property
        def name(self) -> str: ...
        @property
        def where(self) -> Where | None: ...
        @property
        def inputs(self) -> tuple[str, ...]: ...

    # what comes out of it

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        """Return the stream of its rows (columns, time, key, lateness), or report a mistake."""
        return inputs[0].derived(self.name, inputs[0].schema)

    # YAML

    @classmethod
    def yaml_inputs(cls, entry: Entry) -> list[str]:
        """Return the names of the streams that an entry reads."""
        return [entry.needed("from", "a stream")]

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        """Return the stream of the stage that an entry describes."""
        raise NotImplementedError

    def to_yaml(self, flow: Flow) -> Tree:
        """Return the entry that `from_yaml` reads."""
        site = Site(flow.name, self.name, self.noun, self.where)
        hint = "keep this flow in Python, or say it with sql"
        raise site.mistake(InvalidFunction, "calls a function, which YAML cannot hold", hint=hint)

    # its meaning

    def described(self, fields: Tree) -> Tree:
        """Return what `describe` shows of it, given its fields as JSON."""
        return fields

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        """Return what it means: what `described` says, its functions, the content of its files."""
        return described

    @classmethod
    def normal(cls, meaning: Tree) -> Tree:
        """Return the form that all spellings of one fingerprint share."""
        return meaning

    @property
    def extra(self) -> str | None:
        """The extra of the package that it needs to run, beside Spark."""
        return None

    @property
    def contents(self) -> tuple[str, ...]:
        """The files and folders, from the flow's folder, whose content is a part of its meaning."""
        return ()

    @property
    def program(self) -> str | None:
        """The program that an engine must keep for it, like `score@2`."""
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user should know before the flow runs."""
        return ()

    def objection(self, site: Site, *inputs: Stream) -> FlowError | None:
        """Return why a new stage like this would probably fail; one that runs already may go on."""
        return None

    @property
    def chooses(self) -> bool:
        """Whether it only chooses rows and columns: each result is of one row, the same every time."""
        return False

    # its state, and what a switch does with it

    @property
    def state(self) -> str:
        """What it keeps between batches, in a word or two; empty if it keeps nothing."""
        return ""

    @property
    def bounded_state(self) -> str:
        """What it keeps, with its bound."""
        return self.state

    @property
    def state_key(self) -> tuple[str, ...] | None:
        """The columns that its state is kept by, if it survives a change of the stage.

        None if it fits only an equal stage.
        """
        return None

    def refuses_state_of(self, before: Stage) -> str:
        """Return why the state of an earlier stage of this kind does not fit; empty if it does."""
        return ""

    def fits_state_of(
        self, before: Stage, renames: Mapping[str, str], drops: Collection[str]
    ) -> StateFit:
        """Return how the state of an earlier stage of this kind fits.

        Args:
            before: The stage in the version before.
            renames: Names of its states that a user maps to others.
            drops: Names of its states that a user wants to lose.
        """
        refused = self.refuses_state_of(before)
        return StateFit((refused,) if refused else ())

    @property
    def carried_at_cut(self) -> bool:
        """Whether its state can be that of all rows before a moment, and of no others."""
        return False

    @property
    def dates_later(self) -> bool:
        """Whether a result may be dated later than the row that made it."""
        return False

    def reach(self, service_window: timedelta) -> Reach:
        """Return how far its results reach, by themselves."""
        return Reach()

    def begun_before(self, above: timedelta | None, service_window: timedelta) -> timedelta | None:
        """Return how long before its time a row may have begun, given the longest of its inputs."""
        return ZERO if self.state else above

    @property
    def steps(self) -> tuple[timedelta, timedelta] | None:
        """How often a result starts, and how long each lasts, if they follow the clock."""
        return None

    @property
    def boundary(self) -> timedelta | None:
        """The time at whose multiples all its results end, if there is one."""
        every, size = self.steps or (None, None)
        return size if every == size else None

    @property
    def start(self) -> str | None:
        """The column that says when a result began, where that is not the stream's time."""
        return None

    @property
    def hidden_start(self) -> bool:
        """Whether its rows can carry the moment at which they began in a hidden column."""
        return False

    @property
    def grouped_by(self) -> tuple[str, ...] | None:
        """The columns whose values are in one result each; None if it does not group."""
        return None

    @property
    def key_expressions(self) -> Mapping[str, str]:
        """The columns of keys that it computes, with what they are computed by."""
        return {}

    def result_key(self, key: str | None) -> str | None:
        """Return the column that decides whose version a result is, given the stream's key."""
        return key

    # pictures

    @property
    def label(self) -> str:
        """What it does, in a word or two."""
        return self.kind


class OneInput(Stage):
    """A stage that reads one stream: its field `input`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def input(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


class EntryPoint(Stage):
    """A stage at which groups begin: it hands out the rows of a journal."""

    __slots__ = ()
    spark = "millstream.spark.stages.entry"

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    @property
    def journal_name(self) -> str:
        """The journal that is read."""
        return self.name

    @property
    def declared(self) -> Schema | None:
        """The columns that its user named; None if they are those of its input."""
        return None


class Written(EntryPoint):
    """An entry point that has a journal of its own."""

    __slots__ = ()
    #: Who writes it.
    writer: ClassVar[Literal["source", "group"]]

    if TYPE_CHECKING:

        @property
        def partitions(self) -> int: ...
        @property
        def key(self) -> str | None: ...
        @property
        def keep_for(self) -> timedelta | None: ...
        @property
        def keep_bytes(self) -> int | None: ...
        @property
        def address(self) -> str | None: ...

    @property
    def kept_whole(self) -> bool:
        """Whether nothing of the journal is ever removed."""
        return self.keep_for is None and self.keep_bytes is None
