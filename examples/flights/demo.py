"""The demo: a job that is killed with kill -9, restarted, and switched to a new version under load.

    PYTHONPATH=. python examples/flights/demo.py [--days 28]

Ends with "demo: ok", or with "demo: failed: ..." and exit status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
import psutil
import pyarrow.parquet as pq
from examples.flights import check, page, prepare
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from millstream.cli import checkpoint
from millstream.cluster import Cluster
from millstream.engine.jobs.status import JobStatus
from millstream.errors import MillstreamError
from millstream.flow.load import load
from millstream.journal.kinds.files.reader import Reader
from millstream.plan.groups import plan
from millstream.web import Sample, write

HERE = Path(__file__).parent
JOB = "flights"
GROUPS = ("hourly", "delays", "airlines", "totals", "grounded")
#: The line that the second version replaces, and its replacement.
OLD_LATE, NEW_LATE = 'late="count_if(delay > 15)"', 'late="count_if(delay > 30)"'
#: The kill comes after the first share, while batches run; at the second share at the latest.
EARLIEST, LATEST = 0.25, 0.5
PATIENCE_S = 900.0
POLL_S = 0.1


class DemoFailed(Exception):
    """A promise of the demo was not kept."""


@dataclass(frozen=True)
class Settings:
    """The folders of the demo, and the number of flights."""

    flow: Path
    data: Path
    days: int | None
    batches: int
    recordings: prepare.Recordings

    @property
    def folder(self) -> Path:
        return self.job / "flights"

    @property
    def job(self) -> Path:
        """The folder of the job on the engine."""
        return self.data / "jobs" / JOB

    @property
    def rows_per_batch(self) -> int:
        # Small batches, so that even a fast machine can be killed in the middle.
        return -(-self.recordings.flights // self.batches)

    @property
    def next_flow(self) -> Path:
        return self.flow.with_name("flow_2.py")


@dataclass(frozen=True)
class State:
    """The numbers of the journal and the checkpoints, which outlive the process."""

    taken: int
    counted: int
    under_way: tuple[str, ...]
    delays_begun: bool


@dataclass
class Diary:
    """What happened, with seconds since the start."""

    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    standings: list[page.Standing] = field(default_factory=list)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def note(self, state: State) -> None:
        if not self.standings or self.now - self.standings[-1].at >= 0.5:
            self.standings.append(page.Standing(self.now, state.taken, state.counted))


class Run:
    """`millstream engine` in its own process; a job that it had continues."""

    def __init__(self, number: int, settings: Settings, diary: Diary) -> None:
        self.number = number
        self._diary = diary
        self._errors = settings.data / f"engine-{number}.stderr"
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        command = millstream("engine", "--port", "0", "--data", settings.data)
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.url = next((word for word in said.split() if word.startswith("http")), "")
        if not self.url:
            raise DemoFailed(f"the engine did not start: {said} {self._errors.read_text()}")
        self.cluster = Cluster([self.url], token=(settings.data / "token").read_text().strip())
        self._status: JobStatus | None = None
        self._over = threading.Event()
        self._listener = threading.Thread(
            target=self._listen, args=(self.process.stdout,), daemon=True
        )
        self._listener.start()

    def _listen(self, said: IO[str]) -> None:
        drained = threading.Thread(target=said.read, daemon=True)
        drained.start()
        while not self._over.wait(0.5):
            with contextlib.suppress(MillstreamError):
                self._status = status = self.cluster.status(JOB)
                if {group.name for group in status.groups} >= set(GROUPS):
                    # A new version counts its rows from 0.
                    part = self.number + (status.version != "1")
                    self._diary.samples.append(
                        Sample(self._diary.now, part, msgspec.to_builtins(status))
                    )

    def kill(self) -> int:
        """Kill it and all its child processes; return how many there were."""
        ours = psutil.Process(self.process.pid)
        all_of_them = [ours, *ours.children(recursive=True)]
        for one in all_of_them:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(all_of_them, timeout=20)
        self.process.wait()
        self._close()
        return len(all_of_them)

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(120)
        self._close()

    def _close(self) -> None:
        self._over.set()
        self._listener.join(5)
        self.cluster.close()

    def ended(self) -> bool:
        """Return whether the job has ended."""
        if self.process.poll() is not None:
            said = self._errors.read_text().strip().splitlines()[-6:]
            raise DemoFailed(
                f"engine {self.number} ended with status {self.process.poll()}: " + " / ".join(said)
            )
        if self._status is not None and self._status.state == "failed":
            raise DemoFailed(f"the job failed: {self._status.reason}")
        return self._status is not None and self._status.state == "finished"

    def runs(self) -> bool:
        """Return whether all of the job runs."""
        return (
            self._status is not None
            and self._status.state == "running"
            and bool(self._status.groups)
        )


class Switch:
    """`millstream switch` in its own process, which waits until the switch is done."""

    def __init__(self, run: Run, settings: Settings, diary: Diary) -> None:
        self.asked_at = self.done_at = diary.now
        self.cut = datetime.now(UTC)
        self._run, self._diary = run, diary
        command = millstream("switch", JOB, settings.next_flow, "--engine", run.url)
        token = {"MILLSTREAM_TOKEN": (settings.data / "token").read_text().strip()}
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **token},
        )

    def done(self, _: State) -> bool:
        """Return whether the command has ended, with any status."""
        return self._process.poll() is not None

    def outcome(self) -> str:
        """Return its output after the switch."""
        said, errors = self._process.communicate(timeout=PATIENCE_S)
        switch = self._run.cluster.status(JOB).switch
        if self._process.returncode or switch is None or switch.cut is None:
            raise DemoFailed(f"the switch failed: {said} {errors}")
        self.done_at, self.cut = self._diary.now, datetime.fromisoformat(switch.cut)
        return said.strip().splitlines()[-1]

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def millstream(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name("millstream")), *map(str, arguments)]


def look(settings: Settings) -> State:
    """Read the journal of departures and the groups' checkpoints."""
    found = {name: committed(f"flights.{name}", settings.job) for name in GROUPS}
    counted = (
        found["totals"]["inputs"]["departures"]["positions"][0]
        if found["totals"].get("inputs")
        else 0
    )
    under_way = [
        f"batch {one['logged']} of {name}"
        for name, one in found.items()
        if one and one["logged"] != one["batch"]
    ]
    return State(
        taken(settings.folder / "journals" / "departures", settings.recordings.flights),
        min(counted, settings.recordings.flights),
        tuple(under_way),
        bool(found["delays"].get("inputs")),
    )


def committed(group: str, data: Path) -> dict:
    try:
        return checkpoint.read(group, data)
    except (MillstreamError, FileNotFoundError):
        return {}  # not started yet


def taken(journal: Path, most: int) -> int:
    try:
        return min(Reader(journal).partition(0).end, most)
    except MillstreamError:
        return 0  # not made yet


def ripe(state: State, flights: int) -> bool:
    """Return whether to kill it now: halfway, while several groups are working."""
    share = state.counted / flights
    busy = len(state.under_way) >= 2 and state.delays_begun
    return share >= LATEST or (share >= EARLIEST and busy)


class Show:
    """Shows the progress: a bar on a terminal, lines elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._total = settings.recordings.flights
        self._times = pq.read_table(settings.recordings.departures, columns=["at"]).column("at")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self._task = self._bar.add_task("", total=self._total, said="")
        self._told = -1

    def __enter__(self) -> Show:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self.console.print(text)

    def reached(self, counted: int) -> datetime:
        """Return the event time of the last flight that was counted."""
        return self._times[max(0, min(counted, len(self._times)) - 1)].as_py()

    def update(self, run: Run, state: State) -> None:
        waiting = "Spark starts" if not state.counted and not state.under_way else "first batch"
        day = self.reached(state.counted).strftime("%-d %b %Y") if state.counted else waiting
        said = f"{state.counted:,} of {self._total:,} flights   {day}"
        self._bar.update(
            self._task, description=f"run {run.number}", completed=state.counted, said=said
        )
        tenth = state.counted * 10 // self._total
        if not self.console.is_terminal and tenth > self._told:
            self._told = tenth
            self.say(f"run {run.number}   {said}")


def watch(
    run: Run, settings: Settings, diary: Diary, show: Show, until: Callable[[State], bool]
) -> State:
    """Follow a run until a condition is met, or to its end."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended = run.ended()
        state = look(settings)
        diary.note(state)
        show.update(run, state)
        if ended or until(state):
            return state
        if time.monotonic() > deadline:
            raise DemoFailed(f"run {run.number} was not done after {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def tell(settings: Settings) -> page.Story:
    """Deploy, kill, restart, switch, and run to the end; return what happened."""
    diary = Diary()
    flights = settings.recordings.flights
    switch: Switch | None = None
    with Show(settings) as show:
        show.say(f"$ millstream engine --data {shown(settings.data)}")
        run = Run(1, settings, diary)
        show.say(f"console: {run.url}/jobs/{JOB}")
        try:
            show.say(
                f"$ millstream deploy {shown(settings.flow)} --rows-per-batch {settings.rows_per_batch}"
            )
            run.cluster.deploy(settings.flow, options={"rows_per_batch": settings.rows_per_batch})
            state = watch(run, settings, diary, show, lambda state: ripe(state, flights))
            if run.ended():
                raise DemoFailed("the job ended before it could be killed")
            processes, killed_at = run.kill(), diary.now
            # Include what was committed just before the kill.
            state = look(settings)
            show.say(
                f"kill -9: {processes} processes, {state.counted:,} flights processed, {page.listed(state.under_way)} under way"
            )
            show.say(f"$ millstream engine --data {shown(settings.data)}")
            run = Run(2, settings, diary)
            show.say(f"console: {run.url}/jobs/{JOB}")
            propose(settings, show)
            watch(run, settings, diary, show, lambda _: run.runs())
            show.say(f"$ millstream switch {JOB} {shown(settings.next_flow)}")
            switch = Switch(run, settings, diary)
            watch(run, settings, diary, show, switch.done)
            show.say(switch.outcome())
            after = watch(run, settings, diary, show, lambda _: False)
            run.stop()
        finally:
            if switch is not None:
                switch.end()
            if run.process.poll() is None:
                run.kill()
        show.say(f"ended: {after.counted:,} flights processed")
        killed_on = show.reached(state.counted)
    return page.Story(
        samples=diary.samples,
        standings=diary.standings,
        killed_at=killed_at,
        back_at=next((one.at for one in diary.samples if one.run == 2), diary.now),
        asked_at=switch.asked_at,
        done_at=switch.done_at,
        ended_at=diary.now,
        killed_on=killed_on,
        cut=switch.cut,
        counted=state.counted,
        batches=state.under_way,
        flights=flights,
    )


def propose(settings: Settings, show: Show) -> None:
    """Show the second version and the plan of the switch, which need no running job."""
    old, new = settings.flow.read_text().splitlines(), settings.next_flow.read_text().splitlines()
    changed = [
        line for line in difflib.unified_diff(old, new, n=0, lineterm="") if line[:1] in "+-"
    ]
    show.say("\n".join(line for line in changed if line[:3] not in ("+++", "---")))
    show.say(f"$ millstream switch {shown(settings.flow)} {shown(settings.next_flow)} --plan")
    planned = subprocess.run(
        millstream("switch", settings.flow, settings.next_flow, "--plan"),
        capture_output=True,
        text=True,
        check=False,
    )
    if planned.returncode:
        raise DemoFailed(f"the switch is impossible: {planned.stdout} {planned.stderr}")
    show.say(planned.stdout.rstrip())


def shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def judge(settings: Settings, story: page.Story, console: Console) -> Path:
    """Check the promises and write the report."""
    with console.status("counting with pandas"):
        wanted = check.expected(settings.days, story.cut)
        got = check.found(settings.flow, settings.folder / "journals")
        checks = check.checks(wanted, got, check.dead(settings.folder / "journals"), story.cut)
    for one in checks:
        sign = "[green]✓[/]" if one.ok else "[red]✗[/]"
        console.print(f"{sign} {one.promise}: {one.found}")
    path = settings.flow.parent / "out" / "report.html"
    write(page.report(plan(load(settings.flow)), story, got, checks), path)
    console.print(f"report: {shown(path)}")
    broken = [one.promise for one in checks if not one.ok]
    if broken:
        raise DemoFailed("; ".join(f"not kept: {promise}" for promise in broken))
    return path


def settle(arguments: argparse.Namespace, console: Console) -> Settings:
    """Create the recordings, and remove the results of an earlier run."""
    flow, data = arguments.flow.resolve(), arguments.data.resolve()
    with console.status("preparing the recordings"):
        recordings = prepare.prepare(flow.parent / "data", arguments.days)
    console.print(
        f"{recordings.flights:,} flights and {recordings.reports:,} weather reports to replay"
    )
    for rest in (data, flow.parent / "out"):
        shutil.rmtree(rest, ignore_errors=True)
    settings = Settings(flow, data, arguments.days, arguments.batches, recordings)
    text = flow.read_text()
    if text.count(OLD_LATE) != 1:
        raise DemoFailed(f"{flow} does not say {OLD_LATE} once")
    settings.next_flow.write_text(text.replace(OLD_LATE, NEW_LATE))
    return settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--flow", type=Path, default=HERE / "flow.py", help="recordings and results lie beside it"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".millstream/demo"),
        help="journals and checkpoints; emptied first",
    )
    parser.add_argument("--days", type=int, help="only the first days of the year")
    parser.add_argument(
        "--batches",
        type=int,
        default=12,
        help="in at least so many batches; more show a finer line",
    )
    console = Console(highlight=False, soft_wrap=True)
    began = datetime.now(UTC)
    try:
        settings = settle(parser.parse_args(), console)
        judge(settings, tell(settings), console)
    except (DemoFailed, MillstreamError) as error:
        print(f"demo: failed: {error}")
        return 1
    except KeyboardInterrupt:
        print("demo: failed: stopped by hand")
        return 1
    console.print(f"took {(datetime.now(UTC) - began).total_seconds():.0f} s")
    print("demo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
