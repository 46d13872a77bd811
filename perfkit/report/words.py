"""A measurement's number and warnings, and what the machine did beside a change, in words for
pages and terminals."""

from collections.abc import Sequence

from perfkit.analysis.rates import MachineRate
from perfkit.analysis.verdicts import LEVEL, are_few, fewest_of_each
from perfkit.analysis.warnings import MeasurementChecks, severity
from perfkit.measuring.format import percent, rate_text
from perfkit.measuring.results.schema import Result
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext


def number_words(result: Result) -> str:
    """Return the throughput of a complete measurement, and of how many repeats it is."""
    throughput = result.throughput
    assert throughput
    median = _("median of n=%(n)d") % {"n": throughput.n}
    ends = throughput.interval or ()
    return f"{rate_text(throughput.value, throughput.unit, *ends)}, {median}"


def warning_words(checks: MeasurementChecks) -> str:
    """Return the number of warnings, and their codes with their severities, worst first."""
    if not checks.warnings:
        return few_repeats(len(checks.profiles)) or _("no warnings")
    return counted_warnings([warning.code for warning in checks.warnings])


def counted_warnings(codes: Sequence[str]) -> str:
    """Return the number of these warnings, and their codes with their severities."""
    texts = [f"{code} ({_(severity([code]) or '')})" for code in codes]
    words = ngettext(
        "%(count)d warning: %(codes)s", "%(count)d warnings: %(codes)s", len(codes)
    )
    return words % {"count": len(codes), "codes": ", ".join(texts)}


def machine_words(rates: Sequence[MachineRate]) -> str:
    """Return that the machine is the first thing to look at; empty unless a rate fell with the
    training."""
    fell = [_(rate.name) for rate in rates if rate.fell_with_training]
    if not fell:
        return ""
    words = _(
        "Look at the machine first (clocks, other load, number of threads): %(rates)s fell by "
        "at least half as much as the training."
    )
    return words % {"rates": _(" and ").join(fell)}


def few_repeats(n: int) -> str:
    """Return how many repeats a measurement of `n` needs to be told from another one; empty if
    it has them."""
    if not are_few(n):
        return ""
    words = _("Can't tell: n=%(n)d is too few at %(level)s; n=%(enough)d is enough.")
    return words % {"n": n, "level": percent(LEVEL), "enough": fewest_of_each()}
