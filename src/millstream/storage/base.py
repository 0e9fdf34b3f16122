"""What a storage can do."""

from __future__ import annotations

from typing import Protocol


class Claim(Protocol):
    """A name that one process holds at a time; it ends with `release` or with the process."""

    def release(self) -> None:
        """Let others have the name."""
        ...


class Storage(Protocol):
    """Small files by name: parts of a name are divided by "/", and none begins with a dot.

    A storage can be pickled, and any thread of any process may use it.
    """

    def read(self, name: str) -> bytes | None:
        """Return the whole content; None if there is none."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Store a content in place of the one before; readers find one or the other."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Store a content unless there is one; of several callers at most one gets True.

        False after a lost answer may also mean that yours is there: whoever must know puts something
        of its own into the content, and reads it back. If it raises, the content may be there, or
        may come.
        """
        ...

    def list(self, folder: str = "") -> list[str]:
        """Return the names directly in a folder, sorted."""
        ...

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the names in a folder and in those inside it, sorted, each with its bytes."""
        ...

    def delete(self, name: str) -> None:
        """Remove a content, if it is there; after a loss of power it may be back."""
        ...

    def delete_all(self, folder: str) -> None:
        """Remove what is in a folder, and in those inside it, if there is one; may be repeated."""
        ...

    def version(self, name: str) -> str | None:
        """Return what changes with the content, without reading; None if there is nothing."""
        ...

    def claim(self, name: str, *, timeout: float = 0.0) -> Claim | None:
        """Hold a name for this process; None if another holds it for longer than `timeout` seconds.

        The content of the name is then the number of the process that holds it.

        Raises:
            InvalidStorage: This kind of storage cannot know when a process ends.
        """
        ...
