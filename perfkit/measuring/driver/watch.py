"""Watches the workers of a repeat while they train."""

import time

import psutil

from perfkit.measuring.driver.progress import RepeatsProgress
from perfkit.measuring.driver.warmup import Follower, WarmupEnd
from perfkit.measuring.driver.workers import Launcher, WorkerGroup
from perfkit.measuring.results.telemetry import SAMPLING_SECONDS
from perfkit.measuring.system.telemetry import Telemetry
from perfkit.timing.raw_file import rank_file


class Watch:
    """Watches the workers of a repeat: samples the telemetry, ends the warm-up and shows the
    progress. Rank 0 is always on this machine, and ranks step together."""

    def __init__(
        self,
        launcher: Launcher,
        workers: WorkerGroup,
        telemetry: Telemetry,
        progress: RepeatsProgress,
        index: int,
        samples: int | None,
    ) -> None:
        config = launcher.config
        self.workers = workers
        self.telemetry = telemetry
        self.progress = progress
        self.index = index
        self.ranks = config.ranks
        counts = config.work.counts()
        self.first_rank = Follower(rank_file(workers.raw_folder, 0), launcher.protocol)
        pass_steps = None
        if samples and counts.samples_per_step:
            pass_steps = samples / (counts.samples_per_step * config.ranks)
        self.warmup = WarmupEnd(config, launcher.protocol, pass_steps)
        self.supervisor = psutil.Process(workers.process.pid)

    def until_exit(self, deadline: float) -> bool:
        """Watch until the workers exit. Return whether they did so before the deadline."""
        while True:
            has_exited = self.workers.wait(SAMPLING_SECONDS)
            self._look()
            if has_exited:
                return True
            if time.monotonic() > deadline:
                return False

    def _look(self) -> None:
        first = self.first_rank
        first.read_on()
        self.telemetry.sample(self.supervisor)
        # No test in the window, which it would disturb.
        if first.warmup_step:
            start = self.warmup.start(first)
            if start is not None:
                self.workers.start_window(start)
        if first.unit:
            self.progress.unit = f"{first.unit}/s"
        throughput = first.samples_per_second * self.ranks
        self.progress.show(self.index, first.planned_step, throughput, first.state)
