"""Checks the claims of the statistics by simulation.

python benchmarks/simulations.py [CLAIM …] runs the named claims or all. SEED and SIMULATIONS
are environment variables. A claim is a function of CLAIMS that yields lines of figures, from
functions that tests call with the same seed.
"""

import os
import sys
import time
from functools import cache

import numpy as np

from perfkit.analysis.comparison.interleaved import round_order
from perfkit.analysis.ratios import verdict
from perfkit.analysis.series import segment
from perfkit.core.config import AUTO, AUTO_WARMUP, PROTOCOLS, Protocol
from perfkit.core.driver.warmup import WarmupTest
from perfkit.core.results.schema import STOPPING_LEVEL
from perfkit.core.statistics import (
    median_estimate,
    median_interval,
    outliers,
    ratio_interval,
    relative_width,
)
from perfkit.core.steady import FEWEST_STEPS, TOLERANCE, steadiness

SEED = int(os.environ.get("SEED", "20261122"))
SIMULATIONS = int(os.environ.get("SIMULATIONS", "10000"))
SPREAD = 0.005
"""Standard deviation of the repeats' throughput, relative to their mean."""


def normal(random, shape, spread=SPREAD):
    return 1 + spread * random.standard_normal(shape)


def lognormal(random, shape, spread=SPREAD):
    """Skewed to the right, like times with a lower bound; logarithms have deviation 1."""
    skewed = random.lognormal(0, 1, shape)
    return 1 + spread * (skewed - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)


def bimodal(random, shape, spread=SPREAD):
    """A machine with two speeds, 30 % of the repeats at the lower, each with noise."""
    share, noise = 0.3, 0.3
    gap = ((1 - noise**2) / (share * (1 - share))) ** 0.5
    slow = random.random(shape) < share
    return 1 + spread * (noise * random.standard_normal(shape) - gap * slow)


NOISE = {"normal": normal, "lognormal": lognormal, "bimodal": bimodal}
REPEATS = (5, 7, 10)
SHIFTS = (0.97, 0.99, 0.995, 1.005, 1.01, 1.03)


def draws(noise, sizes, simulations=SIMULATIONS, seed=SEED):
    """Return an array of throughputs, of shape (simulations, n), for each n of `sizes`."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    return [NOISE[noise](random, (simulations, n)) for n in sizes]


def share(found):
    return sum(found) / len(found)


def called_different(noise, n, shift=1.0, level=0.95, **how):
    """Return the share of simulations in which `shift` times A is called different from A."""
    bases, others = draws(noise, (n, n), **how)
    verdicts = [
        verdict(ratio_interval(other, base, level), level)
        for base, other in zip(bases.tolist(), (shift * others).tolist(), strict=True)
    ]
    return share([word in ("faster", "slower") for word in verdicts])


def ratio_coverage(noise, m, n, ratio=1.03, level=0.95, **how):
    """Return the share of simulations whose interval covers the true ratio, and its level."""
    bases, others = draws(noise, (n, m), **how)
    found = [
        ratio_interval(other, base, level)
        for base, other in zip(bases.tolist(), (ratio * others).tolist(), strict=True)
    ]
    (printed,) = {interval.level for interval in found}
    return share([interval.low <= ratio <= interval.high for interval in found]), printed


def false_alarms():
    """A against A at the 5 % level: at most 6 % are called different."""
    for noise in NOISE:
        rates = (f"n={n} {called_different(noise, n):.2%}" for n in REPEATS)
        yield f"{noise}: {', '.join(rates)}"


def drifting(drift, order=round_order, n=6, level=0.95, simulations=SIMULATIONS, seed=SEED):
    """Return the share of interleaved comparisons of A with A that are called different on a
    machine whose speed changes by `drift` per repeat."""
    random = np.random.default_rng(seed)
    places = [list(order([0, 1], repeat)).index(0) for repeat in range(1, n + 1)]
    speeds = 1 + drift * np.arange(2 * n).reshape(n, 2)
    rows = np.arange(n)
    bases, others = speeds[rows, places], speeds[rows, 1 - np.array(places)]
    shape = (simulations, n)
    ratios = others * normal(random, shape) / (bases * normal(random, shape))
    verdicts = [verdict(median_estimate(pairs, level), level) for pairs in ratios.tolist()]
    return share([word in ("faster", "slower") for word in verdicts])


def drift():
    """On a machine that becomes steadily faster, an interleaved comparison of A with A gives no
    false alarms in the order A B B A, unlike A B A B."""
    for change in (0, 0.0025, 0.005, 0.01):
        fixed = drifting(change, lambda variants, _repeat: variants)
        yield f"{change:.2%} a repeat: A B B A {drifting(change):.2%}, A B A B {fixed:.2%}"


def power():
    """A shift of 3 % at 0.5 % noise and n=7: at least 90 % are found."""
    for noise in NOISE:
        rates = (
            f"{shift - 1:+.1%} {called_different(noise, 7, shift):.2%}" for shift in SHIFTS
        )
        yield f"{noise}: {', '.join(rates)}"


def coverage_of_ratios():
    """The ratio's interval covers as often as it prints, within 1 point."""
    for noise in NOISE:
        for m, n in ((4, 4), (5, 5), (5, 7), (7, 7), (10, 10)):
            covered, printed = ratio_coverage(noise, m, n)
            yield f"{noise}, n={m} and n={n}: {covered:.2%}, printed {printed:.2%}"


@cache
def true_median(noise, spread):
    return float(np.median(NOISE[noise](np.random.default_rng(SEED), 4_000_000, spread)))


def median_coverage(noise, n, **how):
    """Return the share of simulations whose interval covers the true median, and its level."""
    middle = true_median(noise, SPREAD)
    (values,) = draws(noise, (n,), **how)
    found = [median_interval(repeats) for repeats in values.tolist()]
    (printed,) = {interval.level for interval in found}
    return share([interval.low <= middle <= interval.high for interval in found]), printed


def coverage_of_medians():
    """A measurement's interval covers as often as it prints, within 1 point."""
    for noise in NOISE:
        for n in REPEATS:
            covered, printed = median_coverage(noise, n)
            yield f"{noise}, n={n}: {covered:.2%}, printed {printed:.2%}"


def stopped(noise, spread, target=0.02, simulations=SIMULATIONS, seed=SEED):
    """For repeats=auto, return the intervals' coverage, mean level and mean repeats."""
    middle = true_median(noise, spread)
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    found, most = [], AUTO["repeats"]
    for values in NOISE[noise](random, (simulations, most), spread).tolist():
        widths = ((n, relative_width(values[:n], STOPPING_LEVEL)) for n in range(2, most))
        n = next((n for n, width in widths if width is not None and width <= target), most)
        low, high, level = median_interval(values[:n])
        found.append((low <= middle <= high, level, n))
    return [share(column) for column in zip(*found, strict=True)]


def stopping():
    """repeats=auto stops by the interval's width; the printed interval still covers 95 %."""
    for noise in NOISE:
        for spread in (0.005, 0.01, 0.02, 0.03):
            covered, level, n = stopped(noise, spread, simulations=SIMULATIONS // 5)
            yield (
                f"{noise}, {spread:.1%} of noise: covers {covered:.2%}, prints {level:.2%} "
                f"in the mean, {n:.1f} repeats"
            )


def outlying(noise, n, **how):
    """Return the share of simulations without outliers in which a repeat is flagged as one."""
    (values,) = draws(noise, (n,), **how)
    return share([bool(outliers(repeats)) for repeats in values.tolist()])


def flagged_outliers():
    """How often the modified z-score flags a repeat without outliers."""
    for noise in NOISE:
        yield f"{noise}: {', '.join(f'n={n} {outlying(noise, n):.1%}' for n in REPEATS)}"


STEPS = 120
MEASURED_STEPS = PROTOCOLS["steady"]["measured_steps"]


def flat(random, most):
    """Return step times of constant mean with noise of up to `most`."""
    return 1 + random.normal(0, random.uniform(0.002, most), STEPS)


def resembling(factor):
    """Return autoregressive noise: steps correlate with the previous one by `factor`."""

    def noise(random, shape, spread=SPREAD):
        # Imported here, since it takes a second.
        from scipy.signal import lfilter

        fresh = (1 - factor**2) ** 0.5 * random.standard_normal(shape)
        return 1 + spread * lfilter([1.0], [1.0, -factor], fresh)

    return noise


STEP_NOISE = NOISE | {f"resembling by {r}": resembling(r) for r in (0.3, 0.5, 0.8)}


def called_unsteady(simulations, noise="normal", seed=SEED, count=STEPS):
    """Return the share of flat profiles, with noise of up to 3 %, called unsteady."""
    random = np.random.default_rng([seed, [*STEP_NOISE].index(noise)])
    seen = [
        steadiness(STEP_NOISE[noise](random, count, random.uniform(0.002, 0.03)))
        for _ in range(simulations)
    ]
    return share([s.begin > 0 or not s.settled or s.drift is not None for s in seen])


def found_warm_up(form, simulations, seed=SEED):
    """Return the share of planted warm-ups of 5 to 60 steps, initially 20 to 100 % slower,
    whose end is found within 5 steps; `form` is `step` or `ramp`."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(simulations):
        length, height = random.integers(5, 61), random.uniform(0.2, 1)
        left = 1 - np.arange(STEPS) / length
        slower = left > 0 if form == "step" else np.clip(left, 0, 1)
        seen = steadiness(flat(random, 0.015) + height * slower)
        found.append(seen.settled and abs(seen.begin - length) <= 5)
    return share(found)


def found_drift(simulations, seed=SEED):
    """Return the share of planted drifts of 3 to 10 % over the steps, up or down, after
    warm-ups of 0 to 20 steps, that are found with their sign."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(simulations):
        steps, total = np.arange(STEPS), random.uniform(0.03, 0.1) * random.choice([-1, 1])
        course = flat(random, 0.01) + total * steps / STEPS
        course[: random.integers(0, 21)] += 0.5
        drift = steadiness(course).drift
        found.append(drift is not None and drift * total > 0)
    return share(found)


def steady_state():
    """Warm-ups are found within 5 steps, and drifts found, in at least 95 %; flat independent
    noise is called unsteady in at most 5 %."""
    for form in ("step", "ramp"):
        yield f"warm-up, {form}: {found_warm_up(form, SIMULATIONS):.2%}"
    yield f"drift: {found_drift(SIMULATIONS):.2%}"
    for noise in STEP_NOISE:
        rates = (
            f"{count} steps {called_unsteady(SIMULATIONS // 5, noise, count=count):.2%}"
            for count in (FEWEST_STEPS, STEPS, 1000)
        )
        yield f"flat, {noise}: {', '.join(rates)}"


WARMUPS = ("ramp", "decay", "cold first pass", "stalls in each pass")


def running(form, random, noise, spread):
    """Return the step times of a repeat with a planted warm-up of 5 to 400 steps, initially 10
    to 60 % slower, the same without noise, and the steps per pass over the data or None. `ramp`
    falls linearly, `decay` exponentially; `cold first pass` is slow for the first pass; `stalls
    in each pass` is a ramp in which the first 3 of every 50 steps take twice as long."""
    length, height = int(random.integers(5, 401)), random.uniform(0.1, 0.6)
    numbers = np.arange(AUTO_WARMUP["warmup_limit"] + MEASURED_STEPS)
    course = 1 + height * np.clip(1 - numbers / length, 0, 1)
    pass_steps = None
    if form == "decay":
        course = 1 + height * np.exp(-4 * numbers / length)
    elif form == "cold first pass":
        course, pass_steps = 1 + height * (numbers < length), length
    seconds = course * STEP_NOISE[noise](random, len(numbers), spread)
    if form == "stalls in each pass":
        pass_steps = 50
        seconds[numbers % pass_steps < 3] *= 2
    return seconds, course, pass_steps


def ended_warm_ups(form, simulations, noise="normal", spread=0.01, seed=SEED):
    """Return, for planted warm-ups, the share that end as steady with the window within
    TOLERANCE of the final level, the share that end as steady too early, and the median number
    of steps beyond the planted warm-up. The rest reaches the limit."""
    random = np.random.default_rng([seed, WARMUPS.index(form)])
    right, wrong, longer = 0, 0, []
    for _ in range(simulations):
        seconds, course, pass_steps = running(form, random, noise, spread)
        test = WarmupTest(Protocol.named("steady"), pass_steps)
        ends = (n for n in range(5, len(seconds) - MEASURED_STEPS + 1, 5))
        end = next((n for n in ends if test.ends_with(seconds[:n].tolist())), None)
        if end is None:
            continue
        late = course[end : end + MEASURED_STEPS].mean() - 1 > TOLERANCE
        right, wrong = right + (not late), wrong + late
        longer.append(end - np.flatnonzero(course > 1 + TOLERANCE)[-1])
    return right / simulations, wrong / simulations, float(np.median(longer))


def warm_up():
    """An automatic warm-up ends with the window within 1 % of the final level in at least 95 %,
    and never exceeds its limit."""
    for form in WARMUPS:
        for noise, spread in (("normal", 0.01), ("lognormal", 0.01), ("normal", 0.03)):
            right, wrong, longer = ended_warm_ups(form, SIMULATIONS // 50, noise, spread)
            yield (
                f"{form}, {noise} {spread:.0%}: {right:.1%} right, {wrong:.1%} too early, "
                f"{1 - right - wrong:.1%} at the limit; {longer:.0f} steps longer"
            )


MEASUREMENTS = 50
"""Length of a simulated series: fifty nightly measurements."""


def series_of(random, noise, n, session=0.0):
    """Return throughputs (MEASUREMENTS, n): repeats scatter by 1 %, sessions by `session`."""
    repeats = NOISE[noise](random, (MEASUREMENTS, n), 0.01)
    return repeats * (1 + session * random.standard_normal((MEASUREMENTS, 1)))


def false_changes(noise, simulations, n=7, session=0.0, seed=SEED):
    """Return the share of constant series in which a change is found."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    drawn = (series_of(random, noise, n, session) for _ in range(simulations))
    return share([bool(segment(series.tolist()).change_points) for series in drawn])


def found_changes(noise, simulations, n=7, session=0.0, after=2, seed=SEED):
    """Return the share of series in which a 3 % drop of the last `after` values is found."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    found = []
    for _ in range(simulations):
        series = series_of(random, noise, n, session)
        series[-after:] *= 0.97
        changes = segment(series.tolist()).change_points
        found.append(any(abs(change.start - (MEASUREMENTS - after)) <= 1 for change in changes))
    return share(found)


def change_points():
    """A series of 50 measurements whose repeats scatter by 1 % has a false change in at most
    5 %, and a drop by 3 % is found within two measurements in at least 90 %. If sessions
    scatter by 1 % too, no test of repeats can guarantee that."""
    simulations = SIMULATIONS // 10
    for noise in NOISE:
        for n in REPEATS[:2]:
            figures = (noise, simulations, n)
            yield (
                f"{noise}, {n} repeats: false {false_changes(*figures):.2%}, "
                f"found {found_changes(*figures):.2%}"
            )
        for session in (0.005, 0.01):
            yield (
                f"{noise}, 7 repeats, sessions {session:.1%}: "
                f"false {false_changes(noise, simulations, 7, session):.2%}, "
                f"found {found_changes(noise, simulations, 7, session):.2%}"
            )


CLAIMS = {
    claim.__name__: claim
    for claim in (
        *(change_points, coverage_of_medians, stopping, flagged_outliers, steady_state),
        *(warm_up, false_alarms, drift, power, coverage_of_ratios),
    )
}


if __name__ == "__main__":
    if unknown := sys.argv[1:] and {*sys.argv[1:]} - CLAIMS.keys():
        sys.exit(f"no claim {', '.join(unknown)}; there are {', '.join(CLAIMS)}")
    print(f"seed {SEED}, {SIMULATIONS} simulations each")
    for name in sys.argv[1:] or CLAIMS:
        began = time.monotonic()
        print(f"\n{name}: {CLAIMS[name].__doc__}")
        for line in CLAIMS[name]():
            print(f"  {line}", flush=True)
        print(f"  {time.monotonic() - began:.1f} s")
