"""A driver without Spark: it speaks and behaves as the real one does, and "processes" rows by reading past them.

For tests of what the engine does around drivers. In the flow's folder, a file "die" ends it,
"fail", "full" and "hopeless" make it fail, "slow" keeps it from becoming ready, and "dead" says how
many dead letters there are. How it is switched is in `sparkless_run`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from millstream.actions.parent import end_with_parent
from millstream.engine.driver import driver_versions, protocol
from millstream.engine.driver.driver import Driver
from millstream.engine.driver.driver_versions import DriverVersions
from millstream.engine.driver.main import taken_over
from millstream.errors import FlowError, RunError
from millstream.joblog import Decided, JobLog
from millstream.journal import journal_at
from millstream.plan.drawing import drawing
from millstream.plan.groups import plan
from millstream.spark.session.start import SparkStart
from millstream.storage import storage_at
from support.sparkless_run import SparklessRun


class Sparkless(Driver):
    """Runs no flow, but commits all that its journals hold."""

    def _start_spark(self) -> None:  # type: ignore[override]
        return None

    def _warm_up(self) -> None:
        """Start nothing."""

    def _run(self, how: protocol.Run) -> None:
        root, folder = Path(how.root), Path(how.data) / how.name
        (folder / "runs").open("a").write(f"{os.getpid()}\n")
        for name, file in how.binaries.items():
            (folder / name).write_bytes(Path(file).read_bytes())
        while (root / "slow").exists():
            time.sleep(0.02)
        log = self._leased(how)
        running = self._versioned(how, folder, root, log)
        self._line.report(protocol.Drawn(drawing(plan(running.flow))))
        self._line.report(protocol.SwitchRecovered(self._versions.recovered(running)))
        self._line.report(protocol.Ready())
        print("running", how.name, file=sys.stderr, flush=True)
        while True:
            match self._line.next(0.02):
                case protocol.Stop():
                    return
                case protocol.Drain() as drain:
                    self._draining = drain
                case None:
                    pass
                case command:
                    self._command(command, running)
            self._misbehave(root)
            if log is not None:
                log.renew()
                self._publish(log, root)
            running.poll()
            self._report_switch(running)
            paths = [path for path in sorted((folder / "journals").iterdir()) if path.is_dir()]
            ended = [self._read_past(path) for path in paths]
            dead = int((root / "dead").read_text()) if (root / "dead").exists() else 0
            numbers = {"groups": [], "sources": {}, "late": 0, "dead": dead}
            self._line.report(protocol.Statistics(numbers))
            if ended and all(ended):
                self._line.report(protocol.Finished())
                return
            if self._draining is not None and not self._draining.flush:
                self._line.report(protocol.Drained())
                return

    def _leased(self, how: protocol.Run) -> JobLog | None:
        if how.lease is None:
            return None
        log = JobLog(
            storage_at(f"{how.lease.storage}/{how.name}"),
            renew_every=how.lease.renew_every,
            engine=how.lease.engine,
        )
        log.follow(how.lease)
        return log

    def _publish(self, log: JobLog, root: Path) -> None:
        """Decide an epoch, then publish it: a line with who has done so."""
        known = log.decided("lines")
        epoch = 0 if known is None else known.epoch + 1
        log.decide("lines", Decided(epoch, str(os.getpid())))
        with (root / "lines").open("a") as lines:
            lines.write(f"{epoch} {os.getpid()}\n")

    def _versioned(self, how: protocol.Run, folder: Path, root: Path, log: JobLog | None) -> Any:
        flow = self._flow if self._flow is not None else self._load(how.flow, how.name)
        self._versions = DriverVersions(
            how.name, {**how.versions, how.version: how.flow}, {}, lambda _: None
        )
        self._versions.began_with(how.version, self._own)
        running = SparklessRun(flow, how.version, folder, root, self._versions.flow, log)
        if (going := running.switching()) is not None:
            # The real one starts all sources, which makes their journals.
            driver_versions._declare(running, self._versions.flow(going.version))
        return running

    def _misbehave(self, root: Path) -> None:
        if (root / "die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if (root / "fail").exists():
            raise RunError("it failed")
        if (root / "full").exists():
            raise RunError("group a failed") from OSError(errno.ENOSPC, "No space left on device")
        if (root / "hopeless").exists():
            raise FlowError("the flow has a mistake", hint="mend it")

    def _read_past(self, path: Path) -> bool:
        reader = journal_at(path).reader()
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        ends = [view.end for view in views]
        journal_at(path).commit("job.group", ends)
        return all(view.state_at(end).ended for view, end in zip(views, ends, strict=True))


def main() -> int:
    end_with_parent()
    line = protocol.Line(*taken_over())
    return Sparkless(line, SparkStart("driver")).serve(warm="--warm" in sys.argv)


if __name__ == "__main__":
    os._exit(main())
