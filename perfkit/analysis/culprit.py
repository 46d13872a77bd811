"""Whether the machine or the software changed a throughput.

The workers of each measurement also measure what does not depend on their framework's training
loop: a sustained matrix product, a copy and, with several ranks, an all-reduce. If the machine
became slower, so did they; if the software did, they did not.

How far a slower machine explains a slower training follows from the model: the share of the
step's time that the product would take at its peak grows as the product slows down, and the
rest at most as the quantity that slowed down most:

    ratio of throughputs >= 1 / (share / product + (1 - share) / slowest)

where `product` and `slowest` are ratios of these rates, after / before.
"""

from collections.abc import Sequence
from statistics import fmean, median
from typing import ClassVar, Literal, NamedTuple

from perfkit.analysis.utilization import utilization
from perfkit.core.config import Config
from perfkit.core.results.base import Stored
from perfkit.core.results.schema import Result, present
from perfkit.core.statements import N_, Statement
from perfkit.core.statistics import Estimate, ratio_interval

Culprit = Literal["machine", "software", "both", "undecided"]
Doubt = Literal[
    "", "no rates", "untold precision", "threads", "noise", "input", "unknown input"
]
RATES = {
    "matrix product": "sustained_matmul_flops_per_second",
    "copy": "sustained_copy_bytes_per_second",
}
"""Name of a rate -> field of a repeat's peak."""
PRODUCT = "matrix product"


class RateChange(Stored):
    """The change of a rate that does not depend on the training loop."""

    name: str
    """matrix product, copy or all-reduce, sustained"""
    ratio: float
    """after / before"""
    low: float
    """lower end of its interval"""
    high: float
    """upper end"""


class Attribution(Stored):
    """What a change of throughput is attributed to."""

    culprit: Culprit
    """machine: the rates changed, and explain the change; software: they did not change, and
    the wait for data did not; both: they changed, and explain only a part; undecided: the rates
    or the input leave it open"""
    doubt: Doubt = ""
    """why it is undecided: no rates, as in older results; untold precision: a script does not
    tell the precision in which to measure them; threads: the measurements differ in the number
    of threads; noise: their intervals are too wide; input: the wait for data changed; unknown
    input: nothing tells the wait for data"""
    explained: float | None = None
    """ratio of throughputs up to which the change of the rates explains it"""
    rates: list[RateChange]
    """the changes of the rates"""

    @property
    def statement(self) -> "CulpritStatement":
        """The attribution as a statement."""
        return STATEMENTS[self.doubt or self.culprit](rates=self._rates_text)

    @property
    def _rates_text(self) -> str:
        return ", ".join(f"{rate.name} × {rate.ratio:.3g}" for rate in self.rates)


class CulpritStatement(Statement):
    """What a change of throughput is attributed to."""

    classes: ClassVar = {}
    rates: str
    """the changes of the rates"""


class MachineChanged(CulpritStatement):
    code = "machine"
    sentence = N_("The machine changed, and that explains it: %(rates)s.")


class SoftwareChanged(CulpritStatement):
    code = "software"
    sentence = N_("The software changed; the machine did not: %(rates)s.")


class BothChanged(CulpritStatement):
    code = "both"
    sentence = N_("Machine and software changed; the machine explains a part: %(rates)s.")


class NoRates(CulpritStatement):
    code = "no_rates"
    sentence = N_("Machine or software: unknown, since a measurement has no sustained rates.")


class PrecisionUntold(CulpritStatement):
    code = "precision_untold"
    sentence = N_(
        "Machine or software: unknown, since the script does not tell the precision in which "
        'to measure sustained rates: StepTimer(…, precision="bf16").'
    )


class ThreadsChanged(CulpritStatement):
    code = "threads_changed"
    sentence = N_(
        "Machine or software: can't tell, since the number of threads differs, on which the "
        "rates depend: %(rates)s."
    )


class RatesTooNoisy(CulpritStatement):
    code = "rates_too_noisy"
    sentence = N_("Machine or software: can't tell; the rates vary too much: %(rates)s.")


class InputChanged(CulpritStatement):
    code = "input_changed"
    sentence = N_("Machine or software: can't tell, since the wait for data changed.")


class InputUnknown(CulpritStatement):
    code = "input_unknown"
    sentence = N_("Machine or software: can't tell, since the wait for data is unknown.")


STATEMENTS: dict[str, type[CulpritStatement]] = {
    "machine": MachineChanged,
    "software": SoftwareChanged,
    "both": BothChanged,
    "no rates": NoRates,
    "untold precision": PrecisionUntold,
    "threads": ThreadsChanged,
    "noise": RatesTooNoisy,
    "input": InputChanged,
    "unknown input": InputUnknown,
}
"""Culprit or doubt -> its statement."""


class Evidence(NamedTuple):
    """What tells machine and software apart. `throughput` and `rates` are ratios after /
    before. `product_share`: share of the time of the faster side that the product takes at its
    peak, 0 to 1; `waits`: what is known about the wait for data."""

    throughput: Estimate
    rates: dict[str, Estimate]
    product_share: float
    waits: "Waits"


class Waits(NamedTuple):
    """Shares of the time before and after that wait for data; None if unknown."""

    before: float | None
    after: float | None


NO_WAITS = Waits(0.0, 0.0)
"""With synthetic input."""


def attributed(
    before: Sequence[Result], after: Sequence[Result], throughput: Estimate, threshold: float
) -> Attribution | None:
    """Attribute the change of throughput between measurements of one configuration. None for
    a change within the threshold, or within its interval."""
    if abs(throughput.value - 1) <= threshold or throughput.low <= 1 <= throughput.high:
        return None
    rates = _rates(before, after, throughput.level)
    if not rates:
        is_untold = any(_is_precision_untold(result) for result in [*before, *after])
        doubt: Doubt = "untold precision" if is_untold else "no rates"
        return Attribution(culprit="undecided", doubt=doubt, rates=[])
    faster = before if throughput.value < 1 else after
    evidence = Evidence(
        throughput=throughput,
        rates=rates,
        product_share=_product_share(faster),
        waits=_waits(before, after),
    )
    attribution = attribute(evidence, threshold)
    if attribution.culprit in ("machine", "both") and _have_other_threads(*before, *after):
        return attribution.model_copy(update={"culprit": "undecided", "doubt": "threads"})
    return attribution


def _have_other_threads(*results: Result) -> bool:
    """Return whether the sizes of the thread pools of any two results differ."""
    effective = [result.effective for result in results if result.effective]
    counts = [one.thread_counts for one in effective]
    return any(one != counts[0] for one in counts)


def _is_precision_untold(result: Result) -> bool:
    """Return whether the result is of a script that does not tell its precision."""
    return bool(result.told and result.told.precision is None)


def attribute(evidence: Evidence, threshold: float) -> Attribution:
    """Attribute a change of throughput, a share above the threshold, from at least the rate of
    the product. A gain is judged as the loss of going back."""
    changes = []
    for name, rate in evidence.rates.items():
        changes.append(RateChange(name=name, ratio=rate.value, low=rate.low, high=rate.high))
    if evidence.throughput.value <= 1:
        return _loss(evidence, threshold).model_copy(update={"rates": changes})
    loss = _loss(_reversed(evidence), threshold)
    assert loss.explained
    return loss.model_copy(update={"rates": changes, "explained": 1 / loss.explained})


def _loss(evidence: Evidence, threshold: float) -> Attribution:
    """Attribute a loss of throughput; without the changes of the rates."""
    rates = evidence.rates
    has_moved = any(rate.high < 1 and rate.value < 1 - threshold for rate in rates.values())
    share = evidence.product_share
    explained = _explained({name: rate.value for name, rate in rates.items()}, share)
    least = _explained({name: rate.low for name, rate in rates.items()}, share)
    is_beyond = evidence.throughput.high < least
    culprit: Culprit = "undecided"
    doubt: Doubt = ""
    if has_moved and is_beyond:
        culprit = "both"
    elif has_moved and evidence.throughput.value >= explained * (1 - threshold):
        culprit = "machine"
    elif has_moved or not is_beyond:
        doubt = "noise"
    elif input_doubt := _input_doubt(evidence.waits, threshold):
        doubt = input_doubt
    else:
        culprit = "software"
    return Attribution(culprit=culprit, doubt=doubt, explained=explained, rates=[])


def _explained(rates: dict[str, float], product_share: float) -> float:
    """Return the lowest ratio of throughputs that these ratios of rates explain."""
    slowest = min(1.0, *rates.values())
    product = min(1.0, rates.get(PRODUCT, slowest))
    return 1 / (product_share / product + (1 - product_share) / slowest)


def _input_doubt(waits: Waits, threshold: float) -> Doubt:
    """Return why the input may be the cause of a loss."""
    if waits.before is None or waits.after is None:
        return "unknown input"
    return "input" if waits.after - waits.before > threshold else ""


def _reversed(evidence: Evidence) -> Evidence:
    """Return the evidence for the change back."""
    rates = {name: _inverse(rate) for name, rate in evidence.rates.items()}
    return evidence._replace(
        throughput=_inverse(evidence.throughput),
        rates=rates,
        waits=Waits(evidence.waits.after, evidence.waits.before),
    )


def _inverse(ratio: Estimate) -> Estimate:
    return Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.level)


def _rates(
    before: Sequence[Result], after: Sequence[Result], level: float
) -> dict[str, Estimate]:
    """Return the ratio of each rate that all repeats have; none without the product."""
    rates = {}
    for name, field in RATES.items():
        sides = [_values(results, field) for results in (before, after)]
        if all(sides):
            earlier, later = sides
            rates[name] = ratio_interval(later, earlier, level)
    return rates if PRODUCT in rates else {}


def _values(results: Sequence[Result], field: str) -> list[float]:
    """Return a rate of every complete repeat; none if a repeat lacks it."""
    values = []
    for result in results:
        for repeat in result.complete_repeats:
            value = getattr(repeat.peak, field, None)
            if value is None:
                return []
            values.append(value)
    return values


def _product_share(results: Sequence[Result]) -> float:
    """Return the share of the time that the product would take at its measured peak."""
    shares: list[float] = []
    for result in results:
        used = utilization(result)
        if used:
            shares += used.shares
    return min(1.0, median(shares)) if shares else 0.0


def _waits(before: Sequence[Result], after: Sequence[Result]) -> Waits:
    config = before[0].config
    if isinstance(config, Config) and config.input == "synthetic":
        return NO_WAITS
    return Waits(_wait(before), _wait(after))


def _wait(results: Sequence[Result]) -> float | None:
    """Return the share of the time that waits for data; None if no repeat tells it."""
    repeats = [repeat for result in results for repeat in result.complete_repeats]
    shares = present(repeat.data_wait_share for repeat in repeats)
    return fmean(shares) if shares else None
