"""Parts of SQL expressions as Python source, and the writer that joins them to one function.

The names in the source are ours: columns are locals (c0), literals and helpers are found in the
function's namespace (k0). No text of a user is ever part of the source.

    delay > 60 and origin in ('ACK', 'BOS')      c0 is not None and not c0 <= k0
                                                 and c1 is not None and c1 in k1

Each part of an expression is a `Code`: what must hold for its value not to be null, in the order in
which it must be asked, and the value then. So null costs a test where there may be one, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlglot import exp

from millstream.errors import FlowError, InvalidCondition, UnknownColumn
from millstream.flow.schema import Schema
from millstream.flow.site import meant
from millstream.patterns.conditions import Owner
from millstream.patterns.history import Value

Source = str


@dataclass(frozen=True, slots=True)
class Code:
    """A part of an expression in Python.

    Attributes:
        source: The value, if all of `when` hold.
        type: Its Spark type; None if only the row can tell.
        when: What holds if the value is not null, to be asked in this order.
        literal: Whether it is known beforehand: its value is `of`.
        written: Whether it stands as a literal in the SQL, and is not computed from one.
    """

    source: Source
    type: str | None = None
    when: tuple[Source, ...] = ()
    literal: bool = False
    of: Value = None
    written: bool = False

    @property
    def value(self) -> Source:
        """The value, or None for null."""
        return (
            f"({self.source} if {' and '.join(self.when)} else None)" if self.when else self.source
        )

    @property
    def true(self) -> Source:
        """Whether the value is true, so neither false nor null."""
        return f"({' and '.join((*self.when, self.source))})"

    @property
    def false(self) -> Source:
        """Whether the value is false, so neither true nor null."""
        return f"({' and '.join((*self.when, f'not {self.source}'))})"


NULL: Final = Code("None", "void", ("False",))
Build = Callable[["Writer", Any], Code]  # the second is the class of the tree that it is for


@dataclass
class Writer:
    """Writes the expressions of one function; numbers its columns, constants and locals.

    Attributes:
        builders: What makes code of each kind of tree.
        schema: The columns of the rows that are known.
        owner: Whose expressions they are, for the text of mistakes.
        open: Whether rows may have other columns too, of types that only they can tell.
        columns: The local of each column that is read.
    """

    builders: Mapping[type[exp.Expr], Build]
    schema: Schema
    owner: Owner
    open: bool = False
    namespace: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Source] = field(default_factory=dict)
    locals: int = 0
    #: The names by the ids of what they mean: equal values need not be of one type.
    _names: dict[int, Source] = field(default_factory=dict)

    def name(self, value: Any) -> Source:
        """Return the name of a value, or of a helper, in the function's namespace."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"k{len(self.namespace)}"
            self.namespace[name] = value
        return name

    def local(self) -> Source:
        """Return the name of a new local."""
        self.locals += 1
        return f"t{self.locals}"

    def column(self, name: str) -> Code:
        """Return a column; names are found as Spark finds them."""
        found = self.schema.find(name)
        if found is None and not self.open:
            fact = f'reads column "{name}", which the events do not have'
            raise self.owner.mistake(UnknownColumn, fact, hint=meant(self.schema, name))
        spelled, kind = (name, None) if found is None else (found.name, found.type)
        local = self.columns.setdefault(spelled, f"c{len(self.columns)}")
        return Code(local, kind, (f"{local} is not None",))

    def literal(self, value: Value, kind: str | None) -> Code:
        return Code(self.name(value), kind, literal=True, of=value)

    def written(self, value: Value, kind: str | None) -> Code:
        return Code(self.name(value), kind, literal=True, of=value, written=True)

    def call(self, helper: Callable[..., Value], kind: str | None, *args: Code) -> Code:
        """Return a call of a helper that is null if an argument is."""
        sources = ", ".join(arg.source for arg in args)
        return Code(f"{self.name(helper)}({sources})", kind, asked(*args))

    def kept(self, value: Source, kind: str | None) -> Code:
        """Return code for a value that may be None, computed once."""
        local = self.local()
        return Code(local, kind, (f"({local} := {value}) is not None",))

    # Trees

    def code(self, tree: exp.Expr) -> Code:
        """Return a tree as code.

        Raises:
            InvalidCondition: It uses what is not known here.
        """
        build = self.builders.get(type(tree))
        if build is None:
            raise self.refused(tree)
        return build(self, tree)

    def codes(self, trees: Sequence[exp.Expr]) -> list[Code]:
        return [self.code(tree) for tree in trees]

    def true(self, tree: exp.Expr) -> Source:
        """Return the source of whether a tree is true, which is simpler than its value."""
        return self._truth(tree, wanted=True)

    def false(self, tree: exp.Expr) -> Source:
        """Return the source of whether a tree is false."""
        return self._truth(tree, wanted=False)

    def _truth(self, tree: exp.Expr, *, wanted: bool) -> Source:
        match tree:
            case exp.Paren():
                return self._truth(tree.this, wanted=wanted)
            case exp.Not():
                return self._truth(tree.this, wanted=not wanted)
            case exp.And() | exp.Or():
                word = " and " if isinstance(tree, exp.And) is wanted else " or "
                sides = tree.flatten(unnest=False)
                return f"({word.join(self._truth(one, wanted=wanted) for one in sides)})"
        found = self.code(tree)
        if found.type not in (None, "boolean", "void"):
            raise self.refused(tree, f"takes a {found.type} for true or false")
        return found.true if wanted else found.false

    def refused(self, tree: exp.Expr, what: str | None = None) -> FlowError:
        """Return the error for a tree that cannot be computed here."""
        what = what or f"uses {_title(tree)}, which only Spark computes"
        fact = f'{what}: "{tree.sql(dialect="spark")}"'
        hint = "see what conditions may use at the edge in the guide, or give a Python predicate"
        return self.owner.mistake(InvalidCondition, fact, hint=hint)


def asked(*codes: Code) -> tuple[Source, ...]:
    """Return what holds if none of several values is null.

    Beside a null of the text itself nothing is computed, so nothing fails, as in Spark.
    """
    found = tuple(dict.fromkeys(one for code in codes for one in code.when))
    return NULL.when if NULL.when[0] in found else found


def divided(code: Code, left: Code, right: Code) -> Code:
    """Return a division that asks for its divisor first, as Spark does: the other may fail."""
    return replace(code, when=asked(right, left))


def compiled(name: str, parameters: str, body: Sequence[Source], writer: Writer) -> Any:
    """Return the Python function with this body.

    Raises:
        InvalidCondition: It is too deep for Python.
    """
    lines = [f"def {name}({parameters}):", *(f"    {line}" for line in body)]
    try:
        code = compile("\n".join(lines), f"<{name}>", "exec")
    except (MemoryError, RecursionError, SyntaxError):
        fact = "is nested too deeply"
        hint = "split it into several columns or blocks"
        raise writer.owner.mistake(InvalidCondition, fact, hint=hint) from None
    namespace = {**writer.namespace, "__builtins__": {}}
    exec(code, namespace)  # noqa: S102  (our own source: see codes.py)
    return namespace[name]


def _title(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous):
        return f"{tree.name.lower()}()"
    if isinstance(tree, exp.Func):
        return f"{tree.sql_name().lower()}()"
    return f"{type(tree).__name__.upper()}"
