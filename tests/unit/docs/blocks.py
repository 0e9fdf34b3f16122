"""The fenced blocks of the docs: "```language word word", their text and their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
README = DOCS.parent / "README.md"
_SINGLE = ("guide.md", "yaml.md", "cli.md", "http.md", "flink.md", "deploy/README.md")
PAGES = sorted([README, *(DOCS / page for page in _SINGLE), *(DOCS / "guide").glob("*.md")])
_BLOCK = re.compile(r"^```(\w*)([^\n`]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One block; `words` follow the language and say what it is for."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block stands for, if it says so: file=flow.py."""
        return next(
            (word.removeprefix("file=") for word in self.words if word.startswith("file=")), None
        )

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The lines that begin with "$ ", each with what is shown below it."""
        parts = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)[1:]
        return list(zip(parts[::2], parts[1::2], strict=True))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page.name, line, found[1], tuple(found[2].split()), found[3])
