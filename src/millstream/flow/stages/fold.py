"""`fold`: a user's function with a state of its own for each key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from millstream.errors import InvalidOption, Where
from millstream.flow.compiled import Compiled
from millstream.flow.declared import AnyFold, CompiledFold, DeclaredStep
from millstream.flow.durations import format as shown
from millstream.flow.jsonable import jsonable
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.declared_folds import output_of, read_folds, states_of
from millstream.flow.stages.named_states import NamedState, declared, initial_of, kept
from millstream.flow.stages.stage import Function, FunctionTable, OneInput, Reach, Stage, Tree
from millstream.flow.stages.state_fit import StateFit, fit_of_columns, fit_of_values
from millstream.flow.stages.upstream import Upstream, check_callable, schema_of

if TYPE_CHECKING:
    from millstream.flow.stream import Stream

#: No initial state was given: None is one.
_NONE: Final[Any] = object()


@dataclass(frozen=True, slots=True)
class Fold(OneInput):
    """A state per value of the `by` columns: step(state, row) -> (state, output row or None)."""

    kind: ClassVar[str] = "fold"
    state: ClassVar[str] = "a value per key"

    name: str
    input: str
    by: tuple[str, ...]
    step: Function
    initial: Any
    output: Schema
    order: Literal["time", "arrival"] = "time"
    shards: int = 64
    keep: timedelta | None = None
    states: tuple[NamedState, ...] = ()
    on_error: Literal["dead", "stop"] = "dead"
    #: Folds that are declared; `step` is the plain function that they equal.
    folds: tuple[AnyFold, ...] = ()
    #: Used in a switch alone, so it is not part of what the stage means.
    convert: Function | None = field(default=None, compare=False)
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        inputs[0]._check_time_kept(site, self.output, "its output")
        return inputs[0].derived(self.name, self.output)

    def described(self, fields: Tree) -> Tree:
        data = {**fields, "initial": jsonable(self.initial)}
        del data["on_error"]  # it changes neither results nor state
        if self.keep is None:
            del data["keep"]  # as before there was one
        del data["states"], data["convert"], data["folds"]
        if self.folds:
            del data["step"], data["initial"]  # they follow from the folds
            data["folds"] = {one.name: str(one) for one in self.folds}
        if self.states:
            columns = {one.name: [[c.name, c.type] for c in one.columns] for one in self.states}
            data["states"] = columns
        return data

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        if self.folds:
            own = [one for one in self.folds if isinstance(one, CompiledFold)]
            steps = {one.name: functions.stage_function(one.step) for one in own}
            return {**described, **({"steps": steps} if steps else {})}
        step, initial = functions.stage_function(self.step), functions.value(self.initial)
        return {**described, "step": step, "initial": initial}

    @property
    def extra(self) -> str | None:
        # Numba, which compiles functions.
        return "patterns" if any(isinstance(one, CompiledFold) for one in self.folds) else None

    @property
    def bounded_state(self) -> str:
        kept = f"{', '.join(map(str, self.states))} per key" if self.states else self.state
        return kept if self.keep is None else f"{kept}, for {shown(self.keep)}"

    @property
    def state_key(self) -> tuple[str, ...]:
        return self.by

    def fits_state_of(
        self, before: Stage, renames: Mapping[str, str], drops: Collection[str]
    ) -> StateFit:
        if not isinstance(before, Fold):
            return Stage.fits_state_of(self, before, renames, drops)
        if self.convert is not None:
            said = ("convert= makes the state of each key",)
            return StateFit(changes=said, convert=self.convert, states=kept(self.states))
        if self.states and before.states:
            columns = kept(before.states), kept(self.states)
            return fit_of_columns(*columns, self.initial, renames, drops)
        return fit_of_values(before.initial, self.initial)

    @property
    def carried_at_cut(self) -> bool:
        return self.order == "time"

    @property
    def dates_later(self) -> bool:
        return True

    def reach(self, service_window: timedelta) -> Reach:
        return Reach(handed_over=True)

    @property
    def grouped_by(self) -> tuple[str, ...]:
        return self.by

    @property
    def label(self) -> str:
        return f"fold by {', '.join(self.by)}" if self.by else "fold"


class FoldMethod(Upstream):
    """`stream.fold`."""

    __slots__ = ()

    def fold(
        self,
        name: str,
        step: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]] | None = None,
        *,
        initial: Any = _NONE,
        output: str | Schema | None = None,
        by: str | Sequence[str] | None = None,
        order: Literal["time", "arrival"] = "time",
        keep: str | timedelta | None = None,
        states: Mapping[str, str | Schema] | None = None,
        on_error: Literal["dead", "stop"] = "dead",
        convert: Callable[[Any], Any] | None = None,
        **folds: str | Compiled,
    ) -> Stream:
        """Return what `step` makes of the rows of each key, which has a state of its own.

        It is called as step(state, row) -> (state, row or None). Rows come in the order of event
        time, behind the watermark. With order="arrival" they come as they are read, which is
        faster and not the same at every replay.

        Instead of a step, declare folds by name. They need no call for each row, and make a row of
        every row:

            departures.fold("totals", by="origin", flights="count(*)", delay="sum(delay)")

        Args:
            name: The stage's name.
            step: A plain function; `row` is a dictionary.
            initial: The state of a key that has none yet, or a function that makes it; with
                `states`, values of their columns, the others are None.
            output: The columns of the rows that `step` returns, among them the time column. With
                `folds` it may be left out: the key, the time and the folds. Other columns that it
                names are those of the row.
            by: The columns or expressions that make a key; the stream's key if it is left out, []
                for one state over all.
            order: "time" or "arrival".
            keep: How long a key's state counts after its last row; permanently if it is left out. A
                row that comes so much later, in event time, finds the initial state.
            states: Several states by name, each with its columns: {"sums": "total double, n long"}.
                `step` gets and returns {"sums": {"total": 1.5, "n": 2}}, which is checked.
            on_error: What to do with a row on which `step` or an expression of `by` fails: "dead"
                makes it a dead letter, and the state of its key stays as it was; "stop" stops the
                group before it.
            convert: In a switch, makes the state of each key from that of the version before.
            folds: count(*), or count, sum, min, max, first or last of a column, or
                ewma(column, weight), or `ms.compiled`, by name.
        """
        site = self._site(name)
        _check_step(site, step, folds, alone=initial is _NONE and states is None)
        if convert is not None:
            check_callable(site, convert, 1, "convert(state)")
        _check_words(site, order, on_error)
        if order == "time":
            self._check_timed(site, "fold in the order of time", hint='or say order="arrival"')
        above, columns = self._keyed(site, self._own_key if by is None else by, "folds by")
        made = read_folds(site, above, folds, output)
        named = states_of(site, made) if states is None else declared(site, states)
        if named:
            initial = initial_of(site, named, None if initial is _NONE else initial)
        elif initial is _NONE:
            hint = "give initial=, or states="
            raise site.mistake(InvalidOption, "has no initial state", hint=hint)
        schema = _output(site, output, above, columns, made)
        if made:
            names = {one.name for one in made}
            step = DeclaredStep(made, tuple(one for one in schema.names if one not in names))
        assert step is not None
        stage = Fold(
            *(name, above.name, columns, step, initial, schema, order),
            folds=made,
            keep=_kept_for(site, keep, order),
            states=named,
            on_error=on_error,
            convert=convert,
            where=site.where,
        )
        return self.flow.add(stage, above)


def _check_words(site: Site, order: str, on_error: str) -> None:
    if order not in ("time", "arrival"):
        hint = 'order= is "time" or "arrival"'
        raise site.mistake(InvalidOption, f'folds in the order "{order}"', hint=hint)
    if on_error not in ("dead", "stop"):
        hint = 'on_error= is "dead" or "stop"'
        raise site.mistake(InvalidOption, f'has the on_error "{on_error}"', hint=hint)


def _kept_for(site: Site, keep: str | timedelta | None, order: str) -> timedelta | None:
    length = None if keep is None else site.positive(keep, "keep")
    if length is not None and order != "time":
        hint = 'leave out keep=, or say order="time"'
        msg = "keeps states for a time, and takes rows in the order of arrival"
        raise site.mistake(InvalidOption, msg, hint=hint)
    return length


def _check_step(
    site: Site, step: object, folds: Mapping[str, str | Compiled], *, alone: bool
) -> None:
    if not folds:
        check_callable(site, step, 2, "step(state, row)")
    elif step is not None or not alone:
        fact = f'has the fold "{next(iter(folds))}" beside a step, initial= or states='
        hint = "declare folds, or give a step with what it keeps"
        raise site.mistake(InvalidOption, fact, hint=hint)


def _output(
    site: Site,
    output: str | Schema | None,
    above: Upstream,
    by: tuple[str, ...],
    folds: tuple[AnyFold, ...],
) -> Schema:
    if output is not None:
        return schema_of(site, output)
    if not folds:
        hint = 'name the columns of its rows: output="key string, at timestamp, n long"'
        raise site.mistake(InvalidOption, "has no output", hint=hint)
    return output_of(site, above, by, folds)
