"""Tables of PostgreSQL as targets of sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.spec import Tree
from millstream.flow.targets import Reprocessing, TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Postgres(TargetSpec):
    """A table in PostgreSQL; each result is in it once."""

    kind: ClassVar[str] = "postgres"
    writer: ClassVar[str] = "millstream.connectors.postgres.target:open_postgres"
    reprocessing: ClassVar[Reprocessing] = "withdrawn"

    url: str
    table: str
    mode: Literal["append"] = "append"

    @property
    def title(self) -> str:
        return "postgresql"

    @property
    def place(self) -> str:
        return self.table

    @classmethod
    def from_yaml(cls, entry: Entry) -> Postgres:
        return postgres(
            entry.needed("postgres", "an address"), table=entry.needed("table", "its name")
        )

    def to_yaml(self) -> Tree:
        return {"postgres": self.url, "table": self.table}


def postgres(url: str, *, table: str) -> Postgres:
    """Results as rows of a PostgreSQL table, each once.

    Args:
        url: As psycopg takes it: "postgresql://user@host/database".
        table: The table's name, with its schema if need be. It is created if it does not exist.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        msg = f'"{url}" is not the address of a PostgreSQL database'
        raise InvalidOption(msg, hint='write "postgresql://user@host/database"')
    return Postgres(url, table)


connector = Connector(targets=(Postgres,))
