"""What the statistics claim, shown by simulation.

python tests/bench/simulations.py [CLAIM …]; without a name, all of them. SEED and SIMULATIONS
are environment variables. A claim is a function of CLAIMS, which yields lines of its figures;
the figures come from functions that a test calls with the same seed.
"""

import os
import sys
import time

import numpy as np

from perfkit.comparison.verdict import verdict
from perfkit.statistics import ratio_interval

SEED = int(os.environ.get("SEED", "20261122"))
SIMULATIONS = int(os.environ.get("SIMULATIONS", "10000"))
SPREAD = 0.005
"""Standard deviation of a repeat's throughput from one to the next, relative to it."""


def normal(random, shape, spread=SPREAD):
    return 1 + spread * random.standard_normal(shape)


def lognormal(random, shape, spread=SPREAD):
    """Skewed to the right, as is what can't be below some time: logarithms of spread 1."""
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
    """Throughputs of so many simulations, an array (simulations, n) for each n of `sizes`."""
    random = np.random.default_rng([seed, [*NOISE].index(noise)])
    return [NOISE[noise](random, (simulations, n)) for n in sizes]


def share(found):
    return sum(found) / len(found)


def called_different(noise, n, shift=1.0, level=0.95, **how):
    """Share of simulations in which B, `shift` times A, is called faster or slower."""
    bases, others = draws(noise, (n, n), **how)
    said = [
        verdict(ratio_interval(other, base, level), level)
        for base, other in zip(bases.tolist(), (shift * others).tolist(), strict=True)
    ]
    return share([one in ("faster", "slower") for one in said])


def ratio_coverage(noise, m, n, ratio=1.03, level=0.95, **how):
    """Share of simulations whose interval has the true `ratio` in it, and the printed level."""
    bases, others = draws(noise, (n, m), **how)
    found = [
        ratio_interval(other, base, level)
        for base, other in zip(bases.tolist(), (ratio * others).tolist(), strict=True)
    ]
    (printed,) = {one.level for one in found}
    return share([one.low <= ratio <= one.high for one in found]), printed


def false_alarms():
    """A against A at the 5 % level: at most 6 % are called different."""
    for noise in NOISE:
        rates = (f"n={n} {called_different(noise, n):.2%}" for n in REPEATS)
        yield f"{noise}: {', '.join(rates)}"


def power():
    """A shift of 3 % at 0.5 % of noise and n=7: at least 90 % are found."""
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


CLAIMS = {"false_alarms": false_alarms, "power": power}
CLAIMS |= {"coverage_of_ratios": coverage_of_ratios}


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
