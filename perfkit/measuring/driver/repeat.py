"""One repeat: starts worker processes, monitors them until they exit, summarizes the result."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from perfkit.measuring.config import Config
from perfkit.measuring.driver.conclusion import (
    Concluded,
    EndedBy,
    EndedRepeat,
    events_of_ranks,
)
from perfkit.measuring.driver.failures import EndedRun, NodeError, cause, finished, unwritten
from perfkit.measuring.driver.progress import RepeatsProgress
from perfkit.measuring.driver.watch import Watch
from perfkit.measuring.driver.workers import Launcher, LocalWorkers
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.store import (
    Events,
    Store,
    write_atomically,
)
from perfkit.measuring.system.telemetry import Telemetry


class TaskError(RuntimeError):
    """A task of workers other than a measurement failed; the message says why."""


def perform(config: Config, protocol: Protocol, task: str, raw: Path) -> list[Events]:
    """Run the workers for `task`, with raw files in the folder `raw`, and return the events by
    rank. Raises TaskError if a worker does not complete the task."""
    raw.mkdir(parents=True)
    with LocalWorkers(config, protocol, raw, f"perfkit-{task}", task=task) as workers:
        in_time = workers.wait(config.timeout)
        workers.end()
        exit_info = workers.exit_info()
    events = events_of_ranks(raw, config)
    if not in_time:
        raise TaskError(f"{task}: took over {config.timeout} s; -p timeout allows more")
    if not all(finished(rank_events) for rank_events in events):
        run = EndedRun(events, [None] * config.ranks, exit_info)
        raise TaskError(f"{task}: {cause(run).line()}")
    return events


def run_repeat(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: RepeatsProgress,
    samples: int | None = None,
    first_told: Told | None = None,
) -> Concluded:
    """Run repeat `index` of the measurement in `store`, replacing raw files of an earlier try.
    `samples` is the size of the data set; `first_told` is what a script told in the first
    repeat, None before that."""
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        shutil.rmtree(store.raw_folder(index), ignore_errors=True)
        store.raw_folder(index).mkdir(parents=True, exist_ok=True)
        made = _run_workers(launcher, store, index, progress, samples).conclude(first_told)
        if not made.repeat.failure:
            progress.unit = launcher.config.work.counts(made.told).unit
            progress.show(index, launcher.protocol.steps, made.repeat.throughput, "done")
    except OSError as error:
        made = Concluded(Repeat(index=index, status="failed", failure=unwritten(error)))
    except NodeError as error:
        made = Concluded(Repeat(index=index, status="failed", failure=error.failure))
    return made._replace(repeat=made.repeat.model_copy(update={"began": began}))


def _run_workers(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: RepeatsProgress,
    samples: int | None,
) -> EndedRepeat:
    config = launcher.config
    job = f"{store.folder.name}-{index}"
    began = time.monotonic()
    ended_by: EndedBy | None = None
    with (
        launcher.start(index, store.raw_folder(index), job) as workers,
        Telemetry(store.telemetry_file(index), config) as telemetry,
    ):
        watch = Watch(launcher, workers, telemetry, progress, index, samples)
        try:
            if not watch.until_exit(began + config.timeout):
                ended_by = "timeout"
        except KeyboardInterrupt:
            ended_by = "interrupt"
        workers.end(dump_stacks=ended_by == "timeout")
        seconds = time.monotonic() - began
        exit_info = workers.exit_info()
    # Without parents: outputs that somebody has removed stay so, which is reported.
    store.log_folder.mkdir(exist_ok=True)
    for name, text in exit_info.logs.items():
        write_atomically(store.log_file(index, name), text)
    return EndedRepeat(launcher, store, index, ended_by, seconds, exit_info)
