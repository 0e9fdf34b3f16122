"""The driver: what runs a job's flow, as its engine commands (protocol.py).

It runs one flow, once; two versions of it during a switch. Its process is in main.py.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream import ingest
from millstream.actions import scheme as schemes
from millstream.engine.driver import protocol
from millstream.engine.driver.state_reading import begin_reading
from millstream.engine.jobs.spread import spread_sources
from millstream.engine.jobs.switch_record import Begin, Compare, Share
from millstream.engine.schemes import mixing
from millstream.errors import MillstreamError
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.named_secrets import check_secrets
from millstream.flow.rewire import renamed
from millstream.flow.stages import Source, Written
from millstream.plan.drawing import Columns, drawing
from millstream.plan.groups import Plan, plan
from millstream.switch.progress import SwitchProgress

if TYPE_CHECKING:
    from millstream.actions.scheme import Scheme
    from millstream.engine.driver.driver_versions import DriverVersions
    from millstream.engine.schemes.hosting import Beside
    from millstream.spark.flow_run import FlowRun
    from millstream.spark.session.start import SparkStart

_POLL_S: Final = 0.15
_STATISTICS_S: Final = 1.0


def described(flow: Flow) -> protocol.Described:
    """Check a flow as far as that goes without Spark, and return what an engine must know of it."""
    flow.check()
    plan(flow)
    check_secrets(flow)
    programs = dict.fromkeys(stage.program for stage in flow.stages.values())
    inboxes = {name: stage.partitions for name, stage in _inboxes(flow).items()}
    named = tuple(one for one in programs if one is not None)
    journals = ((name, stage) for name, stage in flow.stages.items() if isinstance(stage, Written))
    unplaced = tuple(name for name, stage in journals if stage.address is None)
    spread = spread_sources(flow)
    return protocol.Described(flow.name, inboxes, named, spread=spread, unplaced=unplaced)


def _inboxes(flow: Flow) -> dict[str, Source]:
    return {name: stage for name, stage in _sources(flow).items() if stage.origin.intake}


def _sources(flow: Flow) -> dict[str, Source]:
    return {name: stage for name, stage in flow.stages.items() if isinstance(stage, Source)}


class Driver:
    """One flow, run once, as the engine commands."""

    def __init__(self, line: protocol.Line, start: SparkStart) -> None:
        self._line = line
        self._start = start
        self._flow: Flow | None = None
        #: What the flow calls itself; the job may have another name.
        self._own = ""
        self._scheme: Scheme | None = None
        self._beside: Beside | None = None
        self._draining: protocol.Drain | None = None
        self._versions: DriverVersions | None = None
        self._reported_at = 0.0
        self._drawn: Plan | None = None
        #: Where its checkpoints are, if they are not in its folder.
        self._storage: str | None = None

    def serve(self, *, warm: bool = False, begun: bool = False) -> int:
        """Carry out commands until there is nothing left to do; return the exit code.

        With `warm`, Spark is started before there is anything to run, and has run a small flow.
        If its Java has `begun`, there will be a flow for it.
        """
        try:
            if begun and not self._line.waiting:  # as before a driver is started again
                _load_ahead()
            if warm:
                self._warm_up()
                self._line.report(protocol.Warm())
            while self._obey(self._line.next()):
                pass
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a driver reports whatever happens)
            traceback.print_exc()
            self._line.report(protocol.failure(error))
            return 1
        finally:
            self._start.close()
        return 0

    def _warm_up(self) -> None:
        spark = self._start.session()
        from millstream.spark.rehearsal import rehearse
        from millstream.spark.served.serving import embedded
        from millstream.spark.session.memory import give_memory_back

        try:
            if embedded(self._start.master):  # executors elsewhere may not see the folder
                rehearse(spark, lambda: self._line.waiting)
            if not self._line.waiting:
                give_memory_back(spark)
        except Exception:  # noqa: BLE001 (the next flow may do better)
            traceback.print_exc()

    def _obey(self, command: protocol.Command | None) -> bool:
        """Carry out a command before the flow runs; return whether to wait for another."""
        match command:
            case protocol.Describe():
                self._line.report(self._describe(command))
            case protocol.Declare():
                self._declare(Path(command.folder), command.spread)
            case protocol.Run():
                self._read(command.flow, command.name)
                if self._flow is None:
                    self._host(command)
                else:
                    self._run(command)
                return False
            case protocol.Stop() | None:
                return False
        return True

    def _read(self, file: str, name: str | None) -> None:
        """Read a flow, or a scheme, whose stages in Spark, if it has any, are a flow."""
        if not schemes.described_in(Path(file)):
            self._flow = self._flow or self._load(file, name)
            return
        from millstream.engine.schemes import hosting

        self._scheme = hosting.loaded(Path(file), name)
        self._flow = mixing.flow_of(self._scheme)

    def _load(self, file: str, name: str | None) -> Flow:
        flow = load(file)
        self._own = flow.name
        return flow if name is None or name == flow.name else renamed(flow, name)

    def _describe(self, asked: protocol.Describe) -> protocol.Described:
        self._read(asked.flow, asked.name)
        if self._flow is None and self._scheme:
            found = protocol.Described(self._scheme.name, {})
        else:
            found = described(self._known)
        if self._scheme is None:
            return found
        from millstream.engine.schemes import hosting

        return msgspec.structs.replace(found, binaries=hosting.binaries(self._scheme), hosted=True)

    @property
    def _known(self) -> Flow:
        assert self._flow is not None
        return self._flow

    def _host(self, how: protocol.Run) -> None:
        from millstream.engine.schemes import hosting

        assert self._scheme is not None
        self._start.close()  # of a Java that was begun for another job
        last = hosting.SchemeRun(self._line, self._scheme, how).run()
        if last is not None:
            self._line.report(last)

    def _declare(self, folder: Path, spread: Sequence[str]) -> None:
        if self._scheme is not None:
            from millstream.engine.schemes import hosting

            hosting.declare(folder)
        if self._flow is None:
            self._line.report(protocol.Declared())
            return
        for name, stage in _sources(self._flow).items():
            if stage.origin.intake or name in spread:
                ingest.declare(stage, folder / "journals" / name)
        self._line.report(protocol.Declared())
        _load_ahead()  # `Run` comes in a moment

    def _run(self, how: protocol.Run) -> None:
        from millstream.engine.driver.driver_versions import DriverVersions
        from millstream.spark.flow_run import FlowRun, Options
        from millstream.spark.run.query import ship_modules
        from millstream.terminal.console import Console

        flow = self._known
        binaries = {name: Path(file) for name, file in how.binaries.items()}
        files = {**how.versions, how.version: how.flow}
        versions = self._versions = DriverVersions(how.name, files, binaries, ship_modules)
        versions.began_with(how.version, self._own or flow.name)
        options = Options(
            Path(how.data),
            Path(how.root),
            log=Path(how.log),
            hosting=False,
            read_elsewhere=frozenset(how.spread),
            binaries=binaries,
            storage=None if how.lease is None else how.lease.storage,
            lease=how.lease,
            **how.options,
        )
        spark, self._storage = self._start.session(), options.storage
        # The flow's modules are those of the package, wherever its paths count from.
        ship_modules(Path(how.flow).parent)
        terminal = Console(stderr=True, width=200)
        running = FlowRun(
            spark, flow, options, terminal=terminal, versions=versions.flow, version=how.version
        )
        running.start()
        try:
            self._begin_beside(how)
            self._line.report(protocol.SwitchRecovered(versions.recovered(running)))
            self._report_drawing(running)
            self._line.report(protocol.Ready())
            last = self._watch(running)
        finally:
            if self._beside is not None:
                self._beside.close()
            running.stop()
        if last is not None:
            self._line.report(last)

    def _begin_beside(self, how: protocol.Run) -> None:
        """Start the runtimes beside the stages of a scheme."""
        if self._scheme is not None:
            from millstream.engine.schemes.hosting import Beside

            self._beside = Beside(self._scheme, how)

    def _watch(self, running: FlowRun) -> protocol.Report | None:
        """Watch over a run until it ends; return what to report once it has stopped."""
        while True:
            match self._line.next(_POLL_S):
                case protocol.Stop():
                    return None
                case None:
                    pass
                case command:
                    self._command(command, running)
            if self._beside is not None:
                self._beside.step()
            delivered = self._beside is None or self._beside.delivered
            ended = running.poll() and delivered
            self._report_switch(running)
            drained = not ended and self._has_drained(running) and delivered
            self._report_statistics(running, last=ended or drained)
            if ended:
                return protocol.Finished()
            if drained:
                return protocol.Drained()

    def _has_drained(self, running: FlowRun) -> bool:
        draining = self._draining
        return draining is not None and not draining.flush and running.drained()

    def _command(self, command: protocol.Command, running: FlowRun) -> None:
        """Carry out a command while the flow runs."""
        match command:
            case protocol.Drain():
                running.drain(flush=command.flush)
                if self._beside is not None and command.flush:
                    self._beside.flush()
                self._draining = command
            case Compare():
                self._line.report(self._planned(command, running))
            case Share():
                self._line.report(self._shared(command, running))
            case Begin():
                self._begin(command, running)
            case (
                protocol.ReadState() | protocol.ReadPatterns() | protocol.ReadCheckpoints() as asked
            ):
                begin_reading(self._line, self._start.session(), running, self._storage, asked)
            case protocol.AbortSwitch():
                # It may be past its cut, or over: the reports show that.
                with contextlib.suppress(MillstreamError):
                    running.abort()

    def _planned(
        self, asked: Compare, running: FlowRun
    ) -> protocol.SwitchPlanned | protocol.Refused:
        if self._scheme is not None:
            from millstream.engine.schemes import hosting

            return protocol.Refused(protocol.failure(hosting.no_switch(self._scheme)))
        assert self._versions is not None
        try:
            return protocol.SwitchPlanned(self._versions.plan(running, asked, described))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the running flow is not concerned)
            return protocol.Refused(protocol.failure(error))

    def _shared(self, asked: Share, running: FlowRun) -> protocol.KeysShared | protocol.Refused:
        assert self._versions is not None
        try:
            return protocol.KeysShared(self._versions.share(running, asked))
        except MillstreamError as error:
            return protocol.Refused(protocol.failure(error))

    def _begin(self, asked: Begin, running: FlowRun) -> None:
        assert self._versions is not None
        try:
            refused = self._versions.begin(running, asked)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the running flow is not concerned)
            refused = SwitchProgress(
                asked.version, ended="refused", why=protocol.failure(error).message
            )
        if refused is not None:
            self._line.report(protocol.SwitchMoved(refused))

    def _report_switch(self, running: FlowRun) -> None:
        assert self._versions is not None
        news = self._versions.news(running)
        if news is not None:
            self._line.report(protocol.SwitchMoved(news))

    def _report_drawing(self, running: FlowRun) -> None:
        """Report the graph of the version that runs, when that is another one."""
        if running.plan is not self._drawn:
            self._drawn = running.plan
            self._line.report(protocol.Drawn(drawing(running.plan, self._columns(running))))

    def _columns(self, running: FlowRun) -> Columns:
        from millstream.spark.stages.analyse import plain_types

        return next((plain_types(one.analysis) for one in running.queries.values()), {})

    def _report_statistics(self, running: FlowRun, *, last: bool) -> None:
        now = time.monotonic()
        self._report_drawing(running)
        if last or now >= self._reported_at + _STATISTICS_S:
            self._reported_at = now
            numbers = msgspec.to_builtins(running.statistics())
            if self._beside is not None:
                numbers["runtimes"] = msgspec.to_builtins(self._beside.status())
            self._line.report(protocol.Statistics(numbers))


def _load_ahead() -> None:
    """Load what a run needs: half a second."""
    import millstream.engine.driver.driver_versions
    import millstream.spark.flow_run
    import millstream.terminal.console  # noqa: F401
