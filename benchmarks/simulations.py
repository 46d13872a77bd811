"""Checks the claims of the statistics by simulation.

python benchmarks/simulations.py [CLAIM …] runs the named claims or all. SEED and SIMULATIONS
are environment variables. A claim is a function of CLAIMS that yields lines of figures, from
functions that tests call with the same seed.
"""

import os
import sys
import time
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from perfkit.analysis.fleet.rule import NodeRepeats, Rules, judge
from perfkit.analysis.series import level_starts, newest_drop
from perfkit.analysis.verdicts import THRESHOLD, verdict
from perfkit.measuring.driver.progress import round_order
from perfkit.measuring.driver.warmup import WarmupTest
from perfkit.measuring.protocol import AUTO, AUTO_WARMUP, PROTOCOLS, Protocol
from perfkit.measuring.results.schema import STOPPING_LEVEL
from perfkit.measuring.statistics import (
    median_estimate,
    median_interval,
    outliers,
    ratio_interval,
    relative_width,
)
from perfkit.measuring.steady import FEWEST_STEPS, TOLERANCE, steadiness
from perfkit.timing.warmup import window_steps

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


def share(outcomes):
    return sum(outcomes) / len(outcomes)


def ratio_intervals(noise, m, n, ratio, level, **how):
    """Return the interval of each simulation in which B is `ratio` times as fast as A; A has n
    repeats and B has m."""
    bases, others = draws(noise, (n, m), **how)
    others = ratio * others
    pairs = zip(bases.tolist(), others.tolist(), strict=True)
    return [ratio_interval(other, base, level) for base, other in pairs]


def share_of_different(estimates, level):
    """Return the share of comparisons whose verdict is that B differs from A."""
    verdicts = [verdict(estimate, level, THRESHOLD) for estimate in estimates]
    return share([word in ("faster", "slower") for word in verdicts])


def coverage(intervals, value):
    """Return the share of intervals that cover the true value, and their level."""
    (level,) = {interval.level for interval in intervals}
    return share([interval.low <= value <= interval.high for interval in intervals]), level


def called_different(noise, n, shift=1.0, level=0.95, **how):
    """Return the share of simulations in which `shift` times A is called different from A."""
    return share_of_different(ratio_intervals(noise, n, n, shift, level, **how), level)


def ratio_coverage(noise, m, n, ratio=1.03, level=0.95, **how):
    """Return the share of simulations whose interval covers the true ratio, and its level."""
    return coverage(ratio_intervals(noise, m, n, ratio, level, **how), ratio)


def false_alarms():
    """A against A at the 5 % level: at most 6 % are called different."""
    for noise in NOISE:
        rates = [f"n={n} {called_different(noise, n):.2%}" for n in REPEATS]
        yield f"{noise}: {', '.join(rates)}"


def drifting(drift, order=round_order, n=6, level=0.95, simulations=SIMULATIONS, seed=SEED):
    """Return the share of interleaved comparisons of A with A that are called different on a
    machine whose speed changes by `drift` per repeat."""
    random = np.random.default_rng(seed)
    speeds = 1 + drift * np.arange(2 * n).reshape(n, 2)
    bases, others = [], []
    for repeat, in_turn in enumerate(speeds, 1):
        place = list(order([0, 1], repeat)).index(0)
        bases.append(in_turn[place])
        others.append(in_turn[1 - place])
    shape = (simulations, n)
    measured_others = np.array(others) * normal(random, shape)
    ratios = measured_others / (np.array(bases) * normal(random, shape))
    estimates = [median_estimate(pairs, level) for pairs in ratios.tolist()]
    return share_of_different(estimates, level)


def drift():
    """On a machine that becomes steadily faster, an interleaved comparison of A with A gives no
    false alarms in the order A B B A, unlike A B A B."""
    for change in (0, 0.0025, 0.005, 0.01):
        fixed = drifting(change, lambda variants, _repeat: variants)
        yield f"{change:.2%} a repeat: A B B A {drifting(change):.2%}, A B A B {fixed:.2%}"


def power():
    """A shift of 3 % at 0.5 % noise and n=7: at least 90 % are found."""
    for noise in NOISE:
        rates = []
        for shift in SHIFTS:
            rates.append(f"{shift - 1:+.1%} {called_different(noise, 7, shift):.2%}")
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
    (values,) = draws(noise, (n,), **how)
    intervals = [median_interval(repeats) for repeats in values.tolist()]
    return coverage(intervals, true_median(noise, SPREAD))


def coverage_of_medians():
    """A measurement's interval covers as often as it prints, within 1 point."""
    for noise in NOISE:
        for n in REPEATS:
            covered, printed = median_coverage(noise, n)
            yield f"{noise}, n={n}: {covered:.2%}, printed {printed:.2%}"


STEP_SECONDS, STEP_SPREAD = 0.006, 0.1
"""A fast step, and the deviation of its times."""


def window_of_seconds(random, noise):
    """Return the steps per second of a repeat under `quick`, whose level deviates by SPREAD."""
    usual = STEP_SECONDS * NOISE[noise](random, ())
    of_warmup = usual * normal(random, 500, STEP_SPREAD)
    count = int(np.searchsorted(np.cumsum(of_warmup), 1.0)) + 1
    steps = window_steps(5, 3.0, of_warmup[:count].tolist())
    return steps / (usual * normal(random, steps, STEP_SPREAD)).sum()


def windows_of_seconds():
    """So it does with windows of seconds, whose number of steps follows from the last second of
    the warm-up."""
    for noise in NOISE:
        random = np.random.default_rng([SEED, 7])
        rates = [window_of_seconds(random, noise) for _repeat in range(5 * SIMULATIONS)]
        middle = float(np.median(rates))
        measurements = np.reshape(rates, (SIMULATIONS, 5)).tolist()
        covered, printed = coverage([median_interval(each) for each in measurements], middle)
        yield f"{noise}, n=5: {covered:.2%}, printed {printed:.2%}"


def stopped(noise, spread, target=0.02, simulations=SIMULATIONS, seed=SEED):
    """For repeats=auto, return the intervals' coverage, mean level and mean repeats."""
    middle = true_median(noise, spread)
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    most = AUTO["repeats"]
    covers, levels, repeats = [], [], []
    for values in NOISE[noise](random, (simulations, most), spread).tolist():
        n = stopped_at(values, target)
        low, high, level = median_interval(values[:n])
        covers.append(low <= middle <= high)
        levels.append(level)
        repeats.append(n)
    return share(covers), share(levels), share(repeats)


def stopped_at(values, target):
    """Return the number of repeats after which the interval is narrow enough, or all."""
    for n in range(2, len(values)):
        width = relative_width(values[:n], STOPPING_LEVEL)
        if width is not None and width <= target:
            return n
    return len(values)


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
        rates = [f"n={n} {outlying(noise, n):.1%}" for n in REPEATS]
        yield f"{noise}: {', '.join(rates)}"


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
    unsteady = []
    for _ in range(simulations):
        spread = random.uniform(0.002, 0.03)
        judged = steadiness(STEP_NOISE[noise](random, count, spread))
        is_steady = judged.begin == 0 and judged.settled and judged.drift is None
        unsteady.append(not is_steady)
    return share(unsteady)


def found_warm_up(form, simulations, seed=SEED):
    """Return the share of planted warm-ups of 5 to 60 steps, initially 20 to 100 % slower,
    whose end is found within 5 steps; `form` is `step` or `ramp`."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(simulations):
        length, height = random.integers(5, 61), random.uniform(0.2, 1)
        left = 1 - np.arange(STEPS) / length
        slower = np.clip(left, 0, 1)
        if form == "step":
            slower = left > 0
        judged = steadiness(flat(random, 0.015) + height * slower)
        found.append(judged.settled and abs(judged.begin - length) <= 5)
    return share(found)


def found_drift(simulations, seed=SEED):
    """Return the share of planted drifts of 3 to 10 % over the steps, up or down, after
    warm-ups of 0 to 20 steps, that are found with their sign."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(simulations):
        total = random.uniform(0.03, 0.1) * random.choice([-1, 1])
        course = flat(random, 0.01) + total * np.arange(STEPS) / STEPS
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
        rates = []
        for count in (FEWEST_STEPS, STEPS, 1000):
            rate = called_unsteady(SIMULATIONS // 5, noise, count=count)
            rates.append(f"{count} steps {rate:.2%}")
        yield f"flat, {noise}: {', '.join(rates)}"


WARMUPS = ("ramp", "decay", "cold first pass")


def running(form, random, noise, spread):
    """Return the step times of a repeat with a planted warm-up of 5 to 400 steps, initially 10
    to 60 % slower, the same without noise, and the steps per pass over the data or None. `ramp`
    falls linearly, `decay` exponentially; `cold first pass` is slow for the first pass."""
    length, height = int(random.integers(5, 401)), random.uniform(0.1, 0.6)
    numbers = np.arange(AUTO_WARMUP["warmup_limit"] + MEASURED_STEPS)
    course = 1 + height * np.clip(1 - numbers / length, 0, 1)
    pass_steps = None
    if form == "decay":
        course = 1 + height * np.exp(-4 * numbers / length)
    elif form == "cold first pass":
        course, pass_steps = 1 + height * (numbers < length), length
    seconds = course * STEP_NOISE[noise](random, len(numbers), spread)
    return seconds, course, pass_steps


def ended_warm_ups(form, simulations, noise="normal", spread=0.01, seed=SEED):
    """Return, for planted warm-ups, the share that end as steady with the window within
    TOLERANCE of the final level, the share that end as steady too early, and the median number
    of steps beyond the planted warm-up. The rest reaches the limit."""
    random = np.random.default_rng([seed, WARMUPS.index(form)])
    right, wrong, longer = 0, 0, []
    for _ in range(simulations):
        seconds, course, pass_steps = running(form, random, noise, spread)
        end = warm_up_end(seconds, WarmupTest(Protocol.named("steady"), pass_steps))
        if end is None:
            continue
        window = course[end : end + MEASURED_STEPS]
        if window.mean() - 1 > TOLERANCE:
            wrong += 1
        else:
            right += 1
        planted_end = np.flatnonzero(course > 1 + TOLERANCE)[-1]
        longer.append(end - planted_end)
    return right / simulations, wrong / simulations, float(np.median(longer))


def warm_up_end(seconds, test):
    """Return the number of steps after which the test ends the warm-up; None if it does not."""
    for steps in range(5, len(seconds) - MEASURED_STEPS + 1, 5):
        if test.ends_with(seconds[:steps].tolist()):
            return steps
    return None


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


MEASUREMENTS = (5, 10, 50)
"""Lengths of simulated series."""
SESSIONS = (0.0, 0.005, 0.01)
"""Standard deviations of sessions, relative to their mean."""


def series_of(random, noise, measurements, session, spread):
    """Return throughputs (measurements, 7) of a series without a drop."""
    repeats = NOISE[noise](random, (measurements, 7), spread)
    return repeats * (1 + session * random.standard_normal((measurements, 1)))


def called_regressed(
    noise, simulations, measurements, session=0.0, drop=0.0, spread=0.01, seed=SEED
):
    """Return the share of series that are called a regression at a check, after the last two
    measurements fell by `drop`."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    regressed = []
    for _ in range(simulations):
        series = series_of(random, noise, measurements, session, spread)
        series[-2:] *= 1 - drop
        throughputs = series.tolist()
        starts = level_starts(throughputs, THRESHOLD)
        found = newest_drop(throughputs, starts, 0, THRESHOLD)
        regressed.append(found is not None)
    return share(regressed)


def false_changes(noise, simulations, measurements, session=0.0, seed=SEED):
    """Return the share of series without any change in which one is found."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    found = []
    for _ in range(simulations):
        series = series_of(random, noise, measurements, session, 0.01)
        found.append(len(level_starts(series.tolist(), THRESHOLD)) > 1)
    return share(found)


def drops():
    """If sessions scatter by at most 0.5 %, a series without a drop is called a regression in
    at most 1 % of checks, and a drop of 5 % is found within two measurements in at least
    90 %."""
    simulations = SIMULATIONS // 5
    for noise, session, measurements in product(NOISE, SESSIONS, MEASUREMENTS):
        figures = (noise, simulations, measurements, session)
        yield (
            f"{noise}, sessions {session:.1%}, {measurements} measurements: "
            f"false regression {called_regressed(*figures):.2%}, "
            f"false change {false_changes(*figures):.2%}, "
            f"drop of 5 % found {called_regressed(*figures, drop=0.05):.1%}, "
            f"of 3 % {called_regressed(*figures, drop=0.03):.1%}"
        )
    for noise, measurements in product(NOISE, MEASUREMENTS):
        rate = called_regressed(noise, simulations, measurements, 0.025, spread=0.05)
        yield f"{noise} of 5 %, sessions 2.5 %, {measurements} measurements: {rate:.2%}"


FLEETS = {4: 2000, 16: 2000, 64: 2000, 256: 400}
"""Nodes of a fleet -> simulated fleets of each kind."""
FLEET_NOISE = (0.003, 0.01, 0.03)
"""Standard deviations of a node's repeats."""
BETWEEN = (0.003, 0.01)
"""Standard deviations between good nodes."""


@dataclass(frozen=True)
class SimulatedFleet:
    """Fleets whose good nodes have the standard deviation `between`, and whose repeats have
    that of `spread`; the first `slow` nodes are slower by the share `by`, and all are judged as
    one of so many `columns`."""

    nodes: int
    repeats: int
    spread: float
    between: float = BETWEEN[0]
    slow: int = 0
    by: float = 0.05
    noise: str = "normal"
    columns: int = 1

    def verdicts(self, fleets):
        """Yield the verdicts on the nodes of each fleet."""
        random = np.random.default_rng([SEED, [*NOISE].index(self.noise), self.nodes])
        for _ in range(fleets):
            means = 1 + self.between * random.standard_normal((self.nodes, 1))
            means[: self.slow] *= 1 - self.by
            repeats = NOISE[self.noise](random, (self.nodes, self.repeats), self.spread)
            fleet = [
                NodeRepeats(str(node), "", values)
                for node, values in enumerate((means * repeats).tolist())
            ]
            judged = judge(fleet, Rules(columns=self.columns))
            yield [cell.verdict for cell in judged.cells]


def false_alarms_of_fleets(simulated, fleets):
    """Return the share of fleets in which a good node is called slow."""
    every = simulated.verdicts(fleets)
    return share(["slow" in verdicts[simulated.slow :] for verdicts in every])


def slow_nodes_found(simulated, fleets):
    """Return the share of slow nodes that are called slow."""
    found = []
    for verdicts in simulated.verdicts(fleets):
        found += [verdict == "slow" for verdict in verdicts[: simulated.slow]]
    return share(found)


def fleet_alarms():
    """In at most 5 % of fleets is a good node called slow: the highest and the mean rate of the
    kinds of fleet, by 3, 5 and 7 repeats, their noise and the spread between nodes; the same
    with one node slow by 5 %, and with other noise."""
    for nodes, fleets in FLEETS.items():
        for noise, slow in (("normal", 0), ("normal", 1), ("lognormal", 0), ("bimodal", 0)):
            rates = []
            for repeats, spread, between in product((3, 5, 7), FLEET_NOISE, BETWEEN):
                kind = SimulatedFleet(nodes, repeats, spread, between, slow=slow, noise=noise)
                rates.append(false_alarms_of_fleets(kind, fleets))
            yield (
                f"{nodes} nodes, {slow} slow, {noise}, {fleets} fleets of each of {len(rates)} "
                f"kinds: at most {max(rates):.1%}, mean {np.mean(rates):.1%}"
            )


def fleet_power():
    """How often a node slow by 3 and 5 % is called slow, where the others differ by 0.3 %."""
    for nodes, repeats in product(FLEETS, (3, 5, 7)):
        found = []
        for spread in FLEET_NOISE:
            rates = []
            for by in (0.03, 0.05):
                simulated = SimulatedFleet(nodes, repeats, spread, slow=1, by=by)
                rates.append(f"{slow_nodes_found(simulated, FLEETS[nodes]):.0%}")
            found.append(f"noise {spread:.1%}: {' and '.join(rates)}")
        yield f"{nodes} nodes, {repeats} repeats: {', '.join(found)}"
    for nodes, columns in product((4, 16, 64), (4, 8)):
        simulated = SimulatedFleet(nodes, 5, 0.01, slow=1, columns=columns)
        rate = slow_nodes_found(simulated, FLEETS[nodes])
        yield f"{nodes} nodes, {columns} columns, 5 repeats, noise 1 %, slow by 5 %: {rate:.0%}"


CLAIMS = {
    "drops": drops,
    "coverage_of_medians": coverage_of_medians,
    "windows_of_seconds": windows_of_seconds,
    "stopping": stopping,
    "flagged_outliers": flagged_outliers,
    "steady_state": steady_state,
    "warm_up": warm_up,
    "false_alarms": false_alarms,
    "drift": drift,
    "power": power,
    "coverage_of_ratios": coverage_of_ratios,
    "fleet_alarms": fleet_alarms,
    "fleet_power": fleet_power,
}


if __name__ == "__main__":
    names = sys.argv[1:] or [*CLAIMS]
    unknown = {*names} - CLAIMS.keys()
    if unknown:
        sys.exit(f"no claim {', '.join(unknown)}; there are {', '.join(CLAIMS)}")
    print(f"seed {SEED}, {SIMULATIONS} simulations each")
    for name in names:
        began = time.monotonic()
        print(f"\n{name}: {CLAIMS[name].__doc__}")
        for line in CLAIMS[name]():
            print(f"  {line}", flush=True)
        print(f"  {time.monotonic() - began:.1f} s")
