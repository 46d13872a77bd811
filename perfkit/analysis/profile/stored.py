"""The profile of a measurement, and the operators in which two differ.

outputs/<id>/profile.json    a Profile, made from the traces when it is first asked for
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from perfkit.analysis.profile.steps import step_times
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
MOST_OPERATORS = 200
MICRO = 1e-6


class OperatorShare(Stored):
    """The calls of an operator."""

    name: str
    """the framework's name; untrusted text"""
    calls: float
    """in a step"""
    share: float
    """time in these calls, without that of operators that they call, / time of the step"""


class RankProfile(Stored):
    """The profiled steps of a rank. Shares are those of the step, 0 to 1."""

    rank: int
    """number of the rank"""
    trace: str
    """file of the trace, in the measurement's folder"""
    steps: int
    """number of profiled steps"""
    step_seconds: Positive
    """time of such a step"""
    parts: dict[str, float]
    """part of the step -> its share; together 1: input, forward, backward, exchange that
    nothing hides, optimizer, idle and other; of JAX input, "program NAME" and other"""
    hidden_exchange: float
    """share of the step in which the exchange ran at the same time as other work"""
    operators: list[OperatorShare] = Field(max_length=MOST_OPERATORS)
    """those with most time, the longest first"""


class Profile(Stored):
    """Where the time of a step goes."""

    schema_version: Literal[1] = 1
    """readers refuse any other"""
    timed_step_seconds: Positive
    """time of a step in the repeats, without a profiler: the median"""
    ranks: list[RankProfile] = Field(min_length=1)
    """rank 0 and, if it is another, the slowest rank"""

    @property
    def slowest(self) -> RankProfile:
        return self.ranks[-1]


def read_profile(measurement: Measurement) -> Profile | None:
    """Return the profile of a measurement, None without one. The first time, it is made from
    the traces and stored. Raises ResultError and OSError."""
    file = measurement.folder / FILE
    if file.exists():
        return read_as(Profile, file)
    if not measurement.trace_files():
        return None
    profile = Profile(
        timed_step_seconds=timed_step_seconds(measurement.result),
        ranks=[*_rank_profiles(measurement)],
    )
    write_atomically(file, profile.model_dump_json(indent=1) + "\n")
    return profile


def timed_step_seconds(result: Result) -> float:
    return 1 / median(present(repeat.steps_per_second for repeat in result.complete_repeats))


def _rank_profiles(measurement: Measurement) -> Iterator[RankProfile]:
    framework = measurement.result.config.framework
    for trace in measurement.trace_files():
        try:
            yield _rank_profile(trace, framework, measurement.folder)
        except (ValueError, KeyError) as error:
            raise ResultError(trace, f"not a trace of {framework} ({error})") from None


def _rank_profile(trace: Path, framework: str, folder: Path) -> RankProfile:
    times = step_times(trace, framework)
    operators = [
        OperatorShare(
            name=name, calls=times.calls[name] / times.steps, share=time / times.total
        )
        for name, time in times.operators.items()
    ]
    operators.sort(key=lambda operator: -operator.share)
    return RankProfile(
        rank=int(trace.name.removeprefix("rank").removesuffix(".json.gz")),
        trace=trace.relative_to(folder).as_posix(),
        steps=times.steps,
        step_seconds=times.total * MICRO / times.steps,
        parts={part: time / times.total for part, time in times.parts.items()},
        hidden_exchange=times.hidden_exchange / times.total,
        operators=operators[:MOST_OPERATORS],
    )


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
