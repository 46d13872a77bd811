"""Something that workers are started for besides measuring."""

from pathlib import Path

from perfkit.config import Config, Protocol
from perfkit.driver.failures import cause, finished
from perfkit.driver.workers import LocalWorkers
from perfkit.results.store import Events, rank_file, read_events
from perfkit.text.messages import coded


class TaskError(RuntimeError):
    """What was to be found out could not be; the message says what and why."""


def perform(config: Config, protocol: Protocol, task: str, raw: Path) -> list[Events]:
    """Start the workers for `task`, with their raw files in the folder `raw`; their events, by
    rank. Raises TaskError where a worker does not come to its end."""
    raw.mkdir(parents=True)
    with LocalWorkers(config, protocol, raw, f"perfkit-{task}", task=task) as workers:
        in_time = workers.wait(config.timeout)
        workers.end()
        exit_info = workers.exit_info()
    files = [rank_file(raw, rank) for rank in range(config.ranks)]
    events = [read_events(file) if file.exists() else [] for file in files]
    if not in_time:
        raise TaskError(f"{task}: took over {config.timeout} s; -p timeout allows more")
    if not all(map(finished, events)):
        failure = cause(events, [None] * config.ranks, exit_info, [0.0] * config.ranks)
        raise TaskError(f"{task}: {coded(failure)}")
    return events
