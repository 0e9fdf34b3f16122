"""Who has what: the inputs and outputs of a runtime, and who has acknowledged them. Pure rules.

An input is acknowledged when everything that was made of it is trimmed, and something is trimmed
when every downstream has acknowledged it. An input without output is done when the outputs before
it are trimmed: at once, if there are none.

A sender is a node in one of its lives, `node#generation`. Its ids mean the same messages as long as
it lives, so what comes again after a connection broke is known and not done again. Of a sender that
does not say its generation nothing is known: on each connection it is another one,
`node@connection`. A life that was replaced is fenced permanently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.actions.serials import NONE, nearest
from millstream.actions.wire import Hello
from millstream.errors import Fenced

_MANY: Final = 100_000


@dataclass(slots=True)
class _Sender:
    #: The highest input that came, and the highest that is done.
    known: int = NONE
    done: int = NONE


class Inputs:
    """What has come from whom, and how far it is done."""

    def __init__(self, fences: dict[str, int]) -> None:
        self.fences = dict(fences)
        self._senders: dict[str, _Sender] = {}
        #: Inputs without output, as (the output before them, sender, input).
        self._blanks: deque[tuple[int, str, int]] = deque()

    def remember(self, sender: str, known: int, done: int) -> None:
        """Take over what the queue knows of a sender."""
        self._senders[sender] = _Sender(known, done)

    def greet(self, hello: Hello, connection: int) -> str:
        """Return the sender that says this.

        Raises:
            Fenced: It was replaced by a later life.
        """
        if hello.generation is None:
            sender = f"{hello.node}@{connection}"
        else:
            fence = self.fences.get(hello.node, 0)
            if hello.generation < fence:
                hint = "it may be stopped"
                raise Fenced(f'"{hello}" was replaced by generation {fence}', hint=hint)
            self.fences[hello.node] = hello.generation
            sender = str(hello)
        self._senders.setdefault(sender, _Sender())
        return sender

    def arrived(self, sender: str, id_: int) -> int | None:
        """Return the serial of an input, None if it is known already."""
        one = self._senders[sender]
        serial = nearest(id_, one.known)
        if one.known != NONE and serial <= one.known:
            return None
        one.known = serial
        return serial

    def done(self, sender: str) -> int:
        """Return up to where a sender's inputs are done."""
        one = self._senders.get(sender)
        return NONE if one is None else one.done

    def blank(self, sender: str, input_: int, after_output: int) -> None:
        """Note an input that gave no output; `after_output` is the newest output before it."""
        last = self._blanks[-1] if self._blanks else None
        if (
            last is not None
            and last[1] == sender
            and (last[0] == after_output or len(self._blanks) >= _MANY)
        ):
            self._blanks.pop()
        self._blanks.append((after_output, sender, input_))

    def trimmed(self, serial: int, inputs: dict[str, int]) -> dict[str, int]:
        """Note that outputs up to `serial`, made of `inputs`, are trimmed; return what to ack."""
        done = dict(inputs)
        while self._blanks and self._blanks[0][0] <= serial:
            _, sender, input_ = self._blanks.popleft()
            done[sender] = max(input_, done.get(sender, NONE))
        fresh = {sender: input_ for sender, input_ in done.items() if input_ > self.done(sender)}
        for sender, input_ in fresh.items():
            if sender in self._senders:
                self._senders[sender].done = input_
        return fresh

    def forget(self, sender: str) -> None:
        """Drop a sender that will not come again."""
        self._senders.pop(sender, None)

    def replaced(self, node: str) -> list[str]:
        """Return the earlier lives of a node."""
        fence = f"{node}#{self.fences.get(node)}"
        return [one for one in self._senders if one.startswith(f"{node}#") and one != fence]


class Outs:
    """How far each downstream has acknowledged."""

    def __init__(self, addresses: Iterable[str], trimmed: int) -> None:
        self._acked = dict.fromkeys(addresses, trimmed)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._acked)

    def acked(self, address: str) -> int:
        return self._acked[address]

    def acknowledged(self, address: str, id_: int, sent: int) -> None:
        """Note an acknowledgement of a downstream that was sent everything up to `sent`.

        One that is old, or of something that was never sent, changes nothing.
        """
        serial = nearest(id_, sent)
        if id_ and self._acked[address] < serial <= sent:
            self._acked[address] = serial

    def everywhere(self, last: int) -> int:
        """Return what every downstream has; all of it, if there are none."""
        return min(self._acked.values(), default=last)

    def change(self, old: str, new: str) -> bool:
        """Replace `old` by `new`, which gets what `old` has not acknowledged; False without `old`.

        A change that is done already is no mistake: its answer may have been lost.
        """
        if old not in self._acked:
            return new in self._acked
        if new in self._acked:
            return old == new
        self._acked = {new if one == old else one: acked for one, acked in self._acked.items()}
        return True
