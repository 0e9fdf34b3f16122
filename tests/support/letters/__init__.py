"""Text files as a connector of somebody else's: lines as a source, a file for each epoch as a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.spec import Tree
from millstream.flow.targets import TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Lines(SourceSpec):
    """The lines of a text file, numbered."""

    kind: ClassVar[str] = "lines"
    reader: ClassVar[str] = "support.letters.origin:open_lines"

    path: str

    @property
    def schema(self) -> Schema:
        return Schema.parse("n long, line string")

    @property
    def bounded(self) -> bool:
        return True

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def from_yaml(cls, entry: Entry) -> Lines:
        return lines(entry.needed("lines", "a file"))

    def to_yaml(self) -> Tree:
        return {"lines": self.path}


@dataclass(frozen=True, slots=True)
class Letters(TargetSpec):
    """A folder with a file for each epoch that has rows."""

    kind: ClassVar[str] = "letters"
    writer: ClassVar[str] = "support.letters.target:open_letters"

    path: str
    greeting: str = "Hello"

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def from_yaml(cls, entry: Entry) -> Letters:
        return letters(entry.needed("letters", "a folder"), entry.text("greeting") or "Hello")

    def to_yaml(self) -> Tree:
        return {"letters": self.path, "greeting": self.greeting}


def lines(path: str) -> Lines:
    """The lines of a text file."""
    return Lines(path)


def letters(path: str, greeting: str = "Hello") -> Letters:
    """Results as letters in a folder, each once."""
    if not greeting:
        raise InvalidOption("a letter has no greeting", hint='write greeting="Hello"')
    return Letters(path, greeting)


connector = Connector(sources=(Lines,), targets=(Letters,))
