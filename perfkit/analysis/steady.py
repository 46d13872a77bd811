"""When the steps of a repeat become steady, and whether they stay so.

Step times are cut where their level changes: at penalized change points (Killick, Fearnhead and
Eckley, PELT, 2012, by the ruptures package). As Barrett et al., Virtual machine warmup blows
hot and cold, 2017, have it, a repeat is steady from where all later segments are at the level
of the end; unlike there, levels that differ by under TOLERANCE are one. A trend is tested by
Kendall's tau and sized by the Theil-Sen slope: neither is moved by spikes.

Of a repeat that still runs, finding no change is not enough: few steps do not show a warm-up
that takes hundreds. It is warmed up once the steps since the last change of level are as many
as will be measured, and a difference between their first and second half that would matter is
excluded.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfkit.config import Protocol
from perfkit.statistics import median

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame, Series

FEWEST_STEPS = 30
"""Of fewer, nothing is said."""
TOLERANCE = 0.01
"""Differences of level, and drifts, that are smaller do not count."""
PENALTY = 20.0
"""Of a change point, in variances of the noise: high enough for false ones to be rare."""
SHORTEST = 50
"""A segment has at least one step of so many."""
NEIGHBOURS = 9
"""Steps whose median says what is usual around one."""
SPIKE = 6.0
CLIPPED = 3.0
"""In standard deviations of the noise: what is called a spike, and how much of it counts."""
MOST_ALIKE = 0.7
"""Steps that seem to resemble their predecessors by more than this may as well change level."""
LIKELY, SURE = 0.05, 0.005
"""Levels of the test for a trend: to look further, and to say so."""
PUBLISHED = Protocol.named("published")
PUBLISHED_STEPS = (PUBLISHED.warmup_steps + 1, PUBLISHED.steps)
"""The first and the last step that the protocol `published` measures."""
MOST_BLOCKS = 1000
"""More steps than this are looked at in blocks, by their means: a trend takes their square."""


class Steadiness(NamedTuple):
    """What was found in a repeat's step times; steps are counted from 0.

    `begin` is the first steady step. It is `settled` if a third of the steps at least are
    steady. `drift` is the relative change of the step time from `begin` to the end, where there
    is a trend; `spikes` are single slow steps from `begin` on.
    """

    begin: int
    settled: bool
    drift: float | None
    spikes: list[int]


def steadiness(seconds: "Sequence[float] | NDArray[Any]") -> Steadiness | None:
    """What the step times (seconds, in order) of a repeat say; None of fewer than
    FEWEST_STEPS, and of times that are too far apart for floats."""
    if len(seconds) < FEWEST_STEPS:
        return None
    # Not above: SciPy's statistics take half a second to import, and short runs need none.
    from scipy.ndimage import median_filter

    width = -(-len(seconds) // MOST_BLOCKS)
    steps = _blocks(np.asarray(seconds, float), width)
    with np.errstate(over="ignore"):
        steps /= np.median(steps)
    if not np.isfinite(steps).all():
        return None
    usual = median_filter(steps, NEIGHBOURS, mode="mirror")
    noise = max(noise_of(steps), 1e-4)
    spikes = [int(step) for step in np.flatnonzero(np.abs(steps - usual) > SPIKE * noise)]
    clipped = np.clip(steps, usual - CLIPPED * noise, usual + CLIPPED * noise)

    # Of the second half: a warm-up that falls step by step would be taken for a memory.
    half = clipped[len(clipped) // 2 :]
    begin, drift = _settling(clipped, Noise.of(half, SPIKE * noise))
    begin = max(begin, _leading(steps, spikes))
    return Steadiness(
        begin=begin * width,
        settled=_is_settled(begin, len(steps)),
        drift=drift,
        spikes=[step * width for step in spikes if step >= begin and steps[step] > 1],
    )


def noise_of(steps: "NDArray[Any]") -> float:
    """Their standard deviation about a level that may change now and then."""
    return 1.4826 * float(np.median(np.abs(np.diff(steps)))) / sqrt(2)


class Noise(NamedTuple):
    """How step times scatter about their level: `variance` of the mean of many steps, times
    their number, and how many steps in a row know of each other."""

    variance: float
    memory: int

    @classmethod
    def of(cls, steps: "NDArray[Any]", most: float) -> "Noise":
        """From differences between steps one and two apart, which a level that changes now and
        then hardly moves if they count for `most` at most. Steps that resemble their
        predecessor by a factor r have differences whose squares are as 1 to 1 + r, and a mean
        that varies by (1 + r) / (1 - r) as much as that of independent ones."""
        near, far = (
            float(np.mean(np.clip(steps[lag:] - steps[:-lag], -most, most) ** 2))
            for lag in (1, 2)
        )
        if not near:
            return cls(1e-8, 1)
        alike = min(max(far / near - 1, 0.0), MOST_ALIKE)
        longer = (1 + alike) / (1 - alike)
        return cls(near / 2 / (1 - alike) * longer, ceil(longer))


def _blocks(steps: "NDArray[Any]", width: int) -> "NDArray[Any]":
    """Means of `width` steps each; a rest at the end is left out."""
    whole = len(steps) // width * width
    means: NDArray[Any] = steps[:whole].reshape(-1, width).mean(axis=1)
    return means


def _settling(steps: "NDArray[Any]", noise: Noise) -> tuple[int, float | None]:
    """The first steady step, and the drift from there on.

    A drift would be cut into segments like a warm-up. So where the second half, in which no
    warm-up is looked for, has a trend, that is taken out first; unless what then is steady does
    not have it.
    """
    count = len(steps)
    if slope := _trend(steps[count // 2 :], noise, LIKELY):
        begin = _first_steady(steps - slope * np.arange(count), noise)
        if _is_settled(begin, count) and (slope := _trend(steps[begin:], noise, SURE)):
            return begin, slope * (count - begin)
    begin = _first_steady(steps, noise)
    return begin, _trend(steps[begin:], noise, SURE) * (count - begin) or None


def _trend(steps: "NDArray[Any]", noise: Noise, level: float) -> float:
    """Relative change per step; 0 unless it is significant and, over all steps, matters. The
    test takes its values for independent, which means of `noise.memory` steps nearly are."""
    from scipy.stats import kendalltau, theilslopes

    means = _blocks(steps, noise.memory)
    if len(means) < 3 or kendalltau(np.arange(len(means)), means).pvalue > level:
        return 0.0
    slope = float(theilslopes(means).slope) / noise.memory
    return slope if abs(slope) * len(steps) > TOLERANCE else 0.0


def _first_steady(steps: "NDArray[Any]", noise: Noise) -> int:
    """Where the last of the segments begin that are all at the level of the end."""
    from ruptures import KernelCPD

    # Of many steps, some short stretch is far from the others by chance.
    shortest = max(2, len(steps) // SHORTEST)
    found = KernelCPD("linear", min_size=shortest).fit(steps[:, None])
    *changes, _end = found.predict(pen=PENALTY * noise.variance)
    begin = changes[-1] if changes else 0
    for first, end in reversed([*pairwise([0, *changes])]):
        if abs(steps[first:end].mean() - np.median(steps[begin:])) > TOLERANCE:
            break
        begin = first
    return int(begin)


def _leading(steps: "NDArray[Any]", spikes: list[int]) -> int:
    """How many steps from the first on are spikes, and slower than all that follow: of noise
    with many spikes, one may well stand first."""
    count = 0
    while count in spikes and steps[count] > steps[count + 1 :].max(initial=0.0):
        count += 1
    return count


def _is_settled(begin: int, count: int) -> bool:
    return count - begin >= count / 3


class RepeatProfile(NamedTuple):
    """How a repeat ran: what its steps show, and its throughput (units per second) from the
    window's steps as the protocol has it, from the steady steps, and from PUBLISHED_STEPS. The
    last two are None where there are no such steps; on several ranks a step takes what the
    slowest one takes. `window_steps` are the step times in the window, seconds, by rank."""

    repeat: int
    steadiness: Steadiness | None
    fixed: float
    steady: float | None
    published: float | None
    window_steps: dict[int, list[float]]

    @property
    def disagreement(self) -> float:
        """By which share the steady throughput differs from the fixed one."""
        return (self.steady or self.fixed) / self.fixed - 1


def profile_repeats(steps: "DataFrame", units_per_sample: int = 1) -> list[RepeatProfile]:
    """The profile of every repeat in `steps`, as frames.load_steps gives them, that has
    measured steps on all ranks."""
    found = []
    places = ["repeat", "step"]
    every = steps.pivot(index=places, columns="rank", values="seconds")
    every_unit = steps.groupby(places)["samples"].sum() * units_per_sample
    windows = steps[steps["measured"]].groupby("repeat")["step"].min()
    for repeat, first in windows.items():
        seconds, units = every.loc[repeat], every_unit.loc[repeat]
        if seconds.isna().any(axis=None):
            continue
        seen = steadiness(seconds.max(axis=1).to_list())
        found.append(
            RepeatProfile(
                repeat=int(repeat),
                steadiness=seen,
                fixed=_rate(units, seconds, first),
                steady=_rate(units, seconds, seconds.index[seen.begin])
                if seen and seen.settled
                else None,
                published=_rate(units, seconds, *PUBLISHED_STEPS)
                if seconds.index[-1] >= PUBLISHED_STEPS[1]
                else None,
                window_steps=seconds.loc[first:].to_dict("list"),
            )
        )
    return found


def published_throughput(profiles: Sequence[RepeatProfile]) -> float | None:
    """Median throughput of PUBLISHED_STEPS; None unless all repeats have these."""
    known = [profile.published for profile in profiles if profile.published is not None]
    return median(known) if known and len(known) == len(profiles) else None


def _rate(
    units: "Series[Any]", seconds: "DataFrame", first: int, last: int | None = None
) -> float:
    """Units of all ranks from the step `first` to `last` over the slowest rank's seconds."""
    return float(units.loc[first:last].sum() / seconds.loc[first:last].sum().max())


if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_PASSES = 3
"""Of so many passes through a data set, what recurs in each is known."""
ERRORS = 2.0
"""Standard errors within which a difference is not excluded."""
NOISE_SHARE = 0.5
"""A difference of less than this share of the steps' noise does not matter either."""


def is_warmed_up(
    seconds: Sequence[float], measured_steps: int, pass_steps: float | None = None
) -> bool:
    """Whether the window can begin after these steps of a repeat (seconds, in order), of which
    `measured_steps` will follow. A pass through the data set takes `pass_steps`; it counts as
    warm-up, since its files may come from the disk."""
    if pass_steps and len(seconds) < pass_steps:
        return False
    steps = without_recurring(np.asarray(seconds, float), pass_steps)
    seen = steadiness(steps)
    if seen is None or not seen.settled or seen.drift is not None:
        return False
    level = steps[seen.begin :] / np.median(steps[seen.begin :])
    if len(level) < max(FEWEST_STEPS, measured_steps):
        return False
    noise = noise_of(level)
    first, second = (np.median(half) for half in np.array_split(level, 2))
    # Of the medians of two halves, which scatter by 1.25 times as much as their means.
    error = 2.5 * noise / sqrt(len(level))
    return bool(abs(second - first) + ERRORS * error < max(TOLERANCE, NOISE_SHARE * noise))


def without_recurring(steps: "NDArray[Any]", pass_steps: float | None) -> "NDArray[Any]":
    """`steps` without what recurs in each pass, as a stall at its begin: divided by the median
    of all passes at the same place. Unchanged where there are fewer than FEWEST_PASSES."""
    if not pass_steps or len(steps) < FEWEST_PASSES * pass_steps:
        return steps
    numbers = np.arange(len(steps))
    places, passes = (numbers % pass_steps).astype(int), (numbers // pass_steps).astype(int)
    usual = np.array([np.median(steps[passes == k]) for k in range(passes.max() + 1)])
    relative = steps / usual[passes]
    shape = np.array([np.median(relative[places == k]) for k in range(places.max() + 1)])
    return steps / shape[places]
