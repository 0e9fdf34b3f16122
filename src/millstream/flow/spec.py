"""The base of sources and sinks: frozen dataclasses of connectors, whose fields are options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:  # only those that read YAML load it
    from millstream.flow.document import Entry

# A tree of YAML values, whose types Python cannot say shortly.
Tree = dict[str, Any]


class Spec(ABC):
    """A source or a sink as data. Its fields hold text, numbers, flags, schemas and tuples of them.

    Descriptions and fingerprints are made of `kind` and the fields, so both are stored: a field may
    be added, with a default, but none may be renamed.
    """

    __slots__ = ()

    #: The word for it in descriptions and fingerprints.
    kind: ClassVar[str]
    #: The extra of the package that it needs.
    extra: ClassVar[str | None] = None
    #: "module:function" that finds mistakes before anything runs, given this and the folder that
    #: relative paths start from; it needs no Spark.
    checker: ClassVar[str | None] = None
    #: The word for it in YAML, if that is another.
    keyword: ClassVar[str] = ""
    #: Fields that were added later: descriptions leave them out where they are None, as before.
    added: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def word(cls) -> str:
        """Return the word for it in YAML."""
        return cls.keyword or cls.kind

    @property
    def title(self) -> str:
        """The words for it in drawings, before its `place`."""
        return self.word()

    @property
    def place(self) -> str:
        """Where it is: a path, the name of a table."""
        return ""

    @property
    def text(self) -> str:
        """What it is and where."""
        return f"{self.title} {self.place}".rstrip()

    @classmethod
    @abstractmethod
    def from_yaml(cls, entry: Entry) -> Self:
        """Make it of an entry with the key `word()`; keys that are not asked for are refused."""

    @abstractmethod
    def to_yaml(self) -> Tree:
        """Return the keys from which `from_yaml` makes the same."""
