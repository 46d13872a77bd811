"""How long a sweep will take, judged by what has been measured."""

import statistics
from collections.abc import Iterable

from perfkit.config import Config, Protocol
from perfkit.results.store import Measurement
from perfkit.sweep.jobs import Job

NOTEBOOK_SECONDS = 5.0
"""What a notebook takes besides its repeats, about: docs/figures.md."""
Sample = tuple[float, float]
"""Work of a repeat and the seconds that it took."""


def seconds_left(jobs: Iterable[Job], found: dict[str, Measurement]) -> float | None:
    """Seconds of measuring that the jobs need still, one after another, by what was `found`
    for this sweep's jobs; None where nothing of the same model and device was measured."""
    known: dict[tuple[str, str], list[Sample]] = {}
    for measurement in found.values():
        config, protocol = measurement.result.config, measurement.result.protocol
        known.setdefault((config.model, config.device), []).extend(
            (_work(config, protocol), repeat.wall_seconds)
            for repeat in measurement.result.complete_repeats
            if repeat.wall_seconds
        )
    total = 0.0
    for job in jobs:
        repeats = repeats_left(job, found)
        samples = known.get((job.plan.config.model, job.plan.config.device), [])
        if repeats and not samples:
            return None
        if repeats:
            protocol = job.plan.protocol
            seconds = repeats * predicted(_work(job.plan.config, protocol), samples)
            total += NOTEBOOK_SECONDS + min(seconds, protocol.budget or seconds)
    return total


def repeats_left(job: Job, found: dict[str, Measurement]) -> int:
    """How many repeats of a job are not complete, at most."""
    if job.name not in found:
        return job.plan.protocol.repeats
    result = found[job.name].result
    return 0 if result.ended_by else result.protocol.repeats - len(result.complete_repeats)


def predicted(work: float, samples: list[Sample]) -> float:
    """Seconds for `work` on the straight line through the samples; their mean where they are
    all of the same work, or less work took longer."""
    mean = statistics.mean(seconds for _work, seconds in samples)
    if len({one for one, _seconds in samples}) == 1:
        return mean
    slope, start = statistics.linear_regression(*zip(*samples, strict=True))
    return max(0.0, start) + slope * work if slope > 0 else mean


def _work(config: Config, protocol: Protocol) -> float:
    """What a rank has to go through in a repeat: pixels or tokens."""
    each = config.sample_size ** (2 if config.image_size else 1)
    return float(config.samples_per_step * protocol.steps * each)
