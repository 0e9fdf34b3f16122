"""Tables of PostgreSQL as targets of sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.spec import Tree
from millstream.flow.stages import forms
from millstream.flow.targets import Reprocessing, TargetSpec
from millstream.secrets import Secret

if TYPE_CHECKING:
    from millstream.flow.document import Entry

SCHEMES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Postgres(TargetSpec):
    """A table in PostgreSQL; each result is in it once."""

    kind: ClassVar[str] = "postgres"
    title: ClassVar[str] = "postgresql"
    writer: ClassVar[str] = "millstream.connectors.postgres.target:open_postgres"
    reprocessing: ClassVar[Reprocessing] = "withdrawn"
    incidental: ClassVar[tuple[str, ...]] = ("password",)
    added: ClassVar[tuple[str, ...]] = ("password",)
    extra: ClassVar[str | None] = "postgres"

    url: str | Secret
    table: str
    mode: Literal["append"] = "append"
    password: Secret | None = None

    @property
    def place(self) -> str:
        return self.table

    @classmethod
    def from_yaml(cls, entry: Entry) -> Postgres:
        return postgres(
            entry.secret("postgres") or entry.needed("postgres", "an address"),
            table=entry.needed("table", "its name"),
            password=entry.secret("password") or entry.text("password"),  # type: ignore[arg-type]
        )

    def to_yaml(self) -> Tree:
        return forms.given({"postgres": self.url, "table": self.table, "password": self.password})


def postgres(url: str | Secret, *, table: str, password: Secret | None = None) -> Postgres:
    """Results as rows of a PostgreSQL table, each once.

    Args:
        url: As psycopg takes it: "postgresql://user@host/database"; or a secret.
        table: The table's name, with its schema if need be. It is created if it does not exist.
        password: The password of the user, as a secret.
    """
    if not isinstance(url, Secret) and not str(url).startswith(SCHEMES):
        msg = f'"{url}" is not the address of a PostgreSQL database'
        raise InvalidOption(msg, hint='write "postgresql://user@host/database"')
    if password is not None and not isinstance(password, Secret):
        hint = 'name it, ms.secret("postgres-password"), and give the value to the engine'
        raise InvalidOption("the password of a PostgreSQL sink is not a secret", hint=hint)
    if not table.strip():
        raise InvalidOption("a PostgreSQL sink has no table", hint='name one: table="results"')
    return Postgres(url, table, password=password)


connector = Connector(targets=(Postgres,))
