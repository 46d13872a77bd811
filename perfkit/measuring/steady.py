"""The steady state of a repeat's step times.

Step times are split into segments at penalized change points (Killick, Fearnhead and Eckley,
PELT, 2012, by the ruptures package). As in Barrett et al., Virtual machine warmup blows hot and
cold, 2017, the steady state begins where all later segments are at the level of the last one;
unlike there, levels that differ by less than TOLERANCE are equal. Trends are tested with
Kendall's tau and sized with the Theil-Sen slope, which are both robust against spikes.

In a running repeat, a lack of changes is not enough: a few steps do not reveal a warm-up of
hundreds. The repeat is warmed up once as many steps as will be measured have followed the last
change of level, and a relevant difference between their first and second half is excluded.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame, Series

FEWEST_STEPS = 30
"""Fewer steps are not analysed."""
TOLERANCE = 0.01
"""Smaller relative differences of level, and smaller drifts, are ignored."""
PENALTY = 20.0
"""Penalty of a change point in variances of the noise; high, so that false ones are rare."""
SHORTEST = 50
"""The shortest segment is the number of steps divided by this."""
NEIGHBOURS = 9
"""Steps in the running median that spikes are compared with."""
SPIKE = 6.0
CLIPPED = 3.0
"""Size of a spike, and of what is left of it, in standard deviations of the noise."""
MOST_ALIKE = 0.7
"""Highest autocorrelation of steps; a higher estimate may come from changes of level."""
LIKELY, SURE = 0.05, 0.005
"""Significance levels for removing a trend before the search and for reporting one."""
MOST_BLOCKS = 1000
"""More steps are averaged in blocks, since the test for a trend takes quadratic time."""


class Steadiness(NamedTuple):
    """The steady state of a repeat; steps are counted from 0.

    `begin` is the first steady step; `settled` is whether at least a third of the steps are
    steady. `drift` is the relative change of the step time from `begin` to the end, None
    without a trend; `spikes` are single slow steps from `begin` on.
    """

    begin: int
    settled: bool
    drift: float | None
    spikes: list[int]


def steadiness(seconds: "Sequence[float] | NDArray[Any]") -> Steadiness | None:
    """Return the steady state of a repeat's step times (seconds, in order); None for fewer than
    FEWEST_STEPS, or if their ratios overflow a float."""
    if len(seconds) < FEWEST_STEPS:
        return None
    # Imported here because it takes half a second, and short runs do not need it.
    from scipy.ndimage import median_filter

    width = ceil(len(seconds) / MOST_BLOCKS)
    steps = _blocks(np.asarray(seconds, float), width)
    with np.errstate(over="ignore"):
        steps /= np.median(steps)
    if not np.isfinite(steps).all():
        return None
    usual = median_filter(steps, NEIGHBOURS, mode="mirror")
    noise = max(noise_of(steps), 1e-4)
    is_spike = np.abs(steps - usual) > SPIKE * noise
    spikes = [int(step) for step in np.flatnonzero(is_spike)]
    clipped = np.clip(steps, usual - CLIPPED * noise, usual + CLIPPED * noise)

    # Only the second half: a warm-up with slowly falling times looks like autocorrelation.
    half = clipped[len(clipped) // 2 :]
    begin, drift = _steady_state(clipped, Noise.of(half, SPIKE * noise))
    begin = max(begin, _leading(steps, spikes))
    slow_spikes = [step for step in spikes if step >= begin and steps[step] > 1]
    return Steadiness(
        begin=begin * width,
        settled=_is_settled(begin, len(steps)),
        drift=drift,
        spikes=[step * width for step in slow_spikes],
    )


def noise_of(steps: "NDArray[Any]") -> float:
    """Return the standard deviation about a level that may change now and then."""
    return 1.4826 * float(np.median(np.abs(np.diff(steps)))) / sqrt(2)


class Noise(NamedTuple):
    """Scatter of step times about their level: `variance` of the mean of many steps times their
    number, and `memory`, the number of consecutive steps that are correlated."""

    variance: float
    memory: int

    @classmethod
    def of(cls, steps: "NDArray[Any]", most: float) -> "Noise":
        """Estimate the noise from differences between steps one and two apart. Clipped to
        `most`, they are hardly affected by a level that changes now and then. With an
        autocorrelation of r, their mean squares are as 1 to 1 + r, and the variance of a mean
        is (1 + r) / (1 - r) times that of independent steps."""
        near = _mean_square_difference(steps, 1, most)
        far = _mean_square_difference(steps, 2, most)
        if not near:
            return cls(1e-8, 1)
        autocorrelation = min(max(far / near - 1, 0.0), MOST_ALIKE)
        variance = near / 2 / (1 - autocorrelation)
        longer = (1 + autocorrelation) / (1 - autocorrelation)
        return cls(variance * longer, ceil(longer))


def _mean_square_difference(steps: "NDArray[Any]", lag: int, most: float) -> float:
    """Return the mean square of differences between steps `lag` apart, clipped to `most`."""
    differences = np.clip(steps[lag:] - steps[:-lag], -most, most)
    return float(np.mean(differences**2))


def _blocks(steps: "NDArray[Any]", width: int) -> "NDArray[Any]":
    """Return means of `width` steps each, without the remainder at the end."""
    whole = len(steps) // width * width
    means: NDArray[Any] = steps[:whole].reshape(-1, width).mean(axis=1)
    return means


def _steady_state(steps: "NDArray[Any]", noise: Noise) -> tuple[int, float | None]:
    """Return the first steady step and the drift from there on.

    A drift would be split into segments like a warm-up. So a trend of the second half, which
    should have no warm-up, is removed first, unless the steady steps then found lack it.
    """
    count = len(steps)
    likely_slope = _trend(steps[count // 2 :], noise, LIKELY)
    if likely_slope:
        begin = _first_steady(steps - likely_slope * np.arange(count), noise)
        slope = _trend(steps[begin:], noise, SURE) if _is_settled(begin, count) else 0.0
        if slope:
            return begin, slope * (count - begin)
    begin = _first_steady(steps, noise)
    slope = _trend(steps[begin:], noise, SURE)
    return begin, slope * (count - begin) or None


def _trend(steps: "NDArray[Any]", noise: Noise, level: float) -> float:
    """Return the relative change per step; 0 unless it is significant and, over all steps,
    exceeds TOLERANCE. The test assumes independent values, which means of `noise.memory` steps
    nearly are."""
    from scipy.stats import kendalltau, theilslopes

    means = _blocks(steps, noise.memory)
    if len(means) < 3:
        return 0.0
    test = kendalltau(np.arange(len(means)), means)
    if test.pvalue > level:
        return 0.0
    slope = float(theilslopes(means).slope) / noise.memory
    return slope if abs(slope) * len(steps) > TOLERANCE else 0.0


def _first_steady(steps: "NDArray[Any]", noise: Noise) -> int:
    """Return the first step of the last segments that all are at the level of the end."""
    from ruptures import KernelCPD

    # Among many steps, some short run deviates by chance.
    shortest = max(2, len(steps) // SHORTEST)
    search = KernelCPD("linear", min_size=shortest).fit(steps[:, None])
    *changes, _end = search.predict(pen=PENALTY * noise.variance)
    begins = [0, *changes]
    begin = begins[-1]
    for first, end in reversed([*pairwise(begins)]):
        level = steps[first:end].mean()
        if abs(level - np.median(steps[begin:])) > TOLERANCE:
            break
        begin = first
    return int(begin)


def _leading(steps: "NDArray[Any]", spikes: list[int]) -> int:
    """Return how many steps at the beginning are spikes and slower than all that follow. In
    noise with many spikes, the first step may be one by chance."""
    count = 0
    while count in spikes and steps[count] > steps[count + 1 :].max(initial=0.0):
        count += 1
    return count


def _is_settled(begin: int, count: int) -> bool:
    return count - begin >= count / 3


class RepeatProfile(NamedTuple):
    """A repeat's steady state and its throughput (units per second): `fixed` over the
    protocol's window, `steady` over the steady steps, None without these. With several ranks, a
    step takes as long as on the slowest rank. `window_steps` are the step times in the window,
    seconds, by rank."""

    repeat: int
    steadiness: Steadiness | None
    fixed: float
    steady: float | None
    window_steps: dict[int, list[float]]

    @property
    def disagreement(self) -> float:
        """Steady throughput / fixed throughput - 1."""
        return (self.steady or self.fixed) / self.fixed - 1


def profile_repeats(steps: "DataFrame", units_per_sample: int = 1) -> list[RepeatProfile]:
    """Return the profile of every repeat in `steps` (frames.load_steps) that has measured steps
    on all ranks."""
    places = ["repeat", "step"]
    seconds = steps.pivot(index=places, columns="rank", values="seconds")
    units = steps.groupby(places)["samples"].sum() * units_per_sample
    counts = steps.groupby(places)["steps"].first()
    first_measured = steps[steps["measured"]].groupby("repeat")["step"].min()
    profiles = []
    for repeat, first in first_measured.items():
        seconds_by_rank = seconds.loc[repeat]
        is_complete = seconds_by_rank.notna().all(axis=None)
        if is_complete:
            of_repeat = units.loc[repeat], counts.loc[repeat]
            profiles.append(_profile(repeat, seconds_by_rank, *of_repeat, first))
    return profiles


def _profile(
    repeat: int,
    seconds_by_rank: "DataFrame",
    units: "Series[int]",
    counts: "Series[int]",
    first: int,
) -> RepeatProfile:
    """Return the profile of a repeat whose window begins with step `first`. `counts` are the
    steps of each row."""
    numbers = seconds_by_rank.index.to_numpy()
    seconds = seconds_by_rank.to_numpy().T
    units_of_step = units.to_numpy()
    window = slice(numbers.searchsorted(first), None)
    step_seconds = seconds / counts.to_numpy()
    state = steadiness(step_seconds.max(axis=0))
    steady = None
    if state and state.settled:
        steady = _rate(units_of_step, seconds, slice(state.begin, None))
    return RepeatProfile(
        repeat=int(repeat),
        steadiness=state,
        fixed=_rate(units_of_step, seconds, window),
        steady=steady,
        window_steps=dict(zip(seconds_by_rank, seconds[:, window].tolist(), strict=True)),
    )


def _rate(units: "NDArray[Any]", seconds: "NDArray[Any]", inside: slice) -> float:
    """Return the units of all ranks in the steps `inside` over the slowest rank's seconds."""
    return float(units[inside].sum() / seconds[:, inside].sum(axis=1).max())


ERRORS = 2.0
"""Standard errors within which a difference is not excluded."""
NOISE_SHARE = 0.5
"""A difference of less than this share of the steps' noise is irrelevant, too."""


def is_warmed_up(
    seconds: Sequence[float], measured_steps: int, pass_steps: float | None = None
) -> bool:
    """Return whether the window of `measured_steps` can begin after these steps of a repeat
    (seconds, in order). A pass through the data set takes `pass_steps`; the first one counts as
    warm-up, since it may read the files from disk."""
    # The analysis is not needed before: even if all these steps are steady, they are too few.
    if len(seconds) < max(FEWEST_STEPS, measured_steps, pass_steps or 0):
        return False
    steps = np.asarray(seconds, float)
    state = steadiness(steps)
    if state is None or not state.settled or state.drift is not None:
        return False
    steady = steps[state.begin :]
    if len(steady) < max(FEWEST_STEPS, measured_steps):
        return False
    relative = steady / np.median(steady)
    noise = noise_of(relative)
    first_half, second_half = np.array_split(relative, 2)
    difference = abs(np.median(second_half) - np.median(first_half))
    # The medians of the two halves scatter by 1.25 times as much as their means.
    error = 2.5 * noise / sqrt(len(relative))
    return bool(difference + ERRORS * error < max(TOLERANCE, NOISE_SHARE * noise))
