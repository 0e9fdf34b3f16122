"""Versions on probation: their numbers are sampled from the cut on, and judged until it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.switch_record import Switch, SwitchState
from millstream.engine.managed_job import ManagedJob
from millstream.switch.probation import Sample, Trial, verdict

#: How often a version on probation is looked at.
SAMPLE_S: Final = 2.0
_MOST_SAMPLES: Final = 5_000


class ProbationWatch:
    """The samples of versions on probation, by job and version."""

    def __init__(
        self,
        now: Callable[[], float],
        end: Callable[[ManagedJob, Trial, str], None],
        go_back: Callable[[ManagedJob], None],
    ) -> None:
        """Watch over versions.

        Args:
            now: Tells the time.
            end: Writes down how the probation of a job's version has ended, and why.
            go_back: Begins the way back to the version before.
        """
        self._now, self._end, self._go_back = now, end, go_back
        self._samples: dict[tuple[str, int], list[Sample]] = {}

    def tick(self, job: ManagedJob) -> None:
        """Look after the versions of a job."""
        running = job.versions.get(job.current)
        done = None if running is None else running.switch
        if done is not None and done.state is SwitchState.DONE and done.trial is not None:
            self._watch(job, done, done.trial)
        new = job.switch
        if new is not None and not new.over and new.cut_us is not None and new.trial is not None:
            # It runs since the cut, and what it does from there counts once it is the current one.
            self._sampled(job, new)

    def _sampled(self, job: ManagedJob, switch: Switch) -> list[Sample] | None:
        """Sample a version's numbers if it is time; return all samples, None if it is not."""
        now, samples = self._now(), self._samples.setdefault((job.stored.id, switch.version), [])
        if samples and now - samples[-1].at < SAMPLE_S:
            return None
        if len(samples) < _MOST_SAMPLES and (job.fresh or job.job.state is JobState.RESTARTING):
            samples.append(_sample(job, now))
        return samples

    def _watch(self, job: ManagedJob, switch: Switch, trial: Trial) -> None:
        if trial.ended is not None or switch.ended_at is None:
            return
        samples = self._sampled(job, switch)
        if samples is None:
            return
        wrong = verdict(samples, trial.limits)
        if wrong is not None:
            self._failed(job, switch, replace(trial, ended=wrong), wrong)
        elif self._now() >= switch.ended_at + trial.seconds:
            self._ended(job, switch, replace(trial, ended="passed"), "it has passed its probation")

    def _failed(self, job: ManagedJob, switch: Switch, trial: Trial, wrong: str) -> None:
        unwell = f"version {switch.version} is unwell"
        if not trial.back:
            self._ended(job, switch, trial, f"{unwell}: {wrong}")
        elif job.job.state is JobState.RUNNING and job.driver is not None:
            text = f"{unwell}, and {switch.previous} comes back: {wrong}"
            self._ended(job, switch, trial, text)
            self._go_back(job)

    def _ended(self, job: ManagedJob, switch: Switch, trial: Trial, text: str) -> None:
        self._end(job, trial, text)
        self._samples.pop((job.stored.id, switch.version), None)


def _sample(job: ManagedJob, now: float) -> Sample:
    numbers = job.statistics
    lags = [float(group.get("lag_seconds", 0.0)) for group in numbers.get("groups", ())]
    return Sample(now, job.job.restarts, int(numbers.get("dead", 0)), max(lags, default=0.0))
