"""Runs a measurement once more under the framework's profiler, and keeps the traces."""

import shutil
from collections import Counter

from perfkit.measuring.config import Config
from perfkit.measuring.driver.progress import display
from perfkit.measuring.driver.repeat import TaskError, perform
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, write_atomically
from perfkit.timing.profile import NAMED_STEPS, UNNAMED_STEPS

WARMUP_STEPS = 5
"""Fewest steps before the profiler's start."""


def profile(config: Config, protocol: Protocol, measurement: Measurement) -> None:
    """Profile a complete measurement, unless that has been done. A failure is told, stored, and
    leaves the measurement complete."""
    failed = measurement.profile_failure_file
    if measurement.trace_files() and not failed.exists():
        return
    shutil.rmtree(measurement.profile_folder, ignore_errors=True)
    shown = display()
    shown.print("Profiling some steps of one more run")
    try:
        perform(config, shortened(protocol), "profile", measurement.profile_folder)
        keep_telling_traces(measurement)
    except (TaskError, OSError) as error:
        shown.print(f"No profile: {error}")
        measurement.profile_folder.mkdir(exist_ok=True)
        write_atomically(failed, f"{error}\n")
    finally:
        shown.close()


def shortened(protocol: Protocol) -> Protocol:
    """Return the protocol of the profiled run, whose steps are known before."""
    changes = {
        "warmup_steps": max(WARMUP_STEPS, protocol.warmup_steps),
        "warmup_limit": None,
        "warmup_seconds": None,
        "measured_steps": UNNAMED_STEPS + NAMED_STEPS,
        "measured_seconds": 0.0,
    }
    return protocol.model_copy(update=changes)


def keep_telling_traces(measurement: Measurement) -> None:
    """Remove the traces of all ranks but rank 0 and the slowest."""
    kept = {0, slowest_rank(measurement.result)}
    for rank, trace in measurement.trace_files().items():
        if rank not in kept:
            trace.unlink()


def slowest_rank(result: Result) -> int:
    """Return the rank that most often computed longest in the timed repeats or, where that is
    unknown, had the longest window."""
    slowest: Counter[int] = Counter()
    for repeat in result.complete_repeats:
        longest = max(
            repeat.ranks, key=lambda rank: (rank.compute_seconds or 0.0, rank.window_seconds)
        )
        slowest[longest.rank] += 1
    return slowest.most_common(1)[0][0]
