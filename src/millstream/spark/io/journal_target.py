"""A journal as the target of a group: staged, decided by one record, published."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Final

from pyspark.sql import DataFrame

from millstream.joblog import JobLog
from millstream.journal import DeadLetter, Staged, journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.staging import StageJournal
from millstream.spark.io.targets import Epoch, Target
from millstream.spark.io.unwritable import Unwritable, from_json
from millstream.spark.served.borrowed import collected


class JournalTarget(Target):
    """A journal that other groups read; while versions are switched, two groups write it."""

    decides: ClassVar[bool] = True

    def __init__(self, path: Path, *, key: str | None, log: JobLog | None = None) -> None:
        self._job = log
        self._name: Final = f"journal:{path.name}"
        self._path = path
        self._key = key
        self._time = journal_at(path).describe().time
        self._log = journal_at(path).epochs()
        self._users = 1
        self._recovered = False
        self._floors: dict[str, int | None] = {}
        self._least: dict[str, int] = {}
        self._guard = threading.Lock()

    @property
    def takes_packed(self) -> bool:
        return True

    def share(self) -> JournalTarget:
        """Let one more group write; the journal is let go when all have closed."""
        self._users += 1
        return self

    @property
    def closed(self) -> bool:
        return self._users == 0

    def expect(self, sender: str, at_least: int | None) -> None:
        """Expect a writer before its first epoch, whose rows lie at or above `at_least`, if known."""
        with self._guard:
            if at_least is not None:
                self._least[sender] = at_least
            self._floors.setdefault(sender, at_least)

    def dismiss(self, sender: str) -> None:
        """Count no more with a writer."""
        with self._guard:
            self._floors.pop(sender, None)
            self._least.pop(sender, None)

    def _floor(self, epoch: Epoch) -> int | None:
        """Return the lowest time that may still come from anybody who writes here."""
        least = self._least.get(epoch.sender)
        known = [one for one in (least, epoch.floor) if one is not None]
        floor = max(known, default=None)
        if floor is not None or epoch.sender in self._floors:
            self._floors[epoch.sender] = floor
        floors = [*self._floors.values()]
        known = [one for one in floors if one is not None]
        return min(known) if known and len(known) == len(floors) else None

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        work = StageJournal(str(self._path), self._key, self._time)
        found = collected(frame, work)
        staged = [Staged(**json.loads(row.staged)) for row in found if row.staged]
        passing("staged")
        self._refuse(from_json(row.refused for row in found), epoch)
        with self._guard:
            content = epoch.decide(self._name, _written(staged, self._floor(epoch)))
            passing("logged-decision")
            if content is not None:
                self._log.decide(epoch.sender, epoch.batch, *_read(content))
            passing("decided")
            self._log.publish()
        passing("published")
        return sum(one.rows for one in staged)

    def _refuse(self, rows: list[Unwritable], epoch: Epoch) -> None:
        """Keep rows that the journal cannot hold as dead letters; a repeated epoch adds none."""
        if rows:
            first = epoch.batch << 32
            letters = [
                DeadLetter(f"group:{epoch.sender}", first + number, row.fact, row.record)
                for number, row in enumerate(sorted(rows, key=lambda row: row.record))
            ]
            with journal_at(self._path).dead_letters() as dead:
                dead.put_all(letters)
            passing("refused")

    def end(self, sender: str, epoch: int) -> None:
        """Say that nothing more will come."""
        with self._guard:
            self._log.decide(sender, epoch, [], None, ended=True)
            self._log.publish()

    def recover(self) -> None:
        with self._guard:
            self._take_over()
            # Later, what is staged may be another group's.
            _ = self._log.publish() if self._recovered else self._log.recover()
            self._recovered = True

    def _take_over(self) -> None:
        """Decide here what the job's log has decided, and this journal does not know yet."""
        for key, decided in ({} if self._job is None else self._job.state.decided).items():
            sender, _, name = key.rpartition("#")
            if name == self._name and decided.epoch > self._log.last(sender):
                self._log.decide(sender, decided.epoch, *_read(decided.content))

    def close(self) -> None:
        self._users -= 1
        if self.closed:
            self._log.close()


def _written(staged: Sequence[Staged], floor: int | None) -> str:
    return json.dumps({"staged": [asdict(one) for one in staged], "floor": floor})


def _read(content: str) -> tuple[list[Staged], int | None]:
    found = json.loads(content)
    return [Staged(**one) for one in found["staged"]], found["floor"]
