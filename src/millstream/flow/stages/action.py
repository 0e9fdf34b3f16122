"""`action`: rows through a program in any language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, ClassVar, Literal, cast, get_args

from millstream.errors import InvalidOption, TimesDiffer, Where
from millstream.flow import binary
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.stage import FunctionTable, Named, OneInput, Tree
from millstream.flow.stages.upstream import Upstream, schema_of

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

Contract = Literal["one", "stream"]
Format = Literal["json", "msgpack", "arrow", "raw"]
Sandbox = Literal["usual", "strict", "none"]
_OPTIONS = (
    *("contract", "format", "env", "files", "memory_bytes", "cpu_seconds"),
    *("time_limit", "attempts", "user", "conn_whitelist"),
    *("processes", "file_bytes", "sandbox"),
)


@dataclass(frozen=True, slots=True)
class Action(OneInput):
    """A program in any language: it reads `columns` of a row and answers with those of `output`.

    The answer's columns are added to the row. With the contract "one" a row has one answer or none;
    with "stream" any number.
    """

    kind: ClassVar[str] = "action"
    yaml_words: ClassVar[tuple[str, ...]] = ("action",)
    acts: ClassVar[bool] = True

    name: str
    input: str
    argv: tuple[str, ...]
    columns: tuple[str, ...]
    output: Schema
    contract: Contract = "one"
    format: Format = "json"
    env: Named = ()
    files: tuple[str, ...] = ()
    time_limit: timedelta = timedelta(minutes=1)
    attempts: int = 3
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    user: str | None = None
    #: The addresses that it may connect to; empty: none; None: any.
    conn_whitelist: tuple[str, ...] | None = None
    processes: int | None = None
    file_bytes: int | None = None
    sandbox: Sandbox = "usual"
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        above = inputs[0]
        if above.schema is None:
            return above.derived(self.name, None)
        schema = Schema((*above.schema.without(self.output.names), *self.output))
        site.check_columns(schema)
        return above.derived(self.name, schema)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        argv, output = entry.texts("action") or [], entry.needed("output", "columns")
        given = entry.given(
            text=("contract", "format", "time_limit", "user", "sandbox"),
            texts=("input", "files", "conn_whitelist"),
            whole=("attempts", "memory_bytes", "cpu_seconds", "processes", "file_bytes"),
            named=("env",),
        )
        return inputs[0].action(name, argv, output=output, **given)

    def to_yaml(self, flow: Flow) -> Tree:
        columns = forms.columns(self.columns) or None
        tree = {"from": self.input, "action": list(self.argv), "input": columns}
        return forms.given({**tree, "output": self.output.ddl}) | forms.changed(self, *_OPTIONS)

    def described(self, fields: Tree) -> Tree:
        # Those that came later are left out where they are not used: fingerprints stay the same.
        usual = {"processes": None, "file_bytes": None, "sandbox": "usual"}
        return {name: value for name, value in fields.items() if usual.get(name, ...) != value}

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        shipped = {name: {"snapshot": snapshots.get(name)} for name in self.contents}
        return {**described, "shipped": shipped}

    @property
    def contents(self) -> tuple[str, ...]:
        """What goes to the executors with it: its files, and its program, unless that is theirs."""
        program = self.argv[0]
        relative = "/" in program and not program.startswith("/")
        ours = relative or self.program is not None
        return tuple(dict.fromkeys((*((program,) if ours else ()), *self.files)))

    @property
    def program(self) -> str | None:
        return None if binary.parse(self.argv[0]) is None else self.argv[0]

    @property
    def label(self) -> str:
        return f"action {forms.end_of(self.argv[0])}"


class ActionMethod(Upstream):
    """`stream.action`."""

    __slots__ = ()

    def action(
        self,
        name: str,
        argv: Sequence[str],
        *,
        output: str | Schema,
        input: str | Sequence[str] | None = None,
        contract: str = "one",
        format: str = "json",
        env: Mapping[str, str] | None = None,
        files: Sequence[str] = (),
        time_limit: str | timedelta = "1 minute",
        attempts: int = 3,
        memory_bytes: int | None = None,
        cpu_seconds: int | None = None,
        user: str | None = None,
        conn_whitelist: Sequence[str] | None = None,
        processes: int | None = None,
        file_bytes: int | None = None,
        sandbox: str = "usual",
    ) -> Stream:
        """Return this stream's rows with the columns that a program answers to each of them.

            scored = orders.action("score", ["./score", "--fast"], output="score double")

        The program reads and writes frames (see sdk/) and stays between batches. It must be
        idempotent, as a batch may run again. A row that fails repeatedly becomes a dead letter.

        Args:
            name: The stage's name.
            argv: The program and its arguments; no shell reads them. `./score` counts from the
                flow's file and is shipped; `score@2` and `score@latest` are kept by the engine that
                the flow is deployed on.
            output: The columns of an answer; one that the stream has already is replaced.
            input: The columns that the program gets; all of them if it is left out.
            contract: "one" answer for each row, or none; "stream": several, then an empty one.
            format: "json", "msgpack", "raw" (one column of bytes or text, as it is), or "arrow" (a
                whole batch a frame).
            env: The program's environment; it has no other.
            files: More files to ship; they are in the program's working directory.
            time_limit: How long a batch may take.
            attempts: How often a row is tried before it is a dead letter.
            memory_bytes: The address space that the program may use.
            cpu_seconds: The CPU time that it may use.
            user: Whom to run it as; only root may say.
            conn_whitelist: The addresses (IP:port, TCP) that it may connect to, and no other; []
                for none. Where the system cannot close a network, the program is not started.
            processes: How many processes and threads it may have; by default 1,024.
            file_bytes: The longest file that it may write; by default 64 GB.
            sandbox: "usual": what the system permits; "strict": all of it, or do not start; "none".
        """
        site = self._site(name)
        _check_program(site, argv, attempts)
        _check_words(site, contract, format, sandbox)
        schema, columns = schema_of(site, output), self._action_columns(site, input)
        if format == "raw":
            _check_raw(site, columns, self.schema, schema)
        self._check_own_time(site, schema)
        stage = Action(
            name,
            self.name,
            tuple(str(one) for one in argv),
            columns,
            schema,
            cast("Contract", contract),
            cast("Format", format),
            tuple((env or {}).items()),
            tuple(files),
            site.positive(time_limit, "time_limit"),
            attempts,
            memory_bytes,
            cpu_seconds,
            user,
            _whitelist(site, conn_whitelist),
            processes,
            file_bytes,
            cast("Sandbox", sandbox),
            site.where,
        )
        return self.flow.add(stage, self)

    def _check_own_time(self, site: Site, answer: Schema) -> None:
        if self.time is not None and self.time in answer:
            own = f'which is the time of stream "{self.name}"'
            fact = f'answers with the column "{self.time}", {own}'
            hint = "a row keeps its time: give the answer's another name"
            raise site.mistake(TimesDiffer, fact, hint=hint)

    def _action_columns(self, site: Site, given: str | Sequence[str] | None) -> tuple[str, ...]:
        if given is None:
            return ()
        names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
        return self._columns(site, names, "gives its program")


def _check_program(site: Site, argv: Sequence[str], attempts: int) -> None:
    named = not isinstance(argv, str) and argv and isinstance(argv[0], str) and argv[0]
    if not named:
        hint = 'name the program and its arguments: ["./score", "-v"]'
        raise site.mistake(InvalidOption, f"runs {argv!r}", hint=hint)
    if "@" in argv[0] and "/" not in argv[0] and binary.parse(argv[0]) is None:
        hint = "a program that an engine keeps is named like score@2 or score@latest"
        raise site.mistake(InvalidOption, f'runs "{argv[0]}"', hint=hint)
    if attempts < 1:
        fact = f"tries a row {attempts} times"
        raise site.mistake(InvalidOption, fact, hint="try it at least once")


def _check_words(site: Site, contract: str, format: str, sandbox: str) -> None:
    for word, known, what in (
        (contract, get_args(Contract), "contract"),
        (format, get_args(Format), "format"),
        (sandbox, get_args(Sandbox), "sandbox"),
    ):
        if word not in known:
            hint = f"it is one of {', '.join(known)}"
            raise site.mistake(InvalidOption, f'has the {what} "{word}"', hint=hint)
    if (contract, format) == ("stream", "arrow"):
        fact = "has the format arrow and the contract stream"
        row = "which row of the batch each of its rows is of"
        hint = f'let the answer have a column "_row" that says {row}'
        raise site.mistake(InvalidOption, fact, hint=hint)


def _check_raw(site: Site, columns: tuple[str, ...], given: Schema | None, output: Schema) -> None:
    """Refuse columns that are not raw: bytes or text are one column in, one column out."""
    if len(columns) != 1 or len(output) != 1:
        hint = "name one column: input=..., and one as output=..."
        raise site.mistake(InvalidOption, "has the format raw", hint=hint)
    kinds = [output.fields[0].type, (found := given and given.find(columns[0])) and found.type]
    if any(kind not in (None, "binary", "string") for kind in kinds):
        hint = "its columns are of type binary or string"
        raise site.mistake(InvalidOption, "has the format raw", hint=hint)


def _whitelist(site: Site, addresses: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the addresses that a program may connect to."""
    if isinstance(addresses, str):
        hint = "give a list of addresses, IP:port"
        raise site.mistake(InvalidOption, f"may connect to {addresses!r}", hint=hint)
    for address in addresses or ():
        if not whitelisted(address):
            hint = "name an IP address and a port, like 10.0.0.5:5432"
            raise site.mistake(InvalidOption, f'may connect to "{address}"', hint=hint)
    return None if addresses is None else tuple(addresses)


def whitelisted(address: str) -> bool:
    """Tell whether a program can be let through to an address: an IP address and a port.

    Example:
        >>> whitelisted("10.0.0.5:5432"), whitelisted("[fd00::1]:80")
        (True, True)
        >>> whitelisted("db:5432"), whitelisted("10.0.0.5")
        (False, False)
    """
    host, colon, port = address.rpartition(":")
    with suppress(ValueError):
        ip = ip_address(host[1:-1] if host.startswith("[") else host)
        return bool(colon) and (ip.version == 4) != host.startswith("[") and 0 < int(port) < 1 << 16
    return False
