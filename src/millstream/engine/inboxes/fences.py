"""Which life of each node may send to a source: a later one fences the earlier permanently."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.errors import Fenced, PeerRefused
from millstream.storage import Folder


class Fences:
    """The highest generation of each node that has come, on disk before anything of it is taken."""

    def __init__(self, file: Path) -> None:
        self._storage, self._name = Folder(file.parent), file.name
        known = self._storage.read(self._name)
        self._known: dict[str, int] = (
            {} if known is None else msgspec.json.decode(known, type=dict[str, int])
        )

    def pass_(self, node: str, generation: int, *, most: int | None = None) -> None:
        """Let a life of a node in, and fence those before it; at most so many nodes.

        Raises:
            Fenced: It was replaced by a later one.
            PeerRefused: It would be one node too many.
        """
        if most is not None and node not in self._known and len(self._known) >= most:
            msg = f"{most} nodes have sent here, and none of them was expected"
            raise PeerRefused(msg, hint="name those that may send: nodes=[...]")
        fence = self._known.get(node, 0)
        if generation < fence:
            hint = "it may be stopped"
            raise Fenced(f'"{node}#{generation}" was replaced by generation {fence}', hint=hint)
        if generation > fence:
            known = {**self._known, node: generation}
            self._storage.put(self._name, msgspec.json.encode(known))
            self._known = known
