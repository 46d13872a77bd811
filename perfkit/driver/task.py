"""Something that workers are started for besides measuring."""

from pathlib import Path

from perfkit.config import Config, Protocol
from perfkit.driver.failures import came_to_end, cause
from perfkit.driver.workers import Workers
from perfkit.results.files import Events, rank_file, read_events
from perfkit.text.messages import sentence


class TaskError(RuntimeError):
    """What was to be found out could not be; the message says what and why."""


def perform(config: Config, protocol: Protocol, task: str, raw: Path) -> list[Events]:
    """Start the workers for `task`, with their raw files in the folder `raw`; their events, by
    rank. Raises TaskError where a worker does not come to its end."""
    raw.mkdir(parents=True)
    files = [rank_file(raw, rank) for rank in range(config.ranks)]
    with Workers(config, protocol, raw, f"perfkit-{task}", task=task) as workers:
        late = workers.wait(config.timeout) is None
        workers.end()
        ending, logs = workers.ending(), workers.logs()
    events = [read_events(file) if file.exists() else [] for file in files]
    if late:
        raise TaskError(f"{task}: took over {config.timeout} s; -p timeout allows more")
    if not all(map(came_to_end, events)):
        names = [f"rank {rank}" for rank in range(config.ranks)]
        failure = cause(events, names, ending, [0.0] * config.ranks, logs, None)
        raise TaskError(f"{task}: {failure.code}: {sentence(failure)}")
    return events
