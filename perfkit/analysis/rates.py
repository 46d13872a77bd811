"""What the machine itself did while a throughput changed.

The workers of every measurement also time a matrix product and a copy, which do not depend on
the training loop. Their sustained rates, after / before, stand beside the ratio of the
training: if they fell too, the machine is the first thing to look at.
"""

from collections.abc import Sequence

from perfkit.analysis.ratios import Ratio, estimated
from perfkit.measuring.results.repeat import Peak
from perfkit.measuring.results.schema import Result
from perfkit.measuring.statements import N_
from perfkit.measuring.statistics import Estimate, median, ratio_interval

FIELDS = {
    N_("matrix product"): "sustained_matmul_flops_per_second",
    N_("copy"): "sustained_copy_bytes_per_second",
}
"""Name of a rate -> field of a repeat's peak."""


class MachineRate(Ratio):
    """The ratio of a sustained rate that does not depend on the training, after / before."""

    name: str
    """what the rate is of: matrix product or copy"""
    before: float
    """median before; FLOPs or bytes per second"""
    after: float
    """median after"""
    fell_with_training: bool
    """whether it fell by at least half as much as the training did, and both intervals lie
    below 1"""


def machine_rates(
    before: Sequence[Result], after: Sequence[Result], training: Estimate, level: float
) -> list[MachineRate]:
    """Return the ratios of the rates, with intervals of at least `level` if the repeats are
    enough; none unless all complete repeats have a peak. `training` is the ratio of
    throughputs."""
    earlier, later = _peaks(before), _peaks(after)
    if None in (*earlier, *later):
        return []
    rates = []
    for name, field in FIELDS.items():
        now, then = _values(later, field), _values(earlier, field)
        ratio = ratio_interval(now, then, level)
        rate = MachineRate(
            **estimated(ratio),
            name=name,
            before=median(then),
            after=median(now),
            fell_with_training=_fell_with(training, ratio, level),
        )
        rates.append(rate)
    return rates


def _peaks(results: Sequence[Result]) -> list[Peak | None]:
    return [repeat.peak for result in results for repeat in result.complete_repeats]


def _values(peaks: Sequence[Peak | None], field: str) -> list[float]:
    return [getattr(peak, field) for peak in peaks]


def _fell_with(training: Estimate, rate: Estimate, level: float) -> bool:
    both_fell = all(ratio.level >= level and ratio.high < 1 for ratio in (training, rate))
    return both_fell and 1 - rate.value >= (1 - training.value) / 2
