"""What follows from the raw events of a repeat whose workers have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from perfkit.measuring.config import Config
from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.failures import EndedRun, cause, finished, timed_out
from perfkit.measuring.driver.told_failures import told_failure
from perfkit.measuring.driver.workers import Launcher
from perfkit.measuring.results.effective import Effective, Told
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.store import (
    Events,
    ResultError,
    Store,
    raw_digests,
    read_events,
    read_raw_files,
)
from perfkit.measuring.results.summarize import noted, summarize, told_by
from perfkit.timing.raw_file import rank_file

EndedBy = Literal["timeout", "interrupt"]
"""Why the driver ended the workers."""


class Concluded(NamedTuple):
    """A repeat, complete or failed, and what its ranks reported besides their steps: of a model
    their effective settings, of a script what it told the timer; NCCL's network between the
    nodes."""

    repeat: Repeat
    effective: Effective | None = None
    told: Told | None = None
    nccl_network: str | None = None


@dataclass(frozen=True)
class EndedRepeat:
    """A repeat whose workers have ended."""

    launcher: Launcher
    store: Store
    index: int
    ended_by: EndedBy | None
    """why the driver ended the workers, if it did"""
    seconds: float
    """their wall time"""
    exit_info: ExitInfo

    def conclude(self, first_told: Told | None) -> Concluded:
        """Derive the repeat, and what its ranks reported, from the raw events. `first_told`:
        what a script told in the first repeat; None in that one."""
        config = self.launcher.config
        events = events_of_ranks(self.store.raw_folder(self.index), config)
        told = told_by(events[0])
        failure = self._why_failed(events, first_told)
        if failure:
            repeat = Repeat(
                index=self.index, status="failed", failure=failure, wall_seconds=self.seconds
            )
        else:
            repeat = self._summarized(events, told)
        # Store only what can be read again.
        repeat = Repeat.model_validate_json(repeat.model_dump_json())
        network = self.exit_info.nccl_network
        if told is None:
            return Concluded(repeat, nccl_network=network)
        notes = noted([event for event in events[0] if event["event"] == "note"])
        effective = config.work.effective(told, notes)
        return Concluded(repeat, effective, config.work.stored_told(told), network)

    def _why_failed(self, events: list[Events], first_told: Told | None) -> Failure | None:
        """Return why a repeat failed; None if all ranks finished and a script did the same in
        all of them."""
        config = self.launcher.config
        if self.ended_by == "interrupt":
            reason = f"interrupted during repeat {self.index}"
            return Failure(code="interrupted", reason=reason)
        nodes = []
        for rank in range(config.ranks):
            nodes.append(self.launcher.node_name(rank // config.devices))
        run = EndedRun(events, nodes, self.exit_info)
        if not run.exit_info.error:
            failure = told_failure(run, self.index, first_told)
            if failure:
                return failure
        if all(finished(rank_events) for rank_events in events):
            # Even after a timeout: only the cleanup of the processes did not finish.
            return None
        if self.ended_by == "timeout":
            return timed_out(run, self.index, config.timeout, config.work.sign_of_step)
        return cause(run)

    def _summarized(self, events: Sequence[Events], told: Told | None) -> Repeat:
        """Return the complete repeat with its numbers and the digests of its raw files."""
        repeat = summarize(
            self.index,
            self.launcher.protocol,
            events,
            self.seconds,
            _events(self.store.telemetry_file(self.index)),
            units=self.launcher.config.work.counts(told).units_per_sample,
        )
        raw_files = read_raw_files(self.store.raw_folder(self.index))
        changes = {
            "raw_files": raw_digests(raw_files),
            "killed_after_end": self.exit_info.killed_after_end,
        }
        return repeat.model_copy(update=changes)


def events_of_ranks(raw_folder: Path, config: Config) -> list[Events]:
    """Return the raw events by rank; none of a rank whose file can't be read."""
    return [_events(rank_file(raw_folder, rank)) for rank in range(config.ranks)]


def _events(path: Path) -> Events:
    try:
        return read_events(path)
    except (OSError, ResultError):
        return []
