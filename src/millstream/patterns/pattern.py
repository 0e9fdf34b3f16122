"""Patterns: what to look for in the events of a key; each call returns a new pattern.

    late = Pattern().begin("late", "delay > 60")
    late.followed_by("later", "delay > late.delay").times(3).within("2 hours")

Building one runs nothing. compile.py makes an automaton of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from millstream import errors
from millstream.flow.durations import duration
from millstream.flow.expressions import expression
from millstream.flow.schema import Schema
from millstream.flow.site import here
from millstream.flow.spelling import spelled_methods
from millstream.patterns.blocks import Block, Condition, Contiguity, Predicate, all_blocks, takes

if TYPE_CHECKING:
    from millstream.patterns.explain import Explanation

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Conditions = Condition | Sequence[Condition] | None
Inside = Union[Conditions, "Pattern"]
Length = str | timedelta


@dataclass(frozen=True, slots=True)
class Skip:
    """Where matching goes on after a match: which of the other runs are dropped."""

    kind: Literal["none", "next", "past_last", "to_first", "to_last"] = "none"
    block: str | None = None
    #: Whether a match without the block, or that begins with it, is an error.
    or_fail: bool = False

    def __str__(self) -> str:
        block = "" if self.block is None else f" of {self.block}"
        return f"{self.kind.replace('_', ' ')}{block}{' or fail' if self.or_fail else ''}"


NO_SKIP: Final = Skip()


#: How often a block may be taken at most: each time is a state of the automaton.
MOST_TIMES: Final = 100_000


@spelled_methods
@dataclass(frozen=True, slots=True)
class Pattern:
    """A sequence of blocks, with what holds for the whole of a run.

    Immutable: every call returns a new pattern, so a beginning may be shared. Options like `times`
    and `optional` are about the block before them. A condition is a Spark SQL expression;
    `late.delay` in it is a column of the event that block "late" took (the last one, if it took
    several), and first(), last(), any(), count(), sum(), avg(), min() and max() look at all of
    them. A list of conditions is met by an event that meets any of them.
    """

    name: str | None = None
    blocks: tuple[Block, ...] = ()
    span: timedelta | None = None
    skip: Skip = NO_SKIP
    required: tuple[Condition, ...] = ()
    halting: tuple[Condition, ...] = ()
    one_at_a_time: bool = False
    keys: tuple[str, ...] | None = None
    output: str | None = None
    late: bool = False
    rules: Literal["bobocep"] | None = None
    where: errors.Where | None = field(default=None, compare=False, repr=False)

    # Blocks

    def begin(
        self, name: str | Pattern, condition: Inside = None, *, within: Length | None = None
    ) -> Pattern:
        """Begin with a block; every event that meets it starts a run."""
        if self.blocks:
            msg = f"pattern{self._called} begins twice"
            hint = "start with begin(), continue with next() or followed_by()"
            raise errors.ImpossiblePattern(msg, hint=hint, where=here())
        begun = replace(self, where=here())
        return begun._add(name, condition, "relaxed", within)

    def next(
        self, name: str | Pattern, condition: Inside = None, *, within: Length | None = None
    ) -> Pattern:
        """Add a block that the very next event must meet, else the run halts."""
        return self._add(name, condition, "strict", within)

    def followed_by(
        self, name: str | Pattern, condition: Inside = None, *, within: Length | None = None
    ) -> Pattern:
        """Add a block that takes the next event that meets it; others are passed over."""
        return self._add(name, condition, "relaxed", within)

    def followed_by_any(
        self, name: str | Pattern, condition: Inside = None, *, within: Length | None = None
    ) -> Pattern:
        """Add a block that takes each later event that meets it: the run forks.

        This is relaxed-any contiguity, Flink's followedByAny. For "any of these conditions" give
        another block a list of them.
        """
        return self._add(name, condition, "any", within)

    def not_next(self, name: str, condition: Conditions) -> Pattern:
        """Add a condition that the very next event must not meet, else the run halts.

        That event is then tried on the block after this one.
        """
        return self._add(name, condition, "strict", None, negated=True)

    def not_followed_by(
        self, name: str, condition: Conditions, *, within: Length | None = None
    ) -> Pattern:
        """Add a condition that no event may meet before the next block matches.

        As the last block it needs `within`, its own or the pattern's: the pattern then matches when
        that time is up. Its own is counted from the event before.
        """
        return self._add(name, condition, "relaxed", within, negated=True)

    @staticmethod
    def either(*patterns: Pattern) -> Pattern:
        """Return a pattern that matches what any of several match; it can be a block of another."""
        if not patterns or not all(isinstance(one, Pattern) and one.blocks for one in patterns):
            msg = "alternatives must be patterns that have begun"
            hint = 'write Pattern.either(Pattern().begin("a", ...), ...)'
            raise errors.ImpossiblePattern(msg, hint=hint, where=here())
        bodies = tuple(one._as_body() for one in patterns)
        block = Block("", "relaxed", body=bodies, where=here())
        return Pattern(blocks=(block,), where=here())._checked(block)

    # Options of the block before

    def optional(self) -> Pattern:
        """Make the last block optional."""
        return self._change("is optional", optional=True)

    def times(
        self, least: int, most: int | None = None, *, within: Length | None = None
    ) -> Pattern:
        """Take the last block `least` times, or `least` to `most` times.

        With `within`, each event of the loop comes less than that after the one before. It is the
        same for other loops.
        """
        most = least if most is None else most
        self._check_times(most)
        whole = isinstance(least, int) and isinstance(most, int)
        if not whole or least < 0 or most < max(1, least):
            fact = f"is taken {least} to {most} times"
            hint = "give whole numbers, the lower one first: times(2, 4)"
            raise self._mistake(errors.InvalidOption, fact, hint=hint)
        return self._looping(
            max(1, least), most, within, optional=self._last.optional or least == 0
        )

    def _check_times(self, count: int) -> None:
        if isinstance(count, int) and count > MOST_TIMES:
            hint = f"at most {MOST_TIMES:,}: each run keeps its events; count more in a window"
            raise self._mistake(errors.InvalidOption, f"is taken {count:,} times", hint=hint)

    def _looping(
        self, least: int, most: int | None, within: Length | None, *, optional: bool
    ) -> Pattern:
        span = None if within is None else _positive(within, f"the loop of {self._last_name}")
        return self._change("loops", least=least, most=most, optional=optional, between=span)

    def one_or_more(self, *, within: Length | None = None) -> Pattern:
        """Take the last block once or more often."""
        return self._looping(1, None, within, optional=self._last.optional)

    def zero_or_more(self, *, within: Length | None = None) -> Pattern:
        """Take the last block any number of times, or not at all."""
        return self._looping(1, None, within, optional=True)

    def times_or_more(self, least: int, *, within: Length | None = None) -> Pattern:
        """Take the last block `least` times or more often."""
        self._check_times(least)
        if not isinstance(least, int) or least < 1:
            hint = "give a whole number above 0"
            raise self._mistake(errors.InvalidOption, f"is taken {least} times or more", hint=hint)
        return self._looping(least, None, within, optional=self._last.optional)

    def greedy(self) -> Pattern:
        """Offer no event to the next block that the last block, a loop, can take."""
        self._check_loop("is greedy", leaf=True)
        return self._change("is greedy", preference="greedy")

    def reluctant(self) -> Pattern:
        """Leave each event to the next block that it can take: the last block is a loop."""
        self._check_loop("is reluctant")
        return self._change("is reluctant", preference="reluctant")

    def consecutive(self) -> Pattern:
        """Let the last block, a loop, take only events that follow each other directly."""
        self._check_loop("is consecutive")
        return self._change("is consecutive", inner="strict")

    def combinations(self) -> Pattern:
        """Let the last block, a loop, pass over events that it could take: the run forks."""
        self._check_loop("allows combinations")
        return self._change("allows combinations", inner="any")

    def until(self, condition: Conditions) -> Pattern:
        """Let the last block, a loop, take no more events once one meets `condition`."""
        self._check_loop('has an "until"')
        conditions = _conditions(condition, f'"until" of {self._last_name}')
        return self._change("has an until", until=conditions)

    # The whole

    def within(self, span: str | timedelta) -> Pattern:
        """Limit a match to `span`: its last event comes less than that after its first."""
        return replace(self, span=_positive(span, "pattern" + self._called))

    def singleton(self) -> Pattern:
        """Let an event start a run only if its key has none that is live."""
        return replace(self, one_at_a_time=True)

    def key(self, *columns: str) -> Pattern:
        """Match the pattern for each value of these columns separately."""
        if not all(isinstance(column, str) and column for column in columns):
            msg = f"pattern{self._called} has a key that is not a column"
            hint = "name columns as text; none at all: one sequence over all events"
            raise errors.InvalidName(msg, hint=hint, where=here())
        return replace(self, keys=columns)

    def precondition(self, condition: Conditions) -> Pattern:
        """Halt a run at the first event that does not meet `condition`."""
        more = _each(condition, f"precondition of pattern{self._called}")
        return replace(self, required=(*self.required, *more))

    def halt(self, condition: Conditions) -> Pattern:
        """Halt a run at the first event that meets `condition`."""
        more = _each(condition, f"halt condition of pattern{self._called}")
        return replace(self, halting=(*self.halting, *more))

    def no_skip(self) -> Pattern:
        """Let a match leave all other runs alone; this is the default."""
        return replace(self, skip=NO_SKIP)

    def skip_to_next(self) -> Pattern:
        """Let a match drop the other runs that began with the same event."""
        return replace(self, skip=Skip("next"))

    def skip_past_last(self) -> Pattern:
        """Let a match drop all runs that began before its end: matches do not overlap."""
        return replace(self, skip=Skip("past_last"))

    def skip_to_first(self, block: str, *, or_fail: bool = False) -> Pattern:
        """Let a match drop the runs that began before the first event of `block`.

        A match without such an event drops none or, with `or_fail`, stops the query.
        """
        return replace(self, skip=Skip("to_first", self._known(block), or_fail))

    def skip_to_last(self, block: str, *, or_fail: bool = False) -> Pattern:
        """Let a match drop the runs that began before the last event of `block`."""
        return replace(self, skip=Skip("to_last", self._known(block), or_fail))

    def like_bobocep(self) -> Pattern:
        """Match by the rules of BoboCEP, for patterns that come from there."""
        return replace(self, rules="bobocep")

    def emit(self, output: str) -> Pattern:
        """Emit these columns for a match: "origin, first.at as began, count(worse.*) as n"."""
        return replace(self, output=output)

    def timeouts(self) -> Pattern:
        """Also emit the runs that ran out of time, with "timed_out" true beside their columns."""
        return replace(self, late=True)

    # What a flow asks (flow/matching.py)

    @property
    def reach(self) -> timedelta | None:
        """How long a match lasts at most; None if that is not known."""
        return self.span

    @property
    def independent(self) -> bool:
        """Whether what began before a moment has no say in what begins at it or later."""
        return self.skip.kind == "none" and not self.one_at_a_time

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The Python functions among the conditions."""
        blocks = list(all_blocks(self.blocks))
        conditions = [one for block in blocks for one in (*block.conditions, *block.until)]
        return tuple(
            one for one in (*conditions, *self.required, *self.halting) if not isinstance(one, str)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user should know: that its runs may live for ever."""
        from millstream.patterns.checks import endless

        return tuple(endless(self))

    @property
    def shared(self) -> bool:
        """Whether an event moves all runs in a state at once."""
        from millstream.patterns.compile import compile_pattern
        from millstream.patterns.sharing import shares

        try:
            return shares(compile_pattern(self), late=self.late)
        except errors.FlowError:
            return False  # it is refused where its columns are known

    @property
    def own_keys(self) -> tuple[str, ...] | None:
        """The key that the pattern names itself."""
        return self.keys

    def outcome(self, schema: Schema, *, time: str, key: Sequence[str], emit: str | None) -> Schema:
        """Return the columns of the matches in events with these columns."""
        from millstream.patterns.recipe import outcome

        return outcome(self, schema, time=time, key=key, emit=emit)

    def described(self) -> dict[str, Any]:
        """Return the pattern as data that JSON can hold."""
        from millstream.patterns.recipe import described

        return described(self)

    def explain(self) -> Explanation:
        """Return the automaton for people: print it, show it in a notebook, or take its `svg`."""
        from millstream.patterns.compile import compile_pattern
        from millstream.patterns.explain import Explanation

        return Explanation(compile_pattern(self, merges=False))

    # Inside

    def _add(
        self,
        name: str | Pattern,
        condition: Inside,
        contiguity: Contiguity,
        within: Length | None,
        *,
        negated: bool = False,
    ) -> Pattern:
        if not self.blocks and self.where is None:
            msg = f"pattern{self._called} does not begin"
            raise errors.ImpossiblePattern(msg, hint="the first block is begin()", where=here())
        group = next((one for one in (name, condition) if isinstance(one, Pattern)), None)
        called = "" if isinstance(name, Pattern) else name
        if group is not None and negated:
            msg, hint = f'block "{called}" negates a group', "negate a block with one condition"
            raise errors.ImpossiblePattern(msg, hint=hint, where=here())
        if group is None or not isinstance(name, Pattern):
            _check_name(called)
        limit = None if within is None else _positive(within, f'block "{called}"')
        if group is not None:
            block = replace(_group(group), name=called, contiguity=contiguity)
            block = replace(block, within=limit, where=here())
        else:
            tests = _conditions(condition, f'block "{called}"', required=negated)  # type: ignore[arg-type]
            block = Block(called, contiguity, tests, negated=negated, within=limit, where=here())
        return replace(self, blocks=(*self.blocks, block))._checked(block)

    def _as_body(self) -> tuple[Block, ...]:
        ours = Pattern(self.name, self.blocks, where=self.where)
        if replace(self, blocks=ours.blocks) != replace(ours, blocks=self.blocks):
            msg = f"a group{self._called} has options of a whole pattern"
            hint = "within, skip, key, emit, singleton and conditions on the run belong to the outer pattern"
            raise errors.ImpossiblePattern(msg, hint=hint, where=here())
        if not self.blocks:
            raise errors.ImpossiblePattern("a group has no blocks", hint="begin() it", where=here())
        return self.blocks

    def _checked(self, added: Block) -> Pattern:
        """Refuse names that are there twice."""
        seen = [block.name.lower() for block in all_blocks(self.blocks) if block.name]
        for block in all_blocks((added,)):
            if seen.count(block.name.lower()) > 1:
                msg = f'pattern{self._called} has two blocks "{block.name}"'
                hint = "give each block a name of its own"
                raise errors.DuplicateName(msg, hint=hint, where=block.where)
        return self

    def _change(self, fact: str, **options: object) -> Pattern:
        last = self._last
        if last.negated:
            hint = "only blocks that take events have it"
            raise self._mistake(errors.ImpossiblePattern, f"is negated and {fact}", hint=hint)
        return replace(self, blocks=(*self.blocks[:-1], replace(last, **options)))  # type: ignore[arg-type]

    def _check_loop(self, fact: str, *, leaf: bool = False) -> None:
        if not self._last.loops:
            hint = "say times() or one_or_more() before it"
            raise self._mistake(errors.ImpossiblePattern, f"{fact} and is no loop", hint=hint)
        if leaf and self._last.body:
            hint = "a loop of one block may have it"
            raise self._mistake(errors.ImpossiblePattern, f"{fact} and is a group", hint=hint)

    def _known(self, block: str) -> str:
        names = [one.name for one in all_blocks(self.blocks) if one.name and not one.negated]
        for name in names:
            if isinstance(block, str) and name.lower() == block.lower():
                return name
        msg = f'pattern{self._called} skips to block "{block}", which it does not have'
        raise errors.UnknownBlock(msg, hint=f"its blocks are {', '.join(names)}", where=here())

    @property
    def _last(self) -> Block:
        if not self.blocks:
            msg = f"pattern{self._called} has no block yet"
            hint = "options come after the block that they are about"
            raise errors.ImpossiblePattern(msg, hint=hint, where=here())
        return self.blocks[-1]

    @property
    def _last_name(self) -> str:
        return f'block "{self._last.name}"' if self._last.name else "a group"

    @property
    def _called(self) -> str:
        return "" if self.name is None else f' "{self.name}"'

    def _mistake(self, error: type[errors.FlowError], fact: str, *, hint: str) -> errors.FlowError:
        return error(f"{self._last_name} {fact}", hint=hint, where=here())


def _group(pattern: Pattern) -> Block:
    """Return one block of a pattern; a lone group is not wrapped again."""
    blocks = pattern._as_body()
    alone = blocks[0]
    if (
        len(blocks) == 1
        and alone.body
        and not alone.name
        and not alone.loops
        and not alone.optional
    ):
        return alone
    return Block("", body=(blocks,))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        msg = "a block has no name"
        raise errors.InvalidName(msg, hint="the first argument is the block's name", where=here())
    if not _NAME.fullmatch(name) or name.startswith("__"):
        msg = f'block "{name}" has a name that SQL cannot say'
        hint = 'use letters, digits and "_", starting with a letter'
        raise errors.InvalidName(msg, hint=hint, where=here())


def _positive(span: str | timedelta, owner: str) -> timedelta:
    try:
        length = duration(span)
    except errors.FlowError as error:
        msg = f"{owner} has a wrong within: {error.message}"
        raise type(error)(msg, hint=error.hint, where=here()) from None
    if not length:
        msg = f"{owner} has no time to match in"
        raise errors.InvalidOption(msg, hint='give a time: within("5 minutes")', where=here())
    return length


def _each(conditions: Conditions, owner: str) -> tuple[Condition, ...]:
    return _conditions(conditions, owner, required=True)


def _conditions(
    conditions: Conditions, owner: str, *, required: bool = False
) -> tuple[Condition, ...]:
    found: tuple[object, ...]
    if conditions is None:
        found = ()
    else:
        found = tuple(conditions) if isinstance(conditions, list | tuple) else (conditions,)
        if not found:
            msg = f"{owner} has an empty list of conditions"
            hint = "leave it out to take every event"
            raise errors.InvalidCondition(msg, hint=hint, where=here())
    if required and not found:
        msg = f"{owner} has no condition"
        raise errors.InvalidCondition(msg, hint="say which events it means", where=here())
    return tuple(_condition(one, owner) for one in found)


def _condition(condition: object, owner: str) -> Condition:
    if isinstance(condition, str):
        try:
            expression(condition)
        except errors.FlowError as error:
            msg = f"{owner} has a wrong condition: {error.message}"
            raise type(error)(msg, hint=error.hint, where=here()) from None
        return condition
    if callable(condition) and not isinstance(condition, type):
        if not any(takes(condition, count) for count in (1, 2)):
            msg = f"{owner} has a predicate that cannot be called as predicate(event, history)"
            hint = "it takes the event, and the history if it needs it"
            raise errors.InvalidCondition(msg, hint=hint, where=here())
        return condition
    msg = f"{owner} has {type(condition).__name__} as its condition"
    raise errors.InvalidCondition(msg, hint='write Spark SQL: "delay > 60"', where=here())


@spelled_methods
@dataclass(frozen=True, slots=True)
class Phenomenon:
    """One or more patterns under one name; a match of any of them produces it.

        Phenomenon("outage", (silent, failing), emit="site, started_at, ended_at")

    Args:
        name: What the matches are called.
        patterns: The patterns, each with a name of its own or numbered.
        emit: The columns of the complex event, for patterns that say none of their own.
    """

    name: str
    patterns: tuple[Pattern, ...]
    emit: str | None = field(default=None, compare=False)  # it is in the patterns

    def __post_init__(self) -> None:
        if not self.patterns or not all(isinstance(one, Pattern) for one in self.patterns):
            msg = f'phenomenon "{self.name}" has no patterns'
            raise errors.PatternError(msg, hint="give at least one Pattern", where=here())
        named = tuple(
            replace(
                one, name=one.name or f"{self.name}{number or ''}", output=one.output or self.emit
            )
            for number, one in enumerate(self.patterns)
        )
        names = [one.name for one in named]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            msg = f'phenomenon "{self.name}" has two patterns "{twice}"'
            raise errors.DuplicateName(msg, hint="give each a name of its own", where=here())
        object.__setattr__(self, "patterns", named)

    # What a flow asks (flow/matching.py)

    @property
    def reach(self) -> timedelta | None:
        """How long a match of any of the patterns lasts at most; None if that is not known."""
        spans = [pattern.span for pattern in self.patterns]
        known = [span for span in spans if span is not None]
        return max(known) if len(known) == len(spans) else None

    @property
    def independent(self) -> bool:
        """Whether what began before a moment has no say in what begins at it or later."""
        return all(pattern.independent for pattern in self.patterns)

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The Python functions among the conditions."""
        return tuple(one for pattern in self.patterns for one in pattern.predicates)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know: that runs may live for ever."""
        return tuple(warning for pattern in self.patterns for warning in pattern.warnings)

    @property
    def shared(self) -> bool:
        """Whether an event moves all runs in a state at once, of every pattern."""
        return all(pattern.shared for pattern in self.patterns)

    @property
    def own_keys(self) -> tuple[str, ...] | None:
        """The key that the patterns name themselves."""
        return next((pattern.keys for pattern in self.patterns if pattern.keys is not None), None)

    def outcome(self, schema: Schema, *, time: str, key: Sequence[str], emit: str | None) -> Schema:
        """Return the columns of the matches in events with these columns."""
        from millstream.patterns.recipe import outcome

        return outcome(self, schema, time=time, key=key, emit=emit)

    def described(self) -> dict[str, Any]:
        """Return the phenomenon as data that JSON can hold."""
        return {
            "phenomenon": self.name,
            "patterns": [pattern.described() for pattern in self.patterns],
        }
