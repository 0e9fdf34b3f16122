"""Which answer belongs to which input, and which message made a program fail: pure rules.

given ──▶ outstanding ──answered──▶ done
              │ the program failed
              ▼
all that is outstanding is given again, to a fresh program, one by one;
one that fails `attempts` times while it is alone is abandoned
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from millstream.actions.program import Contract
from millstream.actions.queue import Answer
from millstream.errors import FrameTooLarge, TooManyAnswers


@dataclass(frozen=True, slots=True)
class Input:
    """A message for the program, and where it came from."""

    sender: str
    serial: int
    payload: bytes


class Matching:
    """What a program was given and has not answered. Inputs wait here until they may be given."""

    def __init__(
        self, contract: Contract, *, attempts: int = 3, answer_bytes: int = 256 << 20
    ) -> None:
        self._contract = contract
        self._attempts = attempts
        self._answer_bytes = answer_bytes
        self._waiting: deque[Input] = deque()
        self._given: deque[Input] = deque()
        self._closed: list[Input] = []
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._alone = 0
        self._together = False
        self._failures = 0
        #: The payloads that are here, in bytes.
        self.bytes = 0

    @property
    def outstanding(self) -> int:
        """How many inputs the program has to answer."""
        return len(self._given)

    @property
    def empty(self) -> bool:
        return not self._given and not self._waiting

    def add(self, inputs: list[Input]) -> None:
        self._waiting.extend(inputs)
        self.bytes += sum(len(one.payload) for one in inputs)

    def give(self) -> list[Input]:
        """Return what the program is to be given now."""
        if self._alone and self._given:
            return []
        count = 1 if self._alone else len(self._waiting)
        given = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        # One that is left of several was not alone: the program has read the others too.
        self._together = len(self._given) + len(given) > 1 or (self._together and bool(self._given))
        self._given.extend(given)
        return given

    def answered(self, frames: list[bytes]) -> list[Answer]:
        """Take frames that the program wrote; return the answers that are complete by them.

        Raises:
            TooManyAnswers: Nothing was asked; nobody knows which of these answers are the right
                ones, so none of them counts.
            FrameTooLarge: The answers to one input are too many; none of these counts.
        """
        self._closed.clear()
        before = (self._alone, self._failures, self.bytes)
        try:
            return [answer for frame in frames if (answer := self._frame(frame)) is not None]
        except (TooManyAnswers, FrameTooLarge):
            self._given.extendleft(reversed(self._closed))
            self._alone, self._failures, self.bytes = before
            raise

    def _frame(self, frame: bytes) -> Answer | None:
        if not self._given:
            raise TooManyAnswers("answered more often than it was asked")
        if self._contract == "stream" and frame:
            self._parts.append(frame)
            self._part_bytes += len(frame)
            if self._part_bytes > self._answer_bytes:
                msg = f"answered one input with more than {self._answer_bytes:,} bytes"
                raise FrameTooLarge(msg)
            return None
        payloads = self._parts if self._contract == "stream" else [frame] if frame else []
        self._parts, self._part_bytes = [], 0
        return self._close(payloads)

    def _close(self, payloads: list[bytes]) -> Answer:
        one = self._given.popleft()
        self._closed.append(one)
        self.bytes -= len(one.payload)
        self._alone = max(0, self._alone - 1)
        self._failures = 0
        return Answer(payloads, one.sender, one.serial)

    def failed(self) -> Input | None:
        """Note that the program is gone; return the input that is abandoned, if any."""
        self._parts, self._part_bytes = [], 0
        if not self._given:
            return None
        if self._together:
            self._alone = len(self._given)
            self._again()
            return None
        # It was alone: it is the one.
        self._failures += 1
        if self._failures < self._attempts:
            self._alone = max(1, self._alone)
            self._again()
            return None
        failures, self._failures, self._alone = self._given.popleft(), 0, 0
        self.bytes -= len(failures.payload)
        return failures

    def _again(self) -> None:
        self._waiting.extendleft(reversed(self._given))
        self._given.clear()
