"""YAML documents whose every value knows its place.

Scalars are read as they are written: YAML's own ideas of a word like "on" or "no" play no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from millstream.errors import NotLoadable, Where
from millstream.secrets import Secret, secret

_NULL = "tag:yaml.org,2002:null"
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class File:
    """A file's name and lines, for the places of its values."""

    path: str
    lines: tuple[str, ...]

    def where(self, mark: yaml.Mark | None) -> Where:
        """Return the place of a mark, with its line."""
        if mark is None:
            return Where(self.path, 1)
        code = self.lines[mark.line].strip() if mark.line < len(self.lines) else ""
        return Where(self.path, mark.line + 1, code, mark.column + 1)


def read(path: Path, expected: str = '"name", "sources" and "sinks"') -> Entry:
    """Return the document in a file, which is a mapping with what is `expected`.

    Raises:
        NotLoadable: The file is not YAML, or something else than a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotLoadable(f'"{path}" cannot be read: {error}') from error
    return parse(text, path, expected)


def parse(text: str, path: Path, expected: str = "names with values") -> Entry:
    """Return the document in a text, which errors say is in a file.

    Raises:
        NotLoadable: It is not YAML, or something else than a mapping.
    """
    file = File(str(path), tuple(text.splitlines()))
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        msg = f'"{path.name}" is not YAML: {error.problem or error.context}'
        raise NotLoadable(msg, where=file.where(error.problem_mark or error.context_mark)) from None
    except yaml.YAMLError as error:
        raise NotLoadable(f'"{path.name}" is not YAML: {error}', where=file.where(None)) from None
    if node is None:
        msg = f'"{path.name}" is empty where {expected} should be'
        raise NotLoadable(msg, where=file.where(None))
    return Entry(file, f'"{path.name}"', node, node.start_mark)


@dataclass(slots=True)
class Entry:
    """A mapping of the document; it remembers which of its keys were asked for."""

    file: File
    title: str
    node: yaml.Node
    mark: yaml.Mark
    asked: list[str] = field(default_factory=list)
    values: dict[str, tuple[yaml.Node, yaml.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.node, yaml.MappingNode):
            fact = f"{self.title} is {_text_of(self.node)}"
            raise self.wrong(self.node, fact, "names with values")
        for key, value in self.node.value:
            name = str(key.value)
            if name in self.values:
                raise self.wrong(key, f'{self.title} has "{name}" twice', "each name once")
            self.values[name] = key, value

    @property
    def where(self) -> Where:
        return self.file.where(self.mark)

    def wrong(self, node: yaml.Node, fact: str, expected: str) -> NotLoadable:
        """Return the error for a value at its place."""
        where = self.file.where(node.start_mark)
        return NotLoadable(fact, hint=f"expected {expected}", where=where)

    def entries(self, key: str, kind: str) -> dict[str, Entry]:
        """Return the mappings under a key, by name."""
        node = self.get(key)
        if node is None:
            return {}
        group = Entry(self.file, f'"{key}"', node, node.start_mark)
        return {
            name: Entry(self.file, f'{kind} "{name}"', value, place.start_mark)
            for name, (place, value) in group.values.items()
        }

    def get(self, key: str) -> yaml.Node | None:
        """Return the value of a key, None if it is not there or null."""
        self.asked.append(key)
        if key not in self.values or self.values[key][1].tag == _NULL:
            return None
        return self.values[key][1]

    def lists(self, key: str) -> dict[str, list[str]]:
        """Return the lists of texts under a key, by name."""
        node = self.get(key)
        if node is None:
            return {}
        inner = Entry(self.file, f'"{key}"', node, node.start_mark)
        return {name: inner.texts(name) or [] for name in inner.values}

    def has(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str) -> str | None:
        """Return a text, whatever YAML takes it for."""
        node = self.get(key)
        return None if node is None else self._scalar(node, key)

    def needed(self, key: str, what: str) -> str:
        """Return a text that must be there."""
        value = self.text(key)
        if value is None:
            self._refuse_misspelt([key])
            fact = f'{self.title} has no "{key}"'
            raise NotLoadable(fact, hint=f'expected "{key}: {what}"', where=self.where)
        return value

    def secret(self, key: str) -> Secret | None:
        """Return the secret that is named in place of a text, {secret: NAME}; None if none is."""
        node = self.get(key)
        if not isinstance(node, yaml.MappingNode):
            return None
        inner = Entry(self.file, f'"{key}" of {self.title}', node, node.start_mark)
        found = secret(inner.needed("secret", "its name"))
        inner.finish()
        return found

    def texts(self, key: str) -> list[str] | None:
        """Return one text or a list of them, as a list."""
        node = self.get(key)
        if node is None:
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self._scalar(item, key) for item in node.value]
        return [self._scalar(node, key)]

    def named(self, key: str) -> dict[str, str] | None:
        """Return a mapping of texts."""
        node = self.get(key)
        if node is None:
            return None
        inner = Entry(self.file, f'"{key}" of {self.title}', node, node.start_mark)
        return {name: inner.needed(name, "text") for name in inner.values}

    def texts_or_named(self, key: str) -> list[str] | dict[str, str] | None:
        """Return a mapping of texts, or texts."""
        return self.named(key) if isinstance(self.get(key), yaml.MappingNode) else self.texts(key)

    def whole(self, key: str) -> int | None:
        """Return a whole number."""
        node = self.get(key)
        if node is None:
            return None
        text = self._scalar(node, key).replace("_", "")
        if not text.removeprefix("-").isdigit():
            raise self.wrong(node, f'"{key}" of {self.title} is "{text}"', "a whole number")
        return int(text)

    def number(self, key: str) -> float | None:
        """Return a number."""
        node = self.get(key)
        if node is None:
            return None
        text = self._scalar(node, key)
        try:
            return float(text)
        except ValueError:
            raise self.wrong(node, f'"{key}" of {self.title} is "{text}"', "a number") from None

    def flag(self, key: str) -> bool:
        """Return a yes or no; no if it is not there."""
        node = self.get(key)
        if node is None:
            return False
        text = self._scalar(node, key)
        if text.lower() not in _FLAGS:
            raise self.wrong(node, f'"{key}" of {self.title} is "{text}"', "true or false")
        return _FLAGS[text.lower()]

    def given(self, **kinds: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys that are there, each read as its kind: `whole=["shards"]`."""
        read = {key: getattr(self, kind)(key) for kind, keys in kinds.items() for key in keys}
        return {key: value for key, value in read.items() if value is not None}

    def one_of(self, kinds: Sequence[str], in_python: Sequence[str] = ()) -> str:
        """Return the one key of several that is there; those `in_python` need a function."""
        found = [kind for kind in kinds if kind in self.values]
        if len(found) == 1:
            return found[0]
        if not found:
            self._refuse_misspelt(kinds)
        wrong = f"says {' and '.join(found)} at once" if found else "does not say what it is"
        calls = [name for name in in_python if name in self.values]
        python = f" ({calls[0]} needs a function: write this flow in Python)" if calls else ""
        hint = f"expected one of {', '.join(kinds)}{python}"
        raise NotLoadable(f"{self.title} {wrong}", hint=hint, where=self.where)

    def _refuse_misspelt(self, missing: Sequence[str]) -> None:
        """Refuse a key that nobody asked for and that looks like one that is missing."""
        for name, (key, _) in self.values.items():
            close = get_close_matches(name, missing, n=1) if name not in self.asked else None
            if close:
                fact = f'{self.title} has "{name}", which means nothing here'
                every = f", or one of {', '.join(missing)}" if len(missing) > 1 else ""
                raise self.wrong(key, fact, f'"{close[0]}"{every}')

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for name, (key, _) in self.values.items():
            if name not in self.asked:
                close = get_close_matches(name, self.asked, n=1)
                every = f"one of {', '.join(dict.fromkeys(self.asked))}"
                fact = f'{self.title} has "{name}", which means nothing here'
                raise self.wrong(key, fact, f'"{close[0]}"' if close else every)

    def _scalar(self, node: yaml.Node, key: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(node, f'"{key}" of {self.title} is {_text_of(node)}', "text")
        return str(node.value)


def _text_of(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else f'"{node.value}"'
