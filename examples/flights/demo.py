"""The show: run the flow, kill it with kill -9 in the middle, start it again, and count every flight.

    PYTHONPATH=. python examples/flights/demo.py [--days 28]

Ends with "demo: ok", or with "demo: failed: ..." and exit status 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from examples.flights import check, page, prepare
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from millstream.cli import checkpoint
from millstream.errors import MillstreamError
from millstream.flow.load import load
from millstream.journal import Reader
from millstream.plan.groups import plan
from millstream.web import Sample, write

HERE = Path(__file__).parent
GROUPS = ("hourly", "delays", "totals", "grounded")
#: The kill comes when so much is committed, as soon as batches are under way; later than so much, in any case.
EARLIEST, LATEST = 0.35, 0.6
PATIENCE_S = 900.0
POLL_S = 0.1


class DemoFailed(Exception):
    """Something that should have been shown did not happen."""


@dataclass(frozen=True)
class Settings:
    """Where everything lies and how much there is of it."""

    flow: Path
    data: Path
    days: int | None
    batches: int
    recordings: prepare.Recordings

    @property
    def folder(self) -> Path:
        return self.data / "flights"

    @property
    def command(self) -> list[str]:
        # Small batches, so that there is a middle to be killed in, on a fast machine too.
        batch = -(-self.recordings.flights // self.batches)
        program = str(Path(sys.executable).with_name("millstream"))
        where = [str(self.flow), "--until-end", "--data", str(self.data)]
        return [program, "run", *where, "--rows-per-batch", str(batch), "--json"]


@dataclass(frozen=True)
class State:
    """What the journal and the checkpoints say: they outlive the process."""

    taken: int
    counted: int
    under_way: tuple[str, ...]
    delays_begun: bool


@dataclass
class Diary:
    """What was seen, with seconds since the beginning."""

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
    """`millstream run` in a process of its own."""

    def __init__(self, number: int, settings: Settings, diary: Diary) -> None:
        self.number = number
        self._diary = diary
        self._errors = settings.data / f"run-{number}.stderr"
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                settings.command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A line that was cut off by the kill says nothing.
            if line.startswith("{") and line.endswith("}\n"):
                self._diary.samples.append(Sample(self._diary.now, self.number, json.loads(line)))

    def kill(self) -> int:
        """End it and all processes below it at once, with no chance to tidy up; return how many there were."""
        ours = psutil.Process(self.process.pid)
        all_of_them = [ours, *ours.children(recursive=True)]
        for one in all_of_them:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(all_of_them, timeout=20)
        self.process.wait()
        self._listener.join(5)
        return len(all_of_them)

    def ended(self) -> bool:
        status = self.process.poll()
        if status:
            said = self._errors.read_text().strip().splitlines()[-6:]
            raise DemoFailed(f"run {self.number} ended with status {status}: " + " / ".join(said))
        if status == 0:
            self._listener.join(5)
        return status == 0


def look(settings: Settings) -> State:
    """Read the journal of departures and the groups' checkpoints."""
    found = {name: committed(f"flights.{name}", settings.data) for name in GROUPS}
    counted = found["totals"]["inputs"]["departures"]["positions"][0] if found["totals"].get("inputs") else 0
    under_way = [
        f"batch {one['logged']} of {name}" for name, one in found.items() if one and one["logged"] != one["batch"]
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
        return {}  # not begun yet


def taken(journal: Path, most: int) -> int:
    try:
        return min(Reader(journal).partition(0).end, most)
    except MillstreamError:
        return 0  # not made yet


def ripe(state: State, flights: int) -> bool:
    """Tell whether this is a moment to be killed in: halfway, with work under way in several groups."""
    share = state.counted / flights
    busy = len(state.under_way) >= 2 and state.delays_begun
    return share >= LATEST or (share >= EARLIEST and busy)


class Show:
    """Tells what happens: with a bar on a terminal, in lines elsewhere."""

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
        self._bar.update(self._task, description=f"run {run.number}", completed=state.counted, said=said)
        tenth = state.counted * 10 // self._total
        if not self.console.is_terminal and tenth > self._told:
            self._told = tenth
            self.say(f"run {run.number}   {said}")


def watch(run: Run, settings: Settings, diary: Diary, show: Show, *, kill: bool) -> State:
    """Follow a run to its end, or to the moment at which it should be killed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended = run.ended()
        state = look(settings)
        diary.note(state)
        show.update(run, state)
        if ended and kill:
            raise DemoFailed("the first run ended before it could be killed")
        if ended or (kill and ripe(state, settings.recordings.flights)):
            return state
        if time.monotonic() > deadline:
            raise DemoFailed(f"run {run.number} was not done after {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def tell(settings: Settings) -> page.Story:
    """Run, kill, run again; return what happened."""
    diary = Diary()
    with Show(settings) as show:
        show.say(f"$ {shown(settings.command)}")
        run = Run(1, settings, diary)
        try:
            watch(run, settings, diary, show, kill=True)
            processes, killed_at = run.kill(), diary.now
            # What was committed in the very last moment counts too.
            state = look(settings)
            show.say(
                f"kill -9: {processes} processes, {state.counted:,} flights processed, {page.listed(state.under_way)} under way"
            )
            run = Run(2, settings, diary)
            after = watch(run, settings, diary, show, kill=False)
        finally:
            if run.process.poll() is None:
                run.kill()
        show.say(f"ended: {after.counted:,} flights processed")
        killed_on = show.reached(state.counted)
    return page.Story(
        samples=diary.samples,
        standings=diary.standings,
        killed_at=killed_at,
        back_at=next((one.at for one in diary.samples if one.run == 2), diary.now),
        ended_at=diary.now,
        killed_on=killed_on,
        counted=state.counted,
        batches=state.under_way,
        flights=settings.recordings.flights,
    )


def shown(command: Sequence[str]) -> str:
    here = f"{Path.cwd()}/"
    return " ".join(["millstream", *(part.replace(here, "") for part in command[1:])])


def judge(settings: Settings, story: page.Story, console: Console) -> Path:
    """Check what was promised and write the report."""
    with console.status("counting with pandas"):
        wanted = check.expected(settings.days)
        got = check.found(settings.flow, settings.folder / "journals")
        checks = check.checks(wanted, got, check.dead(settings.folder / "journals"))
    for one in checks:
        sign = "[green]✓[/]" if one.ok else "[red]✗[/]"
        console.print(f"{sign} {one.promise}: {one.found}")
    path = settings.flow.parent / "out" / "report.html"
    write(page.report(plan(load(settings.flow)), story, got, checks), path)
    console.print(f"report: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    broken = [one.promise for one in checks if not one.ok]
    if broken:
        raise DemoFailed("; ".join(f"it is not so that {promise}" for promise in broken))
    return path


def settle(arguments: argparse.Namespace, console: Console) -> Settings:
    """Make the recordings, and room for a fresh run."""
    flow, data = arguments.flow.resolve(), arguments.data.resolve()
    with console.status("preparing the recordings"):
        recordings = prepare.prepare(flow.parent / "data", arguments.days)
    console.print(f"{recordings.flights:,} flights and {recordings.reports:,} weather reports to replay")
    for rest in (data, flow.parent / "out"):
        shutil.rmtree(rest, ignore_errors=True)
    return Settings(flow, data, arguments.days, arguments.batches, recordings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flow", type=Path, default=HERE / "flow.py", help="recordings and results lie beside it")
    parser.add_argument(
        "--data", type=Path, default=Path(".millstream/demo"), help="journals and checkpoints; emptied first"
    )
    parser.add_argument("--days", type=int, help="only the first days of the year")
    parser.add_argument("--batches", type=int, default=12, help="in at least so many batches; more show a finer line")
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
