"""Results as events of another flow."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.spec import Tree
from millstream.flow.targets import TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Outbox(TargetSpec):
    """A source of another flow, on this host or elsewhere; each result is in its journal once."""

    kind: ClassVar[str] = "outbox"
    writer: ClassVar[str] = "millstream.connectors.outbox.target:open_outbox"
    # The other flow may move, and keys change: the results go to the same source.
    incidental: ClassVar[tuple[str, ...]] = ("address", "key_file", "server_file", "end")

    address: str
    source: str
    key_file: str | None = None
    server_file: str | None = None
    end: bool = False

    @property
    def place(self) -> str:
        return self.source

    @classmethod
    def from_yaml(cls, entry: Entry) -> Outbox:
        return outbox(
            entry.needed("outbox", "an address"),
            entry.needed("source", '"flow.source"'),
            key=entry.text("key"),
            server=entry.text("server"),
            end=entry.flag("end"),
        )

    def to_yaml(self) -> Tree:
        tree: Tree = {"outbox": self.address, "source": self.source}
        options = {"key": self.key_file, "server": self.server_file, "end": self.end or None}
        return tree | {key: value for key, value in options.items() if value is not None}


def outbox(
    where: str | PathLike[str],
    source: str,
    *,
    key: str | PathLike[str] | None = None,
    server: str | PathLike[str] | None = None,
    end: bool = False,
) -> Outbox:
    """Results as events of another flow's inbox, each once.

    An epoch is in all partitions of that source or in none. A reader of two of them may see it in
    one of them first.

    Args:
        where: "tcp://host:port", or a data folder on this host, as for `connect`.
        source: "flow.source"; its columns are matched by name.
        key: The file of our own key, if the other side wants keys.
        server: The file of the other side's public key.
        end: Whether that source ends when the results do.
    """
    address = fspath(where)
    if "://" in address and not address.startswith("tcp://"):
        hint = 'write "tcp://host:port", or a data folder'
        raise InvalidOption(f'"{address}" is not an address', hint=hint)
    flow, _, name = source.partition(".")
    if not flow or not name:
        hint = 'write "flow.source"'
        raise InvalidOption(f'"{source}" does not name a source of another flow', hint=hint)
    if (key is None) != (server is None):
        msg = "keys come in twos: our own, and the public one of the other side"
        raise InvalidOption(msg, hint="give key= and server=")
    ours, theirs = (None if file is None else fspath(file) for file in (key, server))
    return Outbox(address, source, ours, theirs, end)


connector = Connector(targets=(Outbox,))
