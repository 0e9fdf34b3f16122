"""Batches through a program that is kept between them; programs and messages that fail.

    all ──▶ program ──▶ all answered: done
             │ failed
             ▼
    what was answered is kept, the rest goes through a fresh program one by one
             │ one failed `attempts` times
             ▼
    it is a failed message; what is behind it goes on together

A program reads ahead and writes late, so the first message without an answer need not be the one
that it died of: only a message that is alone with the program can be blamed.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.actions.answers import Answers, pieces_of
from millstream.actions.child import Child, check_sandbox, exchange
from millstream.actions.log import WriteLog
from millstream.actions.program import Program
from millstream.errors import ActionError, ActionFailed, ActionMissing, BadBytes, TooManyAnswers

_SETTLE_MS: Final = 5.0
_NEVER_WORKED: Final = 3
_MOST_KEPT: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that cannot be done: its place in the batch, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a batch: the input of each output, the outputs, and what failed."""

    inputs: Any  # a numpy array of places in the batch, growing
    outputs: pa.Array
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a batch may take, and how often a message is tried."""

    time_limit_s: float = 60.0
    attempts: int = 3


class Worker:
    """A program that answers batches, started with the first one, and again when it fails."""

    def __init__(
        self,
        program: Program,
        folder: Path,
        write_log: WriteLog,
        patience: Patience = Patience(),  # noqa: B008 (frozen)
    ) -> None:
        self._program = program
        self._folder = folder
        self._write_log = write_log
        self._patience = patience
        self._child: Child | None = None
        self._worked = False
        self._answers: Answers | None = None
        self.starts = 0
        #: How many messages it was given, and how many of them failed.
        self.given = 0
        self.failed = 0

    def answer(self, payloads: pa.Array) -> Answered:
        """Return what the program makes of the payloads, in order.

        Raises:
            ActionMissing: The program cannot be started.
            ActionFailed: The program fails whatever it is given.
        """
        batch = _Batch(self, payloads, self._patience.attempts)
        while batch.left:
            batch.step()
        found = batch.answered()
        self.given += len(payloads)
        self.failed += len(found.failed)
        return found

    @property
    def pid(self) -> int | None:
        """The process of the program, while there is one."""
        return None if self._child is None else self._child.pid

    def room(self, count: int, size: int) -> Answers:
        """Return room for the answers to `count` inputs of about `size` bytes; it is used again."""
        if self._answers is None or len(self._answers.buffer) > _MOST_KEPT:
            buffer = None
        else:
            buffer = self._answers.buffer
        self._answers = Answers(count, self._program.contract, self._program.limits, size, buffer)
        return self._answers

    def attempt(self, payloads: pa.Array, answers: Answers, *, settle: bool) -> None:
        """Give payloads to the program once; `answers` has what came of it, also if this raises."""
        child = self._ready()
        until = time.monotonic() + self._patience.time_limit_s
        try:
            exchange(child, pieces_of(payloads), answers.view, answers.take, until)
            if settle:
                _settle(child)
        except (ActionFailed, BadBytes) as error:
            raise self._gone(child, error) from error
        except BaseException:
            self.close()
            raise
        self._worked = True

    def _ready(self) -> Child:
        if self._child is not None and _has_more(self._child, 0.0):
            # It ended, or wrote, while nothing was asked of it: whatever that was belongs to no
            # input.
            self._write_log("started again: it ended or wrote something between two batches")
            self.close()
        if self._child is None:
            if not self.starts:
                check_sandbox(self._program)
            self._child = Child(self._program, self._folder, self._write_log)
            self.starts += 1
        return self._child

    def _gone(self, child: Child, error: ActionError) -> ActionError:
        self._child = None
        if child.stdout >= 0:
            child.stop(grace_s=0.5)
        if isinstance(error, TooManyAnswers | BadBytes):
            return child.failure(
                error.message, TooManyAnswers if isinstance(error, TooManyAnswers) else ActionFailed
            )
        return error

    def hopeless(self, failed: int) -> bool:
        """Tell if it is the program that fails, not the messages."""
        return not self._worked and failed >= _NEVER_WORKED

    def close(self) -> None:
        """End the program."""
        if self._child is not None:
            child, self._child = self._child, None
            child.stop(grace_s=0.5)

    def finish(self, timeout: float = 5.0) -> int | None:
        """Let the program end by itself; return its exit code, None if there is none."""
        if self._child is None:
            return None
        child, self._child = self._child, None
        return child.finish(timeout)


class _Batch:
    """A batch on its way: how far it is, and whether its messages go one by one."""

    def __init__(self, worker: Worker, payloads: pa.Array, attempts: int) -> None:
        self._worker = worker
        self._payloads = payloads
        self._attempts = attempts
        self._at = 0
        self._alone = 0
        self._failures = 0
        self._settle = False
        self._inputs: list[Any] = []
        self._outputs: list[pa.Array] = []
        self._failed: list[Failed] = []

    @property
    def left(self) -> int:
        return len(self._payloads) - self._at

    def step(self) -> None:
        size = 1 if self._alone else self.left
        part = self._payloads.slice(self._at, size)
        answers = self._worker.room(size, part.nbytes + 4 * size + (1 << 16))
        try:
            self._worker.attempt(part, answers, settle=self._settle)
        except ActionMissing:
            raise
        except ActionFailed as error:
            # After an answer too much nobody knows which are the right ones.
            self._keep(answers, 0 if isinstance(error, TooManyAnswers) else answers.complete)
            self._blame(size, error)
        else:
            self._keep(answers, size)
            self._alone = max(0, self._alone - 1)
            self._failures = 0

    def _keep(self, answers: Answers, inputs: int) -> None:
        index, outputs = answers.outputs(inputs)
        self._inputs.append(index + self._at if self._at else index)
        self._outputs.append(outputs)
        self._at += inputs

    def _blame(self, size: int, error: ActionFailed) -> None:
        self._settle = isinstance(error, TooManyAnswers)
        if size > 1:
            self._alone = self.left
            return
        self._failures += 1
        if self._failures < self._attempts:
            return
        self._failed.append(Failed(self._at, error.message))
        if self._worker.hopeless(len(self._failed)):
            raise error
        self._at += 1
        self._alone = self._failures = 0
        self._settle = False

    def answered(self) -> Answered:
        failed = tuple(self._failed)
        if len(self._outputs) == 1:  # all went well: nothing is copied
            return Answered(self._inputs[0], self._outputs[0], failed)
        inputs = np.concatenate(self._inputs) if self._inputs else np.empty(0, np.int64)
        outputs = (
            pa.concat_arrays(self._outputs) if self._outputs else pa.array([], pa.large_binary())
        )
        return Answered(inputs, outputs, failed)


def _settle(child: Child) -> None:
    """Wait a moment for an answer too much."""
    if _has_more(child, _SETTLE_MS):
        if child.read():
            raise TooManyAnswers("answered more often than it was asked")
        raise child.failure("ended after its answer", ActionFailed)


def _has_more(child: Child, wait_ms: float) -> bool:
    poller = select.poll()
    poller.register(child.stdout, select.POLLIN)
    poller.register(child.ended, select.POLLIN)
    return bool(poller.poll(wait_ms))
