"""The profile of a measurement, and the operators in which two differ.

outputs/<id>/profile/profile.json    a Profile, made from the traces when it is first asked for
"""

from typing import Literal, NamedTuple

from perfkit.analysis.profile.steps import StepProfile, step_profile
from perfkit.measuring.results.base import Positive, Stored
from perfkit.measuring.results.schema import Result, present
from perfkit.measuring.results.store import (
    Measurement,
    ResultError,
    read_as,
    write_atomically,
)
from perfkit.measuring.statistics import median

FILE = "profile.json"


class Profile(Stored):
    """Where the time of a step goes."""

    schema_version: Literal[1] = 1
    """readers refuse any other"""
    timed_step_seconds: Positive
    """time of a step in the repeats, without a profiler: the median"""
    ranks: dict[int, StepProfile]
    """rank 0 and, if it is another, the slowest rank"""

    @property
    def slowest(self) -> StepProfile:
        return self.ranks[max(self.ranks)]


def read_profile(measurement: Measurement) -> Profile | None:
    """Return the profile of a measurement, None without one. The first time, it is made from
    the traces and stored. Raises ResultError and OSError."""
    file = measurement.profile_folder / FILE
    if file.exists():
        return read_as(Profile, file)
    framework, ranks = measurement.result.config.framework, {}
    for rank, trace in measurement.trace_files().items():
        try:
            ranks[rank] = step_profile(trace, framework)
        except (ValueError, KeyError) as error:
            raise ResultError(trace, f"not a trace of {framework} ({error})") from None
    if not ranks:
        return None
    profile = Profile(timed_step_seconds=timed_step_seconds(measurement.result), ranks=ranks)
    write_atomically(file, profile.model_dump_json(indent=1) + "\n")
    return profile


def timed_step_seconds(result: Result) -> float:
    return 1 / median(present(repeat.steps_per_second for repeat in result.complete_repeats))


class OperatorDifference(NamedTuple):
    """The time of an operator in a step of A and of B, seconds: its share of the profiled step
    x the time of a step without a profiler; and its share of the whole difference."""

    name: str
    a: float
    b: float
    share: float

    @property
    def seconds(self) -> float:
        return self.b - self.a


def operator_differences(a: Profile, b: Profile) -> list[OperatorDifference]:
    """Return the operators of the slowest ranks, that with the largest difference first."""
    in_a, in_b = _operator_seconds(a), _operator_seconds(b)
    whole = b.timed_step_seconds - a.timed_step_seconds
    differences = []
    for name in in_a.keys() | in_b.keys():
        a_seconds, b_seconds = in_a.get(name, 0.0), in_b.get(name, 0.0)
        share = (b_seconds - a_seconds) / whole if whole else 0.0
        differences.append(OperatorDifference(name, a_seconds, b_seconds, share))
    return sorted(differences, key=lambda each: (-abs(each.seconds), each.name))


def _operator_seconds(profile: Profile) -> dict[str, float]:
    """Return name -> seconds in a step, as it is without a profiler."""
    step = profile.timed_step_seconds
    return {each.name: each.share * step for each in profile.slowest.operators}
