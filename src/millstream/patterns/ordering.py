"""What the rows of a batch are ordered by."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Ordering:
    """One expression of an ORDER BY."""

    sql: str
    column: str = ""
    falling: bool = False
    nulls_first: bool = True

    @classmethod
    def of(cls, tree: exp.Expr) -> Ordering:
        """Return the ordering that a tree of sqlglot says, in which missing values have a place."""
        falling = bool(tree.args.get("desc"))
        plain = isinstance(tree.this, exp.Column) and len(tree.this.parts) == 1
        return cls(
            tree.this.sql(dialect="spark"),
            tree.this.name if plain else "",
            falling,
            bool(tree.args.get("nulls_first")),
        )

    @property
    def rising_column(self) -> str:
        """The column, if it is a plain one that rises."""
        return "" if self.falling else self.column
