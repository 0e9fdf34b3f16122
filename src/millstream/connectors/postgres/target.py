"""Writes a table of PostgreSQL, each epoch once: its key and its rows are one transaction."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import xxhash
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, StructType

from millstream.clock import moment_of
from millstream.connectors.postgres import Postgres
from millstream.connectors.postgres.copying import Copy, copy_all, copy_takeable, first_line
from millstream.errors import RunError
from millstream.extras import need
from millstream.secrets import Secret, hidden, value_of
from millstream.spark.failpoints import passing
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import PythonRows, in_python


class PostgresTarget(Target):
    """A table in PostgreSQL.

    The key of the epoch and the sink goes into the table `millstream_epochs`, in one transaction
    with the rows, so a repeated epoch adds nothing. If the job has a log, it decides right before
    the commit: a driver that was replaced meanwhile rolls back. One that sleeps in its transaction
    would be waited for, so whoever has the job ends the connections of those before it.
    """

    decides: ClassVar[bool] = True

    def __init__(self, target: Postgres, context: SinkContext) -> None:
        self._target = target
        self._context = context
        self._sink = context.sink

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        rows = in_python(frame.toArrow())
        if not len(rows) and not rows.refused:
            return 0
        import psycopg

        try:
            try:
                return self._write(rows, epoch, copy_all)
            except (psycopg.DataError, psycopg.IntegrityError, UnicodeEncodeError):
                return self._write(rows, epoch, copy_takeable)
        except psycopg.ProgrammingError as error:
            msg = f'table "{self._target.table}" does not take the results: {first_line(error)}'
            raise RunError(msg, hint="compare its columns with those of the sink") from error
        except psycopg.OperationalError as error:
            msg = f'PostgreSQL has ended the connection of sink "{self._sink}": {first_line(error)}'
            raise RunError(msg, hint="a new start goes on where it stopped") from error

    def _write(self, rows: PythonRows, epoch: Epoch, copy: Copy) -> int:
        from psycopg import sql

        with (
            self._connected(_name(epoch, self._sink)) as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            if epoch.log is not None:
                cursor.execute(_END_SLEEPERS, {"mine": _name(epoch, self._sink)})
            if not self._decided(cursor, epoch):
                return 0
            names = sql.SQL(", ").join(sql.Identifier(name) for name in rows.names)
            table = sql.Identifier(*self._target.table.split("."))
            refused = copy(cursor, sql.SQL("COPY {} ({}) FROM STDIN").format(table, names), rows)
            passing("staged")
            self._context.refuse([*rows.refused, *refused], epoch)
            epoch.decide(f"postgres:{self._context.owner}", "")
            passing("logged-decision")
        passing("published")
        return len(rows) - len(refused)

    def _decided(self, cursor: Any, epoch: Epoch) -> bool:
        """Write down the epoch; tell whether it was not yet.

        Before, the key had no sink in it: an epoch that such a key stands for is not repeated.
        """
        key = (epoch.job, f"{epoch.group}/{self._sink}", epoch.checkpoint, epoch.batch)
        cursor.execute(
            "INSERT INTO millstream_epochs (job, flow_group, checkpoint, batch) "
            "SELECT %s, %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM millstream_epochs "
            "WHERE job = %s AND flow_group = %s AND checkpoint = %s AND batch = %s) "
            "ON CONFLICT DO NOTHING",
            (*key, epoch.job, epoch.group, epoch.checkpoint, epoch.batch),
        )
        return bool(cursor.rowcount)

    def recover(self) -> None:
        with self._connected() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS millstream_epochs (job text, flow_group text, "
                "checkpoint text, batch bigint, written_at timestamptz DEFAULT now(), "
                "PRIMARY KEY (job, flow_group, checkpoint, batch))"
            )

    def prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist."""
        from psycopg import sql

        columns = [
            sql.SQL("{} {}").format(
                sql.Identifier(field.name), sql.SQL(_postgres_type(field.dataType))
            )
            for field in schema.fields
        ]
        table = sql.Identifier(*self._target.table.split("."))
        with self._connected() as connection:
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                    table, sql.SQL(", ").join(columns)
                )
            )

    def withdraw(self, column: str, since_us: int) -> None:
        from psycopg import sql

        table = sql.Identifier(*self._target.table.split("."))

        with self._connected() as connection, connection.transaction():
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE {} >= %s").format(table, sql.Identifier(column)),
                (moment_of(since_us),),
            )

    def _connected(self, name: str | None = None) -> Any:
        # psycopg is an extra; its types are not always there.
        need("postgres", "writing to PostgreSQL")
        import psycopg

        url, password = self._target.url, self._target.password
        try:
            proof = None if password is None else value_of(password)
            return psycopg.connect(value_of(url), password=proof, application_name=name)
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            # Not "from error": what psycopg says may have the whole address in it.
            reason = hidden(str(error).strip(), url, password).splitlines()[0]
            hint = f"check {url}" if isinstance(url, Secret) else "check the url of the sink"
            raise RunError(f"PostgreSQL cannot be reached: {reason}", hint=hint) from None


def _name(epoch: Epoch, sink: str) -> str | None:
    """Return a name for a connection: that of the epochs' sender and, at its end, of its driver."""
    if epoch.log is None:
        return None
    sender = xxhash.xxh3_64_hexdigest(f"{epoch.sender}/{sink}".encode())
    return f"millstream {sender} {epoch.log.generation:012d}"


#: Ends the connections of the same sender whose driver had the job before this one.
_END_SLEEPERS: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = current_user AND left(application_name, -12) = left(%(mine)s, -12)
    AND application_name COLLATE "C" < %(mine)s
"""

_POSTGRES_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def _postgres_type(kind: DataType) -> Any:
    name = kind.simpleString()
    if name.startswith("decimal"):
        return name.replace("decimal", "numeric")
    if isinstance(kind, ArrayType):
        return f"{_postgres_type(kind.elementType)}[]"
    if name in _POSTGRES_TYPES:
        return _POSTGRES_TYPES[name]
    hint = "turn it into text with to_json in a sql stage"
    raise RunError(f'a PostgreSQL sink cannot hold a column of type "{name}"', hint=hint)


def open_postgres(spec: Postgres, context: SinkContext) -> PostgresTarget:
    """Open the table of a sink."""
    return PostgresTarget(spec, context)
