"""Schemes: which programs run where, and who sends to whom. YAML or JSON.

    name: simplepipe
    nodes:
      - name: numgen
        action: ./numgen
        addresses: [10.0.0.1:5001, 10.0.0.9:5001]   # the first is used, the others are spares
      - name: filter2
        action: ./filter
        args: [--mod, "2"]
        addresses: [10.0.0.2:5001]
    dataflow: numgen; filter2

A mistake is reported with its line and column, and what was expected there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeVar

import yaml

from millstream.actions import dataflow
from millstream.actions.peers import split
from millstream.actions.program import CONTRACTS, SANDBOXES, Contract, Sandbox
from millstream.errors import InvalidAddress, InvalidScheme, NotLoadable, Where
from millstream.flow import binary
from millstream.flow.document import Entry, read
from millstream.flow.stages.action import whitelisted

Role = Literal["source", "processor", "sink"]
Word = TypeVar("Word", bound=str)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?:_[A-Za-z0-9.-]+)*")


@dataclass(frozen=True, slots=True)
class Node:
    """A program of a scheme; without addresses it runs in Spark, a source or sink at its engine."""

    name: str
    action: str
    addresses: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    #: The addresses (IP:port, TCP) that it may connect to; empty: none; None: any.
    conn_whitelist: tuple[str, ...] | None = None
    contract: Contract = "one"
    sandbox: Sandbox = "usual"


@dataclass(frozen=True, slots=True)
class Scheme:
    """Programs and the ways between them."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def upstreams(self, name: str) -> tuple[str, ...]:
        return tuple(source for source, target in self.edges if target == name)

    def downstreams(self, name: str) -> tuple[str, ...]:
        return tuple(target for source, target in self.edges if source == name)

    def role(self, name: str) -> Role:
        if not self.upstreams(name):
            return "source"
        return "processor" if self.downstreams(name) else "sink"


def described_in(path: Path) -> bool:
    """Tell whether a file holds a scheme, and not a flow; what cannot be read holds none."""
    if path.suffix not in (".yaml", ".yml", ".json"):
        return False
    try:
        entry = read(path)
    except (NotLoadable, RecursionError):
        return path.suffix == ".json"
    return entry.has("dataflow") or entry.has("nodes")


def load(path: Path) -> Scheme:
    """Read a scheme from a file.

    Raises:
        NotLoadable: The file is not YAML or JSON, or a value is not what it should be.
        InvalidScheme: A node or the dataflow makes no sense.
    """
    entry = read(path)
    name = _named(entry, "name", "a name")
    nodes = [_node(one) for one in _items(entry)]
    flow = _dataflow(entry)
    entry.finish()
    _check_nodes(entry, nodes, flow)
    return Scheme(name, tuple(nodes), flow.edges)


def _items(entry: Entry) -> list[Entry]:
    listed = entry.get("nodes")
    if not isinstance(listed, yaml.SequenceNode) or not listed.value:
        place = entry.where if listed is None else entry.file.where(listed.start_mark)
        hint = "expected nodes: [{name: ..., action: ...}]"
        raise InvalidScheme('a scheme has no list of "nodes"', hint=hint, where=place)
    return [
        Entry(entry.file, f"node {number}", item, item.start_mark)
        for number, item in enumerate(listed.value, 1)
    ]


def _node(entry: Entry) -> Node:
    name = _named(entry, "name", "a name")
    entry.title = f'node "{name}"'
    action = _action(entry)
    addresses = tuple(entry.texts("addresses") or ())
    for address in addresses:
        _check_address(entry, address)
    whitelist = entry.texts("conn_whitelist")
    for address in whitelist or ():
        if not whitelisted(address):
            fact = f'{entry.title} may connect to "{address}"'
            hint = "expected IP:port, like 10.0.0.5:5432"
            raise InvalidScheme(fact, hint=hint, where=_place(entry, "conn_whitelist"))
    args, env = tuple(entry.texts("args") or ()), tuple((entry.named("env") or {}).items())
    allowed = None if whitelist is None else tuple(whitelist)
    contract = _one_of(entry, "contract", CONTRACTS, "one")
    sandbox = _one_of(entry, "sandbox", SANDBOXES, "usual")
    node = Node(name, action, addresses, args, env, allowed, contract, sandbox)
    entry.finish()
    return node


def _action(entry: Entry) -> str:
    action = entry.needed("action", "a program")
    name, at, _ = action.partition("@")
    if at and "/" not in action and binary.parse(action) is None:
        hint = f"expected {name}@2 or {name}@latest, which an engine keeps, or a path"
        msg = f'{entry.title} runs "{action}"'
        raise InvalidScheme(msg, hint=hint, where=_place(entry, "action"))
    return action


def _named(entry: Entry, key: str, what: str) -> str:
    name = entry.needed(key, what)
    if not _NAME.fullmatch(name):
        hint = "expected letters, digits, dots, dashes and single underscores"
        raise InvalidScheme(f'"{name}" cannot be a name', hint=hint, where=_place(entry, key))
    return name


def _one_of(entry: Entry, key: str, known: Sequence[Word], usual: Word) -> Word:
    given = entry.text(key) or usual
    found = next((one for one in known if one == given), None)
    if found is None:
        hint, msg = f"expected {' or '.join(known)}", f'"{key}" of {entry.title} is "{given}"'
        raise InvalidScheme(msg, hint=hint, where=_place(entry, key))
    return found


def _check_address(entry: Entry, address: str) -> None:
    try:
        split(address)
    except InvalidAddress:
        fact = f'{entry.title} has the address "{address}"'
        hint = "expected host:port"
        raise InvalidScheme(fact, hint=hint, where=_place(entry, "addresses")) from None


def _dataflow(entry: Entry) -> dataflow.Dataflow:
    text = entry.needed("dataflow", "first; second")
    try:
        return dataflow.parse(text)
    except dataflow.DataflowWrong as wrong:
        where = _within(entry, text, wrong.offset)
        raise InvalidScheme(wrong.fact, hint=f"expected {wrong.expected}", where=where) from None


def _check_nodes(entry: Entry, nodes: list[Node], flow: dataflow.Dataflow) -> None:
    known = [node.name for node in nodes]
    text = entry.needed("dataflow", "")
    for number, (name, item) in enumerate(zip(known, _items(entry), strict=True)):
        if name in known[:number]:
            hint = "expected each name once"
            raise InvalidScheme(f'two nodes are called "{name}"', hint=hint, where=item.where)
    for name, offset in flow.nodes.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"expected one of {', '.join(known)}"
            msg = f'the dataflow names "{name}", which is no node'
            raise InvalidScheme(msg, hint=hint, where=_within(entry, text, offset))
    for name, item in zip(known, _items(entry), strict=True):
        if name not in flow.nodes:
            fact = f'node "{name}" is not in the dataflow'
            raise InvalidScheme(fact, hint="name it there, or take it out", where=item.where)
    _check_places(entry, nodes)


def _check_places(entry: Entry, nodes: list[Node]) -> None:
    taken: dict[str, str] = {}
    for node, item in zip(nodes, _items(entry), strict=True):
        for address in node.addresses:
            if address in taken:
                also = f'which "{taken[address]}" has'
                fact = f'node "{node.name}" has the address "{address}", {also}'
                hint = "expected an address of its own"
                raise InvalidScheme(fact, hint=hint, where=_place(item, "addresses"))
            taken[address] = node.name


def _place(entry: Entry, key: str) -> Where:
    return entry.file.where(entry.values[key][1].start_mark)


def _within(entry: Entry, text: str, offset: int) -> Where:
    """Return the place of a letter of the dataflow in its file."""
    node = entry.values["dataflow"][1]
    mark = node.start_mark
    if isinstance(node, yaml.ScalarNode) and node.style == "|":
        row, begin = text.count("\n", 0, offset), text.rfind("\n", 0, offset) + 1
        line = mark.line + 1 + row
        code = entry.file.lines[line] if line < len(entry.file.lines) else ""
        column = code.find(text[begin:].split("\n", 1)[0]) + offset - begin
        return Where(entry.file.path, line + 1, code.strip(), column + 1)
    quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"')
    code = entry.file.lines[mark.line].strip()
    return Where(entry.file.path, mark.line + 1, code, mark.column + offset + quoted + 1)
