"""Files: folders and recordings as sources, folders as targets, in Parquet, JSON lines and CSV."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, ClassVar, Final, Self

from millstream.errors import InvalidOption, UnknownArgument
from millstream.flow.connector import Connector
from millstream.flow.formats import Format, format_of
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.spec import Tree
from millstream.flow.spelling import intended
from millstream.flow.targets import Reprocessing, TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


#: What the reader of CSV can be told.
CSV_OPTIONS: Final = ("sep", "delimiter", "quote", "header", "nulls")


@dataclass(frozen=True, slots=True)
class Files(SourceSpec):
    """A folder, a file or a glob of files; with `follow`, files that appear later too."""

    kind: ClassVar[str] = "files"
    reader: ClassVar[str] = "millstream.connectors.files.origin:open_files"
    checker: ClassVar[str | None] = "millstream.connectors.files.checks:check_files"

    path: str
    format: Format
    schema: Schema
    follow: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @property
    def bounded(self) -> bool:
        return not self.follow

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def from_yaml(cls, entry: Entry) -> Files:
        path, schema = entry.needed("files", "a path"), entry.needed("schema", "columns")
        options = tuple(sorted((entry.named("options") or {}).items()))
        found = files(path, schema, format=entry.text("format"), follow=entry.flag("follow"))
        return replace(found, options=options)

    def to_yaml(self) -> Tree:
        tree: Tree = {"files": self.path, "schema": self.schema.ddl, "format": self.format}
        return {**tree, "follow": self.follow or None, "options": dict(self.options) or None}


@dataclass(frozen=True, slots=True)
class Replay(SourceSpec):
    """A recorded file in event time: `speed` times as fast as it happened, or (None) at once."""

    kind: ClassVar[str] = "replay"
    bounded: ClassVar[bool] = True
    title: ClassVar[str] = "replay of"
    reader: ClassVar[str] = "millstream.connectors.files.origin:open_replay"
    checker: ClassVar[str | None] = "millstream.connectors.files.checks:check_replay"

    path: str
    format: Format
    schema: Schema
    speed: float | None = None
    time: str | None = None

    @property
    def place(self) -> str:
        return self.path

    def timed_by(self, time: str | None) -> Replay:
        return self if self.time is not None else replace(self, time=time)

    @classmethod
    def from_yaml(cls, entry: Entry) -> Replay:
        path, schema = entry.needed("replay", "a path"), entry.needed("schema", "columns")
        return replay(path, schema, speed=entry.number("speed"), format=entry.text("format"))

    def to_yaml(self) -> Tree:
        tree: Tree = {"replay": self.path, "schema": self.schema.ddl, "format": self.format}
        return {**tree, "speed": self.speed}


@dataclass(frozen=True, slots=True)
class Folder(TargetSpec):
    """A folder of files, each result in it once; one class for each format."""

    writer: ClassVar[str] = "millstream.connectors.files.target:open_folder"
    checker: ClassVar[str | None] = "millstream.connectors.files.checks:check_folder"
    reprocessing: ClassVar[Reprocessing] = "withdrawn"
    local: ClassVar[bool] = True
    format: ClassVar[Format]

    path: str

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def from_yaml(cls, entry: Entry) -> Self:
        return cls(entry.needed(cls.word(), "a path"))

    def to_yaml(self) -> Tree:
        return {self.word(): self.path}


@dataclass(frozen=True, slots=True)
class Parquet(Folder):
    """A folder of Parquet files; each result is in it once."""

    kind: ClassVar[str] = "parquet"
    format: ClassVar[Format] = "parquet"


@dataclass(frozen=True, slots=True)
class JsonLines(Folder):
    """A folder of files with a JSON object per line; each result is in it once."""

    kind: ClassVar[str] = "jsonlines"
    keyword: ClassVar[str] = "jsonl"
    format: ClassVar[Format] = "jsonl"


@dataclass(frozen=True, slots=True)
class Csv(Folder):
    """A folder of CSV files with a header; each result is in it once."""

    kind: ClassVar[str] = "csv"
    format: ClassVar[Format] = "csv"


def files(
    path: str | PathLike[str],
    ddl: str,
    *,
    format: str | None = None,
    follow: bool = False,
    **options: str | int | bool,
) -> Files:
    """The rows of files: Parquet, JSON lines or CSV.

    Args:
        path: A file, a folder or a glob.
        ddl: The columns, as in Spark SQL.
        format: "parquet", "jsonl" or "csv"; the suffix tells if it is left out.
        follow: Go on with files that appear later; without it the source ends.
        options: For the reader of the format, such as header=False or sep=";" for CSV.
    """
    found = format_of(fspath(path), format)
    known = CSV_OPTIONS if found == "csv" else ()
    for name in options:
        if name not in known:
            hint = intended(name, ("format", "follow", *known), "beside the columns it takes")
            raise UnknownArgument(f'files() of {found} has no argument "{name}"', hint=hint)
    text = tuple(sorted((name, _text(value)) for name, value in options.items()))
    return Files(fspath(path), found, Schema.parse(ddl), follow, text)


def replay(
    path: str | PathLike[str],
    ddl: str,
    *,
    speed: float | None = None,
    time: str | None = None,
    format: str | None = None,
) -> Replay:
    """The rows of a recorded file, `speed` times as fast as they happened, or (None) at once.

    The rows must be in the order in which they should come; `time` is the source's time column if
    it is left out.
    """
    if speed is not None and speed <= 0:
        msg = f"a replay at {speed} times the speed never ends"
        raise InvalidOption(msg, hint="give a speed above 0, or none for full speed")
    return Replay(fspath(path), format_of(fspath(path), format), Schema.parse(ddl), speed, time)


def parquet(path: str | PathLike[str]) -> Parquet:
    """Results as Parquet files in a folder, each once."""
    return Parquet(fspath(path))


def jsonl(path: str | PathLike[str]) -> JsonLines:
    """Results as lines of JSON in files in a folder, each once."""
    return JsonLines(fspath(path))


def csv(path: str | PathLike[str]) -> Csv:
    """Results as CSV files in a folder, each once."""
    return Csv(fspath(path))


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


connector = Connector(sources=(Files, Replay), targets=(Parquet, JsonLines, Csv))
